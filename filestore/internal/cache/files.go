// Package cache is what a store keeps in cache/ and in memory: a catalog of the sessions,
// notes of damage, and a least-recently-used map. The index of names has its own package,
// runs.
//
// Everything here is derived. It may be deleted at any time, which costs time and nothing
// else. It may also have been written from outside, with any content: a file is trusted
// only if its checksum is right and it matches what it describes; and reading one never
// takes more memory than the logs account for, so that a crafted file can't exhaust a
// reader's memory (TestCraftedCaches).
package cache

import (
	"errors"
	"fmt"
	"path"

	"hansard/internal/vfs"
)

// The directories in cache/. damage has a file per session that was found damaged.
const (
	Dir       = "cache"
	KeysDir   = Dir + "/keys"
	DamageDir = Dir + "/damage"
)

// Write replaces a file as a whole, with what fill writes. durable syncs the content before the
// rename: otherwise a power cut may leave the name without the content, which looks like a valid
// short file unless it is checked in use. The directory is not synced: a power cut may lose the
// file, which costs time and nothing else. number makes the temporary name unique to this process.
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
		if durable {
			err = fsys.Rename(tmp, name)
		} else {
			err = vfs.Replace(fsys, tmp, name)
		}
	}
	if err != nil {
		_ = fsys.Remove(tmp)
	}
	return err
}

// Noted tells whether any process has noted damage of a session.
func Noted(fsys vfs.FS, name string) bool {
	_, _, err := fsys.Inode(DamageDir + "/" + name)
	return err == nil
}

// ForgetNote removes the note of a session that was repaired. A leftover only makes
// others check the log again.
func ForgetNote(fsys vfs.FS, name string) { _ = fsys.Remove(DamageDir + "/" + name) }
