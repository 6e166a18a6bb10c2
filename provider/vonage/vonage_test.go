package vonage_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/providertest"
	"github.com/seed-8098fbb7/dispatch/provider/vonage"
)

func config() vonage.Config {
	return vonage.Config{APIKey: apiKey, APISecret: apiSecret, SignatureSecret: secret, From: "Shop"}
}

func open(t *testing.T, cfg vonage.Config) *vonage.Provider {
	t.Helper()
	p, err := vonage.New(cfg)
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

// Both APIs, and both ways to authenticate, against a vendor as strict as its
// documents.
func TestSend(t *testing.T) {
	_, keyPEM := appKey()
	for name, change := range map[string]func(*vonage.Config){
		"messages, Basic": func(*vonage.Config) {},
		"messages, JWT":   func(c *vonage.Config) { c.ApplicationID, c.PrivateKey, c.APISecret = appID, keyPEM, "" },
		"SMS":             func(c *vonage.Config) { c.API = vonage.SMS },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			cfg := config()
			cfg.BaseURL = f.URL
			change(&cfg)
			p := open(t, cfg)
			e := envelope()
			a, err := p.Send(t.Context(), e)
			require.NoError(t, err)
			m := f.messagesTaken()
			require.Len(t, m, 1)
			require.Equal(t, m[0].IDs[0], a.ID)
			require.Equal(t, e.Key.String(), m[0].Ref)
			require.Equal(t, "15555550123", m[0].To)
			require.Equal(t, "Your code is 482901", m[0].Text)

			cfg.APISecret, cfg.ApplicationID = "wrong", ""
			cfg.PrivateKey = nil
			_, v := dispatch.Judge(open(t, cfg).Send(t.Context(), e))
			require.Equal(t, dispatch.Rejected, v.Outcome)
			require.Equal(t, dispatch.Account, v.Scope)
		})
	}
}

// A key in the older PKCS#1 form is read too.
func TestOldKeyForm(t *testing.T) {
	f := newFake(t)
	key, _ := appKey()
	cfg := config()
	cfg.BaseURL, cfg.ApplicationID = f.URL, appID
	cfg.PrivateKey = pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	_, err := open(t, cfg).Send(t.Context(), envelope())
	require.NoError(t, err)
}

// The requests, byte for byte: a change needs another encoding version.
func TestRequestBytes(t *testing.T) {
	key, err := dispatch.ParseKey("01920000-0000-7000-8000-000000000001")
	require.NoError(t, err)
	e := envelope()
	e.Key, e.From = key, "+15555550100"
	e.Content = dispatch.SMS{To: "+15555550123", Body: "1 < 2 & 2 > 1, 50 €"}
	for want, change := range map[string]func(*vonage.Config){
		`{"message_type":"text","channel":"sms","to":"15555550123","from":"15555550100","text":"1 \u003c 2 \u0026 2 \u003e 1, 50 €","client_ref":"01920000-0000-7000-8000-000000000001","sms":{"encoding_type":"auto"}}`: func(*vonage.Config) {},
		`{"message_type":"text","channel":"sms","to":"15555550123","from":"15555550100","text":"1 \u003c 2 \u0026 2 \u003e 1, 50 €","client_ref":"01920000-0000-7000-8000-000000000001","ttl":90,"webhook_url":"https://shop.example/hooks","webhook_version":"v1","sms":{"encoding_type":"auto","entity_id":"E","content_id":"C"}}`: func(c *vonage.Config) {
			c.TTL, c.CallbackURL, c.EntityID, c.ContentID = 90*time.Second, "https://shop.example/hooks", "E", "C"
		},
		`client-ref=01920000-0000-7000-8000-000000000001&from=15555550100&text=1+%3C+2+%26+2+%3E+1%2C+50+%E2%82%AC&to=15555550123&type=text`: func(c *vonage.Config) { c.API = vonage.SMS },
		`callback=https%3A%2F%2Fshop.example%2Fhooks&client-ref=01920000-0000-7000-8000-000000000001&content-id=C&entity-id=E&from=15555550100&text=1+%3C+2+%26+2+%3E+1%2C+50+%E2%82%AC&to=15555550123&ttl=90000&type=text`: func(c *vonage.Config) {
			c.API = vonage.SMS
			c.TTL, c.CallbackURL, c.EntityID, c.ContentID = 90*time.Second, "https://shop.example/hooks", "E", "C"
		},
	} {
		v, err := providertest.NewVendor(providertest.Options{})
		require.NoError(t, err)
		t.Cleanup(v.Close)
		cfg := config()
		cfg.BaseURL = v.URL
		change(&cfg)
		_, _ = open(t, cfg).Send(t.Context(), e) // the answer is another vendor's
		require.Equal(t, want, string(v.AllCalls()[0].Body))
	}
}

