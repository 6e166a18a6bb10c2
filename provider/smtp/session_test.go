package smtp_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/emersion/go-sasl"
	goSMTP "github.com/emersion/go-smtp"
	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/internal/mailtest"
	"github.com/seed-8098fbb7/dispatch/provider/smtp"
)

// certificate is one for 127.0.0.1 and localhost, and who trusts it.
func certificate(t *testing.T) (server, client *tls.Config) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC), NotAfter: time.Date(2199, 1, 1, 0, 0, 0, 0, time.UTC),
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	roots := x509.NewCertPool()
	roots.AddCert(cert)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, MinVersion: tls.VersionTLS12},
		&tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
}

// AuthMechanisms and Auth let ada in.
func (s *session) AuthMechanisms() []string { return s.b.mechanisms }

func (s *session) Auth(mechanism string) (sasl.Server, error) {
	check := func(user, password string) error {
		if user != "ada" || password != mailtest.Secret {
			return goSMTP.ErrAuthFailed
		}
		return nil
	}
	if mechanism == "LOGIN" {
		return &login{check: check}, nil
	}
	return sasl.NewPlainServer(func(_, user, password string) error { return check(user, password) }), nil
}

// login is the server's side of LOGIN, which go-sasl has no more.
type login struct {
	check func(user, password string) error
	step  int
	user  string
}

func (l *login) Next(response []byte) (challenge []byte, done bool, err error) {
	l.step++
	switch l.step {
	case 1:
		return []byte("Username:"), false, nil
	case 2:
		l.user = string(response)
		return []byte("Password:"), false, nil
	}
	return nil, true, l.check(l.user, string(response))
}

// served starts a go-smtp server on a socket.
func served(t *testing.T, b *backend, change func(*goSMTP.Server)) (addr string) {
	t.Helper()
	server := goSMTP.NewServer(b)
	server.Domain, server.ErrorLog = "fake.example", quietLog{}
	if change != nil {
		change(server)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	if server.MaxLineLength == 1 { // TLS from the first byte
		server.MaxLineLength = 2000
		l = tls.NewListener(l, server.TLSConfig)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l) // it is closed
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-done
	})
	return l.Addr().String()
}

func TestTLSAndLogin(t *testing.T) {
	server, client := certificate(t)
	for name, c := range map[string]struct {
		implicit   bool
		mechanisms []string
		password   string
		scope      dispatch.Scope
		reason     string
	}{
		"STARTTLS, PLAIN": {false, []string{"LOGIN", "PLAIN"}, mailtest.Secret, 0, ""},
		"implicit, PLAIN": {true, []string{"PLAIN"}, mailtest.Secret, 0, ""},
		"LOGIN":           {false, []string{"LOGIN"}, mailtest.Secret, 0, ""},
		"wrong password":  {false, []string{"PLAIN"}, "wrong", dispatch.Account, "log-in refused"},
		"wrong, LOGIN":    {true, []string{"LOGIN"}, "wrong", dispatch.Account, "log-in refused"},
		"other mechanism": {false, []string{"CRAM-MD5"}, "wrong", dispatch.Account, "neither"},
		"no log-in":       {false, nil, "wrong", dispatch.Account, "neither"},
	} {
		t.Run(name, func(t *testing.T) {
			b := &backend{mechanisms: c.mechanisms}
			addr := served(t, b, func(s *goSMTP.Server) {
				s.TLSConfig = server
				if c.implicit {
					s.MaxLineLength = 1
				}
			})
			p := open(t, smtp.Config{Addr: addr, ImplicitTLS: c.implicit, TLS: client, Username: "ada", Password: c.password})
			for range 2 {
				_, err := p.Send(t.Context(), mailtest.Envelope())
				_, v := dispatch.Judge(dispatch.Accepted{NoID: true}, err)
				if c.reason == "" {
					require.NoError(t, err)
					continue
				}
				require.Equal(t, dispatch.Rejected, v.Outcome)
				require.Equal(t, c.scope, v.Scope)
				require.Contains(t, v.Reason, c.reason)
				require.NotContains(t, err.Error(), c.password)
			}
			if c.reason == "" {
				require.Len(t, b.all(), 2)
				require.Equal(t, "no-reply@shop.example", b.all()[0].from)
			}
		})
	}
}

