package httpapi_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/exchange"
	"github.com/seed-8098fbb7/dispatch/provider/httpapi"
	"github.com/seed-8098fbb7/dispatch/provider/providertest"
)

// pair is a vendor and a provider for it.
func pair(t *testing.T, o providertest.Options, cfg httpapi.Config) (*providertest.Vendor, *httpapi.Provider) {
	t.Helper()
	v, err := providertest.NewVendor(o)
	require.NoError(t, err)
	t.Cleanup(v.Close)
	cfg.BaseURL = v.URL
	if cfg.Name == "" {
		cfg.Name = "acme"
	}
	p, err := httpapi.New(cfg)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return v, p
}

func envelope() dispatch.Envelope {
	return dispatch.Envelope{
		Key: dispatch.NewKey(), Route: "sms", Attempt: 1, From: "Shop",
		Content: dispatch.SMS{To: "+15555550123", Body: "Your code is 482901"},
	}
}

// The story that the library is for: the answer is lost after the message was
// taken, and the repeat under the same key is no second message.
func TestLostAnswer(t *testing.T) {
	v, p := pair(t, providertest.Options{Dedupe: time.Hour, BindsBody: true, Fault: providertest.Script(
		providertest.Fault{Wire: providertest.Drop},
	)}, httpapi.Config{Window: time.Hour, LookupPath: "/v1/messages/{key}"})
	key := dispatch.NewKey()
	route := dispatch.Route{Name: "sms", Policy: dispatch.Policy{Backoff: dispatch.Backoff{Base: time.Millisecond, Cap: time.Millisecond}}}
	a, err := dispatch.Do(t.Context(), p, route, dispatch.Intent{
		Key: key, Content: dispatch.SMS{To: "+15555550123", Body: "hi"},
	})
	require.NoError(t, err)
	require.Equal(t, "msg-000001", a.ID)
	require.Equal(t, "queued", a.Status)
	require.Equal(t, 1, v.Deliveries(key.String()))
	calls := v.Calls(key.String())
	require.Len(t, calls, 2)
	require.Equal(t, calls[0].Body, calls[1].Body)
	f, err := p.Lookup(t.Context(), dispatch.Query{Key: key})
	require.NoError(t, err)
	require.Equal(t, dispatch.Found{Presence: dispatch.Present, ID: "msg-000001", Status: "sent"}, f)
}

