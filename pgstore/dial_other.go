//go:build !linux

package pgstore

import (
	"syscall"
	"time"
)

// tcpUserTimeout does nothing on systems without the setting: keepalives, and the
// checks of watchSilence, remain.
func tcpUserTimeout(time.Duration) func(network, address string, c syscall.RawConn) error {
	return nil
}
