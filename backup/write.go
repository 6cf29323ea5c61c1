package backup

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	"hansard"
	"hansard/internal/wire"
)

// WriteOptions are the options of [Write].
type WriteOptions struct {
	// Base makes the backup an increment: it has what sessions got since Base was
	// made. Nil makes a full backup.
	Base *File
	// Program is recorded in the backup, for people to read.
	Program string
	// SpoolDir is a directory for a temporary file of the size of the manifest. If empty,
	// the system's temporary directory is used.
	SpoolDir string
	// Report is called with each session that is not whole in the backup, and why.
	Report func(id hansard.SessionID, err error)
	// Progress is called from time to time with what was done so far.
	Progress func(Totals)
}

// Written is what [Write] wrote.
type Written struct {
	Totals
	Number int    `json:"number"`          // 0 is a full backup
	Digest string `json:"digest"`          // names this backup
	Base   string `json:"base,omitempty"`  // the digest of its base
	Size   int64  `json:"size"`            // of the file
	Store  string `json:"store,omitempty"` // its identity
}

// Write writes a backup of a store, which others may use at the same time. Every event that
// was acknowledged before the call is in it; what is appended during the call may be.
// Memory use does not depend on the number or size of sessions and attachments.
//
// A session that is damaged or can't be read is backed up as far as it can be read; it is
// reported, and the other sessions are backed up. Any other error ends the backup, and the
// output is not usable as one.
func Write(ctx context.Context, src hansard.Exporter, out io.Writer, o WriteOptions) (Written, error) {
	w, err := newArchive(out, o.SpoolDir)
	if err != nil {
		return Written{}, err
	}
	defer w.close()
	b := &writing{ctx: ctx, src: src, w: w, o: &o}
	w.wrote = b.tell // a large attachment takes a while
	h := head{Format: version, Started: time.Now().UTC().Truncate(time.Microsecond), Program: o.Program}
	if s, ok := src.(hansard.Identified); ok {
		if h.Store, err = s.Identity(ctx); err != nil {
			return Written{}, err
		}
	}
	if o.Base != nil {
		h.Number, h.Base = o.Base.head.Number+1, o.Base.Digest()
		if was := o.Base.head.Store; was != "" && h.Store != "" && was != h.Store {
			return Written{}, &refusal{fmt.Sprintf("%s is a backup of another store", o.Base.path), "make a full backup of this one"}
		}
		var stop func()
		b.base, stop = newLookup(o.Base)
		defer stop()
		b.base.passed = b.vanished
	}
	b.number = h.Number
	w.put(line{Backup: &h})
	w.flush() // so that no session begins at offset 0, which means that the backup has no part of it
	if err := b.sessions(); err != nil {
		return Written{}, err
	}
	b.totals.Finished = time.Now().UTC().Truncate(time.Microsecond)
	if err := w.finish(&b.totals); err != nil {
		return Written{}, err
	}
	return Written{Totals: b.totals, Number: h.Number, Base: h.Base, Store: h.Store, Digest: b.digest(), Size: w.at}, nil
}

// writing is a backup under way.
type writing struct {
	ctx    context.Context
	src    hansard.Exporter
	w      *archive
	o      *WriteOptions
	number int
	base   *lookup // nil for a full backup
	totals Totals
}

// digest is that of the end block's header: it covers everything before it.
func (b *writing) digest() string { return b.w.prev.String() }

// sessions writes all sessions. Origins come in the order of their ids, as do the entries of
// the base, so both are read once, in parallel.
func (b *writing) sessions() error {
	var after hansard.SessionID
	for again := true; again; {
		again = false
		for o, err := range b.src.Origins(b.ctx, after) {
			if err == nil {
				err = b.ctx.Err()
			}
			if err != nil && (o.ID <= after || !aboutSession(err)) {
				return err
			}
			after = o.ID
			base, lookErr := b.base.find(o.ID)
			if lookErr != nil {
				return lookErr
			}
			if err != nil {
				// A session that can't be read ends the sequence: it is resumed after it, so that
				// the others are backed up.
				b.failed(base, o, err)
				again = true
				break
			}
			if err := b.session(o, base); err != nil {
				return err
			}
			b.tell()
		}
	}
	if err := b.base.rest(); err != nil {
		return err
	}
	return b.w.err
}

// tell reports progress.
func (b *writing) tell() {
	if b.o.Progress != nil {
		t := b.totals
		t.Bytes = b.w.content
		b.o.Progress(t)
	}
}

// aboutSession reports whether an error is about one session only, so that work can
// continue with the others.
func aboutSession(err error) bool {
	for _, e := range []error{hansard.ErrDamaged, hansard.ErrUnreadable, hansard.ErrNoAttachment, hansard.ErrDeleted, hansard.ErrNotFound, hansard.ErrExists,
		hansard.ErrConflict, hansard.ErrVersion, hansard.ErrInvalid, hansard.ErrHeld, hansard.ErrFenced, hansard.ErrKeyReused, hansard.ErrIDReused} {
		if errors.Is(err, e) {
			return !errors.Is(err, hansard.ErrUnknown)
		}
	}
	return false
}

