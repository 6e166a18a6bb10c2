// Package exchange makes one HTTP exchange: one request, sent once, and what
// is known of it afterwards. Adapters for HTTP vendors are built on it.
//
// It writes and reads on the caller's goroutine, on a connection of its own,
// instead of through http.Transport. Transport re-sends by itself a POST with
// an Idempotency-Key and a body that can be rewound, and its background
// writer makes "nothing was written" hard to prove. Here it is a count of the
// bytes that were handed to the socket.
//
// Only HTTP/1.1 is spoken. HTTP/2 would put several messages on one
// connection, whose end then says something about each of them only by the
// stream ids in a GOAWAY frame; one request per connection needs none of it.
//
// Redirects are answers, not followed. Nothing is decompressed: no
// Accept-Encoding is sent, and what comes compressed all the same is kept as
// it came, within the bound.
package exchange

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/seed-8098fbb7/dispatch"
)

// Config bounds a Client. The zero Config is usable; a zero field means the
// default that stands with it.
type Config struct {
	// Connect bounds DNS, dial, proxy and TLS handshake together: 5 s.
	Connect time.Duration
	// Write bounds the writing of the whole request: 10 s. Raise it for mail
	// with large attachments on a slow link.
	Write time.Duration
	// Answer bounds the time from the request's last byte to the last byte of
	// the answer, header and body together: 15 s.
	Answer time.Duration
	// PoolWait bounds the wait for one of MaxConns: 5 s.
	PoolWait time.Duration
	// Idle is how long an unused connection is kept: 30 s, less where the
	// server's Keep-Alive field says so. It should stay below what the vendor
	// keeps: a server that closes while a request is on its way leaves an
	// unknown behind.
	Idle time.Duration
	// MaxConns bounds the exchanges at a time, and the idle connections: 100.
	MaxConns int
	// MaxBody is how much of an answer's body is read, in bytes: 64 KiB.
	MaxBody int
	// Proxy names the forward proxy for an https request, as in
	// http.Transport; nil means http.ProxyFromEnvironment. Proxies are spoken
	// to over http or https, with CONNECT; plain http requests, which go to
	// the loopback only, use none.
	Proxy func(*http.Request) (*url.URL, error)
	// TLS is cloned; nil means the system's roots and TLS 1.2 or later.
	TLS *tls.Config
	// Dial opens a connection; nil means a net.Dialer. It must return when
	// its context ends. A connection that wraps another should pass on its
	// SetLinger and SyscallConn: they make it end hard, and let an idle one be
	// looked at without waiting.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// Client makes exchanges. It is safe for concurrent use and starts no
// goroutine that outlives an exchange.
type Client struct {
	cfg   Config
	slots chan struct{}
	pool  pool
}

// New checks the configuration. Its error names the field.
func New(cfg Config) (*Client, error) {
	for _, f := range []struct {
		name  string
		value *time.Duration
		def   time.Duration
	}{
		{"Connect", &cfg.Connect, 5 * time.Second},
		{"Write", &cfg.Write, 10 * time.Second},
		{"Answer", &cfg.Answer, 15 * time.Second},
		{"PoolWait", &cfg.PoolWait, 5 * time.Second},
		{"Idle", &cfg.Idle, 30 * time.Second},
	} {
		if *f.value < 0 || *f.value > time.Hour {
			return nil, fmt.Errorf("exchange: %s is %v, want 0 to 1h", f.name, *f.value)
		}
		if *f.value == 0 {
			*f.value = f.def
		}
	}
	switch {
	case cfg.MaxConns < 0 || cfg.MaxConns > 1<<16:
		return nil, fmt.Errorf("exchange: MaxConns is %d, want 0 to %d", cfg.MaxConns, 1<<16)
	case cfg.MaxBody < 0 || cfg.MaxBody > 1<<26:
		return nil, fmt.Errorf("exchange: MaxBody is %d, want 0 to %d", cfg.MaxBody, 1<<26)
	}
	if cfg.MaxConns == 0 {
		cfg.MaxConns = 100
	}
	if cfg.MaxBody == 0 {
		cfg.MaxBody = 64 << 10
	}
	if cfg.Proxy == nil {
		cfg.Proxy = http.ProxyFromEnvironment
	}
	if cfg.Dial == nil {
		cfg.Dial = new(net.Dialer).DialContext
	}
	if cfg.TLS == nil {
		cfg.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	} else {
		cfg.TLS = cfg.TLS.Clone()
	}
	cfg.TLS.NextProtos = []string{"http/1.1"}
	return &Client{cfg: cfg, slots: make(chan struct{}, cfg.MaxConns), pool: pool{limit: cfg.MaxConns}}, nil
}

// Timeout is the longest that one exchange may take by itself: the wait for
// a connection, connect, write and answer. A contract's Timeout should not be
// below it.
func (c *Client) Timeout() time.Duration {
	return c.cfg.PoolWait + c.cfg.Connect + c.cfg.Write + c.cfg.Answer
}

// Close closes the idle connections, now and from now on. Exchanges under way
// are not disturbed, and later ones still work.
func (c *Client) Close() { c.pool.close() }

// Do sends r once and returns the answer, whatever its status. Its error is
// always a *dispatch.Fault, with the verdict of [dispatch.Classify]: Rejected
// where it is proven that no byte of the request left this process, Unknown
// otherwise. It returns when ctx ends, and closes the connection hard then.
//
// A kept connection that turns out dead before a byte was written on it is
// replaced by a fresh one at once; nothing else is ever tried twice.
func (c *Client) Do(ctx context.Context, r Request) (Answer, error) {
	p, err := prepare(r)
	if err != nil {
		return Answer{}, fail(dispatch.Evidence{Stage: dispatch.NotSent, Cause: dispatch.CauseLocal}, err)
	}
	e := dispatch.Evidence{Stage: dispatch.NotSent, Request: p.digest}
	if !p.replays(r.Replay) {
		e.Cause = dispatch.CauseChanged
		return Answer{}, fail(e, errors.New("request differs from the one before"))
	}
	if e.Cause, err = c.acquire(ctx); err != nil {
		return Answer{}, fail(e, err)
	}
	defer func() { <-c.slots }()

	if cn := c.pool.take(p.target()); cn != nil {
		a, err := c.exchange(ctx, cn, p)
		if !untouched(err) || ctx.Err() != nil {
			return a, err
		}
	}
	cn, e, err := c.dial(ctx, p)
	if err != nil {
		return Answer{}, fail(e, err)
	}
	return c.exchange(ctx, cn, p)
}

// acquire waits for a slot.
func (c *Client) acquire(ctx context.Context) (dispatch.Cause, error) {
	if err := ctx.Err(); err != nil {
		return dispatch.CauseDeadline, err
	}
	select {
	case c.slots <- struct{}{}:
		return dispatch.CauseNone, nil
	default:
	}
	t := time.NewTimer(c.cfg.PoolWait)
	defer t.Stop()
	select {
	case c.slots <- struct{}{}:
		return dispatch.CauseNone, nil
	case <-t.C:
		return dispatch.CausePool, errors.New("no connection came free")
	case <-ctx.Done():
		return dispatch.CauseDeadline, ctx.Err()
	}
}

func fail(e dispatch.Evidence, err error) *dispatch.Fault {
	return &dispatch.Fault{Evidence: e, Verdict: dispatch.Classify(e), Err: err}
}
