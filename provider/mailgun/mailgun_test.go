package mailgun_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/internal/mailtest"
	"github.com/seed-8098fbb7/dispatch/provider/mailgun"
)

func config(url string) mailgun.Config {
	return mailgun.Config{APIKey: apiKey, Domain: domain, WebhookKey: signingKey, BaseURL: url, Metadata: []string{"order"}}
}

func open(t *testing.T, cfg mailgun.Config) *mailgun.Provider {
	t.Helper()
	p, err := mailgun.New(cfg)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}

// The requests, byte for byte, and read back by a parser: B082, B089, B090.
func TestGoldenRequests(t *testing.T) {
	f := newFake(t)
	p := open(t, config(f.URL))
	e := mailtest.Golden()
	a, err := p.Send(t.Context(), e)
	require.NoError(t, err)
	require.Equal(t, mailtest.Key().String()+"@mg.shop.example", a.ID, "B151: without brackets")
	body := f.All()[0].Body
	mailtest.SameAsGolden(t, "request_full.txt", []byte(strconv.Quote(string(body))))
	kind := "multipart/form-data; boundary=" + strings.TrimPrefix(strings.SplitN(string(body), "\r\n", 2)[0], "--")
	m, ok := parse(kind, body)
	require.True(t, ok)
	require.Equal(t, []string{`"Smith, John" <john@example.com>`, "=?utf-8?b?SsO8cmdlbg==?= <j@example.com>"}, m.Fields["to"])
	require.Equal(t, "secret@example.com", m.get("bcc"))
	require.Equal(t, "<"+a.ID+">", m.get("h:Message-Id"))
	require.Equal(t, "help@shop.example", m.get("h:Reply-To"))
	require.Equal(t, "<https://shop.example/u/1>", m.get("h:List-Unsubscribe"))
	require.Empty(t, m.get("h:Bcc"))
	require.Equal(t, [][4]string{
		{"attachment", `Rechnung "März".pdf`, "application/pdf", "%PDF-1"}, {"inline", "logo", "image/png", "\x89PNG"},
	}, m.Files)
	require.Equal(t, "123", m.get("v:order"))
	require.Empty(t, m.get("v:customer"), "other metadata stays here")

	e.Content = mailtest.Templated("v3")
	_, err = p.Send(t.Context(), e)
	require.NoError(t, err)
	mailtest.SameAsGolden(t, "request_template.txt", []byte(strconv.Quote(string(f.All()[1].Body))))
	m, _ = parse(kind, f.All()[1].Body)
	require.Equal(t, "v3", m.get("t:version"), "pinned")
	require.JSONEq(t, `{"name":"Ada","n":19421798915720714}`, m.get("t:variables"))
	e.Content = mailtest.Templated("")
	_, err = p.Send(t.Context(), e)
	require.NoError(t, err)
	m, _ = parse(kind, f.All()[2].Body)
	require.Empty(t, m.get("t:version"))
}

func TestUnfit(t *testing.T) {
	large := mailtest.Mail() // B026: 20 MiB raw
	large.Attachments = []dispatch.Attachment{{Name: "a", Type: "a/b", Data: make([]byte, 20<<20)}}
	tags := mailtest.Mail()
	tags.Tags = []string{"a", "b", "c", "d"}
	twice := mailtest.Mail()
	twice.Headers = []dispatch.Header{{Name: "X-A", Value: "1"}, {Name: "x-a", Value: "2"}}
	both := mailtest.Templated("v3")
	both.HTML = "x"
	f := newFake(t)
	p := open(t, config(f.URL))
	for field, m := range map[string]dispatch.Email{
		"Content has": large, "Content.Tags": tags, "Content.Headers[1]": twice, "Content.Template": both,
	} {
		e := mailtest.Envelope()
		e.Content = m
		ev, v := dispatch.Judge(p.Send(t.Context(), e))
		require.Equal(t, dispatch.NotSent, ev.Stage, field)
		require.Equal(t, dispatch.Sender, v.Scope)
		require.Contains(t, v.Reason, field)
		var field *dispatch.FieldError
		require.ErrorAs(t, mailgun.Check(m), &field)
	}
	e := mailtest.Envelope()
	e.Metadata = map[string]string{"order": strings.Repeat("x", 16_000)}
	_, v := dispatch.Judge(p.Send(t.Context(), e))
	require.Contains(t, v.Reason, "at most 16000")
	require.Zero(t, f.Calls())
}

