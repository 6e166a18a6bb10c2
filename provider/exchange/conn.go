package exchange

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/seed-8098fbb7/dispatch"
)

// conn is one connection. One exchange at a time uses it, on one goroutine;
// only abort is called from another.
type conn struct {
	raw    *counted // the socket
	stream net.Conn // what HTTP is spoken on: raw itself, or TLS over it
	secure bool
	target string
	head   limited // reads from stream
	br     *bufio.Reader
	bw     *bufio.Writer

	before int64 // what raw had written when the exchange began
	keep   time.Duration
	timer  *time.Timer // ends its time in the pool
}

func newConn(raw *counted, stream net.Conn, secure bool, target string) *conn {
	cn := &conn{raw: raw, stream: stream, secure: secure, target: target}
	cn.head.r = stream
	cn.br, cn.bw = bufio.NewReader(&cn.head), bufio.NewWriter(stream)
	return cn
}

// counted counts the bytes that the socket took.
type counted struct {
	net.Conn
	out atomic.Int64
}

func (c *counted) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.out.Add(int64(n))
	return n, err
}

// limited bounds what is read while n isn't negative.
type limited struct {
	r io.Reader
	n int64
}

func (l *limited) Read(p []byte) (int, error) {
	if l.n < 0 {
		return l.r.Read(p)
	}
	if l.n == 0 {
		return 0, errors.New("answer's header is too long")
	}
	n, err := l.r.Read(p[:min(int64(len(p)), l.n)])
	l.n -= int64(n)
	return n, err
}

// begin starts an exchange. The kernel gives up on unacknowledged bytes after
// d, so that a process that was stopped can't send them much later.
func (c *conn) begin(d time.Duration) {
	c.before = c.raw.out.Load()
	userTimeout(c.raw.Conn, d)
}

// written is how many bytes left since begin. Under TLS it counts everything,
// an alert too, and so errs to the safe side.
func (c *conn) written() int64 { return c.raw.out.Load() - c.before }

// untouched reports whether an exchange that ended with err left no trace on
// the wire because its connection was dead.
func untouched(err error) bool {
	var f *dispatch.Fault
	return errors.As(err, &f) && f.Evidence.Stage == dispatch.NotSent && f.Evidence.Cause == dispatch.CauseConn
}

func (c *conn) write(req *http.Request, deadline time.Time) error {
	if err := c.stream.SetWriteDeadline(deadline); err != nil {
		return err
	}
	if err := req.Write(c.bw); err != nil {
		return err
	}
	return c.bw.Flush()
}

// read reads the answer's header, past interim answers.
func (c *conn) read(req *http.Request, deadline time.Time) (*http.Response, error) {
	if err := c.stream.SetReadDeadline(deadline); err != nil {
		return nil, err
	}
	c.head.n = maxHeader
	defer func() { c.head.n = -1 }()
	for {
		resp, err := http.ReadResponse(c.br, req)
		if err != nil {
			return nil, err
		}
		switch s := resp.StatusCode; {
		case s < 100: // "000" is let through
			return nil, errors.New("answer's status is none")
		case s > 199 || s == http.StatusSwitchingProtocols:
			return resp, nil
		}
	}
}

// reusable reports whether another exchange may use the connection, and sets
// for how long.
func (c *conn) reusable(resp *http.Response, idle time.Duration) bool {
	c.keep = idle
	if d := keepAlive(resp.Header); d > 0 {
		c.keep = min(idle, d)
	}
	return !resp.Close && resp.StatusCode != http.StatusSwitchingProtocols && c.br.Buffered() == 0
}

// quiet reports whether nothing arrived on an idle connection. Whatever did,
// its end or an answer that nobody asked for (a 408), must not be read as the
// answer to the next request.
func (c *conn) quiet() bool {
	if c.stream.SetReadDeadline(time.Time{}) != nil {
		return false
	}
	switch pending, known := peek(c.raw.Conn); {
	case known && !pending && !c.secure:
		return true
	case known && pending && !c.secure:
		return false
	case known && !pending: // TLS may hold a record already
		return c.silent(time.Unix(1, 0))
	}
	// Not known, or it may be a session ticket: TLS must look.
	return c.silent(time.Now().Add(time.Millisecond))
}

func (c *conn) silent(until time.Time) bool {
	if c.stream.SetReadDeadline(until) != nil {
		return false
	}
	var b [1]byte
	n, err := c.stream.Read(b[:])
	return n == 0 && errors.Is(err, os.ErrDeadlineExceeded)
}

// abort closes the connection hard: what the kernel still holds is dropped
// and the server gets a reset, so that no byte arrives after the attempt is
// over. TLS is not told; its farewell could block.
func (c *conn) abort() { abort(c.raw.Conn) }

func abort(c net.Conn) {
	if l, ok := c.(interface{ SetLinger(sec int) error }); ok {
		_ = l.SetLinger(0) // a closed socket needs none
	}
	_ = c.Close() // nothing can be done about it
}
