// Package infobip is a provider for text messages over Infobip's SMS API v3.
//
//	p, err := infobip.New(infobip.Config{
//		BaseURL: "https://xxxxx.api.infobip.com", APIKey: key, From: "Shop",
//		CallbackURL: "https://shop.example/hooks/infobip", WebhookSecret: secret,
//	})
//	mux.Handle("/hooks/infobip", p.Webhook(box))
//
// # What Infobip promises
//
// The message's id is ours: our key. Its logs can be asked for that id within
// 48 hours, and its receipts carry it. By request Infobip also rejects a
// repeated id (Config.Idempotency), while it is processed: the repeat is
// answered like the first, and a receipt says "rejected, 23" later under the
// same id, which changes nothing here.
//
// A receipt of the group "rejected" is no proof that the message was accepted,
// since one that was refused at once may have it too. It goes by the
// provider's id, which is known only of accepted messages.
//
// # Sources
//
// SMS OpenAPI 3.210.0 and Subscriptions OpenAPI of August 2026; the registry
// of statuses and errors, July 2026; infobip.com's page "Idempotent message
// sending". Where a comment says "not documented", none of these has it.
package infobip

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/exchange"
	"github.com/seed-8098fbb7/dispatch/provider/internal/loosejson"
)

const (
	encoding = 1              // the version of encode
	kept     = 47 * time.Hour // logs are kept for 48 h; an hour for clocks
)

// The longest texts that are kept, in bytes.
const (
	maxID    = 200
	maxCode  = 60
	maxWords = 300
)

// Provider sends through one account. It is safe for concurrent use.
type Provider struct {
	cfg    Config
	client *exchange.Client
	unread atomic.Int64
}

// New checks the configuration. Its error names the field and quotes no
// secret.
func New(cfg Config) (*Provider, error) {
	p := &Provider{cfg: cfg.withDefaults()}
	if err := p.cfg.validate(); err != nil {
		return nil, err
	}
	var err error
	p.client, err = exchange.New(cfg.Exchange)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// Close closes idle connections.
func (p *Provider) Close() { p.client.Close() }

// String shows name and account.
func (p *Provider) String() string { return p.cfg.String() }

// Format prints what String does, with every verb.
func (p *Provider) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, p.String()) }

// LogValue shows what String does.
func (p *Provider) LogValue() slog.Value { return p.cfg.LogValue() }

// Contract is what Infobip promises, as far as the account uses it.
func (p *Provider) Contract() dispatch.Contract {
	c := dispatch.Contract{
		Name: p.cfg.Name, Account: p.cfg.Account, Encoding: encoding, Timeout: p.client.Timeout(),
		Search: dispatch.Search{
			Available: true, Lag: p.cfg.Lag,
			Source: "SMS OpenAPI 3.210.0, logs by messageId; the lag is not documented (Config.Lag)",
		},
	}
	if p.cfg.Idempotency > 0 {
		c.Dedupe = dispatch.Dedupe{
			Window: p.cfg.Idempotency, InFlight: "accepted; the repeat is rejected while it is processed", Confirmed: true,
			Source: "page Idempotent message sending; switched on and timed for the account (Config.Idempotency)",
		}
	}
	if p.cfg.WebhookSecret != "" {
		c.Echo = dispatch.Echo{Reference: true, Grace: p.cfg.Grace, Source: "SMS OpenAPI 3.210.0, messageId of a delivery report"}
	}
	return c
}

// Send makes one POST. Its fault proves "not accepted" only where the answer
// says so, or where no byte left.
func (p *Provider) Send(ctx context.Context, e dispatch.Envelope) (dispatch.Accepted, error) {
	body, err := p.encode(e)
	if err != nil {
		return dispatch.Accepted{}, err
	}
	a, err := p.client.Do(ctx, exchange.Request{
		URL: p.cfg.BaseURL + "/sms/3/messages", Auth: p.auth(), Body: body, Replay: e.Replay,
		Header: http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json"}},
	})
	if err != nil {
		return dispatch.Accepted{}, err
	}
	return judge(a)
}

func (p *Provider) auth() http.Header { return http.Header{"Authorization": {"App " + p.cfg.APIKey}} }

// The request. Its fields stand in a fixed order: the same message gives the
// same bytes.
type (
	request struct {
		Messages []outgoing `json:"messages"`
		Options  struct {
			Tracking struct {
				ShortenURL bool `json:"shortenUrl"` // on where it is left out: the text would change
			} `json:"tracking"`
		} `json:"options"`
	}
	outgoing struct {
		Sender       string        `json:"sender,omitempty"`
		Destinations []destination `json:"destinations"`
		Content      struct {
			Text string `json:"text"`
		} `json:"content"`
		Options  *options  `json:"options,omitempty"`
		Webhooks *webhooks `json:"webhooks,omitempty"`
	}
	destination struct {
		To string `json:"to"`
		ID string `json:"messageId"`
	}
	options struct {
		Validity struct {
			Amount int    `json:"amount"`
			Unit   string `json:"timeUnit"`
		} `json:"validityPeriod"`
	}
	webhooks struct {
		Delivery struct {
			URL          string `json:"url"`
			Intermediate bool   `json:"intermediateReport"`
		} `json:"delivery"`
		Type string `json:"contentType"`
	}
)

