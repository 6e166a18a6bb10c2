package sendgrid_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/internal/mailtest"
	"github.com/seed-8098fbb7/dispatch/provider/sendgrid"
)

func config(url string) sendgrid.Config {
	_, public := signer()
	return sendgrid.Config{APIKey: apiKey, WebhookKey: public, BaseURL: url, Metadata: []string{"order"}}
}

func open(t *testing.T, cfg sendgrid.Config) *sendgrid.Provider {
	t.Helper()
	p, err := sendgrid.New(cfg)
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
	to := m.Personalizations[0]
	require.Equal(t, []person{{"john@example.com", `"Smith, John"`}, {"j@example.com", "Jürgen"}}, to.To)
	require.Equal(t, []person{{"secret@example.com", ""}}, to.BCC)
	require.NotContains(t, m.Headers, "Bcc")
	require.Equal(t, `Rechnung "März".pdf`, m.Attachments[0].Name)
	require.Equal(t, "%PDF-1", string(m.Attachments[0].Content))
	require.Equal(t, "inline", m.Attachments[1].Disposition)
	require.Equal(t, map[string]string{"dispatch_key": mailtest.Key().String(), "order": "123"}, m.Args, "other metadata stays here")

	e.Content = mailtest.Templated("")
	_, err = p.Send(t.Context(), e)
	require.NoError(t, err)
	mailtest.SameAsGolden(t, "request_template.json", f.All()[1].Body)
}

func TestUnfit(t *testing.T) {
	large := mailtest.Mail() // B026: 22 MiB raw
	large.Attachments = []dispatch.Attachment{{Name: "a", Type: "a/b", Data: make([]byte, 22<<20)}}
	twice := mailtest.Mail()
	twice.CC = []dispatch.Address{{Email: "Ada@example.com"}}
	tags := mailtest.Mail()
	tags.Tags = []string{"a", "a"}
	owned := mailtest.Mail()
	owned.Headers = []dispatch.Header{{Name: "X-SG-EID", Value: "x"}}
	subject := mailtest.Templated("")
	subject.Subject = "x"
	f := newFake(t)
	p := open(t, config(f.URL))
	for field, m := range map[string]dispatch.Email{
		"Content has": large, "Content.To": twice, "Content.Tags[1]": tags, "Content.Headers": owned, "Content.Subject": subject,
		"Content.Template.Revision": mailtest.Templated("v3"),
	} {
		e := mailtest.Envelope()
		e.Content = m
		ev, v := dispatch.Judge(p.Send(t.Context(), e))
		require.Equal(t, dispatch.NotSent, ev.Stage, field)
		require.Equal(t, dispatch.Sender, v.Scope)
		require.Contains(t, v.Reason, field)
		require.NotContains(t, v.Reason, "example.com")
		var field *dispatch.FieldError
		require.ErrorAs(t, sendgrid.Check(m), &field)
	}
	e := mailtest.Envelope()
	e.Metadata = map[string]string{"order": string(make([]byte, 10_000))}
	_, v := dispatch.Judge(p.Send(t.Context(), e))
	require.Contains(t, v.Reason, "Metadata")
	require.Zero(t, f.Calls())
}

// Recorded answers and their verdicts.
func TestAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		file    string
		status  int
		outcome dispatch.Outcome
		scope   dispatch.Scope
	}{
		"bad key":              {"unauthorized.json", 401, dispatch.Rejected, dispatch.Account},
		"no credits":           {"credits.json", 401, dispatch.Rejected, dispatch.Account},
		"sender not verified":  {"not_verified.json", 403, dispatch.Rejected, dispatch.Sender},
		"no right":             {"unauthorized.json", 403, dispatch.Rejected, dispatch.Account},
		"bad to":               {"bad_to.json", 400, dispatch.Rejected, dispatch.Message},
		"bad from":             {"bad_from.json", 400, dispatch.Rejected, dispatch.Sender},
		"too many":             {"too_many.json", 429, dispatch.Rejected, dispatch.Moment},
		"too large":            {"too_many.json", 413, dispatch.Rejected, dispatch.Message},
		"error":                {"bad_to.json", 500, dispatch.Unknown, 0},
		"unavailable":          {"too_many.json", 503, dispatch.Unknown, 0},
		"errors under success": {"bad_to.json", 202, dispatch.OK, 0}, // the status is the verdict
	} {
		t.Run(name, func(t *testing.T) {
			_, v := dispatch.Judge(sendgrid.JudgeForTest(c.status, http.Header{}, []byte(readFile(t, c.file))))
			require.Equal(t, c.outcome, v.Outcome, v.Reason)
			require.Equal(t, c.scope, v.Scope)
		})
	}
	for body, want := range map[string]string{ // B005
		`{"errors":[{"field":5}]}`: "5", `{"errors":[{"field":null}]}`: "", `{"errors":{}}`: "", `{"errors":[null]}`: "", ``: "",
	} {
		e, v := dispatch.Judge(sendgrid.JudgeForTest(400, http.Header{}, []byte(body)))
		require.Equal(t, want, e.Code, body)
		require.Equal(t, dispatch.Message, v.Scope)
	}
	a, err := sendgrid.JudgeForTest(202, http.Header{}, nil) // B002
	require.NoError(t, err)
	require.True(t, a.NoID)
}

