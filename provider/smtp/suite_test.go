package smtp_test

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"net/mail"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/internal/mailtest"
	"github.com/seed-8098fbb7/dispatch/provider/providertest"
	"github.com/seed-8098fbb7/dispatch/provider/smtp"
)

// bridge is a mail server in front of the suite's vendor, which speaks HTTP:
// each mail whose end came is a call, and the vendor's answer, or its lack, is
// the answer to the dot. A status becomes the answer that means the same.
type bridge struct {
	dispatch.Provider

	close func()
}

func (b *bridge) Close() { b.close() }

func newBridge(t *testing.T, url string) (dispatch.Provider, error) {
	t.Helper()
	vendor := strings.TrimPrefix(url, "http://")
	cfg := plain(vendor)
	probe, err := net.Dial("tcp", vendor)
	if err != nil { // nothing listens: then nothing shall
		p, err := smtp.New(cfg)
		if err != nil {
			return nil, err
		}
		return &bridge{p, p.Close}, nil
	}
	_ = probe.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	cfg.Addr = l.Addr().String()
	p, err := smtp.New(cfg)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			group.Go(func() { relay(ctx, c, client, url) })
		}
	})
	return &bridge{p, func() {
		p.Close()
		cancel()
		_ = l.Close()
		group.Wait()
	}}, nil
}

// relay is one connection to the bridge.
func relay(ctx context.Context, c net.Conn, client *http.Client, url string) {
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	s := &script{}
	s.onMail = func(data []byte) string {
		m, err := mail.ReadMessage(bytes.NewReader(data))
		if err != nil {
			return "554 5.6.0 no mail\r\n"
		}
		key, _, _ := strings.Cut(strings.Trim(m.Header.Get("Message-Id"), "<>"), "@")
		// The wait for the vendor ends when the client leaves.
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		go func() {
			_, _ = c.Read(make([]byte, 1))
			cancel()
		}()
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/mail", bytes.NewReader(data))
		if err != nil {
			return "!"
		}
		req.Header["X-Key"] = []string{key}
		resp, err := client.Do(req)
		// The reader above has read what is not the next mail's only where the
		// client said something: it waits for this answer first.
		_ = c.SetReadDeadline(time.Unix(1, 0))
		<-ctx.Done()
		_ = c.SetReadDeadline(time.Time{})
		if err != nil {
			return "!"
		}
		_ = resp.Body.Close()
		return answerOf(resp)
	}
	s.serve(c)
}

// answerOf is what a mail server says that means what the status does.
func answerOf(resp *http.Response) string {
	switch s := resp.StatusCode; {
	case s >= 200 && s <= 299:
		return "250 2.0.0 queued\r\n"
	case s == http.StatusTooManyRequests:
		return "451 4.7.1 slow down\r\n"
	case s == http.StatusBadRequest:
		return "554 5.6.0 refused\r\n"
	case s >= 300 && s <= 399, s == http.StatusUnauthorized, s == http.StatusPaymentRequired, s == http.StatusForbidden, s == http.StatusNotFound:
		return "530 5.7.0 log in\r\n"
	default: // no answer of SMTP says that it doesn't know
		return "<html>" + strconv.Itoa(s) + "\r\n"
	}
}

// The suite that every provider passes. Retry-After has no counterpart in an
// answer of SMTP, nor has a status that proves nothing: that is a connection
// that breaks, or an answer that is none.
func TestSuite(t *testing.T) {
	silent := providertest.Want{}
	want := map[string]providertest.Want{"error page 503": silent, "endless error body": silent, "packed error body": silent, "key in flight": silent}
	for _, name := range []string{"edge timed out", "edge's status from nobody", "edge did not reach the vendor"} {
		want[name] = silent
	}
	for _, status := range []string{"408", "425", "500", "502", "504", "520", "599"} {
		want["status "+status] = silent
	}
	for _, with := range []string{
		"seconds", "decimals", "a huge number", "400 digits", "zero", "a negative number", "a past date", "nonsense", "IMF-fixdate", "RFC 850 date",
		"asctime date", "a date with an offset",
	} {
		want["Retry-After with "+with] = providertest.Want{Outcome: dispatch.Rejected, Stage: dispatch.Answered}
	}
	providertest.Run(t, providertest.Suite{
		New:     func(url string) (dispatch.Provider, error) { return newBridge(t, url) },
		Content: mailtest.Mail(), From: "Shop <no-reply@shop.example>", Secrets: []string{mailtest.Secret, "ada@example.com", "482901"},
		Options: providertest.Options{Key: func(r *http.Request, _ []byte) string { return strings.Join(r.Header["X-Key"], "") }},
		Want:    want,
	})
}

// Whatever a server answers: no acceptance but by a 2yz, and nothing after the
// dot that is called refused without a whole 4yz or 5yz.
func FuzzReply(f *testing.F) {
	for _, s := range []string{"250 ok\r\n", "250-a\r\n250 b\r\n", "550-a\r\n250 b\r\n", "250\n", "", "25", "354 x\r\n", "\x00\r\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		code, err := smtp.ReadReplyForTest(b)
		if err != nil {
			require.Zero(t, code)
			return
		}
		require.True(t, code >= 200 && code <= 599)
		first := string(b)[:3]
		require.Equal(t, first, strconv.Itoa(code))
		require.Contains(t, string(b), "\n")
	})
}
