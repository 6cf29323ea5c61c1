//go:build darwin || freebsd

package vfs

import (
	"io/fs"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// lookEntry does not follow the last component of the name.
func (o *OS) lookEntry(name string) (uint64, kind, error) {
	info, err := o.root.Lstat(name)
	if err != nil {
		return 0, 0, underlying(err)
	}
	return statInode(info, 0), kindOf(info.Mode()), nil
}

func lookFile(f *os.File) (uint64, kind, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, 0, underlying(err)
	}
	return statInode(info, 0), kindOf(info.Mode()), nil
}

func statInode(info fs.FileInfo, ino uint64) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Ino)
	}
	return ino
}

// FSTypeOf is not known here.
func FSTypeOf(string) string { return "" }

// FSType names the file system, and says whether it is one on which locks can't
// be trusted between machines.
func (o *OS) FSType() (name string, network bool, err error) {
	st, err := o.statfs()
	if err != nil {
		return "", false, err
	}
	name = unix.ByteSliceToString(st.Fstypename[:])
	switch {
	case uint64(st.Flags)&unix.MNT_LOCAL == 0:
		return name, true, nil
	case strings.Contains(name, "fuse"), name == "nfs", name == "smbfs", name == "afpfs", name == "webdav", name == "p9fs", name == "virtiofs":
		return name, true, nil
	}
	return name, false, nil
}

// identify is lookEntry with the size.
func (o *OS) identify(name string) (ino uint64, size int64, err error) {
	st, err := o.Stat(name)
	return st.Inode, st.Size, underlying(err)
}
