package providertest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func vendor(t *testing.T, o Options) *Vendor {
	t.Helper()
	v, err := NewVendor(o)
	require.NoError(t, err)
	t.Cleanup(v.Close)
	return v
}

// call makes one request on a connection of its own.
func call(t *testing.T, method, url, key, body string) (int, http.Header, string, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	req.Close = true
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	client := &http.Client{
		Transport:     &http.Transport{DisableCompression: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, nil, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, resp.Header, string(b), err
}

func TestVendorDedupes(t *testing.T) {
	v := vendor(t, Options{Dedupe: time.Hour, BindsBody: true})
	url := v.URL + "/v1/messages"
	for n, want := range []string{"", "true", "true"} {
		status, h, body, err := call(t, http.MethodPost, url, "k", "a")
		require.NoError(t, err)
		require.Equal(t, http.StatusAccepted, status)
		require.JSONEq(t, `{"id":"msg-000001","status":"queued"}`, body, n)
		require.Equal(t, want, h.Get("Idempotent-Replayed"))
	}
	status, _, body, err := call(t, http.MethodPost, url, `"k"`, "b") // a quoted key is the same key
	require.NoError(t, err)
	require.Equal(t, http.StatusUnprocessableEntity, status)
	require.Contains(t, body, "idempotency_key_reused")
	require.Equal(t, 1, v.Deliveries("k"))
	require.Equal(t, []string{"k"}, v.Keys())
	calls := v.Calls("k")
	require.Len(t, calls, 4)
	require.Equal(t, "b", string(calls[3].Body))
	require.Equal(t, 4, calls[3].N)

	status, _, body, err = call(t, http.MethodGet, v.URL+"/deliveries/k", "", "")
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status)
	require.JSONEq(t, `{"key":"k","deliveries":1,"calls":4}`, body)
	_, _, body, err = call(t, http.MethodGet, v.URL+"/deliveries/other", "", "")
	require.NoError(t, err)
	require.JSONEq(t, `{"key":"other","deliveries":0,"calls":0}`, body)
}

// Without a window, or after it, a repeat is a second message; without a key
// each call is.
func TestVendorForgets(t *testing.T) {
	for name, c := range map[string]struct {
		window time.Duration
		key    string
	}{"no window": {0, "k"}, "after the window": {time.Nanosecond, "k"}, "no key": {time.Hour, ""}} {
		t.Run(name, func(t *testing.T) {
			v := vendor(t, Options{Dedupe: c.window})
			for range 2 {
				_, _, _, err := call(t, http.MethodPost, v.URL+"/v1/messages", c.key, "a")
				require.NoError(t, err)
			}
			require.Equal(t, 2, v.Deliveries(c.key))
		})
	}
}

func TestVendorLookup(t *testing.T) {
	v := vendor(t, Options{})
	late := vendor(t, Options{Lag: time.Hour})
	for _, v := range []*Vendor{v, late} {
		_, _, _, err := call(t, http.MethodPost, v.URL+"/any/path", "k", "a")
		require.NoError(t, err)
	}
	for url, want := range map[string]int{
		v.URL + "/v1/messages/k": 200, v.URL + "/v1/messages/other": 404, late.URL + "/v1/messages/k": 404,
	} {
		status, _, body, err := call(t, http.MethodGet, url, "", "")
		require.NoError(t, err)
		require.Equal(t, want, status)
		require.Contains(t, body, map[int]string{200: "msg-000001", 404: "not_found"}[want])
	}
	require.Len(t, v.AllCalls(), 1, "a look-up is no call")

	// A GET elsewhere, as a followed redirect makes one, is a call and no message.
	status, _, _, err := call(t, http.MethodGet, v.URL+"/login", "", "")
	require.NoError(t, err)
	require.Equal(t, http.StatusBadRequest, status)
	require.Len(t, v.AllCalls(), 2)
	require.Zero(t, v.Deliveries(""))
}

// Each way to misbehave does on the wire what it says, and takes the message
// unless it refuses it.
func TestVendorFaults(t *testing.T) {
	for name, c := range map[string]struct {
		fault  Fault
		status int // 0: no answer
		whole  bool
		taken  int
	}{
		"none":               {Fault{}, 202, true, 1},
		"late":               {Fault{Delay: 10 * time.Millisecond}, 202, true, 1},
		"refused":            {Fault{Refuse: true}, 400, true, 0},
		"503":                {HTML503("1"), 503, true, 1},
		"429":                {TooMany("1"), 429, true, 0},
		"redirect":           {Redirect(307, "/login"), 307, true, 0},
		"dropped":            {Fault{Refuse: true, Wire: Drop}, 0, false, 0},
		"dropped, taken":     {Fault{Wire: Drop}, 0, false, 1},
		"dropped unread":     {Fault{Wire: DropUnread}, 0, false, 0},
		"reset":              {Fault{Wire: Reset}, 0, false, 1},
		"half a header":      {Fault{Wire: HalfHeader}, 0, false, 1},
		"half a body":        {Fault{Wire: HalfBody}, 202, false, 1},
		"flood":              {Fault{Wire: Flood}, 202, false, 1},
		"bomb":               {Fault{Wire: Bomb}, 202, true, 1},
		"taken, but says no": {Fault{Status: 500}, 500, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			v := vendor(t, Options{Fault: Script(c.fault)})
			status, _, _, err := call(t, http.MethodPost, v.URL+"/v1/messages", "k", "a")
			require.Equal(t, c.status, status)
			require.Equal(t, c.whole, err == nil, "%v", err)
			require.Equal(t, c.taken, v.Deliveries("k"))
			require.Len(t, v.Calls("k"), 1)
			status, _, _, err = call(t, http.MethodPost, v.URL+"/v1/messages", "k", "a")
			require.NoError(t, err, "the script is over")
			require.Equal(t, http.StatusAccepted, status)
		})
	}
}

