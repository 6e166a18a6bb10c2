package exchange_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/exchange"
)

const farewell = "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"

// B021: what a server wrote on an idle connection is never the answer to the
// next request, whether it closed the connection after it or not.
func TestUnsolicited(t *testing.T) {
	for name, then := range map[string]func(c net.Conn){
		"408 and close": func(c net.Conn) { _, _ = io.WriteString(c, farewell); _ = c.Close() },
		"408, left open": func(c net.Conn) {
			_, _ = io.WriteString(c, farewell)
		},
		"200":   func(c net.Conn) { _, _ = io.WriteString(c, taken) },
		"close": func(c net.Conn) { _ = c.Close() },
		"reset": func(c net.Conn) { _ = c.(*net.TCPConn).SetLinger(0); _ = c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			var requests atomic.Int32
			idle, written := make(chan struct{}), make(chan struct{})
			url := socket(t, func(c net.Conn, n int) {
				if n > 1 {
					answering(&requests, taken)(c, n)
					return
				}
				if next(bufio.NewReader(c)) != nil {
					requests.Add(1)
				}
				_, _ = io.WriteString(c, taken)
				<-idle
				then(c)
				close(written)
				mute(c, n)
			})
			c := client(t, exchange.Config{})
			a, err := c.Do(t.Context(), post(url))
			require.NoError(t, err)
			require.Equal(t, http.StatusAccepted, a.Status)
			close(idle)
			<-written
			a, err = c.Do(t.Context(), post(url))
			require.NoError(t, err)
			require.Equal(t, http.StatusAccepted, a.Status)
			require.Equal(t, int32(2), requests.Load())
		})
	}
}

// The same where the connection is no socket, and bytes right behind an
// answer.
func TestUnsolicitedInMemory(t *testing.T) {
	for name, first := range map[string]func(c net.Conn){
		"later": func(c net.Conn) {
			_, _ = io.WriteString(c, taken)
			_, _ = io.WriteString(c, farewell)
		},
		"at once": func(c net.Conn) { _, _ = io.WriteString(c, taken+farewell) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var requests atomic.Int32
				c := client(t, exchange.Config{Dial: memory(func(c net.Conn, n int) {
					if n > 1 {
						answering(&requests, taken)(c, n)
						return
					}
					next(bufio.NewReader(c))
					first(c)
					mute(c, n)
				})})
				for range 2 {
					a, err := c.Do(t.Context(), post(plain))
					require.NoError(t, err)
					require.Equal(t, http.StatusAccepted, a.Status)
				}
				require.Equal(t, int32(1), requests.Load())
			})
		})
	}
}

// A server that reads the request on a kept connection and closes: net/http
// would send a POST with an Idempotency-Key again by itself.
func TestOneRequestPerExchange(t *testing.T) {
	var requests atomic.Int32
	url := socket(t, func(c net.Conn, _ int) {
		br := bufio.NewReader(c)
		for next(br) != nil {
			if requests.Add(1) > 1 {
				return
			}
			_, _ = io.WriteString(c, taken)
		}
	})
	c := client(t, exchange.Config{})
	_, err := c.Do(t.Context(), post(url))
	require.NoError(t, err)
	_, err = c.Do(t.Context(), post(url))
	f := fault(t, err, dispatch.MaybeSent, dispatch.CauseConn)
	require.Equal(t, dispatch.Unknown, f.Verdict.Outcome)
	require.Equal(t, int32(2), requests.Load())
}

// B035: nor does a 503 make a second request.
func TestNoRetry(t *testing.T) {
	var requests atomic.Int32
	url := socket(t, answering(&requests, "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"))
	c := client(t, exchange.Config{})
	for range 3 {
		a, err := c.Do(t.Context(), post(url))
		require.NoError(t, err)
		require.Equal(t, http.StatusServiceUnavailable, a.Status)
	}
	require.Equal(t, int32(3), requests.Load())
}

