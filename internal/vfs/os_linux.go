package vfs

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

func datasync(fd uintptr) error { return unix.Fdatasync(int(fd)) }

func fsync(fd uintptr) error { return unix.Fsync(int(fd)) }

// noAtime keeps reads from causing writes: a file that was written since it was last read
// gets a new access time with the next read, which takes longer than the read itself (three
// times, for a few bytes on ext4) and makes its inode dirty.
const noAtime = unix.O_NOATIME

// cloneBlocks makes a file share the whole blocks among the first n bytes of another one. 0
// if the file system can't (ext4, tmpfs), or the two are on different ones. After an error
// any part may be shared.
func cloneBlocks(dst, src uintptr, n int64) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(dst), &st); err != nil || st.Bsize <= 0 {
		return 0, nil
	}
	if n -= n % st.Bsize; n == 0 {
		return 0, nil
	}
	for {
		err := unix.IoctlFileCloneRange(int(dst), &unix.FileCloneRange{Src_fd: int64(src), Src_length: uint64(n)})
		switch err {
		case nil:
			return n, nil
		case unix.EINTR:
			continue
		case unix.EIO, unix.ENOSPC, unix.EDQUOT:
			return 0, err
		}
		return 0, nil // each file system refuses in its own way
	}
}

// exchange is the first part of [Replace]: two files change places, and the one that was
// replaced is removed. Not done: there is none at newname, or this file system can't.
func (o *OS) exchange(oldname, newname string) (done bool, err error) {
	if _, k, err := o.look("rename", newname); err != nil || k != kindRegular {
		return false, nil
	}
	err = o.withTwo("rename", oldname, newname, func(lo, ln string) error {
		from, err := o.root.Open(filepath.Dir(lo))
		if err != nil {
			return err
		}
		defer from.Close()
		to, err := o.root.Open(filepath.Dir(ln))
		if err != nil {
			return err
		}
		defer to.Close()
		return withFD(from, func(from uintptr) error {
			return withFD(to, func(to uintptr) error {
				return unix.Renameat2(int(from), filepath.Base(lo), int(to), filepath.Base(ln), unix.RENAME_EXCHANGE)
			})
		})
	})
	if err != nil {
		return false, nil // the plain rename works, or knows why not
	}
	return true, o.Remove(oldname)
}

// statxMask leaves out the times on purpose: once they have been read, the next write must
// give the inode new ones, and the sync after it has to write the inode as well (85 µs,
// measured on ext4).
const statxMask = unix.STATX_INO | unix.STATX_TYPE

// lookEntry does not follow the last component of the name.
func (o *OS) lookEntry(name string) (ino uint64, k kind, err error) {
	err = withFD(o.dir, func(fd uintptr) (err error) {
		ino, k, err = statx(int(fd), name, unix.AT_SYMLINK_NOFOLLOW)
		return err
	})
	return ino, k, err
}

// identify is lookEntry with the size.
func (o *OS) identify(name string) (ino uint64, size int64, err error) {
	var st unix.Statx_t
	err = withFD(o.dir, func(fd uintptr) error {
		return unix.Statx(int(fd), name, unix.AT_SYMLINK_NOFOLLOW, statxMask|unix.STATX_SIZE, &st)
	})
	if err == unix.ENOSYS || err == unix.EPERM || err == unix.EINTR {
		st, err := o.Stat(name) // an old kernel, or a sandbox that does not know the call
		return st.Inode, st.Size, err
	}
	return st.Ino, int64(st.Size), err
}

func lookFile(f *os.File) (ino uint64, k kind, err error) {
	err = withFD(f, func(fd uintptr) (err error) {
		ino, k, err = statx(int(fd), "", unix.AT_EMPTY_PATH)
		return err
	})
	return ino, k, err
}

func statx(fd int, name string, flags int) (uint64, kind, error) {
	var st unix.Statx_t
	for {
		err := unix.Statx(fd, name, flags, statxMask, &st)
		switch err {
		case nil:
			return st.Ino, kindOfMode(uint32(st.Mode)), nil
		case unix.EINTR:
			continue
		case unix.ENOSYS, unix.EPERM: // an old kernel, or a sandbox that does not know the call
			var st unix.Stat_t
			if err := unix.Fstatat(fd, name, &st, flags); err != nil {
				return 0, 0, err
			}
			return st.Ino, kindOfMode(st.Mode), nil
		}
		return 0, 0, err
	}
}

