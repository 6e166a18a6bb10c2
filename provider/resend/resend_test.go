package resend_test

import (
	"encoding/json"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/internal/mailtest"
	"github.com/seed-8098fbb7/dispatch/provider/providertest"
	"github.com/seed-8098fbb7/dispatch/provider/resend"
)

func config(url string) resend.Config {
	return resend.Config{APIKey: apiKey, WebhookSecret: secret, BaseURL: url, Metadata: []string{"order"}}
}

func open(t *testing.T, cfg resend.Config) *resend.Provider {
	t.Helper()
	p, err := resend.New(cfg)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}

func readFile(tb testing.TB, name string) string {
	tb.Helper()
	b, err := os.ReadFile("testdata/" + name)
	require.NoError(tb, err)
	return strings.TrimSpace(string(b))
}

// The requests, byte for byte, and read back by a vendor as strict as its
// documents: B082, B089, B090.
func TestGoldenRequests(t *testing.T) {
	f := newFake(t)
	p := open(t, config(f.URL))
	e := mailtest.Golden()
	a, err := p.Send(t.Context(), e)
	require.NoError(t, err)
	require.Equal(t, "49a3999c-0ce1-4ea6-ab68-000000000001", a.ID)
	mailtest.SameAsGolden(t, "request_full.json", f.All()[0].Body)
	var m mail
	require.NoError(t, json.Unmarshal(f.All()[0].Body, &m))
	require.Equal(t, "Shop <no-reply@shop.example>", m.From)
	require.Equal(t, []string{"=?utf-8?b?U21pdGgsIEpvaG4=?= <john@example.com>", "=?utf-8?b?SsO8cmdlbg==?= <j@example.com>"}, m.To)
	require.Equal(t, []string{"secret@example.com"}, m.BCC)
	require.NotContains(t, m.Headers, "Bcc")
	require.Equal(t, `Rechnung "März".pdf`, m.Attachments[0].Name)
	require.Equal(t, "%PDF-1", string(m.Attachments[0].Data))
	require.Equal(t, "logo", m.Attachments[1].ID)
	require.NotContains(t, string(f.All()[0].Body), "not to be sent", "metadata goes out by name only")

	e.Content = mailtest.Templated("")
	g := newFake(t)
	_, err = open(t, config(g.URL)).Send(t.Context(), e)
	require.NoError(t, err)
	mailtest.SameAsGolden(t, "request_template.json", g.All()[0].Body)
}

// What can't go over Resend is refused here, before a byte leaves, and goes on
// to the route's next provider.
func TestUnfit(t *testing.T) {
	many := mailtest.Mail()
	for range 51 {
		many.To = append(many.To, dispatch.Address{Email: "a@example.com"})
	}
	large := mailtest.Mail() // B026: 31 MB raw, 41 MB in base64
	large.Attachments = []dispatch.Attachment{{Name: "a", Type: "a/b", Data: make([]byte, 32<<20)}}
	twice := mailtest.Mail()
	twice.Headers = []dispatch.Header{{Name: "X-A", Value: "1"}, {Name: "x-a", Value: "2"}}
	both := mailtest.Templated("")
	both.HTML = "x"
	list := mailtest.Templated("")
	list.Template.Data = []byte(`{"a":[1]}`)
	odd := mailtest.Mail()
	odd.Tags = []string{"a b"}
	f := newFake(t)
	p := open(t, config(f.URL))
	for field, m := range map[string]dispatch.Email{
		"To": many, "Attachments": large, "Headers[1]": twice, "Template and": both, "Template.Revision": mailtest.Templated("v3"),
		"Template.Data": list, "Tags[0]": odd,
	} {
		e := mailtest.Envelope()
		e.Content = m
		ev, v := dispatch.Judge(p.Send(t.Context(), e))
		require.Equal(t, dispatch.NotSent, ev.Stage, field)
		require.Equal(t, dispatch.Rejected, v.Outcome)
		require.Equal(t, dispatch.Sender, v.Scope)
		require.Contains(t, v.Reason, "Content."+field)
		var field *dispatch.FieldError
		require.ErrorAs(t, resend.Check(m), &field)
	}
	e := mailtest.Envelope()
	e.Metadata = map[string]string{"order": "not a tag!"}
	_, v := dispatch.Judge(p.Send(t.Context(), e))
	require.Contains(t, v.Reason, "Metadata")
	for name, from := range map[string]string{"missing": "", "no mail address": "Shop", "special": `"Smith, John" <a@shop.example>`} {
		e := mailtest.Envelope()
		e.From = from
		_, v := dispatch.Judge(p.Send(t.Context(), e))
		require.Equal(t, dispatch.Sender, v.Scope)
		require.Contains(t, v.Reason, name)
	}
	require.Zero(t, f.Calls())
	require.NoError(t, resend.Check(mailtest.Full()))
}

