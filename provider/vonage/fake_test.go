package vonage_test

import (
	"bytes"
	"crypto"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	apiKey    = "abcd1234"
	apiSecret = "hunter2-api"
	appID     = "aaaaaaaa-bbbb-4ccc-8ddd-000000000001"
	secret    = "hunter2-signature"
)

// appKey is an application's key pair, made once.
var appKey = sync.OnceValues(func() (*rsa.PrivateKey, []byte) {
	k, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	b, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		panic(err)
	}
	return k, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: b})
})

// sent is a message that the fake took, with the id of each part.
type sent struct {
	Ref, To, From, Text, Type string
	IDs                       []string
	At                        time.Time
}

// fake is Vonage on the loopback, as strict as its documents: both APIs, and
// reports with a lag and pages.
type fake struct {
	URL   string
	Lag   time.Duration    // how long a message is missing in reports
	Page  int              // records in a report, 1000 where zero
	NoRef bool             // reports leave the reference out
	Lose  func(n int) bool // loses the answer of the nth call, from 1
	Drop  func(n int) bool // loses the nth call itself
	Early func(m sent)     // is called before the answer
	mu    sync.Mutex
	calls int
	taken []sent
}

func newFake(t *testing.T) *fake {
	t.Helper()
	f := &fake{}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/messages", f.messages)
	mux.HandleFunc("POST /sms/json", f.sms)
	mux.HandleFunc("GET /v2/reports/records", f.reports)
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	f.URL = s.URL
	return f
}

func (f *fake) messagesTaken() []sent {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.taken)
}

// deliveries counts the messages that went out under a reference.
func (f *fake) deliveries() map[string]int {
	out := map[string]int{}
	for _, m := range f.messagesTaken() {
		out[m.Ref]++
	}
	return out
}

// take writes a message down, and loses the answer where it shall.
func (f *fake) take(m sent, parts int) sent {
	f.mu.Lock()
	f.calls++
	n := f.calls
	if f.Drop != nil && f.Drop(n) {
		f.mu.Unlock()
		panic(http.ErrAbortHandler)
	}
	m.At = time.Now()
	for part := range parts {
		m.IDs = append(m.IDs, fmt.Sprintf("0A%012d%02X", n, part))
	}
	f.taken = append(f.taken, m)
	f.mu.Unlock()
	if f.Early != nil {
		f.Early(m)
	}
	if f.Lose != nil && f.Lose(n) {
		panic(http.ErrAbortHandler)
	}
	return m
}

var msisdn = regexp.MustCompile(`^[1-9]\d{6,14}$`)

func problem(w http.ResponseWriter, status int, code, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{
		"type": "https://developer.vonage.com/api-errors/messages#" + code, "title": "Error", "detail": detail, "instance": "bf0ca0bf927b3b52e3cb03217e1a1ddf",
	})
}

func (f *fake) messages(w http.ResponseWriter, r *http.Request) {
	if !authorized(r) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, `{"type":"https://developer.vonage.com/api-errors#unauthorized","title":"Unauthorized","detail":"You did not provide correct credentials.","instance":"1"}`)
		return
	}
	var body struct {
		Type    string `json:"message_type"`
		Channel string `json:"channel"`
		To      string `json:"to"`
		From    string `json:"from"`
		Text    string `json:"text"`
		Ref     string `json:"client_ref"`
		TTL     int    `json:"ttl"`
		Webhook string `json:"webhook_url"`
		Version string `json:"webhook_version"`
		SMS     struct {
			Encoding string `json:"encoding_type"`
			Entity   string `json:"entity_id"`
			Content  string `json:"content_id"`
		} `json:"sms"`
	}
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	switch err := d.Decode(&body); {
	case err != nil || r.Header.Get("Content-Type") != "application/json":
		problem(w, http.StatusUnprocessableEntity, "1150", "not understood")
	case body.Type != "text" || body.Channel != "sms":
		problem(w, http.StatusUnprocessableEntity, "1400", "channel")
	case !msisdn.MatchString(body.To):
		problem(w, http.StatusUnprocessableEntity, "1430", body.To+" is not valid")
	case body.From == "" || strings.HasPrefix(body.From, "+"):
		problem(w, http.StatusUnprocessableEntity, "1420", "from")
	case body.Text == "" || len([]rune(body.Text)) > 1000 || len(body.Ref) > 100:
		problem(w, http.StatusUnprocessableEntity, "1150", "text or client_ref")
	default:
		m := f.take(sent{Ref: body.Ref, To: body.To, From: body.From, Text: body.Text, Type: body.SMS.Encoding}, 1)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusAccepted)
		_ = json.NewEncoder(w).Encode(map[string]string{"message_uuid": m.IDs[0]})
	}
}

