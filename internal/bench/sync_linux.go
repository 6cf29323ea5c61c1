package bench

import (
	"os"
	"syscall"
)

// Fdatasync waits until the content of f, and its size, are on disk.
func Fdatasync(f *os.File) error {
	for {
		if err := syscall.Fdatasync(int(f.Fd())); err != syscall.EINTR {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}
