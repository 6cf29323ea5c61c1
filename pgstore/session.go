package pgstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/jackc/pgx/v5"

	"hansard"
	"hansard/engine"
)

// Create implements [hansard.Store].
func (s *Store) Create(ctx context.Context, id hansard.SessionID, m hansard.Meta) (hansard.Info, error) {
	if err := s.begin(ctx, id, engine.CheckMeta(&m), s.writable()); err != nil {
		return hansard.Info{}, err
	}
	defer s.work.Done()
	reuse := m.Reuse
	m = hansard.Meta{Title: m.Title, Labels: maps.Clone(m.Labels), State: bytes.Clone(m.State)}
	var info hansard.Info
	err := s.write(ctx, &job{id: id, decide: func(l *locked) (*change, error) {
		switch err := l.head.find(id); {
		case err == nil:
			return nil, fmt.Errorf("%w: %s", hansard.ErrExists, id)
		case l.head != nil && !reuse:
			return nil, err
		}
		h := head{created: l.now, updated: l.now}
		if l.head != nil && !h.created.After(l.head.created) {
			h.created = l.head.created.Add(time.Microsecond) // tells it from the deleted session
			h.updated = h.created
		}
		info = h.info(id, m)
		return &change{create: &m, reuse: l.head != nil, head: h}, nil
	}}, func() {
		if reuse {
			s.hub.changed(id, 0)
		}
	})
	if err != nil {
		return hansard.Info{}, err
	}
	info.Labels, info.State = maps.Clone(info.Labels), bytes.Clone(info.State)
	return info, nil
}

// write executes a job for one caller, which waits no longer than its context
// allows: after that the outcome is unknown. What has to follow the commit is done even if
// the caller has left by then.
func (s *Store) write(ctx context.Context, j *job, follow func()) error {
	done, gone := make(chan error), make(chan struct{})
	s.work.Add(1) // the caller holds one, so the counter is not zero
	go func() {
		defer s.work.Done()
		err := s.decide(ctx, j)
		select {
		case done <- err:
		case <-gone:
			if err == nil {
				follow()
			}
		}
	}()
	select {
	case err := <-done:
		if err == nil {
			follow()
		}
		return err
	case <-ctx.Done():
		close(gone)
		return fmt.Errorf("%w: %w", hansard.ErrUnknown, context.Cause(ctx))
	}
}

// nothing follows a commit that nobody else waits for.
func nothing() {}

// Delete implements [hansard.Store]. The row stays as a tombstone; the events are
// removed after it is durable, a part at a time.
func (s *Store) Delete(ctx context.Context, id hansard.SessionID, turn hansard.Grant) error {
	if err := s.begin(ctx, id, s.writable()); err != nil {
		return err
	}
	defer s.work.Done()
	return s.write(ctx, &job{id: id, decide: func(l *locked) (*change, error) {
		if err := l.head.find(id); err != nil {
			return nil, err
		}
		if _, err := l.fence(l.head, turn, false); err != nil {
			return nil, err
		}
		return &change{remove: true}, nil
	}}, func() {
		s.hub.changed(id, 0)
		s.startPurge(id)
	})
}

// purgeAtOnce is how long the caller of Delete waits for the removal: a short-lived
// process would otherwise leave all of it to others.
const purgeAtOnce = 2 * time.Second

func (s *Store) startPurge(id hansard.SessionID) {
	s.remove(func(ctx context.Context) bool { return s.purge(ctx, id) == nil })
}

// remove removes something within purgeAtOnce, or continues in the background.
func (s *Store) remove(f func(ctx context.Context) (done bool)) {
	ctx, cancel := context.WithTimeout(context.Background(), purgeAtOnce)
	defer cancel()
	if !f(ctx) {
		s.background(func(ctx context.Context) { f(ctx) })
	}
}

const (
	// purgeSome removes the next events after a seq and returns the last seq removed. It
	// does not start over from the beginning, where the dead rows still have to be skipped.
	purgeSome = `WITH part AS (SELECT max(seq) AS last FROM (SELECT seq FROM hansard_events WHERE id = $1 AND seq > $2 AND ` + stillPurging + ` ORDER BY seq LIMIT 2000) s),
	gone AS (DELETE FROM hansard_events WHERE id = $1 AND seq > $2 AND seq <= (SELECT last FROM part))
	SELECT coalesce(last, 0) FROM part`
	// purged ends it. It also removes tickets: a claim that was about to refresh its own may
	// have inserted it after the deletion.
	purged = `WITH gone AS (DELETE FROM hansard_waiting WHERE id = $1 AND ` + stillPurging + `)
	UPDATE hansard_heads SET purging = false WHERE id = $1 AND purging`
	// stillPurging is checked by each statement that removes data of a deleted session: by
	// the time it is sent a new session may have the id (reuseHead).
	stillPurging = `EXISTS (SELECT 1 FROM hansard_heads WHERE id = $1 AND purging)`
	purgeWords   = removeWords + ` AND ` + stillPurging
	toPurge      = `SELECT id FROM hansard_heads WHERE purging`
)

