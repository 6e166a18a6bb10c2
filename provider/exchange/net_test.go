package exchange_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/exchange"
)

// memory is a network of net.Pipes: serve gets the server's end of each
// connection, n counts them from 1. It runs inside a synctest bubble, where a
// goroutine that stays behind fails the test.
func memory(serve func(c net.Conn, n int)) func(context.Context, string, string) (net.Conn, error) {
	var n atomic.Int32
	return func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		gone := make(chan struct{})
		go func() {
			defer func() { _ = server.Close() }()
			serve(end{server, gone}, int(n.Add(1)))
		}()
		return watched{client, sync.OnceFunc(func() { close(gone) })}, nil
	}
}

// watched tells when the client closes; end is the server's end of it.
type watched struct {
	net.Conn
	closed func()
}

func (w watched) Close() error {
	w.closed()
	return w.Conn.Close()
}

type end struct {
	net.Conn
	gone chan struct{}
}

// deaf neither reads nor writes until the client has left.
func deaf(c net.Conn, _ int) { <-c.(end).gone }

// socket is a raw server on the loopback; serve is called for each
// connection, n counts them from 1. It returns the base URL.
func socket(t *testing.T, serve func(c net.Conn, n int)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var wg sync.WaitGroup
	t.Cleanup(func() {
		_ = l.Close()
		wg.Wait()
	})
	wg.Go(func() {
		for n := 1; ; n++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer func() { _ = c.Close() }()
				serve(c, n)
			})
		}
	})
	return "http://" + l.Addr().String()
}

// next reads one request with its body; nil where the client left.
func next(br *bufio.Reader) *http.Request {
	r, err := http.ReadRequest(br)
	if err != nil {
		return nil
	}
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return nil
	}
	return r
}

// answering is a server that gives each request on each connection the same
// raw answer and counts them.
func answering(count *atomic.Int32, raw string) func(net.Conn, int) {
	return func(c net.Conn, _ int) {
		for br := bufio.NewReader(c); next(br) != nil; {
			count.Add(1)
			if _, err := io.WriteString(c, raw); err != nil {
				return
			}
		}
	}
}

const taken = "HTTP/1.1 202 Accepted\r\nContent-Length: 10\r\n\r\n{\"id\":\"a\"}"

// mute reads until the client leaves and says nothing.
func mute(c net.Conn, _ int) { _, _ = io.Copy(io.Discard, c) }

func client(t *testing.T, cfg exchange.Config) *exchange.Client {
	t.Helper()
	if cfg.Proxy == nil { // the environment's would get in the way
		cfg.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil }
	}
	c, err := exchange.New(cfg)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

func post(url string) exchange.Request {
	return exchange.Request{
		URL: url, KeyHeader: "Idempotency-Key", Key: "k-1", Body: []byte(`{"to":"+15555550123"}`),
		Header: http.Header{"Content-Type": {"application/json"}}, Auth: http.Header{"Authorization": {"Bearer hunter2"}},
	}
}

// seen is a Fault that was looked at.
type seen dispatch.Fault

// fault is the error of an exchange, with the evidence that it must have.
func fault(t *testing.T, err error, stage dispatch.Stage, cause dispatch.Cause) seen {
	t.Helper()
	var f *dispatch.Fault
	require.ErrorAs(t, err, &f)
	require.Equal(t, stage, f.Evidence.Stage, "stage, cause %v, %v", f.Evidence.Cause, f.Err)
	require.Equal(t, cause.String(), f.Evidence.Cause.String())
	require.Equal(t, dispatch.Classify(f.Evidence), f.Verdict)
	require.NotContains(t, err.Error(), "hunter2")
	require.NotContains(t, err.Error(), "5555550123")
	require.NotContains(t, err.Error(), "127.0.0.1")
	return seen(*f)
}

// bent is a connection whose writes fail once its budget of bytes is spent.
type bent struct {
	net.Conn
	budget *atomic.Int64 // negative: no limit
}

var errBent = errors.New("bent: http://user:hunter2@example.com")

func (b bent) Write(p []byte) (int, error) {
	left := b.budget.Load()
	if left < 0 {
		return b.Conn.Write(p)
	}
	if int64(len(p)) <= left {
		b.budget.Add(-int64(len(p)))
		return b.Conn.Write(p)
	}
	n, err := b.Conn.Write(p[:left])
	b.budget.Add(-int64(n))
	if err == nil {
		err = errBent
	}
	return n, err
}
