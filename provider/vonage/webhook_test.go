package vonage_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/vonage"
)

// sink keeps receipts, or fails.
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

func serve(p *vonage.Provider, s dispatch.ReceiptSink, r *http.Request) int {
	w := httptest.NewRecorder()
	p.Webhook(s).ServeHTTP(w, r)
	return w.Code
}

const hookURL = "http://127.0.0.1/hooks"

func TestStatusCall(t *testing.T) {
	key, err := dispatch.ParseKey("01920000-0000-7000-8000-000000000001")
	require.NoError(t, err)
	p, s := open(t, config()), &sink{}
	for _, name := range []string{"status_submitted.json", "status_rejected.json"} {
		require.Equal(t, http.StatusOK, serve(p, s, statusCall(t, hookURL, recorded(t, name), nil)))
	}
	const id = "aaaaaaaa-bbbb-4ccc-8ddd-0123456789ab"
	require.Equal(t, []dispatch.Receipt{{
		Provider: "vonage", Account: apiKey, EventKey: id + "/submitted/", Key: key, ProviderID: id, Kind: dispatch.Passed,
		At: time.Date(2026, 5, 1, 14, 0, 0, 0, time.UTC), Recipient: "15555550123",
	}, {
		Provider: "vonage", Account: apiKey, EventKey: id + "/rejected/1240", Key: key, ProviderID: id, Kind: dispatch.Undelivered,
		Code: "1240", Permanent: true, At: time.Date(2026, 5, 1, 14, 0, 9, 0, time.UTC), Recipient: "15555550123",
	}}, s.got)

	// B150: a repeat with another time is the same event. B161: whether a
	// failure stays is told, and nothing more follows from it.
	m := sent{Ref: key.String(), IDs: []string{id}, To: "15555550123", At: time.Now()}
	for status, want := range map[string]struct {
		kind      dispatch.ReceiptKind
		code      string
		permanent bool
	}{
		"delivered": {dispatch.Delivered, "", false}, "undeliverable": {dispatch.Failed, "1331", false}, "read": {dispatch.Opened, "", false},
		"rejected": {dispatch.Undelivered, "1180", false}, "brand_new": {dispatch.Noted, "", false},
	} {
		s.got = nil
		for range 2 {
			m.At = m.At.Add(time.Second)
			require.Equal(t, http.StatusOK, serve(p, s, statusCall(t, hookURL, statusBody(m, status, want.code), nil)))
		}
		require.Equal(t, s.got[0].EventKey, s.got[1].EventKey)
		require.Equal(t, want.kind, s.got[0].Kind)
		require.Equal(t, want.code, s.got[0].Code)
		require.Equal(t, want.permanent, s.got[0].Permanent)
	}
	require.Zero(t, p.Unread())
}

