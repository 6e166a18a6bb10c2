package sinch_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/providertest"
	"github.com/seed-8098fbb7/dispatch/provider/sinch"
)

func config() sinch.Config {
	return sinch.Config{ServicePlanID: planID, APIToken: token, WebhookSecret: secret}
}

func open(t *testing.T, cfg sinch.Config) *sinch.Provider {
	t.Helper()
	p, err := sinch.New(cfg)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}

func envelope() dispatch.Envelope {
	return dispatch.Envelope{
		Key: dispatch.NewKey(), Route: "sms", Attempt: 1, From: "+15555550100",
		Content: dispatch.SMS{To: "+15555550123", Body: "Your code is 482901"},
	}
}

func recorded(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name)
	require.NoError(t, err)
	return strings.TrimSpace(string(b))
}

// The suite, in Sinch's wire format. The id is the verdict: without it a 2xx
// is unknown.
func TestSuite(t *testing.T) {
	s := providertest.Suite{
		New: func(baseURL string) (dispatch.Provider, error) {
			cfg := config()
			cfg.BaseURL = baseURL
			return sinch.New(cfg)
		},
		Options: providertest.Options{
			Key: func(_ *http.Request, body []byte) string {
				var m struct {
					Ref string `json:"client_reference"`
				}
				_ = json.Unmarshal(body, &m) // no reference: no key
				return m.Ref
			},
			Shape: providertest.Shape{
				Accepted: func(id string, _ bool) providertest.Answer {
					return providertest.JSON(http.StatusCreated, map[string]any{"id": id, "canceled": false, "type": "mt_text"})
				},
				Refused: func(r providertest.Refusal) providertest.Answer {
					return providertest.JSON(r.Status, map[string]string{"code": r.Code, "text": r.Message})
				},
				LookupKey: func(r *http.Request) string {
					if r.Method != http.MethodGet {
						return ""
					}
					return r.URL.Query().Get("client_reference")
				},
				Missing: func() providertest.Answer {
					return providertest.Answer{Status: http.StatusOK, Body: []byte(recorded(t, "list_empty.json"))}
				},
			},
		},
		Secrets: []string{token, secret},
		Want:    map[string]providertest.Want{},
	}
	keys := make(chan string, 1)
	byRequest := s.Options.Shape.LookupKey
	s.Options.Shape.LookupKey = func(r *http.Request) string {
		key := byRequest(r)
		if key != "" {
			select {
			case <-keys:
			default:
			}
			keys <- key
		}
		return key
	}
	s.Options.Shape.Found = func(id string) providertest.Answer {
		return providertest.JSON(http.StatusOK, map[string]any{"count": 1, "batches": []any{map[string]any{"id": id, "client_reference": <-keys}}})
	}
	for _, name := range []string{
		"body cut after acceptance", "body stalls after acceptance", "endless body after acceptance", "unreadable body after acceptance",
	} {
		s.Want[name] = providertest.Want{Stage: dispatch.Answered}
	}
	providertest.Run(t, s)
}

func TestSend(t *testing.T) {
	f := newFake(t)
	cfg := config()
	cfg.BaseURL, cfg.CallbackURL = f.URL, "https://shop.example/hooks"
	p, e := open(t, cfg), envelope()
	require.NoError(t, sinch.Check(e.Content))
	a, err := p.Send(t.Context(), e)
	require.NoError(t, err)
	m := f.messagesTaken()[0]
	require.Equal(t, m.ID, a.ID)
	require.Equal(t, sent{
		Ref: e.Key.String(), To: "15555550123", From: "15555550100", Text: "Your code is 482901", Report: "per_recipient",
		Callback: "https://shop.example/hooks", ID: m.ID, At: m.At,
	}, m)

	cfg.APIToken = "wrong"
	_, v := dispatch.Judge(open(t, cfg).Send(t.Context(), e))
	require.Equal(t, dispatch.Account, v.Scope)

	for _, c := range []dispatch.Content{dispatch.SMS{To: "+15555550123", Body: "you owe ${amount}"}, dispatch.Email{}} {
		require.Error(t, sinch.Check(c))
		e.Content = c
		ev, v := dispatch.Judge(p.Send(t.Context(), e))
		require.Equal(t, dispatch.NotSent, ev.Stage)
		require.Equal(t, dispatch.Rejected, v.Outcome)
	}
	require.Len(t, f.messagesTaken(), 1)
}

