package smtp_test

import (
	"context"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/vendors"
	"github.com/seed-8098fbb7/dispatch/provider/internal/mailtest"
	"github.com/seed-8098fbb7/dispatch/provider/smtp"
)

// What each answer at each step means: B077, B079, B087.
func TestAnswers(t *testing.T) {
	const (
		moment, sender, account, message = dispatch.Moment, dispatch.Sender, dispatch.Account, dispatch.Message
	)
	for _, c := range []struct {
		at, answer string
		scope      dispatch.Scope
	}{
		{"connect", "421 too busy", moment},
		{"connect", "554 no mail from you", account},
		{"EHLO", "450 4.7.1 <localhost>: Helo command rejected", account}, // B087
		{"EHLO", "504 5.5.2 need a name", account},
		{"EHLO", "421 4.3.2 going down", moment},
		{"EHLO", "451 4.3.0 try later", moment},
		{"AUTH", "535 5.7.8 bad credentials", account},
		{"AUTH", "534 5.7.9 mechanism too weak", account},
		{"AUTH", "454 4.7.0 temporary failure", moment},
		{"AUTH", "421 4.7.0 going down", moment},
		{"AUTH", "451 Authentication failed: Maximum credits exceeded", account},
		{"MAIL", "454 4.7.0 Throttling failure: Maximum sending rate exceeded.", moment},
		{"MAIL", "530 5.7.0 Authentication required", account},
		{"MAIL", "503 5.5.1 AUTH first", account},
		{"MAIL", "550 5.7.1 sender not owned by user", sender},
		{"MAIL", "553 not your address", sender},
		{"MAIL", "501 5.1.8 bad sender", sender},
		{"MAIL", "552 5.3.4 too big", message},
		{"MAIL", "555 5.5.4 unknown parameter", account},
		{"RCPT", "550 5.1.1 no such user", message},
		{"RCPT", "450 4.1.2 bad domain", moment},
		{"RCPT", "451 4.7.1 greylisted", moment},
		{"RCPT", "552 5.2.2 mailbox full", message},
		{"RCPT", "552 too many recipients", moment},
		{"RCPT", "550 5.5.3 too many recipients", moment},
		{"RCPT", "550 5.7.1 relaying denied", sender},
		{"RCPT", "421 4.3.0 unknown user", moment},
		{"RCPT", "550 4.1.1 the code counts", message},
		{"DATA", "554 5.5.1 no valid recipients", message},
		{"DATA", "451 4.3.0 disk full", moment},
		{".", "554 5.7.1 spam", message},
		{".", "552 5.3.4 too big", message},
		{".", "550 5.7.26 DMARC", sender},
		{".", "452 4.2.2 full", moment},
		{".", "451 4.3.0 try later", moment},
		{".", "421 4.3.0 going down", moment},
		{".", "530 5.7.0 log in", account},
	} {
		t.Run(c.at+" "+c.answer, func(t *testing.T) {
			s := newScript(t, on(c.at, c.answer+"\r\n"))
			cfg := plain(s.Addr)
			if c.at == "AUTH" {
				cfg.Username, cfg.Password = "ada", mailtest.Secret
			}
			e, v := dispatch.Judge(open(t, cfg).Send(t.Context(), mailtest.Envelope()))
			assert.Equal(t, dispatch.Rejected, v.Outcome)
			assert.Equal(t, c.scope, v.Scope, v.Reason)
			assert.Equal(t, dispatch.Answered, e.Stage)
			assert.Equal(t, c.answer[:3], strconv.Itoa(e.Status))
			assert.Contains(t, c.answer, e.Reason)
			if c.at != "." {
				assert.NotContains(t, s.verbs(), ".")
			}
		})
	}
}

