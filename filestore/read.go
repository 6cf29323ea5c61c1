package filestore

import (
	"context"
	"errors"
	"iter"

	"hansard"
	"hansard/engine"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

// Reading takes no lock and needs no position of the ring: what is in a log is durable
// (J1), and a reader looks at the lines alone, up to the last one that ends its batch
// (R1).
//
//	Read ─► openLogForRead ─► startOf ─► locate ─► scanEvents ─► yield
//	        tail or damage    from the   by        line by line,
//	        tells the end     end back   bisection chain checked
//
//	Reverse: ─► locate ─► scanBack ─► yield
//
// A read costs as much as what it returns, not as the session: a page at the end of a log
// of gigabytes reads a few lines (failure 55, TestGrowthReadLast). There is no index of
// offsets beside the log that could disagree with it (failure 34): seqs grow along the
// file, so bisection finds a line.

// Read yields the events of a range. The end of the session is fixed when the iteration
// begins; later events are not included. Of a damaged session it yields all whole batches
// before the damage, then the damage as the last error: a reader that stops early does
// not see it, one that reads on never mistakes a part for the whole (failure 24). If a
// long batch turns out to be damaged while it is read, events of it before the damage may
// be yielded too. In reverse only the damage is yielded, unless the range ends before it.
// The log stays open while the caller iterates, however slow it is; no writer waits for
// it.
func (s *Store) Read(ctx context.Context, id hansard.SessionID, r hansard.Range) iter.Seq2[hansard.Event, error] {
	return func(yield func(hansard.Event, error) bool) {
		var own keeper
		err := s.reader.read(ctx, id, r, func(l *sessionlog.Line) bool { return yield(own.event(l), nil) })
		if err != nil && err != errStop {
			yield(hansard.Event{}, s.readError(id, err))
		}
	}
}

// Lend implements [hansard.Lender]: Read without copying the data.
func (s *Store) Lend(ctx context.Context, id hansard.SessionID, r hansard.Range, show func(*hansard.Event) bool) error {
	var e hansard.Event
	err := s.reader.read(ctx, id, r, func(l *sessionlog.Line) bool {
		e = l.Event()
		return show(&e)
	})
	if err == nil || err == errStop {
		return nil
	}
	return s.readError(id, err)
}

// errStop ends a scan whose reader wants no more. It is never returned to a caller of the
// store.
var errStop = errors.New("stop")

// read calls yield with the lines of a range, which are borrowed. errStop: yield, or the
// limit, ended it.
func (rd *reader) read(ctx context.Context, id hansard.SessionID, r hansard.Range, yield func(*sessionlog.Line) bool) error {
	if err := rd.readable(ctx, id); err != nil {
		return err
	}
	if err := engine.CheckRange(&r); err != nil {
		return err
	}
	l, err := rd.openLogForRead(ctx, id)
	if err != nil {
		return err
	}
	defer l.f.Close()
	return rd.readIn(ctx, l, id, engine.Plain(r), yield)
}

// readIn is read for an open log.
func (rd *reader) readIn(ctx context.Context, l *openedLog, id hansard.SessionID, r hansard.Range, yield func(*sessionlog.Line) bool) error {
	if l.header == nil {
		return l.damage // without a header the lines can't be attributed
	}
	// Where this read ends; of a damaged log, as far as it is safe. Lines may be appended
	// in the meantime, but their batch may not be whole, and a range counted from the end
	// needs a fixed one.
	last := hansard.Seq(0)
	switch {
	case l.damage != nil:
		last = l.damage.SafeSeq
	case l.tail != nil:
		last = l.tail.Last.Seq
	}
	if r.ID != "" {
		e, err := rd.named(ctx, l, id, r.ID, last)
		if err == nil && !yield(e) {
			err = errStop
		}
		return err
	}
	// A range that ends before the damage is not affected by it.
	damage := l.damage
	if damage != nil && r.Before > 0 && r.Before <= damage.SafeSeq+1 {
		damage = nil
	}
	if r.Before > 0 {
		last = min(last, r.Before-1)
	}
	if r.Reverse && damage != nil {
		return damage
	}
	if r.Reverse {
		return rd.readBack(ctx, l, id, r, last, yield)
	}
	after, err := rd.startOf(ctx, l, id, r, last)
	if err != nil {
		return err
	}
	if e := l.onlyLast(after, last); e != nil {
		if r.Wants(e.Kind) && !yield(e) {
			return errStop
		}
		return nil
	}
	// Without a limit left starts at 0, becomes negative and is never 0 again.
	left := r.Limit
	err = rd.scanEvents(ctx, l, id, after, last, func(e *sessionlog.Line) bool {
		if !r.Wants(e.Kind) {
			return true
		}
		left--
		return yield(e) && left != 0
	})
	if err != nil {
		return err
	}
	if damage != nil {
		return damage
	}
	return nil
}

// named is the event with an id, of those up to last. The index leads to it; a log that
// is damaged, or that is replaced while we look, is searched from its beginning.
func (rd *reader) named(ctx context.Context, l *openedLog, id hansard.SessionID, eventID string, last hansard.Seq) (*sessionlog.Line, error) {
	if l.damage == nil {
		found, err := rd.keyring.find(ctx, l.f, sessionlog.EncodeName(id), seek(idName(eventID)))
		switch {
		case err != nil:
			return nil, err
		case found == nil:
		case found.event.Seq == 0 || found.event.Seq > last:
			return nil, engine.NoEvent(id, eventID)
		default:
			return sessionlog.DecodeAt(l.f, found.at)
		}
	}
	var found *sessionlog.Line
	err := rd.scanEvents(ctx, l, id, 0, last, func(e *sessionlog.Line) bool {
		if e.ID == eventID {
			found = e // no line is decoded after it
		}
		return found == nil
	})
	switch {
	case found != nil:
		return found, nil
	case err != nil:
		return nil, err
	case l.damage != nil:
		return nil, l.damage // the event may be after the damage
	}
	return nil, engine.NoEvent(id, eventID)
}

// readBack is read for a reverse range: from last back to After, or to the newest event
// of the kind in FromKind.
func (rd *reader) readBack(ctx context.Context, l *openedLog, id hansard.SessionID, r hansard.Range, last hansard.Seq, yield func(*sessionlog.Line) bool) error {
	left := r.Limit
	var d sessionlog.Decoder
	return rd.scanBack(ctx, l, id, r.After, last, d.Decode, func(e *sessionlog.Line) bool {
		if r.Wants(e.Kind) {
			left--
			if !yield(e) || left == 0 {
				return false
			}
		}
		return r.FromKind == "" || e.Kind != r.FromKind
	})
}

// startOf is the seq after which a range begins: After, or before the newest event of a
// kind, or before the last n events, whichever is latest.
func (rd *reader) startOf(ctx context.Context, l *openedLog, id hansard.SessionID, r hansard.Range, last hansard.Seq) (hansard.Seq, error) {
	after := r.After
	if r.FromKind != "" {
		at, err := rd.lastMatches(ctx, l, id, after, last, 1, func(kind string) bool { return kind == r.FromKind })
		if err != nil {
			return 0, err
		}
		if at > 0 {
			after = max(after, at-1)
		}
	}
	if r.Last == 0 {
		return after, nil
	}
	// Seqs have no gaps, so without a filter the n-th last is arithmetic.
	if len(r.Kinds) == 0 {
		if n := hansard.Seq(r.Last); last > n {
			after = max(after, last-n)
		}
		return after, nil
	}
	at, err := rd.lastMatches(ctx, l, id, after, last, r.Last, r.Wants)
	if at > 0 {
		after = max(after, at-1)
	}
	return after, err
}

// lastMatches is the seq of the n-th last event of (after, last] whose kind is wanted, or of
// the first such event if there are fewer; 0 if there is none.
func (rd *reader) lastMatches(ctx context.Context, l *openedLog, id hansard.SessionID, after, last hansard.Seq, n int, wants func(string) bool) (found hansard.Seq, err error) {
	// Without their data: the caller reads the lines from there on, and checks them all.
	var d sessionlog.Decoder
	err = rd.scanBack(ctx, l, id, after, last, d.Head, func(e *sessionlog.Line) bool {
		if wants(e.Kind) {
			found = e.Seq
			n--
		}
		return n > 0
	})
	if err == errStop {
		err = nil
	}
	return found, err
}

// scanEvents calls fn with the events of (after, last], in whole batches: a batch is held
// back until its last line was read and checked, so that fn never gets half of one
// (failure 35; planted bug "half a batch read"). Of a long batch only the beginning is
// held back: see endIsThere. A line that does not follow is damage: it is noted for
// others and returned. errStop: fn asked to stop. The lines are borrowed.
func (rd *reader) scanEvents(ctx context.Context, l *openedLog, id hansard.SessionID, after, last hansard.Seq, fn func(*sessionlog.Line) bool) error {
	if last == 0 || after >= last {
		return nil
	}
	sc := sessionlog.NewScanner(l.f, 0)
	c := sessionlog.Chain{ID: id}
	if after > 0 {
		// Start after the line with seq after; its crc starts the chain (R4). If it is
		// not found, start at the header, which is slower and finds out why.
		if first, ok := locate(l, l.tail, after); ok {
			sc = sessionlog.NewScanner(l.f, first.End)
			c.Resume(first.Last)
		}
	}
	var d sessionlog.Decoder
	var batch heldBatch // passed to fn when it is whole
	for n := 0; ; n++ {
		if err := rd.goesOn(ctx, n); err != nil {
			return err
		}
		b, at, err := sc.Next()
		if err == sessionlog.ErrNoLine {
			// The log was truncated from outside since it was opened, or has a gap longer
			// than any line: what is missing must not look like the end.
			d := sessionlog.DamagedAt(id, at, "the log has no more lines up to event %d, which it had", last)
			d.SafeSeq = c.Safe
			return rd.damagedInScan(l.f, id, d)
		}
		if err != nil {
			return err
		}
		// Every line is checked on the way, by its own crc and by that of the line
		// before: a bit that flipped since the log was checked is reported, not shown.
		e, err := d.Decode(b)
		if err == nil {
			err = c.Follow(e)
		}
		if err != nil {
			return rd.damagedInScan(l.f, id, c.Damage(at, err))
		}
		wanted := e.Seq > after && e.Seq <= last
		if e.Left > 0 {
			if wanted && !batch.open {
				batch.hold(e)
				batch.open = batch.long() && endIsThere(l, e)
				wanted = false
			}
			if !batch.open {
				continue
			}
		}
		if !batch.give(fn) || wanted && !fn(e) {
			return errStop
		}
		if e.Seq >= last {
			return nil
		}
		if e.Left == 0 {
			batch = heldBatch{lines: batch.lines, data: batch.data}
		}
	}
}

// endIsThere tells whether the last line of e's batch is in the log, without reading the
// batch. A log gets its lines in order and only when all of the batch is durable in the
// journal (J1), so the whole batch was committed, and no crash can undo it: the first
// event of a batch of megabytes need not wait for the last. It does not prove that the
// lines in between are intact: damage there is found when they are read. False also if it
// is not known.
func endIsThere(l *openedLog, e *sessionlog.Line) bool {
	end, ok := locate(l, l.tail, e.Seq+hansard.Seq(e.Left))
	return ok && end.Last.Left == 0
}

// goesOn ends a scan of gigabytes when its caller or the store is done. It checks now and
// then; n counts the lines.
func (rd *reader) goesOn(ctx context.Context, n int) error {
	if n%256 != 0 {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if rd.closed.Load() {
		return hansard.ErrClosed
	}
	return nil
}

// scanBack calls fn with the events of (after, last], the newest first, reading the log
// from there towards its beginning in chunks. It begins inside the range of whole
// batches, so it sees no incomplete one (R1). Each line is checked by itself and by the
// line after it, which names its crc; a line that does not fit is damage, as in
// scanEvents. errStop: fn asked to stop. The lines are borrowed.
func (rd *reader) scanBack(ctx context.Context, l *openedLog, id hansard.SessionID, after, last hansard.Seq, decode func([]byte) (*sessionlog.Line, error), fn func(*sessionlog.Line) bool) error {
	if last == 0 || after >= last {
		return nil
	}
	tail := l.tail
	if l.damage != nil {
		var err error
		if tail, err = rd.safeTail(l); err != nil || tail == nil {
			return err
		}
	}
	// Begin before the line that follows the last one; if it is not found, at the end,
	// which is slower and finds out why.
	end, next := tail.End, (*sessionlog.Line)(nil)
	if behind, ok := locate(l, tail, last+1); ok {
		end, next = behind.LastAt, behind.Last
	}
	sc := sessionlog.NewBackScanner(l.f, end)
	var behind sessionlog.Line // memory of next, for lines that were passed to fn
	for n := 0; ; n++ {
		if err := rd.goesOn(ctx, n); err != nil {
			return err
		}
		b, at, err := sc.Prev()
		if err != nil && err != sessionlog.ErrNoLine {
			return err
		}
		e, err := decodeBefore(decode, b, err, next, tail)
		// The oldest line of the range is checked against the crc of the line before,
		// which is not read: otherwise missing lines there would go unnoticed.
		first := err == nil && e.Seq == after+1
		if first {
			crc, readErr := sessionlog.CRCBefore(l.f, at)
			if readErr != nil {
				return readErr
			}
			if crc != e.Prev {
				err = errors.New("the line does not follow the one before it: lines are missing, duplicated, moved or exchanged")
			}
		}
		if err != nil {
			damage := rd.damagedInScan(l.f, id, sessionlog.DamagedAt(id, at, "%v", err))
			if l.damage == nil && last <= damage.SafeSeq && (next == nil || next.Seq > last) {
				// The damage is after the range, and was hit on the way there.
				l.damage = damage
				return rd.scanBack(ctx, l, id, after, last, decode, fn)
			}
			return damage
		}
		if e.Seq <= last && !fn(e) {
			return errStop
		}
		if first {
			return nil
		}
		behind = *e
		next = &behind
	}
}

// decodeBefore decodes the line before next, and checks that it is; without next it has
// to be the tail.
func decodeBefore(decode func([]byte) (*sessionlog.Line, error), b []byte, err error, next *sessionlog.Line, tail *sessionlog.Tail) (*sessionlog.Line, error) {
	if err != nil {
		return nil, err
	}
	e, err := decode(b)
	switch {
	case err != nil:
		return nil, err
	case next != nil:
		return e, e.Precedes(next)
	case e.Seq != tail.Last.Seq || e.CRC != tail.Last.CRC:
		return nil, errors.New("the last line has changed")
	}
	return e, nil
}

// damagedInScan records damage found while reading, so that writers refuse and List shows
// it (TestDamageFoundByAReaderStays). It returns the damage as seen from the whole log: a
// scan that began in the middle knows neither the line number nor what is safe before it.
func (rd *reader) damagedInScan(f vfs.File, id hansard.SessionID, d *hansard.DamagedError) *hansard.DamagedError {
	_, whole, err := sessionlog.Check(f, id, new(sessionlog.Decoder).Decode)
	if err == nil && whole != nil {
		d = whole
	}
	if inode, err := f.Inode(); err == nil {
		rd.checks.foundDamage(sessionlog.EncodeName(id), inode, d)
	}
	return d
}
