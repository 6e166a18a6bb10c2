package twilio_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/twilio"
)

// sink keeps what it is given, or fails.
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

const (
	publicURL = "https://h.example.com/hooks/twilio?shop=1"
	oneKey    = "01890a5d-ac96-774b-bcce-b302099a8057"
	query     = "shop=1&dispatch_key=" + oneKey
	signedURL = "https://h.example.com/hooks/twilio?" + query
)

func hooked(t *testing.T) *twilio.Provider {
	t.Helper()
	p, err := twilio.New(twilio.Config{AccountSID: accountSID, AuthToken: authToken, StatusCallback: publicURL})
	require.NoError(t, err)
	return p
}

// arrives is a callback as the application sees it behind its proxy.
func arrives(body, signature string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "http://10.0.0.5:8080/hooks/twilio?"+query, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if signature != "" {
		r.Header.Set("X-Twilio-Signature", signature)
	}
	return r
}

func signedCall(t *testing.T, body string) *http.Request {
	t.Helper()
	form, err := url.ParseQuery(body)
	require.NoError(t, err)
	return arrives(body, signature(authToken, signedURL, form))
}

func serve(p *twilio.Provider, s dispatch.ReceiptSink, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	p.Webhook(s).ServeHTTP(w, r)
	return w
}

func TestWebhook(t *testing.T) {
	key, err := dispatch.ParseKey(oneKey)
	require.NoError(t, err)
	base := dispatch.Receipt{Provider: "twilio", Account: accountSID, Key: key, ProviderID: "SM1"}
	with := func(event string, kind dispatch.ReceiptKind, code string, permanent bool) dispatch.Receipt {
		r := base
		r.EventKey, r.Kind, r.Code, r.Permanent = "SM1/"+event, kind, code, permanent
		return r
	}
	recordedDelivered, recordedLost := base, base
	recordedDelivered.ProviderID, recordedDelivered.EventKey, recordedDelivered.Kind = oneSID, oneSID+"/delivered", dispatch.Delivered
	recordedLost.ProviderID, recordedLost.EventKey, recordedLost.Kind, recordedLost.Code = oneSID, oneSID+"/undelivered", dispatch.Undelivered, "30003"
	for name, c := range map[string]struct {
		body string
		want dispatch.Receipt
	}{
		"recorded":                    {recorded(t, "callback_delivered.form"), recordedDelivered},
		"recorded, B161, unreachable": {recorded(t, "callback_undelivered.form"), recordedLost},
		"B014, opt-out in a receipt":  {"MessageSid=SM1&MessageStatus=failed&ErrorCode=21610", with("failed", dispatch.Failed, "21610", true)},
		"B016, queue overflow":        {"MessageSid=SM1&MessageStatus=undelivered&ErrorCode=30001", with("undelivered", dispatch.Undelivered, "30001", false)},
		"B161, unknown handset":       {"MessageSid=SM1&MessageStatus=undelivered&ErrorCode=30005", with("undelivered", dispatch.Undelivered, "30005", true)},
		"B161, filtered":              {"MessageSid=SM1&MessageStatus=undelivered&ErrorCode=30007", with("undelivered", dispatch.Undelivered, "30007", true)},
		"B161, unknown error":         {"MessageSid=SM1&MessageStatus=undelivered&ErrorCode=30008", with("undelivered", dispatch.Undelivered, "30008", false)},
		"an unlisted code":            {"MessageSid=SM1&MessageStatus=failed&ErrorCode=39999", with("failed", dispatch.Failed, "39999", false)},
		"accepted":                    {"MessageSid=SM1&MessageStatus=accepted", with("accepted", dispatch.Queued, "", false)},
		"scheduled":                   {"MessageSid=SM1&MessageStatus=scheduled", with("scheduled", dispatch.Queued, "", false)},
		"queued":                      {"MessageSid=SM1&MessageStatus=queued", with("queued", dispatch.Queued, "", false)},
		"sending":                     {"MessageSid=SM1&MessageStatus=sending", with("sending", dispatch.Queued, "", false)},
		"sent":                        {"MessageSid=SM1&MessageStatus=sent", with("sent", dispatch.Passed, "", false)},
		"sent, with a warning":        {"MessageSid=SM1&MessageStatus=sent&ErrorCode=30018", with("sent", dispatch.Passed, "30018", false)},
		"read":                        {"MessageSid=SM1&MessageStatus=read", with("read", dispatch.Opened, "", false)},
		"canceled":                    {"MessageSid=SM1&MessageStatus=canceled", with("canceled", dispatch.Failed, "", false)},
		"partially delivered":         {"MessageSid=SM1&MessageStatus=partially_delivered", with("partially_delivered", dispatch.Undelivered, "", false)},
		"a status of tomorrow":        {"MessageSid=SM1&MessageStatus=teleported", with("teleported", dispatch.Noted, "", false)},
		"the older names":             {"SmsSid=SM1&SmsStatus=Delivered", with("delivered", dispatch.Delivered, "", false)},
		"a repeated field of theirs":  {"MessageSid=SM1&MessageStatus=sent&Extra=1&Extra=2", with("sent", dispatch.Passed, "", false)},
	} {
		t.Run(name, func(t *testing.T) {
			s := &sink{}
			w := serve(hooked(t), s, signedCall(t, c.body))
			require.Equal(t, http.StatusNoContent, w.Code)
			require.Empty(t, w.Body.String())
			require.Equal(t, []dispatch.Receipt{c.want}, s.got)
		})
	}
}

