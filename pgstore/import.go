package pgstore

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/jackc/pgx/v5"

	"hansard"
	"hansard/engine"
)

var _ hansard.Importer = (*Store)(nil)

// originsAfter looks up each session by itself: a merge join of the two tables would start
// at the first session for every page.
const originsAfter = `SELECT h.id, h.created, h.deleted, h.parent, h.parent_at, coalesce(s.born, '{}') FROM hansard_heads h
	LEFT JOIN LATERAL (SELECT born FROM hansard_sessions WHERE id = h.id LIMIT 1) s ON true
	WHERE h.id > $1 ORDER BY h.id LIMIT 200`

// Origins implements [hansard.Exporter].
func (s *Store) Origins(ctx context.Context, after hansard.SessionID) iter.Seq2[hansard.Origin, error] {
	return func(yield func(hansard.Origin, error) bool) {
		for {
			page, err := s.origins(ctx, after)
			if err != nil {
				yield(hansard.Origin{}, err)
				return
			}
			if len(page) == 0 {
				return
			}
			for _, o := range page {
				if !yield(o, nil) {
					return
				}
				after = o.ID
			}
		}
	}
}

func (s *Store) origins(ctx context.Context, after hansard.SessionID) (page []hansard.Origin, err error) {
	err = s.collect(ctx, func(rows pgx.Rows) error {
		var o hansard.Origin
		var born string
		var parent *string
		var parentAt *int64
		if err := rows.Scan((*string)(&o.ID), &o.Created, &o.Deleted, &parent, &parentAt, &born); err != nil {
			return err
		}
		if parent != nil && parentAt != nil {
			o.Parent = &hansard.Parent{ID: hansard.SessionID(*parent), At: hansard.Seq(*parentAt)}
		}
		o.Created = o.Created.UTC()
		if o.Meta, err = scanBorn(born); err != nil {
			return err
		}
		page = append(page, o)
		return nil
	}, func() { page = nil }, originsAfter, string(after))
	return page, err
}

// collect reads the rows of one statement, from the start if the connection was
// lost.
func (s *Store) collect(ctx context.Context, row func(pgx.Rows) error, restart func(), sql string, args ...any) error {
	if err := s.begin(ctx, "any"); err != nil {
		return err
	}
	defer s.work.Done()
	return s.look(ctx, func(ctx context.Context) error {
		restart()
		rows, err := s.pool.Query(ctx, sql, args...)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			if err := row(rows); err != nil {
				return err
			}
		}
		return rows.Err()
	})
}

// keysAfter goes along the log, and reads the events without a key too: a condition on the key would
// let PostgreSQL use the index of the keys, and sort all of them for each page; with any other a
// page would take as long as reading all events up to the next ones with keys.
const keysAfter = `SELECT key, hash, seq, size FROM hansard_events WHERE id = $1 AND seq > $2 ORDER BY seq LIMIT 2500`

// Keys implements [hansard.Exporter].
func (s *Store) Keys(ctx context.Context, id hansard.SessionID, after hansard.Seq) iter.Seq2[hansard.KeyUse, error] {
	return func(yield func(hansard.KeyUse, error) bool) {
		if _, err := s.Stat(ctx, id); err != nil {
			yield(hansard.KeyUse{}, err)
			return
		}
		for {
			var page []hansard.KeyUse
			last := int64(0) // that was read; 0 at the end
			err := s.collect(ctx, func(rows pgx.Rows) error {
				var hash *string
				if err := rows.Scan(nil, &hash, &last, nil); err != nil || hash == nil {
					return err
				}
				// The first event of a batch with a key.
				k := hansard.KeyUse{First: hansard.Seq(last)}
				var size int64
				if err := rows.Scan(&k.Key, &k.Hash, nil, &size); err != nil {
					return err
				}
				k.Last = k.First + hansard.Seq(size) - 1
				page = append(page, k)
				return nil
			}, func() { page, last = nil, 0 }, keysAfter, string(id), int64(min(after, maxSeq)))
			if err != nil {
				yield(hansard.KeyUse{}, err)
				return
			}
			if last == 0 {
				return
			}
			for _, k := range page {
				if !yield(k, nil) {
					return
				}
			}
			after = hansard.Seq(last)
		}
	}
}

