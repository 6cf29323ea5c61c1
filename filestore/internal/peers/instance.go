package peers

import (
	"encoding/binary"
	"errors"
	"hash/fnv"
	"io"
	"io/fs"
	"sync"

	"hansard/internal/vfs"
)

// One file per process that has the store open, instances/<32 hex digits>, locked
// exclusively by its process:
//
//	  0  8 marks u64: the logs that the process is syncing
//	 64  "joined", u64: the process takes part, so recovery is done
//	 72  table of leases and waiters, 40 bytes each: see lease.go
//
// The lock says whether the process is alive, and ends with it; no PID, age or heartbeat is
// used (failures 3 to 7). The content says what the process was doing, and stays until
// another one has dealt with it.
//
// Files are made and removed only under write.lock. A process that looks for others
// without that lock may find a file between its creation and its lock, and take its
// process for dead; so it looks again under write.lock before it acts on that.

const (
	InstancesDir = "instances"
	// MarkSlots is how many logs a checkpoint syncs at once: one mark per goroutine.
	MarkSlots  = 8
	joinedAt   = 8 * MarkSlots
	joinedWord = 0x64656e696f6a // "joined"
)

// Instance is this process's own file. Its name does not change while the store is open,
// because the logs of the turns it keeps alive refer to it by name.
type Instance struct {
	Name string // relative to the store's directory

	mu    sync.Mutex // guards all below: Renew replaces the file
	f     vfs.File
	inode uint64
}

// writeAt writes to the file that others currently find. After an error any part of b may
// be in it; the caller writes marks again, and mend writes table records again.
func (i *Instance) writeAt(b []byte, off int64) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	_, err := i.f.WriteAt(b, off)
	return err
}

// register makes and locks the file, with this content, under write.lock. On an error i is
// unchanged; a file left over is not locked, so it counts as that of a dead process. The
// caller holds i.mu, or nobody else has i yet.
func (i *Instance) register(fsys vfs.FS, content []byte) error {
	f, err := fsys.Open(i.Name, vfs.Create|vfs.Exclusive)
	if err != nil {
		return err
	}
	// Blocking: a process that checks whether we are alive holds a shared lock for a
	// moment, and must not make this fail.
	if err := f.Lock(vfs.LockExclusive); err != nil {
		_ = f.Close()
		return err
	}
	// Locked before it has any content: nobody reads leases in it and finds it unlocked.
	// (Failure 3: a lock made first and filled later.)
	_, err = f.WriteAt(content, 0)
	var inode uint64
	if err == nil {
		inode, err = f.Inode()
	}
	if err != nil {
		_ = f.Close()
		_ = fsys.Remove(i.Name)
		return err
	}
	i.f, i.inode = f, inode
	return nil
}

// registered tells whether the file that this process has locked is still the one at its
// path. An error is not an answer.
func (i *Instance) registered(fsys vfs.FS) (bool, error) {
	inode, _, err := fsys.Inode(i.Name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	return err == nil && inode == i.inode, nil
}

// Renew makes the file again, under write.lock, if it was removed or replaced from outside
// (a clean-up script, a restored backup): others would find no file, and take this process
// for dead, and its turns and marks with it (TestTurnInstanceRemoved). The name and the
// content stay the same. On an error the old file stays in use.
func (i *Instance) Renew(fsys vfs.FS) error {
	if ok, err := i.registered(fsys); ok || err != nil {
		return err
	}
	if err := fsys.Mkdir(InstancesDir); err != nil { // the directory may be gone too
		return err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	// From here on no record can be written, so the copy is complete.
	old := i.f
	size, err := old.Size()
	if err != nil {
		return err
	}
	content := make([]byte, size)
	if _, err := old.ReadAt(content, 0); err != nil && err != io.EOF {
		return err
	}
	if err := fsys.Remove(i.Name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := i.register(fsys, content); err != nil {
		return err
	}
	_ = old.Close() // nobody can find it any more; this also releases its lock
	return nil
}

// File is the current file; Renew may replace it later.
func (i *Instance) File() vfs.File {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.f
}

// Base is the name of this instance in the turn records of logs.
func (i *Instance) Base() string { return i.Name[len(InstancesDir)+1:] }

// MarkOf identifies a log in a mark: a hash, so that a mark is one 8-byte write. If two
// names collide, a log is copied unnecessarily. Never 0, which means no mark.
func MarkOf(name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	return h.Sum64() | 1
}

// Mark records, for others to find if we die, that we are about to sync a log: the kernel
// would report a failed sync only to us, and another process's sync would report success
// for pages that are gone (CheckpointMark). mark 0 clears the slot, once the log is durable
// or was copied. A mark that could not be cleared costs another process a copy, nothing
// else.
func (i *Instance) Mark(slot int, mark uint64) error {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], mark)
	return i.writeAt(b[:], int64(8*slot))
}

// Join records that this process takes part, so that the logs are complete: readers that
// don't take part (a read-only mount, a less privileged user) rely on it. It is written
// only after recovery: any earlier, a reader would take incomplete logs for complete (J7,
// failure 56).
func (i *Instance) Join() error {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], joinedWord)
	return i.writeAt(b[:], joinedAt)
}

