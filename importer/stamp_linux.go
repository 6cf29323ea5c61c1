package importer

import (
	"io/fs"
	"syscall"
)

// inode is what a file system says about a file besides its size and modification time: its
// identity, and when anything about it changed, which no program can set.
func inode(info fs.FileInfo) (dev, ino uint64, changed int64, ok bool) {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, 0, false
	}
	return uint64(s.Dev), s.Ino, s.Ctim.Nano(), true //nolint:unconvert // 32 bits on some machines
}