// Import implements [hansard.Importer].
func (s *Store) Import(ctx context.Context, p hansard.Part) error {
	if err := s.begin(ctx, p.ID, engine.CheckPartInput(&p), s.writable()); err != nil {
		return err
	}
	defer s.work.Done()
	engine.TakeAwayIn(&p)
	rows, err := partRows(&p)
	if err != nil {
		return err
	}
	var last hansard.Seq
	content := false // of the session that is deleted
	return s.write(ctx, &job{id: p.ID, ids: idsOf(p.Events), digests: digests(rows.named()), meta: true, bytes: rows.sending(), decide: func(l *locked) (*change, error) {
		c, err := importPart(l, &p)
		if err == nil && c != nil && !c.remove {
			c.rows = *rows
			last = c.head.last
			c.more = func(b *pgx.Batch) { queueRedactions(b, &p) }
		}
		content = p.Deleted && l.head != nil
		return c, err
	}}, func() {
		s.hub.changed(p.ID, last)
		if content {
			s.startPurge(p.ID)
		}
	})
}

func idsOf(events []hansard.Event) (ids []string) {
	for i := range events {
		if events[i].ID != "" {
			ids = append(ids, events[i].ID)
		}
	}
	return ids
}

// importPart decides about a part on a locked session. The rows are left to the
// caller.
func importPart(l *locked, p *hansard.Part) (*change, error) {
	c := &change{}
	meta := l.meta
	switch {
	case l.head == nil:
		c.create, meta = &p.Meta, p.Meta
		c.head = head{created: p.Created, updated: p.Created, parent: p.Parent}
	case l.head.deleted:
		return nil, l.head.find(p.ID)
	default:
		c.head = *l.head
		if err := engine.SameOrigin(p, l.head.created); err != nil {
			return nil, err
		}
	}
	if p.Deleted {
		c.remove = true
		return c, nil
	}
	grants := engine.Grants{Current: c.head.turn, Last: c.head.newest}
	if err := engine.CheckPart(p, c.head.last, &grants, func(id string) (engine.Known, bool) { k, ok := l.ids[id]; return k, ok }); err != nil {
		return nil, err
	}
	if err := engine.CheckNamed(p.ID, engine.NamedBy(p.Events), l.attachedSize); err != nil {
		return nil, err
	}
	for i := range p.Events {
		e := &p.Events[i]
		if e.Patch != nil {
			var err error
			if meta, err = engine.ReplayPatch(meta, e.Patch); err != nil {
				return nil, fmt.Errorf("the patch of seq %d: %w", e.Seq, err)
			}
			patched := meta
			c.meta = &patched
		}
		c.head.last, c.head.updated = e.Seq, e.Time
		c.head.bytes += int64(len(e.Data))
	}
	if grants.Last != c.head.newest || grants.Current != c.head.turn { // the holder's TTL starts now
		c.turn, c.head.turn, c.head.newest = true, grants.Current, grants.Last
		if t := grants.Current; t != nil {
			t.Renewed = l.now
		}
	}
	return c, nil
}

// partRows are the rows of a part.
func partRows(p *hansard.Part) (*rows, error) {
	r := &rows{times: []time.Time{}}
	keys := make(map[hansard.Seq]*hansard.KeyUse, len(p.Keys))
	for i := range p.Keys {
		keys[p.Keys[i].First] = &p.Keys[i]
	}
	for i := range p.Events {
		e := &p.Events[i]
		if err := r.add(p.Events[i:i+1], batch{turn: e.Turn}); err != nil {
			return nil, err
		}
		r.times = append(r.times, e.Time)
		if k := keys[e.Seq]; k != nil {
			n := &r.list[i]
			n.key, n.hash, n.size = &k.Key, &k.Hash, ptr(int32(k.Last-k.First+1))
		}
	}
	return r, nil
}
