// Package cache is what a store keeps in cache/, and the memory beside it: a catalog of
// the sessions, notes of damage, and a map that forgets what was not used for longest. The
// index of names is beside it, in package runs.
//
// Everything here is derived. It may be deleted at any time, and costs time then, nothing
// else. It may also have been written by somebody else, with any content: a file is
// believed only if it is whole, by a checksum, and fits what it is about; and reading one
// never takes more memory than the logs account for, so that a crafted file can't use up
// a reader's (TestCraftedCaches).
package cache

import (
	"errors"
	"fmt"
	"path"

	"hansard/internal/vfs"
)

// What is in cache/, by directory. damage has a file per session that somebody found
// damaged.
const (
	Dir       = "cache"
	KeysDir   = Dir + "/keys"
	DamageDir = Dir + "/damage"
)

// Write puts a file in place whole, as fill writes it. Durable: with its content synced
// before it has its name; a file of the right name and without its content would be
// believed to be a short one, unless it is checked as it is used. The directory is not synced: a power cut may take the file, which costs time and
// nothing else. number makes the temporary name this process's own.
func Write(fsys vfs.FS, number uint64, name string, durable bool, fill func(vfs.File) error) error {
	if err := errors.Join(fsys.Mkdir(Dir), fsys.Mkdir(path.Dir(name))); err != nil {
		return err
	}
	tmp := fmt.Sprintf("cache.%016x.tmp", number)
	f, err := fsys.Open(tmp, vfs.Create|vfs.Exclusive)
	if err != nil {
		return err
	}
	err = fill(f)
	if err == nil && durable {
		err = f.Datasync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = fsys.Rename(tmp, name)
	}
	if err != nil {
		_ = fsys.Remove(tmp)
	}
	return err
}

// Noted tells whether damage of a session was noted, by any process.
func Noted(fsys vfs.FS, name string) bool {
	_, _, err := fsys.Inode(DamageDir + "/" + name)
	return err == nil
}

// ForgetNote removes the note of a session that was repaired. A leftover only makes
// others check the log again.
func ForgetNote(fsys vfs.FS, name string) { _ = fsys.Remove(DamageDir + "/" + name) }