// Hanging calls end when the client leaves, and when the vendor closes.
func TestVendorHangs(t *testing.T) {
	for _, wire := range []Wire{Hang, Stall} {
		arrived := make(chan struct{})
		v := vendor(t, Options{Fault: func(Call) Fault {
			close(arrived)
			return Fault{Wire: wire}
		}})
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, _, _, err := call(t, http.MethodPost, v.URL+"/v1/messages", "k", "a"); err == nil {
				t.Error("an answer")
			}
		})
		<-arrived
		v.Close()
		wg.Wait()
		v.Close() // twice does no harm
	}
	ctx, cancel := context.WithCancel(t.Context())
	v := vendor(t, Options{Fault: func(Call) Fault {
		cancel()
		return Fault{Wire: Hang}
	}})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, v.URL, bytes.NewReader(nil))
	require.NoError(t, err)
	_, err = (&http.Client{Transport: &http.Transport{}}).Do(req)
	require.ErrorIs(t, err, context.Canceled)
}

// A key in the body, and answers of another form.
func TestVendorShape(t *testing.T) {
	v := vendor(t, Options{
		Dedupe: time.Hour,
		Key: func(_ *http.Request, body []byte) string {
			var doc struct {
				Ref string `json:"ref"`
			}
			_ = json.Unmarshal(body, &doc) // no key then
			return doc.Ref
		},
		Shape: Shape{
			Accepted:  func(id string, _ bool) Answer { return JSON(http.StatusOK, []string{id}) },
			LookupKey: func(r *http.Request) string { return r.URL.Query().Get("reference") },
		},
	})
	for range 2 {
		_, _, body, err := call(t, http.MethodPost, v.URL+"/x", "", `{"ref":"r-1"}`)
		require.NoError(t, err)
		require.JSONEq(t, `["msg-000001"]`, body)
	}
	require.Equal(t, 1, v.Deliveries("r-1"))
	status, _, _, err := call(t, http.MethodGet, v.URL+"/list?reference=r-1", "", "")
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status)
}

func TestVendorAddr(t *testing.T) {
	v := vendor(t, Options{})
	_, err := NewVendor(Options{Addr: strings.TrimPrefix(v.URL, "http://")})
	require.Error(t, err, "the port is taken")
	v.Close()
	_, _, _, err = call(t, http.MethodPost, v.URL, "k", "a")
	require.False(t, err == nil || errors.Is(err, context.Canceled))
}
