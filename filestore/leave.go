package filestore

import (
	"errors"

	"hansard/filestore/internal/journal"
	"hansard/filestore/internal/peers"
	"hansard/internal/vfs"
)

// How a process leaves the store. The last one empties the ring, so that the next open
// has nothing to read; but nothing depends on it: a process that is killed instead leaves
// its work to recovery.

// leave ends this process's participation: if it is the last one, it leaves the store
// with an empty ring. Close calls it after all workers have ended. All files are closed
// in any case; an error means that the next first open has something to recover, not that
// anything is lost.
func (s *Store) leave() error {
	defer s.release()
	s.turns.silence()
	if !s.lock.isAttached() {
		return nil
	}
	// Checked without a lock: if another process opens the store right now, this work is
	// wasted, and leaveClean notices.
	var err error
	if !s.leases.OthersLive() {
		s.checkpoints.mendAll()
		err = s.checkpoints.checkpoint(true)
		if err == nil {
			// A failure does not matter: the next process can shrink it as well.
			_ = s.checkpoints.shrink()
		}
	}
	l, lockErr := s.lock.lock()
	if lockErr != nil {
		return errors.Join(err, lockErr)
	}
	defer l.unlock()
	if err == nil {
		err = l.leaveClean()
	}
	// With a suspect log the file has to stay: only its mark tells the next process that
	// a sync of that log can't be trusted (rule OwnMarkCounts).
	if !s.checkpoints.suspects.any() {
		_ = l.fs.Remove(l.inst.Name) // a leftover counts as a dead process
	}
	return err
}

// leaveClean notes in the journal that the ring is empty, if this process is the last, so
// that the next first open does not have to scan it (S3). Under write.lock: nobody can
// join in the meantime, and the next process to join revokes the note, with a slot of its
// own, before it writes. Nil does not mean that the note was written.
func (l *locked) leaveClean() error {
	// A failed ring, or entries that wait for space: the next open has to scan. Lines
	// that were set aside are not in the ring any more.
	if l.w.Flags&^peers.FlagAside != 0 || l.w.Start != l.w.Written {
		return nil
	}
	// Released before it is requested exclusively: flock does the same, not atomically,
	// and a failed upgrade would lose it as well.
	_ = l.lock.files.open.Unlock()
	if alone, err := l.lock.files.open.TryLock(vfs.LockExclusive); err != nil || !alone {
		return err
	}
	// Before write.lock is released: the next opener must find itself alone.
	defer func() { _ = l.lock.files.open.Unlock() }()
	slots, _, best, err := journal.ReadSlots(l.ring.File)
	if err != nil || best < 0 {
		return err
	}
	// Into the slot that is not known to be durable, as always (rule SlotChoice).
	keep := journal.DurableSlot(slots, best, l.w.Start, l.w.Epoch)
	sl := slots[keep]
	if sl.Start != l.w.Start {
		return nil
	}
	sl.HSeq, sl.Epoch, sl.Clean = slots[best].HSeq+1, l.w.Epoch, true
	if err := l.ring.WriteSlot(1-keep, &sl); err != nil {
		return err
	}
	// A clean slot that is not durable is harmless: after a power cut the older one
	// counts, and its start is the same.
	return l.ring.File.Datasync()
}

// release closes all files, which also releases all locks. Also called after a failed
// open, when some of them are not open.
func (s *Store) release() {
	s.leases.CloseRoster()
	s.lock.close()
	if s.syncer.syncGate != nil {
		_ = s.syncer.syncGate.Close()
	}
	s.lister.table.mu.Lock()
	s.lister.closeTable()
	s.lister.table.mu.Unlock()
	if s.dir != nil {
		_ = s.dir.Close()
	}
}
