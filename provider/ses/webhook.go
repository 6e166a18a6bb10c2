package ses

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/internal/hook"
	"github.com/seed-8098fbb7/dispatch/provider/internal/loosejson"
	"github.com/seed-8098fbb7/dispatch/provider/internal/mailapi"
)

// maxCall is how much of a call is read: SNS's messages have at most 256 KB,
// which JSON in JSON may double.
const maxCall = 1 << 20

// Webhook takes the calls of SNS and gives SES's events to sink. It answers
//
//   - 200 once all receipts of an event are stored, for a subscription that it
//     has confirmed, and for signed calls that can't be read, which are counted
//     in Unread,
//   - 401 without a signature of SNS, versions 1 and 2, for one of
//     Config.Topics. Raw message delivery has none,
//   - 405 and 413 to what isn't a POST or is larger than 1 MiB,
//   - 503 where sink failed, or where SNS's certificate could not be fetched.
//     SNS repeats, for a minute or for what the topic's delivery policy says.
//
// A subscription is confirmed only for one of Config.Topics. SNS defines no
// window for repeats; a repeated event changes nothing. The end of a
// subscription counts in Unread too. The handler is safe for concurrent use.
func (p *Provider) Webhook(sink dispatch.ReceiptSink) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		(&hook.Handler{
			Methods: []string{http.MethodPost}, MaxBody: maxCall, Sink: mailapi.Split(sink),
			Parse: func(c hook.Call) ([]dispatch.Receipt, error) { return p.parse(r.Context(), c) }, //nolint:contextcheck // it is r's
		}).ServeHTTP(w, r)
	})
}

// Unread is how many signed calls could not be read since New.
func (p *Provider) Unread() int64 { return p.unread.Load() }

func (p *Provider) parse(ctx context.Context, c hook.Call) ([]dispatch.Receipt, error) {
	v, err := p.open(ctx, c)
	if err != nil {
		return nil, err
	}
	if v.Type == subscription {
		return nil, p.confirm(ctx, v)
	}
	return p.read(v)
}

// read takes what an event says.
func (p *Provider) read(v *envelope) ([]dispatch.Receipt, error) {
	if v.Type == notification && strings.HasPrefix(v.Message, "Successfully validated SNS topic") {
		return nil, nil // SES's first message to a topic
	}
	var ev event
	if v.Type != notification || loosejson.Decode([]byte(v.Message), &ev) != nil {
		return p.skip()
	}
	receipts := p.receipts(ev)
	if len(receipts) == 0 {
		return p.skip()
	}
	return receipts, nil
}

// skip counts a call that says nothing of any mail. It is answered 200: the
// vendor would repeat it for ever.
func (p *Provider) skip() ([]dispatch.Receipt, error) {
	p.unread.Add(1)
	return nil, nil
}

// event is what SES publishes: eventType of a configuration set, or
// notificationType of an identity, which carries no tags. Source: SES developer
// guide, "Contents of event data that Amazon SES publishes to Amazon SNS".
type event struct {
	Type     loosejson.Text `json:"eventType"`
	Identity loosejson.Text `json:"notificationType"`
	Mail     struct {
		ID   loosejson.Text             `json:"messageId"`
		At   loosejson.Text             `json:"timestamp"`
		Tags map[string]json.RawMessage `json:"tags"`
	} `json:"mail"`
	Bounce       detail `json:"bounce"`
	Complaint    detail `json:"complaint"`
	Delivery     detail `json:"delivery"`
	Delay        detail `json:"deliveryDelay"`
	Reject       detail `json:"reject"`
	Open         detail `json:"open"`
	Click        detail `json:"click"`
	Subscription detail `json:"subscription"`
}

// detail is the part of an event that belongs to its type.
type detail struct {
	At         loosejson.Text    `json:"timestamp"`
	Bounce     loosejson.Text    `json:"bounceType"`
	Sub        loosejson.Text    `json:"bounceSubType"`
	Delay      loosejson.Text    `json:"delayType"`
	Feedback   loosejson.Text    `json:"complaintFeedbackType"`
	Bounced    []person          `json:"bouncedRecipients"`
	Complained []person          `json:"complainedRecipients"`
	Delayed    []person          `json:"delayedRecipients"`
	Delivered  []json.RawMessage `json:"recipients"`
	Topics     struct {
		All any `json:"unsubscribeAll"`
	} `json:"newTopicPreferences"`
}