// Recorded answers and their verdicts.
func TestAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		file    string
		status  int
		outcome dispatch.Outcome
		scope   dispatch.Scope
		key     dispatch.KeyFault
		hold    bool
	}{
		"validation":             {"validation.json", 422, dispatch.Rejected, dispatch.Message, 0, false},
		"bad key under a 400":    {"invalid_key.json", 400, dispatch.Rejected, dispatch.Account, 0, false},
		"bad key under a 401":    {"invalid_key.json", 401, dispatch.Rejected, dispatch.Account, 0, false},
		"domain not verified":    {"not_verified.json", 403, dispatch.Rejected, dispatch.Sender, 0, false},
		"B057 concurrent":        {"concurrent.json", 409, dispatch.Unknown, 0, dispatch.KeyInFlight, false},
		"B057 another body":      {"other_body.json", 409, dispatch.Unknown, 0, dispatch.KeyReused, true},
		"rate limit":             {"rate_limit.json", 429, dispatch.Rejected, dispatch.Moment, 0, false},
		"B061 a name with a 500": {"rate_limit.json", 200, dispatch.Rejected, dispatch.Moment, 0, false},
		"accepted":               {"accepted.json", 200, dispatch.OK, 0, 0, false},
		"accepted under a 500":   {"accepted.json", 500, dispatch.Unknown, 0, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			e, v := dispatch.Judge(resend.JudgeForTest(c.status, []byte(readFile(t, c.file))))
			require.Equal(t, c.outcome, v.Outcome, v.Reason)
			require.Equal(t, c.scope, v.Scope)
			require.Equal(t, c.key, e.Key)
			require.Equal(t, c.hold, v.Hold)
		})
	}
	for name, body := range map[string]string{ // B002, B005, B152
		"null":             `{"id":null}`,
		"byte order mark":  "\xef\xbb\xbf{\"id\":\"A-1\"}",
		"empty":            ``,
		"a number":         `{"id":19421798915720714}`,
		"name is a number": `{"id":"a","name":{}}`,
	} {
		a, err := resend.JudgeForTest(200, []byte(body))
		require.NoError(t, err, name)
		require.Equal(t, map[string]string{"byte order mark": "a-1", "a number": "19421798915720714", "name is a number": "a"}[name], a.ID)
	}
}

// B056: each mail goes under its own key, in parallel too.
func TestKeys(t *testing.T) {
	f := newFake(t)
	p := open(t, config(f.URL))
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			if _, err := p.Send(t.Context(), mailtest.Envelope()); err != nil {
				panic(err)
			}
		})
	}
	group.Wait()
	keys := map[string]bool{}
	for _, m := range f.All() {
		keys[m.Key] = true
		require.Contains(t, string(m.Body), m.Key, "the tag carries the key")
	}
	require.Len(t, keys, 20)
}

