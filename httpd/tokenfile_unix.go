//go:build unix

package httpd

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// openStrictly follows no link, and does not wait for the other end of a FIFO.
const openStrictly = syscall.O_NOFOLLOW | syscall.O_NONBLOCK

func isLink(err error) bool { return errors.Is(err, syscall.ELOOP) || errors.Is(err, syscall.EMLINK) }

// ownFile reports whether a file belongs to this user. Root may also serve the store of
// another user: then the file belongs to the owner of the directory.
func ownFile(path string, info fs.FileInfo) bool {
	owner, ok := ownerOf(info)
	if !ok || owner == os.Geteuid() {
		return true
	}
	dir, err := os.Stat(filepath.Dir(path))
	if err != nil || os.Geteuid() != 0 {
		return false
	}
	keeper, ok := ownerOf(dir)
	return ok && owner == keeper
}

func ownerOf(info fs.FileInfo) (uid int, ok bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(st.Uid), true
}
