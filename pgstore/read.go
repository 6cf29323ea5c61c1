package pgstore

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"hansard"
	"hansard/engine"
)

// The size of a page: this much is in memory at once, plus the event that goes over it.
const (
	pageEvents  = 500  // the first page: small, so that the reader does not wait for it
	laterEvents = 2500 // the later pages
	pageBytes   = 2 << 20
)

// Read implements [hansard.Store]. It reads a page at a time and holds no
// connection while the caller processes one.
func (s *Store) Read(ctx context.Context, id hansard.SessionID, r hansard.Range) iter.Seq2[hansard.Event, error] {
	return func(yield func(hansard.Event, error) bool) {
		if r.ID != "" {
			yield(s.named(ctx, id, r))
			return
		}
		after, err := s.from(ctx, id, r)
		if err != nil {
			yield(hansard.Event{}, err)
			return
		}
		rest := engine.Plain(r) // what is still to be read
		rest.After = after
		for n := pageEvents; ; n = laterEvents {
			page, more, err := s.page(ctx, id, rest, n)
			for _, e := range page {
				if err := ctx.Err(); err != nil {
					yield(hansard.Event{}, err) // a truncated read must not look complete
					return
				}
				if !yield(e, nil) {
					return
				}
				if rest.Reverse {
					rest.Before = e.Seq
				} else {
					rest.After = e.Seq
				}
			}
			if err != nil {
				yield(hansard.Event{}, err)
				return
			}
			if !more || rest.Limit > 0 && rest.Limit == len(page) {
				return
			}
			if rest.Limit > 0 {
				rest.Limit -= len(page)
			}
		}
	}
}

const findEvent = `SELECT ` + eventColumns + ` FROM hansard_events WHERE id = $1 AND event_id = $2`