// The request, byte for byte: a change needs another encoding version.
func TestRequestBytes(t *testing.T) {
	v, err := providertest.NewVendor(providertest.Options{})
	require.NoError(t, err)
	t.Cleanup(v.Close)
	cfg := config()
	cfg.BaseURL, cfg.From = v.URL, "Shop"
	e := envelope()
	e.From = ""
	e.Key, err = dispatch.ParseKey("01920000-0000-7000-8000-000000000001")
	require.NoError(t, err)
	_, _ = open(t, cfg).Send(t.Context(), e) // the answer is another vendor's
	c := v.AllCalls()[0]
	require.Equal(t, `{"to":["15555550123"],"from":"Shop","type":"mt_text","body":"Your code is 482901","delivery_report":"per_recipient","client_reference":"01920000-0000-7000-8000-000000000001"}`, string(c.Body))
	require.Equal(t, "/xms/v1/"+planID+"/batches", c.Path)
}

func TestAnswers(t *testing.T) {
	code := func(c string) string { return `{"code":"` + c + `","text":"x"}` }
	for name, c := range map[string]struct {
		status  int
		body    string
		id      string
		code    string
		outcome dispatch.Outcome
		scope   dispatch.Scope
	}{
		"accepted":         {201, recorded(t, "accepted.json"), "01JHFFHQ0P99JPPNQPJDV7JTBP", "", dispatch.OK, 0},
		"B152, digits":     {201, `{"id":19421798915720714}`, "19421798915720714", "", dispatch.OK, 0},
		"B002, with a BOM": {201, "\xef\xbb\xbf{\"id\":\"a\"}", "a", "", dispatch.OK, 0},
		"B002, empty":      {201, " ", "", "", dispatch.Unknown, 0},
		"a page":           {200, "<html>", "", "", dispatch.Unknown, 0},
		"a failure inside": {201, recorded(t, "invalid.json"), "", "syntax_invalid_parameter_format", dispatch.Unknown, 0}, // B015
		"both":             {201, `{"id":"a","code":"x","text":"y"}`, "", "x", dispatch.Unknown, 0},
		"invalid":          {400, recorded(t, "invalid.json"), "", "syntax_invalid_parameter_format", dispatch.Rejected, dispatch.Message},
		"our JSON":         {400, code("syntax_invalid_json"), "", "syntax_invalid_json", dispatch.Rejected, dispatch.Account},
		"B005, a number":   {400, `{"code":17,"text":"x"}`, "", "17", dispatch.Rejected, dispatch.Message},
		"B005, null":       {400, `{"code":null}`, "", "", dispatch.Rejected, dispatch.Message},
		"no callback":      {403, code("missing_callback_url"), "", "missing_callback_url", dispatch.Rejected, dispatch.Account},
		"unlisted 403":     {403, code("new"), "", "new", dispatch.Rejected, dispatch.Account},
		"no funds":         {402, "{}", "", "", dispatch.Rejected, dispatch.Account},
		"B016, no 429":     {400, code("too-many-requests"), "", "too-many-requests", dispatch.Rejected, dispatch.Moment},
		"conflict":         {409, code("conflict_send_at"), "", "conflict_send_at", dispatch.Unknown, 0},
		"internal":         {500, code("internal"), "", "internal", dispatch.Unknown, 0},
		"wrong plan":       {404, "<html>", "", "", dispatch.Rejected, dispatch.Account},
	} {
		t.Run(name, func(t *testing.T) {
			v, err := providertest.NewVendor(providertest.Options{Fault: providertest.Script(providertest.Fault{Status: c.status, Body: c.body})})
			require.NoError(t, err)
			t.Cleanup(v.Close)
			cfg := config()
			cfg.BaseURL = v.URL
			a, err := open(t, cfg).Send(t.Context(), envelope())
			e, verdict := dispatch.Judge(a, err)
			require.Equal(t, c.id, a.ID)
			require.Equal(t, c.code, e.Code)
			require.Equal(t, c.outcome, verdict.Outcome, verdict.Reason)
			require.Equal(t, c.scope, verdict.Scope)
			if err != nil {
				require.NotContains(t, err.Error(), "15555550123")
			}
		})
	}
}

