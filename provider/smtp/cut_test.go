package smtp_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	goSMTP "github.com/emersion/go-smtp"
	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/internal/mailtest"
	"github.com/seed-8098fbb7/dispatch/provider/smtp"
)

// backend is the ledger of a go-smtp server.
type backend struct {
	mechanisms []string // of AUTH

	mu    sync.Mutex
	mails []taken
}

type taken struct {
	from string
	to   []string
	data []byte
}

func (b *backend) all() []taken {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.mails)
}

func (b *backend) NewSession(*goSMTP.Conn) (goSMTP.Session, error) { return &session{b: b}, nil }

type session struct {
	b *backend
	m taken
}

func (s *session) Reset()        { s.m = taken{} }
func (s *session) Logout() error { return nil }

func (s *session) Mail(from string, _ *goSMTP.MailOptions) error {
	s.m.from = from
	return nil
}

func (s *session) Rcpt(to string, _ *goSMTP.RcptOptions) error {
	s.m.to = append(s.m.to, to)
	return nil
}

// Data takes a mail once its end was read.
func (s *session) Data(r io.Reader) error {
	data, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	s.m.data = data
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	s.b.mails = append(s.b.mails, s.m)
	return nil
}

// wire is a line between a client and a server in memory, which may be cut.
// The server hears what the client wrote, and the other way round, up to the
// cut; then it is silent, or both see the end.
type wire struct {
	out, in int  // bytes that still pass to the server, and to the client; below 0: all
	silent  bool // a cut line hangs instead of ending

	mu   sync.Mutex
	sent bytes.Buffer // what passed to the server
	got  bytes.Buffer // what passed to the client
}

// cutConn is the client's end.
type cutConn struct {
	net.Conn
	w *wire
}

var errCut = errors.New("line was cut")

func (c cutConn) Write(p []byte) (int, error) {
	n := c.w.pass(&c.w.out, len(p))
	written, err := c.Conn.Write(p[:n])
	c.w.mu.Lock()
	c.w.sent.Write(p[:written])
	c.w.mu.Unlock()
	if n == len(p) || err != nil {
		return written, err
	}
	if c.w.silent {
		return len(p), nil // a socket's buffer takes it all
	}
	_ = c.Close()
	return written, errCut
}

func (c cutConn) Read(p []byte) (int, error) {
	c.w.mu.Lock()
	most := c.w.in
	c.w.mu.Unlock()
	if most == 0 {
		if !c.w.silent {
			_ = c.Close()
			return 0, io.EOF
		}
		for { // what the server says is lost
			if _, err := c.Conn.Read(make([]byte, 512)); err != nil {
				return 0, err
			}
		}
	}
	if most > 0 && len(p) > most {
		p = p[:most]
	}
	n, err := c.Conn.Read(p)
	c.w.pass(&c.w.in, n)
	c.w.mu.Lock()
	c.w.got.Write(p[:n])
	c.w.mu.Unlock()
	return n, err
}

func (w *wire) pass(left *int, n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if *left < 0 {
		return n
	}
	n = min(n, *left)
	*left -= n
	return n
}

// pipes is a listener of connections in memory.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), done: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.done) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

