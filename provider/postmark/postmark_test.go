package postmark_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/internal/mailtest"
	"github.com/seed-8098fbb7/dispatch/provider/postmark"
)

func config(url string) postmark.Config {
	return postmark.Config{ServerToken: token, HookUser: user, HookPassword: password, BaseURL: url, Metadata: []string{"order"}}
}

func open(t *testing.T, cfg postmark.Config) *postmark.Provider {
	t.Helper()
	p, err := postmark.New(cfg)
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
	require.Equal(t, "0a129aee-e1cd-480d-b08d-000000000001", a.ID, "B151: one spelling")
	mailtest.SameAsGolden(t, "request_full.json", f.All()[0].Body)
	var m letter
	require.NoError(t, json.Unmarshal(f.All()[0].Body, &m))
	require.Equal(t, `"Smith, John" <john@example.com>, =?utf-8?b?SsO8cmdlbg==?= <j@example.com>`, m.To)
	require.Equal(t, "secret@example.com", m.BCC)
	for _, h := range m.Headers {
		require.NotEqual(t, "Bcc", h.Name)
	}
	require.Equal(t, `Rechnung "März".pdf`, m.Attachments[0].Name)
	require.Equal(t, "%PDF-1", string(m.Attachments[0].Content))
	require.Equal(t, "cid:logo", m.Attachments[1].ID)
	require.Equal(t, map[string]string{"dispatch_key": mailtest.Key().String(), "order": "123"}, m.Metadata, "other metadata stays here")

	e.Content = mailtest.Templated("")
	_, err = p.Send(t.Context(), e)
	require.NoError(t, err)
	mailtest.SameAsGolden(t, "request_template.json", f.All()[1].Body)
	numbered := mailtest.Templated("")
	numbered.Template.ID, numbered.Template.Data = "1234", nil
	e.Content = numbered
	_, err = p.Send(t.Context(), e)
	require.NoError(t, err)
	require.Contains(t, string(f.All()[2].Body), `"TemplateId":1234,"TemplateModel":{}`)
}

// B026: 7.7 MiB raw is 10.3 MiB as it is sent.
func TestUnfit(t *testing.T) {
	large := mailtest.Mail()
	large.Attachments = []dispatch.Attachment{{Name: "a", Type: "a/b", Data: make([]byte, 77*(1<<20)/10)}}
	long := mailtest.Mail()
	long.HTML = string(make([]byte, 5<<20+1))
	tags := mailtest.Mail()
	tags.Tags = []string{"a", "b"}
	subject := mailtest.Templated("")
	subject.Subject = "x"
	f := newFake(t)
	p := open(t, config(f.URL))
	for field, m := range map[string]dispatch.Email{
		"Content has": large, "Content.HTML": long, "Content.Tags": tags, "Content.Subject": subject, "Content.Template.Revision": mailtest.Templated("v3"),
	} {
		e := mailtest.Envelope()
		e.Content = m
		ev, v := dispatch.Judge(p.Send(t.Context(), e))
		require.Equal(t, dispatch.NotSent, ev.Stage, field)
		require.Equal(t, dispatch.Sender, v.Scope)
		require.Contains(t, v.Reason, field)
		var field *dispatch.FieldError
		require.ErrorAs(t, postmark.Check(m), &field)
	}
	large.Attachments[0].Data = make([]byte, 7<<20)
	require.NoError(t, postmark.Check(large))
	e := mailtest.Envelope()
	e.Metadata = map[string]string{"order": string(make([]byte, 81))}
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
		word    string
	}{
		"accepted":             {"accepted.json", 200, dispatch.OK, 0, "OK"},
		"no ErrorCode":         {"delayed.json", 200, dispatch.OK, 0, "OK, delayed"},
		"B010 partial":         {"partial.json", 200, dispatch.OK, 0, "OK, inactive recipients skipped"},
		"B010 inactive":        {"inactive.json", 422, dispatch.Rejected, dispatch.Message, ""},
		"inactive in a 200":    {"inactive.json", 200, dispatch.Rejected, dispatch.Message, ""},
		"bad from":             {"bad_from.json", 422, dispatch.Rejected, dispatch.Sender, ""},
		"bad to":               {"bad_to.json", 422, dispatch.Rejected, dispatch.Message, ""},
		"bad token":            {"bad_token.json", 401, dispatch.Rejected, dispatch.Account, ""},
		"not confirmed":        {"not_confirmed.json", 422, dispatch.Rejected, dispatch.Sender, ""},
		"accepted under a 500": {"accepted.json", 500, dispatch.Unknown, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			a, _, err := postmark.JudgeForTest(evidence(c.status), []byte(readFile(t, c.file)), mailtest.Full())
			_, v := dispatch.Judge(a, err)
			require.Equal(t, c.outcome, v.Outcome, v.Reason)
			require.Equal(t, c.scope, v.Scope)
			require.Equal(t, c.word, a.Status)
			require.NotContains(t, a.Status, "@")
		})
	}
	for body, want := range map[string]dispatch.Outcome{ // B002, B005
		``: dispatch.OK, `{"MessageID":null}`: dispatch.OK, "\xef\xbb\xbf{\"MessageID\":\"a\",\"ErrorCode\":\"0\"}": dispatch.OK,
		`{"ErrorCode":null}`: dispatch.OK, `{"ErrorCode":"406"}`: dispatch.Rejected, `{"ErrorCode":777}`: dispatch.Unknown,
	} {
		a, _, err := postmark.JudgeForTest(evidence(200), []byte(body), mailtest.Mail())
		_, v := dispatch.Judge(a, err)
		require.Equal(t, want, v.Outcome, body)
	}
}

