package hook_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/internal/hook"
)

type sink struct {
	n   int
	err error
}

func (s *sink) Receive(_ context.Context, r []dispatch.Receipt) error {
	s.n += len(r)
	return s.err
}

func TestHandler(t *testing.T) {
	one := func(hook.Call) ([]dispatch.Receipt, error) { return []dispatch.Receipt{{}}, nil }
	none := func(hook.Call) ([]dispatch.Receipt, error) { return nil, nil }
	refusing := func(status int) func(hook.Call) ([]dispatch.Receipt, error) {
		return func(hook.Call) ([]dispatch.Receipt, error) {
			return []dispatch.Receipt{{}}, hook.Refuse(status, "hunter2")
		}
	}
	for name, c := range map[string]struct {
		parse  func(hook.Call) ([]dispatch.Receipt, error)
		sink   *sink
		method string
		body   string
		want   int
		stored int
	}{
		"stored":         {one, &sink{}, "POST", "x", 200, 1},
		"nothing in it":  {none, &sink{err: errors.New("unused")}, "POST", "x", 200, 0},
		"at the bound":   {one, &sink{}, "POST", "12345678", 200, 1},
		"above":          {one, &sink{}, "POST", "123456789", 413, 0},
		"another method": {one, &sink{}, "PUT", "x", 405, 0},
		"refused":        {refusing(401), &sink{}, "POST", "x", 401, 0},
		"an error": {func(hook.Call) ([]dispatch.Receipt, error) {
			return []dispatch.Receipt{{}}, errors.New("hunter2")
		}, &sink{}, "POST", "x", 400, 0},
		"B160, database down": {one, &sink{err: errors.New("hunter2")}, "POST", "x", 503, 1},
	} {
		t.Run(name, func(t *testing.T) {
			h := &hook.Handler{Methods: []string{"POST"}, MaxBody: 8, Parse: c.parse, Sink: c.sink}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(c.method, "/", strings.NewReader(c.body)))
			require.Equal(t, c.want, w.Code)
			require.Equal(t, c.stored, c.sink.n)
			require.NotContains(t, w.Body.String(), "hunter2")
			require.Equal(t, c.want == 405, w.Header().Get("Allow") == "POST")
		})
	}
}

// The body comes byte for byte, and the bound has a default.
func TestCall(t *testing.T) {
	var got hook.Call
	h := &hook.Handler{Methods: []string{"POST"}, Sink: &sink{}, Parse: func(c hook.Call) ([]dispatch.Receipt, error) {
		got = c
		return nil, nil
	}}
	r := httptest.NewRequest(http.MethodPost, "/x?a=%20b&a=c", strings.NewReader(" {\"a\": 1}\r\n\xff"))
	r.Header.Set("X-A", "b")
	h.ServeHTTP(httptest.NewRecorder(), r)
	require.Equal(t, " {\"a\": 1}\r\n\xff", string(got.Body))
	require.Equal(t, "a=%20b&a=c", got.Query)
	require.Equal(t, "b", got.Header.Get("X-A"))

	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(strings.Repeat("x", hook.MaxBody+1))))
	require.Equal(t, http.StatusRequestEntityTooLarge, w.Code)
	w = httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", brokenReader{}))
	require.Equal(t, http.StatusBadRequest, w.Code)
	h.Sink = nil
	w = httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", nil))
	require.Equal(t, http.StatusServiceUnavailable, w.Code)
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
