package exchange_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/exchange"
)

// secureServer is an HTTPS server that also offers HTTP/2, and the roots that
// know it.
func secureServer(t *testing.T, h http.HandlerFunc) (*httptest.Server, *tls.Config) {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.EnableHTTP2 = true
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate())
	return s, &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
}

func accept(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.WriteHeader(http.StatusAccepted)
	_, _ = io.WriteString(w, `{"id":"`+r.Proto+`"}`)
}

// B032: HTTP/2 is not spoken, also where it is offered.
func TestHTTP1Only(t *testing.T) {
	s, cfg := secureServer(t, accept)
	cfg.NextProtos = []string{"h2"}
	c := client(t, exchange.Config{TLS: cfg})
	for range 3 {
		a, err := c.Do(t.Context(), post(s.URL+"/v1/messages"))
		require.NoError(t, err)
		require.Equal(t, `{"id":"HTTP/1.1"}`, string(a.Body))
	}
}

// B030: faults before the first byte. A certificate is a person's to mend.
func TestBeforeTheFirstByte(t *testing.T) {
	s, cfg := secureServer(t, accept)
	otherName := cfg.Clone()
	otherName.ServerName = "other.example"
	expired := cfg.Clone()
	expired.Time = func() time.Time { return time.Now().AddDate(500, 0, 0) }
	dead := socket(t, func(c net.Conn, _ int) { _ = c.Close() })
	noHost := func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.DNSError{Err: "no such host", Name: "api.example", IsNotFound: true}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	closed := "http://" + l.Addr().String()
	require.NoError(t, l.Close())

	for name, c := range map[string]struct {
		url   string
		cfg   exchange.Config
		cause dispatch.Cause
		scope dispatch.Scope
	}{
		"closed port":       {closed, exchange.Config{}, dispatch.CauseDial, dispatch.Moment},
		"no such host":      {secure, exchange.Config{Dial: noHost}, dispatch.CauseDial, dispatch.Moment},
		"handshake cut":     {strings.Replace(dead, "http", "https", 1), exchange.Config{}, dispatch.CauseDial, dispatch.Moment},
		"unknown authority": {s.URL, exchange.Config{}, dispatch.CauseCertificate, dispatch.Account},
		"other name":        {s.URL, exchange.Config{TLS: otherName}, dispatch.CauseCertificate, dispatch.Account},
		"expired":           {s.URL, exchange.Config{TLS: expired}, dispatch.CauseCertificate, dispatch.Account},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := client(t, c.cfg).Do(t.Context(), post(c.url))
			f := fault(t, err, dispatch.NotSent, c.cause)
			require.Equal(t, dispatch.Rejected, f.Verdict.Outcome)
			require.Equal(t, c.scope, f.Verdict.Scope)
		})
	}
}

// Under TLS too, a kept connection that takes no byte is replaced, and one
// that took some is not.
func TestDeadBeforeTheFirstByteTLS(t *testing.T) {
	var requests atomic.Int32
	s, cfg := secureServer(t, func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		accept(w, r)
	})
	for _, c := range []struct {
		budget   int64
		ok       bool
		requests int32
	}{{0, true, 2}, {3, false, 1}} {
		requests.Store(0)
		var budget atomic.Int64
		budget.Store(-1)
		n := 0
		x := client(t, exchange.Config{TLS: cfg, Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, addr)
			if n++; n > 1 {
				return conn, err
			}
			return bent{conn, &budget}, err
		}})
		_, err := x.Do(t.Context(), post(s.URL))
		require.NoError(t, err)
		budget.Store(c.budget)
		_, err = x.Do(t.Context(), post(s.URL))
		if c.ok {
			require.NoError(t, err)
		} else {
			fault(t, err, dispatch.MaybeSent, dispatch.CauseConn)
		}
		require.Equal(t, c.requests, requests.Load())
	}
}

