package search

import (
	"context"
	"testing"
)

// Meanwhile has a function called once, before an indexer looks at the sessions again or,
// if late, between that and its commit.
func Meanwhile(t testing.TB, late bool, fn func()) {
	hook := &beforeLookAgain
	if late {
		hook = &atCommit
	}
	done := false
	*hook = func() {
		if !done {
			done = true
			fn()
		}
	}
	t.Cleanup(func() { *hook = func() {} })
}

// BeforeAsk has a function called once, after an index was brought up to date and before it
// is asked.
func BeforeAsk(t testing.TB, fn func()) {
	beforeAsk = func() {
		beforeAsk = func() {}
		fn()
	}
	t.Cleanup(func() { beforeAsk = func() {} })
}

// SmallShards has a table for every so many bytes of terms.
func SmallShards(t testing.TB, bytes int64) {
	old := shardBytes
	shardBytes = bytes
	t.Cleanup(func() { shardBytes = old })
}

// Rank sets how many matches are all put in order by their scores, how many of the newest are
// if there are more, and how many parts of sessions are asked one by one for those.
func Rank(t testing.TB, all, depth, parts int) {
	a, d, p := rankAll, rankDepth, walkParts
	rankAll, rankDepth, walkParts = all, depth, parts
	t.Cleanup(func() { rankAll, rankDepth, walkParts = a, d, p })
}

// NewestPlan is how SQLite finds the newest rows of a session that have a word.
func (ix *Index) NewestPlan(ctx context.Context) (plan []string, err error) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	rows, err := ix.db.conn.QueryContext(ctx, "EXPLAIN QUERY PLAN "+newestOf(0, "", 1), "word", 0, 1, 2)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var a, b, c int
		var line string
		if err := rows.Scan(&a, &b, &c, &line); err != nil {
			return nil, err
		}
		plan = append(plan, line)
	}
	return plan, rows.Err()
}

// Temporary tells whether an index does without its file.
func (ix *Index) Temporary() bool {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	return ix.db != nil && ix.db.temporary
}
