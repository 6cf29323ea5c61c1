package filestore

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
	"sync/atomic"
	"syscall"

	"hansard"
	"hansard/filestore/internal/journal"
	"hansard/filestore/internal/peers"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

// From the ring to the logs, and the few other ways in which a log is written. All of it
// except keep happens under write.lock. Three things hold here:
//
//   - Only what is durable in the ring goes to a log (J1): readers take no lock, and what
//     they are shown must survive a power cut.
//   - Before a write the log is compared with the state that the entry was written for
//     (J3), so applying twice changes nothing, and what a killed process began is
//     finished.
//   - Bytes that are not ours are never overwritten or cut (invariant 17). If the log is
//     not as expected, our lines are set aside (aside.go) and other sessions go on.

// evidenceDir keeps the original bytes of whatever is cut off or replaced.
const evidenceDir = "evidence"

// apply copies the durable pending entries to the logs, in ring order, under write.lock.
// It stops where the disk is full or a file can't be opened at the moment. Nothing is
// lost: the entries stay in the ring, and the next holder of the lock continues there. It
// does not skip (rule ApplyStops): a later entry of the same log would not fit behind the
// log's end, and would be set aside.
func (l *locked) apply() error {
	pending := &l.logs.pending
	done, err := l.applyEntries(pending.upTo(l.lim))
	if done > 0 {
		l.w.Applied = pending.all[done-1].End()
	}
	pending.drop(done)
	// Padding has no log: it counts as applied with the entry before it, but only as far
	// as it is durable. Otherwise a probe would be answered before its sync
	// (TestProbeNotDurable).
	next := l.cursor
	if len(pending.all) > 0 {
		next = pending.all[0].Pos
	}
	l.w.Applied = max(l.w.Applied, min(next, l.lim))
	if isNoSpace(err) {
		l.w.Flags |= peers.FlagNoSpace
		return nil // checkDisk refuses writers; the entries wait in the ring
	}
	if err == nil {
		l.w.Flags &^= peers.FlagNoSpace
	}
	return err
}

// maxFailed is how often an entry's log may fail with EIO before the entry is set aside.
const maxFailed = 3

// applyInRecovery is apply for a process whose next attempt starts from nothing: it joins
// anew, and has forgotten how often an entry failed. So all attempts are made at once.
// Otherwise a log on a bad spot of the disk would keep the store from being opened for
// writing, for ever (failure 69; TestFailure69_BadLogAtRecovery).
func applyInRecovery(l *locked) error {
	for {
		err := l.apply()
		all := l.logs.pending.all
		if !errors.Is(err, syscall.EIO) || len(all) == 0 || all[0].failed == 0 || all[0].failed >= maxFailed {
			return err // after maxFailed attempts: it can't be set aside either
		}
	}
}

// manyEntries is the number of entries from which writing logs in parallel pays off.
const manyEntries = 16

// applyEntries writes entries to their logs and returns how many are done, counted from
// the first. Later ones may be written too; the next attempt finds them equal. The error
// is that of the first entry that is not done.
func (l *locked) applyEntries(entries []*pendingEntry) (done int, err error) {
	if len(entries) >= manyEntries && !l.cfg.inline {
		if l.logs.dir == (vfs.DirStamp{}) {
			l.logs.lookAtDir()
		}
		l.writeSideBySide(entries)
	}
	for _, e := range entries {
		if err = l.applyEntry(e); err != nil {
			break
		}
		done++
	}
	// write.lock is given back before the next attempt, and somebody may change the log
	// meanwhile.
	for _, e := range entries[done:] {
		e.written = false
	}
	return done, err
}

// writeSideBySide writes the entries of logs that are open, by two goroutines if no other
// process is writing; those of one log in order and by one goroutine. It handles only the
// plain case, which is nearly every entry; what failed, or needs more than a write, is
// left to applyEntry, which decides about setting aside one entry at a time. Nothing but
// e.written changes.
func (l *locked) writeSideBySide(entries []*pendingEntry) {
	of := make(map[*session]int, len(entries))
	var logs []*session
	var toWrite [][]*pendingEntry // the entries for logs[i], in ring order
	for _, e := range entries {
		sess := l.logs.sessions[e.Name]
		if sess == nil || sess.f == nil {
			continue
		}
		i, ok := of[sess]
		if !ok {
			i, of[sess] = len(logs), len(logs)
			logs, toWrite = append(logs, sess), append(toWrite, nil)
		}
		toWrite[i] = append(toWrite[i], e)
	}
	// The goroutine that is free takes the next log. Fixed halves would be slower: the
	// second goroutine starts late.
	var taken atomic.Int64
	write := func() {
		for i := taken.Add(1) - 1; i < int64(len(logs)); i = taken.Add(1) - 1 {
			for _, e := range toWrite[i] {
				if e.written = l.logs.writeInPlace(logs[i], e.Entry); !e.written {
					break
				}
			}
		}
	}
	var other sync.WaitGroup
	if l.company == 0 { // else the other processes have work for the other processors
		other.Go(write)
	}
	write()
	other.Wait()
}

