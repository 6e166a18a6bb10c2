package postmark

import (
	"encoding/base64"
	"net/http"
	"strings"
	"time"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/internal/hook"
	"github.com/seed-8098fbb7/dispatch/provider/internal/loosejson"
	"github.com/seed-8098fbb7/dispatch/provider/internal/mailapi"
)

// maxCall is how much of a call is read: a bounce may quote a part of the
// mail, where the webhook is configured so.
const maxCall = 1 << 20

// Webhook takes Postmark's events and gives them to sink. It answers
//
//   - 200 once the receipt is stored, and for calls that can't be read, which
//     are counted in Unread,
//   - 401 without the credentials of Config. Never 403, on which Postmark
//     stops repeating for good,
//   - 405 and 413 to what isn't a POST or is larger than 1 MiB,
//   - 503 where sink failed. Postmark repeats bounces for 10 hours, other
//     events for 20 minutes; the message search still has them then.
//
// Postmark signs nothing: whoever knows the credentials can make up events, so
// let the webhook's URL be https. The handler is safe for concurrent use.
func (p *Provider) Webhook(sink dispatch.ReceiptSink) http.Handler {
	return &hook.Handler{Methods: []string{http.MethodPost}, MaxBody: maxCall, Parse: p.parse, Sink: sink}
}

// Unread is how many calls could not be read, and how many times
// Config.Suppressed failed, since New.
func (p *Provider) Unread() int64 { return p.unread.Load() }

// skip counts a call that says nothing of any mail. It is answered 200: the
// vendor would repeat it for ever.
func (p *Provider) skip() ([]dispatch.Receipt, error) {
	p.unread.Add(1)
	return nil, nil
}

// authentic compares what Config has with what came, in constant time.
func (p *Provider) authentic(c hook.Call) error {
	ok := p.cfg.guarded()
	if p.cfg.HookUser != "" {
		want := "Basic " + base64.StdEncoding.EncodeToString([]byte(p.cfg.HookUser+":"+p.cfg.HookPassword))
		ok = same(c.Header.Values("Authorization"), want) && ok
	}
	if p.cfg.HookHeader != "" {
		ok = same(c.Header.Values(p.cfg.HookHeader), p.cfg.HookSecret) && ok
	}
	if !ok {
		return hook.Refuse(http.StatusUnauthorized, "credentials are not ours")
	}
	return nil
}

func same(got []string, want string) bool { return len(got) == 1 && mailapi.Same(got[0], want) }

type event struct {
	Record   loosejson.Text            `json:"RecordType"`
	ID       loosejson.Text            `json:"MessageID"`
	Metadata map[string]loosejson.Text `json:"Metadata"`
	// Recipient of deliveries, opens, clicks; Email of bounces and complaints.
	Recipient loosejson.Text `json:"Recipient"`
	Email     loosejson.Text `json:"Email"`
	Type      loosejson.Text `json:"Type"`
	Inactive  any            `json:"Inactive"`
	Suppress  any            `json:"SuppressSending"`
	Delivered loosejson.Text `json:"DeliveredAt"`
	Bounced   loosejson.Text `json:"BouncedAt"`
	Received  loosejson.Text `json:"ReceivedAt"`
	Changed   loosejson.Text `json:"ChangedAt"`
}

func (p *Provider) parse(c hook.Call) ([]dispatch.Receipt, error) {
	if err := p.authentic(c); err != nil {
		return nil, err
	}
	var ev event
	if loosejson.Decode(c.Body, &ev) != nil {
		return p.skip()
	}
	r := p.receipt(ev)
	switch {
	case ev.Record == "SubscriptionChange" && r.Key.IsZero() && r.ProviderID == "":
		return nil, nil // a person changed a suppression: no mail of ours
	case ev.Record.Word(mailapi.MaxCode) == "" || !mailapi.Stored(r):
		return p.skip()
	}
	return []dispatch.Receipt{r}, nil
}

// receipt reads an event. An event has no id, but for a bounce, so what it
// says is its key.
func (p *Provider) receipt(ev event) dispatch.Receipt {
	record, at := ev.Record.Word(mailapi.MaxCode), ""
	for _, t := range []loosejson.Text{ev.Delivered, ev.Bounced, ev.Received, ev.Changed} {
		if at == "" {
			at = t.Word(mailapi.MaxCode)
		}
	}
	to := mailapi.Address(ev.Recipient)
	if to == "" {
		to = mailapi.Address(ev.Email)
	}
	r := dispatch.Receipt{
		Provider: p.cfg.Name, Account: p.cfg.Account, Key: ours(ev.Metadata), ProviderID: NormalizeID(ev.ID.Word(mailapi.MaxID)),
		Kind: records[record], At: mailapi.Sane(time.Parse(time.RFC3339Nano, at)), Recipient: to,
	}
	switch record {
	case "Bounce":
		r.Code = ev.Type.Word(mailapi.MaxCode)
		b, known := bounces[r.Code]
		if !known {
			b.kind = dispatch.Bounced
		}
		r.Kind, r.Permanent = b.kind, b.permanent || ev.Inactive == true
	case "SpamComplaint":
		r.Permanent = true
	case "SubscriptionChange":
		if ev.Suppress != true {
			r.Kind = dispatch.Noted
		}
	}
	r.EventKey = mailapi.EventKey(strings.Join([]string{r.ProviderID, r.Key.String()}, "/"), record+"/"+r.Code, at, to)
	return r
}

// records are the kinds of events (webhooks overview). Others are Noted.
var records = map[string]dispatch.ReceiptKind{
	"Delivery":           dispatch.Delivered, // by the recipient's server
	"Bounce":             dispatch.Bounced,   // see bounces
	"SpamComplaint":      dispatch.Complained,
	"Open":               dispatch.Opened,
	"Click":              dispatch.Clicked,
	"SubscriptionChange": dispatch.Unsubscribed,
}

type bounce struct {
	kind      dispatch.ReceiptKind
	permanent bool
}

// bounces are the types of a bounce (bounce API, "Bounce types"). One that
// isn't listed is a bounce that may pass, unless Postmark made the address
// inactive.
var bounces = map[string]bounce{
	"HardBounce":              {dispatch.Bounced, true},
	"BadEmailAddress":         {dispatch.Bounced, true},
	"SpamNotification":        {dispatch.Complained, true},
	"SpamComplaint":           {dispatch.Complained, true},
	"ManuallyDeactivated":     {dispatch.Failed, true},
	"Transient":               {dispatch.Deferred, false}, // delayed by the network, may still arrive
	"DnsError":                {dispatch.Deferred, false},
	"SoftBounce":              {dispatch.Bounced, false},
	"Blocked":                 {dispatch.Bounced, false}, // by content or source, not for the mailbox
	"DMARCPolicy":             {dispatch.Bounced, false},
	"Undeliverable":           {dispatch.Undelivered, false},
	"VirusNotification":       {dispatch.Bounced, false},
	"Unknown":                 {dispatch.Undelivered, false},
	"Unsubscribe":             {dispatch.Unsubscribed, false},
	"Subscribe":               {dispatch.Noted, false},
	"AutoResponder":           {dispatch.Noted, false}, // it arrived
	"AddressChange":           {dispatch.Noted, false},
	"ChallengeVerification":   {dispatch.Noted, false},
	"OpenRelayTest":           {dispatch.Noted, false},
	"Unconfirmed":             {dispatch.Noted, false},
	"SMTPApiError":            {dispatch.Failed, false},
	"InboundError":            {dispatch.Noted, false},
	"TemplateRenderingFailed": {dispatch.Failed, false},
}
