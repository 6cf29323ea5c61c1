package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

// Root may use any user's store. Files it makes there are given to the store's owner,
// who could not read, lock or write them otherwise: a single journal owned by root
// would lock users out of their own store.

// keeper is the user that new files are given to; nil: they stay with the process's
// user.
type keeper struct{ uid, gid int }

// openKept opens a file through open, which takes flags of package os. Only if that
// creates the file is it given away: a link or another file put in its place must not
// be. A file that can't be given away stays root's.
func (k *keeper) openKept(flag int, open func(flag int) (*os.File, error)) (*os.File, error) {
	if k == nil || flag&os.O_CREATE == 0 {
		return open(flag)
	}
	for {
		f, err := open(flag | os.O_EXCL)
		if err == nil {
			_ = f.Chown(k.uid, k.gid)
			return f, nil
		}
		if !errors.Is(err, fs.ErrExist) || flag&os.O_EXCL != 0 {
			return nil, err
		}
		f, err = open(flag &^ os.O_CREATE)
		if !errors.Is(err, fs.ErrNotExist) { // otherwise it has just been removed
			return f, err
		}
	}
}

// OpenKept is [os.OpenFile], but a file that root makes in another user's directory
// is given to that user.
func OpenKept(path string, flag int, perm fs.FileMode) (*os.File, error) {
	var k *keeper
	if dir, err := os.Open(filepath.Dir(path)); err == nil {
		k = keeperOf(dir)
		_ = dir.Close()
	}
	return k.openKept(flag, func(flag int) (*os.File, error) { return os.OpenFile(path, flag, perm) })
}

// Owner says, for people, who owns a file and who this process runs as.
type Owner struct {
	User     string // the user's name, or number if the name is not known
	UID      int
	Mode     fs.FileMode
	SelfUser string // of this process
	SelfUID  int
}

func (o Owner) String() string { return describeUser(o.User, o.UID) }

// Self is the user this process runs as.
func (o Owner) Self() string { return describeUser(o.SelfUser, o.SelfUID) }

func describeUser(name string, uid int) string {
	if number := strconv.Itoa(uid); name == number {
		return "user " + number
	}
	return fmt.Sprintf("%s (uid %d)", name, uid)
}
