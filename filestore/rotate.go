package filestore

import (
	"cmp"
	"fmt"

	"hansard/filestore/internal/journal"
	"hansard/filestore/internal/peers"
	"hansard/internal/vfs"
)

// Replacing the journal file. There are four reasons for it:
//
//   - A sync of the ring failed, or pages of it are gone. The kernel may have dropped the
//     pages and marked them clean, so a second fdatasync would return OK for data that is
//     lost (failure 38; rule SyncErrorFinal). The file is never synced again; its valid
//     entries go to a new file.
//   - A batch does not fit into the ring, or the large ring made for one is not needed
//     any more.
//   - The store turns out to be busy, and its ring is still that of a new store.
//   - Its free part is to be scrubbed (prune.go).
//
// The order, as for every file that is replaced: write under a temporary name, fsync,
// rename, fsync the directory. Before the rename the old journal is the journal; after it
// the new one is, with a higher epoch, which tells every other process at its next lock
// that its positions and caches are void (lock.go: refresh).

// rotate replaces the journal by a new file of this size with the same valid entries,
// under write.lock. On success l.ring, l.w and l.lim describe the new ring and the caches
// are dropped: the caller has to run catchup before it plans anything, or it misses the
// entries of the ring and assigns their seqs again (TestRotateCatchesUp).
//
// If it fails after a failed sync, FlagFailed is set, which unlock publishes: writes are
// refused, reads continue, and the next writer tries to rotate again (roomFor). If only
// the size was to change, the old ring is still good and stays in use
// (TestGrowingFailsAlone), unless the rename may have happened.
func (l *locked) rotate(size uint64) error {
	resized := size != l.ring.Size
	if usual := l.ring.Size < size && size <= l.cfg.ringSize; !usual {
		l.measures.rotations.Add(1)
	}
	replaced, err := l.replaceJournalFile(size, l.makeJournal)
	if err != nil && (replaced || !resized) {
		l.w.Flags |= peers.FlagFailed
	}
	return err
}

// renewRing is rotate for a sound ring: the new file does not have the bytes in the free
// part of the old one (prune.go). If it fails before the rename, the old ring stays in
// use. As after rotate, the caller has to run catchup.
func (l *locked) renewRing() error {
	l.measures.rotations.Add(1)
	replaced, err := l.replaceJournalFile(l.ring.Size, l.makeJournal)
	if err != nil && replaced {
		l.w.Flags |= peers.FlagFailed
	}
	return err
}

// replaceJournalFile does the work of rotate. build makes a file with the slot and the
// content that it is given, synced, under a temporary name. replaced: the old file is no
// longer the journal, or may not be (a rename whose directory sync failed can go either
// way).
func (l *locked) replaceJournalFile(size uint64, build func(*journal.Slot, []byte) (tmp string, err error)) (replaced bool, err error) {
	slots, _, best, err := journal.ReadSlots(l.ring.File)
	if err != nil {
		return false, err
	}
	if best < 0 {
		return false, &journal.DamagedError{Reason: "neither of its two slots is valid"}
	}
	// From the durable start, not from the newest slot: a checkpoint may have written a
	// slot that never reached the disk, and its logs may not be durable either.
	sl := slots[journal.DurableSlot(slots, best, l.w.Start, l.w.Epoch)]
	entries, end, chain, err := l.ring.Scan(sl.Start, sl.StartChain, 0)
	if err != nil {
		return false, err
	}
	// Entries that the failed sync lost are missing from this scan. Answers that rest on
	// them become ErrUnknown (confirm; failure 57).
	fresh := sl.Next()
	fresh.Size, fresh.HSeq, fresh.Epoch = size, slots[best].HSeq+1, max(l.w.Epoch, sl.Epoch)+1
	applied := max(l.w.Applied, sl.Start)
	var bytes []byte
	// The same size keeps positions, chains and salt, so the bytes are copied as they
	// are. Another size gives every position another place in the file: the entries are
	// encoded again, past all old positions, so that no position has two meanings.
	if size == l.ring.Size {
		bytes, err = l.ring.Bytes(sl.Start, end)
	} else {
		bytes, chain, applied, err = journal.LayOut(entries, &fresh, end, applied)
	}
	if err != nil {
		return false, err
	}
	tmp, err := build(&fresh, bytes)
	if err != nil {
		return false, err
	}
	if err := l.putJournal(tmp); err != nil {
		return true, err
	}
	// build has synced the file, so all of it is durable: Base and lim are its end.
	end = fresh.Start + uint64(len(bytes))
	l.w = peers.Progress{Epoch: fresh.Epoch, Written: end, TailChain: chain, Applied: min(applied, end), Start: fresh.Start, Base: end,
		Flags: l.w.Flags & peers.FlagReplaced}
	r, _, _, err := l.openRing(0)
	if err != nil {
		return true, err
	}
	l.useRing(r)
	l.dropCaches()
	l.lim = l.w.Base
	// If we die before this, the control file still has the record of the old epoch,
	// which nobody with the new ring trusts (ControlCRC): they reload.
	return true, l.ctl.WriteProgress(&l.w)
}

