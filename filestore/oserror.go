package filestore

import (
	"errors"
	"io/fs"
	"syscall"
)

// What errors of the operating system mean for a store. Whether an error is temporary or
// permanent decides whether an entry waits, is retried, or is set aside.

// isNoSpace tells whether the disk, or the user's quota, is full. That may end at any
// moment, so entries wait in the ring and apply stops (ApplyStops).
func isNoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// isReadOnly tells whether this process may not write here: a read-only mount, or no
// permission. The store can still be read.
func isReadOnly(err error) bool {
	return errors.Is(err, syscall.EROFS) || errors.Is(err, fs.ErrPermission)
}

// isTooManyFiles tells whether no more files can be opened, in this process or on the
// machine. It says nothing about the file that was to be opened (failure 14).
func isTooManyFiles(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}
