//go:build unix

package exchange

import (
	"errors"
	"net"
	"syscall"
)

// peek reports whether bytes or the end wait on a socket, without taking
// them. known is false for what is no socket.
func peek(c net.Conn) (pending, known bool) {
	s, ok := c.(syscall.Conn)
	if !ok {
		return false, false
	}
	rc, err := s.SyscallConn()
	if err != nil {
		return false, false
	}
	err = rc.Read(func(fd uintptr) bool {
		var b [1]byte
		_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK)
		for errors.Is(err, syscall.EINTR) {
			_, _, err = syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK)
		}
		pending = !errors.Is(err, syscall.EAGAIN) && !errors.Is(err, syscall.EWOULDBLOCK)
		return true
	})
	return pending || err != nil, true
}
