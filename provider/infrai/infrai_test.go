package infrai_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/infrai"
	"github.com/seed-8098fbb7/dispatch/provider/internal/mailtest"
)

func config(url string) infrai.Config {
	return infrai.Config{APIKey: apiKey, BaseURL: url, Every: time.Second}
}

func open(t *testing.T, cfg infrai.Config) *infrai.Provider {
	t.Helper()
	p, err := infrai.New(cfg)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}

// portable is Full without what Infrai has no field for.
func portable() dispatch.Email {
	m := mailtest.Full()
	m.ReplyTo, m.Headers, m.Tags, m.Attachments = nil, nil, nil, m.Attachments[:1]
	return m
}

// The requests, byte for byte, in the canonical form that Infrai asks for:
// B082, B089, B090.
func TestGoldenRequests(t *testing.T) {
	f := newFake(t)
	cfg := config(f.URL)
	cfg.Upstream = "ses"
	p := open(t, cfg)
	e := mailtest.Golden()
	e.Content = portable()
	a, err := p.Send(t.Context(), e)
	require.NoError(t, err)
	require.Equal(t, "em_000001", a.ID)
	require.Equal(t, "queued", a.Status)
	body := f.All()[0].Body
	require.True(t, strings.HasSuffix(string(body), "}\n"))
	mailtest.SameAsGolden(t, "request_full.json", body)
	var m letter
	require.NoError(t, json.Unmarshal(body, &m))
	require.Equal(t, []string{`"Smith, John" <john@example.com>`, "=?utf-8?b?SsO8cmdlbg==?= <j@example.com>"}, m.To)
	require.Equal(t, []string{"secret@example.com"}, m.BCC)
	require.Equal(t, `Rechnung "März".pdf`, m.Files[0].Name)
	require.Equal(t, "%PDF-1", string(m.Files[0].Content))
	require.NotContains(t, string(body), "not to be sent")

	e.Key = dispatch.NewKey()
	templated := mailtest.Templated("")
	templated.Subject = "Welcome"
	e.Content = templated
	_, err = p.Send(t.Context(), e)
	require.NoError(t, err)
	mailtest.SameAsGolden(t, "request_template.json", f.All()[1].Body)
}

func TestUnfit(t *testing.T) {
	reply, headers, tags, inline, subject := portable(), portable(), portable(), portable(), portable()
	reply.ReplyTo, headers.Headers, tags.Tags = mailtest.Full().ReplyTo, mailtest.Full().Headers, mailtest.Full().Tags
	inline.Attachments, subject.Subject = mailtest.Full().Attachments, ""
	pinned := mailtest.Templated("v3")
	pinned.Subject = "x"
	f := newFake(t)
	p := open(t, config(f.URL))
	for field, m := range map[string]dispatch.Email{
		"ReplyTo": reply, "Headers": headers, "Tags": tags, "Attachments": inline, "Subject": subject, "Template.Revision": pinned,
	} {
		e := mailtest.Envelope()
		e.Content = m
		ev, v := dispatch.Judge(p.Send(t.Context(), e))
		require.Equal(t, dispatch.NotSent, ev.Stage, field)
		require.Equal(t, dispatch.Sender, v.Scope)
		require.Contains(t, v.Reason, "Content."+field)
		var field *dispatch.FieldError
		require.ErrorAs(t, infrai.Check(m), &field)
	}
	require.Zero(t, f.Calls())
	require.NoError(t, infrai.Check(portable()))
}

