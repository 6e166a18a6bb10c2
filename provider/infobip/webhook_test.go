package infobip_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/infobip"
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

func serve(p *infobip.Provider, s dispatch.ReceiptSink, r *http.Request) int {
	w := httptest.NewRecorder()
	p.Webhook(s).ServeHTTP(w, r)
	return w.Code
}

const hookURL = "http://127.0.0.1/hooks"

func TestReports(t *testing.T) {
	p, s := open(t, config()), &sink{}
	require.Equal(t, http.StatusOK, serve(p, s, post(hookURL+"?token="+secret, recorded(t, "reports.json"))))
	one, err := dispatch.ParseKey("01920000-0000-7000-8000-000000000001")
	require.NoError(t, err)
	two, err := dispatch.ParseKey("01920000-0000-7000-8000-000000000002")
	require.NoError(t, err)
	require.Equal(t, []dispatch.Receipt{{
		Provider: "infobip", Account: "api.infobip.com", EventKey: one.String() + "/5/5", Key: one, ProviderID: one.String(), Kind: dispatch.Delivered,
		Code: "5", At: time.Date(2026, 5, 1, 12, 0, 5, 0, time.UTC), Recipient: "15555550123",
	}, {
		Provider: "infobip", Account: "api.infobip.com", EventKey: two.String() + "/9/603", Key: two, ProviderID: two.String(), Kind: dispatch.Undelivered,
		Code: "603", Permanent: true, At: time.Date(2026, 5, 1, 14, 0, 6, 0, time.UTC), Recipient: "15555550124",
	}}, s.got)

	key := dispatch.NewKey()
	m := sent{ID: key.String(), To: "15555550123", At: time.Now()}
	for _, c := range []struct {
		group, id int
		kind      dispatch.ReceiptKind
		ours      bool
	}{
		{1, 26, dispatch.Queued, true},
		{1, 7, dispatch.Passed, true},
		{1, 3, dispatch.Passed, true},
		{3, 2, dispatch.Passed, true},
		{3, 5, dispatch.Delivered, true},
		{2, 4, dispatch.Undelivered, true},
		{4, 15, dispatch.Undelivered, true},
		{5, 12, dispatch.Failed, false}, // no acceptance: by the id alone
		{7, 99, dispatch.Noted, true},
	} {
		s.got = nil
		for range 2 { // B150: a repeat with another time is the same event
			m.At = m.At.Add(time.Second)
			require.Equal(t, http.StatusOK, serve(p, s, call(hookURL, report(m, c.group, c.id))))
		}
		require.Equal(t, s.got[0].EventKey, s.got[1].EventKey)
		require.Equal(t, c.kind, s.got[0].Kind, fmt.Sprint(c.group, c.id))
		require.Equal(t, c.ours, s.got[0].Key == key)
		require.Equal(t, key.String(), s.got[0].ProviderID)
		require.False(t, s.got[0].Permanent)
	}

	// The trap: a repeat that was rejected for its id has the first one's id.
	s.got = nil
	require.Equal(t, http.StatusOK, serve(p, s, call(hookURL, report(m, 5, 23))))
	require.Empty(t, s.got)
	require.Zero(t, p.Unread())
}

