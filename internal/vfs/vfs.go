// Package vfs is the file system as the file engine sees it: the few calls its
// protocol consists of, on the operating system ([OpenDir]) and simulated ([NewDisk]:
// several processes with their own descriptors and locks, crashes, power cuts,
// errors).
//
// Every name is slash-separated and relative to the store's directory; nothing
// outside of it can be reached, and symbolic links are not followed.
package vfs

import (
	"errors"
	"io/fs"
	"time"
)

// FS is one process's view of a store's directory.
type FS interface {
	// Open opens a file for reading and writing; flags say how. Without
	// Create a missing file is fs.ErrNotExist. Files are made 0600.
	Open(name string, flags Flag) (File, error)
	// Mkdir makes a directory, 0700; an existing one is not an error.
	Mkdir(name string) error
	// Rename replaces newname by oldname.
	Rename(oldname, newname string) error
	// Link gives a file a second name, which must be free. Not every file system can;
	// on any error, the file can be copied instead.
	Link(oldname, newname string) error
	// Remove removes a file.
	Remove(name string) error
	// ReadDir returns the entries of a directory, in no particular order.
	ReadDir(name string) ([]Entry, error)
	// Stat describes the file at a name.
	Stat(name string) (Stat, error)
	// Inode identifies the file at a name and its length, and nothing else: it is
	// cheap and does not affect the file's timestamps.
	Inode(name string) (inode uint64, size int64, err error)
	// SyncDir makes the entries of a directory durable.
	SyncDir(name string) error
	// Free is how many bytes can still be written.
	Free() (uint64, error)
}

// Replace puts a file in the place of another, like Rename, for content that need not be
// durable. A process that dies in the middle may leave the one that was replaced under the
// first name.
//
// It is for ext4: a rename that replaces a file writes the new content to the disk at once, in
// case the caller forgot to sync it, and takes the time that needs.
func Replace(fsys FS, oldname, newname string) error {
	if e, ok := fsys.(interface {
		exchange(oldname, newname string) (bool, error)
	}); ok {
		if done, err := e.exchange(oldname, newname); done || err != nil {
			return err
		}
	}
	return fsys.Rename(oldname, newname)
}

// Flag says how to open a file.
type Flag int

const (
	// ReadOnly opens for reading only.
	ReadOnly Flag = 1 << iota
	// Create makes the file if it is missing.
	Create
	// Exclusive makes Create return fs.ErrExist if the file exists.
	Exclusive
)

// File is an open file. Reads and writes name their offset; there is no append
// mode, in which Linux would ignore it.
type File interface {
	ReadAt(p []byte, off int64) (int, error)
	// WriteAt writes all of p or returns an error; after an error any part
	// of it may be in the file, whatever n says.
	WriteAt(p []byte, off int64) (int, error)
	// CloneFrom makes the file, which is empty, begin with up to n bytes of another
	// one, in whole blocks that both share until one of them writes there. It returns
	// how many: 0 if the file system can't do that.
	CloneFrom(src File, n int64) (int64, error)
	Truncate(size int64) error
	// Size is the file's length. Unlike a stat it has no effect on later syncs.
	Size() (int64, error)
	// Inode identifies the open file.
	Inode() (uint64, error)
	// Datasync makes the content durable, and the length if it changed. An error is
	// reported once and is final: what was not synced may be gone, and a second call
	// that succeeds proves nothing.
	Datasync() error
	// Lock waits for the kernel's lock on this file, shared or exclusive. It
	// belongs to this open file and ends with it or with the process.
	Lock(mode LockMode) error
	// TryLock takes the lock if it is free.
	TryLock(mode LockMode) (bool, error)
	Unlock() error
	Close() error
}

// LockMode is shared or exclusive.
type LockMode int

// The modes of a lock.
const (
	LockShared LockMode = iota
	LockExclusive
)

// Entry is one name in a directory.
type Entry struct {
	Name string
	Dir  bool
	// Regular is false for directories, links, sockets and the like.
	Regular bool
}

// Stat describes a file.
type Stat struct {
	Inode   uint64
	Size    int64
	ModTime time.Time
	Mode    fs.FileMode
}

// ErrNotRegular is why a link, a directory or a device is not opened.
var ErrNotRegular = errors.New("not a regular file")

// ErrCrashed is what every call of a simulated process returns after its death.
var ErrCrashed = errors.New("vfs: this process is dead")
