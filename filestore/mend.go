package filestore

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"time"

	"hansard"
	"hansard/filestore/internal/peers"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

// After I/O errors aside/ has lines that fit their logs: the log ends where they begin,
// with the line they follow. They are added to it automatically (J9), by the next write
// to the session, the next process that joins, or the background checkpoint: a device
// that failed for a moment must not leave sessions damaged for ever (failure 58). If the
// log already has the lines, because it was restored or recovery wrote them, only their
// file in aside/ is removed.
//
//	putInPlace     write.lock   write the lines, by the rules of apply
//	syncLogs                    make the log durable, then sessions/
//	forgetAsides   write.lock   if the lines are still there: remove the files
//
// Until the second step is done aside/ has the only durable copy: a power cut before that
// leaves the file, and mending starts again (TestSimMendInterrupted).

// mend adds the lines that were set aside to a session's log, and tells whether nothing
// is left in aside/. If the log was modified from outside it does nothing: that takes a
// repair. The caller holds no lock.
func (ck *checkpoints) mend(name string) (mended bool, err error) {
	if !ck.asides.mayMend(name) {
		return false, nil
	}
	if ck.asides.isDeleted(name) {
		// The process that deleted it died before erasing it: nothing may follow a
		// tombstone.
		ck.noteErasing([]string{name})
		ck.eraser.eraseNoted(ck.closing)
		return false, nil
	}
	// The marks of logs that are being synced belong to the checkpoint, one set per
	// process.
	ck.ckMu.Lock()
	defer ck.ckMu.Unlock()
	files, err := ck.putInPlace(name)
	if err != nil || len(files) == 0 {
		return false, err
	}
	// Planted bug "set aside and forgotten too early": without the sync a power cut takes
	// both copies.
	c := &checkpointing{names: []string{name}, seen: map[peers.Mark]bool{}}
	if err := ck.syncLogs(c); err != nil {
		return false, err
	}
	if len(c.unsynced) > 0 {
		return false, c.unsynced[0].err // aside/ has the only durable copy
	}
	if err := ck.fs.SyncDir(sessionlog.Dir); err != nil {
		return false, err
	}
	if slices.Contains(slices.Collect(maps.Values(ck.suspects.all())), name) {
		return false, nil // it could not be copied after all: aside/ has the only durable copy
	}
	return ck.forgetAsides(name, files)
}

// mayMend checks without a lock: most damage can't be mended, and the check must not make
// every refused write take write.lock.
func (as *asides) mayMend(name string) bool {
	_, ok := as.readAsides(name)
	files, _ := as.asides(name) // on an error there is nothing to mend now
	return ok || len(files) > 0 && as.isDeleted(name)
}

// isDeleted tells whether a log ends in a tombstone.
func (as *asides) isDeleted(name string) bool {
	f, err := as.fs.Open(sessionlog.Path(name), vfs.ReadOnly)
	if err != nil {
		return false
	}
	defer f.Close()
	return sessionlog.EndsDeleted(f)
}

// readAsides reads a session's lines that were set aside. ok: there are some, and all of
// them may be added to the log. All or nothing: later lines do not fit without the
// earlier ones.
func (as *asides) readAsides(name string) (all []*aside, ok bool) {
	files, err := as.asides(name)
	if err != nil {
		return nil, false
	}
	for _, file := range files {
		a, err := as.readAside(name, file)
		if err != nil || !a.told || !a.why.failed && !as.isInPlace(a) {
			return nil, false
		}
		all = append(all, a)
	}
	return all, len(all) > 0
}

// isInPlace tells whether a log has the lines that were set aside, byte for byte, and is
// the same log. An error counts as no: the file in aside/ stays then.
func (as *asides) isInPlace(a *aside) bool {
	f, err := as.fs.Open(sessionlog.Path(a.Name), vfs.ReadOnly)
	if err != nil {
		return false
	}
	defer f.Close()
	if uid, err := sessionlog.ReadUID(f); err != nil || uid != a.UID {
		return false
	}
	there, err := has(f, &a.Entry)
	return there && err == nil
}

