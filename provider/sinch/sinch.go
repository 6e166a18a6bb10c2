// Package sinch is a provider for text messages over Sinch: the batches of its
// SMS REST API (XMS).
//
//	p, err := sinch.New(sinch.Config{ServicePlanID: plan, APIToken: token, WebhookSecret: secret})
//	mux.Handle("/hooks/sinch", p.Webhook(box))
//
// # What Sinch promises
//
// It doesn't dedupe: nothing in its documents says what a repeated client
// reference gets. But it can be asked for the batches with a reference, our
// key, and its receipts carry it. An unknown message is looked up; one that is
// not there after Config.Lag is sent again.
//
// # Sources
//
// developers.sinch.com: API reference of batches, pages on delivery reports,
// error codes and callbacks, in 2026; sinch-sdk-node and sinch-sdk-java of
// July 2026. Where a comment says "not documented", none of these has it.
package sinch

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
	encoding = 1 // the version of encode
	slack    = 10 * time.Minute
)

// The longest texts that are kept, in bytes.
const (
	maxID    = 200
	maxCode  = 60
	maxWords = 300
)

// Provider sends through one service plan. It is safe for concurrent use.
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

// String shows name and plan.
func (p *Provider) String() string { return p.cfg.String() }

// Format prints what String does, with every verb.
func (p *Provider) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, p.String()) }

// LogValue shows what String does.
func (p *Provider) LogValue() slog.Value { return p.cfg.LogValue() }

// Contract is what Sinch promises, as far as the plan uses it.
func (p *Provider) Contract() dispatch.Contract {
	c := dispatch.Contract{
		Name: p.cfg.Name, Account: p.cfg.ServicePlanID, Encoding: encoding, Timeout: p.client.Timeout(),
		Dedupe: dispatch.Dedupe{Source: "none documented: API reference of batches"},
		Search: dispatch.Search{
			Available: true, Lag: p.cfg.Lag,
			Source: "API reference, list batches by client_reference; the lag is not documented (Config.Lag)",
		},
	}
	if p.cfg.WebhookSecret != "" {
		c.Echo = dispatch.Echo{Reference: true, Grace: p.cfg.Grace, Source: "delivery reports carry client_reference, sinch-sdk-java"}
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
		URL: p.cfg.BaseURL + "/xms/v1/" + p.cfg.ServicePlanID + "/batches", Auth: p.auth(), Body: body, Replay: e.Replay,
		Header: http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json"}},
	})
	if err != nil {
		return dispatch.Accepted{}, err
	}
	return judge(a)
}

func (p *Provider) auth() http.Header {
	return http.Header{"Authorization": {"Bearer " + p.cfg.APIToken}}
}

// encode builds the body. Its fields stand in a fixed order: the same message
// gives the same bytes.
func (p *Provider) encode(e dispatch.Envelope) ([]byte, error) {
	m, ok := e.Content.(dispatch.SMS)
	if !ok {
		return nil, local(dispatch.Account, "not a text message")
	}
	if parameter(m.Body) {
		return nil, local(dispatch.Message, "text has ${ in it, which is a parameter")
	}
	from := e.From
	if from == "" {
		from = p.cfg.From
	}
	return json.Marshal(struct {
		To       []string `json:"to"`
		From     string   `json:"from,omitempty"`
		Type     string   `json:"type"`
		Body     string   `json:"body"`
		Report   string   `json:"delivery_report"`
		Callback string   `json:"callback_url,omitempty"`
		Ref      string   `json:"client_reference"`
	}{
		[]string{strings.TrimPrefix(m.To, "+")},
		strings.TrimPrefix(from, "+"), "mt_text", m.Body,
		"per_recipient", p.cfg.CallbackURL, e.Key.String(),
	})
}

// Check says what keeps a message from going over Sinch, before it is
// enqueued: a *dispatch.FieldError, or nil. Send refuses the same messages
// without calling Sinch. Put it into a route's Checks.
func Check(c dispatch.Content) error {
	m, ok := c.(dispatch.SMS)
	switch {
	case !ok:
		return &dispatch.FieldError{Field: "Content", Reason: "is no text message, which is all that this provider sends"}
	case parameter(m.Body):
		return &dispatch.FieldError{Field: "Content.Body", Reason: "has ${ in it, which this provider takes for a parameter"}
	}
	return nil
}