// Recorded answers and their verdicts.
func TestAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		file    string
		status  int
		outcome dispatch.Outcome
		scope   dispatch.Scope
	}{
		"accepted":             {"accepted.json", 200, dispatch.OK, 0},
		"accepted, 201":        {"accepted.json", 201, dispatch.OK, 0},
		"accepted under a 500": {"accepted.json", 500, dispatch.Unknown, 0},
		"no credit":            {"no_credit.json", 402, dispatch.Rejected, dispatch.Account},
		"no credit in a 200":   {"no_credit.json", 200, dispatch.Rejected, dispatch.Account},
		"limited":              {"rate_limited.json", 429, dispatch.Rejected, dispatch.Moment},
		"unlisted in a 200":    {"unlisted.json", 200, dispatch.Unknown, 0},
		"unlisted in a 400":    {"unlisted.json", 400, dispatch.Rejected, dispatch.Message},
		"unlisted in a 409":    {"unlisted.json", 409, dispatch.Unknown, 0},
		"unlisted in a 503":    {"unlisted.json", 503, dispatch.Unknown, 0},
	} {
		t.Run(name, func(t *testing.T) {
			a, err := infrai.JudgeForTest(c.status, []byte(readFile(t, c.file)))
			_, v := dispatch.Judge(a, err)
			require.Equal(t, c.outcome, v.Outcome, v.Reason)
			require.Equal(t, c.scope, v.Scope)
			if err != nil {
				require.NotContains(t, err.Error(), "ada@example.com", "B162")
			}
		})
	}
	for body, want := range map[string]dispatch.Outcome{ // B002, B004, B005
		``: dispatch.Unknown, `{}`: dispatch.Unknown, `{"ok":null}`: dispatch.Unknown, `{"ok":"true"}`: dispatch.Unknown,
		`{"ok":true}`: dispatch.OK, `{"ok":true,"data":null}`: dispatch.OK, "\xef\xbb\xbf{\"ok\":true,\"data\":{\"message_id\":7}}": dispatch.OK,
		`{"ok":false,"error":{"code":402}}`: dispatch.Unknown, `{"ok":false}`: dispatch.Unknown,
	} {
		_, v := dispatch.Judge(infrai.JudgeForTest(200, []byte(body)))
		require.Equal(t, want, v.Outcome, body)
	}
}

// B061: an error that is replayed stays unknown, and the key stays.
func TestChangedBytes(t *testing.T) {
	f := newFake(t)
	p := open(t, config(f.URL))
	e := mailtest.Envelope()
	a, err := p.Send(t.Context(), e)
	require.NoError(t, err)
	e.Replay = a.Evidence.Request
	_, err = p.Send(t.Context(), e)
	require.NoError(t, err, "the same bytes are a replay")
	e.Content = portable()
	ev, v := dispatch.Judge(p.Send(t.Context(), e))
	require.Equal(t, dispatch.CauseChanged, ev.Cause)
	require.True(t, v.Hold)
	require.Equal(t, 2, f.Calls())
	require.Len(t, f.All(), 1)
}

func TestConfig(t *testing.T) {
	for field, change := range map[string]func(*infrai.Config){
		"Name":     func(c *infrai.Config) { c.Name = "In frai" },
		"APIKey":   func(c *infrai.Config) { c.APIKey = "" },
		"APIKey: ": func(c *infrai.Config) { c.APIKey = "hunter2\nX" }, // B034
		"BaseURL":  func(c *infrai.Config) { c.BaseURL = "http://hunter2.example" },
		"From":     func(c *infrai.Config) { c.From = "hunter2" },
		"Window":   func(c *infrai.Config) { c.Window = -1 },
		"Every":    func(c *infrai.Config) { c.Every = time.Millisecond },
		"Upstream": func(c *infrai.Config) { c.Upstream = "a b" },
		"Connect":  func(c *infrai.Config) { c.Exchange.Connect = -1 },
	} {
		cfg := config("https://api.example")
		change(&cfg)
		_, err := infrai.New(cfg)
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
	require.Equal(t, 15*time.Minute, c.Dedupe.Window)
	require.False(t, c.Dedupe.Confirmed, "the window is a guess on the safe side")
	require.False(t, c.Search.Available || c.Echo.Reference || c.RefusalProves)
	require.Greater(t, c.Dedupe.Window, 4*c.Timeout, "room for a re-send behind the margin")
}
