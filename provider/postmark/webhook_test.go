package postmark_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/internal/mailtest"
)

func TestWebhook(t *testing.T) {
	p := open(t, config("https://api.example"))
	body := mailtest.Recorded(t, "event_bounce.json")
	mailtest.CheckHook(t, mailtest.Hook{Handler: p.Webhook, Limit: 1 << 20, Call: func() *http.Request { return call(body) }})
	sink := &mailtest.Sink{}
	require.Equal(t, http.StatusOK, mailtest.Status(p.Webhook(sink), call(body)))
	r := sink.All()[0]
	require.NotContains(t, r.EventKey, "ada@example.com")
	r.EventKey = ""
	require.Equal(t, dispatch.Receipt{
		Provider: "postmark", Account: "postmark", Key: mailtest.Key(), ProviderID: "0a129aee-e1cd-480d-b08d-4f48548ff48d", Kind: dispatch.Bounced,
		Code: "HardBounce", Permanent: true, At: time.Date(2026, 2, 18, 10, 5, 0, 5e8, time.UTC), Recipient: "ada@example.com",
	}, r)
}

func TestKinds(t *testing.T) {
	p := open(t, config("https://api.example"))
	for body, want := range map[string]struct {
		kind      dispatch.ReceiptKind
		permanent bool
	}{
		`{"RecordType":"Delivery","MessageID":"a","DeliveredAt":"2026-01-01T00:00:00Z"}`:               {dispatch.Delivered, false},
		`{"RecordType":"SpamComplaint","MessageID":"a","BouncedAt":"x"}`:                               {dispatch.Complained, true},
		`{"RecordType":"Open","MessageID":"a"}`:                                                        {dispatch.Opened, false},
		`{"RecordType":"Click","MessageID":"a"}`:                                                       {dispatch.Clicked, false},
		`{"RecordType":"BrandNew","MessageID":"a"}`:                                                    {dispatch.Noted, false},
		`{"RecordType":"SubscriptionChange","MessageID":"a","SuppressSending":true}`:                   {dispatch.Unsubscribed, false},
		`{"RecordType":"SubscriptionChange","MessageID":"a","SuppressSending":false}`:                  {dispatch.Noted, false},
		`{"RecordType":"Bounce","MessageID":"a","Type":"SoftBounce","Inactive":false}`:                 {dispatch.Bounced, false},
		`{"RecordType":"Bounce","MessageID":"a","Type":"SoftBounce","Inactive":true}`:                  {dispatch.Bounced, true},
		`{"RecordType":"Bounce","MessageID":"a","Type":"Transient"}`:                                   {dispatch.Deferred, false},
		`{"RecordType":"Bounce","MessageID":"a","Type":"AutoResponder"}`:                               {dispatch.Noted, false},
		`{"RecordType":"Bounce","MessageID":"a","Type":"SpamNotification","Metadata":{"x":[1],"y":2}}`: {dispatch.Complained, true},
		`{"RecordType":"Bounce","MessageID":"a","Type":"New"}`:                                         {dispatch.Bounced, false},
	} {
		sink := &mailtest.Sink{}
		require.Equal(t, http.StatusOK, mailtest.Status(p.Webhook(sink), call(body)))
		require.Len(t, sink.All(), 1, body)
		require.Equal(t, want.kind, sink.All()[0].Kind, body)
		require.Equal(t, want.permanent, sink.All()[0].Permanent, body)
	}
	sink := &mailtest.Sink{}
	require.Equal(t, http.StatusOK, mailtest.Status(p.Webhook(sink), call(`{"RecordType":"SubscriptionChange","MessageID":"00000000-0000-0000-0000-000000000000"}`)))
	require.Zero(t, p.Unread())
	for n, body := range []string{``, `[]`, `{"RecordType":5}`, `{"RecordType":"Open"}`, `{"RecordType":{},"MessageID":"a"}`} {
		require.Equal(t, http.StatusOK, mailtest.Status(p.Webhook(sink), call(body)))
		require.Equal(t, int64(n+1), p.Unread())
	}
	require.Empty(t, sink.All())
}

// Two people's deliveries of one mail are two events; the same one twice isn't.
func TestEventKeys(t *testing.T) {
	p := open(t, config("https://api.example"))
	sink := &mailtest.Sink{}
	for _, to := range []string{"a@example.com", "b@example.com", "A@example.com"} {
		require.Equal(t, http.StatusOK, mailtest.Status(p.Webhook(sink), call(`{"RecordType":"Delivery","MessageID":"A","Recipient":"`+to+`","DeliveredAt":"2026-01-01T00:00:00Z"}`)))
	}
	require.Equal(t, 2, sink.Distinct())
}

// Bad credentials get a 401 and never a 403, on which Postmark gives up.
func TestForged(t *testing.T) {
	sink := &mailtest.Sink{}
	body := mailtest.Recorded(t, "event_bounce.json")
	both := config("https://api.example")
	both.HookHeader, both.HookSecret = "X-Hook", password
	header := both
	header.HookUser, header.HookPassword = "", ""
	none := header
	none.HookHeader, none.HookSecret = "", ""
	for name, change := range map[string]func(*http.Request){
		"no password":    func(r *http.Request) { r.SetBasicAuth(user, "") },
		"other user":     func(r *http.Request) { r.SetBasicAuth("x", password) },
		"prefix":         func(r *http.Request) { r.SetBasicAuth(user, password[:5]) },
		"twice":          func(r *http.Request) { r.Header.Add("Authorization", r.Header.Get("Authorization")) },
		"without header": func(r *http.Request) { r.Header.Del("X-Hook") },
		"other header":   func(r *http.Request) { r.Header.Set("X-Hook", "x") },
	} {
		r := call(body)
		change(r)
		require.Equal(t, http.StatusUnauthorized, mailtest.Status(open(t, both).Webhook(sink), r), name)
	}
	require.Equal(t, http.StatusUnauthorized, mailtest.Status(open(t, none).Webhook(sink), call(body)), "nothing to check with")
	require.Empty(t, sink.All())
	require.Equal(t, http.StatusOK, mailtest.Status(open(t, both).Webhook(sink), call(body)))
	require.Equal(t, http.StatusOK, mailtest.Status(open(t, header).Webhook(sink), call(body)))
}

func FuzzWebhook(f *testing.F) {
	f.Add(readFile(f, "event_bounce.json"))
	f.Add(`{"RecordType":"Delivery","MessageID":5,"Metadata":{"dispatch_key":[]}}`)
	f.Fuzz(func(t *testing.T, body string) {
		p := open(t, config("https://api.example"))
		sink := &mailtest.Sink{}
		if s := mailtest.Status(p.Webhook(sink), call(body)); s != http.StatusOK && s != http.StatusRequestEntityTooLarge {
			t.Fatalf("answered %d", s)
		}
		mailtest.CheckReceipts(t, sink.All())
	})
}
