//go:build !linux

package httpd

import "net"

// closedByPeer can't be told here where there is something to be read before the end.
func closedByPeer(net.Conn) bool { return false }
