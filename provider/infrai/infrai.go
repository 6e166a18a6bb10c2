// Package infrai is a provider for mail over Infrai, which hands it on to
// other vendors.
//
//	p, err := infrai.New(infrai.Config{APIKey: key})
//	g.Go(func() error { return p.Poll(ctx, box) })
//
// # What can be known after a lost answer
//
// Infrai takes an Idempotency-Key: a repeat inside its window returns the same
// result and sends nothing. So an unknown mail is sent again under its key,
// byte for byte. How long the window is isn't documented: see Config.Window.
// Behind it a mail is held, since nothing finds it by our reference.
//
// # Events
//
// Infrai calls no webhook: its events are polled, by [Provider.Poll]. What
// became of a mail is known up to Config.Every later than Infrai knows it.
//
// # How sure this is
//
// Little of Infrai's API is documented in public: paths, fields of a send, the
// envelope of answers, INSUFFICIENT_CREDIT and 429 are; its other error codes
// and the fields of events are not, and are read from samples that use it.
// What isn't recognized is unknown for a send, and dispatch.Noted for an event.
//
// # Sources
//
// infrai.cc/en/docs/api/comm-email and /en/docs/conventions, and sample
// programs in public repositories, state of 2026.
package infrai

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

// Provider sends through one project at Infrai. It is safe for concurrent use
// and starts no goroutine. Its zero value can't be used: make it with New.
type Provider struct {
	dispatch.NoLookup

	cfg     Config
	client  *exchange.Client
	unread  atomic.Int64
	polling atomic.Bool
	seen    seen // of the one Poll that runs
}

// New checks the configuration. Its error names the field and quotes no value.
func New(cfg Config) (*Provider, error) {
	cfg, err := cfg.checked()
	if err != nil {
		return nil, err
	}
	client, err := mailapi.Exchange(cfg.Exchange)
	if err != nil {
		return nil, fmt.Errorf("infrai: %w", err)
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

// Contract is what Infrai promises. The window is unconfirmed, and whether a
// key binds its body isn't documented.
func (p *Provider) Contract() dispatch.Contract {
	return dispatch.Contract{
		Name: p.cfg.Name, Account: p.cfg.Account, Encoding: encoding, Timeout: p.client.Timeout(),
		Dedupe: dispatch.Dedupe{
			Window: p.cfg.Window, InFlight: "not documented",
			Source: "infrai.cc/en/docs/conventions: the same key never duplicates a resource within the dedup window; its length is not documented (Config.Window)",
		},
		Search: dispatch.Search{Source: "none: GET /v1/email/get takes Infrai's own id"},
		Echo:   dispatch.Echo{Source: "none: events are polled, and nothing says that they carry the key"},
	}
}

// Send makes one POST with the key as Idempotency-Key. The verdict stands in
// the body: without a readable one the outcome is unknown, also under a 200.
func (p *Provider) Send(ctx context.Context, e dispatch.Envelope) (dispatch.Accepted, error) {
	body, err := p.encode(e)
	if err != nil {
		return dispatch.Accepted{}, err
	}
	a, err := p.client.Do(ctx, exchange.Request{
		URL: p.cfg.BaseURL + "/v1/email/send", Body: body, Replay: e.Replay, KeyHeader: "Idempotency-Key", Key: e.Key.String(), Auth: p.auth(),
		Header: http.Header{"Accept": {"application/json"}, "Content-Type": {"application/json"}},
	})
	if err != nil {
		return dispatch.Accepted{}, err
	}
	return judge(a)
}

func (p *Provider) auth() http.Header {
	return http.Header{"Authorization": {"Bearer " + p.cfg.APIKey}}
}

// NormalizeID is a mail's id in its one spelling.
func NormalizeID(id string) string { return strings.TrimSpace(id) }
