package search_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"testing"

	"hansard"
	"hansard/memstore"
	"hansard/search"
)

// TestReplacedBeforeAsked: between the moment when the index is up to date and the question
// it is removed, and another process has begun to write a new one. SQLite finds the journal
// of the new file by its name and takes it for the old file's. Nothing that was acknowledged
// may be missing from the answer, and the new file and its journal stay as they are.
func TestReplacedBeforeAsked(t *testing.T) {
	dir := t.TempDir()
	s := store(t, dir, search.New(cacheOf(dir), nil))
	say(t, s, "s", "first word")
	wantHits(t, s, "word", 1)
	say(t, s, "s", "second word")
	path := filepath.Join(cacheOf(dir), search.FileName)
	var made os.FileInfo
	search.BeforeAsk(t, func() {
		if err := os.Remove(path); err != nil {
			t.Error(err)
		}
		// A new one with nothing in it, and a transaction that has changed every page of
		// it: so all of them are in the journal, as they were.
		empty := over{search.New(cacheOf(dir), nil), memstore.New()}
		wantHits(t, empty, "word", 0)
		if err := empty.Close(); err != nil {
			t.Error(err)
		}
		leaveJournal(t, path)
		made, _ = os.Stat(path)
	})
	wantHits(t, s, "word", 2)
	if now, err := os.Stat(path); err != nil || !os.SameFile(now, made) {
		t.Errorf("the new file was removed (%v)", err)
	}
	if info, err := os.Stat(path + "-journal"); err != nil || info.Size() == 0 {
		t.Errorf("the journal of the new file was taken for the old one's: %v, %v", info, err)
	}
	wantHits(t, s, "word", 2)
}

// leaveJournal leaves a transaction open whose journal is complete, until the test ends or
// the index has waited for it.
func leaveJournal(t *testing.T, path string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode(TRUNCATE)&_pragma=cache_size(5)")
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { db.Close() })
	if _, err := db.Exec(`BEGIN IMMEDIATE;
		INSERT INTO session VALUES (77, 'x', 1, 1, 1, 1, 1); INSERT INTO event VALUES (77, 1, 'k', 'r');
		INSERT INTO shard VALUES (77, 1); INSERT INTO part VALUES (77, 77);
		CREATE TABLE large (b BLOB);
		INSERT INTO large WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < 200) SELECT zeroblob(8000) FROM n`); err != nil {
		t.Fatal(err)
	}
	// The pages that don't fit into the cache are in the file, so those of the journal are.
	if info, err := os.Stat(path + "-journal"); err != nil || info.Size() < 5*8192 {
		t.Fatalf("the journal is not written: %v, %v", info, err)
	}
}

// TestSetBackBeforeAsked: what an index had when it was brought up to date may be gone when
// it is asked, because somebody indexes a session anew or another goroutine has opened a new
// file. It is brought up to date again.
func TestSetBackBeforeAsked(t *testing.T) {
	for name, statements := range map[string]string{
		"all":          "DELETE FROM session; DELETE FROM event; DELETE FROM part; DELETE FROM shard; DROP TABLE words0",
		"a session":    "DELETE FROM session WHERE id = 's'; DELETE FROM event WHERE n >> 32 = 1; DELETE FROM words0 WHERE rowid >> 32 = 1",
		"the last one": "UPDATE session SET listed = 0, last = 0 WHERE id = 's'; DELETE FROM event WHERE n >> 32 = 1; DELETE FROM words0 WHERE rowid >> 32 = 1",
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := store(t, dir, search.New(cacheOf(dir), nil))
			say(t, s, "s", "first word", "second word")
			say(t, s, "t", "third word")
			search.BeforeAsk(t, func() {
				db, err := sql.Open("sqlite", filepath.Join(cacheOf(dir), search.FileName))
				if err != nil {
					t.Fatal(err)
				}
				_, err = db.Exec("BEGIN IMMEDIATE; " + statements + "; COMMIT")
				if err = errors.Join(err, db.Close()); err != nil {
					t.Error(err)
				}
			})
			wantHits(t, s, "word", 3)
		})
	}
}

// TestReadFailsOnce: a session that can't be read to its end while it is indexed is read
// again by the next search, although nothing was appended.
func TestReadFailsOnce(t *testing.T) {
	for _, err := range []error{hansard.ErrUnreadable, hansard.ErrDamaged} {
		t.Run(fmt.Sprint(err), func(t *testing.T) {
			inner := memstore.New()
			say(t, inner, "s", "first word", "second word")
			s := &failingOnce{Store: inner, err: err}
			o := over{search.New(t.TempDir(), nil), s}
			defer o.Close()
			wantHits(t, o, "word", 1)
			wantHits(t, o, "word", 2)
			reads := s.reads
			wantHits(t, o, "nothing", 0)
			if s.reads != reads {
				t.Error("a session of which nothing is new is read again")
			}
		})
	}
}

// failingOnce is a store whose first Read fails behind the first event.
type failingOnce struct {
	hansard.Store
	err   error
	reads int
}

func (s *failingOnce) Read(ctx context.Context, id hansard.SessionID, r hansard.Range) iter.Seq2[hansard.Event, error] {
	s.reads++
	if s.reads > 1 {
		return s.Store.Read(ctx, id, r)
	}
	return func(yield func(hansard.Event, error) bool) {
		for e, err := range s.Store.Read(ctx, id, r) {
			if !yield(e, err) {
				return
			}
			break
		}
		yield(hansard.Event{}, s.err)
	}
}