// dial is a connection over w.
func (p *pipes) dial(w *wire) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		client, server := net.Pipe()
		select {
		case p.conns <- server:
			return cutConn{client, w}, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// talk is one Send over a wire to a go-smtp server of its own.
func talk(t *testing.T, w *wire, change func(*smtp.Config, *goSMTP.Server)) (dispatch.Evidence, dispatch.Verdict, []taken) {
	t.Helper()
	b := &backend{}
	server := goSMTP.NewServer(b)
	server.Domain, server.AllowInsecureAuth, server.ErrorLog = "fake.example", true, quietLog{}
	p := newPipes()
	cfg := plain("127.0.0.1:25")
	cfg.Dial = p.dial(w)
	if change != nil {
		change(&cfg, server)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(p) // it is closed
	}()
	provider, err := smtp.New(cfg)
	require.NoError(t, err)
	e := mailtest.Golden()
	e.Created = stored
	m := mailtest.Mail()
	m.BCC = []dispatch.Address{{Email: "bob@example.com"}}
	m.Text = "a\n.\nb"
	e.Content = m
	ev, v := dispatch.Judge(provider.Send(t.Context(), e))
	provider.Close()
	require.NoError(t, server.Close())
	<-served
	return ev, v, b.all()
}

type quietLog struct{}

func (quietLog) Printf(string, ...any) {}
func (quietLog) Println(...any)        {}

// dialogue is what both sides say when nothing is cut, and where in it the
// mail's transfer stands.
type dialogue struct {
	said, asked string
	data        int // end of "DATA" in said
	dot         int // beginning of the final dot in said
	answer      int // beginning of the answer to it in asked
}

func record(t *testing.T) (d dialogue) {
	t.Helper()
	whole := &wire{out: -1, in: -1}
	_, v, mails := talk(t, whole, nil)
	require.Equal(t, dispatch.OK, v.Outcome)
	require.Len(t, mails, 1)
	d.said, _, _ = strings.Cut(whole.sent.String(), "QUIT")
	d.asked, _, _ = strings.Cut(whole.got.String(), "221 ")
	d.data = strings.Index(d.said, "DATA\r\n") + len("DATA\r\n")
	d.dot, d.answer = len(d.said)-len(".\r\n"), strings.LastIndex(d.asked, "250 2.0.0")
	require.Equal(t, "\r\n.\r\n", d.said[d.dot-2:])
	require.True(t, d.answer > 0 && strings.Count(d.said[d.data:], "\r\n..\r\n") == 1)
	return d
}

// judged checks a verdict against what the server really did.
func judged(t *testing.T, at int, ev dispatch.Evidence, v dispatch.Verdict, mails []taken, want dispatch.Outcome) {
	t.Helper()
	require.Equal(t, want, v.Outcome, "at %d: %s", at, v.Reason)
	switch v.Outcome {
	case dispatch.Rejected:
		require.Empty(t, mails, "at %d", at)
		require.Equal(t, dispatch.NotSent, ev.Stage)
		require.Equal(t, dispatch.Moment, v.Scope)
	case dispatch.OK:
		require.Len(t, mails, 1)
	case dispatch.Unknown:
		require.Equal(t, dispatch.MaybeSent, ev.Stage)
		require.LessOrEqual(t, len(mails), 1)
	}
}

// either is one of two outcomes, by where the cut is.
func either(first bool, a, b dispatch.Outcome) dispatch.Outcome {
	if first {
		return a
	}
	return b
}

// The line breaks behind each byte that the client says, and behind each that
// the server says. Before the dot could leave it is proven that nothing was
// taken; from then on, until the whole answer is there, nothing is known; and
// what breaks after it changes nothing.
func TestCutAtEachByte(t *testing.T) {
	d := record(t)
	lost := 0
	for at := range len(d.said) {
		ev, v, mails := talk(t, &wire{out: at, in: -1}, nil)
		judged(t, at, ev, v, mails, either(at <= d.dot, dispatch.Rejected, dispatch.Unknown))
	}
	for at := range len(d.asked) {
		ev, v, mails := talk(t, &wire{out: -1, in: at}, nil)
		// An end that is seen before the dot leaves keeps the dot back.
		judged(t, at, ev, v, mails, either(at <= d.answer, dispatch.Rejected, dispatch.Unknown))
		lost += len(mails)
	}
	ev, v, mails := talk(t, &wire{out: -1, in: len(d.asked)}, nil)
	judged(t, len(d.asked), ev, v, mails, dispatch.OK)
	ev, v, mails = talk(t, &wire{out: len(d.said), in: -1}, nil)
	judged(t, len(d.said), ev, v, mails, dispatch.OK)
	require.Equal(t, len(d.asked)-d.answer-1, lost, "mails that were taken, and whose answer broke off")
}

// The same, but that nobody sees an end: what is written goes nowhere, and
// what was said doesn't arrive. Each step has its time, to the tick (B074).
func TestSilenceAtEachByte(t *testing.T) {
	d := record(t)
	hush := func(t *testing.T, w *wire, want dispatch.Outcome, at int) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			w.silent = true
			begun := time.Now()
			ev, v, mails := talk(t, w, nil)
			judged(t, at, ev, v, mails, want)
			took := time.Since(begun).Truncate(time.Second)
			switch want {
			case dispatch.Rejected:
				require.Equal(t, time.Minute, took)
				require.Equal(t, dispatch.CauseDeadline, ev.Cause)
			case dispatch.Unknown:
				require.Equal(t, 10*time.Minute, took)
				require.Equal(t, dispatch.CauseDeadline, ev.Cause)
			case dispatch.OK:
				require.Zero(t, took)
			}
		})
	}
	for at := range len(d.said) {
		hush(t, &wire{out: at, in: -1}, either(at < d.data, dispatch.Rejected, dispatch.Unknown), at)
	}
	for at := range len(d.asked) + 1 {
		want := either(at < d.answer, dispatch.Rejected, dispatch.Unknown)
		hush(t, &wire{out: -1, in: at}, either(at == len(d.asked), dispatch.OK, want), at)
	}
}
