// Package sendgrid is a provider for mail over Twilio SendGrid.
//
//	p, err := sendgrid.New(sendgrid.Config{APIKey: key, WebhookKey: publicKey})
//	mux.Handle("POST /hooks/sendgrid", p.Webhook(box))
//
// # What can be known after a lost answer
//
// SendGrid doesn't dedupe, so a mail that may have been accepted is not sent
// again by itself. Our key is a custom argument, which each event carries:
// "processed" proves the acceptance within minutes. Switch the signed event
// webhook on in production; without it, and without the paid Email Activity
// history (Config.ActivityLag), an unknown mail is held.
//
// # What acceptance means
//
// 202 says that SendGrid took the request. A suppressed recipient, or a
// template that can't be rendered, shows as a "dropped" event afterwards.
//
// # Sources
//
// sendgrid-oai (mail, email activity, January 2026), SendGrid's pages on
// errors, the event webhook and its signature, sendgrid-go 3.16, and what
// django-anymail found. Where a comment says "not documented", none of these
// has it.
package sendgrid

import (
	"context"
	"crypto/ecdsa"
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

// Provider sends through one account at SendGrid. It is safe for concurrent
// use and starts no goroutine. Its zero value can't be used: make it with New.
type Provider struct {
	cfg    Config
	key    *ecdsa.PublicKey // of the webhook; nil: none
	client *exchange.Client
	unread atomic.Int64
}

// New checks the configuration. Its error names the field and quotes no value.
func New(cfg Config) (*Provider, error) {
	cfg, key, err := cfg.checked()
	if err != nil {
		return nil, err
	}
	client, err := mailapi.Exchange(cfg.Exchange)
	if err != nil {
		return nil, fmt.Errorf("sendgrid: %w", err)
	}
	return &Provider{cfg: cfg, key: key, client: client}, nil
}

// Close closes idle connections. Sends still work afterwards.
func (p *Provider) Close() { p.client.Close() }

// String shows name and account.
func (p *Provider) String() string { return p.cfg.String() }

// Format prints what String does, with every verb.
func (p *Provider) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, p.String()) }

// LogValue shows what String does.
func (p *Provider) LogValue() slog.Value { return p.cfg.LogValue() }

// Contract is what SendGrid promises, as far as the account uses it.
func (p *Provider) Contract() dispatch.Contract {
	c := dispatch.Contract{
		Name: p.cfg.Name, Account: p.cfg.Account, Encoding: encoding, Timeout: p.client.Timeout(),
		Dedupe: dispatch.Dedupe{Source: "none: mail/send of sendgrid-oai has neither field nor header for it"},
		Search: dispatch.Search{Source: "Email Activity API, a paid addition that isn't switched on"},
	}
	if p.cfg.ActivityLag > 0 {
		c.Search = dispatch.Search{
			Available: true, Lag: p.cfg.ActivityLag,
			Source: "Email Activity API, unique_args of a query; the lag is the account's own (Config.ActivityLag)",
		}
	}
	if p.key != nil {
		c.Echo = dispatch.Echo{
			Reference: true, Grace: p.cfg.Grace,
			Source: "event webhook, custom arguments stand in each event; the time until the first one is not documented",
		}
	}
	return c
}

// Send makes one POST. A nil error is a success status; its id is that of the
// field X-Message-Id.
func (p *Provider) Send(ctx context.Context, e dispatch.Envelope) (dispatch.Accepted, error) {
	body, err := p.encode(e)
	if err != nil {
		return dispatch.Accepted{}, err
	}
	h := p.header()
	h.Set("Content-Type", "application/json")
	a, err := p.client.Do(ctx, exchange.Request{URL: p.cfg.BaseURL + "/v3/mail/send", Body: body, Replay: e.Replay, Header: h, Auth: p.auth()})
	if err != nil {
		return dispatch.Accepted{}, err
	}
	return judge(a)
}

func (p *Provider) header() http.Header {
	h := http.Header{"Accept": {"application/json"}}
	if p.cfg.Subuser != "" {
		h.Set("On-Behalf-Of", p.cfg.Subuser)
	}
	return h
}

func (p *Provider) auth() http.Header {
	return http.Header{"Authorization": {"Bearer " + p.cfg.APIKey}}
}

// NormalizeID is a mail's id in its one spelling. The answer to a send has it
// bare; events and activity have it with a dot and a suffix behind it
// (sendgrid/docs issue 6577). An id has no dot itself, so that what stands
// before the first one is all of it, never a part of another's.
func NormalizeID(id string) string {
	id, _, _ = strings.Cut(strings.TrimSpace(id), ".")
	return id
}
