package pgstore

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"hansard"
	"hansard/engine/terms"
)

// A search finds events by their terms in hansard_words, which are those of package
// engine/terms, so that all engines find the same. They are inserted after the append, by
// searches and by KeepSearched. Each event that is found is read, checked again and scored
// in Go.
//
// Deleted words do not come back. Whoever adds words to a session holds the lock on its row
// in hansard_searched, and checks under the lock whether the session is deleted. A deletion
// removes that row afterwards, and the words with it: it either waits for the lock, or the
// writer of words sees that the session is deleted. A redaction locks the row in its own
// transaction and removes the words of its events: whoever gets the lock after it reads the
// events without content.

var _ hansard.Searcher = (*Store)(nil)

const (
	// rankDepth is how many of the newest matching events are sorted by score. The rest
	// follow by time.
	rankDepth = 500
	// fetchBytes is how many bytes of found events are read at once.
	fetchBytes = 4 << 20
)

// unsearched selects sessions with events that are not in hansard_words yet, by id prefix;
// unsearchedIn is for one session.
const (
	unsearched = unsearchedFrom + `($1 = '' OR starts_with(h.id, $1))`

	unsearchedIn   = unsearchedFrom + `h.id = $1`
	unsearchedFrom = `SELECT h.id, coalesce(w.last, 0) FROM hansard_heads h LEFT JOIN hansard_searched w ON w.id = h.id
	WHERE NOT h.deleted AND h.last > coalesce(w.last, 0) AND `
)

// Search implements [hansard.Searcher].
func (s *Store) Search(ctx context.Context, q hansard.SearchQuery) iter.Seq2[hansard.Hit, error] {
	return func(yield func(hansard.Hit, error) bool) {
		query, err := terms.Check(&q)
		if err := s.begin(ctx, "any", err); err != nil {
			yield(hansard.Hit{}, err)
			return
		}
		defer s.work.Done()
		sr := &searcher{s: s, q: &q, query: query, offset: q.Offset}
		if err := sr.run(ctx, func(h hansard.Hit) bool { return yield(h, nil) }); err != nil {
			yield(hansard.Hit{}, err)
		}
	}
}

// searcher is one search.
type searcher struct {
	s      *Store
	q      *hansard.SearchQuery
	query  terms.Query
	offset int // hits still to skip
	given  int
}

func (sr *searcher) run(ctx context.Context, yield func(hansard.Hit) bool) error {
	if sr.q.In != "" {
		if _, err := sr.s.Stat(ctx, sr.q.In); err != nil {
			return err
		}
	}
	if !storable(sr.q.Role) || !storable(sr.q.Kind) {
		return nil // no event has it
	}
	unread, err := sr.s.fill(ctx, string(sr.q.In), sr.q.Prefix)
	if err != nil {
		return err
	}
	ranked, err := sr.scan(ctx, unread)
	if err != nil {
		return err
	}
	// The newest are sorted by score, the others stay in order of time.
	last, depth := key{time: endOfTime}, rankDepth
	for {
		keys, err := sr.find(ctx, last, depth)
		if err != nil {
			return err
		}
		for part := range chunks(keys) {
			hits, err := sr.fetch(ctx, part)
			if err != nil {
				return err
			}
			if last.id == "" {
				ranked = append(ranked, hits...)
			} else if more, err := sr.give(ctx, hits, yield); err != nil || !more {
				return err
			}
		}
		if last.id == "" {
			slices.SortFunc(ranked, func(a, b hansard.Hit) int { return terms.Better(&a, &b) })
			if more, err := sr.give(ctx, ranked, yield); err != nil || !more {
				return err
			}
		}
		if len(keys) < depth {
			return nil
		}
		last, depth = keys[len(keys)-1], 10*rankDepth
	}
}

// give yields hits after skipping the first ones, until the limit is reached.
func (sr *searcher) give(ctx context.Context, hits []hansard.Hit, yield func(hansard.Hit) bool) (more bool, err error) {
	for _, h := range hits {
		if err := ctx.Err(); err != nil {
			return false, err // a truncated answer must not look complete
		}
		if sr.offset > 0 {
			sr.offset--
			continue
		}
		if !yield(h) {
			return false, nil
		}
		if sr.given++; sr.given == sr.q.Limit {
			return false, nil
		}
	}
	return true, nil
}

// key is an event that may be a hit, and its size.
type key struct {
	id   string
	seq  int64
	time time.Time
	size int64
}

