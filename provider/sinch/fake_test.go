package sinch_test

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	planID = "jd63jf88477ll123ab4567cd89012ef3"
	token  = "hunter2-token"
	secret = "hunter2-webhook"
)

// sent is a batch that the fake took.
type sent struct {
	Ref, To, From, Text, Report, Callback, ID string
	At                                        time.Time
}

// fake is Sinch on the loopback, as strict as its documents; its list of
// batches has a lag, and shows the last day only where no start is asked for.
type fake struct {
	URL    string
	Lag    time.Duration
	Lose   func(n int) bool // loses the answer of the nth call, from 1
	Drop   func(n int) bool // loses the nth call itself
	Early  func(m sent)     // is called before the answer
	Unfilt bool             // the list ignores its filter
	Age    time.Duration    // how much older the batches are in the list

	mu    sync.Mutex
	calls int
	taken []sent
}

func newFake(t *testing.T) *fake {
	t.Helper()
	f := &fake{}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /xms/v1/"+planID+"/batches", f.send)
	mux.HandleFunc("GET /xms/v1/"+planID+"/batches", f.list)
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

var msisdn = regexp.MustCompile(`^[1-9]\d{6,14}$`)

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func refuse(w http.ResponseWriter, status int, code, text string) {
	answer(w, status, map[string]string{"code": code, "text": text})
}

func (f *fake) send(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Bearer "+token {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	var body struct {
		To       []string `json:"to"`
		From     string   `json:"from"`
		Type     string   `json:"type"`
		Body     string   `json:"body"`
		Report   string   `json:"delivery_report"`
		Callback string   `json:"callback_url"`
		Ref      string   `json:"client_reference"`
	}
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	switch err := d.Decode(&body); {
	case err != nil:
		refuse(w, http.StatusBadRequest, "syntax_invalid_json", "Invalid JSON")
		return
	case len(body.To) != 1 || !msisdn.MatchString(body.To[0]):
		refuse(w, http.StatusBadRequest, "syntax_invalid_parameter_format", fmt.Sprint("Invalid format of msisdn: ", body.To))
		return
	case body.Type != "mt_text" || body.Body == "" || len([]rune(body.Body)) > 2000:
		refuse(w, http.StatusBadRequest, "syntax_constraint_violation", "body")
		return
	}
	f.mu.Lock()
	f.calls++
	n := f.calls
	if f.Drop != nil && f.Drop(n) {
		f.mu.Unlock()
		panic(http.ErrAbortHandler)
	}
	m := sent{
		Ref: body.Ref, To: body.To[0], From: body.From, Text: body.Body, Report: body.Report, Callback: body.Callback,
		ID: fmt.Sprintf("01JHFFHQ0P99JPPNQ%09d", n), At: time.Now(),
	}
	f.taken = append(f.taken, m)
	f.mu.Unlock()
	if f.Early != nil {
		f.Early(m)
	}
	if f.Lose != nil && f.Lose(n) {
		panic(http.ErrAbortHandler)
	}
	answer(w, http.StatusCreated, batch(m))
}

func batch(m sent) map[string]any {
	return map[string]any{
		"id": m.ID, "to": []string{m.To}, "from": m.From, "canceled": false, "body": m.Text, "type": "mt_text",
		"client_reference": m.Ref, "created_at": m.At.UTC().Format(time.RFC3339Nano), "delivery_report": m.Report,
	}
}

func (f *fake) list(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	since := time.Now().Add(-24 * time.Hour)
	if s := q.Get("start_date"); s != "" {
		t, err := time.Parse("2006-01-02T15:04:05.000Z", s)
		if err != nil {
			refuse(w, http.StatusBadRequest, "syntax_invalid_parameter_format", "start_date")
			return
		}
		since = t
	}
	all := []any{}
	for _, m := range f.messagesTaken() {
		m.At = m.At.Add(-f.Age)
		if (f.Unfilt || m.Ref == q.Get("client_reference")) && !m.At.Before(since) && time.Since(m.At) >= f.Lag {
			all = append(all, batch(m))
		}
	}
	answer(w, http.StatusOK, map[string]any{"count": len(all), "page": 0, "batches": all, "page_size": len(all)})
}

// call is a signed callback.
func call(url, body string, at time.Time) *http.Request { return callBy(secret, url, body, at) }

func callBy(secret, url, body string, at time.Time) *http.Request {
	r := httptest.NewRequest(http.MethodPost, url, strings.NewReader(body))
	r.RequestURI = ""
	nonce, stamp := rand.Text(), strconv.FormatInt(at.Unix(), 10)
	mac := hmac.New(sha256.New, []byte(secret))
	_, _ = fmt.Fprintf(mac, "%s.%s.%s", body, nonce, stamp)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("x-sinch-webhook-signature", base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	r.Header.Set("x-sinch-webhook-signature-algorithm", "HmacSHA256")
	r.Header.Set("x-sinch-webhook-signature-nonce", nonce)
	r.Header.Set("x-sinch-webhook-signature-timestamp", stamp)
	return r
}

func report(m sent, status string, code int) string {
	b, err := json.Marshal(map[string]any{
		"type": "recipient_delivery_report_sms", "batch_id": m.ID, "recipient": m.To, "code": code, "status": status,
		"at": m.At.UTC().Format("2006-01-02T15:04:05.000Z"), "client_reference": m.Ref, "operator_status_at": m.At.UTC().Format(time.RFC3339),
	})
	if err != nil {
		panic(err)
	}
	return string(b)
}
