package vfs

import "golang.org/x/sys/unix"

// DirStamp is the stamp of a directory; not ok: it is not available here.
func (o *OS) DirStamp(name string) (d DirStamp, ok bool) {
	if _, err := local("stat", name); err != nil {
		return d, false
	}
	var st unix.Stat_t
	err := withFD(o.dir, func(fd uintptr) error { return unix.Fstatat(int(fd), name, &st, unix.AT_SYMLINK_NOFOLLOW) })
	return DirStamp{st.Ino, st.Mtim.Nano(), st.Ctim.Nano()}, err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR
}
