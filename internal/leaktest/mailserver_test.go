package leaktest_test

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// newMailServer is a hostile server that speaks SMTP: one dialogue after the
// other, it refuses at another command, and quotes what it should not.
func newMailServer(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	var dialogues atomic.Int64
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go talk(conn, int(dialogues.Add(1)))
		}
	}()
	return l.Addr().String()
}

func talk(conn net.Conn, n int) {
	defer func() { _ = conn.Close() }()
	quote := []string{number, address, code, secret, body}[n%5]
	status := []int{421, 450, 535, 550, 554}[n/5%5]
	refused := []string{"AUTH", "MAIL", "RCPT", "DATA", ".", "nothing"}[n/3%6]
	in := bufio.NewReader(conn)
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(conn, format+"\r\n", args...) }
	say("220 %s", quote)
	data := false
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		line = strings.TrimSpace(line)
		verb, _, _ := strings.Cut(strings.ToUpper(line), " ")
		switch {
		case data && line != ".":
			continue
		case verb == refused:
			data = false
			say("%d-%s", status, quote)
			say("%d 5.7.1 <%s> %s %s", status, quote, line, secret)
		case verb == "EHLO":
			say("250-%s", quote)
			say("250 AUTH PLAIN LOGIN")
		case verb == "AUTH":
			say("235 2.7.0 %s", line)
		case verb == "DATA":
			data = true
			say("354 %s", quote)
		case verb == "QUIT":
			say("221 %s", quote)
			return
		default:
			data = false
			say("250 2.0.0 %s queued as %s", line, quote)
		}
	}
}