// Whatever has a 2 in front of it, after the dot, is acceptance.
func TestAccepted(t *testing.T) {
	for _, answer := range []string{"250 2.0.0 queued as 1", "250", "250 rejected", "250-a\r\n250-\r\n250 b", "251 ok", "250 5.1.1 no such user"} {
		s := newScript(t, on(".", answer+"\r\n"))
		e := mailtest.Envelope()
		a, err := open(t, plain(s.Addr)).Send(t.Context(), e)
		require.NoError(t, err, answer)
		require.Equal(t, e.Key.String()+"@shop.example", a.ID) // B067
		require.Equal(t, answer[:3], a.Status[:3])
		require.Equal(t, 1, s.taken())
	}
}

// What is no answer proves nothing behind the dot, and before it that nothing
// was accepted: B076.
func TestNonsense(t *testing.T) {
	for _, text := range []string{
		"550-a\r\n250 ok\r\n", "250ok\r\n", "hello\r\n", "\r\n", "<html>\r\n", "354 go on\r\n", "199 x\r\n", "650 x\r\n", "25\r\n!", "250-more\r\n!", "!", "2!",
		"250 " + strings.Repeat("x", 5000) + "\r\n", strings.Repeat("250-x\r\n", 200) + "250 x\r\n",
	} {
		s := newScript(t, on(".", text))
		e, v := dispatch.Judge(open(t, plain(s.Addr)).Send(t.Context(), mailtest.Envelope()))
		require.Equal(t, dispatch.Unknown, v.Outcome, text)
		require.Equal(t, dispatch.MaybeSent, e.Stage, text)
	}
	for _, at := range []string{"connect", "EHLO", "MAIL", "RCPT", "DATA", "body"} {
		for _, text := range []string{"550-a\r\n250 ok\r\n", "hello\r\n", "250-more\r\n!", "!", "199 x\r\n"} {
			s := newScript(t, on(at, text))
			e, v := dispatch.Judge(open(t, plain(s.Addr)).Send(t.Context(), mailtest.Envelope()))
			require.Equal(t, dispatch.Rejected, v.Outcome, "%s %q", at, text)
			require.Equal(t, dispatch.Moment, v.Scope)
			require.Equal(t, dispatch.NotSent, e.Stage)
			require.Zero(t, s.taken())
		}
	}
}

// A greeting of several lines, and answers without a text.
func TestBareAnswers(t *testing.T) {
	s := newScript(t, func(line string) string {
		switch line {
		case "connect":
			return "220-hello\r\n220-more\r\n220 ready\r\n"
		case "DATA", "body":
			return ""
		}
		return "250\r\n"
	})
	_, err := open(t, plain(s.Addr)).Send(t.Context(), mailtest.Envelope())
	require.NoError(t, err)
}

// One refused among several: no DATA, and the next mail on the connection
// begins anew (B079, B080).
func TestRefusedRecipient(t *testing.T) {
	s := newScript(t, on("RCPT TO:<secret@", "550 5.1.1 no <secret@example.com>\r\n"))
	p := open(t, plain(s.Addr))
	e := mailtest.Golden()
	_, err := p.Send(t.Context(), e)
	ev, v := dispatch.Judge(dispatch.Accepted{}, err)
	require.Equal(t, dispatch.Message, v.Scope)
	require.Contains(t, ev.Reason, "secret@")
	require.NotContains(t, err.Error(), "secret@")
	_, err = p.Send(t.Context(), mailtest.Envelope())
	require.NoError(t, err)
	require.Equal(t, []string{"MAIL", "RCPT", "RCPT", "RCPT", "RCPT", "RSET", "MAIL", "RCPT", "DATA", "."}, s.verbs())
	require.Equal(t, 1, s.connections())
	require.Equal(t, 1, s.taken())
}

