// Package hook answers the webhook calls of vendors: it bounds what is read,
// and lets the vendor repeat what could not be stored.
package hook

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/seed-8098fbb7/dispatch"
)

// MaxBody is how much of a call's body is read where a Handler names no
// other bound, in bytes.
const MaxBody = 64 << 10

// Call is one webhook call, read to its end.
type Call struct {
	// Method and Header are the request's.
	Method string
	Header http.Header
	// Query is the part of the URL behind the question mark, as it came.
	Query string
	// Body is the body, byte for byte: signatures are over these bytes.
	Body []byte
}

// Refusal is why a call is not taken. Its reason is a fixed text without
// anything of the call.
type Refusal struct { //nolint:errname // it is the answer to a call first
	// Status is what the vendor is answered.
	Status int
	// Reason is for tests and debuggers; the answer doesn't show it.
	Reason string
}

func (r *Refusal) Error() string { return r.Reason }

// Refuse makes a Refusal.
func Refuse(status int, reason string) error { return &Refusal{status, reason} }

// Handler is an http.Handler. It is safe for concurrent use.
type Handler struct {
	// Methods are the HTTP methods that the vendor uses.
	Methods []string
	// MaxBody bounds the body, in bytes; zero means the package's MaxBody.
	MaxBody int
	// Parse checks that the call is the vendor's own and reads it. Receipts
	// are stored only with a nil error; an error is answered with its
	// Refusal's status, or 400.
	Parse func(Call) ([]dispatch.Receipt, error)
	// Sink takes the receipts.
	Sink dispatch.ReceiptSink
}

// ServeHTTP answers 200 once all receipts of the call are stored, and 503
// where that failed: vendors repeat then.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !slices.Contains(h.Methods, r.Method) {
		w.Header().Set("Allow", strings.Join(h.Methods, ", "))
		answer(w, http.StatusMethodNotAllowed)
		return
	}
	limit := h.MaxBody
	if limit == 0 {
		limit = MaxBody
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, int64(limit)))
	if err != nil {
		var large *http.MaxBytesError
		if errors.As(err, &large) {
			answer(w, http.StatusRequestEntityTooLarge)
			return
		}
		answer(w, http.StatusBadRequest)
		return
	}
	receipts, err := h.Parse(Call{Method: r.Method, Header: r.Header, Query: r.URL.RawQuery, Body: body})
	if err != nil {
		status := http.StatusBadRequest
		var refusal *Refusal
		if errors.As(err, &refusal) {
			status = refusal.Status
		}
		answer(w, status)
		return
	}
	if h.Sink == nil || len(receipts) > 0 && h.Sink.Receive(r.Context(), receipts) != nil {
		answer(w, http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusOK)
}

func answer(w http.ResponseWriter, status int) { http.Error(w, http.StatusText(status), status) }
