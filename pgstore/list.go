package pgstore

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"hansard"
	"hansard/engine"
)

// List implements [hansard.Store]. The order is found in one snapshot of the
// database, so that a session which moves to the front meanwhile is not missed.
// The first page of descriptions is of that snapshot too; the later ones of a long
// list are read as they are asked for.
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

// order gives the ids of the sessions a query selects, in order, and the
// descriptions of the first page of them.
func (s *Store) order(ctx context.Context, q hansard.Query) (ids []string, infos []hansard.Info, err error) {
	if err := s.begin(ctx, "any", engine.CheckQuery(&q)); err != nil {
		return nil, nil, err
	}
	defer s.work.Done()
	snapshot := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err = s.look(ctx, func(ctx context.Context) error {
		return pgx.BeginTxFunc(ctx, s.pool, snapshot, func(tx pgx.Tx) error {
			if ids, err = choose(ctx, tx, q); err != nil {
				return err
			}
			infos, err = readInfos(ctx, tx, ids[:min(len(ids), infoPage)])
			return err
		})
	})
	return ids, infos, err
}

// describe reads descriptions. Sessions that were deleted meanwhile are left out.
func (s *Store) describe(ctx context.Context, ids []string) (infos []hansard.Info, err error) {
	if err := s.begin(ctx, "any"); err != nil {
		return nil, err
	}
	defer s.work.Done()
	err = s.look(ctx, func(ctx context.Context) error {
		infos, err = readInfos(ctx, s.pool, ids)
		return err
	})
	return infos, err
}

// span is by how much, and more, the time of a session's last event may not be past
// the time it is listed under. That time is in an index: the longer the span, the fewer
// appends have to change that, and the more sessions a list has to look at to find out
// which are the newest: all that were used within the span.
const span = 10 * time.Second

// walkIDs goes down the list, walkTitles does it with the titles. The index has the
// order and the label. What else there is of a session is looked up for each by itself,
// and LIMIT keeps it so: no plan reads all sessions for a page of them.
const (
	walkIDs    = `SELECT l.id, l.listed, h.updated, '' ` + walkSome
	walkTitles = `SELECT l.id, l.listed, h.updated, coalesce((SELECT title FROM hansard_sessions WHERE id = l.id), '') ` + walkSome
	walkSome   = `FROM hansard_listing l CROSS JOIN LATERAL (SELECT updated FROM hansard_heads WHERE id = l.id LIMIT 1) h
	WHERE l.label = $1 AND (l.listed, l.id) < ($2::timestamptz, $3::text) AND l.id >= $6 AND l.id < $7
		AND NOT EXISTS (SELECT 1 FROM unnest($4::text[]) AS o(label)
			LEFT JOIN LATERAL (SELECT x.id FROM hansard_listing x WHERE x.id = l.id AND x.label = o.label LIMIT 1) x ON true WHERE x.id IS NULL)
	ORDER BY l.listed DESC, l.id DESC LIMIT $5`

	// Of several labels the list of one is walked, and each session on it is looked
	// up under the others. It is the one that goes back furthest in time within its
	// first sessions, if it has so many: not the common label with the rare one.
	// Two common ones with few sessions in common are walked in vain for long.
	byRarity = `SELECT o.label FROM unnest($1::text[]) WITH ORDINALITY AS o(label, n)
	ORDER BY (SELECT l.listed FROM hansard_listing l WHERE l.label = o.label ORDER BY l.listed DESC, l.id DESC OFFSET 100 LIMIT 1) NULLS FIRST, o.n`
)

// labelsByRarity gives the labels as they are listed, the one to walk first: the
// empty one, which all sessions have, when none is asked for. There are none when no
// session can have them all.
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

