package filestore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"sync"

	"hansard/internal/vfs"
)

const (
	instancesDir = "instances"
	markSlots    = 8 // logs a checkpoint syncs at once
)

// instance is this process among those that have the store open: a file of its
// own, locked by the kernel while it lives. Whoever can lock it knows that the
// process is dead; its content then tells which logs it was syncing. Behind that
// is the table of the turns it keeps alive: see lease.go.
type instance struct {
	name string

	mu    sync.Mutex // guards all below: the file is made anew if somebody removes it
	f     vfs.File
	inode uint64
}

func (i *instance) writeAt(b []byte, off int64) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	_, err := i.f.WriteAt(b, off)
	return err
}

// newInstance makes and locks this process's file, under write.lock.
func (s *Store) newInstance() (*instance, error) {
	inst := &instance{name: fmt.Sprintf("%s/%016x%016x", instancesDir, s.cfg.random(), s.cfg.random())}
	if err := inst.register(s.fs, make([]byte, tableAt+tableStart*recordWidth)); err != nil {
		return nil, fmt.Errorf("register: %w", err)
	}
	s.leases.mu.Lock()
	s.leases.inst = inst
	s.leases.mu.Unlock()
	return inst, nil
}

// register makes and locks the file, with this content.
func (i *instance) register(fsys vfs.FS, content []byte) error {
	f, err := fsys.Open(i.name, vfs.Create|vfs.Exclusive)
	if err != nil {
		return err
	}
	// Blocking: somebody may be looking whether we live.
	if err := f.Lock(vfs.LockExclusive); err != nil {
		_ = f.Close()
		return err
	}
	_, err = f.WriteAt(content, 0)
	var inode uint64
	if err == nil {
		inode, err = f.Inode()
	}
	if err != nil {
		_ = f.Close()
		_ = fsys.Remove(i.name)
		return err
	}
	i.f, i.inode = f, inode
	return nil
}

