package infobip_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/infobip"
	"github.com/seed-8098fbb7/dispatch/provider/providertest"
)

func config() infobip.Config { return infobip.Config{APIKey: apiKey, WebhookSecret: secret} }

func open(t *testing.T, cfg infobip.Config) *infobip.Provider {
	t.Helper()
	p, err := infobip.New(cfg)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}

func envelope() dispatch.Envelope {
	return dispatch.Envelope{
		Key: dispatch.NewKey(), Route: "sms", Attempt: 1, From: "Shop",
		Content: dispatch.SMS{To: "+15555550123", Body: "Your code is 482901"},
	}
}

func recorded(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name)
	require.NoError(t, err)
	return strings.TrimSpace(string(b))
}

// ids remembers the message ids of requests, the latest on top: the suite's
// vendor names its own, and Infobip answers with the client's.
type ids struct {
	mu  sync.Mutex
	all []string
}

func (s *ids) push(id string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id != "" {
		s.all = append(s.all, id)
	}
	return id
}

func (s *ids) pop() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.all) == 0 {
		return ""
	}
	id := s.all[len(s.all)-1]
	s.all = s.all[:len(s.all)-1]
	return id
}

func shape(sent, asked *ids) providertest.Shape {
	return providertest.Shape{
		Accepted: func(string, bool) providertest.Answer {
			return providertest.JSON(http.StatusOK, map[string]any{"messages": []any{map[string]any{
				"messageId": sent.pop(), "status": statusOf(1, 26, "PENDING_ACCEPTED"),
			}}})
		},
		Refused: func(r providertest.Refusal) providertest.Answer {
			if r.Status != http.StatusBadRequest {
				return providertest.JSON(r.Status, map[string]any{"errorCode": "E" + strconv.Itoa(r.Status), "description": r.Message})
			}
			return providertest.JSON(http.StatusOK, map[string]any{"messages": []any{map[string]any{
				"messageId": sent.pop(), "status": statusOf(5, 52, "REJECTED_DESTINATION"),
			}}})
		},
		LookupKey: func(r *http.Request) string {
			if r.Method != http.MethodGet {
				return ""
			}
			return asked.push(r.URL.Query().Get("messageId"))
		},
		Found: func(string) providertest.Answer {
			return providertest.JSON(http.StatusOK, map[string]any{"results": []any{map[string]any{
				"messageId": asked.pop(), "status": statusOf(1, 7, "PENDING_ENROUTE"),
			}}})
		},
		Missing: func() providertest.Answer {
			return providertest.Answer{Status: http.StatusOK, Body: []byte(`{"results":[]}`)}
		},
	}
}

// The suite, in Infobip's wire format, with and without idempotency. The
// verdict is in the body: without one a 2xx is unknown.
func TestSuite(t *testing.T) {
	for name, window := range map[string]time.Duration{"plain": 0, "idempotent": time.Hour} {
		t.Run(name, func(t *testing.T) {
			sent, asked := &ids{}, &ids{}
			s := providertest.Suite{
				New: func(baseURL string) (dispatch.Provider, error) {
					cfg := config()
					cfg.BaseURL, cfg.Idempotency = baseURL, window
					return infobip.New(cfg)
				},
				Options: providertest.Options{
					Key: func(_ *http.Request, body []byte) string {
						var m struct {
							Messages []struct {
								Destinations []struct {
									ID string `json:"messageId"`
								} `json:"destinations"`
							} `json:"messages"`
						}
						if json.Unmarshal(body, &m) != nil || len(m.Messages) == 0 {
							return ""
						}
						return sent.push(m.Messages[0].Destinations[0].ID)
					},
					Shape: shape(sent, asked),
				},
				Secrets: []string{apiKey, secret},
				Want:    map[string]providertest.Want{},
			}
			for _, name := range []string{
				"body cut after acceptance", "body stalls after acceptance", "endless body after acceptance", "unreadable body after acceptance",
			} {
				s.Want[name] = providertest.Want{Stage: dispatch.Answered}
			}
			providertest.Run(t, s)
		})
	}
}

