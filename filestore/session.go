package filestore

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"hansard"
	"hansard/filestore/internal/journal"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

// The state of a session, as a write needs it: what the next line has to follow. It comes
// from two places, the log and the entries that are on their way there:
//
//	log    ├── header ── lines ───────────────┤· · · ahead · ·┤
//	                                          settled         size
//	ring                                      ├─ entry ─ entry ─ entry ─┤
//	state                                                               end, seq, crc
//
// The log alone is not enough: seqs would be assigned on a state without what other
// processes wrote a moment ago. The ring alone is not enough either: it forgets what a
// checkpoint made durable.
//
// All of it is a cache, guarded by write.lock and checked before use: lookup compares the
// inode and the size of the log with the expected ones, so a log that was edited,
// replaced or removed from outside is noticed before a write is promised. Start at
// lookup; plan.go is the caller, apply.go writes the log.

// session is what a process knows of one session: its open log, and the state after its
// last line, including pending entries and drafted lines. Guarded by write.lock.
type session struct {
	id   hansard.SessionID
	name string

	// f is the open log, nil when it is not open; inode tells whether the name still
	// leads to it. Without O_APPEND: apply writes at offsets.
	f       vfs.File
	inode   uint64
	fileUID uint64 // the uid in its header; 0: not read yet
	// seenIn is the stamp of the logs' directory when the name was last seen to lead to
	// inode; zero: not known.
	seenIn vfs.DirStamp

	known bool // the fields below are the state of the session
	stub  bool // there is a log, cut off in its first batch: not a session yet
	// forkOf is the uid of a stub that was placed for a fork; 0: any other stub.
	forkOf  uint64
	exists  bool
	deleted bool
	damage  error  // why writes are refused
	uid     uint64 // of the log, as its entries name it
	end     int64  // after the last line
	seq     hansard.Seq
	crc     uint32                // of the last line
	metaAt  int64                 // where the line with the newest metadata begins; 0: the header
	meta    *sessionlog.MetaState // nil when it is not loaded
	turnAt  int64                 // where the newest line about the turn begins; 0: none
	turn    *sessionlog.TurnState // nil when it is not loaded

	// ahead is how many bytes of pending entries the log already had when it was loaded:
	// a process that died in apply wrote them and published nothing. They count for
	// length, not for the state.
	ahead int64
	draft *draft // lines of the group being planned; nil outside of a plan
}

// logs are the logs this process has open to write to, the entries on their way there,
// and which logs got any since the ring's start. Everything is guarded by write.lock,
// except dirty, which readers use and which has its own mutex.
type logs struct {
	*process
	asides   *asides
	checks   *checks
	sessions map[string]*session // by name of the log; at most about maxSessions
	// pending are the entries that are not in the logs yet, dirty the logs that received
	// entries since the ring's start, with the end of the last.
	pending pendingEntries
	dirty   *dirtyLogs
	// redacted are the logs for which this process may have a descriptor from before they
	// were redacted.
	redacted map[string]bool
	// dir is the stamp of the logs' directory during this hold of write.lock, if no
	// change in the directory can leave the stamp unchanged; zero: check each log
	// (unmoved.go).
	dir vfs.DirStamp
}

// maxSessions is how many sessions, and so open logs, a process keeps. It is well below
// the usual limits on open files; where those are lower, openLog evicts on EMFILE.
const maxSessions = 1024

// cached is the cache's record of a session, a new and empty one if there is none. It may
// evict others, which are then unusable: keep no *session across calls of cached unless
// it has a draft or a pending entry.
func (ol *logs) cached(name string) *session {
	if sess := ol.sessions[name]; sess != nil {
		return sess
	}
	if len(ol.sessions) >= maxSessions {
		// A few at random (map order), not the oldest: a round robin over slightly more
		// sessions than fit would miss every time with LRU.
		ol.evict(maxSessions/64, nil)
	}
	id, _ := sessionlog.DecodeName(name)
	sess := &session{id: id, name: name}
	ol.sessions[name] = sess
	return sess
}

// nameOf is the name of a log as a string, without an allocation if the log is cached.
func (ol *logs) nameOf(name []byte) string {
	if sess := ol.sessions[string(name)]; sess != nil {
		return sess.name
	}
	return string(name)
}