// Recorded answers and their verdicts.
func TestAnswers(t *testing.T) {
	date := http.Header{"Date": {"Mon, 20 Dec 2021 20:33:01 GMT"}}
	for name, c := range map[string]struct {
		file    string
		status  int
		outcome dispatch.Outcome
		scope   dispatch.Scope
		floor   time.Duration
	}{
		"accepted":             {"accepted.json", 200, dispatch.OK, 0, 0},
		"bad to":               {"bad_to.json", 400, dispatch.Rejected, dispatch.Message, 0},
		"bad from":             {"bad_from.json", 400, dispatch.Rejected, dispatch.Sender, 0},
		"not allowed":          {"not_allowed.json", 400, dispatch.Rejected, dispatch.Account, 0},
		"limited until":        {"limited.json", 429, dispatch.Rejected, dispatch.Moment, 20 * time.Second},
		"no domain":            {"no_domain.json", 404, dispatch.Rejected, dispatch.Account, 0},
		"plain text":           {"forbidden.txt", 401, dispatch.Rejected, dispatch.Account, 0},
		"plain text 403":       {"forbidden.txt", 403, dispatch.Rejected, dispatch.Account, 0},
		"accepted under a 502": {"accepted.json", 502, dispatch.Unknown, 0, 0},
		"a refusal's words":    {"not_allowed.json", 503, dispatch.Unknown, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			_, v := dispatch.Judge(mailgun.JudgeForTest(c.status, date, []byte(readFile(t, c.file))))
			require.Equal(t, c.outcome, v.Outcome, v.Reason)
			require.Equal(t, c.scope, v.Scope)
			require.Equal(t, c.floor, v.Floor)
		})
	}
	for body, id := range map[string]string{ // B002, B151
		``: "", `{"id":null}`: "", "\xef\xbb\xbf{\"id\":\"<a@x>\"}": "a@x", `Queued`: "", `{"id":"a@x"}`: "a@x", `{"id":5}`: "5",
	} {
		a, err := mailgun.JudgeForTest(200, http.Header{}, []byte(body))
		require.NoError(t, err)
		require.Equal(t, id, a.ID)
		require.Equal(t, id == "", a.NoID)
	}
	for words, want := range map[string]time.Duration{
		"try again after soon": 0, "try again after Mon, 20 Dec 2021 20:32:21 UTC": 0, "try again after Mon, 20 Dec 2021 20:33:21 UTC.": 20 * time.Second, "": 0,
	} {
		_, v := dispatch.Judge(mailgun.JudgeForTest(429, date, []byte(`{"message":"`+words+`"}`)))
		require.Equal(t, want, v.Floor, words)
	}
}

