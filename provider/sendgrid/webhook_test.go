package sendgrid_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/internal/mailtest"
	"github.com/seed-8098fbb7/dispatch/provider/sendgrid"
)

// SendGrid's own vector, whose body ends with a line end.
func TestVector(t *testing.T) {
	signature, err := base64.StdEncoding.DecodeString(vectorSignature)
	require.NoError(t, err)
	require.True(t, sendgrid.SignedForTest(vectorKey, vectorAt, []byte(vectorBody), signature))
	require.False(t, sendgrid.SignedForTest(vectorKey, vectorAt, []byte(strings.TrimSpace(vectorBody)), signature))
	require.False(t, sendgrid.SignedForTest(vectorKey, "1600112503", []byte(vectorBody), signature))
}

func TestWebhook(t *testing.T) {
	p := open(t, config("https://api.example"))
	one := `[{"event":"delivered","sg_message_id":"a.b","timestamp":1600112500,"email":"ada@example.com"}]`
	mailtest.CheckHook(t, mailtest.Hook{Handler: p.Webhook, Limit: 8 << 20, Call: func() *http.Request { return call(time.Now(), one) }})
}

// B154: one bad event doesn't hold up the rest, and is counted.
func TestBatchWithBadEvents(t *testing.T) {
	p := open(t, config("https://api.example"))
	sink := &mailtest.Sink{}
	require.Equal(t, http.StatusOK, mailtest.Status(p.Webhook(sink), call(time.Now(), mailtest.Recorded(t, "batch.json"))))
	all := sink.All()
	mailtest.CheckReceipts(t, all)
	require.Len(t, all, 4)
	require.Equal(t, int64(2), p.Unread())
	for _, r := range all {
		require.Equal(t, "14c5d75ce93", r.ProviderID, "B151")
		require.NotContains(t, r.EventKey, "ada@example.com")
	}
	all[0].EventKey = ""
	require.Equal(t, dispatch.Receipt{
		Provider: "sendgrid", Account: "sendgrid", Key: mailtest.Key(), ProviderID: "14c5d75ce93", Kind: dispatch.Queued,
		At: time.Unix(1600112492, 0).UTC(), Recipient: "ada@example.com",
	}, all[0])
	require.Equal(t, dispatch.Noted, all[2].Kind)
	require.Equal(t, dispatch.Bounced, all[3].Kind)
	require.Equal(t, "5.1.1", all[3].Code)
	require.True(t, all[3].Permanent)

	var many []string
	for n := range 2000 {
		many = append(many, fmt.Sprintf(`{"event":"open","sg_message_id":"m%d","timestamp":%d}`, n, 1600112492+n))
	}
	many = append(many, `{"event":"open"}`)
	require.Equal(t, http.StatusOK, mailtest.Status(p.Webhook(sink), call(time.Now(), "["+strings.Join(many, ",")+"]")))
	require.Len(t, sink.All(), 2004)
	require.Equal(t, int64(3), p.Unread())
	for _, body := range []string{``, `{}`, `null`, `[`, `[]]`} {
		require.Equal(t, http.StatusOK, mailtest.Status(p.Webhook(sink), call(time.Now(), body)), body)
	}
	require.Len(t, sink.All(), 2004)
}

// B150: SendGrid sends one event under several ids, and sometimes under none.
func TestSameEventOtherID(t *testing.T) {
	p := open(t, config("https://api.example"))
	sink := &mailtest.Sink{}
	for _, id := range []string{`,"sg_event_id":"a"`, `,"sg_event_id":"b"`, ``} {
		body := `[{"event":"delivered","sg_message_id":"a.b","timestamp":1600112500,"email":"ada@example.com"` + id + `}]`
		require.Equal(t, http.StatusOK, mailtest.Status(p.Webhook(sink), call(time.Now(), body)))
	}
	other := `[{"event":"delivered","sg_message_id":"a.b","timestamp":1600112500,"email":"bob@example.com"}]`
	require.Equal(t, http.StatusOK, mailtest.Status(p.Webhook(sink), call(time.Now(), other)))
	require.Equal(t, 2, sink.Distinct())
}