func kindOfMode(mode uint32) kind {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return kindRegular
	case unix.S_IFDIR:
		return kindDir
	case unix.S_IFLNK:
		return kindLink
	}
	return kindOther
}

func statInode(info fs.FileInfo, ino uint64) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Ino
	}
	return ino
}

// NoCOW turns off copy-on-write for a file that is still empty, if the file system has it
// (btrfs): a ring rewritten in place would otherwise be written elsewhere at every sync, with
// metadata. On other file systems it does nothing.
func (f *osFile) NoCOW() error {
	return f.control("nocow", func(fd uintptr) error {
		var st unix.Statfs_t
		if err := unix.Fstatfs(int(fd), &st); err != nil {
			return err
		}
		if st.Type != unix.BTRFS_SUPER_MAGIC {
			return nil
		}
		flags, err := unix.IoctlGetUint32(int(fd), unix.FS_IOC_GETFLAGS)
		if err != nil {
			return err
		}
		const fsNoCOW = 0x00800000 // FS_NOCOW_FL
		return unix.IoctlSetPointerInt(int(fd), unix.FS_IOC_SETFLAGS, int(flags|fsNoCOW))
	})
}

// fsTypes names file systems by their magic number. Depending on version, mount options and
// server, a lock on a network or guest file system is not seen by other machines, or not
// between host and guest.
var fsTypes = map[uint32]struct {
	name    string
	network bool
}{
	0x0000ef53: {"ext4", false},
	0x58465342: {"xfs", false},
	0x9123683e: {"btrfs", false},
	0x01021994: {"tmpfs", false},
	0x858458f6: {"ramfs", false},
	0x794c7630: {"overlayfs", false},
	0x2fc12fc1: {"zfs", false},
	0xf2f52010: {"f2fs", false},
	0xca451a4e: {"bcachefs", false},
	0x00003434: {"nilfs2", false},
	0x3153464a: {"jfs", false},
	0x52654973: {"reiserfs", false},
	0x0000f15f: {"ecryptfs", false},
	0x61756673: {"aufs", false},
	0x00004d44: {"vfat", false},
	0x2011bab0: {"exfat", false},
	0x7366746e: {"ntfs3", false},
	0x53464846: {"wslfs", false},

	0x00006969: {"nfs", true},
	0x0000517b: {"smb", true},
	0xff534d42: {"cifs", true},
	0xfe534d42: {"smb2", true},
	0x0000564c: {"ncp", true},
	0x01021997: {"9p", true},
	0x65735546: {"fuse", true}, // also virtiofs, sshfs, s3fs, gcsfuse, …
	0x00c36400: {"ceph", true},
	0x5346414f: {"afs", true},
	0x6b414653: {"afs", true},
	0x73757245: {"coda", true},
	0x786f4256: {"vboxsf", true},
	0xbacbacbc: {"vmhgfs", true},
	0x7c7c6673: {"prl_fs", true},
	0x0bd00bd0: {"lustre", true},
	0x47504653: {"gpfs", true},
	0x7461636f: {"ocfs2", true},
	0x01161970: {"gfs2", true},
	0x19830326: {"beegfs", true},
	0xaad7aaea: {"panfs", true},
	0x20030528: {"orangefs", true},
	0xbeefdead: {"snfs", true},
	0x61636673: {"acfs", true},
	0x013111a8: {"ibrix", true},
}

// FSType names the file system, and says whether it is one on which locks can't be trusted
// between machines. An unknown one counts as local.
func (o *OS) FSType() (name string, network bool, err error) {
	st, err := o.statfs()
	if err != nil {
		return "", false, err
	}
	magic := uint32(st.Type) // sign-extended on 32-bit machines
	if t, ok := fsTypes[magic]; ok {
		return t.name, t.network, nil
	}
	return fmt.Sprintf("unknown (magic %#x)", magic), false, nil
}

// FSTypeOf names the file system that a path is on, or would be on, even if nothing on it can
// be opened any more; empty if it is not known.
func FSTypeOf(path string) string {
	for {
		var st unix.Statfs_t
		if unix.Statfs(path, &st) == nil {
			return fsTypes[uint32(st.Type)].name
		}
		parent := filepath.Dir(path)
		if parent == path {
			return ""
		}
		path = parent
	}
}
