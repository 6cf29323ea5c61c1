package pgstore

import (
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// tcpUserTimeout makes a connection fail when sent data is not acknowledged for this long:
// without it Linux retries for a quarter of an hour.
func tcpUserTimeout(d time.Duration) func(network, address string, c syscall.RawConn) error {
	return func(network, _ string, c syscall.RawConn) (err error) {
		if d <= 0 || !strings.HasPrefix(network, "tcp") {
			return nil
		}
		if failed := c.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(d.Milliseconds()))
		}); failed != nil {
			return failed
		}
		return err
	}
}