// choose finds the sessions a query selects, in their exact order.
func choose(ctx context.Context, q querier, query hansard.Query) (ids []string, err error) {
	labels, err := labelsByRarity(ctx, q, query.Labels)
	if err != nil || len(labels) == 0 {
		return nil, err
	}
	if query.Parent != "" {
		among, err := children(ctx, q, query.Parent)
		if query.Parent = ""; err != nil || len(among) == 0 {
			return nil, err
		}
		return lookUpSome(ctx, q, query, among)
	}
	among, areFew, err := few(ctx, q, query, labels[0])
	switch {
	case err != nil:
		return nil, err
	case areFew:
		return lookUpSome(ctx, q, query, among)
	case query.Order == hansard.OrderCreated:
		return walkCreated(ctx, q, query)
	}
	return walk(ctx, q, query, labels)
}

// walk goes along the coarse order of the listing, and gives a session its place once
// no session further down can be newer.
func walk(ctx context.Context, q querier, query hansard.Query, labels []string) (ids []string, err error) {
	rest := query // what the statement does not look at
	rest.Labels = nil
	from, fromID := endOfTime, ""
	if latest, ok := query.Before(); ok {
		from = latest.Add(time.Microsecond) // and all of that moment
	}
	n := 1000
	if query.Limit > 0 {
		n = min(n, query.Limit+20)
	}
	sql := walkIDs
	if query.Text != "" {
		sql = walkTitles
	}
	first, end := named(query.Prefix)
	var pending []hansard.Info
	for {
		rows, err := q.Query(ctx, sql, labels[0], from, fromID, labels[1:], n, first, end)
		if err != nil {
			return nil, err
		}
		seen := 0
		for rows.Next() {
			var i hansard.Info
			if err := rows.Scan((*string)(&i.ID), &from, &i.Updated, &i.Title); err != nil {
				rows.Close()
				return nil, err
			}
			seen, fromID = seen+1, string(i.ID)
			wanted, err := rest.Wants(&i)
			if err != nil {
				rows.Close()
				return nil, err
			}
			if wanted {
				pending = append(pending, i)
			}
		}
		if err := rows.Err(); err != nil {
			return nil, err
		}
		done := seen < n || !query.Since.IsZero() && !from.Add(span).After(query.Since)
		sortBy(query.Order, pending)
		for len(pending) > 0 && (done || !pending[0].Updated.Before(from.Add(span))) {
			ids = append(ids, string(pending[0].ID))
			pending = pending[1:]
			if len(ids) == query.Limit {
				return ids, nil
			}
		}
		if done {
			return ids, nil
		}
		n = min(2*n, 5000)
	}
}

const (
	// walkBorn goes down the sessions by when they were created, which does not change:
	// the order is exact. The condition is that of the index.
	walkBorn = `SELECT l.id, l.updated, l.created, s.title, s.labels FROM hansard_heads l
	CROSS JOIN LATERAL (SELECT title, labels FROM hansard_sessions WHERE id = l.id LIMIT 1) s
	WHERE l.deleted::integer = 0 AND (l.created, l.id) < ($1::timestamptz, $2::text) AND l.id >= $3 AND l.id < $4
	ORDER BY l.created DESC, l.id DESC LIMIT $5`

	// Where a list can only be of a few sessions, those are looked up: their ids are in
	// the query, or few begin with the prefix, or few have the label.
	fewNamed    = `SELECT l.id FROM hansard_listing l WHERE l.id >= $1 AND l.id < $2 AND l.label = '' ORDER BY l.id LIMIT $3`
	fewLabelled = `SELECT l.id FROM hansard_listing l WHERE l.label = $1 ORDER BY l.listed DESC, l.id DESC LIMIT $2`
	lookUp      = `SELECT o.id, h.updated, h.created, s.title, s.labels FROM unnest($1::text[]) AS o(id)
	CROSS JOIN LATERAL (SELECT updated, created, deleted FROM hansard_heads WHERE id = o.id LIMIT 1) h
	CROSS JOIN LATERAL (SELECT title, labels FROM hansard_sessions WHERE id = o.id LIMIT 1) s
	WHERE NOT h.deleted`
)

