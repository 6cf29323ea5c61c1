package filestore

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"hansard"
	"hansard/internal/vfs"
)

// session is what a process knows of one session: its open log, and the state
// behind its last line, pending entries included. Guarded by Store.wmu.
type session struct {
	id   hansard.SessionID
	name string

	f       vfs.File // nil when it is not open
	inode   uint64
	fileUID uint64 // the uid in its header; 0: not looked at yet

	known   bool // what follows is the state of the session
	stub    bool // there is a log, cut off in its first batch: no session
	exists  bool
	deleted bool
	damage  error // why writes are refused
	uid     uint64
	end     int64 // behind the last line
	seq     hansard.Seq
	crc     uint32     // of the last line
	metaAt  int64      // where the line with the newest metadata begins; 0: the header
	meta    *metaState // nil when it is not loaded
	turnAt  int64      // where the newest line about the turn begins; 0: none
	turn    *turnState // nil when it is not loaded

	inLog   int64  // how much of it is in the log: the file's expected size
	waiting int    // entries that are in the ring only
	waitEnd uint64 // end of the newest of them
	draft   *draft // lines of the group being planned
}

// maxSessions is how many sessions, and so open logs, a process keeps at hand.
const maxSessions = 1024

// cached is the cache's record of a session, possibly knowing nothing.
func (s *Store) cached(name string) *session {
	if sess := s.sessions[name]; sess != nil {
		return sess
	}
	if len(s.sessions) >= maxSessions {
		s.evict(maxSessions / 4)
	}
	id, _ := decodeName(name)
	sess := &session{id: id, name: name}
	s.sessions[name] = sess
	return sess
}

// evict forgets some sessions that no entry and no draft needs.
func (s *Store) evict(n int) {
	for name, sess := range s.sessions {
		if n == 0 {
			return
		}
		if sess.waiting == 0 && sess.draft == nil {
			sess.closeLog()
			delete(s.sessions, name)
			n--
		}
	}
}

func (sess *session) closeLog() {
	if sess.f != nil {
		_ = sess.f.Close() // nothing is buffered
		sess.f = nil
	}
}

// forget drops what is known of a session; its open log stays.
func (sess *session) forget() {
	*sess = session{id: sess.id, name: sess.name, f: sess.f, inode: sess.inode, fileUID: sess.fileUID,
		waiting: sess.waiting, waitEnd: sess.waitEnd}
}

// dropCaches forgets everything read from the ring and the logs.
func (s *Store) dropCaches() {
	for _, sess := range s.sessions {
		sess.closeLog()
	}
	s.sessions = map[string]*session{}
	s.pending, s.dirty = nil, map[string]dirtyLog{}
	s.cold = true
}

// lookup gives the state of a session to plan a write on. It makes sure that
// the log can be written and is the one we know, before anything is promised.
func (s *Store) lookup(id hansard.SessionID, name string) (*session, error) {
	sess := s.cached(name)
	if sess.known && sess.draft != nil {
		return sess, nil // looked at a moment ago, under the same lock
	}
	size, err := s.openLog(sess, false)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("open the log of session %s: %w", id, s.logError(id, err))
		}
		if sess.known && sess.exists && sess.inLog > 0 {
			sess.forget() // its log was removed
		}
	}
	if sess.known && sess.inLog == size {
		return sess, nil
	}
	changed := sess.known && sess.exists && sess.f != nil && sess.damage == nil
	sess.forget()
	if err := s.load(sess, size); err != nil {
		return nil, err
	}
	if changed && sess.damage == nil && size <= checkWhole {
		// Somebody else was at it: what he left is looked at in full.
		_, d, err := checkLog(sess.f, id, quickLine)
		if err != nil {
			sess.known = false
			return nil, err
		}
		if d != nil {
			sess.damage = d
			s.foundDamage(name, sess.inode, d)
		}
	}
	return sess, nil
}