// A server that hangs up in the middle of the mail, with a word or without.
func TestHangsUpEarly(t *testing.T) {
	for text, scope := range map[string]dispatch.Scope{"552 5.3.4 too big\r\n!": dispatch.Message, "421 4.3.0 bye\r\n!": dispatch.Moment, "!": dispatch.Moment} {
		s := newScript(t, on("body", text))
		e := mailtest.Envelope()
		m := mailtest.Mail()
		m.Text = strings.Repeat("0123456789abcde\n", 1<<16)
		e.Content = m
		_, v := dispatch.Judge(open(t, plain(s.Addr)).Send(t.Context(), e))
		require.Equal(t, dispatch.Rejected, v.Outcome)
		if scope == dispatch.Moment { // a reset may eat the word
			require.Equal(t, scope, v.Scope)
		}
		require.Zero(t, s.taken())
	}
	s := newScript(t, on("body", "552 5.3.4 too big\r\n")) // before the end, and waits for it
	_, v := dispatch.Judge(open(t, plain(s.Addr)).Send(t.Context(), mailtest.Envelope()))
	require.Equal(t, dispatch.Message, v.Scope)
	require.NotContains(t, s.verbs(), ".", "an answer to less than the mail isn't answered with its end")
}

// Each mail goes under its own id, in parallel too, and connections are kept.
func TestConcurrent(t *testing.T) {
	s := newScript(t, nil)
	cfg := plain(s.Addr)
	cfg.MaxConns = 3
	p := open(t, cfg)
	var group sync.WaitGroup
	var mu sync.Mutex
	ids := map[string]bool{}
	for range 50 {
		group.Go(func() {
			a, err := p.Send(t.Context(), mailtest.Envelope())
			mu.Lock()
			defer mu.Unlock()
			assert.NoError(t, err)
			ids[a.ID] = true
		})
	}
	group.Wait()
	require.Len(t, ids, 50)
	require.Equal(t, 50, s.taken())
	require.LessOrEqual(t, s.connections(), 3)
}

// An encoder that gives other bytes for an open mail is noticed before a
// connection is made.
func TestChangedBytes(t *testing.T) {
	s := newScript(t, nil)
	p := open(t, plain(s.Addr))
	e := mailtest.Envelope()
	e.Created = time.Unix(1_700_000_000, 0)
	a, err := p.Send(t.Context(), e)
	require.NoError(t, err)
	e.Attempt, e.Replay = 2, a.Evidence.Request
	again, err := p.Send(t.Context(), e)
	require.NoError(t, err, "the same bytes in each attempt")
	require.Equal(t, a.Evidence.Request, again.Evidence.Request)
	require.Equal(t, s.all()[0], s.all()[1])
	for name, change := range map[string]func(*dispatch.Envelope){
		"content": func(e *dispatch.Envelope) { e.Content = mailtest.Full() },
		"sender":  func(e *dispatch.Envelope) { e.From = "a@shop.example" },
		"date":    func(e *dispatch.Envelope) { e.Created = e.Created.Add(time.Second) },
		"bcc": func(e *dispatch.Envelope) {
			m := mailtest.Mail()
			m.BCC = []dispatch.Address{{Email: "b@example.com"}}
			e.Content = m
		},
	} {
		other := e
		change(&other)
		ev, v := dispatch.Judge(p.Send(t.Context(), other))
		require.Equal(t, dispatch.CauseChanged, ev.Cause, name)
		require.True(t, v.Hold)
	}
	require.Equal(t, 2, s.taken())
}

