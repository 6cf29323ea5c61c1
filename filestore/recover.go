package filestore

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"hansard"
	"hansard/filestore/internal/journal"
	"hansard/filestore/internal/peers"
	"hansard/filestore/internal/sessionlog"
)

// Recovery, the first open of docs/protocol.md. It is the catching up that every process
// does (catchup.go), with two differences: it starts at the ring's durable start instead
// of at a cursor, and it trusts neither the control file nor the page cache.
//
//	recover ─► readDurably   scan the ring, write it back, sync, scan again
//	        ─► replay        apply every entry to its log (apply.go)
//	        ─► settle        make those logs durable
//	        ─► new slot      epoch + 1, start = end; only now is the ring empty
//
// Invariants:
//   - Nothing reaches a log before the entry it comes from is durable in the ring.
//   - The old slot stays valid until the logs are durable. A power cut or a kill at any
//     step leaves a store that the next first open recovers in the same way: recovering
//     twice equals once (invariant 9; TestSimPowerCut cuts inside recovery as well).
//   - "joined" is written to the instance file after recovery (join.go), never before:
//     readers take it as the sign that the logs are complete (failure 56).

// recover brings the logs up to date with the journal and leaves the ring empty. A new
// store gets its journal here.
//
// The caller holds write.lock and open.lock exclusively, so no other process has the
// store open (rule AloneChecked), and l.inst is registered, because settle leaves marks
// in it. On an error the journal is as it was found, apart from the write-back; the next
// process to open the store starts over. A *journal.DamagedError means that acknowledged
// entries are missing: the store can be read, and written again after RepairJournal.
func (l *locked) recover() error {
	// Temporary files of dead processes. Safe only here: a second process would remove
	// files that a living one is about to rename (failures 18 and 29).
	l.sweep()
	r, slots, best, err := l.openRing(0)
	if errors.Is(err, fs.ErrNotExist) {
		if err := l.newJournal(); err != nil {
			return err
		}
		r, slots, best, err = l.openRing(0)
	}
	if err != nil {
		return err
	}
	l.useRing(r)
	entries, end, chain, err := readDurably(r, slots, best)
	if err != nil {
		return err
	}
	sl := slots[best]
	if end > sl.Start {
		l.measures.recoveries.Add(1) // the last process did not empty it on leaving
	}
	// The journal may have been renamed into place by a process that died before it
	// synced the directory. Without this sync a power cut could bring the old journal
	// back after the logs got entries that only the new one has (FirstOpenDirSync).
	if err := l.fs.SyncDir("."); err != nil {
		return fmt.Errorf("sync store directory: %w", err)
	}
	done, err := l.replay(sl, entries, end, chain)
	if err != nil {
		return err
	}
	l.noteErasing(takenAwayBy(entries))
	// The logs are durable, so the ring may start after the entries. The new epoch voids
	// a control record that survived the crash: its positions are outdated.
	l.w.Epoch++
	l.ring.Epoch = l.w.Epoch
	l.w.Start = end
	fresh := sl.Next()
	fresh.Epoch, fresh.Start, fresh.StartChain = l.w.Epoch, end, chain
	// Into the other slot: a torn write here must leave the slot that recovery started
	// from (SlotChoice). This also revokes `clean`, before anything is appended.
	if err := r.WriteSlot(1-best, &fresh); err != nil {
		return err
	}
	// Space before the new start is reused from here on: the slot has to be durable
	// first (HeaderBeforeStart).
	if err := r.File.Datasync(); err != nil {
		return fmt.Errorf("sync journal: %w", err)
	}
	l.logs.dirty.reset()
	if err := l.openControl(); err != nil {
		return err
	}
	// Files of dead processes, with their marks: those whose logs were copied.
	if err := peers.RemoveDead(l.fs, l.inst, done); err != nil {
		return err
	}
	dropForks(l)
	return errors.Join(l.ctl.WriteProgress(&l.w), l.ctl.WriteDurable(l.w.Epoch, end))
}

// takenAwayBy are the names of the logs for which there is a tombstone or a redaction
// among the entries: the next checkpoint removes their content.
func takenAwayBy(entries []*journal.Entry) (names []string) {
	for _, e := range entries {
		if e.Deletes || e.Redacts {
			names = append(names, e.Name)
		}
	}
	return names
}