// purge removes the events, words and attachments of a deleted session. If it fails, a later
// sweep or Prune finishes the work.
func (s *Store) purge(ctx context.Context, id hansard.SessionID) error {
	if _, err := s.execReserved(ctx, purgeWords, string(id)); err != nil {
		return err
	}
	for after := int64(0); ; {
		if err := s.rowReserved(ctx, []any{&after}, purgeSome, string(id), after); err != nil {
			return err
		}
		if after == 0 {
			break
		}
	}
	if err := s.purgeAttachments(ctx, id); err != nil {
		return err
	}
	_, err := s.execReserved(ctx, purged, string(id))
	return err
}

// leftToPurge are the deleted sessions whose events are not all removed.
func (s *Store) leftToPurge(ctx context.Context) ([]string, error) {
	rows, err := s.pool.Query(ctx, toPurge)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// Prune implements [hansard.Pruner]: it removes the remaining rows of deleted sessions.
// PostgreSQL keeps removed rows in its tables until they are vacuumed, and in its write-ahead
// log; a client can't scrub those.
func (s *Store) Prune(ctx context.Context, scrub bool) (done hansard.Pruned, err error) {
	if err := s.begin(ctx, "any", s.writable()); err != nil {
		return done, err
	}
	defer s.work.Done()
	if scrub {
		return done, &scrubError{}
	}
	err = s.look(ctx, func(bounded context.Context) (err error) {
		ids, err := s.leftToPurge(bounded)
		// Not bounded: each takes as long as the caller's context allows.
		for _, id := range ids {
			if err == nil {
				if err = s.purge(ctx, hansard.SessionID(id)); err == nil {
					done.Erased = append(done.Erased, hansard.ErasedSession{Session: hansard.SessionID(id)})
				}
			}
		}
		if err == nil {
			done.Attachments, err = s.pruneAttachments(ctx)
		}
		return err
	})
	return done, err
}

type scrubError struct{}

func (e *scrubError) Error() string {
	return "a database can't be scrubbed by its clients: nothing was done"
}
func (e *scrubError) Is(target error) bool { return target == hansard.ErrUnsupported }
func (e *scrubError) Hint() string {
	return "run prune without --scrub, then VACUUM FULL hansard_events, hansard_sessions and hansard_heads in the database; its write-ahead log and backups age out"
}

// sweepEvery is how often a process looks for removals that others left unfinished.
const sweepEvery = time.Hour

// sweep continues purges that others left unfinished, now and then every sweepEvery.
func (s *Store) sweep() {
	if s.opt.ReadOnly {
		return
	}
	s.background(func(ctx context.Context) {
		for {
			s.sweepSessions(ctx)
			s.sweepUploads(ctx)
			select {
			case <-time.After(sweepEvery):
			case <-ctx.Done():
				return
			}
		}
	})
}

func (s *Store) sweepSessions(ctx context.Context) {
	ids, err := s.leftToPurge(ctx)
	if err != nil {
		return
	}
	for _, id := range ids {
		_ = s.purge(ctx, hansard.SessionID(id)) // the next sweep continues
	}
}

const infoColumns = headColumns + ", s.title, s.labels, s.state"

// scanInfo reads infoColumns.
func scanInfo(row pgx.Row, id hansard.SessionID) (hansard.Info, error) {
	var h head
	var title, labels, state *string
	if err := scanHead(row, &h, &title, &labels, &state); err != nil {
		return hansard.Info{}, err
	}
	if err := h.find(id); err != nil {
		return hansard.Info{}, err
	}
	if title == nil || labels == nil || state == nil {
		return hansard.Info{}, fmt.Errorf("session %s has no row in hansard_sessions", id)
	}
	m, err := scanMeta(*title, *labels, *state)
	return h.info(id, m), err
}

const statSession = "SELECT " + infoColumns + " FROM hansard_heads h LEFT JOIN hansard_sessions s ON s.id = h.id WHERE h.id = $1"

// Stat implements [hansard.Store].
func (s *Store) Stat(ctx context.Context, id hansard.SessionID) (info hansard.Info, err error) {
	if err := s.begin(ctx, id); err != nil {
		return hansard.Info{}, err
	}
	defer s.work.Done()
	err = s.look(ctx, func(ctx context.Context) error {
		info, err = scanInfo(s.pool.QueryRow(ctx, statSession, string(id)), id)
		if errors.Is(err, pgx.ErrNoRows) {
			return (*head)(nil).find(id)
		}
		return err
	})
	return info, err
}

// look reads from the database, and retries if the connection was lost.
func (s *Store) look(ctx context.Context, read func(ctx context.Context) error) error {
	never := false
	return s.retry(ctx, &never, func(context.Context) error {
		bounded, cancel := context.WithTimeout(ctx, statementPatience)
		defer cancel()
		err := read(bounded)
		if err != nil && ctx.Err() != nil {
			return answer(context.Cause(ctx))
		}
		return err
	})
}
