// Package search finds events by their words, in an index that is derived from the store
// and may be deleted at any time.
//
//	index := search.New(filepath.Join(dir, "cache"), nil)
//	store, err := filestore.Open(dir, &filestore.Options{Search: index})
//	for hit, err := range store.Search(ctx, hansard.SearchQuery{Text: "deploy"}) { … }
//
// The index is one SQLite file, cache/search.db, with FTS5 tables that hold the terms of events
// (package engine/terms) and their positions, not the texts. The write path does not know about
// it. A search first brings it up to date: List says which sessions have changed, and Read gives
// the events past the last indexed one; so an answer is complete whatever the index held. Each
// hit is then read from the store, checked again and shown from there: a wrong index can't
// return anything that does not exist, or no longer exists.
//
// Words of scripts without spaces are indexed as overlapping pairs of characters. A run of
// characters is a phrase of pairs, which FTS5 finds exactly by their positions, and a
// single character is the beginning of a pair. So no match needs a second check, short queries
// work, and the index grows by two thirds of what a table of trigrams takes.
//
// # Processes
//
// Any number of processes use one file. SQLite's locks decide who writes; the transactions are
// short, and each begins by checking what the others have indexed in the meantime, so that two
// processes that index at once share the work. There is no WAL and no memory map: with shared
// memory, a full disk kills the process. A process that finds the file missing, garbled, of an
// older version or replaced by another makes a new one, and reads no more from the old one
// ([Index.inPlace] says why). An answer comes from one snapshot of the file; it is repeated if
// the file by then holds less than when it was brought up to date. A process that can't use the
// file, because the store is read-only or a stopped process keeps the file locked, indexes into
// its own unnamed temporary file.
//
// # Erasing
//
// Deleted content must not come back. A transaction that indexes checks every session in it
// again before it commits ([Index.step]): if one has been deleted, nothing of it is committed.
// And erasing a session removes its rows ([Index.Forget]) after the session was deleted, in a
// separate transaction: so the indexer either saw the deletion, or its rows were there to be
// removed. Redacted events are handled the same way ([Index.ForgetEvents]). SQLite overwrites
// freed space (secure_delete), and the tables that had the rows are rewritten, so that no byte
// of them is left in the file. Words are spread over tables of a bounded size to keep that
// short.
package search

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"hansard"
	"hansard/engine/terms"
)

// FileName is the name of the index in the directory passed to New.
const FileName = "search.db"

// Options says how to index. The zero value is fine.
type Options struct {
	// ReadOnly keeps the index in a temporary file.
	ReadOnly bool
	// Progress is called while events are indexed, a few times a second at most.
	Progress func(Progress)
	// Log receives notable events: that the index is rebuilt, and why. Nil: they are dropped.
	Log *slog.Logger
	// LockWait is how long another process may keep the index locked without progress before
	// this one does without it; 0 is 5 seconds.
	LockWait time.Duration
}

// Progress tells how far the indexing is.
type Progress struct {
	// Events and Bytes are what has been indexed so far.
	Events, Bytes int64
	// Done and Total count the sessions that had something new.
	Done, Total int
	// Waiting: another process has the index.
	Waiting bool
}

// Index is an index of the events of a store. Its methods may be called by any number of
// goroutines. It opens nothing before it is used.
type Index struct {
	path string
	opt  Options

	mu     sync.Mutex // guards all below; held for single transactions and queries
	closed bool
	db     *database // nil: not open
	// told is the last logged reason for doing without the file.
	told string
}

// New makes an index in a directory, which is the cache/ of a store.
func New(dir string, o *Options) *Index {
	var opt Options
	if o != nil {
		opt = *o
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	if opt.LockWait <= 0 {
		opt.LockWait = 5 * time.Second
	}
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs // SQLite opens its journal by name, later
	}
	return &Index{path: filepath.Join(dir, FileName), opt: opt}
}

// Close closes the file. Searches that run end with hansard.ErrClosed.
func (ix *Index) Close() error {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	ix.closed = true
	return ix.closeDB()
}

// Search brings the index up to date with a store and yields the hits of a query: see
// [hansard.Searcher].
func (ix *Index) Search(ctx context.Context, s hansard.Store, q hansard.SearchQuery) iter.Seq2[hansard.Hit, error] {
	return func(yield func(hansard.Hit, error) bool) {
		if err := ix.search(ctx, s, q, func(h hansard.Hit) bool { return yield(h, nil) }); err != nil {
			yield(hansard.Hit{}, err)
		}
	}
}

func (ix *Index) search(ctx context.Context, s hansard.Store, q hansard.SearchQuery, yield func(hansard.Hit) bool) error {
	query, err := terms.Check(&q)
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	about, err := look(ctx, s, &q)
	if err != nil {
		return err
	}
	if err := ix.update(ctx, s, about); err != nil {
		return err
	}
	// Candidates in order, more of them as long as the caller wants more: the file is not kept
	// locked while a caller works on a hit.
	a := &answer{s: s, about: about, query: query, q: &q, skip: q.Offset, seen: map[int64]bool{}, yield: yield}
	for most := max(100, q.Offset+q.Limit); ; most *= 10 {
		found, all, err := ix.candidates(ctx, a, most)
		if err != nil {
			return err
		}
		if more, err := a.give(ctx, found); err != nil || !more || all {
			return err
		}
	}
}

