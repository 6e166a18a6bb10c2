//go:build !linux

package exchange

import (
	"net"
	"time"
)

// userTimeout does nothing here: abort is all there is.
func userTimeout(net.Conn, time.Duration) {}
