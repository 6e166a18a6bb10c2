package twilio_test

import (
	"bytes"
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
	"github.com/seed-8098fbb7/dispatch/provider/twilio"
)

func TestConfig(t *testing.T) {
	for want, change := range map[string]func(*twilio.Config){
		"Name":                 func(c *twilio.Config) { c.Name = "Twi lio" },
		"AccountSID":           func(c *twilio.Config) { c.AccountSID = "AC1" },
		"AuthToken is empty":   func(c *twilio.Config) { c.AuthToken = " \n" },
		"AuthToken has":        func(c *twilio.Config) { c.AuthToken = "hunter2\r\nX: y" },
		"APISecret has":        func(c *twilio.Config) { c.APIKey, c.APISecret = apiKey, "hunter2 x" },
		"APIKey and APISecret": func(c *twilio.Config) { c.APISecret = "hunter2" },
		"APIKey is not":        func(c *twilio.Config) { c.APIKey, c.APISecret = accountSID, "hunter2" },
		"From":                 func(c *twilio.Config) { c.From = "My-Shop!" },
		"Region":               func(c *twilio.Config) { c.Region = "evil.example/" },
		"Edge":                 func(c *twilio.Config) { c.Edge = "evil.example#" },
		"both set":             func(c *twilio.Config) { c.Region, c.BaseURL = "ie1", "https://h.example" },
		"BaseURL: ":            func(c *twilio.Config) { c.BaseURL = "http://h.example" },
		"BaseURL has more":     func(c *twilio.Config) { c.BaseURL = "https://h.example/x" },
		"Lag":                  func(c *twilio.Config) { c.Lag = -1 },
		"Grace":                func(c *twilio.Config) { c.Grace = 241 * time.Hour },
		"StatusCallback: ":     func(c *twilio.Config) { c.StatusCallback = "http://h.example/cb" },
		"has credentials":      func(c *twilio.Config) { c.StatusCallback = "https://a:hunter2@h.example/cb" },
		"underscore":           func(c *twilio.Config) { c.StatusCallback = "https://my_host.example/cb" },
		"ours to add":          func(c *twilio.Config) { c.StatusCallback = "https://h.example/cb?dispatch_key=1" },
		"Twilio's to add":      func(c *twilio.Config) { c.StatusCallback = "https://h.example/cb?bodySHA256=1" },
		"query can't":          func(c *twilio.Config) { c.StatusCallback = "https://h.example/cb?a;b" },
		"3,900":                func(c *twilio.Config) { c.StatusCallback = "https://h.example/" + strings.Repeat("x", 3900) },
		"it signs the callbacks": func(c *twilio.Config) {
			c.AuthToken, c.APIKey, c.APISecret, c.StatusCallback = "", apiKey, "hunter2", "https://h.example"
		},
		"twilio: exchange: Connect": func(c *twilio.Config) { c.Exchange = exchange.Config{Connect: -1} },
	} {
		cfg := twilio.Config{AccountSID: accountSID, AuthToken: "hunter2"}
		change(&cfg)
		_, err := twilio.New(cfg)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "hunter2")
	}
	_, err := twilio.New(twilio.Config{AccountSID: accountSID, APIKey: apiKey, APISecret: "hunter2"})
	require.NoError(t, err, "an API key needs no token")
}

// B162: no secret comes out of what is printed, logged and encoded.
func TestRedaction(t *testing.T) {
	cfg := twilio.Config{AccountSID: accountSID, AuthToken: "hunter2", APIKey: apiKey, APISecret: "hunter2", From: "Shop", Region: "ie1", Edge: "dublin"}
	p, err := twilio.New(cfg)
	require.NoError(t, err)
	var b bytes.Buffer
	slog.New(slog.NewJSONHandler(&b, nil)).Info("x", "cfg", cfg, "provider", p)
	slog.New(slog.NewTextHandler(&b, nil)).Info("x", "cfg", &cfg, "provider", p)
	for _, v := range []any{cfg, &cfg, p, []any{cfg, p}, struct{ In any }{cfg}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x"} {
			fmt.Fprintf(&b, verb+"\n", v)
		}
		encoded, err := json.Marshal(v)
		require.NoError(t, err)
		b.Write(encoded)
	}
	require.NotContains(t, b.String(), "hunter2")
	require.NotContains(t, b.String(), fmt.Sprintf("%x", "hunter2"))
	require.Contains(t, b.String(), accountSID)
}