// Success answers: what the status says stands, whatever the body does.
func TestAccepted(t *testing.T) {
	for name, c := range map[string]struct {
		cfg    httpapi.Config
		answer providertest.Fault
		want   dispatch.Accepted
		err    string
	}{
		"B002, null and numbers": {httpapi.Config{IDPath: "sid"}, providertest.Fault{
			Status: 201, Body: `{"sid":"SM1","price":null,"error_code":null,"code":null,"num_segments":1}`,
		}, dispatch.Accepted{ID: "SM1"}, ""},
		"B002, byte order mark": {httpapi.Config{}, providertest.Fault{Body: "\xef\xbb\xbf{\"id\":\"m-1\"}"}, dispatch.Accepted{ID: "m-1"}, ""},
		"B002, empty":           {httpapi.Config{}, providertest.Fault{Status: 204}, dispatch.Accepted{NoID: true}, ""},
		"a page":                {httpapi.Config{}, providertest.Fault{Body: "<html>"}, dispatch.Accepted{NoID: true}, ""},
		"a list":                {httpapi.Config{}, providertest.Fault{Body: `[{"id":"m-1"}]`}, dispatch.Accepted{NoID: true}, ""},
		"two documents":         {httpapi.Config{}, providertest.Fault{Body: `{"id":"m-1"}{"id":"m-2"}`}, dispatch.Accepted{NoID: true}, ""},
		"B152, every digit": {httpapi.Config{IDPath: "Messages.0.To.0.MessageID"}, providertest.Fault{
			Body: `{"Messages":[{"To":[{"MessageID":19421798915720714}]}]}`,
		}, dispatch.Accepted{ID: "19421798915720714"}, ""},
		"B152, beyond int64": {httpapi.Config{}, providertest.Fault{Body: `{"id":184467440737095516151}`}, dispatch.Accepted{ID: "184467440737095516151"}, ""},
		"an id that is none": {httpapi.Config{}, providertest.Fault{Body: `{"id":{"a":1}}`}, dispatch.Accepted{NoID: true}, ""},
		"an id with NUL":     {httpapi.Config{}, providertest.Fault{Body: `{"id":"a\u0000b"}`}, dispatch.Accepted{NoID: true}, ""},
		"an endless id":      {httpapi.Config{}, providertest.Fault{Body: `{"id":"` + strings.Repeat("x", 600) + `"}`}, dispatch.Accepted{NoID: true}, ""},
		"a path too deep":    {httpapi.Config{IDPath: "id.x.0"}, providertest.Fault{Body: `{"id":"a"}`}, dispatch.Accepted{NoID: true}, ""},
		"an index too high":  {httpapi.Config{IDPath: "m.7"}, providertest.Fault{Body: `{"m":[1]}`}, dispatch.Accepted{NoID: true}, ""},

		"the body decides": {httpapi.Config{BodyDecides: true}, providertest.Fault{Body: `{"status":"?"}`}, dispatch.Accepted{}, "unknown: no id in the answer"},
		"B006, a failure inside": {httpapi.Config{
			Codes: dispatch.Codes{"29": {Outcome: dispatch.Rejected, Scope: dispatch.Message, Reason: "not allowed"}},
		}, providertest.Fault{Status: 200, Body: `{"id":"m-1","code":29}`}, dispatch.Accepted{}, "rejected: not allowed, status 200, code 29"},
		"another 2xx": {httpapi.Config{Success: []int{202}}, providertest.Fault{Status: 200}, dispatch.Accepted{}, "unknown: success status is not a listed one, status 200"},
	} {
		t.Run(name, func(t *testing.T) {
			_, p := pair(t, providertest.Options{Fault: providertest.Script(c.answer)}, c.cfg)
			a, err := p.Send(t.Context(), envelope())
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want.ID, a.ID)
			require.Equal(t, c.want.NoID, a.NoID)
			_, v := dispatch.Judge(a, nil)
			require.Equal(t, dispatch.OK, v.Outcome)
		})
	}
}

// Refusals: the code wherever it lies, and the status where there is none.
func TestRefused(t *testing.T) {
	codes := dispatch.Codes{
		"21211": {Outcome: dispatch.Rejected, Scope: dispatch.Message, Reason: "invalid number"},
		"21212": {Outcome: dispatch.Rejected, Scope: dispatch.Sender, Reason: "invalid sender"},
		"20429": {Outcome: dispatch.Rejected, Scope: dispatch.Moment, Reason: "throttled"},
	}
	for name, c := range map[string]struct {
		status  int
		body    string
		code    string
		own     bool
		outcome dispatch.Outcome
		scope   dispatch.Scope
		key     dispatch.KeyFault
		hold    bool
	}{
		"B005, a number":    {400, `{"code":21211}`, "21211", true, dispatch.Rejected, dispatch.Message, 0, false},
		"B005, a string":    {400, `{"code":"21211"}`, "21211", true, dispatch.Rejected, dispatch.Message, 0, false},
		"B005, null":        {400, `{"code":null,"status":400}`, "", true, dispatch.Rejected, dispatch.Message, 0, false},
		"B005, elsewhere":   {400, `{"errors":[{"code":"21211"}]}`, "", false, dispatch.Rejected, dispatch.Message, 0, false},
		"nested":            {400, `{"error":{"code":20429,"message":"x"}}`, "20429", true, dispatch.Rejected, dispatch.Moment, 0, false},
		"B017, the sender":  {400, `{"code":21212}`, "21212", true, dispatch.Rejected, dispatch.Sender, 0, false},
		"an unlisted code":  {500, `{"code":"new"}`, "new", true, dispatch.Unknown, 0, 0, false},
		"B057, in flight":   {409, `{"name":"concurrent_idempotent_requests"}`, "concurrent_idempotent_requests", false, dispatch.Unknown, 0, dispatch.KeyInFlight, false},
		"B057, other body":  {409, `{"name":"invalid_idempotent_request"}`, "invalid_idempotent_request", false, dispatch.Unknown, 0, dispatch.KeyReused, true},
		"B057, 422":         {422, `{"code":"idempotency_key_reused"}`, "idempotency_key_reused", true, dispatch.Unknown, 0, dispatch.KeyReused, true},
		"B057, just a 409":  {409, `{}`, "", false, dispatch.Unknown, 0, 0, false},
		"422 without a key": {422, `{"code":"bad_number"}`, "bad_number", true, dispatch.Rejected, dispatch.Message, 0, false},
		"404, own":          {404, `{"error":"no such sender"}`, "", true, dispatch.Rejected, dispatch.Message, 0, false},
		"404, a page":       {404, `<html>`, "", false, dispatch.Rejected, dispatch.Account, 0, false},
		"null":              {400, `null`, "", false, dispatch.Rejected, dispatch.Message, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			_, p := pair(t, providertest.Options{Fault: providertest.Script(
				providertest.Fault{Refuse: true, Status: c.status, Body: c.body},
			)}, httpapi.Config{Window: time.Hour, Codes: codes})
			a, err := p.Send(t.Context(), envelope())
			e, v := dispatch.Judge(a, err)
			require.Equal(t, c.code, e.Code)
			require.Equal(t, c.own, e.OwnBody)
			require.Equal(t, c.outcome, v.Outcome)
			require.Equal(t, c.scope, v.Scope)
			require.Equal(t, c.key, e.Key)
			require.Equal(t, c.hold, v.Hold)
		})
	}
}

