package pgstore

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"hansard"
	"hansard/engine"
)

// List implements [hansard.Store]. The order is read from one snapshot of the
// database, so that a session which moves to the front meanwhile is not missed.
// The first page of descriptions is from that snapshot too; later pages of a long
// list are read when they are needed.
func (s *Store) List(ctx context.Context, q hansard.Query) iter.Seq2[hansard.Info, error] {
	return func(yield func(hansard.Info, error) bool) {
		order, infos, err := s.order(ctx, q)
		for err == nil {
			for _, info := range infos {
				if err = ctx.Err(); err != nil {
					break
				}
				if !yield(info, nil) {
					return
				}
			}
			order = order[min(len(order), infoPage):]
			if len(order) == 0 {
				break
			}
			if err == nil {
				infos, err = s.describe(ctx, order[:min(len(order), infoPage)])
			}
		}
		if err != nil {
			yield(hansard.Info{}, err)
		}
	}
}

// infoPage is how many descriptions are read at once: each may have a state
// document of its own.
const infoPage = 200

// order returns the sessions a query selects, in order, with only ids and cursors set, and
// the full descriptions of the first page.
func (s *Store) order(ctx context.Context, q hansard.Query) (order, infos []hansard.Info, err error) {
	if err := s.begin(ctx, "any", engine.CheckQuery(&q)); err != nil {
		return nil, nil, err
	}
	defer s.work.Done()
	err = s.inSnapshot(ctx, func(ctx context.Context, tx pgx.Tx) error {
		c := chooser{querier: tx}
		if order, err = c.page(ctx, q, engine.Now()); err != nil {
			return err
		}
		s.fillIf(c.fill)
		infos, err = readInfos(ctx, tx, order[:min(len(order), infoPage)])
		return err
	})
	return order, infos, err
}

// inSnapshot reads from one snapshot of the database.
func (s *Store) inSnapshot(ctx context.Context, read func(ctx context.Context, tx pgx.Tx) error) error {
	snapshot := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	return s.look(ctx, func(ctx context.Context) error {
		return pgx.BeginTxFunc(ctx, s.pool, snapshot, func(tx pgx.Tx) error { return read(ctx, tx) })
	})
}

// Count implements [hansard.Counter].
func (s *Store) Count(ctx context.Context, q hansard.Query) (n int, err error) {
	if err := s.begin(ctx, "any", engine.CheckQuery(&q)); err != nil {
		return 0, err
	}
	defer s.work.Done()
	q.Limit, q.Cursor = 0, ""
	err = s.inSnapshot(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if label, ok := onlyLabel(&q); ok {
			return tx.QueryRow(ctx, countLabelled, label).Scan(&n)
		}
		c := chooser{querier: tx}
		all, err := c.choose(ctx, q, engine.Cursor{Order: q.Order})
		s.fillIf(c.fill)
		n = len(all)
		return err
	})
	return n, err
}

const countLabelled = `SELECT count(*) FROM hansard_listing l WHERE l.label = $1`

// onlyLabel returns the label, as stored in the listing, of a query that filters by one label
// and nothing else. If the query has no filter it is the empty label, which all sessions have.
func onlyLabel(q *hansard.Query) (label string, ok bool) {
	rest := *q
	rest.Order, rest.Labels = 0, nil
	for name, value := range q.Labels {
		label = name + "=" + value
		ok = name != "" && storable(label)
	}
	return label, reflect.ValueOf(rest).IsZero() && (len(q.Labels) == 0 || ok && len(q.Labels) == 1)
}

// describe reads descriptions. Sessions that were deleted meanwhile are left out.
func (s *Store) describe(ctx context.Context, order []hansard.Info) (infos []hansard.Info, err error) {
	if err := s.begin(ctx, "any"); err != nil {
		return nil, err
	}
	defer s.work.Done()
	err = s.look(ctx, func(ctx context.Context) error {
		infos, err = readInfos(ctx, s.pool, order)
		return err
	})
	return infos, err
}

