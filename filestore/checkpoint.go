package filestore

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"slices"
	"sort"
	"sync"
	"syscall"
	"time"

	"hansard"
	"hansard/filestore/internal/journal"
	"hansard/filestore/internal/peers"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

// A checkpoint makes the logs durable and moves the start of the ring past what they
// hold, so that its space can be used again (J6). Any process may do it; check.lock keeps
// them from all doing it at once, and is ignored when the ring is full, because its
// holder may be stopped. The steps, and what would go wrong in another order:
//
//	beginCheckpoint   write.lock   upTo = applied, and the logs named since start
//	syncLogs                       marks, fdatasync of each log, copies where that failed
//	SyncDir                        else a new session's file is gone after a cut
//	noteErasing                    deleted and redacted sessions: content goes when this is over
//	writeStart        write.lock   lost lines go aside; the slot that is not the durable one
//	syncRing                       else recovery starts in space that is overwritten
//	publishStart      write.lock   only now is the space free
//
// Between these steps write.lock is given back: syncing a thousand logs takes a quarter
// of a second, and no writer waits for it. If the process dies anywhere in between, start
// has not moved, and the next checkpoint or recovery does it again.

// checkpointEvery bounds how much the first open after a crash has to recover. A ring
// that fills faster is checkpointed earlier, see roomFor.
const checkpointEvery = 30 * time.Second

// checkpoints frees the ring, and puts what was set aside back into the logs (mend.go),
// which needs the same marks and syncs.
type checkpoints struct {
	*process
	lock   *writeLock
	syncer *syncer
	asides *asides
	checks *checks
	eraser *eraser

	// kick wakes the background checkpoint.
	kick chan struct{}
	// ckMu admits one checkpoint at a time in this process: they would use the same
	// marks. Before syncMu and write.lock, see the order in lock.go.
	ckMu sync.Mutex
	// checkpointError is why background checkpoints fail, as it was last logged. Only
	// that goroutine uses it.
	checkpointError string
	// suspects are the logs that must be copied; recovery adds to them, too.
	suspects *suspects

	// mending holds a token while a caller mends, so that at most one goroutine is left
	// waiting for a lock whose holder is stopped.
	mending chan struct{}
	// beforeClose runs a function unless the store is being closed: Close would not wait
	// for a worker that is added later.
	beforeClose func(func()) bool
	atTick      func() // what else the worker begins every 30 s
}

// checkpointInBackground keeps the ring from filling up, until the store is closed. Every
// 30 s it also mends, shrinks the ring and has runs of names written: nobody waits for any
// of it.
func (ck *checkpoints) checkpointInBackground() {
	defer ck.workers.Done()
	tick := time.NewTicker(cmp.Or(ck.cfg.checkpointEvery, checkpointEvery))
	defer tick.Stop()
	for {
		ticked := false
		select {
		case <-ck.closing:
			return
		case <-ck.kick:
			if stillOpen(ck.process) != nil {
				return // select does not say that closing came first
			}
			if ck.lock.ringIsSmall() {
				if err := ck.grow(); err != nil && stillOpen(ck.process) == nil {
					ck.growFails.Store(true)
					ck.opt.Log.Warn("the journal could not be made larger: checkpoints are frequent", "error", err)
				}
			}
			if !ck.halfFull() {
				continue // another process, or the last kick, did it already
			}
		case <-tick.C:
			ticked = true
			ck.mendAll()
			ck.atTick()
		}
		// Going on does not lose the error: start does not move, the ring fills up, and
		// the writer that finds no room gets the error.
		err := ck.freeInPieces()
		if err == nil && ticked {
			err = ck.freeRing(false)
		}
		if err == nil {
			ck.eraser.eraseNoted(ck.closing)
		}
		if err == nil && ticked {
			err = errors.Join(ck.closeRedacted(), ck.shrink())
		}
		ck.tellCheckpoint(err)
	}
}

// tellCheckpoint logs that checkpoints fail, and that they work again: once for each
// reason, not every 30 s (TestCheckpointErrorsAreTold).
func (ck *checkpoints) tellCheckpoint(err error) {
	switch {
	case err != nil && !errors.Is(err, hansard.ErrClosed):
		if err.Error() != ck.checkpointError {
			ck.opt.Log.Warn("checkpoint failed: the journal fills up, and writes will be refused when it is full", "error", err)
			ck.checkpointError = err.Error()
		}
	case err == nil && ck.checkpointError != "":
		ck.opt.Log.Info("checkpoints work again")
		ck.checkpointError = ""
	}
}

