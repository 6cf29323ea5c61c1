package httpd

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// closedByPeer asks the kernel, which knows even if there are unread bytes before the end.
func closedByPeer(c net.Conn) bool {
	raw, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	rc, err := raw.SyscallConn()
	if err != nil {
		return false
	}
	closed := false
	err = rc.Control(func(fd uintptr) {
		look := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		if n, err := unix.Poll(look, 0); err == nil && n > 0 {
			closed = look[0].Revents&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR) != 0
		}
	})
	return closed || err != nil
}
