package exchange_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/exchange"
)

// ask gives the answer to one request over an in-memory network.
func ask(t *testing.T, raw string) (exchange.Answer, error) {
	t.Helper()
	var a exchange.Answer
	var err error
	synctest.Test(t, func(t *testing.T) {
		a, err = client(t, exchange.Config{Dial: memory(func(c net.Conn, _ int) {
			next(bufio.NewReader(c))
			_, _ = io.WriteString(c, raw)
		})}).Do(t.Context(), post(plain))
	})
	return a, err
}

func TestAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		raw     string
		status  int
		body    string
		cut     bool
		outcome dispatch.Outcome
		floor   time.Duration
	}{
		"B001":                             {"HTTP/1.1 503 No\r\nContent-Type: text/html\r\nRetry-After: 30\r\n\r\n<html>", 503, "<html>", false, dispatch.Unknown, 30 * time.Second},
		"B019, the edge's 522":             {"HTTP/1.1 522 No\r\nServer: cloudflare\r\nCF-RAY: 1-X\r\n\r\n", 522, "", false, dispatch.Rejected, 0},
		"B019, the edge's 523 by its name": {"HTTP/1.1 523 No\r\nServer: cloudflare\r\n\r\n", 523, "", false, dispatch.Rejected, 0},
		"B019, the edge's 524":             {"HTTP/1.1 524 No\r\nServer: cloudflare\r\nCF-RAY: 1-X\r\n\r\n", 524, "", false, dispatch.Unknown, 0},
		"B019, nobody's 522":               {"HTTP/1.1 522 No\r\n\r\n", 522, "", false, dispatch.Unknown, 0},
		"B039":                             {"HTTP/1.1 429 No\r\nRetry-After: 9223372037\r\n\r\n", 429, "", false, dispatch.Rejected, dispatch.MaxFloor},
		"B042":                             {"HTTP/1.1 429 No\r\nRetry-After: 1.5\r\n\r\n", 429, "", false, dispatch.Rejected, 1500 * time.Millisecond},
		"B046, by the answer's own date": {
			"HTTP/1.1 429 No\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nRetry-After: Sun, 06 Nov 1994 08:50:37 GMT\r\n\r\n",
			429, "", false, dispatch.Rejected, time.Minute,
		},
		"B047, on a 502":         {"HTTP/1.1 502 No\r\nRetry-After: 45\r\n\r\n", 502, "", false, dispatch.Unknown, 45 * time.Second},
		"two floors":             {"HTTP/1.1 429 No\r\nRetry-After: 1\r\nRetry-After: 9\r\n\r\n", 429, "", false, dispatch.Rejected, 9 * time.Second},
		"half a body":            {"HTTP/1.1 202 Yes\r\nContent-Length: 10\r\n\r\n{\"id", 202, "{\"id", true, dispatch.OK, 0},
		"half a chunk":           {"HTTP/1.1 202 Yes\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab", 202, "ab", true, dispatch.OK, 0},
		"no body":                {"HTTP/1.1 204 Yes\r\n\r\n", 204, "", false, dispatch.OK, 0},
		"HTTP/1.0":               {"HTTP/1.0 200 OK\r\n\r\nab", 200, "ab", false, dispatch.OK, 0},
		"interim answers":        {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nLink: x\r\n\r\n" + taken, 202, `{"id":"a"}`, false, dispatch.OK, 0},
		"101":                    {"HTTP/1.1 101 Switch\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n", 101, "", false, dispatch.Unknown, 0},
		"gzip that nobody asked": {"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n\x1f\x8b", 200, "\x1f\x8b", false, dispatch.OK, 0},
	} {
		t.Run(name, func(t *testing.T) {
			a, err := ask(t, c.raw)
			require.NoError(t, err)
			require.Equal(t, c.status, a.Status)
			require.Equal(t, c.body, string(a.Body))
			require.Equal(t, c.cut, a.Cut)
			require.False(t, a.Truncated)
			require.Equal(t, dispatch.Answered, a.Evidence.Stage)
			require.Equal(t, c.status, a.Evidence.Status)
			require.Len(t, a.Evidence.Request, 32)
			v := dispatch.Classify(a.Evidence)
			require.Equal(t, c.outcome, v.Outcome)
			require.Equal(t, c.floor, v.Floor)
		})
	}
}

