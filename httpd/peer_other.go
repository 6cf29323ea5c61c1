//go:build !linux

package httpd

import "net"

// closedByPeer can't be determined here if there are unread bytes before the end.
func closedByPeer(net.Conn) bool { return false }