// readDurably returns the entries of the ring, their end and its chain, all known to be
// on the disk: the next power cut must not undo what goes to the logs.
//
// The page cache may show what the disk does not have. If a sync failed while no process
// had the file open, or the error was reported to one that died, the kernel does not
// report it again, and the pages are marked clean: a plain fdatasync here would say OK
// (failure 38). So the relevant part is written back in place first (FirstOpenRewrites,
// FirstOpenSlot) and read once more afterwards (RewriteVerified).
//
// It is a *journal.DamagedError if an entry after the end proves that more was durable
// (E4): treating that as the end would overwrite acknowledged entries.
func readDurably(r *journal.Ring, slots [2]journal.Slot, best int) (entries []*journal.Entry, end, chain uint64, err error) {
	sl := slots[best]
	clean := journal.LeftClean(slots, best)
	for {
		end, chain = sl.Start, sl.StartChain
		// A clean slot says that nothing is after start (S3), so that opening an idle
		// store does not read 64 MiB.
		if !clean {
			if entries, end, chain, err = r.Scan(sl.Start, sl.StartChain, 0); err != nil {
				return nil, 0, 0, err
			}
			if err := r.LostBehind(end, sl.Start); err != nil {
				return nil, 0, 0, err
			}
		}
		// Same bytes, same place: the pages are dirty again, so the sync below covers
		// them and an error is reported to this descriptor.
		if err := errors.Join(r.Rewrite(sl.Start, end), r.RewriteSlot(best)); err != nil {
			return nil, 0, 0, err
		}
		if err := r.File.Datasync(); err != nil {
			return nil, 0, 0, fmt.Errorf("sync journal: %w", err)
		}
		if clean {
			return nil, end, chain, nil
		}
		// A page may have been evicted between the scan and the rewrite. Rewrite then
		// read, and wrote back, what the disk has, which is not what was scanned. The
		// disk counts, so start over until both scans agree.
		_, again, againChain, err := r.Scan(sl.Start, sl.StartChain, 0)
		if err != nil {
			return nil, 0, 0, err
		}
		if again == end && againChain == chain {
			return entries, end, chain, nil
		}
	}
}

// replay applies all entries of the ring, which the caller made durable, and makes the
// logs they went to durable. It sets l.w and the caches to the state after the last
// entry. ErrNoSpace: the logs do not fit on the disk; the entries stay in the ring.
func (l *locked) replay(sl journal.Slot, entries []*journal.Entry, end, chain uint64) (done map[peers.Mark]bool, err error) {
	// Applied starts at Start, whatever the control file says (ControlNotTrusted). It is
	// never synced: a power cut can keep a record that says "applied" and lose the log
	// pages it talks about. Planted bug: "control trusted".
	l.w = peers.Progress{Epoch: sl.Epoch, Written: end, TailChain: chain, Applied: sl.Start, Start: sl.Start, Base: end}
	l.lim, l.cursor, l.cursorChain, l.cold = end, end, chain, false
	for _, e := range entries {
		l.note(e, nil)
	}
	if done, err = l.copySuspects(entries); err != nil {
		return nil, err
	}
	if err := applyInRecovery(l); err != nil {
		return nil, err
	}
	// apply stops, without an error, when the disk is full. Moving start past entries
	// that are in no log would lose them.
	if l.w.Applied < end {
		return nil, fmt.Errorf("%w: what the journal holds does not fit on the disk", hansard.ErrNoSpace)
	}
	return done, l.settle(entries)
}

// copySuspects makes the logs durable that a process was syncing when it died. An error
// of such a sync was reported to the dead process and to nobody else, so those logs are
// replaced by a copy instead of being synced (MarkAtOpen). This includes logs that have
// no entries in the ring: mend writes to such logs. So are those that an earlier attempt
// of this process could neither sync nor copy. It runs before anything is applied (rule
// SuspectsFirst): a page that is dropped later would make an entry seem to follow another
// line. done are the marks that were dealt with: without them the next process that opens
// the store would trust its own sync of these logs. (Failure 68; planted bug "marks
// forgotten by recovery".)
func (l *locked) copySuspects(entries []*journal.Entry) (done map[peers.Mark]bool, err error) {
	marked, ofDead, err := peers.Marks(l.fs, l.inst, true)
	if err != nil {
		return nil, err
	}
	for _, name := range l.suspects.all() {
		marked[peers.MarkOf(name)] = true
	}
	if len(marked) == 0 {
		return ofDead, nil
	}
	names, err := l.logNames()
	if err != nil {
		return nil, fmt.Errorf("look for logs that were being synced: %w", err)
	}
	for _, name := range names {
		if !marked[peers.MarkOf(name)] {
			continue
		}
		sess := l.logs.cached(name)
		_, opened := l.logs.openLog(sess, false)
		if errors.Is(opened, fs.ErrNotExist) || opened != nil && isForeign(opened) {
			continue // modified from outside; there is nothing to copy
		}
		if err := copyMarked(l, sess, entries, opened); err != nil {
			return nil, err
		}
	}
	return ofDead, nil
}

