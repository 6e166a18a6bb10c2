package outbox_test

import (
	"bytes"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch/outbox"
)

// proxy stands between a pool and Postgres and cuts a connection at the
// statement that it was told of: the server carries it out, and nobody hears.
type proxy struct {
	addr, server string

	mu   sync.Mutex
	text []byte        // the next request with this text is cut
	hold chan struct{} // where set, the server gets the request only when it closes
	cut  chan struct{} // closed once it has happened
}

// behindProxy returns a box on a pool that goes through a proxy. Its
// statements travel as text, so that the proxy can tell them apart.
func behindProxy(t *testing.T, pool *pgxpool.Pool, schema string) (*outbox.Box, *pgxpool.Pool, *proxy) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	cfg := pool.Config()
	p := &proxy{addr: ln.Addr().String(), server: net.JoinHostPort(cfg.ConnConfig.Host, itoa(int(cfg.ConnConfig.Port)))}
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			client, err := ln.Accept()
			if err != nil {
				return
			}
			go p.serve(client)
		}
	}()
	host, port, err := net.SplitHostPort(p.addr)
	require.NoError(t, err)
	cfg.ConnConfig.Host, cfg.ConnConfig.Port = host, uint16(atoi(port))
	cfg.ConnConfig.Fallbacks = nil
	cfg.ConnConfig.RuntimeParams["application_name"] = "behind-proxy"
	cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	through, err := pgxpool.NewWithConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(through.Close)
	box, err := outbox.New(through, outbox.Config{Schema: schema, Routes: routes()})
	require.NoError(t, err)
	return box, through, p
}

// arm cuts the next request that has the text. With late, the server gets it
// only when the returned function is called.
func (p *proxy) arm(text string, late bool) (happened <-chan struct{}, release func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.text, p.cut, p.hold = []byte(text), make(chan struct{}), nil
	if late {
		p.hold = make(chan struct{})
		return p.cut, sync.OnceFunc(func() { close(p.hold) })
	}
	return p.cut, func() {}
}

func (p *proxy) take(b []byte) (hit bool, hold, cut chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.text == nil || !bytes.Contains(b, p.text) {
		return false, nil, nil
	}
	p.text = nil
	return true, p.hold, p.cut
}

func (p *proxy) serve(client net.Conn) {
	defer func() { _ = client.Close() }()
	server, err := net.Dial("tcp", p.server)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	var mu sync.Mutex
	deaf := false
	answered := make(chan struct{})
	go func() { // server → client, until the client is cut off
		defer func() { _ = client.Close() }()
		buf := make([]byte, 1<<16)
		for {
			n, err := server.Read(buf)
			mu.Lock()
			gone := deaf
			mu.Unlock()
			switch {
			case err != nil:
				return
			case gone:
				if bytes.Contains(buf[:n], []byte("Z\x00\x00\x00\x05")) { // ready for query: it is done
					close(answered)
					return
				}
			default:
				if _, err := client.Write(buf[:n]); err != nil {
					return
				}
			}
		}
	}()
	buf := make([]byte, 1<<20)
	for {
		n, err := client.Read(buf)
		if err != nil {
			return
		}
		hit, hold, cut := p.take(buf[:n])
		if hit {
			mu.Lock()
			deaf = true
			mu.Unlock()
			if hold != nil {
				_ = client.Close()
				close(cut)
				<-hold
			}
		}
		if _, err := server.Write(buf[:n]); err != nil {
			return
		}
		if hit {
			<-answered
			_ = client.Close()
			if hold == nil {
				close(cut)
			}
			_, _ = io.Copy(io.Discard, server)
			return
		}
	}
}