// writeInPlace writes an entry after the line it was made for, if its log is open, still
// the file its name leads to (rule LogInode) and ends with that line. If it returns
// false, any part of the entry may be written.
func (ol *logs) writeInPlace(sess *session, e *journal.Entry) bool {
	if e.Offset == 0 || sess.fileUID != e.UID {
		return false
	}
	if !ol.inPlace(sess) {
		inode, size, err := ol.fs.Inode(sessionlog.Path(sess.name))
		if err != nil || inode != sess.inode || size != e.Offset {
			return false
		}
		sess.seenIn = ol.dir
	}
	return sessionlog.EndsWith(sess.f, e.Offset, e.LinePrev) && writeLog(sess.f, e.Lines, e.Offset) == nil
}

// applyEntry writes one entry to its log or sets it aside. On nil the entry is done with,
// either way. An error means that it has to be tried again, and nothing after it may be
// applied before that.
func (l *locked) applyEntry(e *pendingEntry) error {
	sess := l.logs.cached(e.Name)
	var why asideWhy
	if !e.written {
		var err error
		if why, err = l.logs.writeToLog(sess, e.Entry); err != nil {
			// A bad sector must not keep every other session from going on, so after
			// three attempts the lines are set aside and mended later (mend.go, failure
			// 58). Other errors, such as too many open files, are not about this log: the
			// entry is retried for as long as they last.
			if e.failed++; e.failed < maxFailed || !errors.Is(err, syscall.EIO) {
				return fmt.Errorf("write the log of session %s: %w", sess.id, err)
			}
			why = couldNot(err)
		}
	}
	if why.reason != "" {
		if err := l.asides.setAside(e.Entry, why); err != nil {
			return err
		}
		l.w.Flags |= peers.FlagAside
		// The session is damaged now. Our cached state counts lines that are not in its
		// log.
		sess.forget()
	}
	if why.reason == "" {
		// From here on the log is expected to have these lines: see dirty.go.
		l.logs.noteApplied(e.Entry)
		sess.ahead = 0
		sess.closeTaken(e.Entry)
	}
	return nil
}

// writeToLog does the comparing and the writing (J3). A why with a reason is not an
// error: the log was modified from outside, or this user may not write it, and the caller
// sets the entry aside. An error is temporary. Any part of the entry may be written then;
// the next attempt completes it.
//
//	the log ends at the entry's offset, after the line before it   write
//	the beginning of the entry is there                            write the rest
//	all of it is there                                             nothing
//	it differs in NULs only                                        write it again
//	anything else                                                  set aside
//
// The log is opened without O_APPEND: with it Linux ignores the offset, and doing it
// again would duplicate lines (planted bug "append mode").
func (ol *logs) writeToLog(sess *session, e *journal.Entry) (why asideWhy, err error) {
	size, err := ol.openLog(sess, e.Offset == 0)
	switch {
	case errors.Is(err, fs.ErrNotExist) && ol.sessionsGone():
		return why, errSessionsGone // all logs are missing: setting everything aside would not help
	case errors.Is(err, fs.ErrNotExist):
		return changedLog("it is missing"), nil
	case errors.Is(err, fs.ErrPermission):
		return couldNot(err), nil
	case err != nil && !isForeign(err):
		return why, err
	case err != nil:
		return changedLog(err.Error()), nil
	}
	// The uid tells apart two logs of the same name, such as one that was removed and one
	// that was copied to its place.
	if size > 0 && e.Offset > 0 {
		if sess.fileUID == 0 {
			if sess.fileUID, err = sessionlog.ReadUID(sess.f); err != nil {
				return why, err
			}
		}
		if sess.fileUID != e.UID {
			return ol.unlessErased(sess, e, "it is another session's")
		}
	}
	if size < e.Offset {
		return ol.unlessErased(sess, e, "it is shorter than what was written to it")
	}
	if size == e.Offset {
		// Same length is not enough: somebody may have edited a line in place.
		if e.Offset > 0 {
			crc, err := sessionlog.CRCBefore(sess.f, e.Offset)
			if err != nil {
				return why, err
			}
			if crc != e.LinePrev {
				return ol.unlessErased(sess, e, "its last line is another one")
			}
		}
		return why, writeLog(sess.f, e.Lines, e.Offset)
	}
	// Another process was killed in the middle of this write, or did it and could not
	// publish it, or this is recovery and the log was durable already.
	there := make([]byte, min(size-e.Offset, int64(len(e.Lines))))
	if _, err := sess.f.ReadAt(there, e.Offset); err != nil && err != io.EOF {
		return why, err
	}
	switch {
	case bytes.Equal(there, e.Lines):
		return why, nil
	case bytes.Equal(there, e.Lines[:len(there)]):
		return why, writeLog(sess.f, e.Lines[len(there):], e.Offset+int64(len(there)))
	case onlyNULsDiffer(there, e.Lines):
		// A power cut kept the file's length and lost pages of its content (rule
		// HolesFilled), or the kernel dropped pages that it could not write (LiveHoles).
		// No line has a NUL in it, so nobody's bytes are overwritten.
		return why, writeLog(sess.f, e.Lines, e.Offset)
	}
	return ol.unlessErased(sess, e, "it has other content where this belongs")
}