// Calls that aren't Vonage's change nothing.
func TestStatusCallRefused(t *testing.T) {
	body := recorded(t, "status_submitted.json")
	claim := func(name string, value any) func(_, c map[string]any) {
		return func(_, c map[string]any) { c[name] = value }
	}
	now := time.Now()
	for name, c := range map[string]struct {
		change func(header, claims map[string]any)
		tamper func(*http.Request)
		want   int
	}{
		"good":     {nil, nil, 200},
		"unsigned": {nil, func(r *http.Request) { r.Header.Del("Authorization") }, 503}, // Vonage repeats it signed
		"Basic":    {nil, func(r *http.Request) { r.SetBasicAuth(apiKey, apiSecret) }, 401},
		"two tokens": {nil, func(r *http.Request) {
			r.Header.Add("Authorization", r.Header.Get("Authorization"))
		}, 401},
		"no token":    {nil, func(r *http.Request) { r.Header.Set("Authorization", "Bearer") }, 401},
		"two parts":   {nil, func(r *http.Request) { r.Header.Set("Authorization", "Bearer e30.e30") }, 401},
		"no base64":   {nil, func(r *http.Request) { r.Header.Set("Authorization", "Bearer e30.e30.%%%") }, 401},
		"no mac":      {nil, func(r *http.Request) { r.Header.Set("Authorization", "Bearer e30.e30.") }, 401},
		"a byte more": {nil, func(r *http.Request) { r.Header.Set("Authorization", r.Header.Get("Authorization")+"AA") }, 401},
		"another body": {nil, func(r *http.Request) {
			r.Body = io.NopCloser(strings.NewReader(strings.Replace(body, "submitted", "delivered", 1)))
		}, 401},
		"one byte": {nil, func(r *http.Request) {
			r.Body = io.NopCloser(strings.NewReader(body + " "))
		}, 401},
		"alg none":           {func(h, _ map[string]any) { h["alg"] = "none" }, nil, 401},
		"alg RS256":          {func(h, _ map[string]any) { h["alg"] = "RS256" }, nil, 401},
		"another issuer":     {claim("iss", "Nexmo"), nil, 401},
		"another account":    {claim("api_key", "ffff0000"), nil, 401},
		"no hash":            {func(_, c map[string]any) { delete(c, "payload_hash") }, nil, 401},
		"empty hash":         {claim("payload_hash", ""), nil, 401},
		"hash in upper case": {func(_, c map[string]any) { c["payload_hash"] = strings.ToUpper(c["payload_hash"].(string)) }, nil, 200},
		// B159: a time that is none is outside the window.
		"no iat":          {func(_, c map[string]any) { delete(c, "iat") }, nil, 401},
		"iat empty":       {claim("iat", ""), nil, 401},
		"iat NaN":         {claim("iat", "NaN"), nil, 401},
		"iat null":        {claim("iat", nil), nil, 401},
		"iat 1e999":       {claim("iat", json.Number("1e999")), nil, 401},
		"iat negative":    {claim("iat", -1), nil, 401},
		"iat in a year":   {claim("iat", now.AddDate(1, 0, 0).Unix()), nil, 401},
		"iat in ms":       {claim("iat", now.UnixMilli()), nil, 401},
		"iat in 10 min":   {claim("iat", now.Add(10*time.Minute).Unix()), nil, 401},
		"iat in 1 min":    {claim("iat", now.Add(time.Minute).Unix()), nil, 200},
		"a repeat":        {claim("iat", now.Add(-24*time.Hour).Unix()), nil, 200},
		"too old":         {claim("iat", now.Add(-25*time.Hour-time.Minute).Unix()), nil, 401},
		"expired":         {claim("exp", now.Add(-time.Minute).Unix()), nil, 401},
		"exp nonsense":    {claim("exp", json.Number("1e999")), nil, 401},
		"not yet":         {claim("nbf", now.Add(time.Hour).Unix()), nil, 401},
		"GET":             {nil, func(r *http.Request) { r.Method = http.MethodGet }, 405},
		"endless":         {nil, func(r *http.Request) { r.Body = io.NopCloser(strings.NewReader(strings.Repeat(" ", 65<<10))) }, 413},
		"broken transfer": {nil, func(r *http.Request) { r.Body = io.NopCloser(brokenReader{}) }, 400},
	} {
		t.Run(name, func(t *testing.T) {
			p, s := open(t, config()), &sink{}
			r := statusCall(t, hookURL, body, c.change)
			if c.tamper != nil {
				c.tamper(r)
			}
			require.Equal(t, c.want, serve(p, s, r))
			require.Equal(t, c.want == 200, len(s.got) == 1)
		})
	}
	none := config()
	none.SignatureSecret = ""
	s := &sink{}
	require.Equal(t, http.StatusUnauthorized, serve(open(t, none), s, statusCall(t, hookURL, body, nil)), "an empty secret checks nothing")
	wrong := config()
	wrong.SignatureSecret = "hunter2-signaturE"
	require.Equal(t, http.StatusUnauthorized, serve(open(t, wrong), s, statusCall(t, hookURL, body, nil)))
	require.Empty(t, s.got)
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// B160: what isn't stored is not answered with 200, so that Vonage repeats.
func TestNotStored(t *testing.T) {
	p := open(t, config())
	s := &sink{err: errors.New("database is down")}
	require.Equal(t, http.StatusServiceUnavailable, serve(p, s, statusCall(t, hookURL, recorded(t, "status_submitted.json"), nil)))
	s.err = nil
	require.Equal(t, http.StatusOK, serve(p, s, statusCall(t, hookURL, recorded(t, "status_submitted.json"), nil)))
	require.Len(t, s.got, 1)
	require.Equal(t, http.StatusServiceUnavailable, serve(p, nil, statusCall(t, hookURL, recorded(t, "status_submitted.json"), nil)))
}

// A signed call that says nothing of a message is counted, and not repeated
// for a day. A reference that is none of ours goes by the id.
func TestUnreadCalls(t *testing.T) {
	p, s := open(t, config()), &sink{}
	for n, body := range []string{`{`, `[]`, `null`, `{"status":5}`, `{"message_uuid":"a"}`, `{"message_uuid":"","status":"x"}`, `{"message_uuid":"a\u0000","status":"x"}`} {
		require.Equal(t, http.StatusOK, serve(p, s, statusCall(t, hookURL, body, nil)))
		require.EqualValues(t, n+1, p.Unread(), body)
	}
	require.Empty(t, s.got)
	require.Equal(t, http.StatusOK, serve(p, s, statusCall(t, hookURL, `{"message_uuid":"a","status":"delivered","client_ref":"another app's","timestamp":"99999-01-01"}`, nil)))
	require.Equal(t, []dispatch.Receipt{{Provider: "vonage", Account: apiKey, EventKey: "a/delivered/", ProviderID: "a", Kind: dispatch.Delivered}}, s.got)
}

func smsProvider(t *testing.T) *vonage.Provider {
	t.Helper()
	cfg := config()
	cfg.API = vonage.SMS
	return open(t, cfg)
}

// The three forms of a receipt say the same.
func TestReceiptForms(t *testing.T) {
	p := smsProvider(t)
	key := dispatch.NewKey()
	m := sent{Ref: key.String(), To: "15555550123", From: "Shop & Co", IDs: []string{"0A01", "0A02", "0A03"}, At: time.Date(2026, 5, 1, 14, 0, 0, 0, time.UTC)}
	want := dispatch.Receipt{
		Provider: "vonage", Account: apiKey, EventKey: "0A01/delivered/0", Key: key, Kind: dispatch.Delivered, Code: "0", At: m.At, Recipient: "15555550123",
	}
	form := receiptForm(m, 0, "delivered", "0", nil)
	get := httptest.NewRequest(http.MethodGet, hookURL+"?"+form.Encode(), nil)
	flat := map[string]string{}
	for name := range form {
		flat[name] = form.Get(name)
	}
	b, err := json.Marshal(flat)
	require.NoError(t, err)
	post := httptest.NewRequest(http.MethodPost, hookURL, strings.NewReader(string(b)))
	post.Header.Set("Content-Type", "application/json; charset=utf-8")
	for name, r := range map[string]*http.Request{"form": receiptCall(hookURL, form), "GET": get, "JSON": post} {
		s := &sink{}
		require.Equal(t, http.StatusOK, serve(p, s, r), name)
		require.Equal(t, []dispatch.Receipt{want}, s.got, name)
	}

	// B149: one receipt for each part, each kept.
	s := &sink{}
	for part, status := range []string{"delivered", "failed", "delivered"} {
		require.Equal(t, http.StatusOK, serve(p, s, receiptCall(hookURL, receiptForm(m, part, status, strconv.Itoa(part*9), nil))))
	}
	require.Len(t, s.got, 3)
	for n, want := range []string{"0A01/delivered/0", "0A02/failed/9", "0A03/delivered/18"} {
		require.Equal(t, want, s.got[n].EventKey)
		require.Equal(t, key, s.got[n].Key)
		require.Empty(t, s.got[n].ProviderID, "a part's id is not another message's")
	}
	require.True(t, s.got[1].Permanent, "9 is an opt-out")

	for status, kind := range map[string]dispatch.ReceiptKind{
		"accepted": dispatch.Passed, "buffered": dispatch.Deferred, "expired": dispatch.Undelivered, "rejected": dispatch.Failed,
		"unknown": dispatch.Noted, "deleted": dispatch.Undelivered, "brand_new": dispatch.Noted,
	} {
		s.got = nil
		require.Equal(t, http.StatusOK, serve(p, s, receiptCall(hookURL, receiptForm(m, 0, status, "2", nil))))
		require.Equal(t, kind, s.got[0].Kind, status)
		require.False(t, s.got[0].Permanent, "2 is a handset that is off")
	}

	s.got, m.Ref = nil, "" // not ours, or sent by hand: by the id
	require.Equal(t, http.StatusOK, serve(p, s, receiptCall(hookURL, receiptForm(m, 1, "delivered", "0", nil))))
	require.Equal(t, "0A02", s.got[0].ProviderID)
	require.True(t, s.got[0].Key.IsZero())
}

func TestReceiptRefused(t *testing.T) {
	key := dispatch.NewKey()
	m := sent{Ref: key.String(), To: "15555550123", From: "Shop", IDs: []string{"0A01"}, At: time.Now()}
	set := func(name, value string) func(url.Values) { return func(f url.Values) { f.Set(name, value) } }
	unix := func(d time.Duration) string { return strconv.FormatInt(time.Now().Add(d).Unix(), 10) }
	for name, c := range map[string]struct {
		signed   func(url.Values) // before the signature
		tampered func(url.Values) // behind it
		want     int
	}{
		"good":            {nil, nil, 200},
		"unsigned":        {nil, func(f url.Values) { f.Del("sig") }, 401},
		"empty sig":       {nil, set("sig", ""), 401},
		"no hex":          {nil, set("sig", "zz"), 401},
		"half a sig":      {nil, func(f url.Values) { f.Set("sig", f.Get("sig")[:32]) }, 401},
		"lower case":      {nil, func(f url.Values) { f.Set("sig", strings.ToLower(f.Get("sig"))) }, 200},
		"one byte":        {nil, set("status", "deliverec"), 401},
		"another ref":     {nil, set("client-ref", dispatch.NewKey().String()), 401},
		"a field more":    {nil, set("x", "1"), 401},
		"a field less":    {nil, func(f url.Values) { f.Del("err-code") }, 401},
		"another account": {set("api-key", "ffff0000"), nil, 401},
		// The signed text stays the same, and two fields would become one.
		"a name that hides": {nil, func(f url.Values) {
			f.Set("scts="+f.Get("scts")+"&status", f.Get("status"))
			f.Del("scts")
			f.Del("status")
		}, 400},
		// B159
		"no timestamp":    {func(f url.Values) { f.Del("timestamp") }, nil, 401},
		"timestamp empty": {set("timestamp", ""), nil, 401},
		"timestamp NaN":   {set("timestamp", "NaN"), nil, 401},
		"timestamp 1e999": {set("timestamp", "1e999"), nil, 401},
		"timestamp -1":    {set("timestamp", "-1"), nil, 401},
		"in a year":       {set("timestamp", unix(366*24*time.Hour)), nil, 401},
		"in ms":           {set("timestamp", strconv.FormatInt(time.Now().UnixMilli(), 10)), nil, 401},
		"a repeat":        {set("timestamp", unix(-24*time.Hour)), nil, 200},
		"too old":         {set("timestamp", unix(-26*time.Hour)), nil, 401},
	} {
		t.Run(name, func(t *testing.T) {
			s := &sink{}
			form := receiptForm(m, 0, "delivered", "0", c.signed)
			if c.tampered != nil {
				c.tampered(form)
			}
			require.Equal(t, c.want, serve(smsProvider(t), s, receiptCall(hookURL, form)))
			require.Equal(t, c.want == 200, len(s.got) == 1)
		})
	}
}

// B157: a body that can be read in two ways is refused.
func TestBrokenBodies(t *testing.T) {
	p, s := smsProvider(t), &sink{}
	m := sent{Ref: dispatch.NewKey().String(), To: "15555550123", From: "Shop", IDs: []string{"0A01"}, At: time.Now()}
	form := receiptForm(m, 0, "delivered", "0", nil)
	for _, body := range []string{form.Encode() + "&X=a;b", form.Encode() + "&status=failed", "%zz", "a=%"} {
		r := httptest.NewRequest(http.MethodPost, hookURL, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		require.Equal(t, http.StatusBadRequest, serve(p, s, r), body)
	}
	for _, body := range []string{``, `[]`, `{"a":{}}`, `{"a":1,"a":2}`, `{"a":1}{}`, `{"a":1`, `{"a"`, `{1:2}`} {
		r := httptest.NewRequest(http.MethodPost, hookURL, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		require.Equal(t, http.StatusBadRequest, serve(p, s, r), body)
	}
	require.Equal(t, http.StatusUnauthorized, serve(p, s, httptest.NewRequest(http.MethodPost, hookURL, nil)))
	require.Empty(t, s.got)
	// An empty secret is no secret: whoever knows that could sign.
	none := config()
	none.API, none.SignatureSecret = vonage.SMS, ""
	mac := hmac.New(sha256.New, nil)
	mac.Write([]byte("&messageId=0A01&status=delivered&timestamp=" + strconv.FormatInt(time.Now().Unix(), 10)))
	form = url.Values{
		"messageId": {"0A01"}, "status": {"delivered"}, "timestamp": {strconv.FormatInt(time.Now().Unix(), 10)}, "sig": {hex.EncodeToString(mac.Sum(nil))},
	}
	require.Equal(t, http.StatusUnauthorized, serve(open(t, none), s, receiptCall(hookURL, form)))
	require.Empty(t, s.got)
	// Signed, and without a message: counted.
	form = signForm(url.Values{"timestamp": {strconv.FormatInt(time.Now().Unix(), 10)}})
	require.Equal(t, http.StatusOK, serve(p, s, receiptCall(hookURL, maps.Clone(form))))
	require.EqualValues(t, 1, p.Unread())
}