// registered tells whether the file is where others look for it.
func (i *instance) registered(fsys vfs.FS) (bool, error) {
	inode, _, err := fsys.Inode(i.name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	return err == nil && inode == i.inode, nil
}

// renew makes the file anew, under write.lock, if somebody removed or replaced it:
// the others would take this process for dead.
func (i *instance) renew(fsys vfs.FS) error {
	if ok, err := i.registered(fsys); ok || err != nil {
		return err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	old := i.f
	size, err := old.Size()
	if err != nil {
		return err
	}
	content := make([]byte, size)
	if _, err := old.ReadAt(content, 0); err != nil && err != io.EOF {
		return err
	}
	if err := fsys.Remove(i.name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := i.register(fsys, content); err != nil {
		return err
	}
	_ = old.Close() // nobody can find it any more
	return nil
}

// base is the name by which a turn's record calls an instance.
func (i *instance) base() string { return i.name[len(instancesDir)+1:] }

// markOf identifies a log in a mark.
func markOf(name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	return h.Sum64() | 1 // never 0, which is no mark
}

// mark says, for others to find if we die, that we are about to sync a log: an
// error of that sync is reported to us alone.
func (i *instance) mark(slot int, mark uint64) error {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], mark)
	return i.writeAt(b[:], int64(8*slot))
}

// eachOther calls fn with every other instance's open file.
func (s *Store) eachOther(fn func(name string, f vfs.File) error) error {
	entries, err := s.fs.ReadDir(instancesDir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := instancesDir + "/" + e.Name
		if !e.Regular || s.inst != nil && name == s.inst.name {
			continue
		}
		f, err := s.fs.Open(name, 0)
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

// dead tells whether an instance's process is. Shared, so that two who look at
// once do not take each other for the living.
func dead(f vfs.File) bool {
	gone, err := isDead(f)
	return err == nil && gone
}

// isDead is dead for who must not take an error for an answer.
func isDead(f vfs.File) (bool, error) { return f.TryLock(vfs.LockShared) }

// othersLive tells whether another process has the store open.
func (s *Store) othersLive() (live bool) {
	_ = s.eachOther(func(_ string, f vfs.File) error {
		live = live || !dead(f)
		return nil
	})
	return live
}

// marks are the logs that other processes are syncing or died in syncing.
func (s *Store) marks(onlyDead bool) (map[uint64]bool, error) {
	marks := map[uint64]bool{}
	err := s.eachOther(func(_ string, f vfs.File) error {
		if onlyDead && !dead(f) {
			return nil
		}
		for _, m := range marksIn(f) {
			marks[m] = true
		}
		return nil
	})
	return marks, err
}

func marksIn(f vfs.File) (marks []uint64) {
	var b [8 * markSlots]byte
	_, _ = f.ReadAt(b[:], 0) // a short file has fewer marks
	for i := range markSlots {
		if m := binary.LittleEndian.Uint64(b[8*i:]); m != 0 {
			marks = append(marks, m)
		}
	}
	return marks
}

func (s *Store) deadMarks() (map[uint64]bool, error) { return s.marks(true) }

// removeDead removes the files of dead instances, under write.lock: those that
// marked nothing but what was taken care of. Nil: everything was.
func (s *Store) removeDead(done map[uint64]bool) error {
	return s.eachOther(func(name string, f vfs.File) error {
		if !dead(f) {
			return nil
		}
		for _, m := range marksIn(f) {
			if done != nil && !done[m] {
				return nil
			}
		}
		if err := s.fs.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
}

// leave is the end of this process's part: if it is the last one it leaves the
// store with an empty ring.
func (s *Store) leave() error {
	defer s.release()
	s.wmu.Lock()
	attached := s.attached
	s.wmu.Unlock()
	if !attached {
		return nil
	}
	var err error
	if !s.othersLive() {
		err = s.checkpoint(true)
	}
	s.wmu.Lock()
	defer s.wmu.Unlock()
	if lockErr := s.lockW(); lockErr != nil {
		return errors.Join(err, lockErr)
	}
	if err == nil {
		err = s.leaveClean()
	}
	if !s.suspicious() {
		_ = s.fs.Remove(s.inst.name) // a leftover is taken for a dead process
	}
	s.unlockW()
	return err
}

// leaveClean notes in the journal that nothing is in it, if this process is the
// last, so that the next first open does not have to look. Under write.lock:
// nobody can join, and whoever does next takes the note back before he writes.
func (s *Store) leaveClean() error {
	if s.w.flags&^wFlagAside != 0 || s.w.start != s.w.written {
		return nil
	}
	_ = s.files.open.Unlock() // a failed upgrade would lose it as well
	if alone, err := s.files.open.TryLock(vfs.LockExclusive); err != nil || !alone {
		return err
	}
	defer func() { _ = s.files.open.Unlock() }() // before write.lock is given back
	slots, _, best, err := readSlots(s.ring.f)
	if err != nil || best < 0 {
		return err
	}
	// Over the slot that is not the durable one, as always.
	keep := durableSlot(slots, best, &s.w)
	sl := slots[keep]
	if sl.start != s.w.start {
		return nil
	}
	sl.hseq, sl.epoch, sl.clean = slots[best].hseq+1, s.w.epoch, true
	if err := s.ring.writeSlot(1-keep, &sl); err != nil {
		return err
	}
	return s.ring.f.Datasync()
}

// release closes what is open.
func (s *Store) release() {
	s.wmu.Lock()
	defer s.wmu.Unlock()
	for _, sess := range s.sessions {
		sess.closeLog()
	}
	files := append([]vfs.File{s.files.write, s.files.open}, s.retired...)
	if s.inst != nil {
		files = append(files, s.inst.f)
	}
	if s.ring != nil {
		files = append(files, s.ring.f)
	}
	if s.ctl != nil {
		files = append(files, s.ctl.f)
	}
	if s.syncGate != nil {
		files = append(files, s.syncGate.f)
	}
	for _, f := range files {
		if f != nil {
			_ = f.Close() // nothing is buffered: what was promised is synced
		}
	}
	if s.dir != nil {
		_ = s.dir.Close()
	}
}
