package filestore

import (
	"context"
	"errors"
	"io/fs"
	"iter"

	"hansard"
	"hansard/engine/terms"
	"hansard/filestore/internal/cache"
	"hansard/filestore/internal/sessionlog"
)

// SearchIndex is an index of a store's events in cache/search.db.
type SearchIndex interface {
	// Search brings the index up to date and runs a query.
	Search(ctx context.Context, s hansard.Store, q hansard.SearchQuery) iter.Seq2[hansard.Hit, error]
	// Forget removes everything the index has about deleted sessions. Nil: no byte of
	// them is left in the file. Otherwise the store removes the file.
	Forget(ids []hansard.SessionID) error
	// ForgetEvents does the same for redacted events.
	ForgetEvents(id hansard.SessionID, seqs []hansard.Seq) error
	Close() error
}

// searchFiles are the files of an index in cache/.
var searchFiles = []string{cache.Dir + "/search.db", cache.Dir + "/search.db-journal"}

// Search implements [hansard.Searcher]: with the index of Options.Search, or else by
// reading every log.
func (s *Store) Search(ctx context.Context, q hansard.SearchQuery) iter.Seq2[hansard.Hit, error] {
	if s.closed.Load() {
		return func(yield func(hansard.Hit, error) bool) { yield(hansard.Hit{}, hansard.ErrClosed) }
	}
	if s.opt.Search != nil {
		return s.opt.Search.Search(ctx, s, q)
	}
	return terms.ByReading(ctx, s, q)
}

// strikeFromSearch removes sessions from the search index: their rows, if this process
// has the index; otherwise the whole file, which the next search rebuilds. A process that
// has the file open notices that, and one that is indexing checks the sessions again
// before it commits.
func (er *eraser) strikeFromSearch(names []string) (changed bool, err error) {
	if er.opt.Search != nil {
		ids := make([]hansard.SessionID, len(names))
		for i, name := range names {
			ids[i], _ = sessionlog.DecodeName(name)
		}
		if err := er.opt.Search.Forget(ids); err == nil {
			return false, nil
		}
	}
	return er.dropSearch()
}

// redactInSearch removes events from the search index, durably, after the log has lost
// their content: a process that indexes them from then on finds none.
func (er *eraser) redactInSearch(id hansard.SessionID, seqs []hansard.Seq) error {
	if er.opt.Search != nil && er.opt.Search.ForgetEvents(id, seqs) == nil {
		return nil
	}
	if _, err := er.dropSearch(); err != nil {
		return err
	}
	// Also if no file was there: its remover may have died before that was durable.
	return ignoreMissing(er.fs.SyncDir(cache.Dir))
}

// dropSearch removes the index as a whole.
func (er *eraser) dropSearch() (changed bool, err error) {
	for _, file := range searchFiles {
		err := er.fs.Remove(file)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return changed, err
		}
		changed = changed || err == nil
	}
	return changed, nil
}

var _ hansard.Searcher = (*Store)(nil)
