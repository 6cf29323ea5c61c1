//go:build linux || darwin || freebsd

package vfs

import (
	"io"
	"io/fs"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// openFlags: O_NONBLOCK means nothing for a regular file, but without it opening a FIFO put in
// a file's place would block for ever.
const openFlags = unix.O_NONBLOCK

// lockState is empty: flock keeps the state in the open file.
type lockState struct{} //nolint:unused // Windows has one

// readOnce is one read, repeated only after a signal. Fewer bytes mean the end of the file.
func (f *osFile) readOnce(p []byte, off int64) (n int, err error) {
	defer runtime.KeepAlive(f.f)
	for {
		switch n, err = unix.Pread(int(f.f.Fd()), p, off); {
		case err == unix.EINTR:
			continue
		case err != nil:
			return 0, &fs.PathError{Op: "read", Path: f.name, Err: err}
		case n < len(p):
			return n, io.EOF
		}
		return n, nil
	}
}

// Lock implements [File]. It can't be interrupted: a caller that wants to give up earlier has
// to leave a goroutine, and its thread, behind.
func (f *osFile) Lock(mode LockMode) error {
	return f.control("lock", func(fd uintptr) error { return flock(fd, how(mode)) })
}

// TryLock implements [File]. Like flock itself it releases the current lock before it tries
// another mode, so a failed upgrade loses it.
func (f *osFile) TryLock(mode LockMode) (bool, error) {
	got := true
	err := f.control("trylock", func(fd uintptr) error {
		err := flock(fd, how(mode)|unix.LOCK_NB)
		if err == unix.EWOULDBLOCK {
			got, err = false, nil
		}
		return err
	})
	return got && err == nil, err
}

// Unlock implements [File].
func (f *osFile) Unlock() error {
	return f.control("unlock", func(fd uintptr) error { return flock(fd, unix.LOCK_UN) })
}

func how(mode LockMode) int {
	if mode == LockShared {
		return unix.LOCK_SH
	}
	return unix.LOCK_EX
}

// flock retries after a signal; the Go runtime sends them for preemption.
func flock(fd uintptr, how int) error {
	for {
		if err := unix.Flock(int(fd), how); err != unix.EINTR {
			return err
		}
	}
}

// syncDir tries once. An error, even EINTR, is final: the kernel may have dropped the dirty
// pages, and the next call would report success.
func syncDir(d *os.File) error { return withFD(d, fsync) }

// Free implements [FS].
func (o *OS) Free() (uint64, error) {
	st, err := o.statfs()
	if err != nil {
		return 0, err
	}
	if int64(st.Bavail) < 0 {
		return 0, nil // FreeBSD counts the reserve below zero
	}
	return uint64(st.Bavail) * uint64(st.Bsize), nil //nolint:unconvert // FreeBSD's is signed
}

func (o *OS) statfs() (st unix.Statfs_t, err error) {
	err = withFD(o.dir, func(fd uintptr) error {
		for {
			if err := unix.Fstatfs(int(fd), &st); err != unix.EINTR {
				return os.NewSyscallError("fstatfs", err)
			}
		}
	})
	return st, err
}
