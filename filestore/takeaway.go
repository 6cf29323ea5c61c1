package filestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"hansard"
	"hansard/filestore/internal/cache"
	"hansard/filestore/internal/journal"
	"hansard/filestore/internal/peers"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

// Removing the content of redacted events (W8). The record of the redaction is in the
// log, and is what makes the events redacted; everything here comes after it, and any
// process may repeat it at any time, like erasing (erase.go):
//
//	note        the checkpoint that frees the record's space in the ring, or recovery,
//	            creates a file erasing/<name>, durably
//	            remove the session's files in evidence/ and cache/
//	            write a new log: every line in its place, some without content; sync it
//	write.lock  if the ring has nothing for this log from start on, nothing is set aside,
//	            and it is still the same file: copy the lines written since; sync
//	            remove the attachments that only redacted events named, durably
//	            rename, sync sessions/: from here on the content is no longer in the log
//	            remove the words from the search index
//	write.lock  if nothing is left to do: remove the note
//
// Invariants:
//   - The name leads to the old log or to the new one, both whole, and both with the record:
//     a crash at any step loses no event and no record (TestSimRedactInterrupted).
//   - The new log's name is durable before anything is written to the ring: a line that is
//     appended to it follows its checksums, and would not fit the old one.
//   - Attachments are removed before the log is replaced: as long as a line names them, the
//     next attempt knows what to remove.

const (
	// takeAwayTries is how often the ring is freed and the removal retried while others
	// append to the session. After that the ring is emptied under write.lock.
	takeAwayTries = 5
	// replacedTries is how often it starts over after that because the log was replaced
	// in the meantime, by other redactions, each of which makes progress.
	replacedTries = 100
)

// errAside refuses to remove content while lines of the session are in aside/: they may
// be the redacted ones, and a repair would restore them.
var errAside = errors.New("lines of the session are set aside: mend or repair it first")