// What is not Twilio's, or can't be read as a whole, leaves no trace.
func TestWebhookRefuses(t *testing.T) {
	const good = "MessageSid=SM1&MessageStatus=delivered&AccountSid=" + accountSID
	form, err := url.ParseQuery(good)
	require.NoError(t, err)
	for name, c := range map[string]struct {
		status  int
		request func() *http.Request
	}{
		"unsigned":                {403, func() *http.Request { return arrives(good, "") }},
		"signed by another token": {403, func() *http.Request { return arrives(good, signature("another", signedURL, form)) }},
		"one changed byte": {403, func() *http.Request {
			return arrives(strings.Replace(good, "SM1", "SM2", 1), signature(authToken, signedURL, form))
		}},
		"another key": {403, func() *http.Request {
			r := signedCall(t, good)
			r.URL.RawQuery = strings.Replace(query, "8057", "8058", 1)
			return r
		}},
		"two signatures": {403, func() *http.Request {
			r := signedCall(t, good)
			r.Header.Add("X-Twilio-Signature", r.Header.Get("X-Twilio-Signature"))
			return r
		}},
		"B155, signed for the inner address": {403, func() *http.Request {
			return arrives(good, signature(authToken, "http://10.0.0.5:8080/hooks/twilio?"+query, form))
		}},
		"B155, a forwarded host": {403, func() *http.Request {
			r := arrives(good, signature(authToken, "https://evil.example/hooks/twilio?"+query, form))
			r.Header.Set("X-Forwarded-Host", "evil.example")
			r.Header.Set("X-Forwarded-Proto", "https")
			r.Host = "evil.example"
			return r
		}},
		"B155, the wrong scheme": {403, func() *http.Request {
			return arrives(good, signature(authToken, strings.Replace(signedURL, "https", "http", 1), form))
		}},
		"B155, the wrong port": {403, func() *http.Request {
			return arrives(good, signature(authToken, strings.Replace(signedURL, ".com", ".com:8443", 1), form))
		}},
		"another account": {403, func() *http.Request { return signedCall(t, strings.Replace(good, accountSID, "AC9", 1)) }},
		"B157, broken form": {400, func() *http.Request {
			return arrives("MessageSid=SM1&MessageStatus=sent&MessageStatus=delivered&X=a;b", signature(authToken, signedURL, form))
		}},
		"B157, a bad escape": {400, func() *http.Request { return arrives(good+"&X=%zz", signature(authToken, signedURL, form)) }},
		"B157, a status twice": {400, func() *http.Request {
			return signedCall(t, "MessageSid=SM1&MessageStatus=sent&MessageStatus=delivered")
		}},
		"B157, an id twice":    {400, func() *http.Request { return signedCall(t, "MessageSid=SM1&MessageSid=SM2&MessageStatus=sent") }},
		"no id":                {400, func() *http.Request { return signedCall(t, "MessageStatus=sent") }},
		"no status":            {400, func() *http.Request { return signedCall(t, "MessageSid=SM1") }},
		"an id that is none":   {400, func() *http.Request { return signedCall(t, "MessageSid=SM%001&MessageStatus=sent") }},
		"a status without end": {400, func() *http.Request { return signedCall(t, "MessageSid=SM1&MessageStatus="+strings.Repeat("x", 200)) }},
		"too large":            {413, func() *http.Request { return signedCall(t, good+"&X="+strings.Repeat("x", 65<<10)) }},
		"GET": {405, func() *http.Request {
			r := signedCall(t, good)
			r.Method = http.MethodGet
			return r
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &sink{}
			require.Equal(t, c.status, serve(hooked(t), s, c.request()).Code)
			require.Empty(t, s.got)
		})
	}
	p, err := twilio.New(twilio.Config{AccountSID: accountSID, AuthToken: authToken})
	require.NoError(t, err)
	require.Equal(t, http.StatusForbidden, serve(p, &sink{}, signedCall(t, good)).Code, "no StatusCallback, no receipts")
}

