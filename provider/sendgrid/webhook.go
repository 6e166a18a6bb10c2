package sendgrid

import (
	"crypto/ecdsa"
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

const (
	// maxCall is how much of a call is read: a batch may hold thousands of
	// events. How many isn't documented.
	maxCall = 8 << 20
	// ahead is how far a signed time may lie in the future.
	ahead = 5 * time.Minute

	signatureField = "X-Twilio-Email-Event-Webhook-Signature"
	timestampField = "X-Twilio-Email-Event-Webhook-Timestamp"
)

// Webhook takes the event webhook's batches and gives them to sink. It answers
//
//   - 200 once all events of a batch are stored. Those that can't be read are
//     counted in Unread and don't hold up the rest,
//   - 401 without a signature of this key, or with a time that is older than
//     Config.Replay or more than five minutes ahead,
//   - 405 and 413 to what isn't a POST or is larger than 8 MiB,
//   - 503 where sink failed. SendGrid repeats the batch, for 24 hours.
//
// SendGrid sends the same event several times, under several ids: an event is
// known by mail, kind, time and recipient. The handler is safe for concurrent
// use.
func (p *Provider) Webhook(sink dispatch.ReceiptSink) http.Handler {
	return &hook.Handler{Methods: []string{http.MethodPost}, MaxBody: maxCall, Parse: p.parse, Sink: mailapi.Split(sink)}
}

// Unread is how many events and signed calls could not be read since New.
func (p *Provider) Unread() int64 { return p.unread.Load() }

// skip counts a call that says nothing of any mail. It is answered 200: the
// vendor would repeat it for ever.
func (p *Provider) skip() ([]dispatch.Receipt, error) {
	p.unread.Add(1)
	return nil, nil
}

// authentic checks the signature: ECDSA over the SHA-256 of time and body, in
// ASN.1 and base64. Source: SendGrid's page on event webhook security.
func (p *Provider) authentic(c hook.Call) error {
	signature, at := c.Header.Values(signatureField), c.Header.Values(timestampField)
	switch {
	case p.key == nil:
		return hook.Refuse(http.StatusUnauthorized, "no key to check it with")
	case len(signature) != 1 || len(at) != 1:
		return hook.Refuse(http.StatusUnauthorized, "unsigned")
	case !mailapi.Fresh(at[0], time.Now(), p.cfg.Replay, ahead):
		return hook.Refuse(http.StatusUnauthorized, "outside the window")
	}
	der, err := base64.StdEncoding.DecodeString(signature[0])
	if err != nil || !signed(p.key, at[0], c.Body, der) {
		return hook.Refuse(http.StatusUnauthorized, "signature is not SendGrid's")
	}
	return nil
}

func signed(key *ecdsa.PublicKey, at string, body, signature []byte) bool {
	h := sha256.New()
	h.Write([]byte(at))
	h.Write(body)
	return ecdsa.VerifyASN1(key, h.Sum(nil), signature)
}

// parse reads a batch. Each event is read by itself (B154).
func (p *Provider) parse(c hook.Call) ([]dispatch.Receipt, error) {
	if err := p.authentic(c); err != nil {
		return nil, err
	}
	var batch []json.RawMessage
	if loosejson.Decode(c.Body, &batch) != nil {
		return p.skip()
	}
	var receipts []dispatch.Receipt
	for _, raw := range batch {
		if r, ok := p.receipt(raw); ok {
			receipts = append(receipts, r)
		} else {
			p.unread.Add(1)
		}
	}
	return receipts, nil
}

type event struct {
	Kind   loosejson.Text `json:"event"`
	Type   loosejson.Text `json:"type"`
	ID     loosejson.Text `json:"sg_message_id"`
	Key    loosejson.Text `json:"dispatch_key"`
	Email  loosejson.Text `json:"email"`
	At     loosejson.Text `json:"timestamp"`
	Status loosejson.Text `json:"status"`
	Reason loosejson.Text `json:"reason"`
}

func (p *Provider) receipt(raw json.RawMessage) (dispatch.Receipt, bool) {
	var ev event
	kind := ""
	if json.Unmarshal(raw, &ev) == nil {
		kind = ev.Kind.Word(mailapi.MaxCode)
	}
	if kind == "" {
		return dispatch.Receipt{}, false
	}
	r := dispatch.Receipt{
		Provider: p.cfg.Name, Account: p.cfg.Account, Key: mailapi.Key(ev.Key), ProviderID: NormalizeID(ev.ID.Word(mailapi.MaxID)),
		Kind: kinds[kind], At: mailapi.Unix(ev.At), Recipient: mailapi.Address(ev.Email),
	}
	switch kind {
	case "bounce":
		r.Code, r.Permanent = ev.Status.Word(mailapi.MaxCode), ev.Type != "blocked"
	case "dropped":
		reason := strings.ToLower(ev.Reason.Word(mailapi.MaxCode))
		if permanent, listed := drops[reason]; listed {
			r.Code, r.Permanent = reason, permanent
		}
	case "spamreport":
		r.Permanent = true
	case "deferred":
		r.Code = ev.Status.Word(mailapi.MaxCode)
	}
	name := r.ProviderID
	if name == "" {
		name = r.Key.String()
	}
	r.EventKey = mailapi.EventKey(name, kind+"/"+ev.Type.Word(mailapi.MaxCode), ev.At.Word(mailapi.MaxCode), r.Recipient)
	return r, mailapi.Stored(r)
}

// kinds are the events. Source: SendGrid's page "Event webhook reference".
// Others are Noted: they still prove that SendGrid has the mail.
var kinds = map[string]dispatch.ReceiptKind{
	"processed":         dispatch.Queued, // SendGrid took it and will deliver it
	"dropped":           dispatch.Failed, // SendGrid took it and will not
	"deferred":          dispatch.Deferred,
	"delivered":         dispatch.Delivered,
	"bounce":            dispatch.Bounced, // type "blocked" may pass, "bounce" will not
	"open":              dispatch.Opened,
	"click":             dispatch.Clicked,
	"spamreport":        dispatch.Complained,
	"unsubscribe":       dispatch.Unsubscribed,
	"group_unsubscribe": dispatch.Unsubscribed,
	"group_resubscribe": dispatch.Noted,
}

// drops are the reasons for which SendGrid drops a mail, and whether they stay.
// Source: the same page. Others are no code: their words may quote an address.
var drops = map[string]bool{
	"bounced address":                            true,
	"spam reporting address":                     true,
	"unsubscribed address":                       true,
	"invalid":                                    true,
	"recipient list over package quota":          false,
	"spam content (if spam checker app enabled)": false,
	"spam content":                               false,
	"invalid smtpapi header":                     false,
}