// HasJoined tells whether the process of an instance file has called Join. It counts only
// while that process is alive (IsDead): a later crash may have left new entries in the
// ring.
func HasJoined(f vfs.File) bool {
	var b [8]byte
	_, err := f.ReadAt(b[:], joinedAt)
	return err == nil && binary.LittleEndian.Uint64(b[:]) == joinedWord
}

// eachOther calls fn with the open file of every instance but own, which may be nil, and
// closes it, which also ends a lock that fn took. It stops at the first error, fn's or
// its own: a file that can't be opened may be that of a live process. One that vanishes
// between the listing and the open is skipped: its process left.
func eachOther(fsys vfs.FS, own *Instance, flags vfs.Flag, fn func(name string, f vfs.File) error) error {
	entries, err := fsys.ReadDir(InstancesDir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := InstancesDir + "/" + e.Name
		if !e.Regular || own != nil && name == own.Name {
			continue
		}
		f, err := fsys.Open(name, flags)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it left
		}
		if err != nil {
			return err
		}
		err = fn(name, f)
		_ = f.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// dead is IsDead for callers that may treat an error as "alive": it only makes them slower,
// or keeps a file they could have removed.
func dead(f vfs.File) bool {
	gone, err := IsDead(f)
	return err == nil && gone
}

// IsDead tells whether the process of an instance file is gone: then its lock is free. It
// tries a shared lock, so that two processes that ask at once do not take each other for
// the live owner. f keeps that lock until it is closed or unlocked. An error is not an
// answer: EMFILE must not cost a holder its turn (failure 14).
func IsDead(f vfs.File) (bool, error) { return f.TryLock(vfs.LockShared) }

// OthersLive tells whether another process has the store open. It is a hint: an error hides
// those not checked yet, and others may come at any time. A process that has to be alone
// takes open.lock exclusively.
func (l *Leases) OthersLive() (live bool) {
	_ = eachOther(l.fs, l.Instance(), 0, func(_ string, f vfs.File) error {
		live = live || !dead(f)
		return nil
	})
	return live
}

// Mark is a mark in one process's instance file.
type Mark struct {
	Instance string // the name of the file
	Log      uint64 // see MarkOf
}

// Marks are the logs that other processes are syncing or died while syncing, and which of
// these marks belong to dead processes: those do not change until the file is removed,
// while a live process may clear its mark and set it again. With onlyDead, live processes
// are left out.
func Marks(fsys vfs.FS, own *Instance, onlyDead bool) (logs map[uint64]bool, ofDead map[Mark]bool, err error) {
	logs, ofDead = map[uint64]bool{}, map[Mark]bool{}
	err = eachOther(fsys, own, 0, func(name string, f vfs.File) error {
		gone := dead(f) // before its marks are read: then they no longer change
		if onlyDead && !gone {
			return nil
		}
		for _, m := range marksIn(f) {
			logs[m] = true
			if gone {
				ofDead[Mark{name, m}] = true
			}
		}
		return nil
	})
	return logs, ofDead, err
}

// marksIn are the marks in an instance file.
func marksIn(f vfs.File) (marks []uint64) {
	var b [8 * MarkSlots]byte
	_, _ = f.ReadAt(b[:], 0) // a short file has fewer marks
	for i := range MarkSlots {
		if m := binary.LittleEndian.Uint64(b[8*i:]); m != 0 {
			marks = append(marks, m)
		}
	}
	return marks
}

// RemoveDead removes the files of dead instances, under write.lock, if everything they
// marked is in done. The file of a process with other marks must stay: it is the only trace
// of a failed sync that was reported to nobody else. done has the marks of processes that
// were dead when the marked logs were made durable: the same mark of a process that died
// since may be for a later sync. (Failure 68; planted bug "marks of the living taken for
// done".)
//
// A file that is just being registered can't be seen here, because that also happens under
// write.lock (failure 18: a sweep that deletes live locks).
func RemoveDead(fsys vfs.FS, own *Instance, done map[Mark]bool) error {
	defer removeBells(fsys)
	return eachOther(fsys, own, 0, func(name string, f vfs.File) error {
		if !dead(f) {
			return nil
		}
		for _, m := range marksIn(f) {
			if !done[Mark{name, m}] {
				return nil
			}
		}
		if err := fsys.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
}