// vanished handles an entry of the base whose session the store does not have. No store
// forgets a session, not even a deleted one: so its log was removed from outside, or the
// caller may not see it. It stays in the manifest, so that a restore brings it back.
func (b *writing) vanished(base Entry) {
	var err error
	if !base.Deleted {
		err = fmt.Errorf("the last backup has it and the store has not: %w", hansard.ErrNotFound)
	}
	b.failed(&base, hansard.Origin{ID: base.ID}, err)
}

// failed records a session that could not be read at all. What the base has of it
// stays.
func (b *writing) failed(base *Entry, o hansard.Origin, err error) {
	e := Entry{ID: o.ID, Created: o.Created, From: b.number}
	if base != nil {
		e = *base
		e.Offset, e.Events, e.Attachments = 0, 0, 0
	}
	b.note(&e, err)
}

// note adds an entry to the manifest, and reports what is wrong with the session.
func (b *writing) note(e *Entry, err error) {
	if err != nil {
		e.Damage = err.Error()
		b.totals.Damaged++
		if b.o.Report != nil {
			b.o.Report(e.ID, err)
		}
	}
	if e.Deleted {
		b.totals.Deleted++
	} else {
		b.totals.Sessions++
	}
	b.w.entry(e)
}

func (b *writing) tombstone(base *Entry, o hansard.Origin) {
	e := Entry{ID: o.ID, Created: o.Created, Deleted: true, From: b.number}
	if base != nil && base.Deleted && base.Created.Equal(o.Created) {
		e.From = base.From
	}
	b.note(&e, nil)
}

// session writes the part of a session that the base does not have. An error ends the
// backup.
func (b *writing) session(o hansard.Origin, base *Entry) error {
	if o.Deleted {
		b.tombstone(base, o)
		return nil
	}
	info, err := b.src.Stat(b.ctx, o.ID)
	switch {
	case errors.Is(err, hansard.ErrDeleted): // after Origins yielded it
		b.tombstone(base, o)
		return nil
	case errors.Is(err, hansard.ErrNotFound): // its log was removed from outside
		if base != nil && base.Created.Equal(o.Created) {
			b.vanished(*base)
		}
		return nil
	case err != nil && !aboutSession(err):
		return err
	case err != nil:
		b.failed(base, o, err)
		return nil
	}
	unreadable := o.Created.IsZero() && info.Damage != nil // it can't be told whose log it is
	if base != nil && (base.Deleted || !base.Created.Equal(o.Created) && !unreadable) {
		base = nil // another session with the same id
	}
	if unreadable {
		b.failed(base, o, info.Damage)
		return nil
	}
	if base != nil && base.Damage == "" && info.Damage == nil && base.Last == info.LastSeq && base.Updated.Equal(info.Updated) {
		e := *base
		e.Offset, e.Events, e.Attachments = 0, 0, 0
		b.note(&e, nil)
		return nil
	}
	if base != nil {
		switch goesOn, err := b.goesOn(base, &info); {
		case errors.Is(err, hansard.ErrDeleted):
			b.tombstone(base, o)
			return nil
		case err != nil && !aboutSession(err):
			return err
		case err != nil: // the base has more of it than can be read now
			b.failed(base, o, err)
			return nil
		case !goesOn:
			base = nil
		}
	}
	return b.changed(o, base, &info)
}

// goesOn reports whether a session continues the one that the base has. It does not if the
// store was reset to an older state since. An error about the session means that its log can't
// be read that far.
func (b *writing) goesOn(base *Entry, info *hansard.Info) (bool, error) {
	switch {
	case base.Last == 0:
		return true, nil
	case base.Last > info.LastSeq && info.Damage != nil:
		return false, info.Damage
	case base.Last > info.LastSeq:
		return false, nil
	}
	for e, err := range b.src.Read(b.ctx, base.ID, hansard.Range{After: base.Last - 1, Limit: 1}) {
		return err == nil && tailOf(&e) == base.Tail, err
	}
	return false, nil
}

// changed writes what was appended to a session since the base, or all of it.
func (b *writing) changed(o hansard.Origin, base *Entry, info *hansard.Info) error {
	e := Entry{ID: o.ID, Created: o.Created, Updated: o.Created, From: b.number}
	if base != nil {
		e.Updated, e.Last, e.Tail, e.From = base.Updated, base.Last, base.Tail, base.From
	}
	e.Offset = b.w.at // of the block that the next line is in
	b.w.put(line{Session: &sessionLine{o, e.Last}})
	err := b.carry(o, &e, info.LastSeq)
	if err == nil && info.Damage != nil {
		err = info.Damage
	}
	if b.w.err != nil {
		return b.w.err
	}
	if errors.Is(err, hansard.ErrDeleted) { // during the backup: readers ignore what was written of it
		b.w.put(line{Done: &Entry{ID: o.ID, Created: o.Created, Deleted: true, Last: e.Last, From: b.number}})
		b.tombstone(base, o)
		return nil
	}
	if err != nil && !aboutSession(err) {
		return err
	}
	b.totals.Changed++
	if err != nil {
		e.Damage = err.Error()
	}
	b.w.put(line{Done: &e})
	b.note(&e, err)
	return b.w.err
}

