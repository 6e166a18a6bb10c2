package exchange_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/exchange"
)

const (
	plain  = "http://127.0.0.1:1/v1/messages"
	secure = "https://api.example/v1/messages"
)

// Each phase ends at its own limit, to the tick, and says what is proven.
func TestPhases(t *testing.T) {
	never := func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	proxy := func(*http.Request) (*url.URL, error) { return url.Parse("http://relay.example:3128") }
	for name, c := range map[string]struct {
		url   string
		cfg   exchange.Config
		after time.Duration
		stage dispatch.Stage
		cause dispatch.Cause
	}{
		"dial": {plain, exchange.Config{Dial: never}, 5 * time.Second, dispatch.NotSent, dispatch.CauseDial},
		"dial, shorter": {
			plain, exchange.Config{Dial: never, Connect: time.Second}, time.Second, dispatch.NotSent, dispatch.CauseDial,
		},
		"TLS handshake": {secure, exchange.Config{Dial: memory(mute)}, 5 * time.Second, dispatch.NotSent, dispatch.CauseDial},
		"proxy": {
			secure, exchange.Config{Dial: memory(mute), Proxy: proxy}, 5 * time.Second, dispatch.NotSent, dispatch.CauseProxy,
		},
		"write, nothing taken": {
			plain, exchange.Config{Dial: memory(deaf)}, 10 * time.Second, dispatch.NotSent, dispatch.CauseDeadline,
		},
		"write, a part taken": {plain, exchange.Config{Dial: memory(func(c net.Conn, n int) {
			_, _ = io.ReadFull(c, make([]byte, 20))
			deaf(c, n)
		})}, 10*time.Second + 500*time.Millisecond, dispatch.MaybeSent, dispatch.CauseDeadline},
		"answer": {plain, exchange.Config{Dial: memory(mute)}, 15 * time.Second, dispatch.MaybeSent, dispatch.CauseDeadline},
		"answer, half a header": {plain, exchange.Config{Dial: memory(func(c net.Conn, n int) {
			next(bufio.NewReader(c))
			_, _ = io.WriteString(c, "HTTP/1.1 202 Acc")
			mute(c, n)
		})}, 15 * time.Second, dispatch.MaybeSent, dispatch.CauseDeadline},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				_, err := client(t, c.cfg).Do(t.Context(), post(c.url))
				fault(t, err, c.stage, c.cause)
				require.Equal(t, c.after, time.Since(start))
			})
		})
	}
}

// B004: the status is there, the body never ends.
func TestBodyStalls(t *testing.T) {
	for name, rest := range map[string]func(net.Conn){
		"silence": func(c net.Conn) { mute(c, 1) },
		"a byte a second": func(c net.Conn) {
			for tick := time.NewTicker(time.Second); ; {
				if _, err := io.WriteString(c, "x"); err != nil {
					return
				}
				select {
				case <-tick.C:
				case <-c.(end).gone:
					return
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				x := client(t, exchange.Config{Dial: memory(func(c net.Conn, n int) {
					next(bufio.NewReader(c))
					if n > 1 {
						_, _ = io.WriteString(c, taken)
						return
					}
					_, _ = io.WriteString(c, "HTTP/1.1 201 Created\r\nContent-Length: 100\r\n\r\n{\"sid\":")
					rest(c)
				})})
				a, err := x.Do(t.Context(), post(plain))
				require.NoError(t, err)
				require.Equal(t, 15*time.Second, time.Since(start))
				require.Equal(t, http.StatusCreated, a.Status)
				require.True(t, a.Cut)
				require.False(t, a.Whole())
				require.Equal(t, dispatch.OK, dispatch.Classify(a.Evidence).Outcome)

				// What is left of it is never read as the next answer.
				a, err = x.Do(t.Context(), post(plain))
				require.NoError(t, err)
				require.Equal(t, http.StatusAccepted, a.Status)
			})
		})
	}
}

func TestPoolWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := client(t, exchange.Config{MaxConns: 1, Dial: memory(mute)})
		first := make(chan error)
		go func() {
			_, err := c.Do(t.Context(), post(plain))
			first <- err
		}()
		synctest.Wait()
		start := time.Now()
		_, err := c.Do(t.Context(), post(plain))
		f := fault(t, err, dispatch.NotSent, dispatch.CausePool)
		require.Equal(t, dispatch.Rejected, f.Verdict.Outcome)
		require.Equal(t, 5*time.Second, time.Since(start))
		fault(t, <-first, dispatch.MaybeSent, dispatch.CauseDeadline)

		// The slot is free again.
		_, err = c.Do(t.Context(), post(plain))
		fault(t, err, dispatch.MaybeSent, dispatch.CauseDeadline)
	})
}

// An exchange ends with its context in every phase, and tells what is proven.
func TestContextEnds(t *testing.T) {
	never := func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	for name, c := range map[string]struct {
		url   string
		dial  func(context.Context, string, string) (net.Conn, error)
		stage dispatch.Stage
	}{
		"dial":      {plain, never, dispatch.NotSent},
		"handshake": {secure, memory(mute), dispatch.NotSent},
		"write":     {plain, memory(deaf), dispatch.NotSent},
		"answer":    {plain, memory(mute), dispatch.MaybeSent},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				defer cancel()
				start := time.Now()
				_, err := client(t, exchange.Config{Dial: c.dial}).Do(ctx, post(c.url))
				fault(t, err, c.stage, dispatch.CauseDeadline)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.Equal(t, 3*time.Second, time.Since(start))
			})
		})
	}
	t.Run("body", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			a, err := client(t, exchange.Config{Dial: memory(func(c net.Conn, n int) {
				next(bufio.NewReader(c))
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\nab")
				mute(c, n)
			})}).Do(ctx, post(plain))
			require.NoError(t, err)
			require.True(t, a.Cut)
			require.Equal(t, "ab", string(a.Body))
		})
	})
	t.Run("already over", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := client(t, exchange.Config{Dial: never}).Do(ctx, post(plain))
		fault(t, err, dispatch.NotSent, dispatch.CauseDeadline)
		require.ErrorIs(t, err, context.Canceled)
	})
	t.Run("waiting for a connection", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := client(t, exchange.Config{MaxConns: 1, Dial: memory(mute)})
			go func() { _, _ = c.Do(t.Context(), post(plain)) }()
			synctest.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := c.Do(ctx, post(plain))
			fault(t, err, dispatch.NotSent, dispatch.CauseDeadline)
		})
	})
}

// A server that refuses the size may stop reading: its answer counts all the
// same.
func TestEarlyAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := post(plain)
		r.Body = make([]byte, 1<<20)
		a, err := client(t, exchange.Config{Dial: memory(func(c net.Conn, n int) {
			_, _ = io.ReadFull(c, make([]byte, 100))
			go mute(c, n)
			_, _ = io.WriteString(c, "HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
			_ = c.Close()
		})}).Do(t.Context(), r)
		require.NoError(t, err)
		require.Equal(t, http.StatusRequestEntityTooLarge, a.Status)
	})
}
