package pgstore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"hansard"
)

var _ hansard.Checker = (*Store)(nil)

const verifyIDs = `SELECT id FROM hansard_heads WHERE id > $1 AND NOT deleted ORDER BY id LIMIT 1000`

// Verify implements [hansard.Checker]. It reads every event and holds what is kept
// about a session against what its log says: the seqs, the turns and who wrote
// under them, the metadata that the patches lead to, sizes, keys and the listing.
// The bytes on disk are PostgreSQL's: see its data checksums and pg_amcheck.
func (s *Store) Verify(ctx context.Context, id hansard.SessionID) iter.Seq2[hansard.Finding, error] {
	return func(yield func(hansard.Finding, error) bool) {
		if id != "" {
			yield(s.verify(ctx, id))
			return
		}
		last := ""
		for {
			ids, err := s.idsAfter(ctx, verifyIDs, last)
			if err != nil {
				yield(hansard.Finding{}, err)
				return
			}
			if len(ids) == 0 {
				break
			}
			for _, id := range ids {
				f, err := s.verify(ctx, hansard.SessionID(id))
				if errors.Is(err, hansard.ErrDeleted) {
					continue
				}
				if !yield(f, err) || err != nil {
					return
				}
			}
			last = ids[len(ids)-1]
		}
		orphans, err := s.orphans(ctx)
		if err != nil {
			yield(hansard.Finding{}, err)
		}
		for _, f := range orphans {
			if !yield(f, nil) {
				return
			}
		}
	}
}

const verifyRest = `SELECT o.id, h.id IS NULL FROM
	(SELECT id FROM hansard_sessions UNION SELECT id FROM hansard_listing UNION SELECT id FROM hansard_events) AS o
	LEFT JOIN hansard_heads h ON h.id = o.id WHERE h.id IS NULL OR h.deleted AND NOT h.purging ORDER BY o.id`

// orphans finds rows that belong to no session.
func (s *Store) orphans(ctx context.Context) (found []hansard.Finding, err error) {
	err = s.collect(ctx, func(rows pgx.Rows) error {
		f := hansard.Finding{Level: hansard.LevelDamage, Message: "it is deleted, and still has rows"}
		var headless bool
		if err := rows.Scan((*string)(&f.Session), &headless); err != nil {
			return err
		}
		if headless {
			f.Message = "it has no row in hansard_heads, and rows elsewhere"
		}
		found = append(found, f)
		return nil
	}, func() { found = nil }, verifyRest)
	return found, err
}

