// Package ses is a provider for mail over Amazon SES, API v2. It is a module of
// its own, since it needs the AWS SDK.
//
//	aws, err := config.LoadDefaultConfig(ctx) // github.com/aws/aws-sdk-go-v2/config
//	p, err := ses.New(ses.Config{
//		Region: aws.Region, Credentials: aws.Credentials,
//		ConfigurationSet: "mail", Topics: []string{"arn:aws:sns:eu-west-1:123456789012:mail-events"},
//	})
//	mux.Handle("POST /hooks/ses", p.Webhook(box))
//
// # What can be known after a lost answer
//
// SES doesn't dedupe and has no look-up by a reference of ours, so a mail that
// may have been accepted is not sent again by itself. Our key is a tag of the
// mail, which each event of a configuration set carries: "Send" proves the
// acceptance within seconds. Without events an unknown mail is held.
//
// # Setting events up
//
// A configuration set with an SNS destination for Send, Reject, Delivery,
// Bounce, Complaint, DeliveryDelay and Rendering Failure; a subscription of the
// topic to the webhook's https URL, with raw message delivery off, since raw
// messages aren't signed. Webhook confirms it. SNS gives up on a call after
// about a minute by default: let the topic's delivery policy retry for an hour,
// which is the most, and give the subscription a dead-letter queue.
//
// # What acceptance means
//
// 200 says that SES took the request. A template that can't be rendered, and a
// mail with a virus, show as events afterwards.
//
// # The SDK
//
// It writes and signs the request and chooses its URL. The exchange is
// provider/exchange's: one attempt is one request, with every retry of the SDK
// off, and "not sent" is a fact.
//
// # A smoke test
//
// Mail to success@simulator.amazonses.com is delivered, to bounce@ and
// complaint@simulator.amazonses.com it bounces and is complained of.
//
// # Sources
//
// The API reference of SES v2 (SendEmail, common errors), the SES developer
// guide (sending quotas and their errors, event publishing to SNS, header
// fields), the SNS developer guide (verifying signatures, delivery policies),
// aws-sdk-go-v2 1.48 with sesv2 1.79, aws-js-sns-message-validator. Where a
// comment says "not documented", none of these has it.
package ses

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sesv2"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/exchange"
	"github.com/seed-8098fbb7/dispatch/provider/internal/mailapi"
)

// encoding is the version of encode.
const encoding = 1

// Provider sends through one account at SES in one region. It is safe for
// concurrent use; no goroutine of its own outlives a call. Its zero value can't
// be used: make it with New.
type Provider struct {
	dispatch.NoLookup

	cfg         Config
	credentials *aws.CredentialsCache
	api         *sesv2.Client
	client      *exchange.Client
	certs       certificates
	unread      atomic.Int64
}

// New checks the configuration and calls nobody. Its error names the field and
// quotes no value.
func New(cfg Config) (*Provider, error) {
	cfg, err := cfg.checked()
	if err != nil {
		return nil, err
	}
	client, err := mailapi.Exchange(cfg.Exchange)
	if err != nil {
		return nil, fmt.Errorf("ses: %w", err)
	}
	p := &Provider{cfg: cfg, client: client, credentials: aws.NewCredentialsCache(cfg.Credentials)}
	p.certs = certificates{get: p.get, tls: cfg.Exchange.TLS}
	p.api = sesv2.New(sesv2.Options{
		Region: cfg.Region, Credentials: p.credentials, BaseEndpoint: aws.String(cfg.BaseURL),
		Retryer: aws.NopRetryer{}, RetryMaxAttempts: 1,
	})
	return p, nil
}

// Close closes idle connections. Sends still work afterwards.
func (p *Provider) Close() { p.client.Close() }

// String shows name and account.
func (p *Provider) String() string { return p.cfg.String() }

// Format prints what String does, with every verb.
func (p *Provider) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, p.String()) }

// LogValue shows what String does.
func (p *Provider) LogValue() slog.Value { return p.cfg.LogValue() }

// MarshalText shows what String does.
func (p *Provider) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// Contract is what SES promises.
func (p *Provider) Contract() dispatch.Contract {
	c := dispatch.Contract{
		Name: p.cfg.Name, Account: p.cfg.Account, Encoding: encoding, Timeout: p.client.Timeout(),
		Dedupe: dispatch.Dedupe{Source: "none: SendEmail of API v2 has no token"},
		Search: dispatch.Search{Source: "none: GetMessageInsights asks by SES's own id only, and export jobs don't filter by tag"},
	}
	if p.cfg.ConfigurationSet != "" && len(p.cfg.Topics) > 0 {
		c.Echo = dispatch.Echo{
			Reference: true, Grace: p.cfg.Grace,
			Source: "SES developer guide, contents of event data: mail.tags; the time until the first event is not documented",
		}
	}
	return c
}

// Send makes one POST. A nil error is status 200.
func (p *Provider) Send(ctx context.Context, e dispatch.Envelope) (dispatch.Accepted, error) {
	in, err := p.encode(e)
	if err != nil {
		return dispatch.Accepted{}, err
	}
	a, err := p.call(ctx, in, e.Replay)
	if err != nil {
		return dispatch.Accepted{}, err
	}
	accepted, err := judge(a)
	if expired(err) {
		// The cache doesn't know that they are: the next attempt asks its source.
		p.credentials.Invalidate()
	}
	return accepted, err
}

// NormalizeID is a message id in its one spelling: answers and events have the
// same, and where it stands in a Message-ID field it is followed by
// "@<region>.amazonses.com".
func NormalizeID(id string) string {
	id, _, _ = strings.Cut(strings.Trim(strings.TrimSpace(id), "<>"), "@")
	return id
}
