//go:build unix

package backup

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// lock locks a file for as long as it is open. It returns false if another process holds the
// lock, or the file system has no locks.
func lock(f *os.File) bool {
	return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil
}

// syncDir makes the names in a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	// Some file systems can't sync a directory: they keep names anyway, or give no guarantee.
	if err := d.Sync(); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOTSUP) {
		return err
	}
	return nil
}
