package sinch

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
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

// Webhook takes delivery reports and gives them to sink. It answers 200 once
// they are stored, and 503 where that failed, so that Sinch repeats. A call
// that isn't signed, or whose signature or time is wrong, changes nothing. A
// signed report that can't be read is answered 200 and counted in Unread. The
// handler is safe for concurrent use.
func (p *Provider) Webhook(sink dispatch.ReceiptSink) http.Handler {
	return &hook.Handler{Methods: []string{http.MethodPost}, MaxBody: 1 << 20, Parse: p.parse, Sink: sink}
}

// Unread is how many signed reports could not be read since New.
func (p *Provider) Unread() int64 { return p.unread.Load() }

// authentic checks a call: the base64 of HMAC-SHA256 over body, nonce and
// time, with dots between.
func (p *Provider) authentic(c hook.Call) error {
	field := func(name string) string {
		if all := c.Header.Values("X-Sinch-Webhook-Signature" + name); len(all) == 1 {
			return all[0]
		}
		return ""
	}
	got, err := base64.StdEncoding.Strict().DecodeString(field(""))
	switch {
	case p.cfg.WebhookSecret == "" || len(got) == 0 || err != nil:
		return hook.Refuse(http.StatusUnauthorized, "unsigned")
	case !strings.EqualFold(field("-Algorithm"), "HmacSHA256"):
		return hook.Refuse(http.StatusUnauthorized, "another algorithm")
	}
	mac := hmac.New(sha256.New, []byte(p.cfg.WebhookSecret))
	mac.Write(c.Body)
	mac.Write([]byte("." + field("-Nonce") + "." + field("-Timestamp")))
	if !hmac.Equal(mac.Sum(nil), got) {
		return hook.Refuse(http.StatusUnauthorized, "signature differs")
	}
	seconds, err := strconv.ParseInt(field("-Timestamp"), 10, 64)
	age := time.Now().Unix() - seconds
	if err != nil || seconds <= 0 || age > int64(p.cfg.Replay.Seconds()) || age < -int64(ahead.Seconds()) {
		return hook.Refuse(http.StatusUnauthorized, "outside the window")
	}
	return nil
}

func (p *Provider) parse(c hook.Call) ([]dispatch.Receipt, error) {
	if err := p.authentic(c); err != nil {
		return nil, err
	}
	return p.read(c.Body), nil
}

// status is one recipient's report, or one line of a batch's.
type status struct {
	Code       loosejson.Text   `json:"code"`
	Status     loosejson.Text   `json:"status"`
	Recipient  loosejson.Text   `json:"recipient"`
	Recipients []loosejson.Text `json:"recipients"`
	At         loosejson.Text   `json:"at"`
	CreatedAt  loosejson.Text   `json:"created_at"`
}

// read reads a report: of one recipient, or of a batch, which has a line for
// each code. A line that can't be read doesn't take the others with it.
func (p *Provider) read(body []byte) []dispatch.Receipt {
	var doc struct {
		Type     loosejson.Text    `json:"type"`
		Batch    loosejson.Text    `json:"batch_id"`
		Ref      loosejson.Text    `json:"client_reference"`
		Statuses []json.RawMessage `json:"statuses"`
	}
	if err := loosejson.Decode(body, &doc); err != nil || doc.Batch.Word(maxID) == "" {
		p.unread.Add(1)
		return nil
	}
	lines := doc.Statuses
	if len(lines) == 0 {
		lines = []json.RawMessage{body}
	}
	base := dispatch.Receipt{Provider: p.cfg.Name, Account: p.cfg.ServicePlanID, ProviderID: doc.Batch.Word(maxID)}
	if key, err := dispatch.ParseKey(doc.Ref.Word(maxCode)); err == nil {
		base.Key = key
	}
	var out []dispatch.Receipt
	for _, line := range lines {
		if r, ok := one(base, line); ok {
			out = append(out, r)
		} else {
			p.unread.Add(1)
		}
	}
	return out
}

// one reads a line. Its event is batch, status and code, without the time: a
// message to one recipient has each of them once, and a repeat may come with
// another time.
func one(r dispatch.Receipt, line []byte) (dispatch.Receipt, bool) {
	var s status
	if err := loosejson.Decode(line, &s); err != nil {
		return r, false
	}
	word := s.Status.Word(maxCode)
	if word == "" {
		return r, false
	}
	r.Kind, r.Code = kinds[word], s.Code.Word(maxCode)
	r.EventKey = strings.Join([]string{r.ProviderID, word, r.Code}, "/")
	r.Permanent = (r.Kind == dispatch.Undelivered || r.Kind == dispatch.Failed) && permanent(r.Code)
	if r.Recipient = s.Recipient.Word(maxID); len(s.Recipients) == 1 {
		r.Recipient = s.Recipients[0].Word(maxID)
	}
	at := s.At
	if at == "" {
		at = s.CreatedAt
	}
	if t, err := time.Parse(time.RFC3339Nano, at.Word(maxCode)); err == nil && t.Year() >= 2000 && t.Year() < 2200 {
		r.At = t.UTC()
	}
	return r, true
}