// span bounds how far the time a session is listed under lags behind its last event: always
// by less than this. The listed time is in an index: the longer the span, the fewer appends
// have to update it, and the more sessions a list has to look at to find the newest: all that
// were used within the span.
const span = 10 * time.Second

// walkListed walks down the list. The index has the order and the label. Everything else is
// looked up session by session, and LIMIT forces that: no plan reads all sessions for one
// page. Titles are looked up only if the query has a text.
const (
	walkListed = `SELECT l.id, l.listed, h.updated, h.created, h.current, CASE WHEN $8 THEN coalesce((SELECT title FROM hansard_sessions WHERE id = l.id), '') ELSE '' END
	FROM hansard_listing l CROSS JOIN LATERAL (SELECT updated, created, current FROM hansard_heads WHERE id = l.id LIMIT 1) h
	WHERE l.label = $1 AND (l.listed, l.id) < ($2::timestamptz, $3::text) AND l.id >= $6 AND l.id < $7
		AND NOT EXISTS (SELECT 1 FROM unnest($4::text[]) AS o(label)
			LEFT JOIN LATERAL (SELECT x.id FROM hansard_listing x WHERE x.id = l.id AND x.label = o.label LIMIT 1) x ON true WHERE x.id IS NULL)
		AND ($9 = 0 OR ($9 = 2) = EXISTS (SELECT 1 FROM hansard_listing x WHERE x.id = l.id AND x.label >= 'archived=' AND x.label < 'archived>'))
	ORDER BY l.listed DESC, l.id DESC LIMIT $5`

	// With several labels the list of one is walked, and each session on it is looked
	// up under the others. byRarity sorts a label first that has 100 sessions at most, then
	// the one whose newest 100 go back furthest in time: the rare label, not the common
	// one. Two common labels with few sessions in common still make for a long walk.
	byRarity = `SELECT o.label FROM unnest($1::text[]) WITH ORDINALITY AS o(label, n)
	ORDER BY (SELECT l.listed FROM hansard_listing l WHERE l.label = o.label ORDER BY l.listed DESC, l.id DESC OFFSET 100 LIMIT 1) NULLS FIRST, o.n`
)

