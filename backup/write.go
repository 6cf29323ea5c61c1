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
	// Program is noted in the backup, for people.
	Program string
	// SpoolDir is a directory for a temporary file of the size of the manifest. Empty
	// is that of the system.
	SpoolDir string
	// Report is called with each session that is not whole in the backup, and why.
	Report func(id hansard.SessionID, err error)
	// Progress is called now and then with what was done so far.
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

// Write writes a backup of a store, which others may use meanwhile. Every event that was
// acknowledged before the call is in it; what is appended meanwhile may be. Memory does
// not depend on the number and the size of sessions and attachments.
//
// A session that is damaged or can't be read is in the backup as far as it can be read;
// it is reported and does not keep the others out. Any other error is final, and what
// was written is not a backup.
func Write(ctx context.Context, src hansard.Exporter, out io.Writer, o WriteOptions) (Written, error) {
	w, err := newArchive(out, o.SpoolDir)
	if err != nil {
		return Written{}, err
	}
	defer w.close()
	b := &writing{ctx: ctx, src: src, w: w, o: &o}
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
	w.flush() // no session begins at offset 0, which means that there is nothing of it
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

// digest is that of the end block's header: it vouches for all before it.
func (b *writing) digest() string { return b.w.prev.String() }

// sessions writes all of them. Origins come in the order of their ids, as the entries of
// the base do, so both are gone through once, side by side.
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
				// One that can't be read ends the sequence. It must not keep the others out.
				b.failed(base, o, err)
				again = true
				break
			}
			if err := b.session(o, base); err != nil {
				return err
			}
			if b.o.Progress != nil {
				t := b.totals
				t.Bytes = b.w.content
				b.o.Progress(t)
			}
		}
	}
	if err := b.base.rest(); err != nil {
		return err
	}
	return b.w.err
}

// aboutSession reports whether an error is about one session, so that others can be
// done.
func aboutSession(err error) bool {
	for _, e := range []error{hansard.ErrDamaged, hansard.ErrUnreadable, hansard.ErrNoAttachment, hansard.ErrDeleted, hansard.ErrNotFound, hansard.ErrExists,
		hansard.ErrConflict, hansard.ErrVersion, hansard.ErrInvalid, hansard.ErrHeld, hansard.ErrFenced, hansard.ErrKeyReused, hansard.ErrIDReused} {
		if errors.Is(err, e) {
			return !errors.Is(err, hansard.ErrUnknown)
		}
	}
	return false
}

// vanished takes an entry of the base whose session the store does not have. No store
// forgets a session, not even a deleted one: its log was removed from outside, or the
// caller may not see it. It stays in the manifest, so that a restore brings it back.
func (b *writing) vanished(base Entry) {
	var err error
	if !base.Deleted {
		err = fmt.Errorf("the last backup has it and the store has not: %w", hansard.ErrNotFound)
	}
	b.failed(&base, hansard.Origin{ID: base.ID}, err)
}

// failed notes a session of which nothing could be read now. What the base has of it
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

// session writes what the base does not have of a session. The error is one that ends
// the backup.
func (b *writing) session(o hansard.Origin, base *Entry) error {
	if o.Deleted {
		b.tombstone(base, o)
		return nil
	}
	info, err := b.src.Stat(b.ctx, o.ID)
	switch {
	case errors.Is(err, hansard.ErrDeleted): // since Origins gave it
		b.tombstone(base, o)
		return nil
	case errors.Is(err, hansard.ErrNotFound): // its log was removed from outside
		return nil
	case err != nil && !aboutSession(err):
		return err
	case err != nil:
		b.failed(base, o, err)
		return nil
	}
	if base != nil && (base.Deleted || !base.Created.Equal(o.Created)) {
		base = nil // another session, of the same id
	}
	if base != nil && base.Damage == "" && info.Damage == nil && base.Last == info.LastSeq && base.Updated.Equal(info.Updated) {
		e := *base
		e.Offset, e.Events, e.Attachments = 0, 0, 0
		b.note(&e, nil)
		return nil
	}
	if base != nil {
		if goesOn, err := b.goesOn(base, info.LastSeq); err != nil {
			return err
		} else if !goesOn {
			base = nil
		}
	}
	return b.changed(o, base, &info)
}

// goesOn reports whether a session is the one that the base has, and more. It is not if
// the store was set back since.
func (b *writing) goesOn(base *Entry, last hansard.Seq) (bool, error) {
	if base.Last > last {
		return false, nil
	}
	if base.Last == 0 {
		return true, nil
	}
	for e, err := range b.src.Read(b.ctx, base.ID, hansard.Range{After: base.Last - 1, Limit: 1}) {
		if err != nil && aboutSession(err) {
			return false, nil // what can be read is written from the beginning
		}
		return err == nil && tailOf(&e) == base.Tail, err
	}
	return false, nil
}

// changed writes what a session got since the base, or all of it.
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
	if errors.Is(err, hansard.ErrDeleted) { // meanwhile: what was written of it does not count
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

// carry writes the events past the entry's last up to the one that was last when the
// session was looked at, so that it ends with a whole batch. Attachments come before the
// events that name them.
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
			// It may have been taken away since the event was read: then the event says
			// so now.
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

func (b *writing) attach(id hansard.SessionID, a hansard.Attachment) error {
	r, err := b.src.OpenAttachment(b.ctx, id, a.Digest)
	if err != nil {
		return fmt.Errorf("attachment %s: %w", a.Digest, err)
	}
	defer r.Close()
	sum := sha256.New()
	if err := b.w.attachment(attachLine{a.Digest, a.Size}, io.TeeReader(r, sum)); err != nil {
		return fmt.Errorf("attachment %s: %w", a.Digest, err)
	}
	if got := fmt.Sprintf("%s%x", hansard.DigestPrefix, sum.Sum(nil)); got != a.Digest && b.w.err == nil {
		return fmt.Errorf("attachment %s has other content: %w", a.Digest, hansard.ErrDamaged)
	}
	return nil
}

// lookup finds entries of a manifest by ascending id.
type lookup struct {
	next   func() (Entry, error, bool)
	passed func(Entry) // takes those that were not asked for; may be nil
	at     *Entry
	begun  bool
}

func newLookup(f *File) (l *lookup, stop func()) {
	next, stop := iter.Pull2(f.Entries())
	return &lookup{next: next}, stop
}

// find gives the entry of a session, nil if there is none. Ids have to be asked for in
// ascending order, each once.
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
	l.passed = nil // it was asked for
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

// rest passes all that is left.
func (l *lookup) rest() error {
	for l != nil && (!l.begun || l.at != nil) {
		if err := l.step(); err != nil {
			return err
		}
	}
	return nil
}
