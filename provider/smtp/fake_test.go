package smtp_test

import (
	"bufio"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch/provider/smtp"
)

// script is a server that says what it is told to: the misbehaving one. The
// well-behaved one of the other tests is go-smtp's.
type script struct {
	Addr string

	// say answers a line, "" for the default. A line is "connect" first, then
	// each command, "body" for the mail's first line, and "." for the final
	// dot. An answer is written as it is; one that ends in "!" is the last
	// thing said, and the connection ends then.
	say func(line string) string
	// onMail, where set, answers the final dot.
	onMail func(mail []byte) string

	mu    sync.Mutex
	conns int
	lines []string
	mails [][]byte // as they came, dots stuffed
}

func newScript(t *testing.T, say func(line string) string) *script {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &script{Addr: l.Addr().String(), say: say}
	var group sync.WaitGroup
	open := map[net.Conn]bool{}
	group.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.conns++
			open[c] = true
			s.mu.Unlock()
			group.Go(func() { s.serve(c) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		s.mu.Lock()
		for c := range open {
			_ = c.Close()
		}
		s.mu.Unlock()
		group.Wait()
	})
	return s
}

func (s *script) serve(c net.Conn) {
	defer c.Close() //nolint:errcheck // nobody to tell
	if !s.answer(c, "connect") {
		return
	}
	br := bufio.NewReader(c)
	var mail []byte
	inside := false
	for {
		line, err := br.ReadString('\n')
		if err != nil {
			return
		}
		switch trimmed := strings.TrimSuffix(line, "\r\n"); {
		case inside && trimmed == ".":
			inside = false
			whole := mail
			mail = nil
			if !s.answer(c, ".", whole...) {
				return
			}
		case inside:
			if len(mail) == 0 && !s.answer(c, "body") {
				return
			}
			mail = append(mail, line...)
		default:
			if !s.answer(c, trimmed) {
				return
			}
			inside = trimmed == "DATA" && !strings.HasPrefix(s.said(trimmed), "5")
		}
	}
}

func (s *script) said(line string) string {
	if s.say == nil {
		return ""
	}
	return s.say(line)
}

// answer writes what is to be said, and reports whether the talk goes on. A
// mail is kept before, unless the answer is that it isn't taken.
func (s *script) answer(c net.Conn, line string, mail ...byte) bool {
	if line != "body" {
		s.mu.Lock()
		s.lines = append(s.lines, line)
		s.mu.Unlock()
	}
	text := s.said(line)
	if line == "." && s.onMail != nil {
		text = s.onMail(mail)
	}
	if text == "" {
		text = ordinary(line)
	}
	if line == "." && text[0] != '4' && text[0] != '5' {
		s.mu.Lock()
		s.mails = append(s.mails, mail)
		s.mu.Unlock()
	}
	last := strings.HasSuffix(text, "!")
	_, err := c.Write([]byte(strings.TrimSuffix(text, "!")))
	return err == nil && !last && line != "QUIT"
}

func ordinary(line string) string {
	verb, _, _ := strings.Cut(line, " ")
	switch verb {
	case "body":
		return ""
	case "connect":
		return "220 fake.example ESMTP\r\n"
	case "EHLO":
		return "250-fake.example\r\n250-SIZE 0\r\n250-AUTH PLAIN LOGIN\r\n250 ENHANCEDSTATUSCODES\r\n"
	case "AUTH":
		return "235 2.7.0 ok\r\n"
	case "DATA":
		return "354 go on\r\n"
	case "QUIT":
		return "221 bye\r\n"
	case ".":
		return "250 2.0.0 queued as 1\r\n"
	}
	return "250 2.1.0 ok\r\n"
}

// verbs are the lines that came, without those of greeting and farewell.
func (s *script) verbs() (out []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, line := range s.lines {
		if verb, _, _ := strings.Cut(line, " "); !slices.Contains([]string{"connect", "EHLO", "QUIT"}, verb) {
			out = append(out, verb)
		}
	}
	return out
}

func (s *script) all() [][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.mails)
}

func (s *script) taken() int { return len(s.all()) }

func (s *script) connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conns
}

func open(t *testing.T, cfg smtp.Config) *smtp.Provider {
	t.Helper()
	p, err := smtp.New(cfg)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}

// plain is the configuration for a server without TLS.
func plain(addr string) smtp.Config { return smtp.Config{Addr: addr, Plaintext: true} }

// on answers lines that begin with what.
func on(what, text string) func(string) string {
	return func(line string) string {
		if strings.HasPrefix(line, what) {
			return text
		}
		return ""
	}
}
