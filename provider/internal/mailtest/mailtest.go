// Package mailtest is what the tests of the mail adapters share: mails to
// send, a ledger for fakes of vendors, a sink, and checks that are the same
// for each webhook.
package mailtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
)

// Secret stands in each credential of a test, and must not be seen again.
const Secret = "hunter2"

// Key is the key of the golden requests.
func Key() dispatch.Key {
	key, err := dispatch.ParseKey("01920000-0000-7000-8000-000000000001")
	if err != nil {
		panic(err)
	}
	return key
}

// Mail is a short mail.
func Mail() dispatch.Email {
	return dispatch.Email{To: []dispatch.Address{{Email: "ada@example.com"}}, Subject: "Your order", Text: "It is on its way, 482901."}
}

// Envelope is an attempt to send Mail under a key of its own.
func Envelope() dispatch.Envelope {
	return dispatch.Envelope{Key: dispatch.NewKey(), Route: "mail", Attempt: 1, From: "Shop <no-reply@shop.example>", Content: Mail()}
}

// Full is a mail with everything: several recipients, names that break naive
// code (B082), a hidden copy (B089), a file name that does (B090), an inline
// image.
func Full() dispatch.Email {
	return dispatch.Email{
		To:      []dispatch.Address{{Name: "Smith, John", Email: "john@example.com"}, {Name: "Jürgen", Email: "j@example.com"}},
		CC:      []dispatch.Address{{Name: "Ada", Email: "ada@example.com"}},
		BCC:     []dispatch.Address{{Email: "secret@example.com"}},
		ReplyTo: []dispatch.Address{{Email: "help@shop.example"}},
		Subject: "Grüße", Text: "plain & simple", HTML: `<p>1 < 2 <img src="cid:logo"></p>`,
		Headers: []dispatch.Header{{Name: "List-Unsubscribe", Value: "<https://shop.example/u/1>"}, {Name: "X-Order", Value: "123"}},
		Attachments: []dispatch.Attachment{
			{Name: `Rechnung "März".pdf`, Type: "application/pdf", Data: []byte("%PDF-1")},
			{Name: "logo.png", Type: "image/png", ContentID: "logo", Data: []byte{0x89, 'P', 'N', 'G'}},
		},
		Tags: []string{"orders"},
	}
}

// Golden is an envelope with Full, metadata and a fixed key.
func Golden() dispatch.Envelope {
	e := Envelope()
	e.Key, e.Content, e.From = Key(), Full(), "Shop <no-reply@shop.example>"
	e.Metadata = map[string]string{"order": "123", "customer": "not to be sent"}
	return e
}

// Templated is a mail that the provider renders.
func Templated(revision string) dispatch.Email {
	return dispatch.Email{
		To:       []dispatch.Address{{Email: "ada@example.com"}},
		Template: dispatch.ProviderTemplate{ID: "welcome", Revision: revision, Unpinned: revision == "", Data: []byte(`{"name": "Ada", "n": 19421798915720714}`)},
	}
}

// Recorded reads an answer from testdata.
func Recorded(t *testing.T, name string) string {
	t.Helper()
	b, err := fs.ReadFile(os.DirFS("testdata"), name)
	require.NoError(t, err)
	return strings.TrimSpace(string(b))
}

// SameAsGolden compares with a file in testdata what was sent, where other
// bytes need another encoding version, or what the docs say.
func SameAsGolden(t *testing.T, name string, got []byte) {
	t.Helper()
	if os.Getenv("UPDATE_GOLDEN") != "" {
		require.NoError(t, os.WriteFile("testdata/"+name, append(bytes.TrimSpace(got), '\n'), 0o600))
	}
	require.Equal(t, Recorded(t, name), strings.TrimSpace(string(got)), "UPDATE_GOLDEN=1 writes testdata/%s", name)
}

// Taken is a mail that a fake took.
type Taken struct {
	Key, ID string
	Body    []byte
	At      time.Time
}

