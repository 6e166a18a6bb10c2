package sendgrid_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch/provider/internal/mailtest"
)

const apiKey = "SG." + mailtest.Secret

// The vector of SendGrid's own libraries.
const (
	vectorKey       = "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE83T4O/n84iotIvIW4mdBgQ/7dAfSmpqIM8kF9mN1flpVKS3GRqe62gw+2fNNRaINXvVpiglSI8eNEc6wEA3F+g=="
	vectorAt        = "1600112502"
	vectorSignature = "MEUCIGHQVtGj+Y3LkG9fLcxf3qfI10QysgDWmMOVmxG0u6ZUAiEAyBiXDWzM+uOe5W0JuG+luQAbPIqHh89M15TluLtEZtM="
	vectorBody      = `[{"email":"hello@world.com","event":"dropped","reason":"Bounced Address","sg_event_id":"ZHJvcC0xMDk5NDkxOS1MUnpYbF9OSFN0T0doUTRrb2ZTbV9BLTA","sg_message_id":"LRzXl_NHStOGhQ4kofSm_A.filterdrecv-p3mdw1-756b745b58-kmzbl-18-5F5FC76C-9.0","smtp-id":"<LRzXl_NHStOGhQ4kofSm_A@ismtpd0039p1iad1.sendgrid.net>","timestamp":1600112492}]` + "\r\n"
)

// signer is the webhook's key pair, made once.
var signer = sync.OnceValues(func() (*ecdsa.PrivateKey, string) {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	der, err := x509.MarshalPKIXPublicKey(&k.PublicKey)
	if err != nil {
		panic(err)
	}
	return k, base64.StdEncoding.EncodeToString(der)
})

type person struct {
	Email string `json:"email"`
	Name  string `json:"name"`
}

// letter is what SendGrid is asked to send.
type letter struct {
	Personalizations []struct {
		To   []person       `json:"to"`
		CC   []person       `json:"cc"`
		BCC  []person       `json:"bcc"`
		Data map[string]any `json:"dynamic_template_data"`
	} `json:"personalizations"`
	From    person   `json:"from"`
	ReplyTo []person `json:"reply_to_list"`
	Subject string   `json:"subject"`
	Content []struct {
		Type  string `json:"type"`
		Value string `json:"value"`
	} `json:"content"`
	Attachments []struct {
		Content     []byte `json:"content"`
		Type        string `json:"type"`
		Name        string `json:"filename"`
		Disposition string `json:"disposition"`
		ID          string `json:"content_id"`
	} `json:"attachments"`
	Template   string            `json:"template_id"`
	Headers    map[string]string `json:"headers"`
	Categories []string          `json:"categories"`
	Args       map[string]string `json:"custom_args"`
}

// fake is SendGrid on the loopback, as strict as its documents, with activity
// that lags.
type fake struct {
	mailtest.Ledger
	URL     string
	Lag     time.Duration
	NoMatch bool // the activity's filter isn't followed
}

func newFake(t *testing.T) *fake {
	t.Helper()
	f := &fake{}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v3/mail/send", f.send)
	mux.HandleFunc("GET /v3/messages", f.activity)
	mux.HandleFunc("GET /v3/messages/{id}", f.detail)
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	f.URL = s.URL
	return f
}

func refuse(w http.ResponseWriter, status int, field, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"errors": []any{map[string]any{"message": message, "field": field, "help": nil}}})
}

func (f *fake) send(w http.ResponseWriter, r *http.Request) {
	n := f.Call()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	var m letter
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	switch {
	case r.Header.Get("Authorization") != "Bearer "+apiKey:
		refuse(w, http.StatusUnauthorized, "", "The provided authorization grant is invalid, expired, or revoked")
	case r.Header.Get("Idempotency-Key") != "":
		refuse(w, http.StatusBadRequest, "", "a header that SendGrid doesn't know")
	case d.Decode(&m) != nil || len(m.Personalizations) != 1 || len(m.Personalizations[0].To) == 0:
		refuse(w, http.StatusBadRequest, "personalizations", "not understood")
	case m.From.Email == "":
		refuse(w, http.StatusBadRequest, "from.email", "from")
	case m.Template == "" && (len(m.Content) == 0 || m.Subject == ""):
		refuse(w, http.StatusBadRequest, "content", "content is required")
	case len(m.Content) == 2 && m.Content[0].Type != "text/plain":
		refuse(w, http.StatusBadRequest, "content", "text/plain comes first")
	default:
		taken := f.Take(m.Args["dispatch_key"], body, func(n int) string { return fmt.Sprintf("LRzXl_NHStOGhQ4k%06d", n) })
		f.Finish(n)
		w.Header().Set("X-Message-Id", taken.ID)
		w.WriteHeader(http.StatusAccepted)
	}
}

var asked = regexp.MustCompile(`^\(unique_args\['dispatch_key'\]="([0-9a-f-]{36})"\)$`)

func (f *fake) activity(w http.ResponseWriter, r *http.Request) {
	match := asked.FindStringSubmatch(r.URL.Query().Get("query"))
	if r.Header.Get("Authorization") != "Bearer "+apiKey || match == nil {
		refuse(w, http.StatusBadRequest, "query", "invalid query")
		return
	}
	messages := []any{}
	for _, m := range f.All() {
		if time.Since(m.At) >= f.Lag && (m.Key == match[1] || f.NoMatch) {
			messages = append(messages, map[string]any{"msg_id": m.ID + ".filter0001-1-5", "status": "processed"})
		}
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"messages": messages})
}

func (f *fake) detail(w http.ResponseWriter, r *http.Request) {
	for _, m := range f.All() {
		if r.PathValue("id") == m.ID+".filter0001-1-5" {
			_ = json.NewEncoder(w).Encode(map[string]any{
				"msg_id": m.ID + ".filter0001-1-5", "status": "processed", "unique_args": `{"dispatch_key":"` + m.Key + `"}`,
			})
			return
		}
	}
	refuse(w, http.StatusNotFound, "msg_id", "not found")
}

// call is a webhook call with SendGrid's signature.
func call(at time.Time, body string) *http.Request {
	key, _ := signer()
	r := mailtest.Post(body)
	stamp := strconv.FormatInt(at.Unix(), 10)
	sum := sha256.Sum256([]byte(stamp + body))
	signature, err := ecdsa.SignASN1(rand.Reader, key, sum[:])
	if err != nil {
		panic(err)
	}
	r.Header.Set("X-Twilio-Email-Event-Webhook-Signature", base64.StdEncoding.EncodeToString(signature))
	r.Header.Set("X-Twilio-Email-Event-Webhook-Timestamp", stamp)
	return r
}

// event is one event as SendGrid writes it, under an id of its own each time.
func event(m mailtest.Taken, kind string) string {
	b, err := json.Marshal(map[string]any{
		"email": "ada@example.com", "event": kind, "type": map[string]string{"bounce": "bounce"}[kind], "timestamp": m.At.Unix(),
		"sg_event_id": rand.Text(), "sg_message_id": m.ID + ".filter0001-1-5", "dispatch_key": m.Key, "status": "5.1.1",
	})
	if err != nil {
		panic(err)
	}
	return string(b)
}

func readFile(tb testing.TB, name string) string {
	tb.Helper()
	b, err := os.ReadFile("testdata/" + name)
	require.NoError(tb, err)
	return strings.TrimSpace(string(b))
}
