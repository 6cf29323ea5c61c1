//go:build !linux

package pgstore

import (
	"syscall"
	"time"
)

// tcpUserTimeout does nothing where the system has no such setting: keepalives, and
// the look at silent connections, remain.
func tcpUserTimeout(time.Duration) func(network, address string, c syscall.RawConn) error {
	return nil
}
