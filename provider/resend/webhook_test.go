package resend_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/internal/mailtest"
)

func TestWebhook(t *testing.T) {
	p := open(t, config("https://api.example"))
	body := mailtest.Recorded(t, "event_bounced.json")
	mailtest.CheckHook(t, mailtest.Hook{
		Handler: p.Webhook, Limit: 256 << 10,
		Call: func() *http.Request { return signed("msg_1", time.Now(), body) },
	})
	sink := &mailtest.Sink{}
	require.Equal(t, http.StatusOK, mailtest.Status(p.Webhook(sink), signed("msg_1", time.Now(), body)))
	r := sink.All()[0]
	require.NotEmpty(t, r.EventKey)
	r.EventKey = ""
	require.Equal(t, dispatch.Receipt{
		Provider: "resend", Account: "resend", Key: mailtest.Key(), ProviderID: "49a3999c-0ce1-4ea6-ab68-afcd6dc2e794", // B151
		Kind: dispatch.Bounced, Code: "Suppressed", Permanent: true, At: time.Date(2026, 8, 21, 10, 0, 0, 123e6, time.UTC), Recipient: "ada@example.com",
	}, r)
}

func TestKinds(t *testing.T) {
	p := open(t, config("https://api.example"))
	for kind, want := range map[string]dispatch.ReceiptKind{
		"email.sent": dispatch.Queued, "email.delivered": dispatch.Delivered, "email.delivery_delayed": dispatch.Deferred,
		"email.complained": dispatch.Complained, "email.opened": dispatch.Opened, "email.clicked": dispatch.Clicked,
		"email.failed": dispatch.Failed, "email.suppressed": dispatch.Failed, "email.brand_new": dispatch.Noted,
	} {
		sink := &mailtest.Sink{}
		body := `{"type":"` + kind + `","created_at":"NaN","data":{"email_id":"A","to":"x@example.com","tags":[{"name":"dispatch_key","value":"` + mailtest.Key().String() + `"}]}}`
		require.Equal(t, http.StatusOK, mailtest.Status(p.Webhook(sink), signed("m", time.Now(), body)))
		require.Equal(t, want, sink.All()[0].Kind)
		require.Equal(t, mailtest.Key(), sink.All()[0].Key)
		require.Equal(t, want == dispatch.Complained || kind == "email.suppressed", sink.All()[0].Permanent)
	}
}

// Signed calls that say nothing of a mail are answered 200; what can't be read
// is counted.
func TestNothingToStore(t *testing.T) {
	p := open(t, config("https://api.example"))
	sink := &mailtest.Sink{}
	for _, body := range []string{`{"type":"email.received","data":{"email_id":"a"}}`, `{"type":"contact.created"}`} {
		require.Equal(t, http.StatusOK, mailtest.Status(p.Webhook(sink), signed("m", time.Now(), body)))
	}
	require.Zero(t, p.Unread())
	for _, body := range []string{``, `null`, `[]`, `{"type":"email.sent","data":5}`, `{"type":"email.sent","data":{}}`, `{}{}`} {
		require.Equal(t, http.StatusOK, mailtest.Status(p.Webhook(sink), signed("m", time.Now(), body)))
	}
	require.Equal(t, int64(5), p.Unread(), "null is an event without a type")
	require.Empty(t, sink.All())
}

// B159: a time that is no time, or outside five minutes either way; and what
// else makes a call another's.
func TestForged(t *testing.T) {
	p := open(t, config("https://api.example"))
	sink := &mailtest.Sink{}
	body := mailtest.Recorded(t, "event_bounced.json")
	for name, change := range map[string]func(*http.Request){
		"missing":  func(r *http.Request) { r.Header.Del("Svix-Timestamp") },
		"NaN":      func(r *http.Request) { r.Header.Set("Svix-Timestamp", "NaN") },
		"1e999":    func(r *http.Request) { r.Header.Set("Svix-Timestamp", "1e999") },
		"negative": func(r *http.Request) { r.Header.Set("Svix-Timestamp", "-1") },
		"ms":       func(r *http.Request) { r.Header.Set("Svix-Timestamp", r.Header.Get("Svix-Timestamp")+"000") },
		"other id": func(r *http.Request) { r.Header.Set("Svix-Id", "msg_2") },
		"two ids":  func(r *http.Request) { r.Header.Add("Svix-Id", "msg_1") },
		"version": func(r *http.Request) {
			r.Header.Set("Svix-Signature", strings.ReplaceAll(r.Header.Get("Svix-Signature"), "v1,", "v1a,"))
		},
		"empty": func(r *http.Request) { r.Header.Set("Svix-Signature", "v1,") },
	} {
		r := signed("msg_1", time.Now(), body)
		change(r)
		require.Equal(t, http.StatusUnauthorized, mailtest.Status(p.Webhook(sink), r), name)
	}
	for _, off := range []time.Duration{-301 * time.Second, 310 * time.Second, 365 * 24 * time.Hour} {
		require.Equal(t, http.StatusUnauthorized, mailtest.Status(p.Webhook(sink), signed("m", time.Now().Add(off), body)))
	}
	other := signed("msg_1", time.Now(), body)
	other.Body = mailtest.Post(body + " ").Body
	require.Equal(t, http.StatusUnauthorized, mailtest.Status(p.Webhook(sink), other))
	old := signed("msg_1", time.Now().Add(-4*time.Minute), body)
	require.Equal(t, http.StatusOK, mailtest.Status(p.Webhook(sink), old))
	require.Len(t, sink.All(), 1)

	cfg := config("https://api.example")
	cfg.WebhookSecret = ""
	require.Equal(t, http.StatusUnauthorized, mailtest.Status(open(t, cfg).Webhook(sink), signed("m", time.Now(), body)), "no secret, no receipts")
	branded := signed("msg_1", time.Now(), body)
	for _, name := range []string{"Id", "Timestamp", "Signature"} { // Standard Webhooks' names
		branded.Header.Set("Webhook-"+name, branded.Header.Get("Svix-"+name))
		branded.Header.Del("Svix-" + name)
	}
	require.Equal(t, http.StatusOK, mailtest.Status(p.Webhook(sink), branded))
}

func FuzzWebhook(f *testing.F) {
	f.Add(readFile(f, "event_bounced.json"))
	f.Add(`{"type":"email.sent","data":{"email_id":5,"tags":[1]}}`)
	f.Add(vectorBody)
	f.Fuzz(func(t *testing.T, body string) {
		p := open(t, config("https://api.example"))
		sink := &mailtest.Sink{}
		if s := mailtest.Status(p.Webhook(sink), signed(strconv.Itoa(len(body)), time.Now(), body)); s != http.StatusOK && s != http.StatusRequestEntityTooLarge {
			t.Fatalf("answered %d", s)
		}
		mailtest.CheckReceipts(t, sink.All())
	})
}