type person struct {
	Email loosejson.Text `json:"emailAddress"`
}

// receipts reads an event: one receipt for each recipient that it names, or one
// for the mail.
func (p *Provider) receipts(ev event) (out []dispatch.Receipt) {
	kind := ev.Type.Word(mailapi.MaxCode)
	if kind == "" {
		kind = ev.Identity.Word(mailapi.MaxCode)
	}
	if kind == "" {
		return nil
	}
	r := dispatch.Receipt{
		Provider: p.cfg.Name, Account: p.cfg.Account, ProviderID: NormalizeID(ev.Mail.ID.Word(mailapi.MaxID)), Kind: kinds[kind],
	}
	if list := mailapi.List(ev.Mail.Tags[mailapi.KeyName]); len(list) == 1 {
		r.Key = mailapi.Key(list[0])
	}
	d, people := ev.told(kind, &r)
	at := d.At.Word(mailapi.MaxCode)
	if at == "" {
		at = ev.Mail.At.Word(mailapi.MaxCode)
	}
	r.At = mailapi.Sane(time.Parse(time.RFC3339Nano, at))
	if len(people) == 0 {
		people = []string{""}
	}
	for _, to := range people {
		r.Recipient = to
		r.EventKey = mailapi.EventKey(r.ProviderID+"/"+r.Key.String(), kind+"/"+r.Code, at, to)
		if mailapi.Stored(r) {
			out = append(out, r)
		}
	}
	return out
}

// told is the part of an event that its type names, and whom it concerns. It
// refines the receipt.
func (ev *event) told(kind string, r *dispatch.Receipt) (d detail, people []string) {
	var list []person
	switch kind {
	case "Bounce":
		d, list = ev.Bounce, ev.Bounce.Bounced
		r.Code = code(d.Bounce, d.Sub)
		r.Permanent = d.Bounce == "Permanent" // Transient, Undetermined: it may pass
	case "Complaint":
		d, list = ev.Complaint, ev.Complaint.Complained
		r.Code, r.Permanent = d.Feedback.Word(mailapi.MaxCode), true
		if r.Code == "not-spam" { // the reader took it out of the junk folder
			r.Kind, r.Permanent = dispatch.Noted, false
		}
	case "DeliveryDelay":
		d, list = ev.Delay, ev.Delay.Delayed
		r.Code = d.Delay.Word(mailapi.MaxCode)
	case "Delivery":
		d = ev.Delivery
		for _, raw := range d.Delivered {
			var to loosejson.Text
			if json.Unmarshal(raw, &to) == nil {
				list = append(list, person{to})
			}
		}
	case "Reject":
		d = ev.Reject
	case "Open":
		d = ev.Open
	case "Click":
		d = ev.Click
	case "Subscription":
		if d = ev.Subscription; d.Topics.All != true {
			r.Kind = dispatch.Noted
		}
	}
	for _, one := range list {
		if to := mailapi.Address(one.Email); to != "" {
			people = append(people, to)
		}
	}
	return d, people
}

// code joins a bounce's type and subtype.
func code(kind, sub loosejson.Text) string {
	return loosejson.Text(strings.Trim(kind.Word(mailapi.MaxCode)+"/"+sub.Word(mailapi.MaxCode), "/")).Word(mailapi.MaxCode)
}

// kinds are the events of the same page. Others are Noted: they still prove
// that SES has the mail.
var kinds = map[string]dispatch.ReceiptKind{
	"Send":              dispatch.Queued, // SES took it and will try to deliver it
	"Delivery":          dispatch.Delivered,
	"Bounce":            dispatch.Bounced, // Permanent is a fact for the suppression list
	"Complaint":         dispatch.Complained,
	"Reject":            dispatch.Failed, // SES took it and found a virus
	"Rendering Failure": dispatch.Failed, // SES took it and could not render the template
	"DeliveryDelay":     dispatch.Deferred,
	"Open":              dispatch.Opened,
	"Click":             dispatch.Clicked,
	"Subscription":      dispatch.Unsubscribed,
}