// B151: answers and events name a mail alike; a shorter id is another mail.
func TestNormalizeID(t *testing.T) {
	for id, want := range map[string]string{
		"abc123": "abc123", "abc123.filter0001-1-5": "abc123", "abc123.recvd-x.0": "abc123", " abc123\n": "abc123", "abc12": "abc12", ".x": "", "": "",
	} {
		require.Equal(t, want, sendgrid.NormalizeID(id))
	}
}

func TestLookup(t *testing.T) {
	f := newFake(t)
	_, err := open(t, config(f.URL)).Lookup(t.Context(), dispatch.Query{})
	require.ErrorIs(t, err, dispatch.ErrNoLookup)
	cfg := config(f.URL)
	cfg.ActivityLag = time.Minute
	p := open(t, cfg)
	e := mailtest.Envelope()
	a, err := p.Send(t.Context(), e)
	require.NoError(t, err)
	q := dispatch.Query{Key: e.Key, Since: time.Now()}
	found, err := p.Lookup(t.Context(), q)
	require.NoError(t, err)
	require.Equal(t, dispatch.Found{Presence: dispatch.Present, ID: a.ID, Status: "processed"}, found)
	other := q
	other.Key = dispatch.NewKey()
	found, err = p.Lookup(t.Context(), other)
	require.NoError(t, err)
	require.Equal(t, dispatch.Absent, found.Presence)
	other.Since = time.Now().Add(-31 * 24 * time.Hour)
	found, err = p.Lookup(t.Context(), other)
	require.NoError(t, err)
	require.Equal(t, dispatch.Unclear, found.Presence, "it would not be kept")
	f.NoMatch, other.Since = true, time.Now()
	found, err = p.Lookup(t.Context(), other)
	require.NoError(t, err)
	require.Equal(t, dispatch.Unclear, found.Presence, "a mail of another key is none of ours")

	for body, want := range map[string]dispatch.Presence{
		readFile(t, "activity_detail.json"):                                                    dispatch.Present,
		`{"msg_id":"a","unique_args":{"dispatch_key":"01920000-0000-7000-8000-000000000001"}}`: dispatch.Present,
		`{"msg_id":"a","unique_args":{"dispatch_key":"01920000-0000-7000-8000-000000000002"}}`: dispatch.Unclear,
		`{"msg_id":"a","unique_args":null}`:                                                    dispatch.Unclear, `{"msg_id":"a"}`: dispatch.Unclear, `[]`: dispatch.Unclear,
	} {
		require.Equal(t, want, sendgrid.DetailForTest([]byte(body), mailtest.Key()).Presence, body)
	}
}

func TestConfig(t *testing.T) {
	for field, change := range map[string]func(*sendgrid.Config){
		"Name":                  func(c *sendgrid.Config) { c.Name = "Send grid" },
		"APIKey":                func(c *sendgrid.Config) { c.APIKey = "" },
		"APIKey: ":              func(c *sendgrid.Config) { c.APIKey = "hunter2\nX" }, // B034
		"Subuser":               func(c *sendgrid.Config) { c.Subuser, c.Account = "hunter2\nX", "a" },
		"BaseURL":               func(c *sendgrid.Config) { c.BaseURL = "http://hunter2.example" },
		"From":                  func(c *sendgrid.Config) { c.From = "hunter2" },
		"negative":              func(c *sendgrid.Config) { c.ActivityLag = -1 },
		"Replay":                func(c *sendgrid.Config) { c.Replay = time.Second },
		"in the EU":             func(c *sendgrid.Config) { c.ActivityLag, c.BaseURL = 1, "https://api.eu.sendgrid.com" },
		"a field of their own":  func(c *sendgrid.Config) { c.Metadata = []string{"email"} },
		"Metadata has a name t": func(c *sendgrid.Config) { c.Metadata = []string{"dispatch_key"} },
		"is not base64":         func(c *sendgrid.Config) { c.WebhookKey = "hunter2!" },
		"is no public key":      func(c *sendgrid.Config) { c.WebhookKey = "aGk=" },
		"Connect":               func(c *sendgrid.Config) { c.Exchange.Connect = -1 },
	} {
		cfg := config("https://api.example")
		change(&cfg)
		_, err := sendgrid.New(cfg)
		require.ErrorContains(t, err, field)
		require.NotContains(t, err.Error(), "hunter2")
	}
}

func TestRedaction(t *testing.T) {
	cfg := config("https://api.example")
	cfg.Name = "acme"
	mailtest.CheckRedaction(t, "acme", cfg, &cfg, open(t, cfg))
}

func TestContract(t *testing.T) {
	cfg := config("https://api.example")
	cfg.Subuser = "shop"
	c := open(t, cfg).Contract()
	require.NoError(t, c.Validate())
	require.Equal(t, "shop", c.Account)
	require.Zero(t, c.Dedupe.Window, "SendGrid doesn't dedupe")
	require.False(t, c.Search.Available || c.RefusalProves)
	require.True(t, c.Echo.Reference)
	cfg.WebhookKey, cfg.ActivityLag = "", time.Hour
	c = open(t, cfg).Contract()
	require.False(t, c.Echo.Reference)
	require.Equal(t, time.Hour, c.Search.Lag)
}