// halfFull tells whether the ring is worth a checkpoint: a third of it could be freed. It
// looks at control without a lock; being wrong costs a checkpoint too many or too few.
func (ck *checkpoints) halfFull() bool {
	ctl, size := ck.lock.inUse()
	if ctl == nil {
		return false
	}
	defer ctl.LetGo()
	w, _, ok := ctl.Read()
	return ok && w.Applied-w.Start > size/3
}

// kickCheckpoint wakes the background checkpoint. It never blocks, because the leader
// calls it under write.lock; a kick that is already waiting is enough.
func (ck *checkpoints) kickCheckpoint() {
	select {
	case ck.kick <- struct{}{}:
	default:
	}
}

// checkpoint frees the ring, and then erases the content of the sessions whose tombstones
// it freed, or that another process noted and did not finish erasing (erase.go). The
// caller must not hold write.lock.
func (ck *checkpoints) checkpoint(urgent bool) error {
	err := ck.freeRing(urgent)
	if err == nil {
		ck.eraser.eraseNoted(nil)
	}
	return err
}

// freeRing does a checkpoint. Unless it is urgent, it leaves the work to another process
// that is doing one. Nil does not mean that space is free now: look at the ring again.
// The caller must not hold write.lock.
func (ck *checkpoints) freeRing(urgent bool) error {
	_, err := ck.countedCheckpoint(urgent, math.MaxInt)
	return err
}

// freePiece is freeRing for a writer that needs room soon: it frees only as much of the
// ring as takes few log syncs.
func (ck *checkpoints) freePiece() error {
	_, err := ck.countedCheckpoint(true, ck.pieceLogs())
	return err
}

// freeInPieces frees the ring piece by piece, from its start on, while more than a third
// of it can be freed. Writers that have filled the ring wait for one piece, not for all
// of it.
func (ck *checkpoints) freeInPieces() error {
	for {
		more, err := ck.countedCheckpoint(false, ck.pieceLogs())
		if err != nil || !more || ck.closed.Load() || !ck.halfFull() {
			return err
		}
	}
}

// pieceLogs is about how many logs are made durable by a checkpoint that somebody may be
// waiting for.
func (ck *checkpoints) pieceLogs() int { return cmp.Or(ck.cfg.pieceLogs, 4*checkpointFiles) }

func (ck *checkpoints) countedCheckpoint(urgent bool, logs int) (more bool, err error) {
	// A log that was away for a moment is there: a writer that needs room is not refused
	// for it.
	for try := 0; try == 0 || try < 4 && errors.Is(err, errBack); try++ {
		more, err = ck.tryCheckpoint(urgent, logs)
	}
	if err != nil {
		ck.measures.failedCheckpoints.Add(1)
	}
	return more, err
}

// tryCheckpoint takes the steps listed at the top of this file. On error start has not
// moved, unless all that failed was the removal of a dead process's file; nothing has to
// be undone in any case. more: it succeeded, and there is more to free.
func (ck *checkpoints) tryCheckpoint(urgent bool, logs int) (more bool, err error) {
	ck.ckMu.Lock()
	defer ck.ckMu.Unlock()
	// Opened each time: closing it is the one way to unlock that can't fail.
	lock, _, err := ck.openLockFile(peers.CheckLock)
	if err != nil {
		return false, err
	}
	defer lock.Close() // and so unlocks it
	if got, err := lock.TryLock(vfs.LockExclusive); (err != nil || !got) && !urgent {
		return false, err
	}
	c, err := ck.beginCheckpoint(logs)
	if err != nil || c == nil {
		return false, err
	}
	defer c.ring.LetGo()
	if err := ck.syncLogs(c); err != nil {
		return false, fmt.Errorf("checkpoint: %w", err)
	}
	if err := ck.fs.SyncDir(sessionlog.Dir); err != nil {
		return false, fmt.Errorf("checkpoint: sync sessions: %w", err)
	}
	// Before the ring forgets the tombstones and redactions: a process that dies from
	// here on leaves the notes.
	ck.noteErasing(c.takenAway())
	hseq, err := ck.writeStart(c)
	if err != nil || hseq == 0 {
		return false, err
	}
	// Rule HeaderBeforeStart: the slot must be durable before the space before it is used
	// again. Otherwise, after a wrap and a cut, recovery starts in overwritten space and
	// takes acknowledged entries for the end of the ring.
	if err := ck.syncer.syncRing(c.ring); err != nil {
		return false, fmt.Errorf("checkpoint: %w", err)
	}
	return c.piece, ck.publishStart(c, hseq)
}