func TestSend(t *testing.T) {
	f := newFake(t)
	cfg := config()
	cfg.BaseURL, cfg.CallbackURL = f.URL, "https://shop.example/hooks?x=1"
	p, e := open(t, cfg), envelope()
	a, err := p.Send(t.Context(), e)
	require.NoError(t, err)
	require.Equal(t, e.Key.String(), a.ID, "the id is ours")
	require.Equal(t, "PENDING_ACCEPTED", a.Status)
	m := f.messagesTaken()[0]
	require.Equal(t, sent{
		ID: e.Key.String(), To: "15555550123", From: "Shop", Text: "Your code is 482901", Hook: "https://shop.example/hooks?token=" + secret + "&x=1", At: m.At,
	}, m)
	cfg.APIKey = "wrong"
	ev, v := dispatch.Judge(open(t, cfg).Send(t.Context(), e))
	require.Equal(t, dispatch.Account, v.Scope)
	require.Equal(t, "UNAUTHORIZED", ev.Code)
	e.Content = dispatch.Email{}
	ev, v = dispatch.Judge(p.Send(t.Context(), e))
	require.Equal(t, dispatch.NotSent, ev.Stage)
	require.Equal(t, dispatch.Rejected, v.Outcome)
}

// The request, byte for byte: a change needs another encoding version.
func TestRequestBytes(t *testing.T) {
	key, err := dispatch.ParseKey("01920000-0000-7000-8000-000000000001")
	require.NoError(t, err)
	for want, change := range map[string]func(*infobip.Config){
		`{"messages":[{"sender":"15555550100","destinations":[{"to":"15555550123","messageId":"01920000-0000-7000-8000-000000000001"}],"content":{"text":"Your code is 482901"}}],"options":{"tracking":{"shortenUrl":false}}}`: func(*infobip.Config) {},
		`{"messages":[{"sender":"15555550100","destinations":[{"to":"15555550123","messageId":"01920000-0000-7000-8000-000000000001"}],"content":{"text":"Your code is 482901"},"options":{"validityPeriod":{"amount":10,"timeUnit":"MINUTES"}},"webhooks":{"delivery":{"url":"https://shop.example/hooks?token=hunter2-webhook-secret","intermediateReport":true},"contentType":"application/json"}}],"options":{"tracking":{"shortenUrl":false}}}`: func(c *infobip.Config) {
			c.CallbackURL, c.ValidFor = "https://shop.example/hooks", 10*time.Minute
		},
	} {
		v, err := providertest.NewVendor(providertest.Options{})
		require.NoError(t, err)
		t.Cleanup(v.Close)
		cfg := config()
		cfg.BaseURL, cfg.From = v.URL, "+15555550100"
		change(&cfg)
		e := envelope()
		e.Key, e.From = key, ""
		_, _ = open(t, cfg).Send(t.Context(), e) // the answer is another vendor's
		require.Equal(t, want, string(v.AllCalls()[0].Body))
	}
}

