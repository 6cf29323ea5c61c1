package filestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"hansard"
	"hansard/engine"
	"hansard/filestore/internal/journal"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

// Redacting. A redaction is a line like any other, decided like an append: that makes it
// recorded, whatever happens next. Then the content is removed, which replaces the log
// (takeaway.go); a process that dies in between leaves a note, and the next checkpoint
// continues.
//
//	prepare      no lock      which of the seqs exist, are the store's own, are redacted
//	plan         write.lock   the same for lines written since; the turn; the line
//	checkpoint                the ring has no more entries for the log (W6); the note
//	takeAway                  the log is replaced by one without the content

// Redact removes the content of events. After nil it is in no file of the store that the
// session's events are read from; docs/erasing.md says where it may still be.
func (s *Store) Redact(ctx context.Context, id hansard.SessionID, rd hansard.Redaction) (hansard.Receipt, error) {
	if err := s.readable(ctx, id); err != nil {
		return hansard.Receipt{}, err
	}
	if err := engine.CheckRedaction(&rd); err != nil {
		return hansard.Receipt{}, err
	}
	if err := s.writable(); err != nil {
		return hansard.Receipt{}, err
	}
	r := newRedaction(id, &rd)
	receipt, err := s.committer.carryOut(ctx, r)
	if err != nil {
		return hansard.Receipt{}, err
	}
	if err := s.checkpoints.takeAway(ctx, r.name); err != nil {
		return hansard.Receipt{}, recordedOnly(ifClosed(s.process, err))
	}
	return receipt, nil
}

// newRedaction is the request that records a redaction, which has been validated.
func newRedaction(id hansard.SessionID, rd *hansard.Redaction) *request {
	r := &request{op: opRedact, id: id, name: sessionlog.EncodeName(id), turn: rd.Turn, by: rd.By, redaction: rd}
	e := rd.Event(rd.Seqs)
	r.size = len(sessionlog.EncodeBody(nil, &e, "", "")) + journal.EntryHeader + 2*len(r.name) + 3*sessionlog.StampWidth + endedWidth + byWidth(len(r.by))
	return r
}

// recordedOnly is the error of a redaction that is recorded, but not finished.
func recordedOnly(err error) error {
	return fmt.Errorf("%w: the redaction is recorded, but the content is not taken away yet: %w", hansard.ErrUnknown, err)
}

// preparedRedaction is what a log says about the events of a redaction, up to an offset
// that ends a batch. It is valid for this file only.
type preparedRedaction struct {
	inode uint64
	upTo  int64
	crc   uint32 // of the line that ends there
	seen  seenEvents
}

// seenEvents are the events that a redaction names, as far as the log was scanned.
type seenEvents struct {
	wanted map[hansard.Seq]bool
	events map[hansard.Seq]hansard.Event // without their data
	to     map[hansard.Seq]bool          // a redaction of it is recorded
}

func newSeenEvents(r *request) seenEvents {
	s := seenEvents{wanted: map[hansard.Seq]bool{}, events: map[hansard.Seq]hansard.Event{}, to: map[hansard.Seq]bool{}}
	for _, seq := range r.redaction.Seqs {
		s.wanted[seq] = true
	}
	return s
}

// line examines one line.
func (s *seenEvents) line(b []byte) error {
	seq, ok := sessionlog.QuickSeq(b)
	if !ok || !s.wanted[seq] && !sessionlog.HasRedacts(b) {
		return nil
	}
	l, err := sessionlog.Decode(b)
	if err != nil {
		return err
	}
	for _, named := range l.Redacts {
		if s.wanted[named] {
			s.to[named] = true
		}
	}
	if s.wanted[seq] {
		e := l.Event()
		if !e.IsLost() {
			e.Data = nil // it may be megabytes
		}
		s.events[seq] = e
	}
	return nil
}

// lines examines the lines of an entry or a draft.
func (s *seenEvents) lines(lines []byte) error {
	for b := range bytes.Lines(lines) {
		if err := s.line(bytes.TrimSuffix(b, []byte("\n"))); err != nil {
			return err
		}
	}
	return nil
}

// file examines the lines of a log between two offsets, and returns where the last whole
// batch ends.
func (s *seenEvents) file(f vfs.File, from, upTo int64) (end int64, crc uint32, err error) {
	sc := sessionlog.NewScanner(f, from)
	var d sessionlog.Decoder
	end = from
	for sc.At < upTo {
		b, at, err := sc.Next()
		if errors.Is(err, sessionlog.ErrNoLine) {
			break
		}
		if err != nil {
			return end, crc, err
		}
		l, err := d.Head(b)
		if err == nil {
			err = s.line(b)
		}
		if err != nil {
			return end, crc, sessionlog.DamagedAt("", at, "%v", err)
		}
		if l.Left == 0 {
			end, crc = sc.At, l.CRC
		}
	}
	return end, crc, nil
}

