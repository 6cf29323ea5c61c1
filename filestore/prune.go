package filestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"hansard"
	"hansard/filestore/internal/cache"
	"hansard/filestore/internal/journal"
	"hansard/filestore/internal/peers"
	"hansard/internal/vfs"
)

// Pruning does the erasing that is due (erase.go), at once and by examining every log;
// and, on request, scrubbing: it clears the places that erasing leaves to time. In the
// ring that is the free part, which keeps lines of deleted sessions until they are
// overwritten:
//
//	write.lock  nothing of a deleted session from start on, or a checkpoint first
//	            replace the ring by a new file with the entries from start on (rotate.go),
//	            durably: zeros where the old one has bytes that are not needed any more
//	            overwrite the old file, which has no name now, with zeros and sync it
//
// Nobody reads the old file by then: a process that takes write.lock finds another file
// and another epoch, and one that reads without the lock compares the inode. Interrupted
// anywhere, the journal is the old one or the new one, whole.

// Prune implements [hansard.Pruner].
func (s *Store) Prune(ctx context.Context, scrub bool) (hansard.Pruned, error) {
	if s.closed.Load() {
		return hansard.Pruned{}, hansard.ErrClosed
	}
	if err := errors.Join(s.writable(), ctx.Err()); err != nil {
		return hansard.Pruned{}, err
	}
	done, err := s.checkpoints.pruneSessions(ctx, true)
	if err == nil {
		done.Attachments, err = s.attachments.prune(ctx)
	}
	if err == nil {
		sweepRuns(s.process)
	}
	if err == nil && scrub {
		done.Scrubbed, err = s.checkpoints.scrub(ctx)
	}
	switch {
	case ctx.Err() != nil:
		return done, ctx.Err() // the rest is left for the next time
	case err != nil:
		return done, s.writeError("prune", err)
	}
	return done, nil
}

// pruneSessions erases every deleted session that has content left, and, with redacted,
// finishes every redaction, noted or not.
func (ck *checkpoints) pruneSessions(ctx context.Context, redacted bool) (done hansard.Pruned, err error) {
	// Urgent: it must not be left to another process, which may be stopped.
	if err := ck.freeRing(true); err != nil {
		return done, err
	}
	er := ck.eraser
	noted, complete, err := er.noted()
	if err != nil {
		return done, err
	}
	due, unread, err := er.due(ctx.Done(), redacted || !complete)
	if err != nil {
		return done, err
	}
	er.noteErasing(unread) // for later
	er.mu.Lock()           // not before: a redaction does not wait while all logs are read
	defer er.mu.Unlock()
	all, err := er.erase(append(noted, due...), ctx.Done())
	for _, one := range all {
		if one.Bytes > 0 || len(one.Files) > 0 { // else it was done already
			done.Erased = append(done.Erased, one)
		}
	}
	return done, err
}

// scrub removes what deleted sessions may have left where erasing does not look. It
// returns what it overwrote or removed.
func (ck *checkpoints) scrub(ctx context.Context) (done []string, err error) {
	old, err := ck.freshRing(ctx)
	if err != nil {
		return nil, err
	}
	// Not under write.lock: writers have the new one.
	if err := errors.Join(journal.Overwrite(old), old.Close()); err != nil {
		return nil, fmt.Errorf("overwrite the old journal: %w", err)
	}
	done = append(done, journal.Name)
	for _, in := range []struct {
		dir  string
		goes func(file string) bool
	}{
		{cache.Dir, anyFile}, {cache.KeysDir, anyFile}, {cache.DamageDir, anyFile}, {evidenceDir, isKeptJournal},
	} {
		removed, err := ck.removeFrom(in.dir, in.goes)
		if done = append(done, removed...); err != nil {
			return done, err
		}
	}
	return done, nil
}

// freshRing replaces the journal with a new one and returns the old file, for the caller
// to overwrite and close. It waits for the disk under write.lock: writers wait for as
// long as it takes to write an empty journal.
//
// What is deleted or redacted from now on is not waited for: with others doing that all the
// time there would be no end to it (TestScrubBesideDeletes, TestScrubBesideRedactions).
// BusyError: others replace the ring again and again, and with it the place that this is
// measured by.
func (ck *checkpoints) freshRing(ctx context.Context) (old vfs.File, err error) {
	var began ringPlace
	for try := 0; ; try++ {
		old, err = ck.replaceUnused(&began)
		if !errors.Is(err, errInJournal) {
			return old, err
		}
		if try == 10 {
			return nil, &hansard.BusyError{Own: "others replace the journal as fast as it is scrubbed"}
		}
		// A checkpoint frees what was applied, and only what is durable is: the process that
		// wrote it may be stopped before its sync (TestScrubBesideStopped).
		if err := ck.syncAll(); err != nil {
			return nil, err
		}
		// A session was deleted just now. Its content precedes its tombstone in the ring:
		// when that is freed, so is all of it.
		if _, err := ck.pruneSessions(ctx, false); err != nil {
			return nil, err
		}
	}
}

// ringPlace is the end of the ring at some time. In another epoch a position means another
// place.
type ringPlace struct{ epoch, pos uint64 }

// syncAll makes what the ring has now durable.
func (ck *checkpoints) syncAll() error {
	l, err := ck.lock.lockCaughtUp()
	if err != nil {
		return err
	}
	all := &group{ring: l.ring, ctl: l.ctl, end: l.w.Written}
	all.hold()
	defer all.letGo()
	l.unlock()
	_, err = ck.syncer.syncTo(all.ring, all.ctl, all.end, false)
	return err
}

// replaceUnused replaces the ring, if it has no tombstone or redaction before a place. A
// place of another epoch, or none yet, is set to the end of the ring now. old is a separate descriptor: syncing it takes nobody's error report (rule
// OneSyncPerFD).
func (ck *checkpoints) replaceUnused(before *ringPlace) (old vfs.File, err error) {
	l, err := ck.lock.lockCaughtUp()
	if err != nil {
		return nil, err
	}
	defer l.unlock()
	if l.w.Flags&peers.FlagFailed != 0 {
		return nil, fmt.Errorf("%w: an earlier sync of the journal failed", hansard.ErrFailed)
	}
	if before.epoch != l.w.Epoch {
		*before = ringPlace{l.w.Epoch, l.w.Written}
	}
	for _, d := range l.logs.dirty.since(l.w.Start) {
		if d.takenBefore(l.w.Start, before.pos) {
			return nil, errInJournal
		}
	}
	if old, err = l.fs.Open(journal.Name, 0); err != nil {
		return nil, err
	}
	if err = l.renewRing(); err == nil {
		err = l.catchup()
	}
	if err != nil {
		return nil, errors.Join(err, old.Close())
	}
	return old, nil
}

func anyFile(string) bool { return true }

// isKeptJournal tells whether a file in evidence/ is a journal that was kept by a repair.
func isKeptJournal(file string) bool {
	mark, ok := strings.CutPrefix(file, journal.Name+".")
	return ok && isMark(mark)
}

// removeFrom removes files of a directory, durably, and returns their names.
func (p *process) removeFrom(dir string, goes func(file string) bool) (removed []string, err error) {
	entries, err := p.fs.ReadDir(dir)
	if err != nil {
		return nil, ignoreMissing(err)
	}
	for _, e := range entries {
		if !e.Regular || !goes(e.Name) {
			continue
		}
		if err := p.fs.Remove(dir + "/" + e.Name); errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return removed, err
		}
		removed = append(removed, dir+"/"+e.Name)
	}
	slices.Sort(removed)
	if len(removed) == 0 {
		return nil, nil
	}
	return removed, p.fs.SyncDir(dir)
}
