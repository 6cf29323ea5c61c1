package vfs

import "golang.org/x/sys/unix"

// datasync: fsync on macOS only passes the data to the drive, which may keep
// it in its cache indefinitely. F_FULLFSYNC makes the drive write it.
func datasync(fd uintptr) error { return fsync(fd) }

func fsync(fd uintptr) error {
	_, err := unix.FcntlInt(fd, unix.F_FULLFSYNC, 0)
	if err == unix.ENOTSUP || err == unix.ENOTTY || err == unix.EINVAL {
		// The file system does not know the request: nothing has been
		// tried yet, so this is not a second sync after a failed one.
		return unix.Fsync(int(fd))
	}
	return err
}