// walkCreated finds the sessions a query selects by when they were created.
func walkCreated(ctx context.Context, q querier, query hansard.Query) (ids []string, err error) {
	from, fromID := endOfTime, ""
	if latest, ok := query.Before(); ok {
		from = latest.Add(time.Microsecond) // and all of that moment
	}
	n := 1000
	if query.Limit > 0 {
		n = min(n, query.Limit+20)
	}
	first, end := named(query.Prefix)
	for {
		rows, err := q.Query(ctx, walkBorn, from, fromID, first, end, n)
		if err != nil {
			return nil, err
		}
		page, err := pgx.CollectRows(rows, scanListed)
		if err != nil {
			return nil, err
		}
		for i := range page {
			from, fromID = page[i].Created, string(page[i].ID)
			wanted, err := query.Wants(&page[i])
			if err != nil {
				return nil, err
			}
			if wanted {
				ids = append(ids, fromID)
			}
			if wanted && len(ids) == query.Limit {
				return ids, nil
			}
		}
		if len(page) < n {
			return ids, nil
		}
		n = min(2*n, 5000)
	}
}

// scanListed reads what a list is chosen by.
func scanListed(row pgx.CollectableRow) (i hansard.Info, err error) {
	var labels string
	if err := row.Scan((*string)(&i.ID), &i.Updated, &i.Created, &i.Title, &labels); err != nil {
		return i, err
	}
	if err := json.Unmarshal([]byte(labels), &i.Labels); err != nil {
		return i, fmt.Errorf("the labels of session %s: %w", i.ID, err)
	}
	return i, nil
}

// fewSessions is how many sessions are looked up one by one rather than found by walking
// down a list that has others for the most part.
const fewSessions = 1000

// few gives the sessions among which those of a query are, if it says that these are few;
// ok is false if they are not, or nobody knows. A label is not asked for its sessions in
// the order by update: its list has that order in the index.
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

// named is where the ids with a prefix begin and end, in the order of the bytes: no id has
// a character past "~".
func named(prefix string) (first, end string) { return prefix, prefix + "\x7f" }

// lookUpSome finds the sessions a query selects among a few.
func lookUpSome(ctx context.Context, q querier, query hansard.Query, among []string) (ids []string, err error) {
	rows, err := q.Query(ctx, lookUp, among)
	if err != nil {
		return nil, err
	}
	found, err := pgx.CollectRows(rows, scanListed)
	if err != nil {
		return nil, err
	}
	sortBy(query.Order, found)
	for i := range found {
		wanted, err := query.Wants(&found[i])
		if err != nil {
			return nil, err
		}
		if wanted {
			ids = append(ids, string(found[i].ID))
		}
		if wanted && len(ids) == query.Limit {
			break
		}
	}
	return ids, nil
}

func sortBy(o hansard.Order, infos []hansard.Info) {
	slices.SortFunc(infos, func(a, b hansard.Info) int {
		if engine.NewerBy(o, &a, &b) {
			return -1
		}
		return 1 // never the same: ids differ
	})
}

const infosOf = "SELECT o.id, " + infoColumns + ` FROM unnest($1::text[]) WITH ORDINALITY AS o(id, n)
	CROSS JOIN LATERAL (SELECT * FROM hansard_heads WHERE id = o.id LIMIT 1) h CROSS JOIN LATERAL (SELECT * FROM hansard_sessions WHERE id = o.id LIMIT 1) s
	WHERE NOT h.deleted ORDER BY o.n`

// readInfos describes sessions, in the order of their ids.
func readInfos(ctx context.Context, q querier, ids []string) (infos []hansard.Info, err error) {
	if len(ids) == 0 {
		return nil, nil
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
		infos = append(infos, info)
	}
	return infos, rows.Err()
}

// behind is a row whose first column goes elsewhere.
type behind struct {
	pgx.Row
	first any
}

func (b behind) Scan(into ...any) error { return b.Row.Scan(append([]any{b.first}, into...)...) }