// findWords finds events by their words, newest first; findWordsIn only in one session, for
// whose rows there is an index.
const (
	findWords   = findWordsFrom + `$2::text = ''` + findWordsWhere
	findWordsIn = findWordsFrom + `w.id = $2` + findWordsWhere

	findWordsFrom = `SELECT k.id, k.seq, k."time", octet_length(e.data) FROM (
		SELECT w.id, w.seq, w."time" FROM hansard_words w
		WHERE w.terms @@ $1::tsquery AND `
	findWordsWhere = ` AND ($3 = '' OR starts_with(w.id, $3)) AND ($4 = '' OR w.kind = $4) AND ($5 = '' OR w.role = $5)
			AND ($6::timestamptz IS NULL OR w."time" >= $6) AND ($7::timestamptz IS NULL OR w."time" < $7)
			AND NOT EXISTS (SELECT 1 FROM unnest($8::text[]) AS o(label) WHERE NOT EXISTS (SELECT 1 FROM hansard_listing l WHERE l.id = w.id AND l.label = o.label))
			AND (w."time", w.id, w.seq) < ($9::timestamptz, $10::text, $11::bigint)
		ORDER BY w."time" DESC, w.id DESC, w.seq DESC LIMIT $12
	) k JOIN hansard_events e ON e.id = k.id AND e.seq = k.seq ORDER BY k."time" DESC, k.id DESC, k.seq DESC`
)

func (sr *searcher) find(ctx context.Context, before key, most int) (keys []key, err error) {
	labels := []string{}
	for name, value := range sr.q.Labels {
		if labels = append(labels, name+"="+value); !storable(name + value) {
			return nil, nil
		}
	}
	when := func(t time.Time) *time.Time {
		if t.IsZero() {
			return nil
		}
		// The database has microseconds: at or after 1.5 µs means at or after 2 µs.
		if whole := t.Truncate(time.Microsecond); !whole.Equal(t) {
			t = whole.Add(time.Microsecond)
		}
		return &t
	}
	statement := findWords
	if sr.q.In != "" {
		statement = findWordsIn
	}
	err = sr.s.freely(ctx, func(rows pgx.Rows) error {
		keys, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (k key, err error) {
			return k, row.Scan(&k.id, &k.seq, &k.time, &k.size)
		})
		return err
	}, statement, tsquery(sr.query), string(sr.q.In), sr.q.Prefix, sr.q.Kind, sr.q.Role, when(sr.q.Since), when(sr.q.Before), labels,
		before.time, before.id, before.seq, most)
	return keys, err
}

// searchSettings make PostgreSQL plan for the given words and the current tables: some words
// are rare and some are everywhere. And they allow bitmap and sequential scans, which our
// connections switch off; there is no other kind of scan by words.
const searchSettings = `SELECT set_config('plan_cache_mode', 'force_custom_plan', true), set_config('enable_bitmapscan', 'on', true), set_config('enable_seqscan', 'on', true)`

// freely reads with searchSettings.
func (s *Store) freely(ctx context.Context, collect func(pgx.Rows) error, statement string, args ...any) error {
	return s.look(ctx, func(ctx context.Context) error {
		b := &pgx.Batch{}
		b.Queue("BEGIN READ ONLY")
		b.Queue(searchSettings)
		b.Queue(statement, args...)
		b.Queue("COMMIT")
		return s.batch(ctx, b, func(res pgx.BatchResults) error {
			for range 2 {
				if _, err := res.Exec(); err != nil {
					return err
				}
			}
			rows, err := res.Query()
			if err != nil {
				return err
			}
			return collect(rows)
		})
	})
}

// tsquery is the query in PostgreSQL's syntax: all terms. Terms have letters and digits only.
func tsquery(q terms.Query) string {
	var out []string
	for _, p := range q.Phrases {
		for i, term := range p.Terms {
			term = "'" + term + "'"
			if p.Prefix && i == len(p.Terms)-1 {
				term += ":*"
			}
			out = append(out, term)
		}
	}
	return strings.Join(out, " & ")
}

// chunks splits keys into groups whose events fit into memory together.
func chunks(keys []key) iter.Seq[[]key] {
	return func(yield func([]key) bool) {
		from, size := 0, int64(0)
		for i, k := range keys {
			if size += k.size; i > from && (size > fetchBytes || i-from >= pageEvents) {
				if !yield(keys[from:i]) {
					return
				}
				from, size = i, k.size
			}
		}
		if from < len(keys) {
			yield(keys[from:])
		}
	}
}

