// Package vonage is a provider for text messages over Vonage (once Nexmo): its
// Messages API v1, or its older SMS API.
//
//	p, err := vonage.New(vonage.Config{
//		APIKey: "abcd1234", ApplicationID: id, PrivateKey: pem,
//		SignatureSecret: secret,
//		From:            "Shop",
//	})
//	mux.Handle("/hooks/vonage", p.Webhook(box))
//
// # What Vonage promises
//
// Neither API dedupes: nothing in their documents says what a repeated
// client reference gets, so a message whose answer was lost is never sent
// again by itself. Both echo the reference, our key, in every receipt, which
// settles an unknown one. Without receipts, and without the paid Reports API
// (Config.ReportLag), an unknown message is held.
//
// # Which API
//
// A new account takes Messages: its receipts are always signed, over their
// bytes, and it tells its limits by 429 and Retry-After. The SMS API answers
// 200 to everything; the verdict is in the body, one for each part of a long
// text.
//
// # Sources
//
// Messages API OpenAPI 1.20.0, SMS API OpenAPI 1.5.1, Reports API OpenAPI
// 3.1.4, all of developer.vonage.com in October 2026; its pages on status
// callbacks, signed webhooks and signing messages. Where a comment says "not
// documented", none of these has it.
package vonage

import (
	"context"
	"crypto/rsa"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/exchange"
)

// encoding is the version of encodeMessages and encodeSMS.
const encoding = 1

// Provider sends through one account at Vonage. It is safe for concurrent
// use.
type Provider struct {
	cfg    Config
	key    *rsa.PrivateKey // nil: Basic
	client *exchange.Client
	// reports is for the Reports API, whose answers are larger.
	reports *exchange.Client
	unread  atomic.Int64
}

// New checks the configuration. Its error names the field and quotes no
// secret.
func New(cfg Config) (*Provider, error) {
	p := &Provider{cfg: cfg.withDefaults()}
	if err := p.cfg.validate(); err != nil {
		return nil, err
	}
	var err error
	if len(cfg.PrivateKey) > 0 {
		if p.key, err = privateKey(cfg.PrivateKey); err != nil {
			return nil, err
		}
	}
	if p.client, err = exchange.New(cfg.Exchange); err != nil {
		return nil, err
	}
	cfg.Exchange.MaxBody = max(cfg.Exchange.MaxBody, maxReport)
	if p.reports, err = exchange.New(cfg.Exchange); err != nil {
		return nil, err
	}
	return p, nil
}

// Close closes idle connections.
func (p *Provider) Close() {
	p.client.Close()
	p.reports.Close()
}

// String shows name and account.
func (p *Provider) String() string { return p.cfg.String() }

// Format prints what String does, with every verb.
func (p *Provider) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, p.String()) }

// LogValue shows what String does.
func (p *Provider) LogValue() slog.Value { return p.cfg.LogValue() }

// Contract is what Vonage promises, as far as the account uses it.
func (p *Provider) Contract() dispatch.Contract {
	c := dispatch.Contract{
		Name: p.cfg.Name, Account: p.cfg.APIKey, Encoding: encoding, Timeout: p.client.Timeout(),
		Dedupe: dispatch.Dedupe{Source: "none documented: Messages API 1.20.0, SMS API 1.5.1"},
	}
	if p.cfg.ReportLag > 0 {
		c.Search = dispatch.Search{
			Available: true, Lag: p.cfg.ReportLag,
			Source: "Reports API 3.1.4, client_ref of a record; the lag is the account's own (Config.ReportLag)",
		}
	}
	if p.cfg.SignatureSecret != "" {
		c.Echo = dispatch.Echo{
			Reference: true, Grace: p.cfg.Grace,
			Source: "Messages API 1.20.0, client_ref is in every status; SMS API 1.5.1, client-ref of a delivery receipt",
		}
	}
	return c
}

// Send makes one POST. Its fault proves "not accepted" only where Vonage's
// own body says so, or where no byte left.
func (p *Provider) Send(ctx context.Context, e dispatch.Envelope) (dispatch.Accepted, error) {
	sms, ok := e.Content.(dispatch.SMS)
	if !ok {
		return dispatch.Accepted{}, local(account("not a text message"), errors.New("content is no SMS"))
	}
	if e.From == "" {
		e.From = p.cfg.From
	}
	from, err := number(e.From)
	if err != nil {
		return dispatch.Accepted{}, local(sender("sender is missing or no sender"), err)
	}
	r, judge := exchange.Request{Replay: e.Replay}, judgeMessages
	if p.cfg.API == SMS {
		judge = judgeSMS
		r.URL, r.Body = p.cfg.BaseURL+"/sms/json", p.encodeSMS(e.Key, from, sms)
		r.Header = http.Header{"Content-Type": {"application/x-www-form-urlencoded"}, "Accept": {"application/json"}}
	} else {
		r.URL, r.Header = p.cfg.BaseURL+"/v1/messages", http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json"}}
		if r.Body, err = p.encodeMessages(e.Key, from, sms); err != nil {
			return dispatch.Accepted{}, local(message("text is too long for the Messages API"), err)
		}
	}
	if r.Auth, err = p.auth(); err != nil {
		return dispatch.Accepted{}, local(account("request could not be signed"), err)
	}
	a, err := p.client.Do(ctx, r)
	if err != nil {
		return dispatch.Accepted{}, err
	}
	return judge(a)
}

// local is the fault of a message that was refused here: nothing was sent.
func local(v dispatch.Verdict, err error) error {
	return &dispatch.Fault{Evidence: dispatch.Evidence{Stage: dispatch.NotSent, Cause: dispatch.CauseLocal}, Verdict: v, Err: err}
}

func (p *Provider) auth() (http.Header, error) {
	if p.key == nil {
		return p.basic(), nil
	}
	token, err := p.token()
	return http.Header{"Authorization": {"Bearer " + token}}, err
}

func (p *Provider) basic() http.Header {
	both := base64.StdEncoding.EncodeToString([]byte(p.cfg.APIKey + ":" + p.cfg.APISecret))
	return http.Header{"Authorization": {"Basic " + both}}
}

// number is a sender as Vonage writes it: digits without plus, or up to 11
// letters, digits and blanks with a letter among them. Its errors don't quote
// it.
func number(s string) (string, error) {
	digits := strings.TrimPrefix(s, "+")
	letters := strings.Trim(digits, "0123456789 ") != ""
	switch {
	case s == "":
		return "", errors.New("is empty")
	case strings.ContainsFunc(digits, func(c rune) bool {
		return (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && c != ' '
	}):
		return "", errors.New("has a character other than digits, letters and blanks")
	case letters && (len(s) > 11 || s != digits):
		return "", errors.New("has letters and is longer than 11 characters, or begins with +")
	case !letters && (len(digits) > 15 || strings.Contains(digits, " ") || digits == ""):
		return "", errors.New("is no number of at most 15 digits")
	}
	return digits, nil
}
