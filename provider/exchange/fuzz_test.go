package exchange_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/exchange"
)

// Whatever a server writes: an answer with a status, or Unknown. Never "not
// sent", never more than the bound.
func FuzzAnswer(f *testing.F) {
	for _, s := range []string{
		"", taken, farewell, taken + farewell, "HTTP/1.1 202 Acc", "HTTP/1.1 100 Continue\r\n\r\n" + taken,
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
		"HTTP/1.1 429 No\r\nRetry-After: 1e300\r\nKeep-Alive: timeout=99999999999999999999\r\n\r\n",
		"HTTP/0.0 000 \n\n0000", "HTTP/1.1 522 No\r\nCF-RAY: 1-X\r\n\r\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		c, err := exchange.New(exchange.Config{MaxBody: 100, Answer: 5 * time.Second, Dial: func(context.Context, string, string) (net.Conn, error) {
			client, server := net.Pipe()
			go func() {
				defer func() { _ = server.Close() }()
				next(bufio.NewReader(server))
				_, _ = server.Write(raw)
			}()
			return client, nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		a, err := c.Do(t.Context(), post(plain))
		if err != nil {
			var fault *dispatch.Fault
			if !errors.As(err, &fault) || fault.Evidence.Stage != dispatch.MaybeSent || fault.Verdict.Outcome != dispatch.Unknown {
				t.Fatal(err)
			}
			return
		}
		if a.Status < 100 || len(a.Body) > 100 || a.Evidence.Stage != dispatch.Answered || a.Evidence.RetryAfter < 0 || a.Evidence.RetryAfter > dispatch.MaxFloor {
			t.Fatal(a)
		}
	})
}

// What a request with any fields puts on the wire is one request with these
// fields, or nothing.
func FuzzRequest(f *testing.F) {
	f.Add("POST", "/v1/messages", "X-A", "b", "k-1", []byte("{}"))
	f.Add("GET", "/?a=b#c", "Host", "x", "a\r\nb: c", []byte(nil))
	f.Fuzz(func(t *testing.T, method, path, name, value, key string, body []byte) {
		got := make(chan int, 1)
		c, err := exchange.New(exchange.Config{Answer: 5 * time.Second, Dial: func(context.Context, string, string) (net.Conn, error) {
			client, server := net.Pipe()
			go func() {
				defer func() { _ = server.Close() }()
				br, n := bufio.NewReader(server), 0
				defer func() { got <- n }()
				for next(br) != nil {
					n++
					_, _ = io.WriteString(server, taken)
				}
			}()
			return client, nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Do(t.Context(), exchange.Request{
			Method: method, URL: "http://127.0.0.1:1" + path, Header: map[string][]string{name: {value}},
			KeyHeader: "Idempotency-Key", Key: key, Body: body,
		})
		c.Close()
		var fault *dispatch.Fault
		if errors.As(err, &fault) && fault.Evidence.Stage == dispatch.NotSent {
			return
		}
		if n := <-got; n != 1 {
			t.Fatalf("%d requests, %v", n, err)
		}
	})
}
