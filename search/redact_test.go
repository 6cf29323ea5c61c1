package search_test

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"hansard"
	"hansard/filestore"
	"hansard/memstore"
	"hansard/search"
)

func redact(t testing.TB, s hansard.Store, id hansard.SessionID, seqs ...hansard.Seq) {
	t.Helper()
	if _, err := s.Redact(t.Context(), id, hansard.Redaction{Seqs: seqs, Reason: "a reason"}); err != nil {
		t.Fatal(err)
	}
}

// TestRedactedBytes: when events are redacted no byte of their words is left in cache/,
// whether the process that redacts has the index or not, and wherever the words were. The
// others are found, and the index is not made anew where that is not needed.
func TestRedactedBytes(t *testing.T) {
	for _, c := range []struct {
		name   string
		shard  int64
		linked bool
		steps  int // in so many transactions
	}{{"one transaction", 64 << 20, true, 1}, {"many transactions", 64 << 20, true, 20}, {"many shards", 500, true, 20}, {"without the index", 64 << 20, false, 3}} {
		t.Run(c.name, func(t *testing.T) {
			search.SmallShards(t, c.shard)
			dir := t.TempDir()
			with := store(t, dir, search.New(cacheOf(dir), nil))
			var seqs []hansard.Seq
			for step := range c.steps {
				say(t, with, "s", fmt.Sprintf("common, remains%d", step), fmt.Sprintf("the %s number %dq%s", secret, step, secret))
				seqs = append(seqs, hansard.Seq(2*step+2))
				wantHits(t, with, secret, step+1)
			}
			if inCache(t, dir, secret[4:]) == nil {
				t.Fatal("the index does not have it in the first place")
			}
			path := filepath.Join(cacheOf(dir), search.FileName)
			before, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			who := with
			if !c.linked {
				who = store(t, dir, nil)
			}
			redact(t, who, "s", seqs...)
			if found := inCache(t, dir, secret, secret[4:]); found != nil {
				t.Errorf("after redacting: %q", found)
			}
			if after, err := os.Stat(path); c.linked && (err != nil || !os.SameFile(before, after)) {
				t.Errorf("the index was removed (%v)", err)
			}
			wantHits(t, with, secret, 0)
			wantHits(t, with, "common", c.steps)
			wantHits(t, with, fmt.Sprintf("remains%d", c.steps-1), 1)
			if found := inCache(t, dir, secret, secret[4:]); found != nil {
				t.Errorf("after a search: %q", found)
			}
		})
	}
}

// TestRedactedWhileIndexing: what is redacted while somebody indexes it does not come back:
// before the indexer's last look, and between that and its commit.
func TestRedactedWhileIndexing(t *testing.T) {
	for _, late := range []bool{false, true} {
		for _, linked := range []bool{false, true} {
			t.Run(fmt.Sprintf("late %v linked %v", late, linked), func(t *testing.T) {
				dir := t.TempDir()
				with := store(t, dir, search.New(cacheOf(dir), nil))
				say(t, with, "s", "one common")
				wantHits(t, with, "common", 1)
				say(t, with, "s", "the "+secret, "another common")
				var index *search.Index
				if linked {
					index = search.New(cacheOf(dir), &search.Options{LockWait: 20 * time.Second})
				}
				other := store(t, dir, index)
				done := make(chan error, 1)
				search.Meanwhile(t, late, func() {
					go func() { // waits for the indexer, if it has the index
						_, err := other.Redact(context.Background(), "s", hansard.Redaction{Seqs: []hansard.Seq{2}})
						done <- err
					}()
					if !linked {
						if err := <-done; err != nil {
							t.Error(err)
						}
						return
					}
					// The log is without it before the index is waited for.
					for {
						for e, err := range other.Read(context.Background(), "s", hansard.Range{After: 1, Before: 3}) {
							if err != nil {
								t.Error(err)
							}
							if err != nil || e.Redacted {
								return
							}
						}
					}
				})
				for _, h := range find(t, with, secret) {
					t.Errorf("%s#%d is found", h.Session, h.Seq)
				}
				if linked {
					if err := <-done; err != nil {
						t.Error(err)
					}
				}
				if found := inCache(t, dir, secret[4:]); found != nil {
					t.Errorf("it came back: %q", found)
				}
				wantHits(t, with, "common", 2)
				wantHits(t, with, secret, 0)
				if found := inCache(t, dir, secret[4:]); found != nil {
					t.Errorf("it came back with the next search: %q", found)
				}
			})
		}
	}
}