// evict closes and forgets up to n sessions. Those with pending entries or a draft stay:
// their state is not in the log yet. So does the one the caller is about to use: a draft
// on a session that is not in the map any more would be planned a second time by the next
// request of the group (TestEvictKeepsTheOpened).
func (ol *logs) evict(n int, except *session) {
	for name, sess := range ol.sessions {
		if n == 0 {
			return
		}
		if sess != except && len(ol.pending.of(name)) == 0 && sess.draft == nil {
			sess.closeLog()
			delete(ol.sessions, name)
			n--
		}
	}
}

// closeLog closes the log; the state stays known.
func (sess *session) closeLog() {
	if sess.f != nil {
		_ = sess.f.Close() // nothing is buffered
		sess.f = nil
	}
}

// closeTaken closes the log after a tombstone or a redaction was applied to it. An open
// descriptor would keep the removed bytes on the disk after the file is replaced (W6;
// TestDeletedIsClosed, TestRedactedIsClosed).
func (sess *session) closeTaken(e *journal.Entry) {
	if e.Deletes || e.Redacts {
		sess.closeLog()
	}
	// It is about to be replaced by a log with other checksums. Without a descriptor its
	// inode proves nothing: the number may be reused.
	if e.Redacts {
		sess.forget()
	}
}

// forget drops what is known of a session, its draft included; its open log stays.
func (sess *session) forget() {
	*sess = session{id: sess.id, name: sess.name, f: sess.f, inode: sess.inode, fileUID: sess.fileUID, seenIn: sess.seenIn}
}

// dropCaches forgets everything read from the ring and the logs; the next catchup begins
// at the ring's start. Needed whenever the ring may not be the one that the caches were
// read from (CacheEpoch), and after a failed write to it: the caches expect entries that
// may not be there, and seqs would continue after lines that nobody can read.
func (l *locked) dropCaches() {
	for _, sess := range l.logs.sessions {
		sess.closeLog()
	}
	l.logs.sessions = map[string]*session{}
	l.logs.pending = pendingEntries{}
	l.logs.dirty.reset()
	l.cold = true
}

// lookup returns the state of a session to plan a write on, under write.lock and after
// catchup. It makes sure that the log can be opened for writing and is the one we know,
// before anything is in the ring: afterwards there is no "not stored"
// (UnknownAfterWrite).
//
// A session that does not exist, is deleted or damaged is no error here; its fields say
// so. An error is a temporary one (EMFILE, EIO, no permission) and refuses the request.
func (l *locked) lookup(id hansard.SessionID, name string) (*session, error) {
	sess, err := l.lookupLog(id, name)
	if err == nil && sess.deleted && sess.draft == nil && len(l.logs.pending.of(name)) == 0 {
		sess.closeLog() // nothing will be written to it
	}
	return sess, err
}

// lookupLog is lookup, but leaves the log of a deleted session open.
func (l *locked) lookupLog(id hansard.SessionID, name string) (*session, error) {
	sess := l.logs.cached(name)
	if sess.known && sess.draft != nil {
		return sess, nil // checked for an earlier request of this group, under the same lock
	}
	if sess.deleted && sess.f == nil && len(l.logs.pending.of(name)) == 0 {
		sess.forget() // a new session may have this id by now (reuse.go)
	}
	// A session we knew to be sound and have to load again was modified from outside.
	// openLog and forget below erase the traces of that, so remember it now.
	changed := sess.known && sess.exists && sess.f != nil && sess.damage == nil
	size, err := l.logs.openLog(sess, false)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("open the log of session %s: %w", id, l.logError(id, err))
		}
		if l.sessionsGone() {
			return nil, errSessionsGone
		}
		// Removed from outside. A session whose first entry is still pending has no log
		// yet, and its state is valid.
		if sess.known && sess.exists && l.logs.length(sess) > 0 {
			sess.forget()
		}
	}
	// The usual case: same inode, expected size. Damage because of lines set aside is
	// checked again: another process may have added them to the log.
	if sess.known && l.logs.length(sess) == size && !isSetAside(sess.damage) {
		return sess, nil
	}
	sess.forget()
	if err := l.load(sess, size); err != nil {
		return nil, err
	}
	if changed && sess.f != nil && sess.damage == nil && !sess.deleted && size <= checkWhole {
		// Modified from outside. load has read the end only, and this log was checked in
		// full before, so nothing else would check its middle again.
		_, d, err := sessionlog.Check(sess.f, id, new(sessionlog.Decoder).Head)
		if err != nil {
			sess.known = false
			return nil, err
		}
		if d != nil {
			sess.damage = d
			l.checks.foundDamage(name, sess.inode, d)
		}
	}
	return sess, nil
}

