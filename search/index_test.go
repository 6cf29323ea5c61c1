package search_test

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"hansard"
	"hansard/filestore"
	"hansard/search"
)

// TestBadFiles: whatever has happened to the file, before or between two searches, the
// answer is complete.
func TestBadFiles(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	garbage := make([]byte, 50_000)
	for i := range garbage {
		garbage[i] = byte(rng.Uint32())
	}
	run := func(statement string) func(path string) error {
		return func(path string) error {
			db, err := sql.Open("sqlite", path)
			if err != nil {
				return err
			}
			_, err = db.Exec(statement)
			return errors.Join(err, db.Close())
		}
	}
	for name, spoil := range map[string]func(path string) error{
		"removed":        os.Remove,
		"empty":          func(path string) error { return os.Truncate(path, 0) },
		"truncated":      func(path string) error { return os.Truncate(path, 10_000) },
		"garbage":        func(path string) error { return os.WriteFile(path, garbage, 0o600) },
		"garbage behind": func(path string) error { return overwrite(path, 8192, garbage) },
		"another file":   func(path string) error { return errors.Join(os.Remove(path), os.WriteFile(path, garbage, 0o600)) },
		"a directory":    func(path string) error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o700)) },
		"a link":         func(path string) error { return errors.Join(os.Remove(path), os.Symlink("/dev/null", path)) },
		"a bad journal":  func(path string) error { return os.WriteFile(path+"-journal", garbage, 0o600) },
		"older":          run("PRAGMA user_version = 0"),
		"newer":          run("PRAGMA user_version = 99"),
		"a trigger":      run("CREATE TRIGGER t AFTER INSERT ON session BEGIN DELETE FROM event; END"),
		"other tables":   run("ALTER TABLE event ADD COLUMN x"),
		"rows removed":   run("DROP TABLE words0"),
		"no cache": func(path string) error {
			return errors.Join(os.RemoveAll(filepath.Dir(path)), os.WriteFile(filepath.Dir(path), nil, 0o600))
		},
	} {
		for _, open := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s open %v", name, open), func(t *testing.T) {
				dir := t.TempDir()
				s := store(t, dir, search.New(cacheOf(dir), nil))
				for i := range 20 {
					say(t, s, hansard.SessionID(fmt.Sprint("s", i%3)), fmt.Sprintf("a common word and number%d", i))
				}
				wantHits(t, s, "common", 20)
				if !open {
					if err := s.Close(); err != nil {
						t.Fatal(err)
					}
				}
				if err := spoil(filepath.Join(cacheOf(dir), search.FileName)); err != nil {
					t.Fatal(err)
				}
				if !open {
					s = store(t, dir, search.New(cacheOf(dir), nil))
				}
				wantHits(t, s, "number7", 1)
				say(t, s, "s1", "one more common")
				wantHits(t, s, "common", 21)
				wantHits(t, s, "number7", 1)
			})
		}
	}
}

func overwrite(path string, at int64, b []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(b, at)
	return errors.Join(err, f.Close())
}

// TestLinkedCache: nothing is made through a link, which could lead root anywhere.
func TestLinkedCache(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	if err := os.Symlink(elsewhere, cacheOf(dir)); err != nil {
		t.Fatal(err)
	}
	s := store(t, dir, search.New(cacheOf(dir), nil))
	say(t, s, "a", "a word")
	wantHits(t, s, "word", 1)
	if made, err := os.ReadDir(elsewhere); err != nil || len(made) > 0 {
		t.Errorf("behind the link: %v, %v", made, err)
	}
}

// TestReadOnly: where the index may not be kept with the store it is a temporary one, and
// nothing is written.
func TestReadOnly(t *testing.T) {
	dir := t.TempDir()
	s := store(t, dir, nil)
	say(t, s, "s", "a word")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	index := search.New(cacheOf(dir), &search.Options{ReadOnly: true})
	r, err := filestore.Open(dir, &filestore.Options{ReadOnly: true, Search: index})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	wantHits(t, r, "word", 1)
	wantHits(t, r, "word", 1)
	if _, err := os.Stat(filepath.Join(cacheOf(dir), search.FileName)); err == nil || !index.Temporary() {
		t.Errorf("the index was written into the store (%v)", err)
	}
}

// TestLocked: a process that keeps the file to itself for ever is done without, and one
// that gives it back is waited for.
func TestLocked(t *testing.T) {
	dir := t.TempDir()
	var log bytes.Buffer
	var waiting atomic.Bool
	index := search.New(cacheOf(dir), &search.Options{LockWait: 2 * time.Second, Log: slog.New(slog.NewTextHandler(&log, nil)),
		Progress: func(p search.Progress) { waiting.Store(waiting.Load() || p.Waiting) }})
	s := store(t, dir, index)
	say(t, s, "s", "first word")
	wantHits(t, s, "word", 1)
	locker, err := sql.Open("sqlite", filepath.Join(cacheOf(dir), search.FileName))
	if err != nil {
		t.Fatal(err)
	}
	defer locker.Close()
	locker.SetMaxOpenConns(1)
	if _, err := locker.Exec("BEGIN EXCLUSIVE"); err != nil {
		t.Fatal(err)
	}
	say(t, s, "s", "second word")
	wantHits(t, s, "word", 2)
	if !waiting.Load() || !index.Temporary() || !strings.Contains(log.String(), "temporary") {
		t.Errorf("waited %v, temporary %v, log %q", waiting.Load(), index.Temporary(), log.String())
	}
	// Erasing does not wait for ever either: the file goes as a whole.
	if err := s.Delete(t.Context(), "s", ""); err != nil {
		t.Fatal(err)
	}
	prune(t, s)
	wantHits(t, s, "word", 0)
	if _, err := os.Stat(filepath.Join(cacheOf(dir), search.FileName)); err == nil {
		t.Error("the file that can't be changed is still there")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range s.Search(ctx, hansard.SearchQuery{Text: "word"}) {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("a search whose context has ended: %v", err)
		}
	}
}