// checkpointing is one checkpoint under way, or one mending (which has only names and
// seen). It belongs to the goroutine that holds ckMu.
type checkpointing struct {
	ring  *journal.Ring       // held; if l.ring is another one later, somebody rotated
	upTo  uint64              // entries before this are in the logs: the next start
	chain uint64              // of the entry that ends there
	piece bool                // more than that has been applied, and is left for later
	names []string            // logs to make durable, sorted
	dirty map[string]dirtyLog // the logs the ring names, with how long they should be
	lost  []string            // those of names that may lack lines that were written to them
	seen  map[peers.Mark]bool // marks of dead processes that were taken care of
	// unsynced are those of names that could not be opened.
	unsynced []unsyncedLog
}

// unsyncedLog is a log that was not made durable, because it could not be opened.
type unsyncedLog struct {
	name string
	err  error
}

// takenAway returns the logs that got a tombstone or a redaction, sorted. In some its
// entry may be past the end of this piece: a note that is too early is harmless, but one
// that is too late is never made, because the ring's entry is gone (found by
// TestSimRedact).
func (c *checkpointing) takenAway() (names []string) {
	for _, name := range c.names {
		if len(c.dirty[name].takes) > 0 {
			names = append(names, name)
		}
	}
	return names
}

// beginCheckpoint collects, under write.lock, what has to be made durable, and gives the
// lock back. It returns nil if there is nothing. The caller lets go of the ring.
func (ck *checkpoints) beginCheckpoint(logs int) (*checkpointing, error) {
	l, err := ck.lock.lockCaughtUp()
	if err != nil {
		return nil, err
	}
	defer l.unlock()
	if l.w.Applied == l.w.Start {
		return nil, nil
	}
	// If somebody removed our instance file, others would not find our marks in it.
	if err := l.inst.Renew(l.fs); err != nil {
		return nil, err
	}
	c := &checkpointing{ring: l.ring, upTo: l.w.Applied, chain: l.w.TailChain, seen: map[peers.Mark]bool{}}
	c.dirty = l.logs.dirty.since(l.w.Start)
	c.upTo, c.piece = cutFor(c.dirty, l.w.Start, c.upTo, logs)
	if c.upTo < l.w.Written {
		var err error
		if c.chain, err = l.ring.ChainAt(c.upTo); errors.Is(err, hansard.ErrDamaged) {
			// A sync failed in another process, and the kernel dropped what it did not
			// write before that process could replace the ring. The new ring has the
			// entries that are left; there may be nothing more to do (found by
			// TestSimLostRest).
			return nil, l.rotate(l.ring.Size)
		}
		if err != nil {
			return nil, err
		}
	}
	for name, d := range c.dirty {
		if d.first < c.upTo {
			c.names = append(c.names, name)
		}
	}
	sort.Strings(c.names)
	c.ring.Hold()
	return c, nil
}

// cutFor chooses how far a checkpoint goes: to upTo, or to the position where the ring
// begins to name more than this many logs, if at most half of those are named again
// behind it. Logs that are named again would have to be synced again for every piece. The
// cut is where an entry begins.
//
// Without pieces, writing once to each of 100,000 sessions stalls for seconds whenever
// the ring is full: some ten thousand logs have to be synced before any space is free.
func cutFor(dirty map[string]dirtyLog, start, upTo uint64, logs int) (cut uint64, piece bool) {
	if len(dirty) <= logs {
		return upTo, false
	}
	firsts := make([]uint64, 0, len(dirty))
	for _, d := range dirty {
		firsts = append(firsts, d.first)
	}
	slices.Sort(firsts)
	cut = firsts[logs]
	again := 0
	for _, d := range dirty {
		if d.first < cut && d.end > cut {
			again++
		}
	}
	if cut <= start || cut >= upTo || again > logs/2 {
		return upTo, false
	}
	return cut, true
}

// checkpointFiles is how many logs a checkpoint has open at once: a ring may name
// thousands, and descriptors are limited.
const checkpointFiles = 128

