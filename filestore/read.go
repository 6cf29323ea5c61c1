package filestore

import (
	"context"
	"errors"
	"iter"

	"hansard"
	"hansard/internal/vfs"
)

// Reading takes no lock and needs no position: what is in a log is durable, and
// a reader goes by the lines alone, up to the last that ends its batch.

// Read gives the events of a range, oldest first.
func (s *Store) Read(ctx context.Context, id hansard.SessionID, r hansard.Range) iter.Seq2[hansard.Event, error] {
	return func(yield func(hansard.Event, error) bool) {
		if err := s.read(ctx, id, r, func(e hansard.Event) bool { return yield(e, nil) }); err != nil && err != errStop {
			yield(hansard.Event{}, err)
		}
	}
}

// errStop ends a scan whose reader has enough.
var errStop = errors.New("stop")

func (s *Store) read(ctx context.Context, id hansard.SessionID, r hansard.Range, yield func(hansard.Event) bool) error {
	if err := s.readable(ctx, id); err != nil {
		return err
	}
	if err := hansard.CheckRange(&r); err != nil {
		return err
	}
	l, err := s.openLogForRead(ctx, id)
	if err != nil {
		return err
	}
	defer l.f.Close()
	if l.header == nil {
		return l.damage
	}
	last := hansard.Seq(0)
	switch {
	case l.damage != nil:
		last = l.damage.SafeSeq
	case l.tail != nil:
		last = l.tail.last.Seq
	}
	after := r.After
	if r.FromSummary || r.Last > 0 {
		if after, err = s.startOf(ctx, l, id, r, last); err != nil {
			return err
		}
	}
	left := r.Limit
	err = s.scanEvents(ctx, l, id, after, last, func(e *line) bool {
		if !r.Wants(e.Kind) {
			return true
		}
		left--
		return yield(e.event()) && left != 0
	})
	if err != nil {
		return err
	}
	if l.damage != nil {
		return l.damage
	}
	return nil
}

// startOf finds where a range that is counted from the end begins. It looks at
// ever larger pieces of the end, so that it costs what it finds.
func (s *Store) startOf(ctx context.Context, l *openedLog, id hansard.SessionID, r hansard.Range, last hansard.Seq) (hansard.Seq, error) {
	after := r.After
	if r.FromSummary {
		at, err := s.lastMatches(ctx, l, id, after, last, 1, func(kind string) bool { return kind == hansard.KindSummary })
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
	if len(r.Kinds) == 0 {
		if n := hansard.Seq(r.Last); last > n {
			after = max(after, last-n)
		}
		return after, nil
	}
	at, err := s.lastMatches(ctx, l, id, after, last, r.Last, r.Wants)
	if at > 0 {
		after = max(after, at-1)
	}
	return after, err
}

// lastMatches is the seq of the n-th last event, past after, whose kind is
// wanted, or of the first if there are fewer; 0 if there is none.
func (s *Store) lastMatches(ctx context.Context, l *openedLog, id hansard.SessionID, after, last hansard.Seq, n int, wants func(string) bool) (hansard.Seq, error) {
	for window := hansard.Seq(64); ; window *= 8 {
		from := after
		if last > after+window {
			from = last - window
		}
		var found []hansard.Seq
		err := s.scanEvents(ctx, l, id, from, last, func(e *line) bool {
			if wants(e.Kind) {
				found = append(found, e.Seq)
				if len(found) > n {
					found = found[1:]
				}
			}
			return true
		})
		if err != nil {
			return 0, err
		}
		if len(found) == n || from == after {
			if len(found) == 0 {
				return 0, nil
			}
			return found[0], nil
		}
	}
}

// scanEvents calls fn with the events of (after, last], whole batches checked
// against the chain. It returns errStop when fn had enough.
func (s *Store) scanEvents(ctx context.Context, l *openedLog, id hansard.SessionID, after, last hansard.Seq, fn func(*line) bool) error {
	if last == 0 || after >= last {
		return nil
	}
	sc := newScanner(l.f, 0)
	c := chain{id: id}
	if after > 0 {
		if at, first, ok := locate(l, after); ok {
			sc = newScanner(l.f, at)
			c.resume(first)
		}
	}
	var batch []*line // given out when it is whole
	for n := 0; ; n++ {
		if n%256 == 0 {
			if err := ctx.Err(); err != nil {
				return err
			}
			if s.closed.Load() {
				return hansard.ErrClosed
			}
		}
		b, at, err := sc.next()
		if err == errNoLine {
			return nil
		}
		if err != nil {
			return err
		}
		e, err := decodeLine(b)
		if err == nil {
			err = c.follow(e)
		}
		if err != nil {
			return s.damagedInScan(l.f, id, c.damage(at, err))
		}
		if e.Seq > after {
			batch = append(batch, e)
		}
		if e.Left > 0 && !s.planted(plantHalfBatch) {
			continue
		}
		for _, e := range batch {
			if !fn(e) {
				return errStop
			}
		}
		batch = batch[:0]
		if e.Seq >= last {
			return nil
		}
	}
}

// damagedInScan makes damage that a reader came upon known, and tells it with
// what is safe of the whole log.
func (s *Store) damagedInScan(f vfs.File, id hansard.SessionID, d *hansard.DamagedError) error {
	_, whole, err := checkLog(f, id, decodeLine)
	if err == nil && whole != nil {
		d = whole
	}
	if inode, err := f.Inode(); err == nil {
		s.foundDamage(encodeName(id), inode, d)
	}
	return d
}

// locate finds the line with a seq by bisection: lines are in the order of
// their seqs. It returns the offset behind it, and the line. Not ok: go from
// the beginning, and find out why.
func locate(l *openedLog, seq hansard.Seq) (behind int64, at *line, ok bool) {
	if l.tail == nil || seq >= l.tail.last.Seq {
		return 0, nil, false
	}
	lo, hi := l.header.end, l.tail.lastAt // the line begins in [lo, hi)
	for lo < hi {
		mid := lo + (hi-lo)/2
		begin := lo
		if mid > lo {
			// The first line that begins at or behind mid.
			skip, err := readLineAt(l.f, mid-1)
			if err != nil {
				return 0, nil, false
			}
			begin = mid - 1 + int64(len(skip)) + 1
		}
		if begin >= hi {
			hi = mid // no line begins in [mid, hi)
			continue
		}
		b, err := readLineAt(l.f, begin)
		if err != nil {
			return 0, nil, false
		}
		got, isEvent := quickSeq(b)
		switch {
		case !isEvent:
			return 0, nil, false
		case got == seq:
			e, err := decodeLine(b)
			return begin + int64(len(b)) + 1, e, err == nil
		case got < seq:
			lo = begin + int64(len(b)) + 1
		case mid == lo:
			return 0, nil, false
		default:
			hi = mid
		}
	}
	return 0, nil, false
}
