package resend

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/internal/hook"
	"github.com/seed-8098fbb7/dispatch/provider/internal/loosejson"
	"github.com/seed-8098fbb7/dispatch/provider/internal/mailapi"
)

// tolerance is how far a call's time may be from ours, either way: 5 minutes,
// as Svix's libraries have it. A repeat comes under a new time.
const tolerance = 5 * time.Minute

// maxBody is how much of a call is read: an event quotes a mail's headers and
// recipients, not its text.
const maxBody = 256 << 10

// Webhook takes Resend's events and gives them to sink. It answers
//
//   - 200 once the receipt is stored, and for signed calls that can't be read,
//     which are counted in Unread,
//   - 401 without a signature of this secret, or with a time more than five
//     minutes off,
//   - 405 and 413 to what isn't a POST or is larger than 256 KiB,
//   - 503 where sink failed. Resend repeats, for 27 hours.
//
// An event of a mail to several recipients doesn't say which it concerns: its
// receipt then has no recipient. The handler is safe for concurrent use.
func (p *Provider) Webhook(sink dispatch.ReceiptSink) http.Handler {
	return &hook.Handler{Methods: []string{http.MethodPost}, MaxBody: maxBody, Parse: p.parse, Sink: sink}
}

// Unread is how many signed calls could not be read since New.
func (p *Provider) Unread() int64 { return p.unread.Load() }

// skip counts a call that says nothing of any mail. It is answered 200: the
// vendor would repeat it for ever.
func (p *Provider) skip() ([]dispatch.Receipt, error) {
	p.unread.Add(1)
	return nil, nil
}

// authentic checks Svix's signature: HMAC-SHA256 over id, time and body with
// dots between, in base64, as one of a list "v1,..." (several while a secret
// is replaced). Source: docs.svix.com/receiving/verifying-payloads/how-manual.
func (p *Provider) authentic(c hook.Call) error {
	id, at, signatures := one(c.Header, "Id"), one(c.Header, "Timestamp"), one(c.Header, "Signature")
	switch {
	case p.secret == nil:
		return hook.Refuse(http.StatusUnauthorized, "no secret to check it with")
	case id == "" || signatures == "":
		return hook.Refuse(http.StatusUnauthorized, "unsigned")
	case !mailapi.Fresh(at, time.Now(), tolerance, tolerance):
		return hook.Refuse(http.StatusUnauthorized, "outside the window")
	}
	mac := hmac.New(sha256.New, p.secret)
	mac.Write([]byte(id + "." + at + "."))
	mac.Write(c.Body)
	want := mac.Sum(nil)
	for s := range strings.FieldsSeq(signatures) {
		version, value, _ := strings.Cut(s, ",")
		got, err := base64.StdEncoding.DecodeString(value)
		if version == "v1" && err == nil && hmac.Equal(got, want) {
			return nil
		}
	}
	return hook.Refuse(http.StatusUnauthorized, "signature is not ours")
}

// one is a field of the signature, under either of the names that Svix uses,
// "" where it stands more than once.
func one(h http.Header, name string) string {
	values := append(h.Values("Svix-"+name), h.Values("Webhook-"+name)...)
	if len(values) != 1 {
		return ""
	}
	return values[0]
}

// event is a webhook call's body.
type event struct {
	Type loosejson.Text `json:"type"`
	At   loosejson.Text `json:"created_at"`
	Data struct {
		ID     loosejson.Text  `json:"email_id"`
		To     json.RawMessage `json:"to"`
		Tags   json.RawMessage `json:"tags"`
		Bounce struct {
			Type    loosejson.Text `json:"type"`
			SubType loosejson.Text `json:"subType"`
		} `json:"bounce"`
		Failed struct {
			Reason loosejson.Text `json:"reason"`
		} `json:"failed"`
		Suppressed struct {
			Type loosejson.Text `json:"type"`
		} `json:"suppressed"`
	} `json:"data"`
}

// kinds are the types of events. Source: resend-openapi, webhook events.
// "email.received" is mail to us, not of ours. Types that aren't listed become
// dispatch.Noted.
var kinds = map[string]dispatch.ReceiptKind{
	"email.scheduled":        dispatch.Queued,
	"email.sent":             dispatch.Queued, // Resend took it
	"email.delivered":        dispatch.Delivered,
	"email.delivery_delayed": dispatch.Deferred,
	"email.bounced":          dispatch.Bounced,
	"email.complained":       dispatch.Complained,
	"email.opened":           dispatch.Opened,
	"email.clicked":          dispatch.Clicked,
	"email.failed":           dispatch.Failed,
	"email.suppressed":       dispatch.Failed, // it bounced or complained before
}

func (p *Provider) parse(c hook.Call) ([]dispatch.Receipt, error) {
	if err := p.authentic(c); err != nil {
		return nil, err
	}
	var ev event
	if loosejson.Decode(c.Body, &ev) != nil {
		return p.skip()
	}
	kind := ev.Type.Word(mailapi.MaxCode)
	if !strings.HasPrefix(kind, "email.") || kind == "email.received" {
		return nil, nil // of a contact, a domain, or mail to us
	}
	r := p.receipt(kind, ev)
	// svix-id names the event through repeats and replays; it is long enough
	// to be cut, so its digest stands for it.
	r.EventKey = digest(one(c.Header, "Id"))
	if !mailapi.Stored(r) {
		return p.skip()
	}
	return []dispatch.Receipt{r}, nil
}

func (p *Provider) receipt(kind string, ev event) dispatch.Receipt {
	r := dispatch.Receipt{
		Provider: p.cfg.Name, Account: p.cfg.Account, Key: key(ev.Data.Tags), ProviderID: NormalizeID(ev.Data.ID.Word(mailapi.MaxID)),
		Kind: kinds[kind], At: mailapi.Sane(time.Parse(time.RFC3339Nano, ev.At.Word(mailapi.MaxCode))),
	}
	if to := mailapi.List(ev.Data.To); len(to) == 1 {
		r.Recipient = mailapi.Address(to[0])
	}
	switch kind {
	case "email.bounced":
		r.Code, r.Permanent = ev.Data.Bounce.SubType.Word(mailapi.MaxCode), ev.Data.Bounce.Type == "Permanent"
	case "email.complained":
		r.Permanent = true
	case "email.failed":
		r.Code = ev.Data.Failed.Reason.Word(mailapi.MaxCode)
	case "email.suppressed":
		r.Code, r.Permanent = "suppressed", true
	}
	return r
}

// key is our key among the tags, an object or a list of names and values.
func key(tags json.RawMessage) dispatch.Key {
	var object map[string]loosejson.Text
	if json.Unmarshal(tags, &object) == nil {
		return mailapi.Key(object[mailapi.KeyName])
	}
	var list []struct {
		Name  loosejson.Text `json:"name"`
		Value loosejson.Text `json:"value"`
	}
	if json.Unmarshal(tags, &list) == nil {
		for _, t := range list {
			if t.Name == mailapi.KeyName {
				return mailapi.Key(t.Value)
			}
		}
	}
	return dispatch.Key{}
}
