//go:build unix && !solaris && !aix

package bench

import (
	"os"
	"syscall"
)

// flock waits for the exclusive lock on f.
func flock(f *os.File) error {
	for {
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != syscall.EINTR {
			return os.NewSyscallError("flock", err)
		}
	}
}

func funlock(f *os.File) error {
	return os.NewSyscallError("flock", syscall.Flock(int(f.Fd()), syscall.LOCK_UN))
}

// SyncDir makes the names of new files durable.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