// TestBackground: the index is brought up to date behind the appends.
func TestBackground(t *testing.T) {
	dir := t.TempDir()
	indexed := make(chan int64, 100)
	index := search.New(cacheOf(dir), &search.Options{Progress: func(p search.Progress) { indexed <- p.Events }})
	s := store(t, dir, index)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); index.Background(ctx, s) }()
	say(t, s, "s", "a word", "another")
	for n := int64(0); n < 2; {
		select {
		case got := <-indexed:
			n += got
		case <-time.After(30 * time.Second):
			t.Fatal("nothing is indexed")
		}
	}
	cancel()
	<-done
	wantHits(t, s, "word", 1)
}

// workerVariable has a process of TestProcesses append and search.
const workerVariable = "HANSARD_SEARCH_WORKER"

// work appends events and looks for each once it is acknowledged.
func work(dir, name string) error {
	s, err := openDir(dir)
	if err != nil {
		return err
	}
	defer s.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	for n := range workerEvents {
		word := fmt.Sprintf("w%sn%d", name, n)
		id := hansard.SessionID(fmt.Sprint("s", n%5))
		r, err := s.Append(ctx, id, hansard.Batch{Create: true, Events: []hansard.Event{hansard.Message("user", "common "+word)}})
		if err != nil {
			return err
		}
		found := 0
		for h, err := range s.Search(ctx, hansard.SearchQuery{Text: word}) {
			if err != nil {
				return err
			}
			if found++; h.Session != id || h.Seq != r.First {
				return fmt.Errorf("%s is found at %s#%d, it is at %s#%d", word, h.Session, h.Seq, id, r.First)
			}
		}
		if found != 1 {
			return fmt.Errorf("%s is found %d times", word, found)
		}
	}
	return nil
}

const workerEvents = 15

// indexOnly searches once, and says when a part of the store is indexed.
func indexOnly(dir string) error {
	index := search.New(cacheOf(dir), &search.Options{Progress: func(search.Progress) { fmt.Println("indexed") }})
	s, err := filestore.Open(dir, &filestore.Options{Search: index})
	if err != nil {
		return err
	}
	defer s.Close()
	for _, err := range s.Search(context.Background(), hansard.SearchQuery{Text: "nothing"}) {
		if err != nil {
			return err
		}
	}
	return nil
}

// TestKilledIndexer: an indexer that is killed in the middle leaves an index with which the
// next one goes on, or makes a new one.
func TestKilledIndexer(t *testing.T) {
	dir := t.TempDir()
	s := store(t, dir, search.New(cacheOf(dir), nil))
	rng := rand.New(rand.NewPCG(5, 6))
	const sessions, events = 3, 500
	for i := range sessions {
		var texts []string
		for n := range events {
			text := fmt.Sprintf("common s%dn%d", i, n)
			for range 1000 {
				text += " " + word(rng)
			}
			texts = append(texts, text)
		}
		say(t, s, hansard.SessionID(fmt.Sprint("s", i)), texts...)
	}
	killed := 0
	for range 2 {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), workerVariable+"=index:"+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		_, _ = bufio.NewReader(out).ReadString('\n') // it has begun with the next part
		if err := cmd.Process.Kill(); err == nil && cmd.Wait() != nil {
			killed++
		}
	}
	t.Logf("%d were killed", killed)
	for i := range sessions {
		wantHits(t, s, fmt.Sprintf("s%dn%d", i, rng.IntN(events)), 1)
	}
	wantHits(t, s, "common", sessions*events)
}

// TestProcesses: eight processes append and search, the index is removed now and then, and
// everything acknowledged is found by all.
func TestProcesses(t *testing.T) {
	if testing.Short() {
		t.Skip("eight processes")
	}
	dir := t.TempDir()
	s := store(t, dir, search.New(cacheOf(dir), nil))
	say(t, s, "s0", "the beginning")
	const n = 8
	ended := make(chan error, n)
	for i := range n {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), workerVariable+"="+fmt.Sprintf("%d:%s", i, dir))
		go func() {
			out, err := cmd.CombinedOutput()
			if err != nil {
				err = fmt.Errorf("process %d: %w: %s", i, err, out)
			}
			ended <- err
		}()
	}
	for left, looks := n, 0; left > 0; looks++ {
		select {
		case err := <-ended:
			if left--; err != nil {
				t.Error(err)
			}
		default:
			before := len(find(t, s, "common"))
			if looks%5 == 4 {
				_ = os.Remove(filepath.Join(cacheOf(dir), search.FileName))
			}
			if after := len(find(t, s, "common")); after < before {
				t.Errorf("%d events are found, %d were before", after, before)
			}
		}
	}
	wantHits(t, s, "common", n*workerEvents)
}

func word(rng *rand.Rand) string {
	w := make([]byte, 3+rng.IntN(8))
	for i := range w {
		w[i] = "etaoinshrdlucmfwypvbgkqjxz"[int(26*rng.Float64()*rng.Float64())]
	}
	return string(w)
}