// B009, B010: Postmark takes a mail for some recipients only. It is accepted
// and never sent again; the others are told of.
func TestInactiveRecipients(t *testing.T) {
	_, skipped, err := postmark.JudgeForTest(evidence(200), []byte(readFile(t, "partial.json")), mailtest.Full())
	require.NoError(t, err)
	require.Equal(t, []string{"ada@example.com", "secret@example.com"}, skipped)
	_, skipped, _ = postmark.JudgeForTest(evidence(200), []byte(`{"ErrorCode":0,"Message":"OK, inactive skipped: ada@example.com.","To":"a"}`), mailtest.Mail())
	require.Equal(t, []string{"ada@example.com"}, skipped)
	_, skipped, _ = postmark.JudgeForTest(evidence(200), []byte(`{"ErrorCode":0,"Message":"inactive: xada@example.com"}`), mailtest.Mail())
	require.Empty(t, skipped, "another's address is no match")
}

func TestLookup(t *testing.T) {
	for name, c := range map[string]struct {
		body string
		kept bool
		want dispatch.Presence
	}{
		"found, in any case":   {readFile(t, "search.json"), true, dispatch.Present},
		"nothing":              {`{"TotalCount":0,"Messages":[]}`, true, dispatch.Absent},
		"nothing, too late":    {`{"TotalCount":0,"Messages":[]}`, false, dispatch.Unclear},
		"another page":         {`{"TotalCount":11,"Messages":[]}`, true, dispatch.Unclear},
		"no list":              {`{"TotalCount":0}`, true, dispatch.Unclear},
		"filter not honoured":  {`{"TotalCount":1,"Messages":[{"MessageID":"a","Metadata":{"dispatch_key":"01920000-0000-7000-8000-000000000002"}}]}`, true, dispatch.Unclear},
		"no metadata":          {`{"TotalCount":1,"Messages":[{"MessageID":"a"}]}`, true, dispatch.Unclear},
		"half a document":      {`{"TotalCount":0,"Messages":[]`, true, dispatch.Unclear},
		"two documents in one": {`{"TotalCount":0,"Messages":[]}{}`, true, dispatch.Unclear},
	} {
		found, err := postmark.FoundForTest(evidence(200), []byte(c.body), mailtest.Key(), c.kept)
		require.NoError(t, err, name)
		require.Equal(t, c.want, found.Presence, name)
	}
	f := newFake(t)
	p := open(t, config(f.URL))
	q := dispatch.Query{Key: dispatch.NewKey(), Content: mailtest.Mail(), Since: time.Now().Add(-8 * 24 * time.Hour), Until: time.Now()}
	found, err := p.Lookup(t.Context(), q)
	require.NoError(t, err)
	require.Equal(t, dispatch.Unclear, found.Presence, "it would not be kept")
	q.Since = time.Now()
	found, err = p.Lookup(t.Context(), q)
	require.NoError(t, err)
	require.Equal(t, dispatch.Absent, found.Presence)
	bad := config(f.URL)
	bad.ServerToken = "other"
	found, err = open(t, bad).Lookup(t.Context(), q)
	require.Error(t, err)
	require.Equal(t, dispatch.Unclear, found.Presence)
}

func TestConfig(t *testing.T) {
	for field, change := range map[string]func(*postmark.Config){
		"Name":          func(c *postmark.Config) { c.Name = "Post mark" },
		"ServerToken":   func(c *postmark.Config) { c.ServerToken = "" },
		"ServerToken: ": func(c *postmark.Config) { c.ServerToken = "hunter2\nX" }, // B034
		"BaseURL":       func(c *postmark.Config) { c.BaseURL = "http://hunter2.example" },
		"From":          func(c *postmark.Config) { c.From = "hunter2" },
		"MessageStream": func(c *postmark.Config) { c.MessageStream = "a b" },
		"Metadata has 1": func(c *postmark.Config) {
			c.Metadata = []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"}
		},
		"Metadata has a":           func(c *postmark.Config) { c.Metadata = []string{"Dispatch_Key"} },
		"negative":                 func(c *postmark.Config) { c.Lag = -1 },
		"Retention":                func(c *postmark.Config) { c.Retention = time.Minute },
		"HookPassword go together": func(c *postmark.Config) { c.HookPassword = "" },
		"HookSecret go together":   func(c *postmark.Config) { c.HookHeader = "X-A" },
		"no custom header":         func(c *postmark.Config) { c.HookHeader, c.HookSecret = "authorization", "hunter2" },
		"Connect":                  func(c *postmark.Config) { c.Exchange.Connect = -1 },
	} {
		cfg := config("https://api.example")
		change(&cfg)
		_, err := postmark.New(cfg)
		require.ErrorContains(t, err, field)
		require.NotContains(t, err.Error(), "hunter2")
	}
}

func TestRedaction(t *testing.T) {
	cfg := config("https://api.example")
	cfg.Name, cfg.HookHeader, cfg.HookSecret = "acme", "X-Hook", password
	mailtest.CheckRedaction(t, "acme", cfg, &cfg, open(t, cfg))
}

func TestContract(t *testing.T) {
	c := open(t, config("https://api.example")).Contract()
	require.NoError(t, c.Validate())
	require.Zero(t, c.Dedupe.Window, "Postmark doesn't dedupe")
	require.True(t, c.Search.Available && c.Echo.Reference)
	require.Equal(t, time.Hour, c.Search.Lag)
	require.False(t, c.RefusalProves)
	cfg := config("https://api.example")
	cfg.HookUser, cfg.HookPassword = "", ""
	require.False(t, open(t, cfg).Contract().Echo.Reference)
}