// copyMarked replaces a log that was being synced by a copy. It has a mark of our own
// meanwhile, so that our death in the middle is noticed as well. If the log itself prevents
// copying, the mark stays in place of the dead process's: settle tries once more.
func copyMarked(l *locked, sess *session, entries []*journal.Entry, opened error) error {
	slot, err := markSuspect(l, sess.name)
	if err != nil {
		return err
	}
	if err = opened; err == nil {
		err = l.logs.replaceByCopy(sess, entries)
	}
	var bad *badLog
	if errors.As(err, &bad) || errors.Is(opened, syscall.EIO) {
		return nil
	}
	if err != nil {
		return err
	}
	l.suspects.acquit(slot)
	return l.inst.Mark(slot, 0)
}

// markSuspect marks a log that only a copy makes durable, and remembers it before the copy
// is made: whatever prevents it, the next attempt of this process must not believe a sync
// (TestRecoveryTriedAgain).
func markSuspect(l *locked, name string) (slot int, err error) {
	if slot, _, err = l.suspects.slotFor(name); err == nil {
		err = l.inst.Mark(slot, peers.MarkOf(name))
	}
	if err == nil {
		l.suspects.add(slot, name)
	}
	return slot, err
}

// settle makes the logs that the entries name durable, then sessions/ itself. A log whose
// sync fails is replaced by a copy; of one that can't be copied either, the entries are set
// aside: it must not keep the store from being written to (TestFailure69_BadLogAtRecovery).
// An error leaves the ring's start where it was.
func (l *locked) settle(entries []*journal.Entry) error {
	// One sync per log, however many entries it got; in ring order, not in map order, so
	// that the simulation can replay a run.
	byName := map[string][]*journal.Entry{}
	var names []string
	for _, e := range entries {
		if byName[e.Name] == nil {
			names = append(names, e.Name)
		}
		byName[e.Name] = append(byName[e.Name], e)
	}
	for _, name := range names {
		sess := l.logs.cached(name)
		if _, err := l.logs.openLog(sess, false); err != nil {
			if err := notSettled(l, name, byName[name], err); err != nil {
				return err
			}
			continue
		}
		if err := settleLog(l, sess, byName[name]); err != nil {
			return err
		}
	}
	// The name of a log that apply created is durable only after this: without it a power
	// cut takes the file, and the ring no longer has the lines (SessionsDirSync).
	if err := l.fs.SyncDir(sessionlog.Dir); err != nil {
		return fmt.Errorf("sync sessions: %w", err)
	}
	return nil
}

// settleLog makes one log durable, or sets its entries aside.
func settleLog(l *locked, sess *session, entries []*journal.Entry) error {
	// If this process dies between a failed sync and the copy, the mark tells the next
	// one that the log is suspect (RecoveryMarks).
	slot, suspect, err := l.suspects.slotFor(sess.name)
	if err == nil {
		err = l.inst.Mark(slot, peers.MarkOf(sess.name))
	}
	if err != nil {
		return err
	}
	if suspect || l.logs.rewriteAndSync(sess, entries) != nil {
		l.suspects.add(slot, sess.name)
		if kept, err := copyOrKeep(l, sess, entries, nil); kept || err != nil {
			return err // the mark stays, and the log a suspect: see markSuspect
		}
		l.suspects.acquit(slot)
	}
	sess.closeTaken(entries[len(entries)-1])
	return l.inst.Mark(slot, 0)
}

// notSettled is for a log that settle could not open. If nothing was written to it, all its
// entries were set aside; so they were if it is known to be lost. Else they are in it, and
// may not be durable: they are set aside too if the disk has a bad spot there, and any
// other error, such as too many open files, ends the settling.
func notSettled(l *locked, name string, entries []*journal.Entry, err error) error {
	d := l.logs.dirty.get(name)
	switch {
	case d.logEnd == 0 || d.kept && (errors.Is(err, fs.ErrNotExist) || isForeign(err)):
		return nil
	case errors.Is(err, syscall.EIO):
		return l.keepInstead(name, entries, err)
	}
	return fmt.Errorf("open the log %s to sync it: %w", name, err)
}

// rewriteAndSync writes the entries of one log to it once more and syncs it. Entries that
// apply found in the log were not written by this process, so their pages may be clean
// and lost, as in readDurably. An entry that is not in the log was set aside, and must
// not overwrite what is there instead. After an error only a copy can be trusted.
func (ol *logs) rewriteAndSync(sess *session, entries []*journal.Entry) error {
	for _, e := range entries {
		if ol.inLog(e) {
			if err := writeLog(sess.f, e.Lines, e.Offset); err != nil {
				return err
			}
		}
	}
	return sess.f.Datasync()
}