// labelsByRarity returns the labels as they are stored in the listing, the one to walk first.
// It is the empty label, which all sessions have, if none is asked for, and nil if no session
// can have them all.
func labelsByRarity(ctx context.Context, q querier, asked map[string]string) (labels []string, err error) {
	for _, name := range slices.Sorted(maps.Keys(asked)) {
		row := name + "=" + asked[name]
		if !storable(row) || name == "" {
			return nil, nil
		}
		labels = append(labels, row)
	}
	switch len(labels) {
	case 0:
		return []string{""}, nil
	case 1:
		return labels, nil
	}
	rows, err := q.Query(ctx, byRarity, labels)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// endOfTime is later than anything is listed under.
var endOfTime = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// chooser finds sessions in one snapshot.
type chooser struct {
	querier
	fill bool // some sessions have stale terms
}

// fillIf updates stale terms of sessions in the background, one run at a time.
func (s *Store) fillIf(some bool) {
	if some && s.writable() == nil && s.filling.CompareAndSwap(false, true) {
		s.background(func(ctx context.Context) {
			defer s.filling.Store(false)
			_ = s.fillTerms(ctx) // the next list tries again
		})
	}
}

// page finds the sessions of a page, in their exact order, with their cursors.
func (c *chooser) page(ctx context.Context, query hansard.Query, now time.Time) (page []hansard.Info, err error) {
	from, err := engine.ParseCursor(&query)
	if err != nil {
		return nil, err
	}
	if !from.Again {
		if page, err = c.choose(ctx, query, from); err != nil {
			return nil, err
		}
	}
	rest := len(page)
	if from.ComesAgain() && (query.Limit == 0 || rest < query.Limit) {
		again := query
		again.Limit = 0
		if from.Since.After(again.Since) {
			again.Since = from.Since
		}
		changed, err := c.choose(ctx, again, engine.Cursor{})
		if err != nil {
			return nil, err
		}
		changed = slices.DeleteFunc(changed, func(i hansard.Info) bool { return !from.InAgain(&i) })
		engine.SortBy(hansard.OrderCreated, changed)
		if page = append(page, changed...); query.Limit > 0 {
			page = page[:min(len(page), query.Limit)]
		}
	}
	from.Mark(page, rest, now)
	return page, nil
}

// choose finds the sessions a query selects after a cursor, in their exact order. Only the
// fields that a list is filtered and ordered by are set.
func (c *chooser) choose(ctx context.Context, query hansard.Query, from engine.Cursor) (found []hansard.Info, err error) {
	q := c.querier
	if query.Damaged {
		return nil, nil // damage is not recorded here; Verify finds it
	}
	labels, err := labelsByRarity(ctx, q, query.Labels)
	if err != nil || len(labels) == 0 {
		return nil, err
	}
	if query.Parent != "" {
		among, err := children(ctx, q, query.Parent)
		if query.Parent = ""; err != nil || len(among) == 0 {
			return nil, err
		}
		return lookUpSome(ctx, q, query, from, among)
	}
	among, areFew, err := few(ctx, q, query, labels[0])
	switch {
	case err != nil:
		return nil, err
	case areFew:
		return lookUpSome(ctx, q, query, from, among)
	}
	// A walk that soon finds enough is the fastest way. If it does not, the index of terms is
	// asked, and if that does not narrow it down the walk is made without a bound.
	for _, most := range []int{walkFirst, 0} {
		var done bool
		if query.Order == hansard.OrderCreated {
			found, done, err = walkCreated(ctx, q, query, from, most)
		} else {
			found, done, err = walk(ctx, q, query, from, labels, most)
		}
		if done || err != nil {
			return found, err
		}
		among, areFew, fill, err := withTerms(ctx, q, &query)
		c.fill = c.fill || fill
		switch {
		case err != nil:
			return nil, err
		case areFew:
			return lookUpSome(ctx, q, query, from, among)
		}
	}
	return found, nil
}

// walkFirst is how many sessions a walk passes before the index of terms is asked.
const walkFirst = 1000

// startOf is the time from which a list is walked down: later than all sessions of the page.
func startOf(from engine.Cursor, before time.Time) time.Time {
	start := endOfTime
	if from.ID != "" {
		start = from.At.Add(time.Microsecond) // includes all sessions of that microsecond
	}
	if !before.IsZero() && before.Before(start) {
		start = before.Truncate(time.Microsecond).Add(time.Microsecond)
	}
	return start
}

// walk goes along the coarse order of the listing, and adds a session to found once no
// session further down can be newer.
//
// done is false if it passed most sessions (0: no bound) without finding enough.
func walk(ctx context.Context, q querier, query hansard.Query, cursor engine.Cursor, labels []string, most int) (found []hansard.Info, done bool, err error) {
	rest := query // the conditions that the statement does not check
	rest.Labels, rest.Archived = nil, hansard.ArchivedAny
	from, fromID := startOf(cursor, query.Before), ""
	since := query.Since // nothing was updated before it was created
	if query.CreatedSince.After(since) {
		since = query.CreatedSince
	}
	n := 1000
	if query.Limit > 0 {
		n = min(n, query.Limit+20)
	}
	first, end := named(query.Prefix)
	var pending []hansard.Info
	for passed := 0; most == 0 || passed < most; passed += n {
		rows, err := q.Query(ctx, walkListed, labels[0], from, fromID, labels[1:], n, first, end, query.Text != "", int(query.Archived))
		if err != nil {
			return nil, false, err
		}
		seen := 0
		for rows.Next() {
			var i hansard.Info
			var grant string
			if err := rows.Scan((*string)(&i.ID), &from, &i.Updated, &i.Created, &grant, &i.Title); err != nil {
				rows.Close()
				return nil, false, err
			}
			if grant != "" {
				i.Turn = &hansard.Turn{Grant: hansard.Grant(grant)}
			}
			seen, fromID = seen+1, string(i.ID)
			if rest.Wants(&i) && cursor.InRest(&i) {
				pending = append(pending, i)
			}
		}
		if err := rows.Err(); err != nil {
			return nil, false, err
		}
		done := seen < n || !since.IsZero() && !from.Add(span).After(since)
		engine.SortBy(query.Order, pending)
		for len(pending) > 0 && (done || !pending[0].Updated.Before(from.Add(span))) {
			found = append(found, pending[0])
			pending = pending[1:]
			if len(found) == query.Limit {
				return found, true, nil
			}
		}
		if done {
			return found, true, nil
		}
		n = min(2*n, 5000)
	}
	return nil, false, nil
}

const (
	// walkBorn walks down the sessions by creation time, which does not change: the order
	// is exact. The condition on deleted is that of the index.
	walkBorn = `SELECT l.id, l.updated, l.created, l.current, s.title, s.labels FROM hansard_heads l
	CROSS JOIN LATERAL (SELECT title, labels FROM hansard_sessions WHERE id = l.id LIMIT 1) s
	WHERE l.deleted::integer = 0 AND (l.created, l.id) < ($1::timestamptz, $2::text) AND l.id >= $3 AND l.id < $4
	ORDER BY l.created DESC, l.id DESC LIMIT $5`

	// If only a few sessions can match, they are looked up one by one: their ids are in
	// the query, or few begin with the prefix, or few have the label.
	fewNamed    = `SELECT l.id FROM hansard_listing l WHERE l.id >= $1 AND l.id < $2 AND l.label = '' ORDER BY l.id LIMIT $3`
	fewLabelled = `SELECT l.id FROM hansard_listing l WHERE l.label = $1 ORDER BY l.listed DESC, l.id DESC LIMIT $2`
	lookUp      = `SELECT o.id, h.updated, h.created, h.current, s.title, s.labels FROM unnest($1::text[]) AS o(id)
	CROSS JOIN LATERAL (SELECT updated, created, current, deleted FROM hansard_heads WHERE id = o.id LIMIT 1) h
	CROSS JOIN LATERAL (SELECT title, labels FROM hansard_sessions WHERE id = o.id LIMIT 1) s
	WHERE NOT h.deleted`
)

// walkCreated finds the sessions a query selects by when they were created.
func walkCreated(ctx context.Context, q querier, query hansard.Query, cursor engine.Cursor, most int) (found []hansard.Info, done bool, err error) {
	from, fromID := startOf(cursor, query.CreatedBefore), ""
	n := 1000
	if query.Limit > 0 {
		n = min(n, query.Limit+20)
	}
	first, end := named(query.Prefix)
	for passed := 0; most == 0 || passed < most; passed += n {
		rows, err := q.Query(ctx, walkBorn, from, fromID, first, end, n)
		if err != nil {
			return nil, false, err
		}
		page, err := pgx.CollectRows(rows, scanListed)
		if err != nil {
			return nil, false, err
		}
		for i := range page {
			from, fromID = page[i].Created, string(page[i].ID)
			wanted := query.Wants(&page[i]) && cursor.InRest(&page[i])
			if wanted {
				found = append(found, page[i])
			}
			if wanted && len(found) == query.Limit {
				return found, true, nil
			}
		}
		if len(page) < n || from.Before(query.CreatedSince) {
			return found, true, nil
		}
		n = min(2*n, 5000)
	}
	return nil, false, nil
}

// scanListed reads the columns that a list is filtered and ordered by.
func scanListed(row pgx.CollectableRow) (i hansard.Info, err error) {
	var grant, labels string
	if err := row.Scan((*string)(&i.ID), &i.Updated, &i.Created, &grant, &i.Title, &labels); err != nil {
		return i, err
	}
	if grant != "" {
		i.Turn = &hansard.Turn{Grant: hansard.Grant(grant)}
	}
	if err := json.Unmarshal([]byte(labels), &i.Labels); err != nil {
		return i, fmt.Errorf("the labels of session %s: %w", i.ID, err)
	}
	return i, nil
}

// fewSessions is up to how many sessions are looked up one by one, rather than found by
// walking down a list of mostly other sessions.
const fewSessions = 1000

// few returns candidates that include all sessions a query can select, if its ids, prefix or
// label limit them to a few; ok is false if they are many, or unknown. With the order by
// update the label is not tried: its index already has that order, so it is walked.
func few(ctx context.Context, q querier, query hansard.Query, label string) (ids []string, ok bool, err error) {
	if len(query.IDs) > 0 {
		for _, id := range query.IDs {
			ids = append(ids, string(id))
		}
		slices.Sort(ids)
		return slices.Compact(ids), true, nil
	}
	ask := func(sql string, args ...any) error {
		rows, err := q.Query(ctx, sql, append(args, fewSessions+1)...)
		if err == nil {
			ids, err = pgx.CollectRows(rows, pgx.RowTo[string])
		}
		ok = err == nil && len(ids) <= fewSessions
		return err
	}
	if query.Prefix != "" {
		first, end := named(query.Prefix)
		err = ask(fewNamed, first, end)
	}
	if err == nil && !ok && query.Order == hansard.OrderCreated && label != "" {
		err = ask(fewLabelled, label)
	}
	return ids, ok, err
}

// named returns the bounds of the ids with a prefix, in byte order: no id has a character
// after "~".
func named(prefix string) (first, end string) { return prefix, prefix + "\x7f" }

// lookUpSome finds the sessions a query selects among a few candidates.
func lookUpSome(ctx context.Context, q querier, query hansard.Query, from engine.Cursor, among []string) ([]hansard.Info, error) {
	rows, err := q.Query(ctx, lookUp, among)
	if err != nil {
		return nil, err
	}
	found, err := pgx.CollectRows(rows, scanListed)
	if err != nil {
		return nil, err
	}
	found = slices.DeleteFunc(found, func(i hansard.Info) bool { return !query.Wants(&i) || !from.InRest(&i) })
	engine.SortBy(query.Order, found)
	if query.Limit > 0 {
		found = found[:min(len(found), query.Limit)]
	}
	return found, nil
}

const infosOf = "SELECT o.id, " + infoColumns + ` FROM unnest($1::text[]) WITH ORDINALITY AS o(id, n)
	CROSS JOIN LATERAL (SELECT * FROM hansard_heads WHERE id = o.id LIMIT 1) h CROSS JOIN LATERAL (SELECT * FROM hansard_sessions WHERE id = o.id LIMIT 1) s
	WHERE NOT h.deleted ORDER BY o.n`

// readInfos describes sessions, in their order and with their cursors.
func readInfos(ctx context.Context, q querier, order []hansard.Info) (infos []hansard.Info, err error) {
	if len(order) == 0 {
		return nil, nil
	}
	ids, cursors := make([]string, len(order)), make(map[hansard.SessionID]string, len(order))
	for i := range order {
		ids[i], cursors[order[i].ID] = string(order[i].ID), order[i].Cursor
	}
	rows, err := q.Query(ctx, infosOf, ids)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		info, err := scanInfo(behind{rows, &id}, "")
		if err != nil {
			return nil, err
		}
		info.ID = hansard.SessionID(id)
		info.Cursor = cursors[info.ID]
		infos = append(infos, info)
	}
	return infos, rows.Err()
}

// behind is a row whose first column is scanned into first.
type behind struct {
	pgx.Row
	first any
}

func (b behind) Scan(into ...any) error { return b.Row.Scan(append([]any{b.first}, into...)...) }
