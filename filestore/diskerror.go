package filestore

import (
	"errors"
	"syscall"

	"hansard"
	"hansard/internal/vfs"
)

// What people need to know when a disk fails: that nothing acknowledged is lost, and that
// waiting does not help. explain adds it to errors that leave the engine.

// diskError is an error of the disk or of its file system, with advice. After the first
// one, file systems refuse everything (xfs) or every write (btrfs, and ext4 in a common
// configuration) until they are remounted, even if the device works again. No retry of
// ours can change that, so the hint says it (TestDiskErrorsSayRemount).
type diskError struct {
	err error
	fs  string // the kind of file system; empty: not known
}

// Error and Unwrap leave the error as it is: explain adds a hint, not text.
func (e *diskError) Error() string { return e.err.Error() }
func (e *diskError) Unwrap() error { return e.err }

// Is makes it ErrFailed, except for a read-only file system: that may be intended.
func (e *diskError) Is(target error) bool {
	return target == hansard.ErrFailed && !errors.Is(e.err, syscall.EROFS)
}

// Hint is the advice. It names the file system only if it is known to behave like this.
func (e *diskError) Hint() string {
	name := "a file system"
	switch e.fs {
	case "xfs", "btrfs", "ext4", "f2fs":
		name = e.fs
	}
	return "look at the kernel's messages (dmesg): after an error of its device " + name +
		" refuses further use until it is unmounted and mounted again, even when the device works again; " +
		"what was acknowledged is safe, and what is open is settled by a retry with its key"
}

// explainAt is explain for a directory that could not be opened, when there is no process
// yet.
func explainAt(dir string, err error) error {
	if !isDiskError(err) {
		return err
	}
	return &diskError{err: err, fs: vfs.FSTypeOf(dir)}
}

// explain adds advice to an error of the operating system: missing permissions, or a
// failed disk. Other errors, nil, and those that are already explained are returned
// unchanged.
func (p *process) explain(err error) error {
	var known *diskError
	if !isDiskError(err) || errors.As(err, &known) {
		return p.noAccess(err)
	}
	e := &diskError{err: err}
	if t, ok := p.fs.(interface {
		FSType() (string, bool, error)
	}); ok {
		e.fs, _, _ = t.FSType()
	}
	return e
}