// takeAway finishes the redactions that a session's log records. The caller holds no lock.
func (ck *checkpoints) takeAway(ctx context.Context, name string) error {
	for try := 0; ; try++ {
		// Urgent: it must not be left to another process, which may be stopped.
		if err := ck.freeRing(true); err != nil {
			return err
		}
		err := ck.tryTakeAway(name, try >= takeAwayTries)
		switch {
		case errors.Is(err, errInJournal) && try < takeAwayTries:
		case errors.Is(err, errChanged) && try < takeAwayTries+replacedTries:
		default:
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// tryTakeAway is one attempt. The last one does not wait for a quiet moment: it empties
// the ring under write.lock.
func (ck *checkpoints) tryTakeAway(name string, last bool) error {
	put := ck.eraser.outOfRing
	if last {
		ck.ckMu.Lock()
		defer ck.ckMu.Unlock()
		put = func(_ string, fn func(*locked) error) error { return ck.inEmptyRing(fn) }
	}
	ck.eraser.mu.Lock()
	defer ck.eraser.mu.Unlock()
	return ck.eraser.takeAway(name, put)
}

// inEmptyRing runs fn under write.lock with a ring that has nothing from its start on: a
// checkpoint in one go, for a session that others append to all the time. All writers
// wait for the disk in the meantime. The caller holds ckMu.
func (ck *checkpoints) inEmptyRing(fn func(*locked) error) error {
	sy := ck.syncer
	sy.syncMu.Lock()
	defer sy.syncMu.Unlock()
	l, err := ck.lock.lockCaughtUp()
	if err != nil {
		return err
	}
	defer l.unlock()
	if l.w.Flags&peers.FlagFailed != 0 || ck.suspects.any() {
		return fmt.Errorf("%w: the disk failed before", hansard.ErrFailed)
	}
	if err := sy.datasync(l.ring); err != nil {
		return errors.Join(err, l.rotate(l.ring.Size))
	}
	l.lock.own.set(l.ring.Epoch, l.w.Written)
	l.lim = l.w.Written
	if err := l.catchup(); err != nil {
		return err
	}
	if l.w.Applied < l.w.Written {
		return fmt.Errorf("%w: what the journal holds does not fit on the disk", hansard.ErrNoSpace)
	}
	// The ring may have the only copy of lines that a log has lost.
	if err := keepAllLost(l); err != nil {
		return err
	}
	entries, err := l.appliedEntries()
	if err != nil {
		return err
	}
	if err := l.settle(entries); err != nil {
		return err
	}
	l.noteErasing(takenAwayBy(entries))
	slots, _, best, err := journal.ReadSlots(l.ring.File)
	if err != nil || best < 0 {
		return errors.Join(err, errInJournal)
	}
	keep := journal.DurableSlot(slots, best, l.w.Start, l.w.Epoch)
	sl := slots[keep]
	sl.Epoch, sl.HSeq = l.w.Epoch, slots[best].HSeq+1
	sl.Start, sl.StartChain = l.w.Written, l.w.TailChain
	if err := l.ring.WriteSlot(1-keep, &sl); err != nil {
		return err
	}
	if err := sy.datasync(l.ring); err != nil {
		return errors.Join(err, l.rotate(l.ring.Size))
	}
	l.w.Start = l.w.Written
	// Before anything is replaced: readers compare logs with the entries after the
	// published start (harmed).
	if err := l.ctl.WriteProgress(&l.w); err != nil {
		return err
	}
	return fn(l)
}

// takeAway removes the content that is redacted according to the log of a session, and
// removes its note. put runs a function under write.lock when the ring has nothing for
// the log. errInJournal, errChanged: not now. The caller holds mu.
func (er *eraser) takeAway(name string, put func(string, func(*locked) error) error) error {
	id, _ := sessionlog.DecodeName(name)
	old, err := er.fs.Open(sessionlog.Path(name), vfs.ReadOnly)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, vfs.ErrNotRegular) {
		return er.dropNote(name, logSeen{}) // removed by hand
	}
	if err != nil {
		return err
	}
	defer old.Close()
	seen := logSeen{}
	if seen.inode, err = old.Inode(); err == nil {
		seen.size, err = old.Size()
	}
	if err != nil {
		return err
	}
	gone, err := sessionlog.Redacted(old, seen.size)
	if err == nil && len(gone) == 0 {
		return er.dropNote(name, seen)
	}
	left := false
	if err == nil {
		left, err = sessionlog.Unredacted(old, gone, seen.size)
	}
	if err != nil {
		return sessionDamage(id, err)
	}
	if err := er.dropCopies(name); err != nil {
		return err
	}
	if left {
		if seen, err = er.rewrite(name, id, old, gone, put); err != nil {
			return sessionDamage(id, err)
		}
		// Others may have saved runs of the old log since; their checksums are the old
		// ones.
		if err := er.dropCopies(name); err != nil {
			return err
		}
	}
	// After the log: a process that is indexing must not read the content again.
	if err := er.redactInSearch(id, gone); err != nil {
		return err
	}
	return er.dropNote(name, seen)
}

// sessionDamage adds the session to damage that was found in its log.
func sessionDamage(id hansard.SessionID, err error) error {
	var damaged *hansard.DamagedError
	if errors.As(err, &damaged) {
		damaged.Session = id
	}
	return err
}

// logSeen is a log as it was examined: up to size nothing is left to remove.
type logSeen struct {
	inode uint64
	size  int64
}

// rewrite replaces the old log with one without the content of some events.
func (er *eraser) rewrite(name string, id hansard.SessionID, old vfs.File, gone []hansard.Seq, put func(string, func(*locked) error) error) (seen logSeen, err error) {
	tmp := fmt.Sprintf("log.%016x.tmp", er.cfg.random())
	f, err := er.fs.Open(tmp, vfs.Create|vfs.Exclusive)
	if err != nil {
		return seen, err
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			_ = er.fs.Remove(tmp)
		}
	}()
	w := sessionlog.NewRewriting(id, old, f, gone)
	// Twice: the second pass copies only what was appended during the first, so that
	// little is left to do under the lock.
	for range 2 {
		size, err := old.Size()
		if err == nil {
			err = w.CopyTo(size)
		}
		if err != nil {
			return seen, again(err)
		}
	}
	if err := f.Datasync(); err != nil {
		return seen, err
	}
	inode, err := old.Inode()
	if err == nil {
		err = put(name, func(l *locked) error { return l.putRedacted(name, inode, w, f, tmp) })
	}
	if err != nil {
		return seen, again(err)
	}
	seen.size = w.Size()
	seen.inode, err = f.Inode()
	return seen, err
}

// again is errChanged for a log that was redacted once more while it was rewritten.
func again(err error) error {
	if errors.Is(err, sessionlog.ErrRedactedAgain) {
		return errChanged
	}
	return err
}

// putRedacted completes the new log with lines that the old one got since, and renames it
// over that, under write.lock and with nothing in the ring for it.
func (l *locked) putRedacted(name string, inode uint64, w *sessionlog.Rewriting, f vfs.File, tmp string) error {
	if aside, err := l.asides.asides(name); err != nil || len(aside) > 0 {
		return errors.Join(err, errAside)
	}
	now, size, err := l.fs.Inode(sessionlog.Path(name))
	if err != nil || now != inode || size < w.Size() {
		return errors.Join(err, errChanged)
	}
	if rest := size - w.Size(); rest > 0 {
		if err := w.CopyTo(size); err != nil {
			return err
		}
		if err := f.Datasync(); err != nil {
			return err
		}
	}
	if w.Size() != size {
		return fmt.Errorf("%w: the log ends in an unfinished batch", errChanged)
	}
	if err := dropAttached(l.fs, name, w.TakenAway()); err != nil {
		return err
	}
	return replaceDurably(l, func() error {
		if err := l.inCustody(func() error { return l.fs.Rename(tmp, sessionlog.Path(name)) }); err != nil {
			return err
		}
		forgetReplaced(l, name)
		return nil
	})
}

// replaceDurably replaces a log by one whose lines have other checksums, under
// write.lock, and makes its name durable: the next line follows the new checksums, and if
// a power cut brought the old log back, it would fit nowhere and might be lost in a
// repair. The flag comes first: if we are killed before the name is durable, or syncing
// fails, the next writer of any process makes it durable before it writes anything
// (syncReplaced).
func replaceDurably(l *locked, replace func() error) error {
	l.w.Flags |= peers.FlagReplaced
	if err := l.ctl.WriteProgress(&l.w); err != nil {
		return err
	}
	if err := replace(); err != nil {
		return err
	}
	return syncReplaced(l)
}

// syncReplaced makes the names of logs durable that were replaced, if they may not be.
func syncReplaced(l *locked) error {
	if l.w.Flags&peers.FlagReplaced == 0 {
		return nil
	}
	if err := l.fs.SyncDir(sessionlog.Dir); err != nil {
		return err
	}
	l.w.Flags &^= peers.FlagReplaced
	return nil
}

// forgetReplaced drops what this process knows about a log that was replaced.
func forgetReplaced(l *locked, name string) {
	l.checks.checked.forget(name)
	if sess := l.logs.sessions[name]; sess != nil {
		sess.closeLog()
		sess.forget()
	}
	l.waiters.wake(name) // inotify does not report a replaced file
}

// dropAttached removes the files of attachments that no event names any more, durably.
// The caller holds write.lock.
func dropAttached(disk vfs.FS, name string, digests []string) error {
	if len(digests) == 0 {
		return nil
	}
	for _, digest := range digests {
		if err := ignoreMissing(disk.Remove(attachmentPath(name, digest))); err != nil {
			return err
		}
	}
	return ignoreMissing(disk.SyncDir(attachmentDir(name)))
}

// dropCopies removes the session's files in evidence/ and its key runs in cache/,
// durably: the old bytes of repairs contain what was redacted since, and the runs have
// checksums of lines that are gone. aside/ and cache/damage are left alone.
func (er *eraser) dropCopies(name string) error {
	left, err := er.leftovers()
	if err != nil {
		return err
	}
	for _, file := range left[name] {
		if strings.HasPrefix(file, asideDir+"/") || strings.HasPrefix(file, cache.DamageDir+"/") {
			continue
		}
		if err := ignoreMissing(er.fs.Remove(file)); err != nil {
			return err
		}
	}
	// Also if no file was there: its remover may have died before that was durable.
	return errors.Join(ignoreMissing(er.fs.SyncDir(evidenceDir)), ignoreMissing(er.fs.SyncDir(cache.KeysDir)))
}

// grownQuietly tells whether a log is the one that was examined, and has recorded no
// further redaction since. Called under write.lock, with nothing in the ring for the log.
func (er *eraser) grownQuietly(name string, seen logSeen) (bool, error) {
	f, err := er.fs.Open(sessionlog.Path(name), vfs.ReadOnly)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, vfs.ErrNotRegular) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	inode, err := f.Inode()
	if err != nil || inode != seen.inode {
		return false, err
	}
	size, err := f.Size()
	if err != nil || size < seen.size || size-seen.size > lockedBytes {
		return false, err
	}
	quiet := true
	err = sessionlog.EachRedaction(f, seen.size, size, func(l *sessionlog.Line) { quiet = quiet && len(l.Redacts) == 0 })
	return quiet, err
}
