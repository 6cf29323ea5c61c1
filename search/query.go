package search

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	score   float64
}

// candidates asks the index, for the best so many.
func (ix *Index) candidates(ctx context.Context, s hansard.Store, about *subject, query terms.Query, q *hansard.SearchQuery, most int) ([]candidate, error) {
	began := time.Now()
	for tries := 0; ; tries++ {
		beforeAsk()
		found, err := ix.ask(ctx, about, query, q, most)
		if err == nil || tries == 3 {
			return found, err
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if isBusy(err) && time.Since(began) < ix.opt.LockWait {
			tries-- // another process is committing
			continue
		}
		// The file was removed, set back, truncated, or worse, since it was brought up to date.
		if err := ix.recover(ctx, err, tries+1); err != nil {
			return nil, err
		}
		if err := ix.update(ctx, s, about); err != nil {
			return nil, err
		}
	}
}

func (ix *Index) ask(ctx context.Context, about *subject, query terms.Query, q *hansard.SearchQuery, most int) ([]candidate, error) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	if ix.closed {
		return nil, hansard.ErrClosed
	}
	db := ix.db
	if db == nil {
		return nil, ofIndex(errElsewhere)
	}
	// One look: what it knows of the sessions belongs to the rows it finds.
	if err := ix.beginRead(ctx, db); err != nil {
		return nil, ofIndex(err)
	}
	defer db.rollback()
	if db.lacks(about) {
		return nil, ofIndex(errBehind)
	}
	if len(db.shards) == 0 {
		return nil, nil
	}
	ids := make(map[int64]hansard.SessionID, len(db.sessions))
	var some []int64
	for id, in := range db.sessions {
		if _, ok := about.sessions[id]; ok {
			ids[in.n] = id
			some = append(some, in.n)
		}
	}
	statement, args := db.statement(about, query, q, some)
	rows, err := db.conn.QueryContext(ctx, statement, append(args, most)...)
	if err != nil {
		return nil, ofIndex(err)
	}
	defer rows.Close()
	var found []candidate
	for rows.Next() {
		var c candidate
		if err := rows.Scan(&c.row, &c.score); err != nil {
			return nil, ofIndex(err)
		}
		c.session, c.seq, c.score = ids[c.row>>32], hansard.Seq(c.row&0xffffffff), max(-c.score, 1e-9)
		found = append(found, c)
	}
	return found, ofIndex(errors.Join(rows.Err()))
}

// statement asks each shard and puts the answers in order. bm25 is the lower the better.
func (db *database) statement(about *subject, query terms.Query, q *hansard.SearchQuery, some []int64) (string, []any) {
	var where strings.Builder
	args := []any{match(query)}
	and := func(condition string, arg any) {
		args = append(args, arg)
		fmt.Fprintf(&where, condition, len(args))
	}
	switch {
	case about.in != "":
		n := int64(-1)
		if in := db.sessions[about.in]; in != nil {
			n = in.n
		}
		and(" AND w.rowid >= ?%d", n<<32)
		and(" AND w.rowid <= ?%d", n<<32|0xffffffff)
	case about.some:
		list, _ := json.Marshal(append([]int64{}, some...))
		and(" AND w.rowid >> 32 IN (SELECT value FROM json_each(?%d))", string(list))
	}
	if q.Kind != "" {
		and(" AND e.kind = ?%d", q.Kind)
	}
	if q.Role != "" {
		and(" AND e.role = ?%d", q.Role)
	}
	if !q.Since.IsZero() {
		and(" AND e.time >= ?%d", q.Since.UnixNano())
	}
	if !q.Before.IsZero() {
		and(" AND e.time < ?%d", q.Before.UnixNano())
	}
	var parts []string
	for _, sh := range db.shards {
		parts = append(parts, fmt.Sprintf("SELECT w.rowid AS n, bm25(%[1]s) AS score, e.time AS time FROM %[1]s AS w CROSS JOIN event AS e ON e.n = w.rowid WHERE %[1]s MATCH ?1%[2]s",
			sh.table(), where.String()))
	}
	return fmt.Sprintf("SELECT n, score FROM (%s) ORDER BY score, time DESC, n DESC LIMIT ?%d", strings.Join(parts, " UNION ALL "), len(args)+1), args
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