// unlessErased returns the reason why an entry does not fit its log, or no reason if the
// session was deleted or redacted and the content is gone. Then the journal is older than
// the log: it was restored from a backup, or salvaged without a valid slot. The entry's
// content was removed on purpose, so this is not damage.
func (ol *logs) unlessErased(sess *session, e *journal.Entry, reason string) (asideWhy, error) {
	uid, erased, err := sessionlog.ReadErased(sess.f, sess.id)
	if err != nil || erased && uid == e.UID || sessionlog.FollowsDeleted(sess.f, sess.id, e.UID) {
		return asideWhy{}, err
	}
	if redacted, err := hasRedacted(sess.f, e); err != nil || redacted {
		return asideWhy{}, err
	}
	return changedLog(reason), nil
}

// hasRedacted tells whether a log has an entry's lines, except for what was redacted
// since.
func hasRedacted(f vfs.File, e *journal.Entry) (bool, error) {
	there := make([]byte, len(e.Lines))
	if n, err := f.ReadAt(there, e.Offset); err != nil && err != io.EOF || n < len(there) {
		if err == io.EOF {
			err = nil
		}
		return false, err
	}
	return sessionlog.SameButRedacted(there, e.Lines), nil
}

// writeLog writes at an offset. A short write is an error, and is found and completed by
// the comparison the next time.
func writeLog(f vfs.File, b []byte, off int64) error {
	_, err := f.WriteAt(b, off)
	return err
}

// onlyNULsDiffer tells whether there, as far as it goes, equals want except for NUL
// bytes, which are lost pages.
func onlyNULsDiffer(there, want []byte) bool {
	for i := range there {
		if there[i] != want[i] && there[i] != 0 {
			return false
		}
	}
	return true
}

// keep makes a file with these bytes, durable before it returns, directories included:
// bytes that are about to be cut or removed are then found in one place or the other
// after a power cut (failure 30). Keeping the same bytes under the same name again is
// harmless, so after a process died half-way its work is simply repeated.
func (p *process) keep(dir, name string, b []byte) (err error) {
	if err := p.fs.Mkdir(dir); err != nil {
		return err
	}
	f, err := p.fs.Open(dir+"/"+name, vfs.Create)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.WriteAt(b, 0); err != nil {
		return err
	}
	if err := f.Datasync(); err != nil {
		return err
	}
	if err := p.fs.SyncDir(dir); err != nil {
		return err
	}
	return p.fs.SyncDir(".")
}

// cutTail cuts an unfinished end off a log, so that the next line does not fuse with it
// (W2, failure 21), after keeping it in evidence/. Only a copied or restored log has such
// an end: our own are completed from the ring. Nothing else is ever cut: bytes that do
// not look like an unfinished line are somebody's edit, and the session is damaged.
func (ol *logs) cutTail(sess *session, tail *sessionlog.Tail, size int64) error {
	end := tail.End
	torn := make([]byte, size-end)
	if _, err := sess.f.ReadAt(torn, end); err != nil && err != io.EOF {
		return err
	}
	if !sessionlog.LooksUnfinished(torn) {
		return &hansard.DamagedError{Session: sess.id, Offset: end, SafeSeq: tail.Last.Seq, Reason: "the last line is not one of a log"}
	}
	// The disk was full in the middle of an entry: those bytes are acknowledged or may
	// be, and apply will complete them.
	for _, e := range ol.pending.of(sess.name) {
		if e.Offset == end {
			return errors.New("an unfinished line waits for its journal entry")
		}
	}
	return ol.cut(sess, torn, end)
}

// cut keeps bytes as evidence and cuts them off a log, durably in this order: after a
// power cut there are both, or the evidence alone. The name has a random part, because
// the same offset may be cut again.
func (ol *logs) cut(sess *session, torn []byte, end int64) error {
	name := fmt.Sprintf("%s.%d.%016x", sess.name, end, ol.cfg.random())
	if err := ol.keep(evidenceDir, name, torn); err != nil {
		return err
	}
	if err := sess.f.Truncate(end); err != nil {
		return err
	}
	// If a power cut undid the truncation after a later line was written there, the old
	// bytes and the new line would be mixed.
	return sess.f.Datasync()
}

// cutStub empties a log that ends within its first batch. Such a log is not a session
// (R1), and its name is needed for one that is about to be created.
func (ol *logs) cutStub(sess *session) error {
	if sess.forkOf != 0 {
		if err := ol.cutFork(sess); err != nil {
			return err
		}
		*sess = session{id: sess.id, name: sess.name, f: sess.f, inode: sess.inode, known: true}
		return nil
	}
	b, err := ol.readAll(sessionlog.Path(sess.name))
	if err != nil {
		return err
	}
	if err := ol.cut(sess, b, 0); err != nil {
		return err
	}
	sess.stub, sess.fileUID = false, 0
	return nil
}

// isForeign tells whether an error from opening a log will not go away by itself: a
// directory, a link, a file that belongs to another user.
func isForeign(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, vfs.ErrNotRegular)
}
