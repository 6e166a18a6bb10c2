package smtp

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/internal/mailapi"
)

// conn is one connection. One transaction at a time uses it, on one goroutine;
// only abort is called from another.
type conn struct {
	raw    *counted // the socket
	stream net.Conn // what SMTP is spoken on: raw itself, or TLS over it
	br     *bufio.Reader
	step   time.Duration
	offers map[string]string // the server's extensions, by keyword

	born  time.Time
	mails int         // transactions that were begun
	dirty bool        // the server may be in the middle of one
	clean bool        // another may follow
	timer *time.Timer // ends its time in the pool
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

func (c *conn) on(stream net.Conn) { c.stream, c.br = stream, bufio.NewReaderSize(stream, maxLine) }

// dial opens a connection on which a transaction can begin.
func (p *Provider) dial(ctx context.Context, limit time.Time) (*conn, *trouble) {
	connect, cancel := context.WithDeadline(ctx, sooner(limit, p.cfg.Connect))
	defer cancel()
	socket, err := p.cfg.Dial(connect, "tcp", p.cfg.Addr)
	if err != nil {
		return nil, &trouble{cause: dispatch.CauseDial, err: err}
	}
	c := &conn{raw: &counted{Conn: socket}, step: p.cfg.Step, born: time.Now()}
	c.on(c.raw)
	stop := context.AfterFunc(ctx, c.abort)
	t := p.begin(ctx, c, limit)
	if !stop() && t == nil {
		t = &trouble{cause: dispatch.CauseDeadline, err: ctx.Err()}
	}
	if t != nil {
		c.abort()
		return nil, t
	}
	return c, nil
}

// begin brings a fresh connection to where mail is taken.
func (p *Provider) begin(ctx context.Context, c *conn, limit time.Time) *trouble {
	if p.cfg.ImplicitTLS {
		if err := p.secure(ctx, c, limit); err != nil {
			return err
		}
	}
	if err := c.read(atGreeting, 2, limit); err != nil {
		return err
	}
	if err := p.hello(c, limit); err != nil {
		return err
	}
	if !p.cfg.ImplicitTLS && !p.cfg.Plaintext {
		if _, ok := c.offers["STARTTLS"]; !ok {
			return refuse(mailapi.Account("STARTTLS is not offered"))
		}
		if err := c.ask(atStartTLS, 2, limit, "STARTTLS"); err != nil {
			return err
		}
		if c.br.Buffered() > 0 { // someone on the line put it there, to be read as if it came under TLS
			return &trouble{at: atStartTLS, cause: dispatch.CauseConn, err: errProtocol}
		}
		if err := p.secure(ctx, c, limit); err != nil {
			return err
		}
		if err := p.hello(c, limit); err != nil {
			return err
		}
	}
	return p.authenticate(c, limit)
}

func (p *Provider) secure(ctx context.Context, c *conn, limit time.Time) *trouble {
	ctx, cancel := context.WithDeadline(ctx, sooner(limit, p.cfg.Connect))
	defer cancel()
	t := tls.Client(c.raw, p.cfg.TLS)
	if err := t.HandshakeContext(ctx); err != nil {
		cause := dispatch.CauseDial
		if refused := new(tls.CertificateVerificationError); errors.As(err, &refused) {
			cause = dispatch.CauseCertificate
		}
		return &trouble{cause: cause, err: err}
	}
	c.on(t)
	return nil
}

// hello names this client and learns what the server offers.
func (p *Provider) hello(c *conn, limit time.Time) *trouble {
	name := p.cfg.Hello
	if name == "" {
		name = literal(c.raw.LocalAddr())
	}
	r, err := c.command(atHello, limit, "EHLO "+name)
	if err != nil {
		return err
	}
	if r.class() != 2 {
		return refusal(atHello, r)
	}
	c.offers = map[string]string{}
	for _, line := range r.lines[1:] {
		keyword, params, _ := strings.Cut(line, " ")
		c.offers[strings.ToUpper(keyword)] = params
	}
	return nil
}

// literal is an address as EHLO has it (RFC 5321 section 4.1.3). A client that
// has no name of its own must not borrow one: "localhost" is refused by many
// (B087).
func literal(a net.Addr) string {
	ip, err := netip.ParseAddrPort(a.String())
	switch {
	case err != nil: // not a socket of TCP
		return "[127.0.0.1]"
	case ip.Addr().Unmap().Is4():
		return "[" + ip.Addr().Unmap().String() + "]"
	}
	return "[IPv6:" + ip.Addr().WithZone("").String() + "]"
}

// authenticate logs in where the configuration says so (RFC 4954).
func (p *Provider) authenticate(c *conn, limit time.Time) *trouble {
	if p.cfg.Username == "" {
		return nil
	}
	encode := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	mechanisms := strings.Fields(strings.ToUpper(c.offers["AUTH"]))
	switch {
	case slices.Contains(mechanisms, "PLAIN"): // RFC 4616
		return c.ask(atAuth, 2, limit, "AUTH PLAIN "+encode("\x00"+p.cfg.Username+"\x00"+p.cfg.Password))
	case slices.Contains(mechanisms, "LOGIN"):
		if err := c.ask(atAuth, 3, limit, "AUTH LOGIN"); err != nil {
			return err
		}
		if err := c.ask(atAuth, 3, limit, encode(p.cfg.Username)); err != nil {
			return err
		}
		return c.ask(atAuth, 2, limit, encode(p.cfg.Password))
	}
	return refuse(mailapi.Account("server offers neither AUTH PLAIN nor LOGIN"))
}

// ask sends a command whose answer must be of a class.
func (c *conn) ask(at step, class int, limit time.Time, line string) *trouble {
	if err := c.write(limit, line+"\r\n"); err != nil {
		return c.broken(at, err)
	}
	return c.read(at, class, limit)
}

// read reads an answer that must be of a class.
func (c *conn) read(at step, class int, limit time.Time) *trouble {
	r, err := c.answer(at, limit)
	switch {
	case err != nil:
		return err
	case r.class() == class:
		return nil
	}
	return refusal(at, r)
}

// command sends a command and returns its answer, of any class.
func (c *conn) command(at step, limit time.Time, line string) (reply, *trouble) {
	if err := c.write(limit, line+"\r\n"); err != nil {
		return reply{}, c.broken(at, err)
	}
	return c.answer(at, limit)
}

func (c *conn) answer(at step, limit time.Time) (reply, *trouble) {
	if err := c.stream.SetReadDeadline(sooner(limit, c.step)); err != nil {
		return reply{}, c.broken(at, err)
	}
	r, err := readReply(c.br)
	if err != nil {
		return reply{}, c.broken(at, err)
	}
	return r, nil
}

func (c *conn) write(limit time.Time, s string) error {
	if err := c.stream.SetWriteDeadline(sooner(limit, c.step)); err != nil {
		return err
	}
	_, err := c.stream.Write([]byte(s))
	return err
}

// broken is the trouble of a connection that failed before the final dot.
func (c *conn) broken(at step, err error) *trouble {
	return &trouble{at: at, cause: causeOf(err), err: err}
}

func causeOf(err error) dispatch.Cause {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return dispatch.CauseDeadline
	case errors.Is(err, errProtocol):
		return dispatch.CauseBody
	}
	return dispatch.CauseConn
}

// sooner is d from now, or limit where that is earlier.
func sooner(limit time.Time, d time.Duration) time.Time {
	if t := time.Now().Add(d); t.Before(limit) {
		return t
	}
	return limit
}

// quiet reports whether nothing has arrived that was not asked for: the
// server's goodbye, or an answer that would be read as that to the next
// command (B072).
func (c *conn) quiet() bool {
	if c.stream.SetReadDeadline(time.Now().Add(time.Millisecond)) != nil {
		return false
	}
	_, err := c.br.Peek(1)
	return errors.Is(err, os.ErrDeadlineExceeded)
}

// quit says goodbye and doesn't wait for the answer, which would change
// nothing.
func (c *conn) quit() {
	_ = c.write(time.Now().Add(time.Second), "QUIT\r\n") // nobody to tell
	_ = c.raw.Close()                                    // nothing can be done about it
}

// abort closes the connection hard: what the kernel still holds is dropped,
// so that no byte arrives after the attempt is over. TLS is not told; its
// farewell could block.
func (c *conn) abort() {
	if l, ok := c.raw.Conn.(interface{ SetLinger(sec int) error }); ok {
		_ = l.SetLinger(0) // a closed socket needs none
	}
	_ = c.raw.Close() // nothing can be done about it
}
