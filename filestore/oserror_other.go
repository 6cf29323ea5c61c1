//go:build !linux

package filestore

import (
	"errors"
	"syscall"
)

// isDiskError tells whether a disk, or the file system on it, has failed. The other
// errors of oserror_linux.go are not defined everywhere.
func isDiskError(err error) bool {
	return errors.Is(err, syscall.EIO) || errors.Is(err, syscall.EROFS)
}
