package search

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"hansard"
	"hansard/engine/terms"
)

// A word that is nearly everywhere says little, and ranking all events that have it takes long:
// a microsecond or two for each. So if there are very many, only the newest are ranked, as on
// PostgreSQL. FTS5 returns the rows of a word in the order of their numbers, starting anywhere,
// and so those of a session from its last event backwards. So the sessions are queried one by
// one, those with the newest events first, until the others can't have newer ones. Only tests
// change these.
var (
	// rankAll is up to how many matches all are ranked by score: reading rankDepth events takes
	// as long.
	rankAll = 20_000
	// rankDepth is how many of the newest are ranked if there are more.
	rankDepth = 500
	// walkParts is how many parts of sessions are queried one by one. If that is not enough,
	// because the matches that pass a filter are rare or old, all are examined.
	walkParts = 1000
)

// isCommon tells whether more events match than are ranked, ignoring the conditions of the
// query other than the words.
func (db *database) isCommon(ctx context.Context, a *answer, w *wanted) (bool, error) {
	var parts []string
	args := []any{w.args[0], rankAll + 1}
	within := ""
	if a.about.in != "" {
		args, within = append(args, w.args[1], w.args[2]), " AND rowid >= ?3 AND rowid <= ?4"
	}
	for _, sh := range db.shards {
		parts = append(parts, fmt.Sprintf("SELECT rowid FROM %[1]s WHERE %[1]s MATCH ?1%[2]s", sh.table(), within))
	}
	var n int
	err := db.conn.QueryRowContext(ctx, "SELECT count(*) FROM (SELECT * FROM ("+strings.Join(parts, " UNION ALL ")+") LIMIT ?2)", args...).Scan(&n)
	return n > rankAll, err
}

// newest are the newest candidates, at most rankDepth, in any order.
func (db *database) newest(ctx context.Context, a *answer, w *wanted) (found []candidate, err error) {
	n := len(w.args)
	statements := map[int64]*sql.Stmt{} // of shards
	defer func() {
		for _, statement := range statements {
			err = errors.Join(err, statement.Close())
		}
	}()
	walked := 0
	for _, id := range a.about.newest {
		in := db.sessions[id]
		if in == nil {
			continue
		}
		if len(found) == rankDepth && found[rankDepth-1].time > a.about.sessions[id].updated.UnixNano() {
			break // it has nothing newer, and neither do those after it
		}
		parts, err := db.partsOf(ctx, in)
		if err != nil {
			return nil, err
		}
		if walked += len(parts); walked > walkParts {
			return db.first(ctx, w, false, rankDepth)
		}
		for _, shard := range parts {
			if statements[shard] == nil {
				if statements[shard], err = db.conn.PrepareContext(ctx, newestOf(shard, w.where, n)); err != nil {
					return nil, err
				}
			}
			more, err := w.collect(statements[shard].QueryContext(ctx, append(slices.Clip(w.args), in.n<<32, in.n<<32|0xffffffff, rankDepth)...))
			if err != nil {
				return nil, err
			}
			found = append(found, more...)
		}
		slices.SortFunc(found, func(a, b candidate) int { return cmp.Or(cmp.Compare(b.time, a.time), cmp.Compare(b.row, a.row)) })
		found = found[:min(len(found), rankDepth)]
	}
	if found == nil {
		found = []candidate{} // none, as opposed to nil: not queried
	}
	return found, nil
}

// newestOf queries a shard for the last rows of a session. places is how many arguments the
// condition has.
func newestOf(n int64, where string, places int) string {
	return fmt.Sprintf("SELECT w.rowid, 0.0, e.time "+matching+"%[2]s AND w.rowid >= ?%[3]d AND w.rowid <= ?%[4]d ORDER BY w.rowid DESC LIMIT ?%[5]d",
		shard{n: n}.table(), where, places+1, places+2, places+3)
}

// partsOf are the shards that have something of a session.
func (db *database) partsOf(ctx context.Context, in *indexed) (parts []int64, err error) {
	rows, err := db.conn.QueryContext(ctx, "SELECT shard FROM part WHERE session = ?", in.n)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var n int64
		if err := rows.Scan(&n); err != nil {
			return nil, err
		}
		parts = append(parts, n)
	}
	return parts, rows.Err()
}

// rank reads candidates, scores them and then yields them, the best first.
func (a *answer) rank(ctx context.Context, found []candidate) (more bool, err error) {
	slices.SortFunc(found, func(a, b candidate) int { return cmp.Compare(a.row, b.row) })
	var hits []hansard.Hit
	for i := 0; i < len(found); {
		// Those close to each other are read at once.
		first, last, of := found[i].seq, found[i].seq, found[i].session
		wanted := map[hansard.Seq]bool{}
		for ; i < len(found) && found[i].session == of && found[i].seq-last <= 8; i++ {
			last = found[i].seq
			wanted[last], a.seen[found[i].row] = true, true
		}
		err := a.read(ctx, of, first, last, func(h hansard.Hit) {
			if wanted[h.Seq] {
				hits = append(hits, h)
			}
		})
		if err != nil {
			return false, err
		}
	}
	slices.SortFunc(hits, func(a, b hansard.Hit) int { return terms.Better(&a, &b) })
	for _, h := range hits {
		if a.skip > 0 {
			a.skip--
		} else if !a.hand(h) {
			return false, nil
		}
	}
	return true, nil
}