// B006, B009: the verdict is the message's status inside a 200.
func TestAnswers(t *testing.T) {
	one := func(group, id string) string {
		return `{"messages":[{"messageId":"a","status":{"groupId":` + group + `,"id":` + id + `,"name":"N"}}]}`
	}
	for name, c := range map[string]struct {
		status  int
		body    string
		id      string
		code    string
		outcome dispatch.Outcome
		scope   dispatch.Scope
	}{
		"accepted":         {200, recorded(t, "accepted.json"), "01920000-0000-7000-8000-000000000001", "", dispatch.OK, 0},
		"enroute":          {200, one("1", "7"), "a", "", dispatch.OK, 0},
		"B005, as text":    {200, one(`"1"`, `"26"`), "a", "", dispatch.OK, 0},
		"delivered":        {200, one("3", "5"), "a", "", dispatch.OK, 0},
		"B002, BOM":        {200, "\xef\xbb\xbf" + one("1", "7"), "a", "", dispatch.OK, 0},
		"rejected":         {200, recorded(t, "rejected.json"), "", "52", dispatch.Rejected, dispatch.Message},
		"B005, code text":  {200, one("5", `"52"`), "", "52", dispatch.Rejected, dispatch.Message},
		"no credit":        {200, one("5", "12"), "", "12", dispatch.Rejected, dispatch.Account},
		"sender":           {200, one("5", "11"), "", "11", dispatch.Rejected, dispatch.Sender}, // B017
		"no coverage":      {200, one("5", "6"), "", "6", dispatch.Rejected, dispatch.Sender},
		"flooding":         {200, one("5", "20"), "", "20", dispatch.Rejected, dispatch.Moment}, // B016
		"system error":     {200, one("5", "21"), "", "21", dispatch.Unknown, 0},
		"duplicate":        {200, one("5", "23"), "", "23", dispatch.Unknown, 0},
		"B015, unlisted":   {200, one("5", "4711"), "", "4711", dispatch.Unknown, 0},
		"rejected, no id":  {200, one("5", "null"), "", "", dispatch.Unknown, 0},
		"another group":    {200, one("2", "4"), "", "4", dispatch.Unknown, 0},
		"no group":         {200, one("null", "26"), "", "26", dispatch.Unknown, 0},
		"no message":       {200, `{"messages":[]}`, "", "", dispatch.Unknown, 0},
		"two messages":     {200, `{"messages":[{"status":{"groupId":1}},{"status":{"groupId":5}}]}`, "", "", dispatch.Unknown, 0},
		"no status":        {200, `{"messages":[{"messageId":"a"}]}`, "", "", dispatch.Unknown, 0},
		"a page":           {200, "<html>", "", "", dispatch.Unknown, 0},
		"B002, empty":      {200, " ", "", "", dispatch.Unknown, 0},
		"invalid":          {400, recorded(t, "error_v3.json"), "", "E400", dispatch.Rejected, dispatch.Message},
		"older form":       {401, recorded(t, "error_old.json"), "", "UNAUTHORIZED", dispatch.Rejected, dispatch.Account},
		"accepted by 500":  {500, recorded(t, "accepted.json"), "", "", dispatch.Unknown, 0},
		"too many":         {429, `{"errorCode":"E429"}`, "", "E429", dispatch.Rejected, dispatch.Moment},
		"someone's 404":    {404, "<html>", "", "", dispatch.Rejected, dispatch.Account},
		"B005, error null": {400, `{"errorCode":null,"requestError":null}`, "", "", dispatch.Rejected, dispatch.Message},
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

func TestConfig(t *testing.T) {
	for field, change := range map[string]func(*infobip.Config){
		"Name":          func(c *infobip.Config) { c.Name = "Info bip" },
		"APIKey":        func(c *infobip.Config) { c.APIKey = " " },
		"APIKey: ":      func(c *infobip.Config) { c.APIKey = "hunter2\nX" }, // B034
		"Account":       func(c *infobip.Config) { c.Account = strings.Repeat("x", 201) },
		"BaseURL":       func(c *infobip.Config) { c.BaseURL = "http://hunter2.example" },
		"CallbackURL":   func(c *infobip.Config) { c.CallbackURL = "hunter2" },
		"WebhookSecret": func(c *infobip.Config) { c.WebhookSecret = "hunter2" },
		"Idempotency":   func(c *infobip.Config) { c.Idempotency = -1 },
		"Lag":           func(c *infobip.Config) { c.Lag = -1 },
		"ValidFor":      func(c *infobip.Config) { c.ValidFor = 90 * time.Second },
		"Connect":       func(c *infobip.Config) { c.Exchange.Connect = -1 },
	} {
		cfg := config()
		change(&cfg)
		_, err := infobip.New(cfg)
		require.ErrorContains(t, err, field)
		require.NotContains(t, err.Error(), "hunter2")
	}
	cfg := config()
	cfg.BaseURL = "https://xxxxx.api.infobip.com/"
	c := open(t, cfg).Contract()
	require.NoError(t, c.Validate())
	require.Equal(t, "xxxxx.api.infobip.com", c.Account)
	require.Zero(t, c.Dedupe.Window, "off unless Infobip switched it on")
	require.True(t, c.Search.Available)
	require.Equal(t, 15*time.Minute, c.Search.Lag)
	require.True(t, c.Echo.Reference)
	cfg.Idempotency, cfg.WebhookSecret = time.Hour, ""
	c = open(t, cfg).Contract()
	require.Equal(t, time.Hour, c.Dedupe.Window)
	require.False(t, c.Echo.Reference)
}

// B162: secrets stay out of what is printed, logged and encoded.
func TestRedaction(t *testing.T) {
	cfg := config()
	cfg.Account = "acc"
	p := open(t, cfg)
	var log strings.Builder
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "cfg", cfg, "provider", p)
	var v any = cfg
	encoded, err := json.Marshal(v)
	require.NoError(t, err)
	for _, s := range []string{log.String(), string(encoded), fmt.Sprintf("%v %+v %#v %s %q %x", cfg, cfg, cfg, cfg, cfg, cfg), fmt.Sprintf("%v %+v %#v %s", p, p, p, p), fmt.Sprint(&cfg, []any{cfg})} {
		require.NotContains(t, s, "hunter2")
		require.NotContains(t, s, fmt.Sprintf("%x", "hunter2"))
		require.Contains(t, s, "acc")
	}
}
