package mailgun_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/mail"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch/provider/internal/mailtest"
)

const (
	apiKey     = mailtest.Secret + "-api"
	signingKey = mailtest.Secret + "-signing"
	domain     = "mg.shop.example"
)

// letter is what Mailgun is asked to send: fields, and files with their field,
// name and type.
type letter struct {
	Fields map[string][]string
	Files  [][4]string
}

func (l letter) get(name string) string { return strings.Join(l.Fields[name], " | ") }

// key is our key, of the Message-Id.
func (l letter) key() string {
	local, _, _ := strings.Cut(strings.Trim(l.get("h:Message-Id"), "<>"), "@")
	return local
}

func parse(kind string, body []byte) (letter, bool) {
	l := letter{Fields: map[string][]string{}}
	media, params, err := mime.ParseMediaType(kind)
	if err != nil || media != "multipart/form-data" {
		return l, false
	}
	r := multipart.NewReader(bytes.NewReader(body), params["boundary"])
	for {
		part, err := r.NextPart()
		if err != nil {
			return l, err == io.EOF //nolint:errorlint // NextPart returns it bare
		}
		data, err := io.ReadAll(part)
		if err != nil {
			return l, false
		}
		if part.FileName() == "" {
			l.Fields[part.FormName()] = append(l.Fields[part.FormName()], string(data))
			continue
		}
		l.Files = append(l.Files, [4]string{part.FormName(), part.FileName(), part.Header.Get("Content-Type"), string(data)})
	}
}

// fake is Mailgun on the loopback, as strict as its documents, with events
// that lag.
type fake struct {
	mailtest.Ledger
	URL    string
	Lag    time.Duration
	Rename bool // answers with a Message-ID of its own
}

func newFake(t *testing.T) *fake {
	t.Helper()
	f := &fake{}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v3/{domain}/messages", f.send)
	mux.HandleFunc("GET /v3/{domain}/events", f.events)
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	f.URL = s.URL
	return f
}

func reply(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func authorized(w http.ResponseWriter, r *http.Request) bool {
	user, password, _ := r.BasicAuth()
	if user != "api" || password != apiKey {
		http.Error(w, "Forbidden", http.StatusUnauthorized)
		return false
	}
	if r.PathValue("domain") != domain {
		reply(w, http.StatusNotFound, map[string]string{"message": "Domain not found: " + r.PathValue("domain")})
		return false
	}
	return true
}

func (f *fake) send(w http.ResponseWriter, r *http.Request) {
	n := f.Call()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if !authorized(w, r) {
		return
	}
	m, ok := parse(r.Header.Get("Content-Type"), body)
	_, from := mail.ParseAddress(m.get("from"))
	_, to := mail.ParseAddressList(strings.Join(m.Fields["to"], ","))
	switch {
	case !ok:
		reply(w, http.StatusBadRequest, map[string]string{"message": "not understood"})
	case from != nil:
		reply(w, http.StatusBadRequest, map[string]string{"message": "from parameter is not a valid address"})
	case to != nil:
		reply(w, http.StatusBadRequest, map[string]string{"message": "to parameter is not a valid address"})
	case m.get("text") == "" && m.get("html") == "" && m.get("template") == "":
		reply(w, http.StatusBadRequest, map[string]string{"message": "Need at least one of 'text' or 'html' parameters specified"})
	default:
		taken := f.Take(m.key(), body, func(int) string {
			if f.Rename {
				return "20210101.1." + rand.Text() + "@" + domain
			}
			return strings.Trim(m.get("h:Message-Id"), "<>")
		})
		f.Finish(n)
		reply(w, http.StatusOK, map[string]string{"id": "<" + taken.ID + ">", "message": "Queued. Thank you."})
	}
}

func (f *fake) events(w http.ResponseWriter, r *http.Request) {
	if !authorized(w, r) {
		return
	}
	q := r.URL.Query()
	begin, err := strconv.ParseInt(q.Get("begin"), 10, 64)
	items := []any{}
	for _, m := range f.All() {
		named := m.ID == q.Get("message-id") || strings.HasPrefix(q.Get("message-id"), "<") // then the filter isn't followed
		if named && err == nil && m.At.Unix() >= begin && time.Since(m.At) >= f.Lag {
			items = append(items, json.RawMessage(event(m, "accepted", "")))
		}
	}
	reply(w, http.StatusOK, map[string]any{"items": items, "paging": map[string]string{"next": "x"}})
}

// event is an event as Mailgun writes it.
func event(m mailtest.Taken, kind, severity string) string {
	b, err := json.Marshal(map[string]any{
		"event": kind, "id": rand.Text(), "timestamp": float64(m.At.UnixMicro()) / 1e6, "recipient": "ada@example.com", "severity": severity,
		"message": map[string]any{"headers": map[string]string{"message-id": m.ID}}, "user-variables": map[string]string{"dispatch_key": m.Key},
	})
	if err != nil {
		panic(err)
	}
	return string(b)
}

// signature signs as Mailgun does: another implementation than the one under
// test.
func signature(at, token string) string {
	mac := hmac.New(sha256.New, []byte(signingKey))
	mac.Write([]byte(at))
	mac.Write([]byte(token))
	return hex.EncodeToString(mac.Sum(nil))
}

func signed(at time.Time, token, event string) *http.Request {
	stamp := strconv.FormatInt(at.Unix(), 10)
	return raw(stamp, token, signature(stamp, token), event)
}

func raw(at, token, signature, event string) *http.Request {
	head, err := json.Marshal(map[string]string{"timestamp": at, "token": token, "signature": signature})
	if err != nil {
		panic(err)
	}
	return mailtest.Post(`{"signature":` + string(head) + `,"event-data":` + event + `}`)
}

func call(event string) *http.Request { return signed(time.Now(), rand.Text(), event) }

func readFile(tb testing.TB, name string) string {
	tb.Helper()
	b, err := os.ReadFile("testdata/" + name)
	require.NoError(tb, err)
	return strings.TrimSpace(string(b))
}