// B061: a vendor that replays a saved error stays unknown, and the key stays.
func TestReplayedError(t *testing.T) {
	v, p := pair(t, providertest.Options{Fault: func(providertest.Call) providertest.Fault {
		return providertest.Fault{Refuse: true, Status: 500, Header: http.Header{"Idempotent-Replayed": {"true"}}}
	}}, httpapi.Config{Window: time.Hour})
	e := envelope()
	for e.Attempt = 1; e.Attempt <= 3; e.Attempt++ {
		ev, verdict := dispatch.Judge(p.Send(t.Context(), e))
		require.Equal(t, dispatch.Unknown, verdict.Outcome)
		e.Replay = ev.Request
	}
	require.Equal(t, []string{e.Key.String()}, v.Keys())
}

// The key goes out where the contract dedupes or the caller says so, as a
// UUID of 36 characters (B062) in the form that is configured.
func TestKeyHeader(t *testing.T) {
	for want, cfg := range map[string]httpapi.Config{
		"map[]":                                   {},
		"map[Idempotency-Key:[KEY]]":              {Window: time.Hour},
		"map[Idempotency-Key:[\"KEY\"]]":          {Window: time.Hour, QuoteKey: true},
		"map[Idempotency-Key:[KEY] X-A:[b]]":      {SendKey: true, Header: http.Header{"x-a": {"b"}}},
		"map[Authorization:[Bearer t] X-K:[KEY]]": {SendKey: true, KeyHeader: "X-K", Token: " t\n"}, // B034
	} {
		v, p := pair(t, providertest.Options{}, cfg)
		e := envelope()
		_, err := p.Send(t.Context(), e)
		require.NoError(t, err)
		h := v.AllCalls()[0].Header
		for _, name := range []string{"Accept", "Content-Length", "Content-Type", "User-Agent"} {
			require.NotEmpty(t, h.Get(name))
			h.Del(name)
		}
		require.Equal(t, strings.ReplaceAll(want, "KEY", e.Key.String()), fmt.Sprint(map[string][]string(h)))
	}
}

// The default bodies, byte for byte: a change needs another encoding version.
func TestDefaultBody(t *testing.T) {
	v, p := pair(t, providertest.Options{}, httpapi.Config{})
	e := envelope()
	_, err := p.Send(t.Context(), e)
	require.NoError(t, err)
	e.Content = dispatch.Email{
		To: []dispatch.Address{{Name: `Ada "A", B`, Email: "a@example.com"}}, BCC: []dispatch.Address{{Email: "b@example.com"}},
		Subject: "Hi", Text: "<b>", Tags: []string{"x"},
	}
	_, err = p.Send(t.Context(), e)
	require.NoError(t, err)
	calls := v.AllCalls()
	require.Equal(t, `{"to":"+15555550123","from":"Shop","body":"Your code is 482901"}`, string(calls[0].Body))
	require.Equal(t, `{"from":"Shop","to":["\"Ada \\\"A\\\", B\" \u003ca@example.com\u003e"],"bcc":["b@example.com"],"subject":"Hi","text":"\u003cb\u003e","tags":["x"]}`, string(calls[1].Body))

	e.Content = dispatch.Email{To: []dispatch.Address{{Email: "a@example.com"}}, Attachments: []dispatch.Attachment{{Name: "a"}}}
	ev, verdict := dispatch.Judge(p.Send(t.Context(), e))
	require.Equal(t, dispatch.NotSent, ev.Stage)
	require.Equal(t, dispatch.Account, verdict.Scope)
	require.Len(t, v.AllCalls(), 2)
}

