// Package mailgun is a provider for mail over Mailgun.
//
//	p, err := mailgun.New(mailgun.Config{APIKey: key, Domain: "mg.shop.example", WebhookKey: signingKey})
//	mux.Handle("POST /hooks/mailgun", p.Webhook(box))
//
// # What can be known after a lost answer
//
// Mailgun doesn't dedupe, so a mail that may have been accepted is not sent
// again by itself. Its Message-ID is ours, made of the key and the domain, and
// Mailgun's events are found by it. What is there is settled at once; what
// isn't, after Config.Lag, was not accepted and is sent again. Webhooks carry
// the same Message-ID.
//
// # Webhooks prove less than others
//
// Mailgun's signature covers a time and a token, not the event: whoever sees
// one call can send another event under its signature. Each token is
// remembered with its body, in this process, and another body under it is
// refused; let the webhook's URL be https, and known to nobody else.
//
// # A smoke test
//
// A sandbox domain takes mail to authorized recipients.
//
// # Sources
//
// Mailgun's documentation (July 2024) and its pages on webhooks, mailgun-go
// v5, mailgun.js with its issues 296 and 394. Where a comment says "not
// documented", none of these has it.
package mailgun

import (
	"context"
	"encoding/base64"
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

// Provider sends through one domain at Mailgun. It is safe for concurrent use
// and starts no goroutine. Its zero value can't be used: make it with New.
type Provider struct {
	cfg    Config
	client *exchange.Client
	unread atomic.Int64
	// renamed tells that Mailgun once answered with another Message-ID than
	// ours: from then on "not found" proves nothing.
	renamed atomic.Bool
	tokens  tokens
}

// New checks the configuration. Its error names the field and quotes no value.
func New(cfg Config) (*Provider, error) {
	cfg, err := cfg.checked()
	if err != nil {
		return nil, err
	}
	client, err := mailapi.Exchange(cfg.Exchange)
	if err != nil {
		return nil, fmt.Errorf("mailgun: %w", err)
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

// Contract is what Mailgun promises.
func (p *Provider) Contract() dispatch.Contract {
	c := dispatch.Contract{
		Name: p.cfg.Name, Account: p.cfg.Account, Encoding: encoding, Timeout: p.client.Timeout(),
		Dedupe: dispatch.Dedupe{Source: "none: a repeated Message-ID is not documented to be refused"},
		Search: dispatch.Search{Source: "events API, which a sending key may not ask"},
	}
	if !p.cfg.SendingKey {
		c.Search = dispatch.Search{
			Available: true, Lag: p.cfg.Lag,
			Source: "events API, message-id filter; its page on polling: trustworthy when about 30 minutes old (Config.Lag)",
		}
	}
	if p.cfg.WebhookKey != "" {
		c.Echo = dispatch.Echo{
			Reference: true, Grace: p.cfg.Grace,
			Source: "webhooks, message-id and user-variables of each event; the time until the first one is not documented",
		}
	}
	return c
}

// Send makes one POST. A nil error is a success status.
func (p *Provider) Send(ctx context.Context, e dispatch.Envelope) (dispatch.Accepted, error) {
	kind, body, err := p.encode(e)
	if err != nil {
		return dispatch.Accepted{}, err
	}
	a, err := p.client.Do(ctx, exchange.Request{
		URL: p.cfg.BaseURL + "/v3/" + p.cfg.Domain + "/messages", Body: body, Replay: e.Replay, Auth: p.auth(),
		Header: http.Header{"Accept": {"application/json"}, "Content-Type": {kind}},
	})
	if err != nil {
		return dispatch.Accepted{}, err
	}
	accepted, err := judge(a)
	if err == nil && accepted.ID != "" && accepted.ID != p.messageID(e.Key) {
		accepted.Status = "queued under another Message-ID"
		p.renamed.Store(true)
	}
	return accepted, err
}

func (p *Provider) auth() http.Header {
	return http.Header{"Authorization": {"Basic " + base64.StdEncoding.EncodeToString([]byte("api:"+p.cfg.APIKey))}}
}

// messageID is the mail's Message-ID without brackets.
func (p *Provider) messageID(key dispatch.Key) string { return key.String() + "@" + p.cfg.Domain }

// NormalizeID is a Message-ID in its one spelling: answers have it in angle
// brackets, events don't, and the events' filter must not.
func NormalizeID(id string) string {
	return strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(id), "<"), ">")
}
