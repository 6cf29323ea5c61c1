package search_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"testing"
	"time"

	"hansard"
	"hansard/filestore"
	"hansard/memstore"
	"hansard/search"
	"hansard/storetest"
)

// store is a store on files, with an index or without.
func store(t testing.TB, dir string, index *search.Index) *filestore.Store {
	t.Helper()
	o := &filestore.Options{LockWait: 5 * time.Second}
	if index != nil {
		o.Search = index
	}
	s, err := filestore.Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func say(t testing.TB, s hansard.Store, id hansard.SessionID, texts ...string) {
	t.Helper()
	b := hansard.Batch{Create: true}
	for _, text := range texts {
		b.Events = append(b.Events, hansard.Message("user", text))
	}
	if _, err := s.Append(t.Context(), id, b); err != nil {
		t.Fatal(err)
	}
}

func find(t testing.TB, s hansard.Searcher, text string) (hits []hansard.Hit) {
	t.Helper()
	for h, err := range s.Search(t.Context(), hansard.SearchQuery{Text: text}) {
		if err != nil {
			t.Fatalf("search %q: %v", text, err)
		}
		hits = append(hits, h)
	}
	return hits
}

func wantHits(t testing.TB, s hansard.Searcher, text string, want int) {
	t.Helper()
	hits := find(t, s, text)
	if len(hits) == want {
		return
	}
	t.Errorf("%q is found %d times, want %d", text, len(hits), want)
	for _, h := range hits[:min(len(hits), 5)] {
		t.Logf("%s#%d %s", h.Session, h.Seq, h.Snippet)
	}
}

// inCache tells which files of the store's cache/ have some bytes in them.
func inCache(t testing.TB, dir string, sought ...string) (files []string) {
	t.Helper()
	err := filepath.WalkDir(cacheOf(dir), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		for _, s := range sought {
			if bytes.Contains(b, []byte(s)) {
				files = append(files, path+" has "+s)
			}
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return files
}

const secret = "zyxwvutsecret"

func prune(t testing.TB, s *filestore.Store) {
	t.Helper()
	if _, err := s.Prune(t.Context(), false); err != nil {
		t.Fatal(err)
	}
}

// TestErasedBytes: when a session is erased, no byte of it is left in cache/, whether the
// process that erases has the index or not, and wherever its words were.
func TestErasedBytes(t *testing.T) {
	for _, c := range []struct {
		name   string
		shard  int64
		linked bool
		steps  int // in so many transactions
	}{{"one transaction", 64 << 20, true, 1}, {"many transactions", 64 << 20, true, 20}, {"many shards", 2000, true, 20}, {"without the index", 64 << 20, false, 3}} {
		t.Run(c.name, func(t *testing.T) {
			search.SmallShards(t, c.shard)
			dir := t.TempDir()
			with := store(t, dir, search.New(cacheOf(dir), nil))
			for step := range c.steps {
				say(t, with, "gone", fmt.Sprintf("the %s number %dq%s", secret, step, secret), "all the words that are common")
				say(t, with, "stays", fmt.Sprintf("all the words that are common, and remains%d", step))
				wantHits(t, with, secret, step+1)
			}
			if inCache(t, dir, secret[4:]) == nil {
				t.Fatal("the index does not have it in the first place")
			}
			eraser := with
			if !c.linked {
				eraser = store(t, dir, nil)
			}
			if err := eraser.Delete(t.Context(), "gone", ""); err != nil {
				t.Fatal(err)
			}
			prune(t, eraser)
			if found := inCache(t, dir, secret, secret[4:]); found != nil {
				t.Errorf("after erasing: %q", found)
			}
			wantHits(t, with, secret, 0)
			wantHits(t, with, "common", c.steps)
			wantHits(t, with, fmt.Sprintf("remains%d", c.steps-1), 1)
			if found := inCache(t, dir, secret, secret[4:]); found != nil {
				t.Errorf("after a search: %q", found)
			}
			if _, err := os.Stat(filepath.Join(cacheOf(dir), search.FileName)); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestErasedWhileIndexing: a session that is deleted and erased while somebody indexes it
// does not come back: before the indexer's last look, and between that and its commit.
func TestErasedWhileIndexing(t *testing.T) {
	for _, late := range []bool{false, true} {
		for _, linked := range []bool{false, true} {
			t.Run(fmt.Sprintf("late %v linked %v", late, linked), func(t *testing.T) {
				dir := t.TempDir()
				with := store(t, dir, search.New(cacheOf(dir), nil))
				say(t, with, "stays", "one common")
				wantHits(t, with, "common", 1)
				say(t, with, "gone", "the "+secret)
				say(t, with, "stays", "another common")
				var index *search.Index
				if linked {
					index = search.New(cacheOf(dir), &search.Options{LockWait: 20 * time.Second})
				}
				eraser := store(t, dir, index)
				erased := make(chan error, 1)
				search.Meanwhile(t, late, func() {
					if err := eraser.Delete(context.Background(), "gone", ""); err != nil {
						t.Error(err)
					}
					go func() { // waits for the indexer, if it has the index
						_, err := eraser.Prune(context.Background(), false)
						erased <- err
					}()
					if !linked {
						if err := <-erased; err != nil {
							t.Error(err)
						}
					}
				})
				for _, h := range find(t, with, secret+" *") {
					t.Errorf("%s#%d is found", h.Session, h.Seq)
				}
				if linked {
					if err := <-erased; err != nil {
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

// TestScrub: prune --scrub removes the index; who has it open goes on with a new one.
func TestScrub(t *testing.T) {
	dir := t.TempDir()
	a, b := store(t, dir, search.New(cacheOf(dir), nil)), store(t, dir, search.New(cacheOf(dir), nil))
	say(t, a, "s", "first word")
	wantHits(t, a, "word", 1)
	wantHits(t, b, "word", 1)
	if _, err := a.Prune(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(cacheOf(dir), search.FileName)); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("the index is still there: %v", err)
	}
	say(t, b, "s", "second word")
	wantHits(t, a, "word", 2)
	wantHits(t, b, "word", 2)
}

// TestAnotherSession: an id may come to name another session, in a store that was put
// together anew: what the index has of the old one is not found and does not stay.
func TestAnotherSession(t *testing.T) {
	dir := t.TempDir()
	s := store(t, dir, search.New(cacheOf(dir), nil))
	say(t, s, "s", "old words "+secret, "and more", "and more")
	wantHits(t, s, secret, 1)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	other := t.TempDir()
	o := store(t, other, nil)
	say(t, o, "s", "new words here", "of the same session")
	if err := o.Close(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"sessions", "journal"} {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(other, name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	s = store(t, dir, search.New(cacheOf(dir), nil))
	wantHits(t, s, "words", 1)
	wantHits(t, s, "same", 1)
	wantHits(t, s, secret, 0)
	if found := inCache(t, dir, secret[4:]); found != nil {
		t.Errorf("the index still has the old session: %q", found)
	}
}

// TestOlderCopy: a log that is replaced by an older copy of itself, and goes on otherwise,
// is found as it is.
func TestOlderCopy(t *testing.T) {
	dir := t.TempDir()
	reopen := func() *filestore.Store { return store(t, dir, search.New(cacheOf(dir), nil)) }
	s := reopen()
	say(t, s, "s", "one")
	wantHits(t, s, "one", 1)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(dir, "sessions", "s.jsonl")
	old, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	for _, more := range [][]string{{"other"}, {"different other", "longer", "much longer"}} {
		s = reopen()
		say(t, s, "s", "two was here", "three was here")
		wantHits(t, s, "three", 1)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(log, old, 0o600); err != nil {
			t.Fatal(err)
		}
		s = reopen()
		say(t, s, "s", more...)
		wantHits(t, s, more[0], 1)
		wantHits(t, s, "three", 0)
		wantHits(t, s, "one", 1)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(log, old, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSmallShards: the contract holds however the words are spread.
func TestSmallShards(t *testing.T) {
	search.SmallShards(t, 300)
	storetest.RunSome(t, engine(), "search/words", "search/model", "search/deleted")
}

// TestAnyStore: the index needs nothing of a store but the contract, and what is deleted
// while it is indexed does not even get into the file when nobody takes it out.
func TestAnyStore(t *testing.T) {
	dir := t.TempDir()
	s, index := memstore.New(), search.New(dir, nil)
	defer index.Close()
	say(t, s, "gone", "the "+secret)
	say(t, s, "stays", "the rest")
	search.Meanwhile(t, false, func() {
		if err := s.Delete(context.Background(), "gone", ""); err != nil {
			t.Error(err)
		}
	})
	wantHits(t, over{index, s}, "the", 1)
	b, err := os.ReadFile(filepath.Join(dir, search.FileName))
	if err != nil || bytes.Contains(b, []byte(secret[4:])) || !bytes.Contains(b, []byte("rest")) {
		t.Errorf("what was deleted is in the file, or the rest is not (%v)", err)
	}
	say(t, s, "late", "the "+secret)
	wantHits(t, over{index, s}, "the", 2)
	if err := s.Delete(t.Context(), "late", ""); err != nil {
		t.Fatal(err)
	}
	wantHits(t, over{index, s}, "the", 1)
	if b, err = os.ReadFile(filepath.Join(dir, search.FileName)); err != nil || bytes.Contains(b, []byte(secret[4:])) {
		t.Errorf("what was deleted is in the file after the next search (%v)", err)
	}
}

// over is a store with an index.
type over struct {
	*search.Index
	store hansard.Store
}

func (o over) Search(ctx context.Context, q hansard.SearchQuery) iter.Seq2[hansard.Hit, error] {
	return o.Index.Search(ctx, o.store, q)
}
