package sinch_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/sinch"
)

type sink struct {
	got []dispatch.Receipt
	err error
}

func (s *sink) Receive(_ context.Context, r []dispatch.Receipt) error {
	if s.err == nil {
		s.got = append(s.got, r...)
	}
	return s.err
}

func serve(p *sinch.Provider, s dispatch.ReceiptSink, r *http.Request) int {
	w := httptest.NewRecorder()
	p.Webhook(s).ServeHTTP(w, r)
	return w.Code
}

const hookURL = "http://127.0.0.1/hooks"

// The vector of Sinch's own SDK. Its time is of January 2025, outside any
// window: it gets as far as that.
func TestVector(t *testing.T) {
	cfg := config()
	cfg.WebhookSecret = "SMSWebhooksSecret"
	p, s := open(t, cfg), &sink{}
	vector := func() *http.Request {
		r := httptest.NewRequest(http.MethodPost, hookURL, strings.NewReader(recorded(t, "report_vector.json")))
		for name, value := range map[string]string{
			"": "ZoHei66PPN/kZjw7hFVfGhJOnml3iGNCMWoyQVcE5o0=", "-algorithm": "HmacSHA256", "-nonce": "01JHFFHWYY7HSS4FWTMDTQEK8V", "-timestamp": "1736760161",
		} {
			r.Header.Set("x-sinch-webhook-signature"+name, value)
		}
		return r
	}
	require.Equal(t, http.StatusUnauthorized, serve(p, s, vector()))
	require.Empty(t, s.got)
}

func TestReport(t *testing.T) {
	p, s := open(t, config()), &sink{}
	key := dispatch.NewKey()
	m := sent{Ref: key.String(), To: "15555550123", ID: "01JHFFHQ0P99JPPNQPJDV7JTBP", At: time.Date(2026, 5, 1, 14, 0, 0, 0, time.UTC)}
	require.Equal(t, http.StatusOK, serve(p, s, call(hookURL, report(m, "Delivered", 0), time.Now())))
	require.Equal(t, []dispatch.Receipt{{
		Provider: "sinch", Account: planID, EventKey: m.ID + "/Delivered/0", Key: key, ProviderID: m.ID, Kind: dispatch.Delivered, Code: "0",
		At: m.At, Recipient: "15555550123",
	}}, s.got)

	for _, c := range []struct {
		status    string
		code      int
		kind      dispatch.ReceiptKind
		permanent bool
	}{
		{"Queued", 400, dispatch.Queued, false},
		{"Dispatched", 401, dispatch.Passed, false},
		{"Failed", 402, dispatch.Undelivered, true},
		{"Failed", 404, dispatch.Undelivered, false},
		{"Expired", 406, dispatch.Undelivered, false},
		{"Rejected", 408, dispatch.Failed, true},
		{"Aborted", 413, dispatch.Failed, false},
		{"Cancelled", 407, dispatch.Failed, true},
		{"Deleted", 402, dispatch.Failed, true},
		{"Unknown", 0, dispatch.Noted, false},
		{"BrandNew", 9, dispatch.Noted, false},
	} {
		s.got = nil
		for range 2 { // B150: a repeat with another time is the same event
			m.At = m.At.Add(time.Second)
			require.Equal(t, http.StatusOK, serve(p, s, call(hookURL, report(m, c.status, c.code), time.Now())))
		}
		require.Equal(t, s.got[0].EventKey, s.got[1].EventKey)
		require.Equal(t, c.kind, s.got[0].Kind, c.status)
		require.Equal(t, c.permanent, s.got[0].Permanent, c.status)
	}
}