// B155: the application sees neither the public scheme nor the host, and Twilio
// may have signed with the port.
func TestWebhookBehindAProxy(t *testing.T) {
	const body = "MessageSid=SM1&MessageStatus=delivered"
	form, err := url.ParseQuery(body)
	require.NoError(t, err)
	for _, over := range []string{signedURL, strings.Replace(signedURL, ".com", ".com:443", 1)} {
		s := &sink{}
		r := arrives(body, signature(authToken, over, form))
		r.Header.Set("X-Forwarded-Host", "evil.example")
		r.URL.Path = "/twilio" // the proxy took a part away
		require.Equal(t, http.StatusNoContent, serve(hooked(t), s, r).Code)
		require.Len(t, s.got, 1)
	}
}

// A call for a message that something else sent has no key of ours.
func TestWebhookWithoutKey(t *testing.T) {
	const body = "MessageSid=SM1&MessageStatus=delivered"
	form, err := url.ParseQuery(body)
	require.NoError(t, err)
	for q, status := range map[string]int{
		"": 204, "shop=1": 204, "dispatch_key=": 204, "dispatch_key=123": 204,
		"dispatch_key=" + oneKey + "&dispatch_key=" + oneKey: 400, "a;b": 400,
	} {
		s := &sink{}
		address := "https://h.example.com/hooks/twilio"
		if q != "" {
			address += "?" + q
		}
		r := arrives(body, signature(authToken, address, form))
		r.URL.RawQuery = q
		require.Equal(t, status, serve(hooked(t), s, r).Code, q)
		if status == http.StatusNoContent {
			require.True(t, s.got[0].Key.IsZero())
			require.Equal(t, "SM1", s.got[0].ProviderID)
		}
	}
}

// B160: what isn't stored is not confirmed.
func TestWebhookStoreDown(t *testing.T) {
	s := &sink{err: errors.New("database is down")}
	r := signedCall(t, "MessageSid=SM1&MessageStatus=delivered")
	w := serve(hooked(t), s, r)
	require.Equal(t, http.StatusServiceUnavailable, w.Code)
	require.Empty(t, w.Body.String())
	require.Equal(t, http.StatusServiceUnavailable, serve(hooked(t), nil, signedCall(t, "MessageSid=SM1&MessageStatus=delivered")).Code)
}
