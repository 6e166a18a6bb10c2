package resend_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch/provider/internal/mailtest"
)

// The signing secret and call of Svix's documents.
const (
	secret      = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	vectorID    = "msg_p5jXN8AQM9LWM0D4loKWxJek"
	vectorAt    = "1614265330"
	vectorBody  = `{"test": 2432232314}`
	vectorValue = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
)

const apiKey = "re_" + mailtest.Secret

// mail is what Resend is asked to send.
type mail struct {
	From        string            `json:"from"`
	To          []string          `json:"to"`
	CC          []string          `json:"cc"`
	BCC         []string          `json:"bcc"`
	ReplyTo     []string          `json:"reply_to"`
	Subject     string            `json:"subject"`
	Text        string            `json:"text"`
	HTML        string            `json:"html"`
	Headers     map[string]string `json:"headers"`
	Attachments []struct {
		Name string `json:"filename"`
		Type string `json:"content_type"`
		ID   string `json:"content_id"`
		Data []byte `json:"content"`
	} `json:"attachments"`
	Tags     []map[string]string `json:"tags"`
	Template *struct {
		ID        string         `json:"id"`
		Variables map[string]any `json:"variables"`
	} `json:"template"`
}

// fake is Resend on the loopback, as strict as its documents: idempotency
// keys with their two 409s, and events.
type fake struct {
	mailtest.Ledger
	URL string

	mu      sync.Mutex
	first   map[string]mailtest.Taken
	running map[string]bool
}

func newFake(t *testing.T) *fake {
	t.Helper()
	f := &fake{first: map[string]mailtest.Taken{}, running: map[string]bool{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /emails", f.send)
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	f.URL = s.URL
	return f
}

func refuse(w http.ResponseWriter, status int, name, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"statusCode": status, "name": name, "message": message})
}

func (f *fake) send(w http.ResponseWriter, r *http.Request) {
	n := f.Call()
	body, err := io.ReadAll(r.Body)
	key := r.Header.Get("Idempotency-Key")
	var m mail
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	switch {
	case err != nil:
		panic(http.ErrAbortHandler)
	case r.Header.Get("User-Agent") == "":
		http.Error(w, "error code: 1010", http.StatusForbidden)
		return
	case r.Header.Get("Authorization") != "Bearer "+apiKey:
		refuse(w, http.StatusBadRequest, "validation_error", "API key is invalid")
		return
	case len(key) > 256 || key == "":
		refuse(w, http.StatusBadRequest, "invalid_idempotency_key", "1 to 256 characters")
		return
	case d.Decode(&m) != nil || len(m.To) == 0 || m.From == "" || m.Template == nil && m.Text == "" && m.HTML == "":
		refuse(w, http.StatusUnprocessableEntity, "missing_required_field", "not understood")
		return
	case m.Template != nil && (m.Text != "" || m.HTML != ""):
		refuse(w, http.StatusUnprocessableEntity, "validation_error", "template and html")
		return
	case strings.ContainsAny(m.From, `"=,`):
		refuse(w, 451, "security_error", "The email payload contain invalid characters")
		return
	}
	f.mu.Lock()
	first, known := f.first[key]
	switch {
	case f.running[key]:
		f.mu.Unlock()
		refuse(w, http.StatusConflict, "concurrent_idempotent_requests", "in progress")
		return
	case known && !bytes.Equal(first.Body, body):
		f.mu.Unlock()
		refuse(w, http.StatusConflict, "invalid_idempotent_request", "different payload")
		return
	}
	f.running[key] = true
	f.mu.Unlock()
	if !known {
		first = f.Take(key, body, func(n int) string { return fmt.Sprintf("49a3999c-0ce1-4ea6-ab68-%012d", n) })
	}
	f.mu.Lock()
	f.first[key] = first
	delete(f.running, key)
	f.mu.Unlock()
	f.Finish(n)
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]string{"id": first.ID})
}

// event is the body of an event about a mail, as Resend writes it.
func event(m mailtest.Taken, kind string) string {
	var sent mail
	if json.Unmarshal(m.Body, &sent) != nil {
		panic("no mail")
	}
	tags := map[string]string{}
	for _, t := range sent.Tags {
		tags[t["name"]] = t["value"]
	}
	data := map[string]any{"email_id": m.ID, "created_at": m.At, "from": sent.From, "to": sent.To, "subject": sent.Subject, "tags": tags}
	if kind == "email.bounced" {
		data["bounce"] = map[string]string{"type": "Permanent", "subType": "General", "message": "x"}
	}
	b, err := json.Marshal(map[string]any{"type": kind, "created_at": m.At.UTC().Format(time.RFC3339Nano), "data": data})
	if err != nil {
		panic(err)
	}
	return string(b)
}

// signed is a call with Svix's signature: another implementation than the one
// under test.
func signed(id string, at time.Time, body string) *http.Request {
	r := mailtest.Post(body)
	stamp := strconv.FormatInt(at.Unix(), 10)
	raw, err := base64.StdEncoding.DecodeString(secret[len("whsec_"):])
	if err != nil {
		panic(err)
	}
	mac := hmac.New(sha256.New, raw)
	mac.Write([]byte(strings.Join([]string{id, stamp, body}, ".")))
	r.Header.Set("Svix-Id", id)
	r.Header.Set("Svix-Timestamp", stamp)
	r.Header.Set("Svix-Signature", "v1,AAAA v2,x v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	return r
}

func TestFakeSignsAsSvix(t *testing.T) {
	at := time.Unix(1614265330, 0)
	r := signed(vectorID, at, vectorBody)
	require.Equal(t, vectorAt, r.Header.Get("Svix-Timestamp"))
	require.Contains(t, r.Header.Get("Svix-Signature"), vectorValue)
}