func TestKinds(t *testing.T) {
	p := open(t, config("https://api.example"))
	for fields, want := range map[string]struct {
		kind      dispatch.ReceiptKind
		permanent bool
		code      string
	}{
		`"event":"dropped","reason":"Bounced Address"`:                  {dispatch.Failed, true, "bounced address"},
		`"event":"dropped","reason":"template broke for a@example.com"`: {dispatch.Failed, false, ""},
		`"event":"deferred","attempt":"3"`:                              {dispatch.Deferred, false, ""},
		`"event":"bounce","type":"blocked","status":"4.7.1"`:            {dispatch.Bounced, false, "4.7.1"},
		`"event":"bounce","status":"5.0.0"`:                             {dispatch.Bounced, true, "5.0.0"},
		`"event":"spamreport"`:                                          {dispatch.Complained, true, ""},
		`"event":"unsubscribe"`:                                         {dispatch.Unsubscribed, false, ""},
		`"event":"group_resubscribe"`:                                   {dispatch.Noted, false, ""},
		`"event":"click","url":"https://x"`:                             {dispatch.Clicked, false, ""},
	} {
		sink := &mailtest.Sink{}
		require.Equal(t, http.StatusOK, mailtest.Status(p.Webhook(sink), call(time.Now(), `[{"sg_message_id":"a","timestamp":"1600112500",`+fields+`}]`)))
		r := sink.All()[0]
		require.Equal(t, want.kind, r.Kind, fields)
		require.Equal(t, want.permanent, r.Permanent, fields)
		require.Equal(t, want.code, r.Code, fields)
	}
}

// B159: times that are none or outside the window, and other people's calls.
func TestForged(t *testing.T) {
	p := open(t, config("https://api.example"))
	sink := &mailtest.Sink{}
	body := mailtest.Recorded(t, "batch.json")
	const at, signature = "X-Twilio-Email-Event-Webhook-Timestamp", "X-Twilio-Email-Event-Webhook-Signature"
	for name, change := range map[string]func(*http.Request){
		"missing":       func(r *http.Request) { r.Header.Del(at) },
		"NaN":           func(r *http.Request) { r.Header.Set(at, "NaN") },
		"1e999":         func(r *http.Request) { r.Header.Set(at, "1e999") },
		"negative":      func(r *http.Request) { r.Header.Set(at, "-1") },
		"other time":    func(r *http.Request) { r.Header.Set(at, fmt.Sprint(time.Now().Unix()-1)) },
		"twice":         func(r *http.Request) { r.Header.Add(at, r.Header.Get(at)) },
		"no base64":     func(r *http.Request) { r.Header.Set(signature, "!") },
		"empty":         func(r *http.Request) { r.Header.Set(signature, "") },
		"another's key": func(r *http.Request) { r.Header.Set(signature, vectorSignature) },
		"other body":    func(r *http.Request) { r.Body = mailtest.Post(body + "\n").Body },
	} {
		r := call(time.Now(), body)
		change(r)
		require.Equal(t, http.StatusUnauthorized, mailtest.Status(p.Webhook(sink), r), name)
	}
	for _, off := range []time.Duration{-26 * time.Hour, 6 * time.Minute, 365 * 24 * time.Hour} {
		require.Equal(t, http.StatusUnauthorized, mailtest.Status(p.Webhook(sink), call(time.Now().Add(off), body)))
	}
	cfg := config("https://api.example")
	cfg.WebhookKey = ""
	require.Equal(t, http.StatusUnauthorized, mailtest.Status(open(t, cfg).Webhook(sink), call(time.Now(), body)), "no key, no receipts")
	require.Empty(t, sink.All())
	require.Equal(t, http.StatusOK, mailtest.Status(p.Webhook(sink), call(time.Now().Add(-24*time.Hour), body)))
}

func FuzzWebhook(f *testing.F) {
	f.Add(readFile(f, "batch.json"))
	f.Add(vectorBody)
	f.Add(`[{"event":"open","sg_message_id":1e400,"timestamp":1e400}]`)
	f.Fuzz(func(t *testing.T, body string) {
		p := open(t, config("https://api.example"))
		sink := &mailtest.Sink{}
		if s := mailtest.Status(p.Webhook(sink), call(time.Now(), body)); s != http.StatusOK {
			t.Fatalf("answered %d", s)
		}
		mailtest.CheckReceipts(t, sink.All())
	})
}