// Ledger is what a fake writes down. It is safe for concurrent use; set its
// fields before the first call.
type Ledger struct {
	// Lose loses the answer of the nth call, from 1.
	Lose func(n int) bool
	// Drop ends the nth call before the mail is taken, without an answer.
	Drop func(n int) bool
	// Early is called when a mail was taken, before the answer.
	Early func(Taken)

	mu    sync.Mutex
	calls int
	taken []Taken
}

// Losing loses a share of the answers.
func Losing(seed uint64, percent int) func(int) bool {
	random := rand.New(rand.NewPCG(seed, 1))
	var mu sync.Mutex
	return func(int) bool {
		mu.Lock()
		defer mu.Unlock()
		return random.IntN(100) < percent
	}
}

// Call counts a call, ends it where it shall, and returns its number.
func (l *Ledger) Call() int {
	l.mu.Lock()
	l.calls++
	n := l.calls
	l.mu.Unlock()
	if l.Drop != nil && l.Drop(n) {
		panic(http.ErrAbortHandler)
	}
	return n
}

// Calls is how many there were.
func (l *Ledger) Calls() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.calls
}

// Take writes a mail down.
func (l *Ledger) Take(key string, body []byte, id func(n int) string) Taken {
	l.mu.Lock()
	m := Taken{Key: key, ID: id(len(l.taken) + 1), Body: slices.Clone(body), At: time.Now()}
	l.taken = append(l.taken, m)
	l.mu.Unlock()
	if l.Early != nil {
		l.Early(m)
	}
	return m
}

// Finish loses the answer of the nth call where it shall.
func (l *Ledger) Finish(n int) {
	if l.Lose != nil && l.Lose(n) {
		panic(http.ErrAbortHandler)
	}
}

// All is what was taken, in order.
func (l *Ledger) All() []Taken {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.taken)
}

// Of is what was taken under a key, in order.
func (l *Ledger) Of(key string) (out []Taken) {
	for _, m := range l.All() {
		if m.Key == key {
			out = append(out, m)
		}
	}
	return out
}

// IDs are those of what was taken under a key.
func (l *Ledger) IDs(key string) (out []string) {
	for _, m := range l.Of(key) {
		out = append(out, m.ID)
	}
	return out
}

// Sink keeps receipts, or fails with Err.
type Sink struct {
	Err error

	mu  sync.Mutex
	all []dispatch.Receipt
}

// Receive stores receipts.
func (s *Sink) Receive(_ context.Context, receipts []dispatch.Receipt) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Err == nil {
		s.all = append(s.all, receipts...)
	}
	return s.Err
}

// All is what was stored, in order.
func (s *Sink) All() []dispatch.Receipt {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.all)
}

// Distinct is how many different events were stored, as an outbox counts.
func (s *Sink) Distinct() int {
	events := map[string]bool{}
	for _, r := range s.All() {
		events[r.EventKey] = true
	}
	return len(events)
}

// ErrDown is the error of a database that is down.
var ErrDown = errors.New("database is down")

// CheckRedaction prints and encodes values in every way and looks for Secret
// (B162).
func CheckRedaction(t *testing.T, name string, values ...any) {
	t.Helper()
	for _, v := range values {
		var log strings.Builder
		slog.New(slog.NewJSONHandler(&log, nil)).Info("x", slog.Any("v", v))
		encoded, err := json.Marshal(v)
		require.NoError(t, err)
		printed := fmt.Sprintf("%v %+v %#v %s %q %d %x", v, v, v, v, v, v, v) + fmt.Sprint([]any{v})
		for _, s := range []string{log.String(), string(encoded), printed} {
			require.NotContains(t, s, Secret)
			require.NotContains(t, s, fmt.Sprintf("%x", Secret))
		}
		require.Contains(t, printed, name)
	}
}

// Names are the keys of a map, in order.
func Names[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
