package exchange_test

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/exchange"
)

// B034: what can't be sent is refused here, as nobody's network, and without
// quoting it.
func TestRefusedHere(t *testing.T) {
	for name, change := range map[string]func(*exchange.Request){
		"token with a newline":       func(r *exchange.Request) { r.Auth = http.Header{"Authorization": {"Bearer hunter2\n"}} },
		"token with CR LF":           func(r *exchange.Request) { r.Auth = http.Header{"Authorization": {"hunter2\r\nX: y"}} },
		"header with NUL":            func(r *exchange.Request) { r.Header = http.Header{"X-A": {"hunter2\x00"}} },
		"key with a newline":         func(r *exchange.Request) { r.Key = "a\nb" },
		"key without a name":         func(r *exchange.Request) { r.KeyHeader = "" },
		"key twice":                  func(r *exchange.Request) { r.Auth = http.Header{"idempotency-key": {"k-2"}} },
		"header's name with a blank": func(r *exchange.Request) { r.Header = http.Header{"X A": {"b"}} },
		"header's name empty":        func(r *exchange.Request) { r.Header = http.Header{"": {"b"}} },
		"length":                     func(r *exchange.Request) { r.Header = http.Header{"content-length": {"1"}} },
		"transfer encoding":          func(r *exchange.Request) { r.Header = http.Header{"Transfer-Encoding": {"chunked"}} },
		"method":                     func(r *exchange.Request) { r.Method = "PO ST" },
		"plain http":                 func(r *exchange.Request) { r.URL = "http://api.example/v1" },
		"loopback's name as a prefix": func(r *exchange.Request) {
			r.URL = "http://127.0.0.1.example/v1"
		},
		"credentials in the URL": func(r *exchange.Request) { r.URL = "https://user:hunter2@api.example/" },
		"relative":               func(r *exchange.Request) { r.URL = "/v1" },
		"no host":                func(r *exchange.Request) { r.URL = "https:///v1" },
		"unreadable":             func(r *exchange.Request) { r.URL = "https://api.example/hunter2\x7f" },
		"other scheme":           func(r *exchange.Request) { r.URL = "ftp://127.0.0.1/" },
		"host of another script": func(r *exchange.Request) { r.URL = "https://аpi.example/" },
	} {
		t.Run(name, func(t *testing.T) {
			var n atomic.Int32
			r := post(plain)
			change(&r)
			_, err := client(t, exchange.Config{Dial: memory(answering(&n, taken))}).Do(t.Context(), r)
			f := fault(t, err, dispatch.NotSent, dispatch.CauseLocal)
			require.Equal(t, dispatch.Rejected, f.Verdict.Outcome)
			require.NotContains(t, f.Err.Error(), "hunter2")
			_, err = r.Digest()
			require.Error(t, err)
		})
	}
	for _, u := range []string{"http://localhost:1/", "http://[::1]:1/", "http://127.9.9.9/", "https://api.example"} {
		_, err := exchange.ParseURL(u)
		require.NoError(t, err)
	}
}

// The digest is stored and compared by later releases: it must not drift.
func TestDigest(t *testing.T) {
	r := exchange.Request{
		URL: "https://api.example/v1/messages?x=1", KeyHeader: "Idempotency-Key", Key: "k-1", Body: []byte("{}"),
		Header: http.Header{"Content-Type": {"application/json"}, "Accept": {"a", "b"}},
	}
	want, err := r.Digest()
	require.NoError(t, err)
	require.Equal(t, "59d01def3580373fac8ac40c27c83da0d9bb4afe65e7d158db0fe06d192dca5e", hex.EncodeToString(want))

	for name, change := range map[string]func(*exchange.Request){
		"credentials":    func(r *exchange.Request) { r.Auth = http.Header{"Date": {"now"}} },
		"host":           func(r *exchange.Request) { r.URL = "https://eu.api.example/v1/messages?x=1" },
		"case of a name": func(r *exchange.Request) { r.KeyHeader = "idempotency-key" },
		"method's default": func(r *exchange.Request) {
			r.Method = "POST"
		},
	} {
		changed := r
		change(&changed)
		got, err := changed.Digest()
		require.NoError(t, err)
		require.Equal(t, want, got, name)
	}
	for name, change := range map[string]func(*exchange.Request){
		"body":   func(r *exchange.Request) { r.Body = []byte("{} ") },
		"path":   func(r *exchange.Request) { r.URL = "https://api.example/v2/messages?x=1" },
		"query":  func(r *exchange.Request) { r.URL = "https://api.example/v1/messages?x=2" },
		"method": func(r *exchange.Request) { r.Method = "PUT" },
		"key":    func(r *exchange.Request) { r.Key = "k-2" },
		"no key": func(r *exchange.Request) { r.Key, r.KeyHeader = "", "" },
		"header": func(r *exchange.Request) { r.Header = http.Header{"Content-Type": {"application/json"}} },
		"header joined": func(r *exchange.Request) {
			r.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"ab"}}
		},
		"header, otherwise": func(r *exchange.Request) {
			r.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"b", "a"}}
		},
	} {
		changed := r
		change(&changed)
		got, err := changed.Digest()
		require.NoError(t, err)
		require.NotEqual(t, want, got, name)
	}
}

