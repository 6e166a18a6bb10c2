// Package resend is a provider for mail over Resend.
//
//	p, err := resend.New(resend.Config{APIKey: key, WebhookSecret: secret})
//	mux.Handle("POST /hooks/resend", p.Webhook(box))
//
// # What can be known after a lost answer
//
// Resend remembers an Idempotency-Key for 24 hours: the same key with the same
// body gets the first answer again and nothing is sent. So an unknown mail is
// sent again under its key, byte for byte, inside that time. Behind it, events
// settle it: each carries our key as a tag. There is no look-up by reference.
//
// # A smoke test
//
// Mail to delivered@resend.dev, bounced@resend.dev and complained@resend.dev
// is taken and gets the event of its name.
//
// # Sources
//
// resend-openapi (August 2026), resend-go v3.12, the error list of
// resend-rust, Resend's pages on errors, rate limits, idempotency keys and
// webhooks, and Svix's on signatures. Display names follow what
// django-anymail found (its Resend backend, July 2026). Where a comment says
// "not documented", none of these has it.
package resend

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/exchange"
	"github.com/seed-8098fbb7/dispatch/provider/internal/mailapi"
)

// encoding is the version of encode.
const encoding = 1

// window is how long Resend remembers a key.
const window = 24 * time.Hour

// Provider sends through one team at Resend. It is safe for concurrent use and
// starts no goroutine. Its zero value can't be used: make it with New.
type Provider struct {
	dispatch.NoLookup

	cfg    Config
	secret []byte // of the webhook; nil: none
	client *exchange.Client
	unread atomic.Int64
}

// New checks the configuration. Its error names the field and quotes no value.
func New(cfg Config) (*Provider, error) {
	cfg, secret, err := cfg.checked()
	if err != nil {
		return nil, err
	}
	client, err := mailapi.Exchange(cfg.Exchange)
	if err != nil {
		return nil, fmt.Errorf("resend: %w", err)
	}
	return &Provider{cfg: cfg, secret: secret, client: client}, nil
}

// Close closes idle connections. Sends still work afterwards.
func (p *Provider) Close() { p.client.Close() }

// String shows name and account.
func (p *Provider) String() string { return p.cfg.String() }

// Format prints what String does, with every verb.
func (p *Provider) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, p.String()) }

// LogValue shows what String does.
func (p *Provider) LogValue() slog.Value { return p.cfg.LogValue() }

// Contract is what Resend promises. RefusalProves stays false: it isn't
// documented whether a key is looked for before the mail is validated.
func (p *Provider) Contract() dispatch.Contract {
	c := dispatch.Contract{
		Name: p.cfg.Name, Account: p.cfg.Account, Encoding: encoding, Timeout: p.client.Timeout(),
		Dedupe: dispatch.Dedupe{
			Window: window, BindsBody: true, Confirmed: true,
			InFlight: "409 concurrent_idempotent_requests; another body gets 409 invalid_idempotent_request",
			Source:   "resend.com/docs/dashboard/emails/idempotency-keys: kept for 24 hours, the first answer is returned again",
		},
		Search: dispatch.Search{Source: "none: GET /emails has neither tags nor headers"},
	}
	if p.secret != nil {
		c.Echo = dispatch.Echo{
			Reference: true, Grace: p.cfg.Grace,
			Source: "webhook events carry the mail's tags (resend-openapi); the time until the first one is not documented",
		}
	}
	return c
}

// Send makes one POST with the key as Idempotency-Key. A nil error is a
// success status; whether the mail arrives is for events to say.
func (p *Provider) Send(ctx context.Context, e dispatch.Envelope) (dispatch.Accepted, error) {
	body, err := p.encode(e)
	if err != nil {
		return dispatch.Accepted{}, err
	}
	a, err := p.client.Do(ctx, exchange.Request{
		URL: p.cfg.BaseURL + "/emails", Body: body, Replay: e.Replay, KeyHeader: "Idempotency-Key", Key: e.Key.String(),
		Header: http.Header{"Accept": {"application/json"}, "Content-Type": {"application/json"}, "User-Agent": {"dispatch"}},
		Auth:   http.Header{"Authorization": {"Bearer " + p.cfg.APIKey}},
	})
	if err != nil {
		return dispatch.Accepted{}, err
	}
	return judge(a)
}

// NormalizeID is an id of Resend in its one spelling: answers and events have
// the same UUID.
func NormalizeID(id string) string { return strings.ToLower(strings.TrimSpace(id)) }

// digest shortens what must not be stored as it is.
func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return fmt.Sprintf("%x", sum[:16])
}