// The SMS API has to be told that a text is no GSM text.
func TestUnicode(t *testing.T) {
	f := newFake(t)
	cfg := config()
	cfg.BaseURL, cfg.API = f.URL, vonage.SMS
	p := open(t, cfg)
	for _, c := range []struct{ text, want string }{
		{"plain", "text"}, {"ÄÖÜäöüß @£$ [€] {~}\n", "text"}, {"ç", "unicode"}, {"`", "unicode"}, {"“quoted”", "unicode"}, {"😀", "unicode"}, {"привет", "unicode"},
	} {
		e := envelope()
		e.Content = dispatch.SMS{To: "+15555550123", Body: c.text}
		_, err := p.Send(t.Context(), e)
		require.NoError(t, err)
		all := f.messagesTaken()
		require.Equal(t, c.want, all[len(all)-1].Type, c.text)
		require.Equal(t, c.text, all[len(all)-1].Text)
	}
}

// What can't be sent is refused here, and proves that nothing left.
func TestRefusedLocally(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*vonage.Config, *dispatch.Envelope)
		scope  dispatch.Scope
	}{
		"no sender":    {func(c *vonage.Config, e *dispatch.Envelope) { c.From, e.From = "", "" }, dispatch.Sender},
		"odd sender":   {func(_ *vonage.Config, e *dispatch.Envelope) { e.From = "Shop & Sons" }, dispatch.Sender},
		"long sender":  {func(_ *vonage.Config, e *dispatch.Envelope) { e.From = "ShopAndSonsLtd" }, dispatch.Sender},
		"long number":  {func(_ *vonage.Config, e *dispatch.Envelope) { e.From = "+1555555010012345" }, dispatch.Sender},
		"plus, letter": {func(_ *vonage.Config, e *dispatch.Envelope) { e.From = "+Shop" }, dispatch.Sender},
		"mail":         {func(_ *vonage.Config, e *dispatch.Envelope) { e.Content = dispatch.Email{} }, dispatch.Account},
		"long text": {func(_ *vonage.Config, e *dispatch.Envelope) {
			e.Content = dispatch.SMS{To: "+15555550123", Body: strings.Repeat("x", 1001)}
		}, dispatch.Message},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			cfg, e := config(), envelope()
			cfg.BaseURL = f.URL
			c.change(&cfg, &e)
			ev, v := dispatch.Judge(open(t, cfg).Send(t.Context(), e))
			require.Equal(t, dispatch.NotSent, ev.Stage)
			require.Equal(t, dispatch.Rejected, v.Outcome)
			require.Equal(t, c.scope, v.Scope)
			require.Empty(t, f.messagesTaken())
		})
	}
}

