package twilio

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/exchange"
)

// Whatever Twilio answers to a send: no panic, no acceptance but by a success
// status, no refusal of a success but by a failure in its body, and nothing
// that a database could not store.
func FuzzAnswer(f *testing.F) {
	f.Add(201, []byte(`{"sid":"SM1","status":"queued"}`))
	f.Add(201, []byte(`{"sid":"SM1","status":"failed","error_code":39999}`))
	f.Add(201, []byte("\xef\xbb\xbf{\"sid\":5,\"status\":{}}"))
	f.Add(400, []byte(`{"code":21211,"message":"The 'To' number +1\u0000 is not valid","status":400}`))
	f.Add(429, []byte(`{"code":"20429"}`))
	f.Add(503, []byte(`<html>`))
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		a := exchange.Answer{Status: status, Body: body, Evidence: dispatch.Evidence{Stage: dispatch.Answered, Status: status}}
		accepted, err := judge(a)
		e, v := dispatch.Judge(accepted, err)
		success := status >= 200 && status <= 299
		if v.Outcome == dispatch.OK && !success {
			t.Fatalf("status %d is ok", status)
		}
		if success && err != nil && !strings.Contains(strings.ToLower(string(body)), "status") {
			t.Fatalf("status %d is %v", status, err)
		}
		for _, s := range []string{accepted.ID, accepted.Status, e.Code, e.Reason} {
			if len(s) > maxWords || !utf8.ValidString(s) || strings.ContainsRune(s, 0) {
				t.Fatalf("%q", s)
			}
		}
	})
}

// Whatever a list says: "absent" only of a list that ends, without a message
// that could be ours; "present" only of one.
func FuzzList(f *testing.F) {
	f.Add([]byte(`{"messages":[],"next_page_uri":null}`))
	f.Add([]byte(`{"messages":[{"sid":"SM1","to":"+15555550123","from":"Shop","body":"4","direction":"outbound-api","date_created":"Thu, 24 Aug 2023 05:01:45 +0000"}],"next_page_uri":null}`))
	f.Add([]byte(`{"messages":[{"body":"4"},{}],"next_page_uri":"/x"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		list, next, ok := page(exchange.Answer{Status: 200, Body: body})
		if !ok {
			require.Empty(t, list)
			return
		}
		_ = next
		w := wanted{
			sms: dispatch.SMS{To: "+15555550123", Body: "4"}, from: "Shop",
			since: time.Date(2023, 8, 24, 5, 1, 45, 0, time.UTC), until: time.Date(2023, 8, 24, 5, 2, 15, 0, time.UTC),
		}
		var found search
		could := 0
		for _, m := range list {
			fit := w.fit(m)
			found.add(m, fit)
			if fit != differs {
				could++
			}
		}
		switch v := found.verdict(true); v.Presence {
		case dispatch.Absent:
			require.Zero(t, could)
		case dispatch.Present:
			require.NotEmpty(t, v.ID)
		case dispatch.Unclear:
			require.Positive(t, could)
		}
		require.NotEqual(t, dispatch.Present, found.verdict(false).Presence)
	})
}

// Whatever arrives at the webhook: no panic; what is stored was signed, and can
// be stored.
func FuzzWebhook(f *testing.F) {
	const token, address = "token", "https://h.example.com/cb"
	p, err := New(Config{AccountSID: "AC" + strings.Repeat("0", 32), AuthToken: token, StatusCallback: address})
	require.NoError(f, err)
	f.Add("dispatch_key=01890a5d-ac96-774b-bcce-b302099a8057", "MessageSid=SM1&MessageStatus=delivered", "", true)
	f.Add("", "MessageSid=SM1&MessageStatus=failed&ErrorCode=30003", "forged", false)
	f.Add("a;b", "MessageSid=SM%00&MessageStatus=x;y", "", true)
	f.Add("bodySHA256=0", "{}", "", true)
	f.Fuzz(func(t *testing.T, query, body, signature string, genuine bool) {
		form, ferr := url.ParseQuery(body)
		full := address
		if query != "" {
			full += "?" + query
		}
		if genuine {
			signature = sign(token, full, form)
		}
		r := httptest.NewRequest(http.MethodPost, "/cb", strings.NewReader(body))
		r.URL.RawQuery = query
		r.Header["X-Twilio-Signature"] = []string{signature}
		var got []dispatch.Receipt
		w := httptest.NewRecorder()
		p.Webhook(collect(func(list []dispatch.Receipt) { got = append(got, list...) })).ServeHTTP(w, r)
		require.Equal(t, w.Code == http.StatusNoContent, len(got) == 1)
		for _, e := range got {
			require.NoError(t, ferr)
			require.True(t, genuine || signature == sign(token, full, form), "unsigned")
			require.NotEmpty(t, e.EventKey)
			require.NotEmpty(t, e.ProviderID)
			for _, s := range []string{e.EventKey, e.ProviderID, e.Code} {
				require.True(t, utf8.ValidString(s) && !strings.ContainsRune(s, 0) && len(s) < 300, "%q", s)
			}
		}
	})
}

type collect func([]dispatch.Receipt)

func (c collect) Receive(_ context.Context, list []dispatch.Receipt) error {
	c(list)
	return nil
}
