package ses_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/vendors"
	"github.com/seed-8098fbb7/dispatch/provider/internal/mailtest"
	"github.com/seed-8098fbb7/dispatch/provider/ses"
)

// static are credentials that don't change.
func static(c aws.Credentials) aws.CredentialsProvider {
	return aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) { return c, nil })
}

func config(url string) ses.Config {
	return ses.Config{
		Region: region, Credentials: static(keys), ConfigurationSet: "mail", Topics: []string{topic}, BaseURL: url, Metadata: []string{"order"},
	}
}

func open(t *testing.T, cfg ses.Config) *ses.Provider {
	t.Helper()
	p, err := ses.New(cfg)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}

// The requests, byte for byte, and read back: B082, B089, B090.
func TestGoldenRequests(t *testing.T) {
	f := newFake(t)
	p := open(t, config(f.URL))
	e := mailtest.Golden()
	a, err := p.Send(t.Context(), e)
	require.NoError(t, err)
	require.Equal(t, f.All()[0].ID, a.ID)
	mailtest.SameAsGolden(t, "request_full.json", f.All()[0].Body)
	var m letter
	require.NoError(t, json.Unmarshal(f.All()[0].Body, &m))
	require.Equal(t, []string{`"Smith, John" <john@example.com>`, "=?utf-8?b?SsO8cmdlbg==?= <j@example.com>"}, m.Destination.To)
	require.Equal(t, []string{"secret@example.com"}, m.Destination.BCC)
	require.Equal(t, []pair{{"tag_1", "orders"}, {"dispatch_key", mailtest.Key().String()}, {"order", "123"}}, m.Tags, "other metadata stays here")
	simple := m.Content.Simple
	require.Equal(t, content{"Grüße", "UTF-8"}, simple.Subject)
	for _, h := range simple.Headers {
		require.NotEqual(t, "Bcc", h.Name)
	}
	require.Equal(t, file{`Rechnung "März".pdf`, "application/pdf", "ATTACHMENT", "BASE64", "", []byte("%PDF-1")}, simple.Attachments[0])
	require.Equal(t, "INLINE", simple.Attachments[1].Disposition)
	require.Equal(t, "logo", simple.Attachments[1].ID)

	e.Content = mailtest.Templated("")
	_, err = p.Send(t.Context(), e)
	require.NoError(t, err)
	mailtest.SameAsGolden(t, "request_template.json", f.All()[1].Body)
}

func TestUnfit(t *testing.T) {
	subject := mailtest.Templated("")
	subject.Subject = "x"
	data := mailtest.Templated("")
	data.Template.Data = []byte(`[1]`)
	with := func(change func(*dispatch.Email)) dispatch.Email {
		m := mailtest.Mail()
		change(&m)
		return m
	}
	f := newFake(t)
	p := open(t, config(f.URL))
	for field, c := range map[string]dispatch.Content{
		"Content is no mail": dispatch.SMS{}, "Content.Subject": subject, "Content.Template.Data": data, "Content.Template.Revision": mailtest.Templated("v3"),
		"Content has an address": with(func(m *dispatch.Email) { m.CC = []dispatch.Address{{Email: "jürgen@example.com"}} }),
		"Content.Tags[0]":        with(func(m *dispatch.Email) { m.Tags = []string{"a b"} }),
		"Content.Headers[0]":     with(func(m *dispatch.Email) { m.Headers = []dispatch.Header{{Name: "X-A", Value: strings.Repeat("x", 996)}} }),
		"Content.Headers[1]": with(func(m *dispatch.Email) {
			m.Headers = []dispatch.Header{{Name: "X-A", Value: "a"}, {Name: "X-B", Value: "ü"}}
		}),
	} {
		err := ses.Check(c)
		var wrong *dispatch.FieldError
		require.ErrorAs(t, err, &wrong, field)
		require.ErrorContains(t, err, field)
		e := mailtest.Envelope()
		e.Content = c
		ev, v := dispatch.Judge(p.Send(t.Context(), e))
		require.Equal(t, dispatch.NotSent, ev.Stage)
		require.Equal(t, dispatch.Rejected, v.Outcome)
	}
	e := mailtest.Golden()
	e.Metadata = map[string]string{"order": "no tag"}
	ev, v := dispatch.Judge(p.Send(t.Context(), e))
	require.Equal(t, dispatch.NotSent, ev.Stage)
	require.Equal(t, dispatch.Sender, v.Scope)
	require.Zero(t, f.Calls())
	require.NoError(t, ses.Check(mailtest.Full()))
}

// One attempt is one request, whatever the answer: the SDK's retries are off.
func TestNoRetries(t *testing.T) {
	f := newFake(t)
	p := open(t, config(f.URL))
	f.Lose = func(int) bool { return true }
	_, v := dispatch.Judge(p.Send(t.Context(), mailtest.Envelope()))
	require.Equal(t, dispatch.Unknown, v.Outcome)
	require.Equal(t, 1, f.Calls())
}