// openLog makes sure that sess.f is the file that its name leads to now, and returns its
// size; with create it creates a missing one. A log that was replaced is opened anew and
// the state forgotten: lines written to the old inode would be in no file that anybody
// reads (LogInode; failure 16). fs.ErrNotExist: there is no log; sess.f is nil then.
func (ol *logs) openLog(sess *session, create bool) (size int64, err error) {
	if sess.f != nil {
		if size, ok := ol.unmoved(sess); ok {
			return size, nil
		}
	}
	path := sessionlog.Path(sess.name)
	if sess.f != nil {
		inode, size, err := ol.fs.Inode(path)
		if err == nil && inode == sess.inode {
			sess.seenIn = ol.dir
			return size, nil
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, err
		}
		sess.closeLog()
		sess.forget()
	}
	flags := vfs.Flag(0)
	if create {
		flags = vfs.Create
	}
	f, err := ol.openOrMake(path, flags)
	if isTooManyFiles(err) {
		// Our own open logs can be closed. Without this a process with a low limit could
		// never apply an entry, and there may be no other process to do it.
		ol.evict(len(ol.sessions)/2, sess)
		f, err = ol.openOrMake(path, flags)
	}
	if err != nil {
		return 0, err
	}
	inode, err := f.Inode()
	if err == nil {
		size, err = f.Size()
	}
	if err != nil {
		_ = f.Close()
		return 0, err
	}
	// Not ol.dir: that may have been read before the log was replaced from outside.
	sess.f, sess.inode, sess.fileUID, sess.seenIn = f, inode, 0, vfs.DirStamp{}
	return size, nil
}

// openOrMake opens a log, and records the state of sessions/ if it creates it.
func (ol *logs) openOrMake(path string, flags vfs.Flag) (f vfs.File, err error) {
	if flags&vfs.Create != 0 {
		if _, _, missing := ol.fs.Inode(path); errors.Is(missing, fs.ErrNotExist) {
			err = ol.inCustody(func() error { f, err = ol.fs.Open(path, flags); return err })
			return f, err
		}
	}
	return ol.fs.Open(path, flags)
}

// load reads a session's state from its log, size bytes long, and the pending entries
// after it. sess was forgotten before; its log is open if there is one. Damage becomes
// part of the state. After an error nothing is known, and the next lookup tries again.
func (l *locked) load(sess *session, size int64) error {
	sess.known = true
	// What was applied to this log according to the ring has to be in it; its last line
	// stands for all. If not, the log was shortened or replaced from outside.
	was := l.logs.dirty.get(sess.name)
	lost := was.end > l.w.Start && was.logEnd > 0
	aside, err := l.asides.asides(sess.name)
	settled := int64(0)
	if err == nil {
		settled, err = l.logs.settled(sess, size)
	}
	if err == nil && lost && sess.f != nil {
		var there bool
		there, err = was.isIn(sess.f)
		lost = !there
	}
	if err != nil {
		sess.known = false
		return err
	}
	if settled > 0 {
		// An unfinished end is cut off only if we know where it comes from. If lines were
		// lost or set aside, it may be part of what a repair needs.
		if err := l.logs.loadLog(sess, settled, !lost && len(aside) == 0); err != nil {
			sess.known = false
			return err
		}
	}
	known, err := l.checks.knownDamage(sess)
	if err != nil {
		sess.known = false
		return err
	}
	if known != nil && sess.damage == nil && !sess.deleted {
		sess.exists, sess.damage = true, known
	}
	if lost && sess.damage == nil {
		d := lostLines(sess.id, sess.f == nil, sess.end, was.logEnd)
		d.SafeSeq = sess.seq
		sess.exists, sess.damage = true, d
	}
	// An empty log that no entry is about to fill was emptied: apply creates a log and
	// writes to it under one lock. Corrupt is not empty (failures F4 and 24).
	if sess.f != nil && size == 0 && sess.damage == nil && len(l.logs.pending.of(sess.name)) == 0 {
		sess.exists, sess.damage = true, sessionlog.DamagedAt(sess.id, 0, "the log is empty")
	}
	if sess.damage != nil && was.end > l.w.Start {
		// The ring may have what the log has lost: set it aside before the damage is
		// reported. If that fails now, the checkpoint that frees the ring does it.
		_ = l.keepLost(sess.name)
		sess.known = true // keepLost has marked it unknown
	}
	sess.ahead = 0
	if settled < size && sess.damage == nil {
		sess.ahead = size - settled
	}
	for _, e := range l.logs.pending.of(sess.name) {
		sess.follow(e.Entry)
	}
	return nil
}