// syncLogs makes the logs durable. On error some may not be, and start must not move. The
// caller holds ckMu and not write.lock.
func (ck *checkpoints) syncLogs(c *checkpointing) error {
	// Suspects first (rule OwnMarkCounts): an earlier sync of ours failed, and so did the
	// copy. A sync would return OK now, and the error was reported only to us; so only a
	// copy may be believed.
	for slot, name := range ck.suspects.all() {
		kept, err := ck.copyUnderLock(name)
		if err != nil {
			return err
		}
		if kept {
			continue // the others do not wait for it
		}
		if err := ck.leases.Instance().Mark(slot, 0); err != nil {
			return err
		}
		ck.suspects.acquit(slot)
	}
	for names := c.names; len(names) > 0; {
		n := min(len(names), checkpointFiles)
		if err := ck.syncSome(c, names[:n]); err != nil {
			return err
		}
		names = names[n:]
	}
	return nil
}

// openedForSync is a log about to be made durable, on a descriptor opened for that.
type openedForSync struct {
	name string
	f    vfs.File
}

// syncSome makes some logs durable. The order matters (rule OpenBeforeMarks): the kernel
// reports a failed write-back to descriptors that were open before it, so open first,
// then read the marks. A process that has a log marked may have got an error that the
// kernel will not report to us: in that case, and when our own sync fails, only a copy is
// safe.
func (ck *checkpoints) syncSome(c *checkpointing, names []string) (err error) {
	var logs []openedForSync
	defer func() {
		for _, l := range logs {
			_ = l.f.Close() // opened for this only
		}
	}()
	for _, name := range names {
		f, err := ck.fs.Open(sessionlog.Path(name), 0)
		if errors.Is(err, fs.ErrPermission) {
			// A log that another user wrote: a descriptor opened for reading can be
			// synced too.
			f, err = ck.fs.Open(sessionlog.Path(name), vfs.ReadOnly)
		}
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.EIO) || err != nil && isForeign(err) {
			// Removed or replaced from outside, or on a bad spot of the disk. Its entries
			// are set aside before their space is used again (writeStart): one log that
			// can't be synced must not fill the ring for all.
			c.unsynced = append(c.unsynced, unsyncedLog{name, err})
			continue
		}
		if err != nil {
			return ck.explain(err)
		}
		logs = append(logs, openedForSync{name, f})
		d := c.dirty[name]
		if there, err := d.isIn(f); !there || err != nil {
			c.lost = append(c.lost, name) // checked again under write.lock
		}
	}
	// Marks of living processes too: if the mark is gone a moment later, that costs an
	// unneeded copy at worst.
	marks, ofDead, err := peers.Marks(ck.fs, ck.leases.Instance(), false)
	if err != nil {
		return err
	}
	here := map[uint64]bool{}
	for _, l := range logs {
		here[peers.MarkOf(l.name)] = true
	}
	// Copying the logs settles only the marks of dead processes: a living one may mark
	// the same log again, fail to sync it and die before we are finished.
	for m := range ofDead {
		if here[m.Log] {
			c.seen[m] = true
		}
	}
	for rest := logs; len(rest) > 0; {
		free, err := ck.suspects.free()
		if err != nil {
			return err
		}
		if rest, err = ck.syncAtOnce(rest, free, marks); err != nil {
			return err
		}
	}
	return nil
}

// syncAtOnce syncs several logs concurrently: they share the file system's own commits.
// There is one goroutine per mark, so that whenever this process dies every sync under
// way is marked. A mark whose log became suspect stays as it is: the logs that were to
// use it are returned as rest.
func (ck *checkpoints) syncAtOnce(logs []openedForSync, slots []int, marks map[uint64]bool) (rest []openedForSync, err error) {
	var mu sync.Mutex // guards rest and err
	work := make(chan openedForSync, len(logs))
	for _, l := range logs {
		work <- l
	}
	close(work)
	worker := func(slot int) {
		failed := false
		for l := range work {
			if failed || ck.suspects.has(slot) {
				mu.Lock()
				rest = append(rest, l)
				mu.Unlock()
				continue
			}
			if syncErr := ck.syncLog(slot, l, marks); syncErr != nil {
				failed = true
				mu.Lock()
				err = errors.Join(err, syncErr)
				mu.Unlock()
			}
		}
	}
	if ck.cfg.inline {
		worker(slots[0])
		return rest, err
	}
	var wg sync.WaitGroup
	for _, slot := range slots {
		wg.Go(func() { worker(slot) })
	}
	wg.Wait()
	return rest, err
}