// What keeps TLS from being had is a person's to mend; what may pass isn't.
func TestTLSRefused(t *testing.T) {
	server, client := certificate(t)
	for name, c := range map[string]struct {
		cfg   smtp.Config
		say   func(string) string
		cause dispatch.Cause
		scope dispatch.Scope
	}{
		"not offered":        {smtp.Config{TLS: client}, nil, dispatch.CauseLocal, dispatch.Account},
		"refused":            {smtp.Config{TLS: client}, offers("STARTTLS", "502 5.5.1 no\r\n"), 0, dispatch.Account},
		"not now":            {smtp.Config{TLS: client}, offers("STARTTLS", "454 4.7.0 no\r\n"), 0, dispatch.Moment},
		"injected":           {smtp.Config{TLS: client}, offers("STARTTLS", "220 go\r\n250 fake\r\n"), dispatch.CauseConn, dispatch.Moment},
		"no handshake":       {smtp.Config{TLS: client}, offers("STARTTLS", "220 go\r\n!"), dispatch.CauseDial, dispatch.Moment},
		"plain, implicit":    {smtp.Config{TLS: client, ImplicitTLS: true}, nil, dispatch.CauseDial, dispatch.Moment},
		"unknown authority":  {smtp.Config{}, nil, dispatch.CauseCertificate, dispatch.Account},
		"certificate's name": {smtp.Config{TLS: &tls.Config{RootCAs: client.RootCAs, ServerName: "mail.example", MinVersion: tls.VersionTLS12}}, nil, dispatch.CauseCertificate, dispatch.Account},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := c.cfg
			if c.cause == dispatch.CauseCertificate {
				cfg.Addr = served(t, &backend{}, func(s *goSMTP.Server) { s.TLSConfig = server })
			} else {
				cfg.Addr = newScript(t, c.say).Addr
			}
			e, v := dispatch.Judge(open(t, cfg).Send(t.Context(), mailtest.Envelope()))
			require.Equal(t, dispatch.Rejected, v.Outcome)
			require.Equal(t, c.scope, v.Scope, v.Reason)
			require.Equal(t, c.cause, e.Cause)
		})
	}
}

// offers answers EHLO with one extension, and its verb with text.
func offers(extension, text string) func(string) string {
	verb, _, _ := strings.Cut(extension, " ")
	return func(line string) string {
		switch {
		case strings.HasPrefix(line, "EHLO"):
			return "250-fake.example\r\n250 " + extension + "\r\n"
		case line == verb:
			return text
		}
		return ""
	}
}

// Under TLS too, wherever it is cut: what was taken is never called refused.
func TestCutUnderTLS(t *testing.T) {
	server, client := certificate(t)
	secure := func(c *smtp.Config, s *goSMTP.Server) {
		s.TLSConfig = server
		c.TLS, c.Plaintext = client, false
	}
	whole := &wire{out: -1, in: -1}
	_, v, mails := talk(t, whole, secure)
	require.Equal(t, dispatch.OK, v.Outcome)
	require.Len(t, mails, 1)
	counts := map[dispatch.Outcome]int{}
	walk := func(size int, cut func(at int) *wire) {
		for at := 0; at < size+50; at++ {
			if at < size-250 { // up to DATA, a few are enough
				at += 40
			}
			ev, v, mails := talk(t, cut(at), secure)
			counts[v.Outcome]++
			switch v.Outcome {
			case dispatch.Rejected:
				require.Empty(t, mails, "at %d", at)
				require.Equal(t, dispatch.NotSent, ev.Stage)
			case dispatch.OK:
				require.Len(t, mails, 1, "at %d", at)
			case dispatch.Unknown:
				require.Equal(t, dispatch.MaybeSent, ev.Stage)
			}
		}
	}
	walk(whole.sent.Len(), func(at int) *wire { return &wire{out: at, in: -1} })
	walk(whole.got.Len(), func(at int) *wire { return &wire{out: -1, in: at} })
	for _, o := range []dispatch.Outcome{dispatch.OK, dispatch.Rejected, dispatch.Unknown} {
		require.Positive(t, counts[o], "%v", o)
	}
}