// growsTo is the size that a ring is to have next if it is smaller than that of a busy store,
// and the disk has plenty of room for a larger one; 0: it stays as it is. It grows in two
// steps from the first size to the usual one: a larger file takes longer to write than the
// small ring lasts. checkDisk has looked at the disk.
func growsTo(l *locked) uint64 {
	if l.ring.Size >= l.cfg.ringSize || l.free < 4*l.cfg.ringSize || l.growFails.Load() {
		return 0
	}
	return min(4*l.ring.Size, l.cfg.ringSize)
}

// grow replaces the small ring of a new store by a larger one. The zeros are written
// before write.lock is taken: writers would wait for them. It is done by whoever has
// check.lock, as a checkpoint is: with eight busy processes one large file is enough. If
// anything fails, the small ring stays in use and is as good as before.
func (ck *checkpoints) grow() error {
	ck.ckMu.Lock()
	defer ck.ckMu.Unlock()
	lock, _, err := ck.openLockFile(peers.CheckLock)
	if err != nil {
		return err
	}
	defer lock.Close() // and so unlocks it
	if got, err := lock.TryLock(vfs.LockExclusive); err != nil || !got {
		return err
	}
	l, err := ck.lock.lockCaughtUp()
	if err != nil {
		return err
	}
	size := uint64(0)
	if l.checkDisk(0) == nil {
		size = growsTo(l)
	}
	l.unlock()
	if size == 0 {
		return nil
	}
	tmp := tmpJournal(ck.process)
	if err := journal.Prepare(ck.fs, tmp, size, func() error { return stillOpen(ck.process) }); err != nil {
		return err
	}
	if l, err = ck.lock.lockCaughtUp(); err != nil {
		_ = ck.fs.Remove(tmp)
		return err
	}
	defer l.unlock()
	if l.ring.Size >= size || l.w.Flags&peers.FlagFailed != 0 {
		return ck.fs.Remove(tmp) // a writer was faster (roomFor)
	}
	replaced, err := l.replaceJournalFile(size, func(sl *journal.Slot, content []byte) (string, error) {
		return tmp, journal.Fill(l.fs, tmp, sl, content)
	})
	if err != nil && replaced {
		l.w.Flags |= peers.FlagFailed
	} else if err != nil {
		_ = l.fs.Remove(tmp) // it may be gone already
	}
	return err
}

// shrink gives back the space of a ring that was made larger for one batch, once that
// batch is durable in its log. It takes write.lock itself. It may be called at any time:
// while the ring is in use, or after a failed sync, it does nothing.
func (ck *checkpoints) shrink() error {
	if !ck.lock.isAttached() {
		return nil
	}
	l, err := ck.lock.lockCaughtUp()
	if err != nil {
		return err
	}
	defer l.unlock()
	// A quarter, because LayOut takes no entry larger than a quarter of the new ring.
	if l.ring.Size <= l.cfg.ringSize || l.w.Flags&peers.FlagFailed != 0 || l.w.Written-l.w.Start > l.cfg.ringSize/4 {
		return nil
	}
	return l.rotate(l.cfg.ringSize)
}

// installRing creates a journal with this slot and content and renames it into place.
// When it returns nil the file and its name are durable. The caller holds write.lock.
func (p *process) installRing(sl *journal.Slot, content []byte) error {
	tmp, err := p.makeJournal(sl, content)
	if err != nil {
		return err
	}
	return p.putJournal(tmp)
}

// makeJournal writes and syncs a journal under a temporary name. The name is random: with
// a fixed one two processes would break each other's rename (failures F4 and 29). On an
// error the file is removed; a leftover of a kill is swept by the next first open.
func (p *process) makeJournal(sl *journal.Slot, content []byte) (tmp string, err error) {
	tmp = tmpJournal(p)
	return tmp, journal.Make(p.fs, tmp, sl, content)
}

func tmpJournal(p *process) string { return fmt.Sprintf("journal.%016x.tmp", p.cfg.random()) }

// putJournal renames a synced file to journal and makes the name durable. After an error
// the rename may or may not have happened, and a power cut may undo it.
func (p *process) putJournal(tmp string) error {
	if err := p.fs.Rename(tmp, journal.Name); err != nil {
		return fmt.Errorf("install journal: %w", err)
	}
	if err := p.fs.SyncDir("."); err != nil {
		return fmt.Errorf("sync store directory: %w", err)
	}
	return nil
}

// newJournal creates the journal of a new store. sessions/ has to be durable first: a
// journal without sessions/ means that all logs are missing (errSessionsGone), and a
// power cut must not make a new store look like that.
func (p *process) newJournal() error {
	if err := p.fs.SyncDir("."); err != nil {
		return fmt.Errorf("sync store directory: %w", err)
	}
	return p.installRing(&journal.Slot{StoreID: p.cfg.random(), Salt: p.cfg.random(), Size: min(cmp.Or(p.cfg.firstRing, p.cfg.ringSize), p.cfg.ringSize), HSeq: 1, Epoch: 1}, nil)
}