// No status was read: bytes left, so nothing is known.
func TestNoAnswer(t *testing.T) {
	for name, raw := range map[string]string{
		"nothing":         "",
		"half a header":   "HTTP/1.1 202 Acc",
		"nonsense":        "SSH-2.0-x\r\n\r\n",
		"HTTP/2's words":  "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"negative length": "HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
		"two lengths":     "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
		"endless header":  "HTTP/1.1 200 OK\r\n" + strings.Repeat("X-A: "+strings.Repeat("b", 1000)+"\r\n", 100),
		"endless interim": strings.Repeat("HTTP/1.1 103 Hints\r\n\r\n", 10000) + taken,
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ask(t, raw)
			f := fault(t, err, dispatch.MaybeSent, dispatch.CauseConn)
			require.Equal(t, dispatch.Unknown, f.Verdict.Outcome)
		})
	}
}

// B024: endless bodies and packed ones end at the bound, flat in memory.
func TestBodyBound(t *testing.T) {
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	_, err := io.CopyN(z, zeros{}, 8<<20)
	require.NoError(t, err)
	require.NoError(t, z.Close())
	for name, write := range map[string]func(w io.Writer) error{
		"endless": func(w io.Writer) error {
			_, err := io.WriteString(w, "HTTP/1.1 500 No\r\nTransfer-Encoding: chunked\r\n\r\n")
			for err == nil {
				_, err = io.WriteString(w, "1000\r\n"+strings.Repeat("x", 4096)+"\r\n")
			}
			return err
		},
		"length of an exabyte": func(w io.Writer) error {
			_, err := io.WriteString(w, "HTTP/1.1 500 No\r\nContent-Length: 1152921504606846976\r\n\r\n")
			for err == nil {
				_, err = w.Write(make([]byte, 4096))
			}
			return err
		},
		"gzip": func(w io.Writer) error {
			_, err := io.WriteString(w, "HTTP/1.1 500 No\r\nContent-Encoding: gzip\r\n\r\n")
			for err == nil {
				_, err = w.Write(bomb.Bytes())
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			ended := make(chan struct{})
			url := socket(t, func(c net.Conn, _ int) {
				defer close(ended)
				next(bufio.NewReader(c))
				_ = write(c)
			})
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			a, err := client(t, exchange.Config{}).Do(t.Context(), post(url))
			require.NoError(t, err)
			<-ended // the connection was closed, not kept
			runtime.ReadMemStats(&after)
			require.Equal(t, http.StatusInternalServerError, a.Status)
			require.True(t, a.Truncated)
			require.Len(t, a.Body, 64<<10)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(16<<20))
		})
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// B022: a redirect is an answer. Nothing goes to another host or path.
func TestRedirect(t *testing.T) {
	for _, status := range []string{"301", "302", "303", "307", "308"} {
		var elsewhere, here atomic.Int32
		other := socket(t, answering(&elsewhere, taken))
		url := socket(t, answering(&here, "HTTP/1.1 "+status+" Go\r\nLocation: "+other+"/login\r\nContent-Length: 0\r\n\r\n"))
		a, err := client(t, exchange.Config{}).Do(t.Context(), post(url))
		require.NoError(t, err)
		v := dispatch.Classify(a.Evidence)
		require.Equal(t, dispatch.Rejected, v.Outcome)
		require.Equal(t, dispatch.Account, v.Scope)
		require.Zero(t, elsewhere.Load())
		require.Equal(t, int32(1), here.Load())
	}
}

// An attempt that is over closes its connection hard: the server sees a
// reset, not a polite end after late bytes.
func TestHardClose(t *testing.T) {
	got := make(chan error, 1)
	arrived := make(chan struct{})
	var once sync.Once
	url := socket(t, func(c net.Conn, _ int) {
		next(bufio.NewReader(c))
		once.Do(func() { close(arrived) })
		_, err := c.Read(make([]byte, 1))
		got <- err
	})
	c := client(t, exchange.Config{Answer: 50 * time.Millisecond})
	_, err := c.Do(t.Context(), post(url))
	<-arrived
	fault(t, err, dispatch.MaybeSent, dispatch.CauseDeadline)
	require.NotErrorIs(t, <-got, io.EOF)
}