// A server's limits are kept before anything leaves: B026.
func TestExtensions(t *testing.T) {
	s := newScript(t, offers("SIZE 500", ""))
	p := open(t, plain(s.Addr))
	_, err := p.Send(t.Context(), mailtest.Envelope())
	require.NoError(t, err)
	e := mailtest.Envelope()
	m := mailtest.Mail()
	m.Text = strings.Repeat("x", 500)
	e.Content = m
	ev, v := dispatch.Judge(p.Send(t.Context(), e))
	require.Equal(t, dispatch.NotSent, ev.Stage)
	require.Equal(t, dispatch.Sender, v.Scope, "another provider of the route may take it")
	require.Contains(t, v.Reason, "the server takes 500")
	m = mailtest.Mail()
	m.To = []dispatch.Address{{Email: "jürgen@example.com"}}
	e.Content = m
	ev, v = dispatch.Judge(p.Send(t.Context(), e))
	require.Equal(t, dispatch.NotSent, ev.Stage)
	require.Contains(t, v.Reason, "SMTPUTF8")
	_, err = p.Send(t.Context(), mailtest.Envelope())
	require.NoError(t, err)
	require.Equal(t, 1, s.connections(), "nothing is wrong with the connection")
	require.Contains(t, s.lines, "MAIL FROM:<no-reply@shop.example> SIZE=318")

	verbs, _ := sent(t, mailOf(func(m *dispatch.Email) { m.To[0].Email = "jürgen@bücher.example" }))
	require.Contains(t, verbs, "MAIL FROM:<no-reply@shop.example> BODY=8BITMIME SMTPUTF8")
	require.Contains(t, verbs, "RCPT TO:<jürgen@xn--bcher-kva.example>")
	verbs, _ = sent(t, mailOf(func(m *dispatch.Email) { m.To[0].Email = "ada@bücher.example" }))
	require.Contains(t, verbs, "MAIL FROM:<no-reply@shop.example>", "a domain has a form in ASCII")
	require.Contains(t, verbs, "EHLO [127.0.0.1]")
}

func TestNamesAndReturnPath(t *testing.T) {
	s := newScript(t, nil)
	cfg := plain(s.Addr)
	cfg.Hello, cfg.ReturnPath, cfg.From = "app.shop.example", "bounces@bücher.example", "Shop <no-reply@shop.example>"
	e := mailtest.Envelope()
	e.From = ""
	_, err := open(t, cfg).Send(t.Context(), e)
	require.NoError(t, err)
	require.Contains(t, s.lines, "EHLO app.shop.example")
	require.Contains(t, s.lines, "MAIL FROM:<bounces@xn--bcher-kva.example> SIZE=318")
	require.Contains(t, string(s.all()[0]), `From: "Shop" <no-reply@shop.example>`)
}

