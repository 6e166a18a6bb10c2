package smtp_test

import (
	"context"
	"net"
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

// A kept connection that its server has closed, or closes at the first
// command, is replaced once; and only before a command was taken.
func TestKeptConnectionDies(t *testing.T) {
	for name, c := range map[string]struct {
		at, text string
		outcome  dispatch.Outcome
		conns    int
	}{
		"at MAIL":            {"MAIL", "!", dispatch.OK, 2},
		"at MAIL, with word": {"MAIL", "421 4.4.2 idle too long\r\n!", dispatch.OK, 2},
		"nonsense at MAIL":   {"MAIL", "what?\r\n", dispatch.OK, 2},
		"refused at MAIL":    {"MAIL", "451 4.3.0 later\r\n", dispatch.Rejected, 1},
		"at RCPT":            {"RCPT", "!", dispatch.Rejected, 1},
		"at the dot":         {".", "!", dispatch.Unknown, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			seen := 0
			s := newScript(t, func(line string) string {
				mu.Lock()
				defer mu.Unlock()
				if strings.HasPrefix(line, c.at) {
					if seen++; seen == 2 {
						return c.text
					}
				}
				return ""
			})
			p := open(t, plain(s.Addr))
			_, err := p.Send(t.Context(), mailtest.Envelope())
			require.NoError(t, err)
			_, v := dispatch.Judge(p.Send(t.Context(), mailtest.Envelope()))
			require.Equal(t, c.outcome, v.Outcome, v.Reason)
			require.Equal(t, c.conns, s.connections())
		})
	}
}

// A server that goes away between two mails, with its goodbye unread, and one
// that says more than it was asked: what came is not the answer to the next
// command.
func TestWordsBetweenMails(t *testing.T) {
	for _, more := range []string{"421 4.4.2 bye\r\n!", "250 and more\r\n", "2"} {
		s := newScript(t, on(".", "250 ok\r\n"+more))
		p := open(t, plain(s.Addr))
		for range 3 {
			_, err := p.Send(t.Context(), mailtest.Envelope())
			require.NoError(t, err)
		}
		require.Equal(t, 3, s.taken())
		require.Equal(t, 3, s.connections())
	}
}

// A connection whose answer did not come in time is not used again, so that
// the answer can't be taken for that to the next mail: B072.
func TestLateAnswer(t *testing.T) {
	late := make(chan struct{})
	var once sync.Once
	s := newScript(t, func(line string) string {
		if line == "." {
			once.Do(func() { <-late })
		}
		return ""
	})
	t.Cleanup(sync.OnceFunc(func() { close(late) }))
	cfg := plain(s.Addr)
	cfg.Accept = 2 * time.Second
	p := open(t, cfg)
	_, v := dispatch.Judge(p.Send(t.Context(), mailtest.Envelope()))
	require.Equal(t, dispatch.Unknown, v.Outcome)
	done := make(chan error, 1)
	go func() {
		_, err := p.Send(t.Context(), mailtest.Envelope())
		done <- err
	}()
	require.Eventually(t, func() bool { return s.connections() == 2 }, 10*time.Second, time.Millisecond)
	require.NotContains(t, s.verbs(), "RSET")
	late <- struct{}{}
	require.NoError(t, <-done)
	require.Equal(t, 2, s.taken())
}

// The second mail on a connection, cut at each byte: a kept connection that
// breaks before its server took MAIL costs a fresh one, and nothing else is
// tried twice.
func TestCutOnKeptConnection(t *testing.T) {
	whole := &wire{out: -1, in: -1}
	mark := 0
	outcome, mails, dials := pair(t, whole, func() { mark = whole.sent.Len() })
	require.Equal(t, dispatch.OK, outcome)
	require.Len(t, mails, 2)
	require.Equal(t, 1, dials)
	said := strings.TrimSuffix(whole.sent.String()[mark:], "QUIT\r\n")
	mail := strings.Index(said, "\r\n") + 2
	dot := len(said) - 3
	for at := range len(said) {
		w := &wire{out: -1, in: -1}
		second, mails, dials := pair(t, w, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.out = at
		})
		switch {
		case at < mail:
			require.Equal(t, dispatch.OK, second, "at %d", at)
			require.Equal(t, 2, dials)
			require.Len(t, mails, 2)
		case at <= dot:
			require.Equal(t, dispatch.Rejected, second, "at %d", at)
			require.Len(t, mails, 1)
			require.Equal(t, 1, dials)
		default:
			require.Equal(t, dispatch.Unknown, second, "at %d", at)
			require.Equal(t, 1, dials)
		}
	}
}

// pair sends two mails, the first one over w, and the second one too where it
// still is; between is called between them. It returns what became of the
// second, what the server took, and how often a connection was opened.
func pair(t *testing.T, w *wire, between func()) (dispatch.Outcome, []taken, int) {
	t.Helper()
	b := &backend{}
	server := goSMTP.NewServer(b)
	server.Domain, server.ErrorLog = "fake.example", quietLog{}
	l := newPipes()
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(l) // it is closed
	}()
	dials := 0
	cfg := plain("127.0.0.1:25")
	cfg.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if dials++; dials > 1 {
			return l.dial(&wire{out: -1, in: -1})(ctx, network, addr)
		}
		return l.dial(w)(ctx, network, addr)
	}
	p, err := smtp.New(cfg)
	require.NoError(t, err)
	e := mailtest.Golden()
	e.Content, e.Created = mailtest.Mail(), stored
	_, err = p.Send(t.Context(), e)
	require.NoError(t, err)
	between()
	_, v := dispatch.Judge(p.Send(t.Context(), e))
	p.Close()
	require.NoError(t, server.Close())
	<-served
	return v.Outcome, b.all(), dials
}

// Kept connections go after their time, after many mails, and with Close.
func TestKeptConnectionsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &backend{}
		server := goSMTP.NewServer(b)
		server.ErrorLog = quietLog{}
		l := newPipes()
		served := make(chan struct{})
		go func() {
			defer close(served)
			_ = server.Serve(l) // it is closed
		}()
		dials := 0
		var wires []*wire
		cfg := plain("127.0.0.1:25")
		cfg.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			dials++
			w := &wire{out: -1, in: -1}
			wires = append(wires, w)
			return l.dial(w)(ctx, network, addr)
		}
		p, err := smtp.New(cfg)
		require.NoError(t, err)
		send := func() {
			_, err := p.Send(t.Context(), mailtest.Envelope())
			require.NoError(t, err)
			synctest.Wait()
		}
		over := func(n int) bool {
			wires[n].mu.Lock()
			defer wires[n].mu.Unlock()
			return strings.HasSuffix(wires[n].sent.String(), "QUIT\r\n")
		}
		send()
		<-time.After(29 * time.Second)
		send()
		require.Equal(t, 1, dials)
		<-time.After(31 * time.Second)
		require.True(t, over(0), "idle for 30 s")
		send()
		require.Equal(t, 2, dials)
		for range 20 {
			<-time.After(20 * time.Second)
			send()
		}
		require.True(t, over(1), "5 min old")
		require.Equal(t, 3, dials)
		<-time.After(time.Minute)
		for range 101 {
			send()
		}
		require.Equal(t, 5, dials, "100 mails on one")
		require.True(t, over(3))
		require.False(t, over(4))
		p.Close()
		require.True(t, over(4))
		send()
		require.Equal(t, 6, dials)
		synctest.Wait()
		require.True(t, over(5), "nothing is kept after Close")
		require.NoError(t, server.Close())
		<-served
	})
}