func TestContract(t *testing.T) {
	p, err := twilio.New(twilio.Config{AccountSID: accountSID, AuthToken: "t"})
	require.NoError(t, err)
	c := p.Contract()
	require.NoError(t, c.Validate())
	require.Equal(t, "twilio", c.Name)
	require.Equal(t, accountSID, c.Account)
	require.Equal(t, int16(1), c.Encoding)
	require.Equal(t, 35*time.Second, c.Timeout)
	require.Zero(t, c.Dedupe.Window, "Twilio doesn't dedupe")
	require.False(t, c.RefusalProves)
	require.True(t, c.Search.Available)
	require.Equal(t, 2*time.Minute, c.Search.Lag)
	require.Zero(t, c.Echo, "no callback, no receipts")
	for _, s := range []string{c.Dedupe.Source, c.Search.Source} {
		require.NotEmpty(t, s)
	}

	p, err = twilio.New(twilio.Config{
		Name: "twilio-ie", AccountSID: accountSID, AuthToken: "t", Region: "ie1", Edge: "dublin",
		StatusCallback: "https://h.example.com", Lag: time.Minute, Grace: time.Hour,
	})
	require.NoError(t, err)
	c = p.Contract()
	require.Equal(t, "twilio-ie", c.Name)
	require.Equal(t, accountSID+"@ie1", c.Account, "the messages of a region are not seen from another")
	require.True(t, c.Echo.Reference)
	require.Equal(t, time.Hour, c.Echo.Grace)
	require.NotEmpty(t, c.Echo.Source)
	require.Equal(t, time.Minute, c.Search.Lag)
}

// Hosts of regions and edges, and an API key instead of the token.
func TestHostAndCredentials(t *testing.T) {
	for want, cfg := range map[string]twilio.Config{
		"api.twilio.com:443":             {},
		"api.dublin.ie1.twilio.com:443":  {Region: "ie1", Edge: "dublin"},
		"api.ashburn.us1.twilio.com:443": {Edge: "ashburn"},
		"api.au1.twilio.com:443":         {Region: "au1"},
		"relay.example.com:8443":         {BaseURL: "https://relay.example.com:8443/"},
	} {
		var dialed string
		cfg.AccountSID, cfg.AuthToken, cfg.From = accountSID, "t", "Shop"
		cfg.Exchange = exchange.Config{Dial: refusingDial(&dialed), Proxy: noProxy}
		p, err := twilio.New(cfg)
		require.NoError(t, err)
		_, err = p.Send(t.Context(), envelope())
		ev, _ := dispatch.Judge(dispatch.Accepted{}, err)
		require.Equal(t, dispatch.NotSent, ev.Stage)
		require.Equal(t, want, dialed)
	}
	v := newFake(t, fakeOptions{})
	p := v.provider(t, func(c *twilio.Config) { c.AuthToken, c.APIKey, c.APISecret = "", apiKey, authToken })
	_, err := p.Send(t.Context(), envelope())
	require.NoError(t, err)
	p = v.provider(t, func(c *twilio.Config) { c.AuthToken = "another" })
	ev, verdict := dispatch.Judge(p.Send(t.Context(), envelope()))
	require.Equal(t, "20003", ev.Code)
	require.Equal(t, dispatch.Account, verdict.Scope)
	require.Equal(t, http.StatusUnauthorized, ev.Status)
}
