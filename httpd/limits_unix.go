//go:build unix

package httpd

import (
	"math"
	"syscall"
)

// maxFiles is how many files and connections the process may have open.
func maxFiles() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 1024
	}
	return int(min(uint64(limit.Cur), math.MaxInt32))
}