// prepareRedaction examines the log before write.lock is taken: all of it is read, which
// is about to happen anyway.
func prepareRedaction(f vfs.File, r *request) (*preparedRedaction, error) {
	p := &preparedRedaction{seen: newSeenEvents(r)}
	var err error
	if p.inode, err = f.Inode(); err != nil {
		return nil, err
	}
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	p.upTo, p.crc, err = p.seen.file(f, 0, size)
	var damaged *hansard.DamagedError
	if errors.As(err, &damaged) {
		damaged.Session = r.id
	}
	return p, err
}

// seenFor is what a session has of the events of a redaction, under write.lock: as
// prepared, plus the lines written since. errUnprepared if more than lockedBytes of the log
// are left to read, which is all of it if the log was replaced.
func (ol *logs) seenFor(sess *session, r *request) (*seenEvents, error) {
	seen, from := newSeenEvents(r), int64(0)
	if p := r.prepared.redaction; p != nil && sess.f != nil && p.inode == sess.inode {
		crc, err := uint32(0), error(nil)
		if p.upTo > 0 {
			crc, err = sessionlog.CRCBefore(sess.f, p.upTo)
		}
		if err != nil {
			return nil, err
		}
		if crc == p.crc {
			seen, from = p.seen, p.upTo
		}
	}
	if sess.f != nil {
		size, err := sess.f.Size()
		if err != nil {
			return nil, err
		}
		if size-from > lockedBytes && !r.prepared.last {
			return nil, errUnprepared
		}
		if _, _, err := seen.file(sess.f, from, size); err != nil {
			return nil, err
		}
	}
	for _, e := range ol.pending.of(sess.name) {
		if err := seen.lines(e.Lines); err != nil {
			return nil, err
		}
	}
	if sess.draft != nil {
		return &seen, seen.lines(sess.draft.bytes)
	}
	return &seen, nil
}

// redact decides about a redaction and drafts the line that records it.
func (p *plan) redact(sess *session, r *request) error {
	if err := sess.writable(); err != nil {
		return err
	}
	seen, err := p.store.logs.seenFor(sess, r)
	if err != nil {
		return sessionDamage(r.id, err)
	}
	fresh, err := engine.Redact(r.id, r.redaction, sess.seq, func(seq hansard.Seq) (hansard.Event, bool, error) {
		e, ok := seen.events[seq]
		if !ok {
			return e, false, fmt.Errorf("event %d of session %s was not found in its log", seq, r.id)
		}
		return e, e.Redacted || seen.to[seq], nil
	})
	if err != nil {
		return err
	}
	if len(fresh) == 0 {
		r.receipt = hansard.Receipt{Session: r.id, Replayed: true}
		return nil
	}
	gone, err := p.fence(sess, r)
	if err != nil {
		return err
	}
	r.dep = restsOnGroup
	if gone != "" {
		p.turnEnds(sess, gone, r.by)
	}
	e := r.redaction.Event(fresh)
	p.line(sess, &sessionlog.Stamp{Turn: r.turn}, sessionlog.EncodeBody(nil, &e, "", ""))
	p.draft(sess).redacts = true
	r.receipt = hansard.Receipt{Session: r.id, First: sess.seq, Last: sess.seq}
	return nil
}

// beRedacted remembers that a log is about to be replaced by one without some content.
func (ol *logs) beRedacted(name string) {
	if ol.redacted == nil {
		ol.redacted = map[string]bool{}
	}
	ol.redacted[name] = true
}

// closeRedacted closes logs that were replaced, because of a redaction, since this
// process opened them: it may be long before anybody writes to such a session, and an
// open descriptor keeps the old bytes on the disk. Logs that are still to be replaced are
// checked again next time.
func (ck *checkpoints) closeRedacted() error {
	noted, _, err := ck.eraser.noted()
	if err != nil || !ck.lock.isAttached() {
		return err
	}
	l, err := ck.lock.lock()
	if err != nil {
		return err
	}
	defer l.unlock()
	for name := range l.logs.redacted {
		if sess := l.logs.sessions[name]; sess != nil && sess.f != nil && !l.sameFile(sessionlog.Path(name), sess.inode) {
			sess.closeLog()
			sess.forget()
		}
		if !slices.Contains(noted, name) && l.logs.dirty.get(name).end <= l.w.Start {
			delete(l.logs.redacted, name)
		}
	}
	return nil
}