func TestLookup(t *testing.T) {
	f := newFake(t)
	cfg := config()
	cfg.BaseURL = f.URL
	p := open(t, cfg)
	twin, e := envelope(), envelope()
	ask := func(since time.Duration) dispatch.Presence {
		now := time.Now()
		found, err := p.Lookup(t.Context(), dispatch.Query{Key: e.Key, Content: e.Content, Since: now.Add(-since), Until: now})
		require.NoError(t, err)
		return found.Presence
	}
	_, err := p.Send(t.Context(), twin)
	require.NoError(t, err)
	require.Equal(t, dispatch.Absent, ask(time.Minute), "the same text to the same number under another key")
	require.Equal(t, dispatch.Absent, ask(30*time.Hour), "its start is named, else a day is shown")
	require.Equal(t, dispatch.Unclear, ask(14*24*time.Hour), "batches are listed for 14 days")
	f.Unfilt = true
	require.Equal(t, dispatch.Unclear, ask(time.Minute), "the filter did nothing")
	_, err = p.Send(t.Context(), e)
	require.NoError(t, err)
	require.Equal(t, dispatch.Present, ask(time.Minute))
	f.Unfilt, f.Age = false, 25*time.Hour
	require.Equal(t, dispatch.Present, ask(25*time.Hour), "an older one")
	require.Equal(t, dispatch.Absent, ask(time.Minute), "before the time that counts")
	f.Age, f.Lag = 0, time.Hour
	require.Equal(t, dispatch.Absent, ask(time.Minute), "what Sinch says; the lag is for the caller to know")
}

func TestConfig(t *testing.T) {
	for field, change := range map[string]func(*sinch.Config){
		"Name":          func(c *sinch.Config) { c.Name = "Si nch" },
		"ServicePlanID": func(c *sinch.Config) { c.ServicePlanID = "a/b" },
		"APIToken":      func(c *sinch.Config) { c.APIToken = "" },
		"APIToken: ":    func(c *sinch.Config) { c.APIToken = "hunter2\nX" }, // B034
		"Region":        func(c *sinch.Config) { c.Region = "evil.example/" },
		"BaseURL":       func(c *sinch.Config) { c.BaseURL = "http://hunter2.example" },
		"CallbackURL":   func(c *sinch.Config) { c.CallbackURL = "hunter2" },
		"Replay":        func(c *sinch.Config) { c.Replay = 1 },
		"Lag":           func(c *sinch.Config) { c.Lag = -1 },
		"Connect":       func(c *sinch.Config) { c.Exchange.Connect = -1 },
	} {
		cfg := config()
		change(&cfg)
		_, err := sinch.New(cfg)
		require.ErrorContains(t, err, field)
		require.NotContains(t, err.Error(), "hunter2")
	}
	c := open(t, config()).Contract()
	require.NoError(t, c.Validate())
	require.Equal(t, planID, c.Account)
	require.Zero(t, c.Dedupe.Window)
	require.True(t, c.Search.Available)
	require.Equal(t, 15*time.Minute, c.Search.Lag)
	require.True(t, c.Echo.Reference)
	cfg := config()
	cfg.WebhookSecret = ""
	require.False(t, open(t, cfg).Contract().Echo.Reference)
}

// B162: secrets stay out of what is printed, logged and encoded.
func TestRedaction(t *testing.T) {
	cfg := config()
	p := open(t, cfg)
	var log strings.Builder
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "cfg", cfg, "provider", p)
	var v any = cfg
	encoded, err := json.Marshal(v)
	require.NoError(t, err)
	for _, s := range []string{log.String(), string(encoded), fmt.Sprintf("%v %+v %#v %s %q %x", cfg, cfg, cfg, cfg, cfg, cfg), fmt.Sprintf("%v %+v %#v %s", p, p, p, p), fmt.Sprint(&cfg, []any{cfg})} {
		require.NotContains(t, s, "hunter2")
		require.NotContains(t, s, fmt.Sprintf("%x", "hunter2"))
		require.Contains(t, s, planID)
	}
}