// named reads the event with an id, and whether the session exists, in one snapshot.
func (s *Store) named(ctx context.Context, id hansard.SessionID, r hansard.Range) (e hansard.Event, err error) {
	if err := s.begin(ctx, id, engine.CheckRange(&r)); err != nil {
		return e, err
	}
	defer s.work.Done()
	err = s.look(ctx, func(ctx context.Context) error {
		b := &pgx.Batch{}
		b.Queue("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
		b.Queue(findHead, string(id))
		b.Queue(findEvent, string(id), r.ID)
		b.Queue("COMMIT")
		return s.batch(ctx, b, func(res pgx.BatchResults) error {
			if _, err := res.Exec(); err != nil {
				return err
			}
			h := &head{}
			var last int64
			switch err := res.QueryRow().Scan(&h.deleted, &last); {
			case errors.Is(err, pgx.ErrNoRows):
				h = nil
			case err != nil:
				return err
			}
			if err := h.find(id); err != nil {
				return err
			}
			err := scanEvent(res.QueryRow(), &e)
			if errors.Is(err, pgx.ErrNoRows) {
				return engine.NoEvent(id, r.ID)
			}
			return err
		})
	})
	return e, err
}

// fromSummary has an index of its own. Any other kind is searched for backward from the end
// of the range.
const (
	fromSummary = `SELECT coalesce((SELECT seq - 1 FROM hansard_events WHERE id = $1 AND seq > $2 AND seq < $3 AND kind = 'summary' ORDER BY seq DESC LIMIT 1), $2)`
	fromKind    = `SELECT coalesce((SELECT seq - 1 FROM hansard_events WHERE id = $1 AND seq > $2 AND seq < $3 AND kind = $4 ORDER BY seq DESC LIMIT 1), $2)`
	fromLast    = `SELECT coalesce(min(seq) - 1, $2) FROM (SELECT seq FROM hansard_events
		WHERE id = $1 AND seq > $2 AND seq < $3 AND (cardinality($5::text[]) = 0 OR kind = ANY($5)) ORDER BY seq DESC LIMIT $4) l`
)

// upTo is the exclusive upper bound of a range, as a bigint.
func upTo(r hansard.Range) int64 {
	if r.Before == 0 || r.Before > maxSeq {
		return maxSeq
	}
	return int64(r.Before)
}

// from is the seq after which a range begins.
func (s *Store) from(ctx context.Context, id hansard.SessionID, r hansard.Range) (hansard.Seq, error) {
	if err := s.begin(ctx, id, engine.CheckRange(&r)); err != nil {
		return 0, err
	}
	defer s.work.Done()
	r = engine.Plain(r)
	after, before := int64(min(r.After, maxSeq)), upTo(r)
	err := s.look(ctx, func(ctx context.Context) error {
		at := after
		find := func(sql string, more ...any) error {
			return s.pool.QueryRow(ctx, sql, append([]any{string(id), at, before}, more...)...).Scan(&at)
		}
		var err error
		switch {
		case r.FromKind == hansard.KindSummary:
			err = find(fromSummary)
		case r.FromKind != "" && storable(r.FromKind):
			err = find(fromKind, r.FromKind)
		}
		if err == nil && r.Last > 0 {
			err = find(fromLast, r.Last, kinds(r))
		}
		if err == nil {
			after = at
		}
		return err
	})
	return hansard.Seq(after), err
}

// kinds returns the kinds of a range that an event can have: the database refuses others.
func kinds(r hansard.Range) []string {
	out := []string{}
	for _, kind := range r.Kinds {
		if storable(kind) {
			out = append(out, kind)
		}
	}
	if len(out) == 0 && len(r.Kinds) > 0 {
		out = append(out, strings.Repeat("x", hansard.MaxNameBytes+1)) // matches nothing; an empty list would match all
	}
	return out
}

// storable tells whether PostgreSQL can store a text at all.
func storable(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsRune(text, 0)
}

const (
	// readPage gives events up to the one that fills the page. That one is found first, by the
	// lengths alone: the length of a value that is stored out of line is known without reading it.
	readPage = `SELECT ` + eventColumns + ` FROM hansard_events WHERE id = $1 AND seq > $2 AND seq <= (
		SELECT max(seq) FROM (
			SELECT seq, sum(size) OVER (ORDER BY seq ROWS UNBOUNDED PRECEDING) - size AS before FROM (
				SELECT seq, octet_length(data) AS size FROM hansard_events WHERE id = $1 AND seq > $2 AND seq < $3 AND (cardinality($5::text[]) = 0 OR kind = ANY($5)) ORDER BY seq LIMIT $4
			) part
		) page WHERE before < $6
	) AND (cardinality($5::text[]) = 0 OR kind = ANY($5)) ORDER BY seq`
	// readPageBack is the same backward from the end.
	readPageBack = `SELECT ` + eventColumns + ` FROM hansard_events WHERE id = $1 AND seq < $3 AND seq >= (
		SELECT min(seq) FROM (
			SELECT seq, sum(size) OVER (ORDER BY seq DESC ROWS UNBOUNDED PRECEDING) - size AS before FROM (
				SELECT seq, octet_length(data) AS size FROM hansard_events WHERE id = $1 AND seq > $2 AND seq < $3 AND (cardinality($5::text[]) = 0 OR kind = ANY($5)) ORDER BY seq DESC LIMIT $4
			) part
		) page WHERE before < $6
	) AND (cardinality($5::text[]) = 0 OR kind = ANY($5)) ORDER BY seq DESC`
	findHead = `SELECT deleted, last FROM hansard_heads WHERE id = $1`
)

// page reads the next n events of a range, or fewer if they are large, and whether the
// session exists, in one snapshot: a session is never seen without the batch that created
// it, nor a deleted one with part of its events.
func (s *Store) page(ctx context.Context, id hansard.SessionID, r hansard.Range, n int) (page []hansard.Event, more bool, err error) {
	if err := s.begin(ctx, id); err != nil {
		return nil, false, err
	}
	defer s.work.Done()
	if r.Limit > 0 {
		n = min(n, r.Limit)
	}
	sql := readPage
	if r.Reverse {
		sql = readPageBack
	}
	var last int64
	err = s.look(ctx, func(ctx context.Context) error {
		page = page[:0]
		b := &pgx.Batch{}
		b.Queue("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
		b.Queue(sql, string(id), int64(r.After), upTo(r), n, kinds(r), int64(pageBytes))
		b.Queue(findHead, string(id))
		b.Queue("COMMIT")
		return s.batch(ctx, b, func(res pgx.BatchResults) error {
			if _, err := res.Exec(); err != nil {
				return err
			}
			bytes := 0
			rows, err := res.Query()
			if err != nil {
				return err
			}
			defer rows.Close()
			for rows.Next() {
				var e hansard.Event
				if err := scanEvent(rows, &e); err != nil {
					return err
				}
				bytes += len(e.Data)
				page = append(page, e)
			}
			if err := rows.Err(); err != nil {
				return err
			}
			more = len(page) == n || bytes >= pageBytes
			var deleted bool
			switch err := res.QueryRow().Scan(&deleted, &last); {
			case errors.Is(err, pgx.ErrNoRows):
				return (*head)(nil).find(id)
			case err != nil:
				return err
			}
			return (&head{deleted: deleted}).find(id)
		})
	})
	if err != nil {
		return nil, false, err
	}
	if len(r.Kinds) > 0 {
		return page, more, nil // filtered: a missing event can't be told from one of another kind
	}
	end := hansard.Seq(min(last, upTo(r)-1)) // the last event that the range has to contain
	if r.Reverse {
		safe, damage := gaplessBack(id, page, r.After, end, !more)
		return page[:safe], more, damage
	}
	safe, damage := gapless(id, page, r.After, end, !more)
	return page[:safe], more, damage
}

// gapless tells how many of the events after a seq are safe: those before a gap, which
// exists only if somebody changed the tables from outside. At the end of the range the last
// event has to have the last seq.
func gapless(id hansard.SessionID, page []hansard.Event, after, last hansard.Seq, end bool) (safe int, err error) {
	for i := range page {
		if page[i].Seq != after+1 {
			return i, &hansard.DamagedError{Session: id, SafeSeq: after, Reason: fmt.Sprintf("seq %d follows seq %d", page[i].Seq, after)}
		}
		after++
	}
	if end && after < last {
		return len(page), &hansard.DamagedError{Session: id, SafeSeq: after, Reason: fmt.Sprintf("the log ends at seq %d, and the last seq is %d", after, last)}
	}
	return len(page), nil
}

// gaplessBack is gapless for events from last down to the one after a seq. Only events with
// lower seqs than the gap are safe: none of those are returned.
func gaplessBack(id hansard.SessionID, page []hansard.Event, after, last hansard.Seq, end bool) (safe int, err error) {
	next := last + 1
	for i := range page {
		if page[i].Seq+1 != next {
			return i, missing(id, page[i].Seq, next)
		}
		next--
	}
	if end && next > after+1 {
		return len(page), missing(id, after, next)
	}
	return len(page), nil
}

// missing is the error for a gap between two seqs.
func missing(id hansard.SessionID, safe, next hansard.Seq) error {
	return &hansard.DamagedError{Session: id, SafeSeq: safe, Reason: fmt.Sprintf("the events between seq %d and seq %d are missing", safe, next)}
}

// batch sends statements together and reads their results.
func (s *Store) batch(ctx context.Context, b *pgx.Batch, read func(pgx.BatchResults) error) error {
	res := s.pool.SendBatch(ctx, b)
	err := read(res)
	if closeErr := res.Close(); err == nil {
		err = closeErr
	}
	return err
}