// The one exception: a kept connection that is dead before it took a byte is
// replaced, once. Where it took one, nothing is repeated.
func TestDeadBeforeTheFirstByte(t *testing.T) {
	for name, c := range map[string]struct {
		budgets  []int64 // of each connection, after its first request
		stage    dispatch.Stage
		ok       bool
		requests int32
	}{
		"nothing taken":               {[]int64{0, -1}, 0, true, 2},
		"nothing taken, the next too": {[]int64{0, 0}, dispatch.NotSent, false, 1},
		"one byte taken":              {[]int64{1, -1}, dispatch.MaybeSent, false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var requests atomic.Int32
			serve := memory(answering(&requests, taken))
			synctest.Test(t, func(t *testing.T) {
				first := &atomic.Int64{}
				first.Store(-1)
				n := 0
				x := client(t, exchange.Config{Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
					conn, err := serve(ctx, network, addr)
					budget := first
					if n > 0 {
						budget = &atomic.Int64{}
						budget.Store(c.budgets[n])
					}
					n++
					return bent{conn, budget}, err
				}})
				_, err := x.Do(t.Context(), post(plain))
				require.NoError(t, err)
				first.Store(c.budgets[0])
				_, err = x.Do(t.Context(), post(plain))
				if c.ok {
					require.NoError(t, err)
				} else {
					fault(t, err, c.stage, dispatch.CauseConn)
				}
				require.Equal(t, c.requests, requests.Load())
				require.LessOrEqual(t, n, 2)
			})
		})
	}
}

// Kept connections end when the vendor's Keep-Alive says so, or at Idle.
func TestIdle(t *testing.T) {
	for name, c := range map[string]struct {
		header string
		idle   time.Duration
		after  time.Duration
	}{
		"default":            {"", 0, 30 * time.Second},
		"Idle":               {"", time.Minute, time.Minute},
		"vendor's":           {"Keep-Alive: timeout=5, max=100\r\n", 0, 4 * time.Second},
		"vendor's is longer": {"Keep-Alive: timeout=600\r\n", 0, 30 * time.Second},
		"vendor's is odd":    {"Keep-Alive: timeout=-9223372036854775808\r\n", 0, 30 * time.Second},
		"close":              {"Connection: close\r\n", 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var end time.Time
				var wg sync.WaitGroup
				wg.Add(1)
				x := client(t, exchange.Config{Idle: c.idle, Dial: memory(func(conn net.Conn, n int) {
					defer wg.Done()
					next(bufio.NewReader(conn))
					_, _ = io.WriteString(conn, "HTTP/1.1 202 Accepted\r\n"+c.header+"Content-Length: 0\r\n\r\n")
					mute(conn, n)
					end = time.Now()
				})})
				start := time.Now()
				_, err := x.Do(t.Context(), post(plain))
				require.NoError(t, err)
				wg.Wait()
				require.Equal(t, c.after, end.Sub(start))
			})
		})
	}
}

// Close ends idle connections, and those that come back after it.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var requests atomic.Int32
		c := client(t, exchange.Config{Dial: memory(answering(&requests, taken))})
		for range 2 {
			_, err := c.Do(t.Context(), post(plain))
			require.NoError(t, err)
			c.Close()
			synctest.Wait() // the server's goroutine must be gone when the bubble ends
		}
	})
}

// More exchanges at a time than idle connections are wanted: all is reused,
// and never two exchanges on one connection.
func TestConcurrent(t *testing.T) {
	var requests, conns atomic.Int32
	url := socket(t, func(c net.Conn, n int) {
		conns.Add(1)
		answering(&requests, taken)(c, n)
	})
	c := client(t, exchange.Config{MaxConns: 4})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 25 {
				_, err := c.Do(t.Context(), post(url))
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	require.Equal(t, int32(200), requests.Load())
	require.LessOrEqual(t, conns.Load(), int32(4), "connections are kept")
}