func TestConfig(t *testing.T) {
	for field, change := range map[string]func(*smtp.Config){
		"Name":            func(c *smtp.Config) { c.Name = "S m" },
		"Account":         func(c *smtp.Config) { c.Account = "a\nb" },
		"Addr is":         func(c *smtp.Config) { c.Addr = "" },
		"Addr is no":      func(c *smtp.Config) { c.Addr = "hunter2:pass@mail.example:25" },
		"ImplicitTLS":     func(c *smtp.Config) { c.ImplicitTLS = true },
		"Username and":    func(c *smtp.Config) { c.Username = "hunter2" },
		"Username or":     func(c *smtp.Config) { c.Username, c.Password = "a", "hunter2\x00" },
		"Plaintext would": func(c *smtp.Config) { c.Addr, c.Username, c.Password = "mail.example", "a", "hunter2" },
		"Hello":           func(c *smtp.Config) { c.Hello = "hunter2\r\nRSET" },
		"From is":         func(c *smtp.Config) { c.From = "hunter2" },
		"From has":        func(c *smtp.Config) { c.From = "=?utf-8?q?hunter2=0D=0AX?= <a@example.com>" }, // B082
		"From is no bare": func(c *smtp.Config) { c.From = `"hunter2 a"@example.com` },
		"ReturnPath":      func(c *smtp.Config) { c.ReturnPath = "hunter2 <a@example.com>" },
		"Connect":         func(c *smtp.Config) { c.Connect = -1 },
		"Transfer":        func(c *smtp.Config) { c.Transfer = time.Hour },
		"MaxConns":        func(c *smtp.Config) { c.MaxConns = -1 },
	} {
		cfg := plain("127.0.0.1:25")
		change(&cfg)
		_, err := smtp.New(cfg)
		require.ErrorContains(t, err, field)
		require.NotContains(t, err.Error(), "hunter2")
	}
	for _, addr := range []string{"mail.example", "mail.example:25", "[::1]:25", "::1", "192.0.2.1"} {
		_, err := smtp.New(smtp.Config{Addr: addr})
		require.NoError(t, err, addr)
	}
}

func TestRedaction(t *testing.T) {
	cfg := plain("127.0.0.1:25")
	cfg.Name, cfg.Username, cfg.Password = "acme", "ada", mailtest.Secret
	mailtest.CheckRedaction(t, "acme", cfg, &cfg, open(t, cfg))
}

func TestContract(t *testing.T) {
	c := open(t, plain("127.0.0.1:25")).Contract()
	require.NoError(t, c.Validate())
	require.Equal(t, 15*time.Minute, c.Timeout)
	require.False(t, c.RefusalProves || c.Search.Available || c.Echo.Reference || c.Dedupe.Window > 0)
	for _, source := range []string{c.Dedupe.Source, c.Search.Source, c.Echo.Source} {
		require.NotEmpty(t, source)
	}
}

// testdata/vendor.md is what the vendor tables say of SMTP. After a change:
// UPDATE_GOLDEN=1 go test -run TestVendorTable . and then the root module's.
func TestVendorTable(t *testing.T) {
	c := open(t, plain("127.0.0.1:25")).Contract()
	v := vendors.Vendor{Name: "smtp", Sends: "email", Bare: c, Full: c}
	mailtest.SameAsGolden(t, "vendor.md", []byte(v.Row()+v.Sources()))
}

// A pooled connection waits neither for its turn nor for ever.
func TestNoConnectionFree(t *testing.T) {
	release := make(chan struct{})
	s := newScript(t, func(line string) string {
		if line == "." {
			<-release
		}
		return ""
	})
	cfg := plain(s.Addr)
	cfg.MaxConns, cfg.Transfer = 1, 300*time.Millisecond
	p := open(t, cfg)
	done := make(chan error, 1)
	go func() {
		_, err := p.Send(context.WithoutCancel(t.Context()), mailtest.Envelope())
		done <- err
	}()
	require.Eventually(t, func() bool { return len(s.verbs()) == 4 }, 10*time.Second, time.Millisecond)
	e, v := dispatch.Judge(p.Send(t.Context(), mailtest.Envelope()))
	require.Equal(t, dispatch.CausePool, e.Cause)
	require.Equal(t, dispatch.Rejected, v.Outcome)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	e, _ = dispatch.Judge(p.Send(ctx, mailtest.Envelope()))
	require.Equal(t, dispatch.CauseDeadline, e.Cause)
	close(release)
	require.NoError(t, <-done, "the answer to the dot has its own time")
}

func TestClosedPort(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	e, v := dispatch.Judge(open(t, plain(l.Addr().String())).Send(t.Context(), mailtest.Envelope()))
	require.Equal(t, dispatch.NotSent, e.Stage)
	require.Equal(t, dispatch.CauseDial, e.Cause)
	require.Equal(t, dispatch.Moment, v.Scope)
}