// putInPlace writes a session's lines that were set aside to its log, under write.lock
// and by the rules for entries of the ring (J3), and returns the files they were in; none
// if they do not fit. If it stops halfway, the next attempt finds the lines written so
// far equal.
func (ck *checkpoints) putInPlace(name string) (files []string, err error) {
	l, err := ck.lock.lockCaughtUp()
	if err != nil {
		return nil, err
	}
	defer l.unlock()
	all, ok := l.asides.readAsides(name) // more may have been set aside just now
	if !ok {
		return nil, nil
	}
	sess := l.logs.cached(name)
	// The cached state is that of a damaged session, or of one without these lines.
	defer func() { sess.known = false }()
	for _, a := range all {
		if why, err := l.logs.writeToLog(sess, &a.Entry); err != nil || why.reason != "" {
			return nil, err
		}
		// Also if the log has them: they may be in the page cache only, after a failed
		// sync. Written again, they are covered by the sync that follows (rule A).
		if err := writeLog(sess.f, a.Lines, a.Offset); err != nil {
			return nil, err
		}
		files = append(files, a.file)
	}
	return files, nil
}

// forgetAsides removes the files in aside/ whose lines are durable in the log, under
// write.lock. It compares once more: the lock was released for the sync, and the log may
// have been replaced. It returns whether nothing of the session is left in aside/.
func (ck *checkpoints) forgetAsides(name string, files []string) (bool, error) {
	l, err := ck.lock.lockCaughtUp()
	if err != nil {
		return false, err
	}
	defer l.unlock()
	for _, file := range files {
		a, err := l.asides.readAside(name, file)
		if errors.Is(err, fs.ErrNotExist) {
			continue // another process mended it
		}
		if err != nil || !a.told || !l.asides.isInPlace(a) {
			return false, err
		}
	}
	if err := l.asides.dropAsides(files); err != nil {
		return false, err
	}
	l.checks.checked.forget(name)
	l.logs.cached(name).known = false
	l.waiters.wake(name)
	left, err := l.asides.asides(name)
	return err == nil && len(left) == 0, err
}

// mendAll mends what can be mended. Errors are ignored here: the sessions stay damaged,
// with their reasons.
func (ck *checkpoints) mendAll() {
	names, _ := ck.asides.allAsides() // on an error, next time
	for name := range names {
		_, _ = ck.mend(name)
	}
}

// mended tells whether a call that was refused because of lines set aside may be
// repeated: the lines are in the log now, through us or another process. A call whose
// outcome is unknown must not be repeated here: it could be stored twice.
func (ck *checkpoints) mended(ctx context.Context, err error, name string) bool {
	var set *setAsideError
	if !errors.As(err, &set) || errors.Is(err, hansard.ErrUnknown) {
		return false
	}
	try := func() bool {
		if ok, err := ck.mend(name); ok || err != nil {
			return err == nil
		}
		left, err := ck.asides.asides(name)
		return err == nil && len(left) == 0
	}
	if ck.cfg.inline {
		return try()
	}
	// mend takes locks that can't be waited for with a context. It runs in a goroutine of
	// its own, so that the caller need not wait for it if the holder of a lock is
	// stopped; and one at a time, so that at most one such goroutine is left behind.
	timer := time.NewTimer(ck.opt.LockWait)
	defer timer.Stop()
	select {
	case ck.mending <- struct{}{}:
	case <-ctx.Done():
		return false
	case <-timer.C:
		return false
	}
	// Close waits for workers; one that is added after it began to wait would be missed.
	if !ck.beforeClose(func() { ck.workers.Add(1) }) {
		<-ck.mending
		return false
	}
	done := make(chan bool, 1)
	go func() {
		defer ck.workers.Done()
		done <- try()
		<-ck.mending
	}()
	select {
	case ok := <-done:
		return ok
	case <-ctx.Done():
	case <-timer.C:
	}
	return false
}