// openLog makes sure that sess.f is the file its name leads to, and tells its
// size.
func (s *Store) openLog(sess *session, create bool) (size int64, err error) {
	path := logPath(sess.name)
	if sess.f != nil {
		inode, size, err := s.fs.Inode(path)
		if err == nil && inode == sess.inode {
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
	f, err := s.fs.Open(path, flags)
	if isTooManyFiles(err) {
		s.evict(len(s.sessions) / 2)
		f, err = s.fs.Open(path, flags)
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
	sess.f, sess.inode, sess.fileUID = f, inode, 0
	return size, nil
}

// load reads a session's state from its log and the entries that will follow.
func (s *Store) load(sess *session, size int64) error {
	sess.known = true
	settled, err := s.settled(sess, size)
	if err != nil {
		sess.known = false
		return err
	}
	if settled > 0 {
		if err := s.loadLog(sess, settled); err != nil {
			sess.known = false
			return err
		}
	}
	if err := s.knownDamage(sess); err != nil && sess.damage == nil {
		sess.damage = err
	}
	if was := s.dirty[sess.name]; was.end > s.w.start && sess.end < was.logEnd && sess.damage == nil {
		d := damagedAt(sess.id, sess.end, "the log is shorter than what was written to it: it had %d bytes", was.logEnd)
		if sess.f == nil {
			d.Reason = "the log is missing"
		}
		d.SafeSeq = sess.seq
		sess.exists, sess.damage = true, d
	}
	if sess.f != nil && size == 0 && sess.damage == nil && !s.isPending(sess.name) {
		sess.exists, sess.damage = true, damagedAt(sess.id, 0, "the log is empty")
	}
	sess.inLog, sess.waiting = sess.end, 0
	if settled < size && sess.damage == nil {
		sess.inLog = size
	}
	for _, e := range s.pending {
		if e.name == sess.name {
			sess.follow(e)
			sess.waiting++
			sess.waitEnd = e.end()
		}
	}
	return nil
}

// settled is how much of a log is there without the entries that are pending. One
// that died may have written them, or a part, and told nobody that they are
// durable: what they lead to is known from the ring, not from the log.
func (s *Store) settled(sess *session, size int64) (int64, error) {
	if sess.f == nil {
		return 0, nil
	}
	begin, end := size, size
	for _, e := range s.pending {
		switch {
		case e.name != sess.name:
			continue
		case begin == size && e.off < size:
			begin, end = e.off, e.off
		case e.off != end:
			return size, nil // it does not belong there: follow tells
		}
		there := make([]byte, min(size-end, int64(len(e.bytes))))
		if _, err := sess.f.ReadAt(there, end); err != nil && err != io.EOF {
			return 0, err
		}
		if !bytes.Equal(there, e.bytes[:len(there)]) {
			return size, nil // somebody else's doing
		}
		if end += int64(len(there)); end == size {
			return begin, nil
		}
	}
	return size, nil
}

// isPending tells whether the ring has entries that are to go to a log.
func (s *Store) isPending(name string) bool {
	for _, e := range s.pending {
		if e.name == name {
			return true
		}
	}
	return false
}

// loadLog reads the last line of a log and what is needed to write behind it.
func (s *Store) loadLog(sess *session, size int64) error {
	h, err := readHeader(sess.f, sess.id)
	if err == io.EOF || err == errEmptyLog {
		sess.stub = true
		return nil
	}
	if err != nil {
		return s.becomeDamaged(sess, err)
	}
	tail, err := readTail(sess.f, size)
	if err != nil {
		c, d, readErr := checkLog(sess.f, sess.id, decodeLine)
		switch {
		case readErr != nil:
			return readErr
		case d != nil:
			return s.becomeDamaged(sess, d)
		case c.safe == 0 && c.left > 0:
			sess.stub = true
			return nil
		}
		return s.becomeDamaged(sess, err)
	}
	if tail.end < size {
		if err := s.cutTail(sess, tail, size); err != nil {
			return s.becomeDamaged(sess, err)
		}
	}
	last := tail.last
	sess.exists, sess.uid, sess.fileUID = true, h.uid, h.uid
	sess.end, sess.seq, sess.crc = tail.end, last.Seq, last.crc
	sess.deleted = last.Deleted
	sess.metaAt, sess.turnAt = last.metaAt(tail.lastAt), last.turnAt(tail.lastAt)
	return nil
}

// becomeDamaged keeps a session's damage as its state; any other error is one
// of the moment and goes to the caller.
func (s *Store) becomeDamaged(sess *session, err error) error {
	var damaged *hansard.DamagedError
	if !errors.As(err, &damaged) {
		return err
	}
	damaged.Session = sess.id
	sess.exists, sess.damage = true, damaged
	return nil
}

// follow moves a session's state behind an entry; one that does not fit means
// that the log is not what the journal was written for.
func (sess *session) follow(e *entry) {
	fits := e.off == sess.end && (e.off == 0 || e.lprev == sess.crc && e.uid == sess.uid)
	if !fits {
		if sess.damage == nil {
			sess.exists = true
			sess.damage = &hansard.DamagedError{Session: sess.id, SafeSeq: sess.seq, Offset: sess.end,
				Reason: "the log was changed by somebody else: what the journal has does not follow it"}
		}
		return
	}
	sess.exists, sess.uid, sess.deleted = true, e.uid, e.del
	sess.end, sess.seq, sess.crc = e.off+int64(len(e.bytes)), hansard.Seq(e.last), e.lcrc
	if sess.metaAt != e.metaAt {
		sess.metaAt, sess.meta = e.metaAt, nil
	}
	if sess.turnAt != e.turnAt {
		sess.turnAt, sess.turn = e.turnAt, nil
	}
}

// note keeps track of an entry that is in the ring.
func (s *Store) note(e *entry) {
	d := s.dirty[e.name]
	d.end = e.end()
	s.dirty[e.name] = d
	if e.end() > s.w.applied {
		s.pending = append(s.pending, e)
	} else {
		s.noteApplied(e)
	}
}

// noteApplied keeps how long a log is at least, now that an entry is in it.
func (s *Store) noteApplied(e *entry) {
	d := s.dirty[e.name]
	d.logEnd = e.off + int64(len(e.bytes))
	s.dirty[e.name] = d
}

// inLog tells whether an entry's bytes stand in its log.
func (s *Store) inLog(e *entry) bool {
	sess := s.cached(e.name)
	if _, err := s.openLog(sess, false); err != nil {
		return false
	}
	b := make([]byte, len(e.bytes))
	n, err := sess.f.ReadAt(b, e.off)
	return (err == nil || err == io.EOF) && n == len(b) && string(b) == string(e.bytes)
}

// logError types what can be wrong with a log that can't be opened.
func (s *Store) logError(id hansard.SessionID, err error) error {
	switch {
	case isReadOnly(err):
		return fmt.Errorf("%w: %w", hansard.ErrReadOnly, err)
	case isNoSpace(err):
		return fmt.Errorf("%w: %w", hansard.ErrNoSpace, err)
	case isForeign(err):
		return damagedAt(id, 0, "the log can't be opened: %v", err)
	}
	return err
}
