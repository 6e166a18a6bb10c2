// Package twilio sends text messages through Twilio's Programmable Messaging
// API and takes its status callbacks.
//
//	p, err := twilio.New(twilio.Config{
//		AccountSID:     sid,
//		AuthToken:      token,
//		From:           "+15555550100",
//		StatusCallback: "https://hooks.example.com/hooks/twilio",
//	})
//	mux.Handle("POST /hooks/twilio", p.Webhook(box))
//
// # What can be known after a lost answer
//
// Twilio has no idempotency key for messages, so nothing that may have been
// accepted is ever sent again. It keeps no reference of the client either, but
// for the URL of the status callback: the key goes there, and a receipt that
// carries it proves the acceptance. Configure a StatusCallback in production.
//
// The list of messages proves the opposite: a message to this number that
// could be ours and isn't there, after the lag, was not accepted, and may be
// sent. That a message was accepted can be read from the list only where no
// other key sends the same text to the same number: see Config.DistinctTexts.
//
// # A smoke test
//
// Every account has test credentials beside its own, an account SID and a token
// of their own, with which messages are checked and answered, not sent and not
// charged. Magic numbers choose the answer. From +15005550006 a message to any
// valid number is accepted; any other number of the account's own is 21606.
// The rest are refused:
//
//	From +15005550001  21212, no valid sender
//	From +15005550007  21606, the sender is not the account's
//	From +15005550008  21611, the sender's queue is full
//	To   +15005550001  21211, no valid number
//	To   +15005550002  21612, no way to that number
//	To   +15005550003  21408, region not enabled
//	To   +15005550004  21610, recipient opted out
//	To   +15005550009  21614, no mobile number
//
// Test credentials send no status callbacks, see no messages in a look-up, and
// can't produce the codes of deliveries (30xxx).
//
// # Sources
//
// Twilio's OpenAPI document twilio_api_v2010 (April 2026), its error dictionary,
// its helper library twilio-go v1.31 (signatures, hosts), and its pages on
// messages, status callbacks, webhook security and test credentials.
package twilio

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/exchange"
)

// encoding is the version of the form that encode makes.
const encoding = 1

// Provider sends through one account. It is safe for concurrent use and starts
// no goroutine. Its zero value can't be used: make it with New.
type Provider struct {
	cfg      Config
	client   *exchange.Client
	messages string // URL of the list of messages
	path     string // its path: pages lie there and nowhere else
	auth     http.Header
	callback *callback // nil without a StatusCallback
	now      func() time.Time
}

// New checks the configuration. Its error names the field and quotes no value.
func New(cfg Config) (*Provider, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	client, err := exchange.New(cfg.Exchange)
	if err != nil {
		return nil, fmt.Errorf("twilio: %w", err)
	}
	user, password := cfg.AccountSID, cfg.AuthToken
	if cfg.APIKey != "" {
		user, password = cfg.APIKey, cfg.APISecret
	}
	path := "/2010-04-01/Accounts/" + cfg.AccountSID + "/Messages.json"
	p := &Provider{
		cfg: cfg, client: client, messages: cfg.BaseURL + path, path: path, now: time.Now,
		auth: http.Header{"Authorization": {"Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))}},
	}
	if cfg.StatusCallback != "" {
		if p.callback, err = newCallback(cfg.StatusCallback); err != nil {
			return nil, fmt.Errorf("twilio: StatusCallback: %w", err)
		}
	}
	return p, nil
}

// Close closes idle connections. Sends still work afterwards.
func (p *Provider) Close() { p.client.Close() }

// Format prints what LogValue shows, with every verb.
func (p *Provider) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, p.LogValue().String()) }

// LogValue shows name and account.
func (p *Provider) LogValue() slog.Value { return p.cfg.LogValue() }

// Contract is what Twilio promises.
func (p *Provider) Contract() dispatch.Contract {
	c := dispatch.Contract{
		Name: p.cfg.Name, Account: p.cfg.account(), Encoding: encoding, Timeout: p.client.Timeout(),
		Dedupe: dispatch.Dedupe{Source: "none: the OpenAPI document of the Messages resource has neither field nor header for it"},
		Search: dispatch.Search{
			Available: true, Lag: p.cfg.Lag,
			Source: "OpenAPI document, list of Messages by To; the lag is not documented",
		},
	}
	if p.callback != nil {
		c.Echo = dispatch.Echo{
			Reference: true, Grace: p.cfg.Grace,
			Source: "StatusCallback of the Messages resource: called as it was given, query included; the grace is not documented",
		}
	}
	return c
}

// Send makes one POST. A nil error is a success status without a failure in its
// body; whether Twilio sends the message on is for its receipts to say.
func (p *Provider) Send(ctx context.Context, e dispatch.Envelope) (dispatch.Accepted, error) {
	body, err := p.encode(e)
	if err != nil {
		return dispatch.Accepted{}, err
	}
	a, err := p.client.Do(ctx, exchange.Request{
		Method: http.MethodPost, URL: p.messages, Body: body, Replay: e.Replay, Auth: p.auth,
		Header: http.Header{"Accept": {"application/json"}, "Content-Type": {"application/x-www-form-urlencoded"}},
	})
	if err != nil {
		return dispatch.Accepted{}, err
	}
	return judge(a)
}
