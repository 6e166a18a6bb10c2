package vonage

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/internal/hook"
	"github.com/seed-8098fbb7/dispatch/provider/internal/loosejson"
)

// ahead is how far a signed time may lie in the future: clocks differ.
const ahead = 5 * time.Minute

// Webhook takes the status calls of the Messages API, or the delivery
// receipts of the SMS API, and gives them to sink. It answers 200 once they
// are stored, and 503 where that failed, so that Vonage repeats. A call that
// isn't signed, or whose signature, account or time is wrong, changes
// nothing. A signed call that can't be read is answered 200 and counted in
// Unread. The handler is safe for concurrent use.
func (p *Provider) Webhook(sink dispatch.ReceiptSink) http.Handler {
	if p.cfg.API == SMS {
		return &hook.Handler{Methods: []string{http.MethodPost, http.MethodGet}, Parse: p.parseReceipt, Sink: sink}
	}
	return &hook.Handler{Methods: []string{http.MethodPost}, Parse: p.parseStatus, Sink: sink}
}

// Unread is how many signed calls could not be read since New.
func (p *Provider) Unread() int64 { return p.unread.Load() }

// authentic checks a status call: a JWT in the Authorization field, signed
// with the account's secret, over the SHA-256 of the body.
func (p *Provider) authentic(c hook.Call) error {
	fields := c.Header.Values("Authorization")
	if p.cfg.SignatureSecret == "" {
		return hook.Refuse(http.StatusUnauthorized, "no secret to check it with")
	}
	if len(fields) == 0 {
		// Vonage says that it may send an unsigned call after an error of its
		// own, and a signed one again if it is answered 5xx.
		return hook.Refuse(http.StatusServiceUnavailable, "unsigned")
	}
	scheme, token, _ := strings.Cut(fields[0], " ")
	if len(fields) > 1 || !strings.EqualFold(scheme, "Bearer") {
		return hook.Refuse(http.StatusUnauthorized, "not one bearer token")
	}
	got, err := verify(token, p.cfg.SignatureSecret)
	if err != nil {
		return hook.Refuse(http.StatusUnauthorized, err.Error())
	}
	sum := sha256.Sum256(c.Body)
	if subtle.ConstantTimeCompare([]byte(hex.EncodeToString(sum[:])), []byte(strings.ToLower(string(got.Hash)))) != 1 {
		return hook.Refuse(http.StatusUnauthorized, "body is not the signed one")
	}
	switch now := time.Now(); {
	case got.Issuer != "Vonage":
		return hook.Refuse(http.StatusUnauthorized, "token is not Vonage's")
	case got.APIKey != "" && string(got.APIKey) != p.cfg.APIKey:
		return hook.Refuse(http.StatusUnauthorized, "token is another account's")
	case !p.fresh(got.Issued.String(), now):
		return hook.Refuse(http.StatusUnauthorized, "token is outside the window")
	case got.Expires != "" && !before(now, got.Expires.String()), got.NotBefore != "" && before(now.Add(ahead), got.NotBefore.String()):
		return hook.Refuse(http.StatusUnauthorized, "token is not good now")
	}
	return nil
}

// fresh reports whether seconds since the epoch lie inside the window. What
// is missing or no whole number does not.
func (p *Provider) fresh(seconds string, now time.Time) bool {
	n, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil || n <= 0 {
		return false
	}
	age := now.Unix() - n
	return age <= int64(p.cfg.Replay.Seconds()) && age >= -int64(ahead.Seconds())
}

// before reports whether t is before a moment in seconds, false for nonsense.
func before(t time.Time, seconds string) bool {
	n, err := strconv.ParseInt(seconds, 10, 64)
	return err == nil && t.Unix() < n
}

// parseStatus reads a status call of the Messages API.
func (p *Provider) parseStatus(c hook.Call) ([]dispatch.Receipt, error) {
	if err := p.authentic(c); err != nil {
		return nil, err
	}
	return p.readStatus(c.Body), nil
}

func (p *Provider) readStatus(body []byte) []dispatch.Receipt {
	var s struct {
		ID     loosejson.Text `json:"message_uuid"`
		Ref    loosejson.Text `json:"client_ref"`
		Status loosejson.Text `json:"status"`
		Time   loosejson.Text `json:"timestamp"`
		To     loosejson.Text `json:"to"`
		Error  *problem       `json:"error"`
	}
	if err := loosejson.Decode(body, &s); err != nil {
		p.unread.Add(1)
		return nil
	}
	r := p.receipt(s.ID, s.Ref, s.Status)
	r.Kind, r.Recipient = messagesKinds[r.EventKey], s.To.Word(maxID)
	if s.Error != nil {
		r.Code = s.Error.code()
	}
	r.At = moderate(time.Parse(time.RFC3339Nano, s.Time.Word(maxCode)))
	return p.one(r, s.ID.Word(maxID))
}

// messagesKinds are the statuses of the Messages API. Source: Messages API
// 1.20.0, and the page "Messages API Status Callbacks". Others are Noted.
var messagesKinds = map[string]dispatch.ReceiptKind{
	"submitted":     dispatch.Passed, // handed to a messaging provider
	"delivered":     dispatch.Delivered,
	"rejected":      dispatch.Undelivered, // by Vonage, by the provider, or expired
	"undeliverable": dispatch.Failed,      // the provider could not be reached
	"read":          dispatch.Opened,
}

// receipt begins a receipt; EventKey is the status yet.
func (p *Provider) receipt(id, ref, status loosejson.Text) dispatch.Receipt {
	r := dispatch.Receipt{Provider: p.cfg.Name, Account: p.cfg.APIKey, EventKey: status.Word(maxCode), ProviderID: id.Word(maxID)}
	if key, err := dispatch.ParseKey(ref.Word(maxCode)); err == nil {
		r.Key = key
	}
	return r
}

// one finishes a receipt, or counts one that says nothing of any message. Its
// event is the message (or part), the status and the code, without the time:
// a message has each of them once, and a repeat may come with another time.
func (p *Provider) one(r dispatch.Receipt, id string) []dispatch.Receipt {
	status := r.EventKey
	if status == "" || id == "" {
		p.unread.Add(1)
		return nil
	}
	r.EventKey = strings.Join([]string{id, status, r.Code}, "/")
	r.Permanent = (r.Kind == dispatch.Undelivered || r.Kind == dispatch.Failed) && permanent(r.Code)
	return []dispatch.Receipt{r}
}

// moderate drops a time that can't be read or can't be true.
func moderate(t time.Time, err error) time.Time {
	if err != nil || t.Year() < 2000 || t.Year() > 2199 {
		return time.Time{}
	}
	return t.UTC()
}