// Without credentials nothing is sent; expired ones are asked for again.
func TestCredentials(t *testing.T) {
	f := newFake(t)
	cfg := config(f.URL)
	cfg.Credentials = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		return aws.Credentials{}, errors.New("no " + mailtest.Secret)
	})
	_, err := open(t, cfg).Send(t.Context(), mailtest.Envelope())
	ev, v := dispatch.Judge(dispatch.Accepted{}, err)
	require.Equal(t, dispatch.NotSent, ev.Stage)
	require.Equal(t, dispatch.Account, v.Scope)
	require.NotContains(t, err.Error(), mailtest.Secret)
	require.Zero(t, f.Calls())

	cfg.Credentials = static(aws.Credentials{AccessKeyID: "AKID", SecretAccessKey: "other"})
	ev, v = dispatch.Judge(open(t, cfg).Send(t.Context(), mailtest.Envelope()))
	require.Equal(t, "SignatureDoesNotMatch", ev.Code)
	require.Equal(t, dispatch.Account, v.Scope)

	asked := 0
	cfg = config(answering(t, http.StatusForbidden, "ExpiredTokenException", "The security token included in the request is expired"))
	cfg.Credentials = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		asked++
		return keys, nil
	})
	p := open(t, cfg)
	for range 2 {
		_, v = dispatch.Judge(p.Send(t.Context(), mailtest.Envelope()))
		require.Equal(t, dispatch.Rejected, v.Outcome)
		require.Equal(t, dispatch.Moment, v.Scope)
	}
	require.Equal(t, 2, asked)
}

func TestConfig(t *testing.T) {
	for field, change := range map[string]func(*ses.Config){
		"Name":             func(c *ses.Config) { c.Name = "S E S" },
		"Region":           func(c *ses.Config) { c.Region = "hunter2.example" },
		"Credentials":      func(c *ses.Config) { c.Credentials = nil },
		"ConfigurationSet": func(c *ses.Config) { c.ConfigurationSet = "hunter2 x" },
		"Topics[1]":        func(c *ses.Config) { c.Topics = append(c.Topics, "arn:aws:sns:hunter2") },
		"BaseURL":          func(c *ses.Config) { c.BaseURL = "http://hunter2.example" },
		"From":             func(c *ses.Config) { c.From = "hunter2" },
		"Metadata":         func(c *ses.Config) { c.Metadata = []string{"dispatch_key"} },
		"Grace":            func(c *ses.Config) { c.Grace = -1 },
		"Connect":          func(c *ses.Config) { c.Exchange.Connect = -1 },
	} {
		cfg := config("https://api.example")
		change(&cfg)
		_, err := ses.New(cfg)
		require.ErrorContains(t, err, field)
		require.NotContains(t, err.Error(), "hunter2")
	}
	for _, name := range []string{"us-east-1", "us-gov-west-1", "cn-north-1", "ap-southeast-3"} {
		cfg := config("")
		cfg.Region = name
		open(t, cfg)
	}
}

func TestRedaction(t *testing.T) {
	cfg := config("https://api.example")
	cfg.Name = "acme"
	mailtest.CheckRedaction(t, "acme", cfg, &cfg, open(t, cfg))
}

func TestContract(t *testing.T) {
	c := open(t, config("https://api.example")).Contract()
	require.NoError(t, c.Validate())
	require.Zero(t, c.Dedupe.Window, "SES doesn't dedupe")
	require.False(t, c.Search.Available)
	require.True(t, c.Echo.Reference)
	require.Equal(t, time.Hour, c.Echo.Grace)
	require.False(t, c.RefusalProves)
	for _, change := range []func(*ses.Config){func(c *ses.Config) { c.ConfigurationSet = "" }, func(c *ses.Config) { c.Topics = nil }} {
		cfg := config("https://api.example")
		change(&cfg)
		require.False(t, open(t, cfg).Contract().Echo.Reference)
	}
}

// testdata/vendor.md is what the vendor tables say of SES. After a change:
// UPDATE_GOLDEN=1 go test -run TestVendorTable . and then the root module's.
func TestVendorTable(t *testing.T) {
	bare := config("https://api.example")
	bare.ConfigurationSet, bare.Topics = "", nil
	v := vendors.Vendor{Name: "ses", Sends: "email", Bare: open(t, bare).Contract(), Full: open(t, config("https://api.example")).Contract()}
	mailtest.SameAsGolden(t, "vendor.md", []byte(v.Row()+v.Sources()))
}

func TestNormalizeID(t *testing.T) {
	for _, id := range []string{"0102018f-5d2b-000000", " 0102018f-5d2b-000000\n", "<0102018f-5d2b-000000@eu-west-1.amazonses.com>"} {
		require.Equal(t, "0102018f-5d2b-000000", ses.NormalizeID(id))
	}
}