// settled is the length of a log without its pending entries. A process that died in
// apply may have written them, or a part of them, and published nothing: to us they are
// still pending, and the state after them is known from the ring (TestJoinBehindTheDead).
// Reading the state from the end of the log as well would count them twice, and a partly
// written entry would look like an unfinished line to be cut off.
//
// If the log has other bytes where the entries belong, all of it counts as settled, and
// follow or apply finds that the entries do not fit.
func (ol *logs) settled(sess *session, size int64) (int64, error) {
	if sess.f == nil {
		return 0, nil
	}
	begin, end := size, size
	for _, e := range ol.pending.of(sess.name) {
		switch {
		case begin == size && e.Offset < size:
			begin, end = e.Offset, e.Offset
		case e.Offset != end:
			return size, nil // it does not follow: follow reports it
		}
		there := make([]byte, min(size-end, int64(len(e.Lines))))
		if _, err := sess.f.ReadAt(there, end); err != nil && err != io.EOF {
			return 0, err
		}
		if !bytes.Equal(there, e.Lines[:len(there)]) {
			return size, nil // modified from outside
		}
		if end += int64(len(there)); end == size {
			return begin, nil
		}
	}
	return size, nil
}

// length is how long the log of a session should be now: it ends where its first pending
// entry begins, plus the part of the entries that was there ahead of time. Another size
// means that it was modified from outside. It is computed, not stored: commit, catchup
// and apply add and drop entries, and each would have to maintain a stored length.
func (ol *logs) length(sess *session) int64 {
	if of := ol.pending.of(sess.name); len(of) > 0 {
		return of[0].Offset + sess.ahead
	}
	return sess.end + sess.ahead
}

// loadLog reads the header and the last line of the first size bytes of a log: all that
// is needed to write after it, at the same cost for every length. cut: an unfinished end,
// which a copied or restored file may have, goes to evidence/ and is cut off, so that the
// next line does not fuse with it (W2; failure 21).
func (ol *logs) loadLog(sess *session, size int64, cut bool) error {
	h, err := sessionlog.ReadHeader(sess.f, sess.id)
	if err == io.EOF && h != nil {
		if err = ol.forkUnfinished(sess.f, sess.name, sess.id, h); err == io.EOF {
			return sess.placedFork(h)
		}
	}
	if err == io.EOF || err == sessionlog.ErrEmptyLog {
		// Its first batch is not whole: none of it was acknowledged, so it is no session.
		sess.stub = true
		return nil
	}
	if err != nil {
		return ol.becomeDamaged(sess, err)
	}
	tail, err := sessionlog.FindTail(sess.f, size, sessionlog.HeadOrTurn)
	if err != nil {
		// The end is not sound. Reading all of it under the lock is slow, but happens
		// once: the damage is remembered. It distinguishes damage from an unfinished
		// first batch.
		c, d, readErr := sessionlog.Check(sess.f, sess.id, new(sessionlog.Decoder).Decode)
		switch {
		case readErr != nil:
			return readErr
		case d != nil:
			return ol.becomeDamaged(sess, d)
		case c.Safe == 0 && c.Left > 0:
			sess.stub = true
			return nil
		}
		return ol.becomeDamaged(sess, err)
	}
	if cut && tail.End < size {
		if err := ol.cutTail(sess, tail, size); err != nil {
			return ol.becomeDamaged(sess, err)
		}
	}
	last := tail.Last
	sess.exists, sess.uid, sess.fileUID = true, h.LogUID, h.LogUID
	sess.end, sess.seq, sess.crc = tail.End, last.Seq, last.CRC
	sess.deleted = last.Deleted
	sess.metaAt, sess.turnAt = last.NewestMeta(tail.LastAt), last.NewestTurn(tail.LastAt)
	return nil
}

