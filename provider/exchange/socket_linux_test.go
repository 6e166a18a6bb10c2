package exchange

import (
	"context"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The kernel gives up on unacknowledged bytes within the attempt's time.
func TestUserTimeout(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	go func() {
		if c, err := l.Accept(); err == nil {
			defer func() { _ = c.Close() }()
			_, _ = c.Read(make([]byte, 4096))
			_, _ = io.WriteString(c, "HTTP/1.1 202 Accepted\r\nConnection: close\r\n\r\n")
		}
	}()
	var dialled atomic.Pointer[net.TCPConn]
	c, err := New(Config{Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		dialled.Store(conn.(*net.TCPConn))
		return conn, err
	}})
	require.NoError(t, err)
	defer c.Close()
	p, err := prepare(Request{URL: "http://" + l.Addr().String()})
	require.NoError(t, err)
	cn, _, err := c.dial(t.Context(), p)
	require.NoError(t, err)
	defer cn.abort()
	cn.begin(c.cfg.Write + c.cfg.Answer)
	rc, err := dialled.Load().SyscallConn()
	require.NoError(t, err)
	require.NoError(t, rc.Control(func(fd uintptr) {
		ms, err := syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout)
		require.NoError(t, err)
		require.Equal(t, int((25 * time.Second).Milliseconds()), ms)
	}))
}
