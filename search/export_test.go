package search

import "testing"

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

// Temporary tells whether an index does without its file.
func (ix *Index) Temporary() bool {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	return ix.db != nil && ix.db.temporary
}
