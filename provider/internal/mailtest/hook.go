package mailtest

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
)

// Post makes a webhook call with a body.
func Post(body string) *http.Request {
	r := httptest.NewRequestWithContext(context.Background(), http.MethodPost, "/hook", bytes.NewReader([]byte(body)))
	r.Header.Set("Content-Type", "application/json")
	return r
}

// Status is what a handler answers.
func Status(h http.Handler, r *http.Request) int {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code
}

// Hook is what CheckHook needs to know of a webhook.
type Hook struct {
	// Handler makes the webhook.
	Handler func(dispatch.ReceiptSink) http.Handler
	// Call is a good call for one event, the same each time, as often as the
	// vendor may repeat it.
	Call func() *http.Request
	// Bare is a call without the vendor's proof; nil means Call without its
	// header.
	Bare func() *http.Request
	// Limit is the most that is read of a body, in bytes.
	Limit int
}

// CheckHook checks what holds for each webhook: nothing without the vendor's
// proof, 503 until it is stored (B160), repeats and calls at once are one
// event (B150), bodies have a bound, and 403 is never answered.
func CheckHook(t *testing.T, h Hook) {
	t.Helper()
	sink := &Sink{}
	handler := h.Handler(sink)
	bare := h.Call()
	bare.Header = http.Header{"Content-Type": {"application/json"}}
	if h.Bare != nil {
		bare = h.Bare()
	}
	require.Equal(t, http.StatusUnauthorized, Status(handler, bare), "a call without proof")
	get := h.Call()
	get.Method = http.MethodGet
	require.Equal(t, http.StatusMethodNotAllowed, Status(handler, get))
	large := h.Call()
	large.Body = io.NopCloser(bytes.NewReader(make([]byte, h.Limit+1)))
	require.Equal(t, http.StatusRequestEntityTooLarge, Status(handler, large))
	broken := h.Call()
	broken.Body = io.NopCloser(io.MultiReader(bytes.NewReader([]byte("{")), failing{}))
	require.Equal(t, http.StatusBadRequest, Status(handler, broken))
	require.Empty(t, sink.All())

	down := &Sink{Err: ErrDown}
	require.Equal(t, http.StatusServiceUnavailable, Status(h.Handler(down), h.Call()))
	require.Equal(t, http.StatusServiceUnavailable, Status(h.Handler(nil), h.Call()))

	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			if s := Status(handler, h.Call()); s != http.StatusOK {
				panic(s)
			}
		})
	}
	group.Wait()
	require.Equal(t, 1, sink.Distinct())
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, ErrDown }

// CheckReceipts checks that receipts can be stored, whatever a vendor wrote:
// one that can't would make the vendor repeat its call for ever.
func CheckReceipts(t *testing.T, receipts []dispatch.Receipt) {
	t.Helper()
	for _, r := range receipts {
		require.NoError(t, dispatch.ValidName(r.Provider))
		require.NotEmpty(t, r.EventKey)
		require.LessOrEqual(t, len(r.EventKey), 500)
		require.False(t, r.Key.IsZero() && r.ProviderID == "")
		require.LessOrEqual(t, len(r.ProviderID), 300)
		require.True(t, r.Kind >= dispatch.Noted && r.Kind <= dispatch.Clicked)
		require.True(t, r.At.IsZero() || r.At.Year() >= 1990 && r.At.Year() <= 2200)
	}
}
