package search

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"hansard"
	"hansard/engine/terms"
)

// candidate is an event that the index has for a query.
type candidate struct {
	row     int64
	session hansard.SessionID
	seq     hansard.Seq
	score   float64 // 0: not known
	time    int64
}

// candidates queries the index for the first most candidates, and tells whether these are all.
func (ix *Index) candidates(ctx context.Context, a *answer, most int) (found []candidate, all bool, err error) {
	began := time.Now()
	for tries := 0; ; tries++ {
		beforeAsk()
		found, all, err := ix.ask(ctx, a, most)
		if err == nil || tries == 3 {
			return found, all, err
		}
		if err := ctx.Err(); err != nil {
			return nil, false, err
		}
		if isBusy(err) && time.Since(began) < ix.opt.LockWait {
			tries-- // another process is committing
			continue
		}
		// Since it was brought up to date, the file was removed, replaced by an older one,
		// truncated, or worse.
		if err := ix.recover(ctx, err, tries+1); err != nil {
			return nil, false, err
		}
		if err := ix.update(ctx, a.s, a.about); err != nil {
			return nil, false, err
		}
	}
}

func (ix *Index) ask(ctx context.Context, a *answer, most int) (found []candidate, all bool, err error) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	if ix.closed {
		return nil, false, hansard.ErrClosed
	}
	db := ix.db
	if db == nil {
		return nil, false, ofIndex(errElsewhere)
	}
	// One transaction: what it knows about the sessions matches the rows it finds.
	if err := ix.beginRead(ctx, db); err != nil {
		return nil, false, ofIndex(err)
	}
	defer db.rollback()
	if db.lacks(a.about) {
		return nil, false, ofIndex(errBehind)
	}
	if len(db.shards) == 0 {
		return nil, true, nil
	}
	w := db.wants(a)
	if !a.ranked {
		if a.common, err = db.isCommon(ctx, a, w); err == nil && a.common {
			most = rankDepth
			found, err = db.newest(ctx, a, w)
		}
	}
	if err == nil && found == nil {
		found, err = db.first(ctx, w, !a.common, most)
	}
	return found, len(found) < most, ofIndex(err)
}

// wanted is a query as SQL: a condition on w, a table of words, and e, the table of events, and
// its arguments.
type wanted struct {
	where string
	args  []any
	ids   map[int64]hansard.SessionID // of the sessions it covers
}

func (w *wanted) and(condition string, arg any) {
	w.args = append(w.args, arg)
	w.where += fmt.Sprintf(" AND "+condition, len(w.args))
}

func (db *database) wants(a *answer) *wanted {
	about, q := a.about, a.q
	w := &wanted{args: []any{match(a.query)}, ids: make(map[int64]hansard.SessionID, len(about.sessions))}
	for id := range about.sessions {
		if in := db.sessions[id]; in != nil {
			w.ids[in.n] = id
		}
	}
	switch {
	case about.in != "":
		n := int64(-1)
		if in := db.sessions[about.in]; in != nil {
			n = in.n
		}
		w.and("w.rowid >= ?%d", n<<32)
		w.and("w.rowid <= ?%d", n<<32|0xffffffff)
	case about.some:
		list, _ := json.Marshal(slices.Collect(maps.Keys(w.ids)))
		w.and("w.rowid >> 32 IN (SELECT value FROM json_each(?%d))", string(list))
	}
	if q.Kind != "" {
		w.and("e.kind = ?%d", q.Kind)
	}
	if q.Role != "" {
		w.and("e.role = ?%d", q.Role)
	}
	if !q.Since.IsZero() {
		w.and("e.time >= ?%d", q.Since.UnixNano())
	}
	if !q.Before.IsZero() {
		w.and("e.time < ?%d", q.Before.UnixNano())
	}
	return w
}

// matching is a condition that a shard has the words.
const matching = "FROM %[1]s AS w CROSS JOIN event AS e ON e.n = w.rowid WHERE %[1]s MATCH ?1"

// first are the best most candidates, or the newest.
func (db *database) first(ctx context.Context, w *wanted, best bool, most int) ([]candidate, error) {
	score, order := "0.0", "time DESC, n DESC"
	if best {
		score, order = "bm25(%[1]s)", "score, "+order // lower bm25 is better
	}
	var parts []string
	for _, sh := range db.shards {
		parts = append(parts, fmt.Sprintf("SELECT w.rowid AS n, "+score+" AS score, e.time AS time "+matching+"%[2]s", sh.table(), w.where))
	}
	statement := fmt.Sprintf("SELECT n, score, time FROM (%s) ORDER BY %s LIMIT ?%d", strings.Join(parts, " UNION ALL "), order, len(w.args)+1)
	found, err := w.collect(db.conn.QueryContext(ctx, statement, append(slices.Clip(w.args), most)...))
	if best {
		for i := range found {
			found[i].score = max(found[i].score, 1e-9)
		}
	}
	return found, err
}

// collect reads candidates: their row, their score and their time.
func (w *wanted) collect(rows *sql.Rows, err error) (found []candidate, _ error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var c candidate
		if err := rows.Scan(&c.row, &c.score, &c.time); err != nil {
			return nil, err
		}
		c.session, c.seq, c.score = w.ids[c.row>>32], hansard.Seq(c.row&0xffffffff), -c.score
		found = append(found, c)
	}
	return found, rows.Err()
}

// match is a query in the language of FTS5. Terms have letters and digits only.
func match(query terms.Query) string {
	var out []string
	for _, p := range query.Phrases {
		phrase := `"` + strings.Join(p.Terms, " ") + `"`
		if p.Prefix {
			phrase += " *"
		}
		out = append(out, phrase)
	}
	return strings.Join(out, " AND ")
}
