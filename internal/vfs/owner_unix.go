//go:build linux || darwin || freebsd

package vfs

import (
	"os"
	"os/user"
	"strconv"

	"golang.org/x/sys/unix"
)

// keeperOf is the owner of a directory, if this process is root and the
// directory is not root's.
func keeperOf(dir *os.File) *keeper {
	if os.Geteuid() != 0 {
		return nil
	}
	var st unix.Stat_t
	if err := withFD(dir, func(fd uintptr) error { return unix.Fstat(int(fd), &st) }); err != nil || st.Uid == 0 {
		return nil
	}
	return &keeper{int(st.Uid), int(st.Gid)}
}

// Owner says who owns a file or directory of the store.
func (o *OS) Owner(name string) (Owner, error) {
	var st unix.Stat_t
	err := withFD(o.dir, func(fd uintptr) error { return unix.Fstatat(int(fd), name, &st, unix.AT_SYMLINK_NOFOLLOW) })
	if err != nil {
		return Owner{}, err
	}
	self := os.Geteuid()
	return Owner{User: userName(int(st.Uid)), UID: int(st.Uid), Mode: os.FileMode(st.Mode & 0o777), SelfUser: userName(self), SelfUID: self}, nil
}

func userName(uid int) string {
	number := strconv.Itoa(uid)
	if u, err := user.LookupId(number); err == nil {
		return u.Username
	}
	return number
}
