package exchange

import (
	"net"
	"syscall"
	"time"
)

// tcpUserTimeout is TCP_USER_TIMEOUT of linux/tcp.h, which package syscall
// lacks on some architectures.
const tcpUserTimeout = 18

// userTimeout lets the kernel give up on bytes that nobody acknowledged for d
// (RFC 5482). It is a second line behind abort, and so its failure is none.
func userTimeout(c net.Conn, d time.Duration) {
	s, ok := c.(syscall.Conn)
	if !ok {
		return
	}
	if rc, err := s.SyscallConn(); err == nil {
		_ = rc.Control(func(fd uintptr) {
			_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int(d.Milliseconds()))
		})
	}
}