func TestConfig(t *testing.T) {
	for field, change := range map[string]func(*httpapi.Config){
		"Name":          func(c *httpapi.Config) { c.Name = "Ac me" },
		"BaseURL":       func(c *httpapi.Config) { c.BaseURL = "http://api.example" },
		"Path":          func(c *httpapi.Config) { c.Path = "v1" },
		"Token":         func(c *httpapi.Config) { c.Token = "hunter2\nX: y" }, // B034
		"Header":        func(c *httpapi.Config) { c.Header = http.Header{"X": {"hunter2\r\n"}} },
		"KeyHeader":     func(c *httpapi.Config) { c.KeyHeader = "Idem potency" },
		"Encoding":      func(c *httpapi.Config) { c.Encoding = -1 },
		"Window":        func(c *httpapi.Config) { c.Window = -1 },
		"BindsBody":     func(c *httpapi.Config) { c.BindsBody = true },
		"RefusalProves": func(c *httpapi.Config) { c.RefusalProves = true },
		"Success":       func(c *httpapi.Config) { c.Success = []int{302} },
		"LookupPath":    func(c *httpapi.Config) { c.LookupPath = "/v1/messages" },
		"Lag":           func(c *httpapi.Config) { c.Lag = time.Second },
		"Connect":       func(c *httpapi.Config) { c.Exchange = exchange.Config{Connect: -1} },
	} {
		cfg := httpapi.Config{Name: "acme", BaseURL: "https://api.example"}
		change(&cfg)
		_, err := httpapi.New(cfg)
		require.ErrorContains(t, err, field)
		require.NotContains(t, err.Error(), "hunter2")
	}
}

// B162: tokens stay out of what is printed, logged and encoded.
func TestRedaction(t *testing.T) {
	cfg := httpapi.Config{Name: "acme", Account: "a-1", BaseURL: "https://api.example", Token: "hunter2", Header: http.Header{"X-Key": {"hunter2"}}}
	p, err := httpapi.New(cfg)
	require.NoError(t, err)
	var log strings.Builder
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "cfg", cfg, "provider", p)
	var v any = cfg
	encoded, err := json.Marshal(v)
	require.NoError(t, err)
	for _, s := range []string{
		log.String(), string(encoded), fmt.Sprintf("%v %+v %#v %s %q", cfg, cfg, cfg, cfg, cfg), fmt.Sprintf("%v %+v %#v %s", p, p, p, p), fmt.Sprint(&cfg),
	} {
		require.NotContains(t, s, "hunter2")
		require.Contains(t, s, "acme")
	}
}

func TestContract(t *testing.T) {
	_, p := pair(t, providertest.Options{}, httpapi.Config{Name: "acme", Window: time.Hour, RefusalProves: true, LookupPath: "/v1/messages/{key}", Lag: time.Minute})
	c := p.Contract()
	require.Equal(t, "acme", c.Account)
	require.Equal(t, int16(1), c.Encoding)
	require.Equal(t, 35*time.Second, c.Timeout)
	require.Equal(t, time.Hour, c.Dedupe.Window)
	require.True(t, c.RefusalProves)
	require.Equal(t, dispatch.Search{Available: true, Lag: time.Minute, Source: "configuration"}, c.Search)
	_, p = pair(t, providertest.Options{}, httpapi.Config{Name: "acme"})
	require.Equal(t, dispatch.Contract{Name: "acme", Account: "acme", Encoding: 1, Timeout: 35 * time.Second}, p.Contract())
}