func (p *Provider) encode(e dispatch.Envelope) ([]byte, error) {
	sms, ok := e.Content.(dispatch.SMS)
	if !ok {
		ev := dispatch.Evidence{Stage: dispatch.NotSent, Cause: dispatch.CauseLocal}
		return nil, &dispatch.Fault{Evidence: ev, Verdict: refused(dispatch.Account, "not a text message"), Err: errors.New("content is no SMS")}
	}
	from := e.From
	if from == "" {
		from = p.cfg.From
	}
	m := outgoing{
		Sender:       strings.TrimPrefix(from, "+"),
		Destinations: []destination{{strings.TrimPrefix(sms.To, "+"), e.Key.String()}},
	}
	m.Content.Text = sms.Body
	if p.cfg.ValidFor > 0 {
		m.Options = &options{}
		m.Options.Validity.Amount, m.Options.Validity.Unit = int(p.cfg.ValidFor.Minutes()), "MINUTES"
	}
	if url := p.cfg.callback(); url != "" {
		m.Webhooks = &webhooks{Type: "application/json"}
		m.Webhooks.Delivery.URL, m.Webhooks.Delivery.Intermediate = url, true
	}
	return json.Marshal(request{Messages: []outgoing{m}})
}

// status is what Infobip says of a message.
type status struct {
	Group loosejson.Text `json:"groupId"`
	ID    loosejson.Text `json:"id"`
	Name  loosejson.Text `json:"name"`
	Words loosejson.Text `json:"description"`
}

// judge turns an answer into what Send returns. A 200 says nothing yet: the
// verdict is the message's status in the body.
func judge(a exchange.Answer) (dispatch.Accepted, error) {
	var doc struct {
		Messages []struct {
			ID     loosejson.Text `json:"messageId"`
			Status status         `json:"status"`
		} `json:"messages"`
		Code    loosejson.Text `json:"errorCode"`
		Words   loosejson.Text `json:"description"`
		Request struct {       // the older form
			Exception struct {
				ID   loosejson.Text `json:"messageId"`
				Text loosejson.Text `json:"text"`
			} `json:"serviceException"`
		} `json:"requestError"`
	}
	e := a.Evidence
	read := a.Whole() && loosejson.Decode(a.Body, &doc) == nil
	if a.Status < 200 || a.Status > 299 {
		if read {
			e.Code, e.Reason = doc.Code.Word(maxCode), doc.Words.Cut(maxWords)
			if x := doc.Request.Exception; e.Code == "" {
				e.Code, e.Reason = x.ID.Word(maxCode), x.Text.Cut(maxWords)
			}
			e.OwnBody = e.Code != ""
		}
		return dispatch.Accepted{}, &dispatch.Fault{Evidence: e, Verdict: dispatch.Classify(e)}
	}
	if !read || len(doc.Messages) != 1 {
		e.Cause = dispatch.CauseBody
		return dispatch.Accepted{}, &dispatch.Fault{Evidence: e, Verdict: unknown("no verdict in the answer")}
	}
	m := doc.Messages[0]
	s, id := m.Status, m.ID.Word(maxID)
	switch s.Group.Word(maxCode) {
	case groupPending, groupDelivered:
		return dispatch.Accepted{ID: id, NoID: id == "", Status: s.Name.Word(maxCode), Evidence: e}, nil
	case groupRejected:
		e.Code, e.Reason, e.OwnBody = s.ID.Word(maxCode), s.Words.Cut(maxWords), true
		v := codes.Classify(e)
		if v.Outcome == dispatch.OK { // rejected, without an id
			v = unknown("rejected without a reason")
		}
		return dispatch.Accepted{}, &dispatch.Fault{Evidence: e, Verdict: v}
	}
	e.Code = s.ID.Word(maxCode)
	return dispatch.Accepted{}, &dispatch.Fault{Evidence: e, Verdict: unknown("status of no known group")}
}

// Lookup asks the logs for our message id. A log of a message that was
// rejected says neither: the message was not taken, and a repeat under its id
// may be refused for the id alone. "Absent" is said only of an empty list,
// within the 48 hours that logs are kept for.
func (p *Provider) Lookup(ctx context.Context, q dispatch.Query) (dispatch.Found, error) {
	a, err := p.client.Do(ctx, exchange.Request{
		Method: http.MethodGet, URL: p.cfg.BaseURL + "/sms/3/logs?" + url.Values{"messageId": {q.Key.String()}}.Encode(),
		Header: http.Header{"Accept": {"application/json"}}, Auth: p.auth(),
	})
	if err != nil {
		return dispatch.Found{}, err
	}
	found, err := found(a, q.Key)
	if found.Presence == dispatch.Absent && time.Since(q.Since) > kept {
		found.Presence = dispatch.Unclear
	}
	return found, err
}

func found(a exchange.Answer, key dispatch.Key) (dispatch.Found, error) {
	if a.Status != http.StatusOK {
		return dispatch.Found{}, &dispatch.Fault{Evidence: a.Evidence, Verdict: dispatch.Classify(a.Evidence)}
	}
	var doc struct {
		Results []struct {
			ID     loosejson.Text `json:"messageId"`
			Status status         `json:"status"`
		} `json:"results"`
	}
	read := a.Whole() && loosejson.Decode(a.Body, &doc) == nil
	if !read || doc.Results == nil {
		return dispatch.Found{}, nil
	}
	for _, r := range doc.Results {
		group := r.Status.Group.Word(maxCode)
		if strings.EqualFold(r.ID.Word(maxID), key.String()) && group != groupRejected && group != "" {
			return dispatch.Found{Presence: dispatch.Present, ID: key.String(), Status: r.Status.Name.Word(maxCode)}, nil
		}
	}
	if len(doc.Results) > 0 {
		return dispatch.Found{}, nil
	}
	return dispatch.Found{Presence: dispatch.Absent}, nil
}