// placedFork is loadLog for a log that was placed for a fork whose own first line is not
// there: no session yet, and the state that line will follow.
func (sess *session) placedFork(h *sessionlog.Header) error {
	sess.stub, sess.forkOf = true, h.LogUID
	tail, err := sessionlog.FindTail(sess.f, h.Own, sessionlog.HeadOrTurn)
	if err != nil {
		return err
	}
	last := tail.Last
	sess.uid, sess.fileUID = h.LogUID, h.LogUID
	sess.end, sess.seq, sess.crc = tail.End, last.Seq, last.CRC
	sess.metaAt, sess.turnAt = last.NewestMeta(tail.LastAt), last.NewestTurn(tail.LastAt)
	return nil
}

// becomeDamaged makes damage part of the session's state. Any other error is temporary
// and returned to the caller: a single read that fails with EIO must not mark a session
// damaged.
func (ol *logs) becomeDamaged(sess *session, err error) error {
	var damaged *hansard.DamagedError
	if !errors.As(err, &damaged) {
		return err
	}
	damaged.Session = sess.id
	sess.exists, sess.damage = true, damaged
	return nil
}

// follow moves a session's state past an entry of the ring, without reading the log: the
// entry's header has all that is needed. An entry that does not continue the state was
// written for another log; the session becomes damaged rather than assign a seq twice.
func (sess *session) follow(e *journal.Entry) {
	fits := e.Offset == sess.end && (e.Offset == 0 || e.LinePrev == sess.crc && e.UID == sess.uid)
	if !fits {
		if sess.damage == nil {
			sess.exists = true
			sess.damage = &hansard.DamagedError{Session: sess.id, SafeSeq: sess.seq, Offset: sess.end,
				Reason: "the log was modified from outside: what the journal has does not follow it"}
		}
		return
	}
	sess.exists, sess.uid, sess.deleted = true, e.UID, e.Deletes
	sess.stub, sess.forkOf = false, 0
	sess.end, sess.seq, sess.crc = e.Offset+int64(len(e.Lines)), hansard.Seq(e.LastSeq), e.LineCRC
	// Metadata and turn are loaded only when they are needed, and reloaded only if the
	// entry changed them.
	if sess.metaAt != e.MetaAt {
		sess.metaAt, sess.meta = e.MetaAt, nil
	}
	if sess.turnAt != e.TurnAt {
		sess.turnAt, sess.turn = e.TurnAt, nil
	}
}

// inLog tells whether an entry's bytes are in its log, under write.lock. A log that can't
// be opened or read counts as one without them.
func (ol *logs) inLog(e *journal.Entry) bool {
	sess := ol.cached(e.Name)
	if _, err := ol.openLog(sess, false); err != nil {
		return false
	}
	there, err := has(sess.f, e)
	return there && err == nil
}

// logError types an error on opening a log for writing: ErrReadOnly, ErrNoSpace, damage
// if something that is not a log has its name, else the error with a hint.
func (p *process) logError(id hansard.SessionID, err error) error {
	switch {
	case isReadOnly(err):
		return fmt.Errorf("%w: %w", hansard.ErrReadOnly, p.explain(err))
	case isNoSpace(err):
		return fmt.Errorf("%w: %w", hansard.ErrNoSpace, err)
	case isForeign(err):
		return sessionlog.DamagedAt(id, 0, "the log can't be opened: %v", err)
	}
	return p.explain(err)
}