// An encoder that gives other bytes for an open mail is noticed before a byte
// leaves, and Resend itself refuses other bytes under the same key.
func TestChangedBytes(t *testing.T) {
	f := newFake(t)
	p := open(t, config(f.URL))
	e := mailtest.Envelope()
	a, err := p.Send(t.Context(), e)
	require.NoError(t, err)
	e.Content = mailtest.Full()
	e.Replay = a.Evidence.Request
	ev, v := dispatch.Judge(p.Send(t.Context(), e))
	require.Equal(t, dispatch.CauseChanged, ev.Cause)
	require.True(t, v.Hold)
	require.Equal(t, 1, f.Calls())
	e.Replay = nil
	ev, v = dispatch.Judge(p.Send(t.Context(), e))
	require.Equal(t, dispatch.KeyReused, ev.Key)
	require.True(t, v.Hold)
	require.Len(t, f.All(), 1)
}

func TestConfig(t *testing.T) {
	for field, change := range map[string]func(*resend.Config){
		"Name":                   func(c *resend.Config) { c.Name = "Re send" },
		"Account":                func(c *resend.Config) { c.Account = "a\nb" },
		"APIKey is missing":      func(c *resend.Config) { c.APIKey = " " },
		"APIKey: ":               func(c *resend.Config) { c.APIKey = "hunter2\nX" }, // B034
		"BaseURL":                func(c *resend.Config) { c.BaseURL = "http://hunter2.example" },
		"From":                   func(c *resend.Config) { c.From = "hunter2" },
		"From has":               func(c *resend.Config) { c.From = "=?utf-8?q?hunter2=0D=0AX?= <a@example.com>" }, // B082
		"WebhookSecret is not":   func(c *resend.Config) { c.WebhookSecret = "whsec_hunter2!" },
		"Metadata has a name":    func(c *resend.Config) { c.Metadata = []string{"a b"} },
		"Metadata has a name th": func(c *resend.Config) { c.Metadata = []string{"dispatch_key"} },
		"Grace":                  func(c *resend.Config) { c.Grace = -1 },
		"Connect":                func(c *resend.Config) { c.Exchange.Connect = -1 },
	} {
		cfg := config("https://api.example")
		change(&cfg)
		_, err := resend.New(cfg)
		require.ErrorContains(t, err, field)
		require.NotContains(t, err.Error(), "hunter2")
	}
}

func TestRedaction(t *testing.T) {
	cfg := config("https://api.example")
	cfg.Name, cfg.WebhookSecret = "acme", "whsec_"+mailtest.Secret+"A"
	mailtest.CheckRedaction(t, "acme", cfg, &cfg, open(t, cfg))
}

func TestContract(t *testing.T) {
	c := open(t, config("https://api.example")).Contract()
	require.NoError(t, c.Validate())
	require.Equal(t, "24h0m0s", c.Dedupe.Window.String())
	require.True(t, c.Dedupe.BindsBody && c.Dedupe.Confirmed && c.Echo.Reference)
	require.False(t, c.RefusalProves || c.Search.Available)
	for _, source := range []string{c.Dedupe.Source, c.Search.Source, c.Echo.Source} {
		require.NotEmpty(t, source)
	}
	cfg := config("https://api.example")
	cfg.WebhookSecret = ""
	require.False(t, open(t, cfg).Contract().Echo.Reference, "an event that can't be checked is none")
}

// The wire is looked at by the suite's vendor: one header, one request.
func TestOneRequest(t *testing.T) {
	v, err := providertest.NewVendor(providertest.Options{Fault: providertest.Script(providertest.Fault{Wire: providertest.Drop})})
	require.NoError(t, err)
	t.Cleanup(v.Close)
	e := mailtest.Envelope()
	_, err = open(t, config(v.URL)).Send(t.Context(), e)
	require.Error(t, err)
	require.Len(t, v.AllCalls(), 1)
	require.Equal(t, []string{e.Key.String()}, v.AllCalls()[0].Header["Idempotency-Key"])
}
