package infrai_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch/provider/internal/mailtest"
)

const apiKey = "ifr_pk_" + mailtest.Secret

// letter is what Infrai is asked to send.
type letter struct {
	To         []string       `json:"to"`
	CC         []string       `json:"cc"`
	BCC        []string       `json:"bcc"`
	From       string         `json:"from"`
	Subject    string         `json:"subject"`
	Text       string         `json:"text"`
	HTML       string         `json:"html"`
	TemplateID string         `json:"template_id"`
	Vars       map[string]any `json:"template_vars"`
	Vendor     string         `json:"vendor"`
	Files      []struct {
		Name    string `json:"filename"`
		Content []byte `json:"content"`
		Mime    string `json:"mime"`
	} `json:"attachments"`
}

// fake is Infrai on the loopback: idempotency keys, and events in pages of two.
type fake struct {
	mailtest.Ledger
	URL string

	mu     sync.Mutex
	first  map[string]mailtest.Taken
	events []string
	polls  int
	busy   bool // answers polls with 429
}

func newFake(t *testing.T) *fake {
	t.Helper()
	f := &fake{first: map[string]mailtest.Taken{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/email/send", f.send)
	mux.HandleFunc("GET /v1/email/event/list", f.list)
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	f.URL = s.URL
	return f
}

func reply(w http.ResponseWriter, status int, data any, code, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	doc := map[string]any{"ok": code == "", "data": data, "error": nil, "metadata": map[string]any{"cost_usd": "0.0004"}}
	if code != "" {
		doc["error"] = map[string]string{"code": code, "message": message}
	}
	_ = json.NewEncoder(w).Encode(doc)
}

func (f *fake) send(w http.ResponseWriter, r *http.Request) {
	n := f.Call()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	key := r.Header.Get("Idempotency-Key")
	var m letter
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	switch {
	case r.Header.Get("Authorization") != "Bearer "+apiKey:
		reply(w, http.StatusUnauthorized, nil, "UNAUTHORIZED", "bad key")
		return
	case d.Decode(&m) != nil || len(m.To) == 0 || m.Subject == "" || key == "":
		reply(w, http.StatusBadRequest, nil, "INVALID", "not understood")
		return
	}
	f.mu.Lock()
	taken, known := f.first[key]
	if !known {
		taken = f.Take(key, body, func(n int) string { return fmt.Sprintf("em_%06d", n) })
		f.first[key] = taken
	}
	f.mu.Unlock()
	f.Finish(n)
	reply(w, http.StatusOK, map[string]any{"email_id": taken.ID, "state": "queued", "to": m.To}, "", "")
}

func (f *fake) list(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.polls++
	if f.busy {
		w.Header().Set("Retry-After", "3600")
		reply(w, http.StatusTooManyRequests, nil, "RATE_LIMITED", "slow down")
		return
	}
	from, _ := strconv.Atoi(r.URL.Query().Get("cursor"))
	to := min(from+2, len(f.events))
	items := []any{}
	for _, e := range f.events[from:to] {
		items = append(items, json.RawMessage(e))
	}
	data := map[string]any{"items": items}
	if to < len(f.events) {
		data["next_cursor"] = strconv.Itoa(to)
	}
	reply(w, http.StatusOK, data, "", "")
}

// tell adds events to the list, the newest first.
func (f *fake) tell(events ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.events = append(events, f.events...)
}

func (f *fake) polled() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.polls
}

func event(id, kind string) string {
	return `{"message_id":"` + id + `","type":"` + kind + `","created_at":"2026-07-01T10:00:05Z","to":"ada@example.com"}`
}

func readFile(tb testing.TB, name string) string {
	tb.Helper()
	b, err := os.ReadFile("testdata/" + name)
	require.NoError(tb, err)
	return strings.TrimSpace(string(b))
}