// A repeat whose bytes differ is another message: nothing is sent.
func TestReplay(t *testing.T) {
	var n atomic.Int32
	c := client(t, exchange.Config{})
	url := socket(t, answering(&n, taken))
	t.Cleanup(c.Close)
	r := post(url)
	a, err := c.Do(t.Context(), r)
	require.NoError(t, err)
	want, err := r.Digest()
	require.NoError(t, err)
	require.Equal(t, want, a.Evidence.Request)

	r.Replay = a.Evidence.Request
	r.Auth = http.Header{"Authorization": {"Bearer other"}}
	_, err = c.Do(t.Context(), r)
	require.NoError(t, err)

	r.Body = []byte(`{"to":"+15555550199"}`)
	_, err = c.Do(t.Context(), r)
	f := fault(t, err, dispatch.NotSent, dispatch.CauseChanged)
	require.True(t, f.Verdict.Hold)
	require.NotEqual(t, want, f.Evidence.Request)
	require.Len(t, f.Evidence.Request, 32)
	require.Equal(t, int32(2), n.Load())
}

// B056: each request has its own key and credentials, none left over.
func TestNothingLeaks(t *testing.T) {
	var mu sync.Mutex
	seen := map[string]int{}
	url := socket(t, func(c net.Conn, _ int) {
		for br := bufio.NewReader(c); ; {
			r := next(br)
			if r == nil {
				return
			}
			mu.Lock()
			seen[fmt.Sprint(r.Header["Idempotency-Key"], r.Header["X-N"], r.ContentLength, r.Header["Accept-Encoding"])]++
			mu.Unlock()
			if _, err := c.Write([]byte(taken)); err != nil {
				return
			}
		}
	})
	c := client(t, exchange.Config{MaxConns: 3})
	shared := http.Header{"X-N": {"n"}}
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			r := exchange.Request{URL: url, Header: shared, Body: []byte(strings.Repeat("x", i))}
			if i%2 == 0 {
				r.KeyHeader, r.Key = "Idempotency-Key", fmt.Sprint("k-", i)
			}
			if _, err := c.Do(t.Context(), r); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	require.Len(t, seen, 40)
	for i := 0; i < 40; i += 2 {
		require.Equal(t, 1, seen[fmt.Sprintf("[k-%d] [n] %d []", i, i)])
		require.Equal(t, 1, seen[fmt.Sprintf("[] [n] %d []", i+1)])
	}
	require.Equal(t, http.Header{"X-N": {"n"}}, shared)
}

func TestConfig(t *testing.T) {
	for field, cfg := range map[string]exchange.Config{
		"Connect":  {Connect: -1},
		"Write":    {Write: 2 * time.Hour},
		"Answer":   {Answer: -time.Second},
		"PoolWait": {PoolWait: -1},
		"Idle":     {Idle: -1},
		"MaxConns": {MaxConns: -1},
		"MaxBody":  {MaxBody: 1 << 30},
	} {
		_, err := exchange.New(cfg)
		require.ErrorContains(t, err, field)
	}
	c, err := exchange.New(exchange.Config{})
	require.NoError(t, err)
	require.Equal(t, 35*time.Second, c.Timeout())
}