// carry writes the events after the entry's last, up to the session's last seq when Stat was
// called, so that it ends with a whole batch. Attachments come before the events that name
// them.
func (b *writing) carry(o hansard.Origin, e *Entry, upto hansard.Seq) error {
	attached := map[string]bool{}
	for tries := 0; e.Last < upto; {
		from := e.Last
		err := b.parts(o, e, upto, attached)
		switch {
		case err == nil && e.Last < upto:
			return &hansard.DamagedError{Session: o.ID, SafeSeq: e.Last, Reason: fmt.Sprintf("it ends before seq %d", upto)}
		case err == nil:
			return nil
		case errors.Is(err, hansard.ErrNoAttachment) && b.w.err == nil && (e.Last > from || tries < 2):
			// The event may have been redacted, and the attachment removed, after the event
			// was read: reading it again shows whether.
			if tries++; e.Last > from {
				tries = 0
			}
		default:
			return err
		}
	}
	return nil
}

func (b *writing) parts(o hansard.Origin, e *Entry, upto hansard.Seq, attached map[string]bool) error {
	for part, err := range hansard.Parts(b.ctx, b.src, o, e.Last, upto) {
		if err != nil {
			return err
		}
		for i := range part.Events {
			for _, a := range part.Events[i].Attachments {
				if attached[a.Digest] {
					continue
				}
				if err := b.attach(o.ID, a); err != nil {
					return err
				}
				attached[a.Digest] = true
				e.Attachments++
				b.totals.Attachments++
			}
		}
		b.w.put(line{Part: &partLine{len(part.Events), part.Keys}})
		for i := range part.Events {
			b.w.putLine(wire.AppendExactLine(nil, &part.Events[i]))
		}
		last := &part.Events[len(part.Events)-1]
		e.Last, e.Updated, e.Tail = last.Seq, last.Time, tailOf(last)
		e.Events += hansard.Seq(len(part.Events))
		b.totals.Events += hansard.Seq(len(part.Events))
		if b.w.err != nil {
			return b.w.err
		}
	}
	return nil
}

// attach writes an attachment. Any read error counts as one of the session: a bad disk
// sector under one picture must not keep the other sessions out of the backup.
func (b *writing) attach(id hansard.SessionID, a hansard.Attachment) error {
	r, err := b.src.OpenAttachment(b.ctx, id, a.Digest)
	if err != nil {
		return fmt.Errorf("attachment %s: %w", a.Digest, err)
	}
	defer r.Close()
	sum := sha256.New()
	err = b.w.attachment(attachLine{a.Digest, a.Size}, io.TeeReader(r, sum))
	switch {
	case err != nil && (b.ctx.Err() != nil || errors.Is(err, hansard.ErrClosed) || aboutSession(err)):
		return fmt.Errorf("attachment %s: %w", a.Digest, err)
	case err != nil:
		return fmt.Errorf("%w: attachment %s: %w", hansard.ErrUnreadable, a.Digest, err)
	}
	if got := fmt.Sprintf("%s%x", hansard.DigestPrefix, sum.Sum(nil)); got != a.Digest && b.w.err == nil {
		return fmt.Errorf("%w: attachment %s has other content", hansard.ErrDamaged, a.Digest)
	}
	return nil
}

// lookup finds entries of a manifest by ascending id.
type lookup struct {
	next   func() (Entry, error, bool)
	passed func(Entry) // called with entries that find skipped; may be nil
	at     *Entry
	begun  bool
}

func newLookup(f *File) (l *lookup, stop func()) {
	next, stop := iter.Pull2(f.Entries())
	return &lookup{next: next}, stop
}

// find returns the entry of a session, nil if absent. It has to be called with ascending
// ids, each once.
func (l *lookup) find(id hansard.SessionID) (*Entry, error) {
	if l == nil {
		return nil, nil
	}
	for !l.begun || l.at != nil && l.at.ID < id {
		if err := l.step(); err != nil {
			return nil, err
		}
	}
	if l.at == nil || l.at.ID != id {
		return nil, nil
	}
	found := l.at
	passed := l.passed
	l.passed = nil // this entry was not skipped
	err := l.step()
	l.passed = passed
	return found, err
}

// step goes to the next entry.
func (l *lookup) step() error {
	if l.at != nil && l.passed != nil {
		l.passed(*l.at)
	}
	e, err, more := l.next()
	l.begun, l.at = true, nil
	if more && err == nil {
		l.at = &e
	}
	return err
}

// rest skips all remaining entries.
func (l *lookup) rest() error {
	for l != nil && (!l.begun || l.at != nil) {
		if err := l.step(); err != nil {
			return err
		}
	}
	return nil
}
