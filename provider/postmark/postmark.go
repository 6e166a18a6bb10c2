// Package postmark is a provider for mail over Postmark.
//
//	p, err := postmark.New(postmark.Config{ServerToken: token, HookUser: "dispatch", HookPassword: secret})
//	mux.Handle("POST /hooks/postmark", p.Webhook(box))
//
// # What can be known after a lost answer
//
// Postmark doesn't dedupe, so a mail that may have been accepted is not sent
// again by itself. It can be asked: our key is a metadata field, by which its
// message search finds the mail. What is there is settled at once; what isn't,
// after Config.Lag, was not accepted and is sent again. Events carry the
// metadata too.
//
// # A smoke test
//
// The token POSTMARK_API_TEST checks a mail and sends nothing, and no search
// finds it. Mail to test@blackhole.postmarkapp.com is taken and dropped; to
// hardbounce@bounce-testing.postmarkapp.com it bounces.
//
// # Sources
//
// Postmark's pages on the email, messages and webhooks APIs, its list of API
// error codes, its page on custom metadata, postmark.js, and django-anymail's
// issues 392, 412 and 239. Where a comment says "not documented", none of
// these has it.
package postmark

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/exchange"
	"github.com/seed-8098fbb7/dispatch/provider/internal/mailapi"
)

// encoding is the version of encode.
const encoding = 1

// Provider sends through one server at Postmark. It is safe for concurrent use
// and starts no goroutine. Its zero value can't be used: make it with New.
type Provider struct {
	cfg    Config
	client *exchange.Client
	unread atomic.Int64
}

// New checks the configuration. Its error names the field and quotes no value.
func New(cfg Config) (*Provider, error) {
	cfg, err := cfg.checked()
	if err != nil {
		return nil, err
	}
	client, err := mailapi.Exchange(cfg.Exchange)
	if err != nil {
		return nil, fmt.Errorf("postmark: %w", err)
	}
	return &Provider{cfg: cfg, client: client}, nil
}

// Close closes idle connections. Sends still work afterwards.
func (p *Provider) Close() { p.client.Close() }

// String shows name and account.
func (p *Provider) String() string { return p.cfg.String() }

// Format prints what String does, with every verb.
func (p *Provider) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, p.String()) }

// LogValue shows what String does.
func (p *Provider) LogValue() slog.Value { return p.cfg.LogValue() }

// Contract is what Postmark promises.
func (p *Provider) Contract() dispatch.Contract {
	c := dispatch.Contract{
		Name: p.cfg.Name, Account: p.cfg.Account, Encoding: encoding, Timeout: p.client.Timeout(),
		Dedupe: dispatch.Dedupe{Source: "none: the email API has neither field nor header for it"},
		Search: dispatch.Search{
			Available: true, Lag: p.cfg.Lag,
			Source: "messages API, metadata_ filter of the outbound search; the lag is not documented (Config.Lag)",
		},
	}
	if p.cfg.guarded() {
		c.Echo = dispatch.Echo{
			Reference: true, Grace: p.cfg.Grace,
			Source: "webhooks API, Metadata of each event; the time until the first one is not documented",
		}
	}
	return c
}

// Send makes one POST. A nil error is a success status without an error code
// in its body.
func (p *Provider) Send(ctx context.Context, e dispatch.Envelope) (dispatch.Accepted, error) {
	path, body, err := p.encode(e)
	if err != nil {
		return dispatch.Accepted{}, err
	}
	a, err := p.client.Do(ctx, exchange.Request{
		URL: p.cfg.BaseURL + path, Body: body, Replay: e.Replay, Auth: p.auth(),
		Header: http.Header{"Accept": {"application/json"}, "Content-Type": {"application/json"}},
	})
	if err != nil {
		return dispatch.Accepted{}, err
	}
	accepted, skipped, err := judge(a, e.Content)
	if err == nil && len(skipped) > 0 {
		p.tell(ctx, e.Key, accepted.ID, skipped)
	}
	return accepted, err
}

func (p *Provider) auth() http.Header {
	return http.Header{"X-Postmark-Server-Token": {p.cfg.ServerToken}}
}

// tell hands on whom Postmark will not deliver to. The receipts go by the
// mail's id where there is one: with the key they would settle the mail while
// it is being sent.
func (p *Provider) tell(ctx context.Context, key dispatch.Key, id string, skipped []string) {
	if p.cfg.Suppressed == nil {
		return
	}
	var receipts []dispatch.Receipt
	event := key.String()
	if id != "" {
		key = dispatch.Key{}
	}
	for _, recipient := range skipped {
		receipts = append(receipts, dispatch.Receipt{
			Provider: p.cfg.Name, Account: p.cfg.Account, Key: key, ProviderID: id, Kind: dispatch.Bounced, Code: "406", Permanent: true,
			Recipient: recipient, EventKey: mailapi.EventKey(event, "inactive", "", recipient),
		})
	}
	if p.cfg.Suppressed.Receive(ctx, receipts) != nil {
		p.unread.Add(1)
	}
}

// NormalizeID is a message id in its one spelling: answers, searches and
// events have the same UUID.
func NormalizeID(id string) string {
	id = strings.ToLower(strings.TrimSpace(id))
	if strings.Trim(id, "0-") == "" { // events of no mail
		return ""
	}
	return id
}