// parameter reports whether Sinch would read a part of the text as a parameter
// of its own: it documents no escape.
func parameter(body string) bool { return strings.Contains(body, "${") }

// local is the fault of a message that was refused here: nothing was sent.
func local(s dispatch.Scope, why string) error {
	e := dispatch.Evidence{Stage: dispatch.NotSent, Cause: dispatch.CauseLocal}
	return &dispatch.Fault{Evidence: e, Verdict: refused(s, why), Err: errors.New(why)}
}

// answer is a batch, or an error, as far as it counts.
type answer struct {
	ID   loosejson.Text `json:"id"`
	Code loosejson.Text `json:"code"`
	Text loosejson.Text `json:"text"`
	Ref  loosejson.Text `json:"client_reference"`
}

// judge turns an answer into what Send returns. A success without the batch's
// id, or with a body that can't be read, may be from something in between and
// is unknown: the look-up tells.
func judge(a exchange.Answer) (dispatch.Accepted, error) {
	var doc answer
	e := a.Evidence
	read := a.Whole() && loosejson.Decode(a.Body, &doc) == nil
	if read {
		e.Code, e.Reason = doc.Code.Word(maxCode), doc.Text.Cut(maxWords)
		e.OwnBody = e.Code != "" && doc.Text != ""
	}
	success := a.Status >= 200 && a.Status <= 299
	id := doc.ID.Word(maxID)
	switch {
	case !success:
		return dispatch.Accepted{}, &dispatch.Fault{Evidence: e, Verdict: codes.Classify(e)}
	case e.Code != "": // an error under a success status
		return dispatch.Accepted{}, &dispatch.Fault{Evidence: e, Verdict: dispatch.Classify(e)}
	case !read || id == "":
		e.Cause = dispatch.CauseBody
		return dispatch.Accepted{}, &dispatch.Fault{Evidence: e, Verdict: dispatch.Verdict{Reason: "no id in the answer"}}
	}
	return dispatch.Accepted{ID: id, Evidence: e}, nil
}

// Lookup asks for the batches with our key. "Absent" is said only of an empty
// list: a batch with another reference means that the filter did nothing.
// Sinch keeps batches for 14 days.
func (p *Provider) Lookup(ctx context.Context, q dispatch.Query) (dispatch.Found, error) {
	query := url.Values{
		"client_reference": {q.Key.String()}, "page_size": {"10"},
		"start_date": {q.Since.Add(-slack).UTC().Format("2006-01-02T15:04:05.000Z")}, // else the last 24 h only
	}
	a, err := p.client.Do(ctx, exchange.Request{
		Method: http.MethodGet, URL: p.cfg.BaseURL + "/xms/v1/" + p.cfg.ServicePlanID + "/batches?" + query.Encode(),
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

// kept is how long batches are listed: 14 days, less a day for clocks.
const kept = 13 * 24 * time.Hour

func found(a exchange.Answer, key dispatch.Key) (dispatch.Found, error) {
	if a.Status != http.StatusOK {
		return dispatch.Found{}, &dispatch.Fault{Evidence: a.Evidence, Verdict: dispatch.Classify(a.Evidence)}
	}
	var doc struct {
		Count   loosejson.Text `json:"count"`
		Batches []answer       `json:"batches"`
	}
	read := a.Whole() && loosejson.Decode(a.Body, &doc) == nil
	if !read || doc.Batches == nil {
		return dispatch.Found{}, nil
	}
	for _, b := range doc.Batches {
		if strings.EqualFold(b.Ref.Word(maxID), key.String()) && b.ID.Word(maxID) != "" {
			return dispatch.Found{Presence: dispatch.Present, ID: b.ID.Word(maxID)}, nil
		}
	}
	if len(doc.Batches) > 0 || doc.Count != "0" {
		return dispatch.Found{}, nil
	}
	return dispatch.Found{Presence: dispatch.Absent}, nil
}