// B021 under TLS: an idle connection that the server closed is noticed.
func TestUnsolicitedTLS(t *testing.T) {
	s, cfg := secureServer(t, accept)
	c := client(t, exchange.Config{TLS: cfg})
	for range 3 {
		_, err := c.Do(t.Context(), post(s.URL))
		require.NoError(t, err)
		s.CloseClientConnections()
	}
}

// proxyServer is a forward proxy that answers CONNECT with raw, or makes the
// tunnel where raw is "".
func proxyServer(t *testing.T, raw string, seen *http.Header) func(*http.Request) (*url.URL, error) {
	t.Helper()
	base := socket(t, func(c net.Conn, _ int) {
		r := next(bufio.NewReader(c))
		if r == nil {
			return
		}
		*seen = r.Header
		if raw != "" {
			_, _ = io.WriteString(c, raw)
			return
		}
		up, err := net.Dial("tcp", r.Host)
		if err != nil {
			return
		}
		defer func() { _ = up.Close() }()
		_, _ = io.WriteString(c, "HTTP/1.1 200 Connected\r\n\r\n")
		go func() { _, _ = io.Copy(up, c); _ = up.Close() }()
		_, _ = io.Copy(c, up)
	})
	u, err := url.Parse(base)
	require.NoError(t, err)
	u.User = url.UserPassword("user", "hunter2")
	return func(*http.Request) (*url.URL, error) { return u, nil }
}

// B031: a proxy's refusal proves that the provider was never reached.
func TestProxy(t *testing.T) {
	s, cfg := secureServer(t, accept)
	for name, c := range map[string]struct {
		raw    string
		cause  dispatch.Cause
		scope  dispatch.Scope
		status int
		floor  time.Duration
	}{
		"502":         {"HTTP/1.1 502 Bad Gateway\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n", dispatch.CauseProxy, dispatch.Moment, 502, 7 * time.Second},
		"407":         {"HTTP/1.1 407 Who\r\n\r\n", dispatch.CauseProxyAuth, dispatch.Account, 407, 0},
		"302":         {"HTTP/1.1 302 Found\r\nLocation: /\r\n\r\n", dispatch.CauseProxy, dispatch.Moment, 302, 0},
		"nonsense":    {"SSH-2.0-x\r\n", dispatch.CauseProxy, dispatch.Moment, 0, 0},
		"half answer": {"HTTP/1.1 200 Conn", dispatch.CauseProxy, dispatch.Moment, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var seen http.Header
			_, err := client(t, exchange.Config{TLS: cfg, Proxy: proxyServer(t, c.raw, &seen)}).Do(t.Context(), post(s.URL))
			f := fault(t, err, dispatch.NotSent, c.cause)
			require.Equal(t, dispatch.Rejected, f.Verdict.Outcome)
			require.Equal(t, c.scope, f.Verdict.Scope)
			require.Equal(t, c.status, f.Evidence.Status)
			require.Equal(t, c.floor, f.Verdict.Floor)
		})
	}
	t.Run("tunnel", func(t *testing.T) {
		var seen http.Header
		c := client(t, exchange.Config{TLS: cfg, Proxy: proxyServer(t, "", &seen)})
		for range 2 {
			a, err := c.Do(t.Context(), post(s.URL))
			require.NoError(t, err)
			require.Equal(t, http.StatusAccepted, a.Status)
		}
		require.Equal(t, "Basic dXNlcjpodW50ZXIy", seen.Get("Proxy-Authorization"))
		require.Empty(t, seen.Get("Authorization"))
		require.Empty(t, seen.Get("Idempotency-Key"))
	})
	t.Run("odd scheme", func(t *testing.T) {
		_, err := client(t, exchange.Config{Proxy: func(*http.Request) (*url.URL, error) {
			return url.Parse("socks5://user:hunter2@relay.example")
		}}).Do(t.Context(), post(secure))
		fault(t, err, dispatch.NotSent, dispatch.CauseLocal)
	})
}