// answer is the state of a search: what it has yielded so far.
type answer struct {
	s     hansard.Store
	about *subject
	query terms.Query
	q     *hansard.SearchQuery

	// common: so many events match that only the newest are ranked by score. ranked: those were
	// yielded; the others come by time.
	common, ranked bool

	skip, given int
	seen        map[int64]bool // candidates that were yielded or skipped
	yield       func(hansard.Hit) bool
}

// give yields candidates, in their order unless they are not ordered yet.
func (a *answer) give(ctx context.Context, found []candidate) (more bool, err error) {
	if a.common && !a.ranked {
		a.ranked = true
		return a.rank(ctx, found)
	}
	for i := range found {
		c := &found[i]
		if a.seen[c.row] {
			continue
		}
		a.seen[c.row] = true
		if a.skip > 0 {
			a.skip--
			continue
		}
		hit, ok, err := a.verify(ctx, c)
		if err != nil {
			return false, err
		}
		if ok && !a.hand(hit) {
			return false, nil
		}
	}
	return true, nil
}

// hand yields a hit, and tells whether another is wanted.
func (a *answer) hand(hit hansard.Hit) bool {
	a.given++
	return a.yield(hit) && a.given != a.q.Limit
}

// verify reads a candidate from the store and checks whether it matches the query.
func (a *answer) verify(ctx context.Context, c *candidate) (hit hansard.Hit, ok bool, err error) {
	err = a.read(ctx, c.session, c.seq, c.seq, func(h hansard.Hit) {
		if hit, ok = h, true; c.score > 0 {
			hit.Score = c.score
		}
	})
	return hit, ok, err
}

// read passes on the hits among a session's events, as the store has them now.
func (a *answer) read(ctx context.Context, id hansard.SessionID, first, last hansard.Seq, give func(hansard.Hit)) error {
	if err := ctx.Err(); err != nil {
		return err // an answer that was cut short must not look complete
	}
	listed, ok := a.about.sessions[id]
	if !ok {
		return nil // deleted, or not a session of the query
	}
	// In reverse, because a file store then reads only these events, not their batches.
	for e, err := range a.s.Read(ctx, id, hansard.Range{After: first - 1, Before: last + 1, Reverse: true}) {
		if err != nil {
			return a.about.unreadable(id, err)
		}
		d := terms.Of(e)
		if found, ok := a.query.Find(d.Text); ok && terms.WantsEvent(a.q, &e, &d) {
			give(found.Hit(&hansard.Info{ID: id, Title: listed.title}, &e, &d))
		}
	}
	return nil
}

// subject is the set of sessions a search covers, as they were when it began.
type subject struct {
	sessions map[hansard.SessionID]listed
	newest   []hansard.SessionID // in the order of their last events
	// some: there may be sessions it does not cover. in: it covers only this one.
	some bool
	in   hansard.SessionID
}

// listed is what a search needs to know about a session.
type listed struct {
	title            string
	created, updated time.Time
	last             hansard.Seq
}

// look lists the sessions that a query covers.
func look(ctx context.Context, s hansard.Store, q *hansard.SearchQuery) (*subject, error) {
	about := &subject{sessions: map[hansard.SessionID]listed{}, in: q.In, some: q.In != "" || q.Prefix != "" || len(q.Labels) > 0 || !q.Since.IsZero()}
	add := func(i *hansard.Info) {
		if i.Unreadable == "" && terms.WantsSession(q, i) {
			about.sessions[i.ID] = listed{i.Title, i.Created, i.Updated, i.LastSeq}
			about.newest = append(about.newest, i.ID)
		}
	}
	if q.In != "" {
		info, err := s.Stat(ctx, q.In)
		if err != nil {
			return nil, err
		}
		add(&info)
		return about, nil
	}
	// Updated is the time of the last event: nothing older has one since.
	for info, err := range s.List(ctx, hansard.Query{Prefix: q.Prefix, Labels: q.Labels, Since: q.Since}) {
		if err != nil {
			return nil, err
		}
		add(&info)
	}
	return about, nil
}

// unreadable returns an error unless it is about a single session, which is left out.
func (about *subject) unreadable(id hansard.SessionID, err error) error {
	if terms.OneSession(err) && !(about.in == id && (errors.Is(err, hansard.ErrNotFound) || errors.Is(err, hansard.ErrDeleted))) {
		return nil
	}
	return err
}

// Background keeps the index up to date until the context ends: within about a second of
// an append, so that searches find little to do. Searches are complete without it.
func (ix *Index) Background(ctx context.Context, s hansard.Store) {
	for {
		began := time.Now()
		about, err := look(ctx, s, &hansard.SearchQuery{})
		if err == nil {
			err = ix.update(ctx, s, about)
		}
		if err != nil && ctx.Err() == nil && !errors.Is(err, hansard.ErrClosed) {
			ix.opt.Log.Warn("the search index could not be brought up to date", "error", err)
		}
		// If a pass takes long, passes are less frequent: at most a fiftieth of the time.
		rest := time.NewTimer(max(time.Second, 50*time.Since(began)))
		select {
		case <-rest.C:
		case <-ctx.Done():
			rest.Stop()
			return
		}
	}
}