// B154: one report that can't be read doesn't take the others with it.
func TestBadReports(t *testing.T) {
	p, s := open(t, config()), &sink{}
	m := sent{ID: dispatch.NewKey().String(), To: "15555550123", At: time.Now()}
	bad := []any{
		nil, 7, "x",
		[]any{},
		map[string]any{},
		map[string]any{"messageId": m.ID},
		map[string]any{"messageId": m.ID, "status": 5},
		map[string]any{"messageId": m.ID, "status": map[string]any{"groupId": 3}},
		map[string]any{"messageId": "", "status": statusOf(3, 5, "")},
		map[string]any{"messageId": "a\x00", "status": statusOf(3, 5, "")},
	}
	require.Equal(t, http.StatusOK, serve(p, s, call(hookURL, append(append([]any{report(m, 1, 7)}, bad...), report(m, 3, 5))...)))
	require.Len(t, s.got, 2)
	require.EqualValues(t, len(bad), p.Unread())

	// B154, B005: kinds nobody has listed, numbers as text, an odd time.
	s.got = nil
	odd := map[string]any{"messageId": m.ID, "doneAt": "NaN", "status": map[string]any{"groupId": "9", "id": "4711"}, "error": map[string]any{"id": nil, "permanent": "yes"}}
	require.Equal(t, http.StatusOK, serve(p, s, call(hookURL, odd)))
	require.Equal(t, dispatch.Noted, s.got[0].Kind)
	require.Equal(t, "4711", s.got[0].Code)
	require.True(t, s.got[0].At.IsZero())

	s.got = nil
	var many []any
	for range 2000 {
		many = append(many, report(sent{ID: dispatch.NewKey().String(), To: "15555550123", At: time.Now()}, 3, 5))
	}
	require.Equal(t, http.StatusOK, serve(p, s, call(hookURL, many...)))
	require.Len(t, s.got, 2000)

	before := p.Unread()
	for n, body := range []string{"{", "[]", "null", "{}", `{"results":null}`, `{"results":7}`} {
		require.Equal(t, http.StatusOK, serve(p, s, post(hookURL+"?token="+secret, body)), body)
		require.EqualValues(t, before+int64(n)+1, p.Unread(), body)
	}
}

// Calls without the secret change nothing.
func TestRefused(t *testing.T) {
	m := sent{ID: dispatch.NewKey().String(), To: "15555550123", At: time.Now()}
	for name, c := range map[string]struct {
		query  string
		tamper func(*http.Request)
		want   int
	}{
		"token":            {"?token=" + secret, nil, 200},
		"among others":     {"?a=1&token=" + secret + "&b=2", nil, 200},
		"Basic":            {"", func(r *http.Request) { r.SetBasicAuth("anyone", secret) }, 200},
		"none":             {"", nil, 401},
		"empty":            {"?token=", nil, 401},
		"one byte":         {"?token=" + secret[:len(secret)-1] + "T", nil, 401},
		"shorter":          {"?token=" + secret[:len(secret)-1], nil, 401},
		"longer":           {"?token=" + secret + "x", nil, 401},
		"twice":            {"?token=" + secret + "&token=x", nil, 401},
		"half parsed":      {"?token=" + secret + "&a;b", nil, 401}, // B157
		"wrong Basic":      {"", func(r *http.Request) { r.SetBasicAuth(secret, "") }, 401},
		"Bearer":           {"", func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+secret) }, 401},
		"no base64":        {"", func(r *http.Request) { r.Header.Set("Authorization", "Basic %%%") }, 401},
		"two fields":       {"", func(r *http.Request) { r.SetBasicAuth("a", secret); r.Header.Add("Authorization", "Basic x") }, 401},
		"GET":              {"?token=" + secret, func(r *http.Request) { r.Method = http.MethodGet }, 405},
		"endless":          {"?token=" + secret, func(r *http.Request) { r.Body = io.NopCloser(strings.NewReader(strings.Repeat(" ", 1<<20+1))) }, 413},
		"the body's token": {"", func(r *http.Request) { r.Body = io.NopCloser(strings.NewReader("token=" + secret)) }, 401},
	} {
		t.Run(name, func(t *testing.T) {
			p, s := open(t, config()), &sink{}
			r := call(hookURL, report(m, 3, 5))
			r.URL.RawQuery = strings.TrimPrefix(c.query, "?")
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
	for _, query := range []string{"", "token="} {
		r := call(hookURL, report(m, 3, 5))
		r.URL.RawQuery = query
		require.Equal(t, http.StatusUnauthorized, serve(open(t, none), s, r), "an empty secret is none")
	}
	require.Empty(t, s.got)
}

// B160: what isn't stored is not answered with 200, so that Infobip repeats.
func TestNotStored(t *testing.T) {
	p, s := open(t, config()), &sink{err: errors.New("database is down")}
	r := func() *http.Request { return call(hookURL, report(sent{ID: "a", At: time.Now()}, 3, 5)) }
	require.Equal(t, http.StatusServiceUnavailable, serve(p, s, r()))
	s.err = nil
	require.Equal(t, http.StatusOK, serve(p, s, r()))
	require.Len(t, s.got, 1)
}
