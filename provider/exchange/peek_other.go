//go:build !unix

package exchange

import "net"

// peek can't tell here: the caller reads with a short deadline instead.
func peek(net.Conn) (pending, known bool) { return false, false }