// fetchFound reads events by their keys, with the titles of their sessions.
var fetchFound = `SELECT e.id, s.title, ` + eventColumnsOfE + ` FROM unnest($1::text[], $2::bigint[]) WITH ORDINALITY AS k(id, seq, n)
	CROSS JOIN LATERAL (SELECT * FROM hansard_events WHERE id = k.id AND seq = k.seq LIMIT 1) e
	CROSS JOIN LATERAL (SELECT deleted FROM hansard_heads WHERE id = k.id LIMIT 1) h
	CROSS JOIN LATERAL (SELECT title FROM hansard_sessions WHERE id = k.id LIMIT 1) s WHERE NOT h.deleted ORDER BY k.n`

// fetch reads events and returns those that match.
func (sr *searcher) fetch(ctx context.Context, keys []key) (hits []hansard.Hit, err error) {
	ids, seqs := make([]string, len(keys)), make([]int64, len(keys))
	for i, k := range keys {
		ids[i], seqs[i] = k.id, k.seq
	}
	err = sr.s.look(ctx, func(ctx context.Context) error {
		hits = nil
		rows, err := sr.s.pool.Query(ctx, fetchFound, ids, seqs)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var info hansard.Info
			var e hansard.Event
			if err := scanEvent(behindColumns{rows, []any{(*string)(&info.ID), &info.Title}}, &e); err != nil {
				return err
			}
			if h, ok := sr.hit(&info, &e); ok {
				hits = append(hits, h)
			}
		}
		return rows.Err()
	})
	return hits, err
}

// hit returns the hit for an event, if it matches. It does not check the session.
func (sr *searcher) hit(info *hansard.Info, e *hansard.Event) (hansard.Hit, bool) {
	d := terms.Of(*e)
	found, ok := sr.query.Find(d.Text)
	if !ok || !terms.WantsEvent(sr.q, e, &d) {
		return hansard.Hit{}, false
	}
	return found.Hit(info, e, &d), true
}

// behindColumns is a row whose first columns are scanned into first.
type behindColumns struct {
	row   pgx.Row
	first []any
}

func (b behindColumns) Scan(dest ...any) error { return b.row.Scan(append(b.first, dest...)...) }

// eventColumnsOfE are eventColumns in a statement that joins.
var eventColumnsOfE = "e." + strings.ReplaceAll(eventColumns, ", ", ", e.")

// scan searches the events that could not be put into hansard_words: those after the given
// seq of each session.
func (sr *searcher) scan(ctx context.Context, unread map[string]hansard.Seq) (hits []hansard.Hit, err error) {
	for id, after := range unread {
		info, err := sr.s.Stat(ctx, hansard.SessionID(id))
		if err == nil && terms.WantsSession(sr.q, &info) {
			for e, readErr := range sr.s.Read(ctx, info.ID, hansard.Range{After: after}) {
				if err = readErr; err != nil {
					break
				}
				if h, ok := sr.hit(&info, &e); ok {
					hits = append(hits, h)
				}
			}
		}
		if err != nil && !terms.OneSession(err) {
			return nil, err
		}
	}
	return hits, nil
}

// KeepSearched adds the words of new events to the search table, about once a second,
// until the context ends. Searches do it too; this leaves them less to do.
func (s *Store) KeepSearched(ctx context.Context) {
	for s.writable() == nil {
		began := time.Now()
		if s.begin(ctx, "any") == nil {
			_, _ = s.fill(ctx, "", "") // the next call continues
			s.work.Done()
		}
		select {
		case <-time.After(max(time.Second, 50*time.Since(began))):
		case <-ctx.Done():
			return
		case <-s.closing:
			return
		}
	}
}

// fill adds the words of new events to hansard_words. unread are the sessions for which it
// could not, because it may not write, with the seq after which they have to be read.
func (s *Store) fill(ctx context.Context, in, prefix string) (unread map[string]hansard.Seq, err error) {
	type session struct {
		id   string
		last int64
	}
	var sessions []session
	statement, about := unsearched, prefix
	if in != "" {
		statement, about = unsearchedIn, in
	}
	err = s.freely(ctx, func(rows pgx.Rows) error {
		sessions, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (one session, err error) {
			return one, row.Scan(&one.id, &one.last)
		})
		return err
	}, statement, about)
	if err != nil {
		return nil, err
	}
	unread = map[string]hansard.Seq{}
	for _, one := range sessions {
		err := s.writable()
		if err == nil {
			err = s.fillSession(ctx, one.id)
		}
		switch {
		case err == nil || terms.OneSession(err):
		case errors.Is(err, hansard.ErrReadOnly) || isRight(err):
			unread[one.id] = hansard.Seq(one.last)
		default:
			return nil, err
		}
	}
	return unread, nil
}