func (f *fake) sms(w http.ResponseWriter, r *http.Request) {
	refuse := func(status, text string) {
		_ = json.NewEncoder(w).Encode(map[string]any{"message-count": "1", "messages": []any{map[string]string{"status": status, "error-text": text}}})
	}
	w.Header().Set("Content-Type", "application/json")
	if !authorized(r) {
		refuse("4", "Bad Credentials")
		return
	}
	if err := r.ParseForm(); err != nil {
		refuse("3", "Invalid")
		return
	}
	form := r.PostForm
	switch {
	case form.Get("to") == "" || form.Get("from") == "" || form.Get("text") == "":
		refuse("2", "Missing params")
	case !msisdn.MatchString(form.Get("to")) || strings.HasPrefix(form.Get("from"), "+"):
		refuse("3", "Invalid value for param: to "+form.Get("to"))
	case len(form.Get("client-ref")) > 100 || len(form.Get("callback")) > 100:
		refuse("3", "Invalid")
	default:
		m := f.take(sent{Ref: form.Get("client-ref"), To: form.Get("to"), From: form.Get("from"), Text: form.Get("text"), Type: form.Get("type")}, 1+len(form.Get("text"))/161)
		var parts []any
		for _, id := range m.IDs {
			parts = append(parts, map[string]string{"to": m.To, "message-id": id, "status": "0", "remaining-balance": "3.14", "message-price": "0.03", "network": "12345", "client-ref": m.Ref})
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"message-count": strconv.Itoa(len(parts)), "messages": parts})
	}
}

func (f *fake) reports(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	from, err1 := time.Parse(time.RFC3339, q.Get("date_start"))
	until, err2 := time.Parse(time.RFC3339, q.Get("date_end"))
	user, password, _ := r.BasicAuth()
	switch {
	case user != apiKey || password != apiSecret:
		problem(w, http.StatusUnauthorized, "unauthorized", "")
		return
	case err1 != nil || err2 != nil || until.Sub(from) > 24*time.Hour || q.Get("direction") != "outbound" || q.Get("account_id") != apiKey:
		problem(w, http.StatusUnprocessableEntity, "invalid", "")
		return
	}
	records, status := []any{}, "SUCCESS"
	for _, m := range f.messagesTaken() {
		if m.To != q.Get("to") || m.At.Before(from) || !m.At.Before(until) || time.Since(m.At) < f.Lag {
			continue
		}
		record := map[string]string{"account_id": apiKey, "message_id": m.IDs[0], "client_ref": m.Ref, "to": m.To, "status": "submitted"}
		if f.NoRef {
			delete(record, "client_ref")
		}
		if f.Page > 0 && len(records) == f.Page {
			status = "TRUNCATED"
			break
		}
		records = append(records, record)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"request_status": status, "items_count": len(records), "records": records})
}