// idsAfter reads a page of ids.
func (s *Store) idsAfter(ctx context.Context, sql, last string) (ids []string, err error) {
	if err := s.begin(ctx, "any"); err != nil {
		return nil, err
	}
	defer s.work.Done()
	err = s.look(ctx, func(ctx context.Context) error {
		rows, err := s.pool.Query(ctx, sql, last)
		if err != nil {
			return err
		}
		ids, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	return ids, err
}

// verify examines one session, in one snapshot.
func (s *Store) verify(ctx context.Context, id hansard.SessionID) (f hansard.Finding, err error) {
	if err := s.begin(ctx, id); err != nil {
		return f, err
	}
	defer s.work.Done()
	snapshot := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err = s.look(ctx, func(ctx context.Context) error {
		return pgx.BeginTxFunc(ctx, s.pool, snapshot, func(tx pgx.Tx) error {
			e := &examination{id: id}
			if err := e.run(ctx, tx); err != nil {
				return err
			}
			f = hansard.Finding{Level: hansard.LevelOK, Session: id, Events: e.seq, Message: "sound"}
			if e.wrong != "" {
				f.Level, f.Message = hansard.LevelDamage, e.wrong
			}
			return nil
		})
	})
	return f, err
}

// examination is one session being examined.
type examination struct {
	id        hansard.SessionID
	head      head
	current   hansard.Grant // as the statement of an append sees it
	exclusive bool
	meta      hansard.Meta // as it is stored
	grown     hansard.Meta // as the log leads to it
	seq       hansard.Seq  // the last event that is safe
	time      time.Time    // its
	bytes     int64
	grants    hansard.Grants
	batch     hansard.KeyUse // the last one with a key
	wrong     string         // the first thing that is
	broken    bool           // the log itself, behind seq
}

func (e *examination) found(format string, args ...any) {
	if e.wrong == "" {
		e.wrong = fmt.Sprintf(format, args...)
	}
}

// breaks is found for something behind which the log can't be relied on.
func (e *examination) breaks(format string, args ...any) {
	e.found(format, args...)
	e.broken = true
}

const (
	verifyHead = "SELECT " + headColumns + `, h.current, h.exclusive, s.title, s.labels, s.state, s.born FROM hansard_heads h LEFT JOIN hansard_sessions s ON s.id = h.id WHERE h.id = $1`
	verifyLog  = "SELECT " + eventColumns + ", key, hash, size FROM hansard_events WHERE id = $1 ORDER BY seq"
	verifyList = "SELECT label, listed FROM hansard_listing WHERE id = $1"
)

func (e *examination) run(ctx context.Context, q querier) error {
	var title, labels, state, born *string
	var bad *unreadable
	switch err := scanHead(q.QueryRow(ctx, verifyHead, string(e.id)), &e.head, &e.current, &e.exclusive, &title, &labels, &state, &born); {
	case errors.Is(err, pgx.ErrNoRows):
		return (*head)(nil).find(e.id)
	case errors.As(err, &bad):
		e.found("%v", bad)
	case err != nil:
		return err
	}
	if err := e.head.find(e.id); err != nil {
		return err
	}
	if title == nil || labels == nil || state == nil || born == nil {
		e.found("it has no row in hansard_sessions")
	} else {
		var err error
		if e.meta, err = scanMeta(*title, *labels, *state); err != nil {
			e.found("%v", err)
		}
		if e.grown, err = scanBorn(*born); err != nil {
			e.found("%v", err)
		}
	}
	if err := e.readLog(ctx, q); err != nil {
		return err
	}
	e.compare()
	return e.readListing(ctx, q)
}

func scanBorn(text string) (hansard.Meta, error) {
	var b bornMeta
	if err := json.Unmarshal([]byte(text), &b); err != nil {
		return hansard.Meta{}, fmt.Errorf("hansard_sessions.born: %w", err)
	}
	return hansard.Meta{Title: b.Title, Labels: b.Labels, State: []byte(b.State)}, nil
}

func (e *examination) readLog(ctx context.Context, q querier) error {
	rows, err := q.Query(ctx, verifyLog, string(e.id))
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var ev hansard.Event
		var key, hash *string
		var size *int32
		var bad *unreadable
		switch err := scanEvent(more{rows, []any{&key, &hash, &size}}, &ev); {
		case errors.As(err, &bad):
			e.breaks("%v", bad)
		case err != nil:
			return err
		}
		e.event(&ev)
		e.keyUse(ev.Seq, key, hash, size)
	}
	return rows.Err()
}

// more is a row whose last columns go elsewhere.
type more struct {
	pgx.Row
	last []any
}

func (m more) Scan(into ...any) error { return m.Row.Scan(append(into, m.last...)...) }

func (e *examination) event(ev *hansard.Event) {
	if ev.Seq != e.seq+1 && !e.broken {
		e.breaks("seq %d follows seq %d", ev.Seq, e.seq)
	}
	if !json.Valid(ev.Data) {
		e.breaks("the data of seq %d is not JSON", ev.Seq)
	}
	if err := e.grants.Next(ev); err != nil {
		e.breaks("%v", err)
	}
	meta, err := hansard.ApplyPatch(e.grown, ev.Patch)
	if err != nil {
		e.breaks("the patch of seq %d: %v", ev.Seq, err)
	}
	if !e.broken {
		e.seq, e.time, e.grown = ev.Seq, ev.Time, meta
	}
	e.bytes += int64(len(ev.Data))
}

// keyUse examines what is kept with the first event of a batch with a key.
func (e *examination) keyUse(seq hansard.Seq, key, hash *string, size *int32) {
	switch {
	case key == nil && hash == nil && size == nil:
		return
	case key == nil || hash == nil || size == nil:
		e.found("the key at seq %d lacks itself, its hash or its size", seq)
		return
	case *size < 1 || seq+hansard.Seq(*size)-1 > e.head.last:
		e.found("the batch at seq %d has %d events, which can't be", seq, *size)
		return
	case seq <= e.batch.Last:
		e.found("the batch at seq %d begins inside the one at seq %d", seq, e.batch.First)
	}
	e.batch = hansard.KeyUse{First: seq, Last: seq + hansard.Seq(*size) - 1}
}

// compare holds what is kept about the session against its log.
func (e *examination) compare() {
	current := hansard.Grant("")
	if e.grants.Current != nil {
		current = e.grants.Current.Grant
	}
	held := hansard.Grant("")
	if e.head.turn != nil {
		held = e.head.turn.Grant
	}
	switch {
	case e.wrong != "": // one thing leads to another
	case e.seq != e.head.last:
		e.found("the last seq is said to be %d, the log has %d", e.head.last, e.seq)
	case e.seq > 0 && !e.time.Equal(e.head.updated):
		e.found("it was updated at %v, its last event says %v", e.head.updated, e.time)
	case e.bytes != e.head.bytes:
		e.found("it is said to have %d bytes, the log has %d", e.head.bytes, e.bytes)
	case current != held || current != e.current || e.grants.Last != e.head.newest:
		e.found("the turn is said to be %q and %q behind %q, the log says %q behind %q", held, e.current, e.head.newest, current, e.grants.Last)
	case e.exclusive != (e.grants.Current != nil && e.grants.Current.Exclusive):
		e.found("the turn is said to be exclusive: %v; the log says %v", e.exclusive, !e.exclusive)
	case e.meta.Title != e.grown.Title || !maps.Equal(e.meta.Labels, e.grown.Labels) || !bytes.Equal(e.meta.State, e.grown.State):
		e.found("its metadata is not what its patches lead to")
	}
}

func (e *examination) readListing(ctx context.Context, q querier) error {
	rows, err := q.Query(ctx, verifyList, string(e.id))
	if err != nil {
		return err
	}
	defer rows.Close()
	var got []string
	for rows.Next() {
		var label string
		listed := e.head.updated
		if err := rows.Scan(&label, &listed); err != nil {
			return err
		}
		got = append(got, label)
		if listed.After(e.head.updated) || !listed.Add(span).After(e.head.updated) {
			e.found("it is listed under %v, and was updated at %v", listed.UTC(), e.head.updated)
		}
	}
	want := listingLabels(e.meta.Labels)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		e.found("it is listed as %q, its labels say %q", got, want)
	}
	return rows.Err()
}

// Repair implements [hansard.Checker]: a session that is sound is left alone, and
// for one that is not there is nothing here that a backup would not do better.
func (s *Store) Repair(ctx context.Context, id hansard.SessionID) (hansard.Repaired, error) {
	f, err := s.verify(ctx, id)
	if err != nil {
		return hansard.Repaired{}, err
	}
	if f.Level == hansard.LevelDamage {
		return hansard.Repaired{}, &repairError{f.Message}
	}
	return hansard.Repaired{Session: id, Events: f.Events}, nil
}

type repairError struct{ what string }

func (e *repairError) Error() string        { return "the tables were changed by somebody else: " + e.what }
func (e *repairError) Is(target error) bool { return target == hansard.ErrUnsupported }
func (e *repairError) Hint() string {
	return "restore the database from a backup, or copy what is sound: hansard copy"
}
