package importer

import (
	"io/fs"
	"syscall"
)

// inode is as on Linux.
func inode(info fs.FileInfo) (dev, ino uint64, changed int64, ok bool) {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, 0, false
	}
	return uint64(s.Dev), s.Ino, s.Ctimespec.Nano(), true
}