// authorized checks Basic, or a JWT of the application.
func authorized(r *http.Request) bool {
	if user, password, ok := r.BasicAuth(); ok {
		return user == apiKey && password == apiSecret
	}
	parts := strings.Split(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), ".")
	if len(parts) != 3 {
		return false
	}
	signature, _ := base64.RawURLEncoding.DecodeString(parts[2])
	sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	key, _ := appKey()
	if rsa.VerifyPKCS1v15(&key.PublicKey, crypto.SHA256, sum[:], signature) != nil {
		return false
	}
	raw, _ := base64.RawURLEncoding.DecodeString(parts[1])
	var c struct {
		Application string `json:"application_id"`
		Issued      int64  `json:"iat"`
		Expires     int64  `json:"exp"`
		ID          string `json:"jti"`
	}
	now := time.Now().Unix()
	return json.Unmarshal(raw, &c) == nil && c.Application == appID && c.ID != "" && c.Issued <= now && now < c.Expires
}

// statusCall is a status call of the Messages API, with its signature.
func statusCall(t *testing.T, url, body string, change func(header, claims map[string]any)) *http.Request {
	t.Helper()
	sum := sha256.Sum256([]byte(body))
	header := map[string]any{"alg": "HS256", "typ": "JWT"}
	claims := map[string]any{
		"iss": "Vonage", "iat": time.Now().Unix(), "jti": rand.Text(), "api_key": apiKey, "application_id": appID,
		"payload_hash": hex.EncodeToString(sum[:]),
	}
	if change != nil {
		change(header, claims)
	}
	part := func(v any) string {
		b, err := json.Marshal(v)
		require.NoError(t, err)
		return base64.RawURLEncoding.EncodeToString(b)
	}
	text := part(header) + "." + part(claims)
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(text))
	r := httptest.NewRequest(http.MethodPost, url, strings.NewReader(body))
	r.RequestURI = ""
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+text+"."+base64.RawURLEncoding.EncodeToString(mac.Sum(nil)))
	return r
}

func statusBody(m sent, status, code string) string {
	body := map[string]any{
		"message_uuid": m.IDs[0], "to": m.To, "from": m.From, "timestamp": m.At.UTC().Format("2006-01-02T15:04:05.000Z"), "status": status,
		"client_ref": m.Ref, "channel": "sms", "usage": map[string]string{"currency": "EUR", "price": "0.0333"}, "sms": map[string]string{"count_total": "1"},
	}
	if code != "" {
		body["error"] = map[string]string{"type": "https://developer.vonage.com/api-errors/messages#" + code, "title": code, "detail": "x", "instance": "1"}
	}
	b, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// receiptForm is a delivery receipt of the SMS API for one part, signed by
// HMAC-SHA256: another implementation than the one under test.
func receiptForm(m sent, part int, status, code string, change func(url.Values)) url.Values {
	form := url.Values{
		"msisdn": {m.To}, "to": {m.From}, "network-code": {"12345"}, "messageId": {m.IDs[part]}, "price": {"0.0333"}, "status": {status},
		"scts": {"2605011400"}, "err-code": {code}, "api-key": {apiKey}, "client-ref": {m.Ref},
		"message-timestamp": {m.At.UTC().Format(time.DateTime)}, "timestamp": {strconv.FormatInt(time.Now().Unix(), 10)}, "nonce": {rand.Text()},
	}
	if change != nil {
		change(form)
	}
	return signForm(form)
}

func signForm(form url.Values) url.Values {
	form.Del("sig")
	var names []string
	for name := range form {
		names = append(names, name)
	}
	slices.Sort(names)
	var text bytes.Buffer
	for _, name := range names {
		value := strings.ReplaceAll(strings.ReplaceAll(form.Get(name), "&", "_"), "=", "_")
		fmt.Fprintf(&text, "&%s=%s", name, value)
	}
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(text.Bytes())
	form.Set("sig", strings.ToUpper(hex.EncodeToString(mac.Sum(nil))))
	return form
}

func receiptCall(url string, form url.Values) *http.Request {
	r := httptest.NewRequest(http.MethodPost, url, strings.NewReader(form.Encode()))
	r.RequestURI = ""
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return r
}