// B154: a line that can't be read doesn't take the others with it.
func TestBatchReport(t *testing.T) {
	p, s := open(t, config()), &sink{}
	require.Equal(t, http.StatusOK, serve(p, s, call(hookURL, recorded(t, "report_batch.json"), time.Now())))
	require.Len(t, s.got, 2)
	require.Equal(t, "15555550124", s.got[1].Recipient)
	require.Equal(t, dispatch.Undelivered, s.got[1].Kind)
	require.False(t, s.got[1].Key.IsZero())
	s.got = nil
	body := `{"batch_id":"a","statuses":[{"code":0,"status":"Delivered"},{"status":"BrandNew"},{"status":5.0e1,"code":{}},{"status":null},null,7,{"recipients":"x","status":"Failed"}],"type":"delivery_report_sms"}`
	require.Equal(t, http.StatusOK, serve(p, s, call(hookURL, body, time.Now())))
	require.Len(t, s.got, 3)
	require.EqualValues(t, 4, p.Unread())
	for n, body := range []string{"{", "[]", "null", `{"batch_id":""}`, `{"batch_id":"a\u0000","status":"x"}`} {
		require.Equal(t, http.StatusOK, serve(p, s, call(hookURL, body, time.Now())))
		require.EqualValues(t, 5+n, p.Unread())
	}
}

// Calls that aren't Sinch's change nothing.
func TestRefused(t *testing.T) {
	body := report(sent{Ref: dispatch.NewKey().String(), ID: "a", To: "15555550123", At: time.Now()}, "Delivered", 0)
	const name = "x-sinch-webhook-signature"
	set := func(suffix, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name+suffix, value) }
	}
	now := time.Now()
	for title, c := range map[string]struct {
		at     time.Time
		tamper func(*http.Request)
		want   int
	}{
		"good":              {now, nil, 200},
		"unsigned":          {now, func(r *http.Request) { r.Header.Del(name) }, 401},
		"no base64":         {now, set("", "%%%"), 401},
		"half":              {now, func(r *http.Request) { r.Header.Set(name, r.Header.Get(name)[:20]) }, 401},
		"two":               {now, func(r *http.Request) { r.Header.Add(name, r.Header.Get(name)) }, 401},
		"another algorithm": {now, set("-algorithm", "none"), 401},
		"another nonce":     {now, set("-nonce", "x"), 401},
		"another time":      {now, set("-timestamp", strconv.FormatInt(now.Unix()-1, 10)), 401},
		"no time":           {now, func(r *http.Request) { r.Header.Del(name + "-timestamp") }, 401},
		"one byte":          {now, func(r *http.Request) { r.Body = io.NopCloser(strings.NewReader(body + " ")) }, 401},
		"GET":               {now, func(r *http.Request) { r.Method = http.MethodGet }, 405},
		"endless":           {now, func(r *http.Request) { r.Body = io.NopCloser(strings.NewReader(strings.Repeat(" ", 1<<20+1))) }, 413},
		// B159
		"a repeat":     {now.Add(-47 * time.Hour), nil, 200},
		"too old":      {now.Add(-49 * time.Hour), nil, 401},
		"in a minute":  {now.Add(time.Minute), nil, 200},
		"in a year":    {now.AddDate(1, 0, 0), nil, 401},
		"in ms":        {time.Unix(now.UnixMilli(), 0), nil, 401},
		"before epoch": {time.Unix(-1, 0), nil, 401},
	} {
		t.Run(title, func(t *testing.T) {
			p, s := open(t, config()), &sink{}
			r := call(hookURL, body, c.at)
			if c.tamper != nil {
				c.tamper(r)
			}
			require.Equal(t, c.want, serve(p, s, r))
			require.Equal(t, c.want == 200, len(s.got) == 1)
		})
	}
	none := config()
	none.WebhookSecret = ""
	s := &sink{}
	require.Equal(t, http.StatusUnauthorized, serve(open(t, none), s, call(hookURL, body, now)))
	require.Equal(t, http.StatusUnauthorized, serve(open(t, none), s, callBy("", hookURL, body, now)), "an empty secret is none")
	require.Empty(t, s.got)
}

// B160: what isn't stored is not answered with 200, so that Sinch repeats.
func TestNotStored(t *testing.T) {
	p, s := open(t, config()), &sink{err: errors.New("database is down")}
	body := report(sent{Ref: dispatch.NewKey().String(), ID: "a", At: time.Now()}, "Delivered", 0)
	require.Equal(t, http.StatusServiceUnavailable, serve(p, s, call(hookURL, body, time.Now())))
	s.err = nil
	require.Equal(t, http.StatusOK, serve(p, s, call(hookURL, body, time.Now())))
	require.Len(t, s.got, 1)
}
