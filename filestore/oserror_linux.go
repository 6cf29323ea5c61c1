package filestore

import (
	"errors"
	"syscall"
)

// isDiskError tells whether a disk, or the file system on it, has failed: EIO; EROFS, an
// error made it read-only; EUCLEAN, it found itself corrupt; the others, it was shut down
// or its device is gone. diskerror.go says what to do about it.
func isDiskError(err error) bool {
	for _, e := range []error{syscall.EIO, syscall.EROFS, syscall.EUCLEAN, syscall.ESHUTDOWN, syscall.ENODEV, syscall.ENXIO} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