const (
	// beginWords creates the row that is locked. It is a commit of its own: a deletion that
	// removes the row must be able to see it.
	beginWords = `INSERT INTO hansard_searched (id, last) SELECT id, 0 FROM hansard_heads WHERE id = $1 AND NOT deleted ON CONFLICT DO NOTHING`
	lockWords  = `SELECT last FROM hansard_searched WHERE id = $1 FOR UPDATE`
	isThere    = `SELECT EXISTS (SELECT 1 FROM hansard_heads WHERE id = $1 AND NOT deleted)`
	addWords   = `INSERT INTO hansard_words (id, seq, "time", kind, role, terms) SELECT $1, w.seq, w."time", w.kind, w.role, array_to_tsvector(string_to_array(w.terms, ' '))
		FROM unnest($2::bigint[], $3::timestamptz[], $4::text[], $5::text[], $6::text[]) AS w(seq, "time", kind, role, terms)`
	endWords    = `UPDATE hansard_searched SET last = $2 WHERE id = $1`
	removeWords = `DELETE FROM hansard_searched WHERE id = $1`
	// holdWords locks a session's row for a redaction, and creates it if it does not exist,
	// so that nobody else creates it and reads the content meanwhile.
	holdWords   = `INSERT INTO hansard_searched (id, last) VALUES ($1, 0) ON CONFLICT (id) DO UPDATE SET last = hansard_searched.last`
	redactWords = `DELETE FROM hansard_words WHERE id = $1 AND seq = ANY($2::bigint[])`
)

// fillSession puts the words of a session's new events into the table.
func (s *Store) fillSession(ctx context.Context, id string) error {
	for {
		var more bool
		err := s.look(ctx, func(ctx context.Context) (err error) {
			return s.reserved(ctx, func(conn *pgxpool.Conn) error {
				if _, err := conn.Exec(ctx, beginWords, id); err != nil {
					return err
				}
				more, err = s.fillSome(ctx, conn, id)
				return err
			})
		})
		if err != nil || !more {
			return err
		}
	}
}

// fillSome is one transaction of fillSession.
func (s *Store) fillSome(ctx context.Context, conn *pgxpool.Conn, id string) (more bool, err error) {
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		var last int64
		if err := tx.QueryRow(ctx, lockWords, id).Scan(&last); err != nil {
			if errors.Is(err, pgx.ErrNoRows) {
				return nil // deleted meanwhile
			}
			return err
		}
		var there bool
		if err := tx.QueryRow(ctx, isThere, id).Scan(&there); err != nil {
			return err
		}
		if !there {
			_, err := tx.Exec(ctx, removeWords, id)
			return err
		}
		w, read, err := s.newWords(ctx, tx, id, last)
		if err != nil || read == last {
			return err
		}
		if len(w.seqs) > 0 {
			if _, err := tx.Exec(ctx, addWords, id, w.seqs, w.times, w.kinds, w.roles, w.terms); err != nil {
				return fmt.Errorf("words of %s behind %d: %w", id, last, err)
			}
		}
		_, err = tx.Exec(ctx, endWords, id, read)
		more = true
		return err
	})
	return more, err
}

// words are rows of hansard_words, one slice for each column.
type words struct {
	seqs                []int64
	times               []time.Time
	kinds, roles, terms []string
}

// newWords returns the words of the next events after a seq, and the seq of the last of them.
func (s *Store) newWords(ctx context.Context, tx pgx.Tx, id string, after int64) (w words, last int64, err error) {
	rows, err := tx.Query(ctx, readPage, id, after, int64(maxSeq), pageEvents, []string{}, int64(pageBytes))
	if err != nil {
		return w, after, err
	}
	defer rows.Close()
	last = after
	for rows.Next() {
		var e hansard.Event
		if err := scanEvent(rows, &e); err != nil {
			return w, after, err
		}
		last = int64(e.Seq)
		d := terms.Of(e)
		if text := distinct(d.Text); text != "" {
			w.seqs, w.times, w.kinds = append(w.seqs, last), append(w.times, e.Time), append(w.kinds, e.Kind)
			w.roles, w.terms = append(w.roles, strings.ReplaceAll(d.Role, "\x00", "")), append(w.terms, text)
		}
	}
	return w, last, rows.Err()
}

// distinct returns the terms of a text, each once. The text that is indexed of an event is
// bounded, so that its terms fit into a tsvector.
func distinct(text string) string {
	seen := map[string]bool{}
	var out []string
	terms.Scan(text, func(term []byte, _, _, _ int) bool {
		if !seen[string(term)] {
			word := string(term)
			seen[word] = true
			out = append(out, word)
		}
		return true
	})
	return strings.Join(out, " ")
}