// syncLog makes one log durable: mark, fdatasync, and a copy in its place if the sync
// failed or somebody else marked the log (rules CheckpointMark, LogCopyAfterEIO; planted
// bug "log not copied"). The mark tells later processes that an error may have been
// reported to us alone; so it is set before the sync, and stays if the copy fails.
func (ck *checkpoints) syncLog(slot int, l openedForSync, marks map[uint64]bool) error {
	mark := peers.MarkOf(l.name)
	if err := ck.leases.Instance().Mark(slot, mark); err != nil {
		return err
	}
	if failed := l.f.Datasync() != nil || marks[mark]; failed {
		if kept, err := ck.copyUnderLock(l.name); kept || err != nil {
			ck.suspects.add(slot, l.name)
			return err // the mark stays
		}
	}
	return ck.leases.Instance().Mark(slot, 0)
}

// copyUnderLock replaces a log by a copy. kept: the log itself prevents copying, and what
// the ring has for it was set aside instead. Then the log stays suspect, with its mark: a
// later sync of it proves nothing, and only a copy may be believed.
func (ck *checkpoints) copyUnderLock(name string) (kept bool, err error) {
	l, err := ck.lock.lockCaughtUp()
	if err != nil {
		return false, err
	}
	defer l.unlock()
	sess := l.logs.cached(name)
	_, err = l.logs.openLog(sess, false)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	entries, readErr := l.appliedEntries()
	if readErr != nil {
		return false, errors.Join(err, readErr)
	}
	return copyOrKeep(l, sess, entries, err)
}

// copyOrKeep replaces a log by a copy, under write.lock: after a failed sync the old
// file's pages can't be believed, and writing them again in place was not enough for a
// growing file on ext4. This waits for the disk under write.lock, which only errors
// justify. opened is why the log could not be opened, if so. kept: see copyUnderLock.
func copyOrKeep(l *locked, sess *session, entries []*journal.Entry, opened error) (kept bool, err error) {
	switch err = opened; {
	case err == nil:
		err = l.logs.replaceByCopy(sess, entries)
	case errors.Is(err, syscall.EIO):
		err = &badLog{err}
	}
	var bad *badLog
	if !errors.As(err, &bad) && !isForeign(err) {
		return false, err
	}
	return true, l.keepInstead(sess.name, entries, err)
}

// badLog is why a log can't be copied, where the log itself is the reason and not the disk
// as a whole: a bad sector, another user's file.
type badLog struct{ cause error }

func (b *badLog) Error() string { return "copy log: " + b.cause.Error() }
func (b *badLog) Unwrap() error { return b.cause }

// keepInstead sets aside what the ring has for a log that can be neither synced nor
// copied, so that its space may be used again: one bad log must not fill the ring and
// stop every other session. What is before the ring's start was made durable by earlier
// checkpoints. The lines are put back when the log can be read again (mend.go), or go
// into a repair.
func (l *locked) keepInstead(name string, entries []*journal.Entry, cause error) error {
	for _, e := range entries {
		if e.Name != name {
			continue
		}
		if err := l.asides.setAside(e, couldNot(cause)); err != nil {
			return err // the disk as a whole, then
		}
		l.w.Flags |= peers.FlagAside
	}
	if sess := l.logs.sessions[name]; sess != nil {
		sess.closeLog()
		sess.forget()
	}
	return nil
}

// replaceByCopy does the copying: a temporary file, synced, renamed over the log,
// directory synced. If it dies before the rename the old log is there and the next first
// open removes the temporary file. Lines that the ring still has and the old file lost go
// into the copy (rule CopyFromRing).
func (ol *logs) replaceByCopy(sess *session, entries []*journal.Entry) (err error) {
	size, err := sess.f.Size()
	if err != nil {
		return &badLog{err}
	}
	tmp := fmt.Sprintf("log.%016x.tmp", ol.cfg.random())
	f, err := ol.fs.Open(tmp, vfs.Create|vfs.Exclusive)
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, f.Close())
		if err != nil {
			_ = ol.fs.Remove(tmp)
		}
	}()
	if err := copyBytes(f, sess.f, size); err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name == sess.name && e.Offset+int64(len(e.Lines)) <= size && ol.lostPages(sess.f, e) {
			if err := writeLog(f, e.Lines, e.Offset); err != nil {
				return err
			}
		}
	}
	// Before the rename: otherwise a cut could leave the name leading to a file without
	// its content (failure 23).
	if err := f.Datasync(); err != nil {
		return err
	}
	if err := ol.fs.Rename(tmp, sessionlog.Path(sess.name)); err != nil {
		return err
	}
	// Close the old file. The next write to this log opens the new one; other processes
	// compare the inode (rule LogInode).
	sess.closeLog()
	sess.forget()
	return ol.fs.SyncDir(sessionlog.Dir)
}

