// Package httpapi is a provider for JSON APIs that take one message per POST
// and, where they dedupe, an Idempotency-Key. It needs no code for a vendor
// that looks like that: where the id and the error code lie, and what a
// repeated key gets, is configuration.
//
//	p, err := httpapi.New(httpapi.Config{
//		Name:    "acme",
//		BaseURL: "https://api.acme.example",
//		Token:   token,
//		Window:  24 * time.Hour, // as long as the vendor remembers a key
//	})
//
// A vendor with verdicts of its own inside a 200, or with several messages
// per answer, needs an adapter on top of provider/exchange instead.
package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strings"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/exchange"
)

// Provider sends to one account at one JSON API. It is safe for concurrent
// use.
type Provider struct {
	cfg    Config
	client *exchange.Client
}

// New checks the configuration. Its error names the field and never quotes
// the token.
func New(cfg Config) (*Provider, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	client, err := exchange.New(cfg.Exchange)
	if err != nil {
		return nil, err
	}
	return &Provider{cfg: cfg, client: client}, nil
}

// Close closes idle connections.
func (p *Provider) Close() { p.client.Close() }

// String shows the provider's name only.
func (p *Provider) String() string { return "httpapi " + p.cfg.Name }

// GoString is String: the token stays out of %#v too.
func (p *Provider) GoString() string { return p.String() }

// LogValue shows the provider's name only.
func (p *Provider) LogValue() slog.Value { return slog.StringValue(p.String()) }

// Contract is what the configuration says of the vendor.
func (p *Provider) Contract() dispatch.Contract {
	c := dispatch.Contract{
		Name: p.cfg.Name, Account: p.cfg.Account, Encoding: p.cfg.Encoding, Timeout: p.client.Timeout(),
		RefusalProves: p.cfg.RefusalProves,
	}
	if p.cfg.Window > 0 {
		c.Dedupe = dispatch.Dedupe{
			Window: p.cfg.Window, BindsBody: p.cfg.BindsBody, Source: "configuration",
			InFlight: "409, or one of " + strings.Join(p.cfg.InFlight, ", "),
		}
	}
	if p.cfg.LookupPath != "" {
		c.Search = dispatch.Search{Available: true, Lag: p.cfg.Lag, Source: "configuration"}
	}
	return c
}

// Send makes one POST.
func (p *Provider) Send(ctx context.Context, e dispatch.Envelope) (dispatch.Accepted, error) {
	body, err := p.cfg.encode(e)
	if err != nil {
		ev := dispatch.Evidence{Stage: dispatch.NotSent, Cause: dispatch.CauseLocal}
		return dispatch.Accepted{}, &dispatch.Fault{Evidence: ev, Verdict: dispatch.Classify(ev), Err: err}
	}
	r := exchange.Request{
		Method: http.MethodPost, URL: p.cfg.BaseURL + p.cfg.Path, Header: p.cfg.Header.Clone(), Auth: p.auth(),
		Body: body, Replay: e.Replay,
	}
	r.Header.Set("Content-Type", "application/json")
	if p.cfg.sendsKey() {
		r.KeyHeader, r.Key = p.cfg.KeyHeader, e.Key.String()
		if p.cfg.QuoteKey {
			r.Key = `"` + r.Key + `"`
		}
	}
	a, err := p.client.Do(ctx, r)
	if err != nil {
		return dispatch.Accepted{}, err
	}
	return p.cfg.judge(a)
}

// Lookup asks for the message by its key. A 404 counts as "absent" only with
// an error code in its body: one from a gateway that doesn't know the path
// proves nothing, and would let the message go out twice.
func (p *Provider) Lookup(ctx context.Context, q dispatch.Query) (dispatch.Found, error) {
	if p.cfg.LookupPath == "" {
		return dispatch.Found{}, dispatch.ErrNoLookup
	}
	a, err := p.client.Do(ctx, exchange.Request{
		Method: http.MethodGet, URL: p.cfg.BaseURL + strings.ReplaceAll(p.cfg.LookupPath, "{key}", q.Key.String()),
		Header: p.cfg.Header, Auth: p.auth(),
	})
	if err != nil {
		return dispatch.Found{}, err
	}
	return p.cfg.found(a)
}

