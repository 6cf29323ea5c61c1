package pgstore

import (
	"context"
	"errors"
	"iter"

	"github.com/jackc/pgx/v5"

	"hansard"
	"hansard/engine"
)

var (
	_ hansard.Checker = (*Store)(nil)
	_ hansard.Pruner  = (*Store)(nil)
)

// verifyIDs reads the deleted sessions too: a condition would be checked on each of them, and a page
// that follows millions of them would take as long as reading them all.
const verifyIDs = `SELECT id, deleted FROM hansard_heads WHERE id > $1 ORDER BY id LIMIT 1000`

// Verify implements [hansard.Checker]. It reads every event and checks the rows about
// a session against its log: the seqs, the turns and who wrote under them, the
// metadata that the patches lead to, sizes, keys and the listing. It checks every
// attachment against its digest, that what events name is attached, and the history of
// a fork against its parent's.
// The bytes on disk are PostgreSQL's: see its data checksums and pg_amcheck.
func (s *Store) Verify(ctx context.Context, id hansard.SessionID) iter.Seq2[hansard.Finding, error] {
	return func(yield func(hansard.Finding, error) bool) {
		if id != "" {
			s.verifyOne(ctx, id, yield)
			return
		}
		last := ""
		for {
			ids, read, err := s.idsAfter(ctx, last)
			if err != nil {
				yield(hansard.Finding{}, err)
				return
			}
			if read == "" {
				break
			}
			for _, id := range ids {
				more := s.verifyOne(ctx, id, func(f hansard.Finding, err error) bool {
					return errors.Is(err, hansard.ErrDeleted) || yield(f, err) && err == nil
				})
				if !more {
					return
				}
			}
			last = read
		}
		s.orphans(ctx, yield)
	}
}

// verifyOne examines one session, and compares a fork with its parent.
func (s *Store) verifyOne(ctx context.Context, id hansard.SessionID, yield func(hansard.Finding, error) bool) (more bool) {
	f, parent, err := s.verify(ctx, id)
	if err != nil || f.Level != hansard.LevelOK || parent == nil {
		return yield(f, err)
	}
	differs, err := engine.CompareParent(ctx, s, id, *parent)
	if differs.Damage {
		f.Level, f.Message = hansard.LevelDamage, differs.Message
	}
	if !yield(f, err) || err != nil {
		return false
	}
	if differs.Damage || differs.Message == "" {
		return true
	}
	f.Level, f.Message = hansard.LevelNote, differs.Message
	return yield(f, nil)
}

// orphanPage examines the next 1,000 sessions that have rows in a table. It returns the last
// of them, those without a head, and those that are deleted and should have no rows.
// Each session costs one index lookup, however many rows it has.
func orphanPage(table string) string {
	return `WITH RECURSIVE ids AS (
		(SELECT id FROM ` + table + ` WHERE id > $1 ORDER BY id LIMIT 1)
		UNION ALL SELECT (SELECT t.id FROM ` + table + ` t WHERE t.id > ids.id ORDER BY t.id LIMIT 1) FROM ids WHERE ids.id IS NOT NULL
	)
	SELECT coalesce(max(i.id), ''), coalesce(array_agg(i.id) FILTER (WHERE h.id IS NULL), '{}'), coalesce(array_agg(i.id) FILTER (WHERE h.deleted AND NOT h.purging), '{}')
	FROM (SELECT id FROM ids WHERE id IS NOT NULL LIMIT 1000) i LEFT JOIN LATERAL (SELECT id, deleted, purging FROM hansard_heads WHERE id = i.id LIMIT 1) h ON true`
}

// orphanPages are for the tables that have rows of sessions.
var orphanPages = []string{orphanPage("hansard_sessions"), orphanPage("hansard_listing"), orphanPage("hansard_events"),
	orphanPage("hansard_attachments"), orphanPage("hansard_attachment_parts"), orphanPage("hansard_searched")}

// orphans finds rows that belong to no session, and reports each session once.
func (s *Store) orphans(ctx context.Context, yield func(hansard.Finding, error) bool) {
	told := make(map[string]bool)
	for _, page := range orphanPages {
		for last := ""; ; {
			var headless, deleted []string
			err := s.collect(ctx, func(rows pgx.Rows) error { return rows.Scan(&last, &headless, &deleted) }, func() {}, page, last)
			if err != nil {
				yield(hansard.Finding{}, err)
				return
			}
			for i, id := range append(headless, deleted...) {
				f := hansard.Finding{Level: hansard.LevelDamage, Session: hansard.SessionID(id), Message: "it has no row in hansard_heads, and rows elsewhere"}
				if i >= len(headless) {
					f.Message = "it is deleted, and still has rows"
				}
				if told[id] {
					continue
				}
				if told[id] = true; !yield(f, nil) {
					return
				}
			}
			if last == "" {
				break
			}
		}
	}
}

// idsAfter reads the next page of ids. It returns those that are not deleted, of which there may be
// none, and the last one it read, which is empty at the end.
func (s *Store) idsAfter(ctx context.Context, after string) (ids []hansard.SessionID, last string, err error) {
	err = s.collect(ctx, func(rows pgx.Rows) error {
		var deleted bool
		if err := rows.Scan(&last, &deleted); err != nil {
			return err
		}
		if !deleted {
			ids = append(ids, hansard.SessionID(last))
		}
		return nil
	}, func() { ids, last = nil, "" }, verifyIDs, after)
	return ids, last, err
}

// verify examines one session. The rows about it and the first page of its log are from
// one snapshot. The rest of the log is read a page at a time, up to where it ended in that
// snapshot: that part does not change, however long it takes, except by redactions.
func (s *Store) verify(ctx context.Context, id hansard.SessionID) (f hansard.Finding, parent *hansard.Parent, err error) {
	if err := s.begin(ctx, id); err != nil {
		return f, nil, err
	}
	defer s.work.Done()
	e := &examination{id: id}
	err = s.look(ctx, func(ctx context.Context) error {
		*e = examination{id: id}
		return e.start(ctx, s)
	})
	if err == nil {
		err = e.rest(ctx, s)
	}
	if err != nil {
		return f, nil, err
	}
	e.compare()
	f = hansard.Finding{Level: hansard.LevelOK, Session: id, Events: e.seq, Message: "sound"}
	if e.wrong != "" {
		f.Level, f.Message = hansard.LevelDamage, e.wrong
	}
	return f, e.lineage.Parent, nil
}

// Repair implements [hansard.Checker]: it leaves a sound session alone, and refuses a
// damaged one: a backup does better than anything that could be done here.
func (s *Store) Repair(ctx context.Context, id hansard.SessionID) (hansard.Repaired, error) {
	f, _, err := s.verify(ctx, id)
	if err != nil {
		return hansard.Repaired{}, err
	}
	if f.Level == hansard.LevelDamage {
		return hansard.Repaired{}, &repairError{f.Message}
	}
	return hansard.Repaired{Session: id, Events: f.Events}, nil
}

type repairError struct{ what string }

func (e *repairError) Error() string        { return "the tables were modified from outside: " + e.what }
func (e *repairError) Is(target error) bool { return target == hansard.ErrUnsupported }
func (e *repairError) Hint() string {
	return "restore the database from a backup, or copy what is sound: hansard copy"
}
