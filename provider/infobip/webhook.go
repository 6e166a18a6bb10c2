package infobip

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/internal/hook"
	"github.com/seed-8098fbb7/dispatch/provider/internal/loosejson"
)

// Webhook takes delivery reports, up to hundreds in a call, and gives them to
// sink. It answers 200 once they are stored, and 503 where that failed, so
// that Infobip repeats. A call without the secret changes nothing. A report
// that can't be read doesn't take the others with it; it is counted in Unread.
//
// The secret is all that protects the call: Infobip documents no signature
// over the body and no time, so a call that somebody could read can be
// repeated, which changes nothing, or altered. Keep the URL out of logs. The
// handler is safe for concurrent use.
func (p *Provider) Webhook(sink dispatch.ReceiptSink) http.Handler {
	return &hook.Handler{Methods: []string{http.MethodPost}, MaxBody: 1 << 20, Parse: p.parse, Sink: sink}
}

// Unread is how many reports of calls with the secret could not be read since
// New.
func (p *Provider) Unread() int64 { return p.unread.Load() }

func (p *Provider) parse(c hook.Call) ([]dispatch.Receipt, error) {
	if !p.authentic(c) {
		return nil, hook.Refuse(http.StatusUnauthorized, "without the secret")
	}
	return p.read(c.Body), nil
}

// authentic compares the secret in constant time: the URL's token, or the
// password of Basic authentication.
func (p *Provider) authentic(c hook.Call) bool {
	if p.cfg.WebhookSecret == "" {
		return false
	}
	ok := 0
	if query, err := url.ParseQuery(c.Query); err == nil && len(query[tokenParam]) == 1 {
		ok |= same(query.Get(tokenParam), p.cfg.WebhookSecret)
	}
	if fields := c.Header.Values("Authorization"); len(fields) == 1 {
		scheme, both, _ := strings.Cut(fields[0], " ")
		raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(both))
		if _, password, has := strings.Cut(string(raw), ":"); err == nil && has && strings.EqualFold(scheme, "Basic") {
			ok |= same(password, p.cfg.WebhookSecret)
		}
	}
	return ok == 1
}

// same is 1 where both are equal. Their digests are compared, so that the
// time doesn't tell the length either.
func same(a, b string) int {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:])
}

func (p *Provider) read(body []byte) []dispatch.Receipt {
	var doc struct {
		Results []json.RawMessage `json:"results"`
	}
	if err := loosejson.Decode(body, &doc); err != nil || doc.Results == nil {
		p.unread.Add(1)
		return nil
	}
	var out []dispatch.Receipt
	for _, line := range doc.Results {
		switch r, ok := p.one(line); {
		case !ok:
			p.unread.Add(1)
		case r.EventKey != "":
			out = append(out, r)
		}
	}
	return out
}

// one reads a report. Its event is message, status and error, without the
// time: a message has each of them once, and a repeat may come with another
// time. A report of a repeat that was rejected for its id is left out, with
// an empty event: it says nothing of the message that went first.
func (p *Provider) one(line []byte) (dispatch.Receipt, bool) {
	var m struct {
		ID     loosejson.Text `json:"messageId"`
		To     loosejson.Text `json:"to"`
		Done   loosejson.Text `json:"doneAt"`
		Sent   loosejson.Text `json:"sentAt"`
		Status *status        `json:"status"`
		Error  struct {
			ID        loosejson.Text `json:"id"`
			Permanent any            `json:"permanent"`
		} `json:"error"`
	}
	r := dispatch.Receipt{Provider: p.cfg.Name, Account: p.cfg.Account}
	if err := loosejson.Decode(line, &m); err != nil || m.Status == nil {
		return r, false
	}
	group, id := m.Status.Group.Word(maxCode), m.Status.ID.Word(maxCode)
	r.ProviderID = m.ID.Word(maxID)
	switch {
	case r.ProviderID == "" || group == "" || id == "":
		return r, false
	case group == groupRejected && id == duplicate:
		return r, true
	}
	r.Kind, r.Recipient = kindOf(group, id), m.To.Word(maxID)
	if key, err := dispatch.ParseKey(r.ProviderID); err == nil && group != groupRejected {
		r.Key = key // a rejection is no acceptance; see the package
	}
	r.Code = m.Error.ID.Word(maxCode)
	if r.Code == "" || r.Code == "0" {
		r.Code = id
	}
	r.EventKey = strings.Join([]string{r.ProviderID, id, r.Code}, "/")
	permanent, _ := m.Error.Permanent.(bool)
	r.Permanent = permanent && (r.Kind == dispatch.Undelivered || r.Kind == dispatch.Failed)
	at := m.Done
	if at == "" {
		at = m.Sent
	}
	if t, err := time.Parse("2006-01-02T15:04:05.000-0700", at.Word(maxCode)); err == nil && t.Year() >= 2000 && t.Year() < 2200 {
		r.At = t.UTC()
	}
	return r, true
}