func TestLookup(t *testing.T) {
	id := mailtest.Key().String() + "@" + domain
	for name, c := range map[string]struct {
		body string
		sure bool
		want dispatch.Presence
	}{
		"found":               {readFile(t, "events.json"), true, dispatch.Present},
		"nothing":             {`{"items":[],"paging":{}}`, true, dispatch.Absent},
		"nothing, not sure":   {`{"items":[],"paging":{}}`, false, dispatch.Unclear},
		"no list":             {`{"paging":{}}`, true, dispatch.Unclear},
		"filter not followed": {strings.ReplaceAll(readFile(t, "events.json"), "000001@", "000002@"), true, dispatch.Unclear},
		"with brackets":       {strings.ReplaceAll(readFile(t, "events.json"), id, "<"+id+">"), true, dispatch.Present},
		"half":                {`{"items":[]`, true, dispatch.Unclear},
	} {
		found, err := mailgun.FoundForTest(200, []byte(c.body), id, c.sure)
		require.NoError(t, err, name)
		require.Equal(t, c.want, found.Presence, name)
	}
	f := newFake(t)
	p := open(t, config(f.URL))
	q := dispatch.Query{Key: dispatch.NewKey(), Since: time.Now(), Until: time.Now()}
	found, err := p.Lookup(t.Context(), q)
	require.NoError(t, err)
	require.Equal(t, dispatch.Absent, found.Presence)
	q.Since = time.Now().Add(-24 * time.Hour)
	found, err = p.Lookup(t.Context(), q)
	require.NoError(t, err)
	require.Equal(t, dispatch.Unclear, found.Presence, "it would not be kept")
	cfg := config(f.URL)
	cfg.SendingKey = true
	_, err = open(t, cfg).Lookup(t.Context(), q)
	require.ErrorIs(t, err, dispatch.ErrNoLookup)
	cfg = config(f.URL)
	cfg.Domain = "other.example"
	_, err = open(t, cfg).Lookup(t.Context(), q)
	require.Error(t, err, "the wrong domain or region says nothing of a mail")
}

// A Mailgun that gives mails ids of its own can't be asked by ours: from the
// first such answer on, "not found" proves nothing.
func TestRenamed(t *testing.T) {
	f := newFake(t)
	f.Rename = true
	p := open(t, config(f.URL))
	a, err := p.Send(t.Context(), mailtest.Envelope())
	require.NoError(t, err)
	require.Equal(t, f.All()[0].ID, a.ID)
	require.Contains(t, a.Status, "another Message-ID")
	found, err := p.Lookup(t.Context(), dispatch.Query{Key: dispatch.NewKey(), Since: time.Now()})
	require.NoError(t, err)
	require.Equal(t, dispatch.Unclear, found.Presence)
}

func TestConfig(t *testing.T) {
	for field, change := range map[string]func(*mailgun.Config){
		"Name":            func(c *mailgun.Config) { c.Name = "Mail gun" },
		"APIKey":          func(c *mailgun.Config) { c.APIKey = "" },
		"APIKey: ":        func(c *mailgun.Config) { c.APIKey = "hunter2\nX" }, // B034
		"WebhookKey: ":    func(c *mailgun.Config) { c.WebhookKey = "hunter2\nX" },
		"Domain":          func(c *mailgun.Config) { c.Domain = "hunter2" },
		"Domain is":       func(c *mailgun.Config) { c.Domain = "a.b/../hunter2" },
		"BaseURL":         func(c *mailgun.Config) { c.BaseURL = "http://hunter2.example" },
		"From":            func(c *mailgun.Config) { c.From = "hunter2" },
		"negative":        func(c *mailgun.Config) { c.Lag = -1 },
		"Retention":       func(c *mailgun.Config) { c.Retention = time.Minute },
		"Replay":          func(c *mailgun.Config) { c.Replay = time.Second },
		"Metadata has a ": func(c *mailgun.Config) { c.Metadata = []string{"a:b"} },
		"Connect":         func(c *mailgun.Config) { c.Exchange.Connect = -1 },
	} {
		cfg := config("https://api.example")
		change(&cfg)
		_, err := mailgun.New(cfg)
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
	c := open(t, config("https://api.example")).Contract()
	require.NoError(t, c.Validate())
	require.Equal(t, domain, c.Account)
	require.Zero(t, c.Dedupe.Window, "Mailgun doesn't dedupe")
	require.True(t, c.Search.Available && c.Echo.Reference)
	require.Equal(t, 45*time.Minute, c.Search.Lag)
	cfg := config("https://api.example")
	cfg.SendingKey, cfg.WebhookKey = true, ""
	c = open(t, cfg).Contract()
	require.False(t, c.Search.Available || c.Echo.Reference || c.RefusalProves)
}