// A server that accepts a connection and says nothing, and one that doesn't
// read: B074. Each step has its own time, under one for all: B075.
func TestTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		send := func(cfg smtp.Config, text string, serve func(net.Conn)) (dispatch.Evidence, dispatch.Verdict, time.Duration) {
			cfg.Addr, cfg.Plaintext = "127.0.0.1", true
			cfg.Dial = func(context.Context, string, string) (net.Conn, error) {
				client, server := net.Pipe()
				go func() {
					serve(server)
					_ = server.Close()
				}()
				return client, nil
			}
			e := mailtest.Envelope()
			m := mailtest.Mail()
			m.Text = text
			e.Content = m
			begun := time.Now()
			ev, v := dispatch.Judge(open(t, cfg).Send(t.Context(), e))
			return ev, v, time.Since(begun)
		}
		read := func(c net.Conn, until string) { // up to and with until
			var got strings.Builder
			for b := make([]byte, 1); !strings.HasSuffix(got.String(), until); {
				if _, err := c.Read(b); err != nil {
					return
				}
				got.Write(b)
			}
		}
		say := func(c net.Conn, s string) { _, _ = c.Write([]byte(s)) }
		mute := func(c net.Conn) { read(c, "never") }
		ev, v, took := send(smtp.Config{}, "x", mute)
		require.Equal(t, time.Minute, took)
		require.Equal(t, dispatch.CauseDeadline, ev.Cause)
		require.Equal(t, dispatch.Rejected, v.Outcome)

		dialogue := func(c net.Conn) {
			say(c, "220 x\r\n")
			for _, line := range []string{"EHLO", "MAIL", "RCPT"} {
				read(c, line)
				read(c, "\r\n")
				say(c, "250 x\r\n")
			}
			read(c, "DATA\r\n")
			say(c, "354 x\r\n")
		}
		slow := func(every time.Duration) func(net.Conn) {
			return func(c net.Conn) {
				dialogue(c)
				var tail string
				for b := make([]byte, 4096); !strings.HasSuffix(tail, "\r\n.\r\n"); <-time.After(every) {
					n, err := c.Read(b)
					if err != nil {
						return
					}
					tail = (tail + string(b[:n]))[max(0, len(tail)+n-5):]
				}
				say(c, "250 x\r\n")
				read(c, "never")
			}
		}
		large := strings.Repeat("0123456789abcdef", 1<<16) // 1 MiB in 16 KiB blocks
		_, v, took = send(smtp.Config{Step: 10 * time.Second}, large, slow(200*time.Millisecond))
		require.Equal(t, dispatch.OK, v.Outcome, "%v", v.Reason)
		require.Greater(t, took, 50*time.Second, "longer than any step, shorter than all")
		ev, v, took = send(smtp.Config{Step: 10 * time.Second, Transfer: 20 * time.Second}, large, slow(200*time.Millisecond))
		require.Equal(t, dispatch.Rejected, v.Outcome)
		require.Equal(t, dispatch.NotSent, ev.Stage)
		require.Equal(t, 20*time.Second, took)
		_, v, took = send(smtp.Config{Accept: 3 * time.Minute}, "x", func(c net.Conn) {
			dialogue(c)
			read(c, "\r\n.\r\n")
			<-time.After(3*time.Minute + time.Second)
			say(c, "250 too late\r\n")
		})
		require.Equal(t, dispatch.Unknown, v.Outcome)
		require.Equal(t, 3*time.Minute, took.Truncate(time.Second))
		_, v, took = send(smtp.Config{}, "x", func(c net.Conn) {
			dialogue(c)
			read(c, "\r\n.\r\n")
			<-time.After(9 * time.Minute)
			say(c, "250 in time\r\n")
			read(c, "QUIT\r\n")
		})
		require.Equal(t, dispatch.OK, v.Outcome)
		require.Equal(t, 9*time.Minute, took.Truncate(time.Second))
	})
}

// A context that ends ends the attempt, wherever it is.
func TestContextEnds(t *testing.T) {
	for at, want := range map[string]dispatch.Outcome{"connect": dispatch.Rejected, "EHLO": dispatch.Rejected, "MAIL": dispatch.Rejected, "DATA": dispatch.Rejected, ".": dispatch.Unknown} {
		ctx, cancel := context.WithCancel(t.Context())
		hang := make(chan struct{})
		s := newScript(t, func(line string) string {
			if strings.HasPrefix(line, at) {
				cancel()
				<-hang
			}
			return ""
		})
		e, v := dispatch.Judge(open(t, plain(s.Addr)).Send(ctx, mailtest.Envelope()))
		close(hang)
		require.Equal(t, want, v.Outcome, at)
		require.Equal(t, dispatch.CauseDeadline, e.Cause, at)
	}
}