func TestConfig(t *testing.T) {
	_, keyPEM := appKey()
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	require.NoError(t, err)
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	other, err := x509.MarshalPKCS8PrivateKey(curve)
	require.NoError(t, err)
	for field, change := range map[string]func(*vonage.Config){
		"Name":           func(c *vonage.Config) { c.Name = "Vo nage" },
		"API is unknown": func(c *vonage.Config) { c.API = 7 },
		"Signature is":   func(c *vonage.Config) { c.Signature = 9 },
		"APIKey":         func(c *vonage.Config) { c.APIKey = "" },
		"no key":         func(c *vonage.Config) { c.APIKey = "hunter2:x" },
		"go together":    func(c *vonage.Config) { c.ApplicationID = appID },
		"APISecret or":   func(c *vonage.Config) { c.APISecret = " " },
		"no other authentication": func(c *vonage.Config) {
			c.API, c.APISecret, c.ApplicationID, c.PrivateKey = vonage.SMS, "", appID, keyPEM
		},
		"ReportLag needs": func(c *vonage.Config) { c.ReportLag, c.APISecret, c.ApplicationID, c.PrivateKey = 1, "", appID, keyPEM },
		"Replay":          func(c *vonage.Config) { c.Replay = time.Second },
		"Grace":           func(c *vonage.Config) { c.Grace = -1 },
		"TTL":             func(c *vonage.Config) { c.TTL = time.Second },
		"From":            func(c *vonage.Config) { c.From = "hunter2!" },
		"BaseURL":         func(c *vonage.Config) { c.BaseURL = "http://hunter2.example" },
		"ReportsURL":      func(c *vonage.Config) { c.ReportsURL = "hunter2" },
		"CallbackURL: ":   func(c *vonage.Config) { c.CallbackURL = "http://hunter2.example" },
		"at most 100": func(c *vonage.Config) {
			c.API, c.CallbackURL = vonage.SMS, "https://h.example/"+strings.Repeat("x", 90)
		},
		"APISecret: ":              func(c *vonage.Config) { c.APISecret = "hunter2\nX" }, // B034
		"PrivateKey is not PEM":    func(c *vonage.Config) { c.ApplicationID, c.PrivateKey = appID, []byte("hunter2") },
		"PrivateKey is neither":    func(c *vonage.Config) { c.ApplicationID, c.PrivateKey = appID, pemOf([]byte("hunter2")) },
		"PrivateKey is not an RSA": func(c *vonage.Config) { c.ApplicationID, c.PrivateKey = appID, pemOf(other) },
		"PrivateKey has less than 20": func(c *vonage.Config) {
			c.ApplicationID, c.PrivateKey = appID, pemOf(x509.MarshalPKCS1PrivateKey(small))
		},
		"Connect": func(c *vonage.Config) { c.Exchange.Connect = -1 },
	} {
		cfg := config()
		change(&cfg)
		_, err := vonage.New(cfg)
		require.ErrorContains(t, err, field)
		require.NotContains(t, err.Error(), "hunter2")
	}
}

func pemOf(b []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: b}) }

// B162: secrets stay out of what is printed, logged and encoded.
func TestRedaction(t *testing.T) {
	cfg := config()
	cfg.PrivateKey, cfg.ApplicationID = []byte("hunter2"), appID
	good := config()
	p := open(t, good)
	var log strings.Builder
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "cfg", cfg, "provider", p)
	var v any = cfg
	encoded, err := json.Marshal(v)
	require.NoError(t, err)
	for _, s := range []string{
		log.String(), string(encoded), fmt.Sprintf("%v %+v %#v %s %q %d %x", cfg, cfg, cfg, cfg, cfg, cfg, cfg), fmt.Sprintf("%v %+v %#v %s %d", p, p, p, p, p), fmt.Sprint(&cfg, []any{cfg}),
	} {
		require.NotContains(t, s, "hunter2")
		require.NotContains(t, s, fmt.Sprintf("%x", "hunter2"))
		require.Contains(t, s, apiKey)
	}
}

func TestContract(t *testing.T) {
	c := open(t, config()).Contract()
	require.NoError(t, c.Validate())
	require.Equal(t, "vonage", c.Name)
	require.Equal(t, apiKey, c.Account)
	require.Zero(t, c.Dedupe.Window, "Vonage doesn't dedupe")
	require.False(t, c.RefusalProves)
	require.False(t, c.Search.Available)
	require.True(t, c.Echo.Reference)
	require.Equal(t, time.Hour, c.Echo.Grace)
	require.NotEmpty(t, c.Echo.Source)
	cfg := config()
	cfg.SignatureSecret, cfg.ReportLag = "", time.Minute
	c = open(t, cfg).Contract()
	require.False(t, c.Echo.Reference, "a receipt that can't be checked is none")
	require.True(t, c.Search.Available)
	require.Equal(t, time.Minute, c.Search.Lag)
}