// lostPages tells whether a log has an entry's bytes where it was written, whole or with
// NULs in them: pages that the disk lost. Other content was written from outside and is
// copied as it is.
func (ol *logs) lostPages(f vfs.File, e *journal.Entry) bool {
	there := make([]byte, len(e.Lines))
	if _, err := f.ReadAt(there, e.Offset); err != nil && err != io.EOF {
		return true // unreadable: the ring has the bytes
	}
	return onlyNULsDiffer(there, e.Lines)
}

// copyBytes copies the first size bytes, a megabyte at a time.
func copyBytes(dst, src vfs.File, size int64) error {
	buf := make([]byte, min(size, 1<<20))
	for at := int64(0); at < size; {
		n := min(int64(len(buf)), size-at)
		if _, err := src.ReadAt(buf[:n], at); err != nil && err != io.EOF {
			return &badLog{err}
		}
		if _, err := dst.WriteAt(buf[:n], at); err != nil {
			return err
		}
		at += n
	}
	return nil
}

// writeStart writes the slot with the new start, over the slot that is not known to be
// durable (S2, rules SlotChoice, SlotUnderLock): if the power fails during the write, the
// other one is whole. It returns the slot's hseq, 0 if there is nothing to do. No space
// is free yet.
func (ck *checkpoints) writeStart(c *checkpointing) (hseq uint64, err error) {
	l, err := ck.lock.lockCaughtUp()
	if err != nil {
		return 0, err
	}
	defer l.unlock()
	// Compared again, because others had write.lock since beginCheckpoint.
	if l.ring != c.ring || l.w.Start >= c.upTo {
		return 0, nil // the ring was replaced, or another checkpoint was faster
	}
	// The ring may have the only copy of the lines that these logs lost.
	if err := errors.Join(l.keepLost(c.lost...), keepUnsynced(l, c.unsynced)); err != nil {
		return 0, err
	}
	slots, _, best, err := journal.ReadSlots(l.ring.File)
	if err != nil {
		return 0, err
	}
	if best < 0 {
		return 0, l.rotate(l.ring.Size)
	}
	keep := journal.DurableSlot(slots, best, l.w.Start, l.w.Epoch)
	sl := slots[keep]
	sl.Epoch, sl.HSeq = l.w.Epoch, slots[best].HSeq+1
	sl.Start, sl.StartChain = c.upTo, c.chain
	return sl.HSeq, l.ring.WriteSlot(1-keep, &sl)
}

// syncRing makes the ring durable for a checkpoint. After a failed sync the ring is
// replaced: nil then means that a sound ring is in place, whose start has not moved;
// publishStart finds another ring and does nothing.
func (sy *syncer) syncRing(r *journal.Ring) error {
	sy.syncMu.Lock()
	defer sy.syncMu.Unlock()
	if err := sy.datasync(r); err != nil {
		return sy.replaceRing(r, err)
	}
	return nil
}

// publishStart frees the space, if the slot that was synced is still there (rule
// SlotStillMine). start never goes back (rule CheckpointNeverBack): a checkpoint that was
// stopped for a while must not undo a later one's. It also removes the instance files of
// dead processes whose marks this checkpoint took care of.
func (ck *checkpoints) publishStart(c *checkpointing, hseq uint64) error {
	l, err := ck.lock.lock()
	if err != nil {
		return err
	}
	defer l.unlock()
	if l.ring != c.ring {
		return nil
	}
	slots, _, best, err := journal.ReadSlots(l.ring.File)
	if err != nil || best < 0 || slots[best].HSeq != hseq {
		// If the newest slot is another checkpoint's, ours was overwritten before or
		// after our sync, and only the writer of the newest knows whether it is durable.
		return err // a later checkpoint overwrote it and will publish its own
	}
	l.w.Start = max(l.w.Start, c.upTo)
	l.measures.checkpoints.Add(1)
	return peers.RemoveDead(l.fs, l.inst, c.seen)
}
