package catalog_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"hansard"
	"hansard/catalog"
	"hansard/filestore"
)

// benchSessions is how many sessions the benchmarks have: HANSARD_CATALOG_SESSIONS.
func benchSessions() int {
	if n, err := strconv.Atoi(os.Getenv("HANSARD_CATALOG_SESSIONS")); err == nil {
		return n
	}
	return 20_000
}

var made string // by large

// large is a store with many sessions, made once.
var large = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "hansard-catalog-")
	if err != nil {
		return "", err
	}
	made = dir
	s, err := filestore.Open(dir, nil)
	if err != nil {
		return "", err
	}
	defer s.Close()
	var work sync.WaitGroup
	next := make(chan int)
	failed := make(chan error, 1)
	for range 256 {
		work.Go(func() {
			for i := range next {
				_, err := s.Create(context.Background(), hansard.SessionID(fmt.Sprintf("team-%d:session-%06d", i%10, i)), hansard.Meta{
					Title: fmt.Sprintf("What the agent did about the house with number %d", i), Labels: map[string]string{"team": fmt.Sprint(i % 10), "n": fmt.Sprint(i)}})
				if err != nil {
					select {
					case failed <- err:
					default:
					}
				}
			}
		})
	}
	for i := range benchSessions() {
		next <- i
	}
	close(next)
	work.Wait()
	select {
	case err := <-failed:
		return "", err
	default:
	}
	// Closing does not wait long for the disk: this does.
	_, err = s.Prune(context.Background(), false)
	return dir, err
})

func TestMain(m *testing.M) {
	if os.Getenv("HANSARD_CATALOG_CHILD") != "" {
		os.Exit(child())
	}
	code := m.Run()
	if made != "" {
		_ = os.RemoveAll(made)
	}
	os.Exit(code)
}

// BenchmarkList compares lists of fifty sessions: by the catalog, warm and in a fresh
// process's store, by the scan without it, on a plain table of SQLite, and by reading every
// log. HANSARD_CATALOG_SESSIONS=100000 is what the README tells of.
func BenchmarkList(b *testing.B) {
	dir, err := large()
	if err != nil {
		b.Fatal(err)
	}
	list := func(b *testing.B, s *filestore.Store, q hansard.Query, want int) {
		b.Helper()
		n := 0
		for _, err := range s.List(b.Context(), q) {
			if err != nil {
				b.Fatal(err)
			}
			n++
		}
		if n != want {
			b.Fatalf("%d sessions, want %d", n, want)
		}
	}
	open := func(b *testing.B, with bool) *filestore.Store {
		b.Helper()
		o := &filestore.Options{ReadOnly: true}
		if with {
			o.Catalog = catalog.Open
		}
		s, err := filestore.Open(dir, o)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { s.Close() })
		return s
	}
	page := hansard.Query{Limit: 50}
	b.Run("catalog/cold", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			for _, f := range must(filepath.Glob(filepath.Join(dir, "cache", "catalog.*"))) {
				os.Remove(f)
			}
			b.StartTimer()
			s := open(b, true)
			list(b, s, page, 50)
			s.Close()
		}
	})
	warm := open(b, true)
	list(b, warm, page, 50)
	for name, q := range map[string]struct {
		q    hansard.Query
		want int
	}{
		"page": {page, 50}, "label": {hansard.Query{Limit: 50, Labels: map[string]string{"team": "7"}}, 50},
		"rare label": {hansard.Query{Limit: 50, Labels: map[string]string{"team": "7", "n": "77"}}, 1}, "text": {hansard.Query{Limit: 50, Text: "NUMBER 7"}, 50},
		"no text": {hansard.Query{Limit: 50, Text: "nowhere"}, 0}, "prefix": {hansard.Query{Limit: 50, Prefix: "team-3:session-0000"}, 10},
		"two labels, no text": {hansard.Query{Limit: 50, Labels: map[string]string{"team": "7", "n": "78"}, Text: "nowhere"}, 0},
	} {
		b.Run("catalog/warm/"+name, func(b *testing.B) {
			for b.Loop() {
				list(b, warm, q.q, q.want)
			}
		})
	}
	b.Run("catalog/warm/count", func(b *testing.B) {
		for b.Loop() {
			if n, err := warm.Count(b.Context(), hansard.Query{}); err != nil || n != benchSessions() {
				b.Fatal(n, err)
			}
		}
	})
	b.Run("catalog/fresh", func(b *testing.B) {
		for b.Loop() {
			s := open(b, true)
			list(b, s, page, 50)
			s.Close()
		}
	})
	b.Run("catalog/fresh, 100 changed", func(b *testing.B) {
		w, err := filestore.Open(dir, nil)
		if err != nil {
			b.Fatal(err)
		}
		defer w.Close()
		for b.Loop() {
			b.StopTimer()
			var work sync.WaitGroup
			for i := range 100 {
				work.Go(func() {
					_, err := w.Append(b.Context(), hansard.SessionID(fmt.Sprintf("team-%d:session-%06d", i%10, i)), hansard.Batch{Events: []hansard.Event{{Data: []byte(`"x"`)}}})
					if err != nil {
						b.Error(err)
					}
				})
			}
			work.Wait()
			b.StartTimer()
			s := open(b, true)
			list(b, s, page, 50)
			s.Close()
		}
	})
	b.Run("scan/fresh", func(b *testing.B) {
		for b.Loop() {
			s := open(b, false)
			list(b, s, page, 50)
			s.Close()
		}
	})
	b.Run("scan/warm", func(b *testing.B) {
		s := open(b, false)
		list(b, s, page, 50)
		for b.Loop() {
			list(b, s, page, 50)
		}
	})
	b.Run("plain table", func(b *testing.B) { plainTable(b) })
	b.Run("every file", func(b *testing.B) {
		for b.Loop() {
			for _, f := range must(filepath.Glob(filepath.Join(dir, "sessions", "*.jsonl"))) {
				if _, err := os.ReadFile(f); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
}

// plainTable asks a table of SQLite that somebody made for nothing but this.
func plainTable(b *testing.B) {
	db, err := sql.Open("sqlite", filepath.Join(b.TempDir(), "plain.db"))
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	exec := func(text string, args ...any) {
		if _, err := db.Exec(text, args...); err != nil {
			b.Fatal(err)
		}
	}
	exec("CREATE TABLE s (id TEXT PRIMARY KEY, updated INTEGER, title TEXT)")
	exec("CREATE INDEX u ON s (updated, id)")
	exec("BEGIN")
	for i := range benchSessions() {
		exec("INSERT INTO s VALUES (?, ?, ?)", fmt.Sprintf("session-%06d", i), time.Now().UnixMicro(), fmt.Sprintf("What the agent did about the house with number %d", i))
	}
	exec("COMMIT")
	for b.Loop() {
		rows, err := db.Query("SELECT id, updated, title FROM s ORDER BY updated DESC, id DESC LIMIT 50")
		if err != nil {
			b.Fatal(err)
		}
		for rows.Next() {
			var id, title string
			var at int64
			if err := rows.Scan(&id, &at, &title); err != nil {
				b.Fatal(err)
			}
		}
		rows.Close()
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