// TestRedactedInTheBackground: as the server has it, an index that is kept up to date all the
// time, in this process and in another, never has what was redacted.
func TestRedactedInTheBackground(t *testing.T) {
	dir := t.TempDir()
	index := search.New(cacheOf(dir), nil)
	s, other := store(t, dir, index), store(t, dir, search.New(cacheOf(dir), nil))
	ctx, cancel := context.WithCancel(t.Context())
	var indexers sync.WaitGroup
	indexers.Go(func() { index.Background(ctx, s) })
	indexers.Go(func() {
		for ctx.Err() == nil {
			for range other.Search(ctx, hansard.SearchQuery{Text: "anything"}) {
			}
		}
	})
	for i := range 20 {
		word := fmt.Sprintf("%s%d", secret, i)
		say(t, s, "s", "the "+word, "stays")
		redact(t, []hansard.Store{s, other}[i%2], "s", hansard.Seq(3*i+1))
		if found := inCache(t, dir, word[4:]); found != nil {
			t.Errorf("after redacting: %q", found)
		}
	}
	cancel()
	indexers.Wait()
	wantHits(t, s, "stays", 20)
	if found := inCache(t, dir, secret[4:]); found != nil {
		t.Errorf("at the end: %q", found)
	}
}

// TestRedactedAnyStore: of a store that tells the index nothing, what was redacted is out of
// the file with the next search, also if it is what was indexed last: and only that is
// removed.
func TestRedactedAnyStore(t *testing.T) {
	dir := t.TempDir()
	inner := memstore.New()
	s := &notingReads{Store: inner}
	o := over{search.New(dir, nil), s}
	defer o.Close()
	say(t, inner, "s", "first word", "second word", "the "+secret)
	wantHits(t, o, secret, 1)
	redact(t, inner, "s", 3)
	s.after = nil
	wantHits(t, o, secret, 0)
	wantHits(t, o, "word", 2)
	if !slices.Equal(s.after, []hansard.Seq{2}) {
		t.Errorf("the session is read behind %d, not once from the redacted event on", s.after)
	}
	b, err := os.ReadFile(filepath.Join(dir, search.FileName))
	if err != nil || bytes.Contains(b, []byte(secret[4:])) {
		t.Errorf("what was redacted is in the file (%v)", err)
	}
}

// notingReads is a store that notes where an indexer begins to read.
type notingReads struct {
	hansard.Store
	after []hansard.Seq
}

func (s *notingReads) Read(ctx context.Context, id hansard.SessionID, r hansard.Range) iter.Seq2[hansard.Event, error] {
	if !r.Reverse {
		s.after = append(s.after, r.After)
	}
	return s.Store.Read(ctx, id, r)
}

// TestRedactedLogFirst: the index is told when the log has the content no more. Before that
// an indexer could read it again.
func TestRedactedLogFirst(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, "sessions", "s.jsonl")
	index := &toldIndex{Index: search.New(cacheOf(dir), nil)}
	index.told = func() {
		if b, err := os.ReadFile(log); err != nil || bytes.Contains(b, []byte(secret)) {
			t.Errorf("the log still has it (%v)", err)
		}
	}
	s, err := filestore.Open(dir, &filestore.Options{Search: index})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	say(t, s, "s", "the "+secret)
	redact(t, s, "s", 1)
	if index.times == 0 {
		t.Error("the index is not told")
	}
}

// toldIndex calls a function when events are to be forgotten.
type toldIndex struct {
	*search.Index
	told  func()
	times int
}

func (x *toldIndex) ForgetEvents(id hansard.SessionID, seqs []hansard.Seq) error {
	x.times++
	x.told()
	return x.Index.ForgetEvents(id, seqs)
}