func (p *Provider) auth() http.Header {
	if p.cfg.Token == "" {
		return nil
	}
	return http.Header{"Authorization": {"Bearer " + p.cfg.Token}}
}

// judge turns an answer into what Send returns.
func (c *Config) judge(a exchange.Answer) (dispatch.Accepted, error) {
	doc, ev := c.read(a)
	if !c.success(a.Status) {
		v := c.Codes.Classify(ev)
		if v.Outcome == dispatch.OK {
			v = dispatch.Verdict{Outcome: dispatch.Unknown, Floor: v.Floor, Reason: "success status is not a listed one"}
		}
		return dispatch.Accepted{}, &dispatch.Fault{Evidence: ev, Verdict: v}
	}
	if v, ok := c.Codes[ev.Code]; ok && v.Outcome != dispatch.OK {
		v.Floor = max(0, ev.RetryAfter)
		return dispatch.Accepted{}, &dispatch.Fault{Evidence: ev, Verdict: v}
	}
	id := text(lookup(doc, c.IDPath), maxID)
	if c.BodyDecides && id == "" {
		ev.Cause = dispatch.CauseBody
		v := dispatch.Verdict{Outcome: dispatch.Unknown, Reason: "no id in the answer"}
		return dispatch.Accepted{}, &dispatch.Fault{Evidence: ev, Verdict: v}
	}
	return dispatch.Accepted{ID: id, NoID: id == "", Status: text(lookup(doc, c.StatusPath), maxWord), Evidence: ev}, nil
}

// found turns an answer into what Lookup returns.
func (c *Config) found(a exchange.Answer) (dispatch.Found, error) {
	doc, ev := c.read(a)
	if a.Status == http.StatusNotFound && ev.OwnBody && ev.Code != "" {
		return dispatch.Found{Presence: dispatch.Absent}, nil
	}
	if a.Status < 200 || a.Status > 299 {
		return dispatch.Found{}, &dispatch.Fault{Evidence: ev, Verdict: c.Codes.Classify(ev)}
	}
	id := text(lookup(doc, c.IDPath), maxID)
	if id == "" {
		return dispatch.Found{}, nil
	}
	return dispatch.Found{Presence: dispatch.Present, ID: id, Status: text(lookup(doc, c.StatusPath), maxWord)}, nil
}

// read decodes the body and adds what it says to the evidence. A body that
// can't be decoded says nothing; the status stands.
func (c *Config) read(a exchange.Answer) (map[string]any, dispatch.Evidence) {
	ev := a.Evidence
	if !a.Whole() {
		return nil, ev
	}
	doc := decode(a.Body)
	for _, name := range []string{"code", "message", "error"} {
		if _, ok := doc[name]; ok {
			ev.OwnBody = true
		}
	}
	for _, path := range c.CodePaths {
		if ev.Code = text(lookup(doc, path), maxWord); ev.Code != "" {
			break
		}
	}
	if c.success(a.Status) {
		return doc, ev
	}
	for _, path := range []string{"message", "error.message", "error", "detail"} {
		if s, ok := lookup(doc, path).(string); ok && s != "" {
			ev.Reason = cut(s, maxReason)
			break
		}
	}
	if c.sendsKey() && ev.Code != "" {
		switch {
		case slices.Contains(c.InFlight, ev.Code):
			ev.Key = dispatch.KeyInFlight
		case slices.Contains(c.Reused, ev.Code):
			ev.Key = dispatch.KeyReused
		}
	}
	return doc, ev
}

func (c *Config) success(status int) bool {
	if len(c.Success) == 0 {
		return status >= 200 && status <= 299
	}
	return slices.Contains(c.Success, status)
}
