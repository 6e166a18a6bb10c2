package mailgun_test

import (
	"crypto/rand"
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

func TestVector(t *testing.T) {
	require.Equal(t, "a4aa5558dda1bdd45f39600cf45ad25006c9fa7980b210160d6df1e9c70160f5",
		mailgun.SignForTest("test-signing-key", "1529006854", "a8ce0edb2dd8301dee6c2405235584e45aa91d1e9f979f3de0"))
}

func TestWebhook(t *testing.T) {
	p := open(t, config("https://api.example"))
	body := mailtest.Recorded(t, "event_failed.json")
	now := time.Now()
	mailtest.CheckHook(t, mailtest.Hook{
		Handler: p.Webhook, Limit: 256 << 10, Call: func() *http.Request { return signed(now, "one-token", body) },
		Bare: func() *http.Request { return mailtest.Post(`{"event-data":` + body + `}`) },
	})
	sink := &mailtest.Sink{}
	require.Equal(t, http.StatusOK, mailtest.Status(p.Webhook(sink), call(body)))
	r := sink.All()[0]
	require.NotContains(t, r.EventKey, "ada@example.com")
	r.EventKey = ""
	require.Equal(t, dispatch.Receipt{
		Provider: "mailgun", Account: domain, Key: mailtest.Key(), ProviderID: mailtest.Key().String() + "@" + domain, Kind: dispatch.Bounced,
		Code: "605", Permanent: true, At: time.UnixMilli(1521233195376).UTC(), Recipient: "ada@example.com",
	}, r)
}

func TestKinds(t *testing.T) {
	p := open(t, config("https://api.example"))
	for fields, want := range map[string]struct {
		kind      dispatch.ReceiptKind
		permanent bool
	}{
		`"event":"accepted"`:                                                 {dispatch.Queued, false},
		`"event":"delivered"`:                                                {dispatch.Delivered, false},
		`"event":"failed","severity":"temporary"`:                            {dispatch.Deferred, false},
		`"event":"failed","severity":"permanent"`:                            {dispatch.Bounced, true},
		`"event":"failed","severity":"permanent","reason":"suppress-bounce"`: {dispatch.Failed, true},
		`"event":"rejected"`:                                                 {dispatch.Failed, false},
		`"event":"complained"`:                                               {dispatch.Complained, true},
		`"event":"unsubscribed"`:                                             {dispatch.Unsubscribed, false},
		`"event":"brand_new"`:                                                {dispatch.Noted, false},
		`"event":"opened","user-variables":[]`:                               {dispatch.Opened, false},
		`"event":"clicked","user-variables":{"dispatch_key":"x"},"timestamp":"NaN"`: {dispatch.Clicked, false},
	} {
		sink := &mailtest.Sink{}
		require.Equal(t, http.StatusOK, mailtest.Status(p.Webhook(sink), call(`{"message":{"headers":{"message-id":"<a@other.example>"}},`+fields+`}`)))
		require.Equal(t, want.kind, sink.All()[0].Kind, fields)
		require.Equal(t, want.permanent, sink.All()[0].Permanent, fields)
		require.Equal(t, "a@other.example", sink.All()[0].ProviderID, "B151")
		require.True(t, sink.All()[0].Key.IsZero(), "another application's mail")
	}
	sink := &mailtest.Sink{}
	byVariable := `{"event":"opened","message":{"headers":{"message-id":"x@other.example"}},"user-variables":{"dispatch_key":"` + mailtest.Key().String() + `"}}`
	require.Equal(t, http.StatusOK, mailtest.Status(p.Webhook(sink), call(byVariable)))
	require.Equal(t, mailtest.Key(), sink.All()[0].Key)
	for n, event := range []string{`null`, `[]`, `{"event":"opened"}`, `{"event":{},"message":{"headers":{"message-id":"a"}}}`, `{"message":5}`} {
		require.Equal(t, http.StatusOK, mailtest.Status(p.Webhook(sink), call(event)), event)
		require.Equal(t, int64(n+1), p.Unread(), event)
	}
	require.Len(t, sink.All(), 1)
}

// B159: the signature covers time and token only. A token is good for one
// body; a repeat of the same call is taken, since the first may not have been
// stored.
func TestTokens(t *testing.T) {
	p := open(t, config("https://api.example"))
	now := time.Now()
	good, other := mailtest.Recorded(t, "event_failed.json"), strings.Replace(mailtest.Recorded(t, "event_failed.json"), "failed", "delivered", 1)
	down := &mailtest.Sink{Err: mailtest.ErrDown}
	require.Equal(t, http.StatusServiceUnavailable, mailtest.Status(p.Webhook(down), signed(now, "t", good)))
	sink := &mailtest.Sink{}
	require.Equal(t, http.StatusOK, mailtest.Status(p.Webhook(sink), signed(now, "t", good)), "the repeat is taken")
	require.Equal(t, http.StatusNotAcceptable, mailtest.Status(p.Webhook(sink), signed(now, "t", other)))
	require.Equal(t, http.StatusOK, mailtest.Status(p.Webhook(sink), signed(now, "t", good)))
	require.Equal(t, http.StatusOK, mailtest.Status(p.Webhook(sink), signed(now, "u", other)), "another token, another call")
	require.Equal(t, 2, sink.Distinct())
}

// Tokens are forgotten in order when there are too many, never all at once.
func TestTokensAreBounded(t *testing.T) {
	p := open(t, config("https://api.example"))
	now, sink := time.Now(), &mailtest.Sink{}
	for n := range 50_001 {
		if s := mailtest.Status(p.Webhook(sink), signed(now, strconv.Itoa(n), "null")); s != http.StatusOK {
			t.Fatal(s)
		}
	}
	require.Equal(t, http.StatusOK, mailtest.Status(p.Webhook(sink), signed(now, "0", "{}")), "the oldest is forgotten")
	require.Equal(t, http.StatusNotAcceptable, mailtest.Status(p.Webhook(sink), signed(now, "9999", "{}")))
}

// B159: times that are none or outside the window, and other people's calls.
func TestForged(t *testing.T) {
	p := open(t, config("https://api.example"))
	sink := &mailtest.Sink{}
	body := mailtest.Recorded(t, "event_failed.json")
	for _, at := range []string{"", "NaN", "1e999", "-1", strconv.FormatInt(time.Now().UnixMilli(), 10)} {
		require.Equal(t, http.StatusUnauthorized, mailtest.Status(p.Webhook(sink), raw(at, "t", signature(at, "t"), body)), at)
	}
	for _, off := range []time.Duration{-10 * time.Hour, 6 * time.Minute, 365 * 24 * time.Hour} {
		require.Equal(t, http.StatusUnauthorized, mailtest.Status(p.Webhook(sink), signed(time.Now().Add(off), rand.Text(), body)))
	}
	now := strconv.FormatInt(time.Now().Unix(), 10)
	for name, r := range map[string]*http.Request{
		"no token":    raw(now, "", signature(now, ""), body),
		"other token": raw(now, "u", signature(now, "t"), body),
		"no hex":      raw(now, "t", "!", body),
		"empty":       raw(now, "t", "", body),
		"half":        raw(now, "t", signature(now, "t")[:32], body),
		"no JSON":     mailtest.Post("a=b"),
		"a list":      mailtest.Post("[]"),
	} {
		require.Equal(t, http.StatusUnauthorized, mailtest.Status(p.Webhook(sink), r), name)
	}
	cfg := config("https://api.example")
	cfg.WebhookKey = ""
	require.Equal(t, http.StatusUnauthorized, mailtest.Status(open(t, cfg).Webhook(sink), call(body)), "no key, no receipts")
	require.Empty(t, sink.All())
	require.Equal(t, http.StatusOK, mailtest.Status(p.Webhook(sink), raw(now, "t", strings.ToUpper(signature(now, "t")), body)))
	require.Equal(t, http.StatusOK, mailtest.Status(p.Webhook(sink), signed(time.Now().Add(-8*time.Hour), "old", body)))
}

func FuzzWebhook(f *testing.F) {
	f.Add(readFile(f, "event_failed.json"))
	f.Add(`{"event":1,"timestamp":1e400,"message":{"headers":null}}`)
	f.Fuzz(func(t *testing.T, event string) {
		p := open(t, config("https://api.example"))
		sink := &mailtest.Sink{}
		if s := mailtest.Status(p.Webhook(sink), call(event)); s >= 500 {
			t.Fatalf("answered %d", s)
		}
		mailtest.CheckReceipts(t, sink.All())
	})
}
