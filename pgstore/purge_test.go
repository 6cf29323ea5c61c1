package pgstore_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"hansard"
	"hansard/internal/pgtest"
	"hansard/pgstore"
)

// purgedEvents is more than are removed in one step.
const purgedEvents = 4500

// fill stores a session with something in every table.
func fill(t testing.TB, s *pgstore.Store, id hansard.SessionID) {
	t.Helper()
	if _, err := s.Create(t.Context(), id, hansard.Meta{Title: "secret", Labels: map[string]string{"secret": "x"}, State: []byte(`{"secret":1}`)}); err != nil {
		t.Fatal(err)
	}
	for n := 0; n < purgedEvents; {
		b := hansard.Batch{Key: fmt.Sprint("secret ", n)}
		for range min(1000, purgedEvents-n) {
			b.Events = append(b.Events, hansard.Event{ID: fmt.Sprint("secret id ", n), Data: []byte(`"secret"`)})
			n++
		}
		if _, err := s.Append(t.Context(), id, b); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Acquire(t.Context(), id, hansard.Claim{Label: "secret"}); err != nil {
		t.Fatal(err)
	}
	for _, err := range s.Search(t.Context(), hansard.SearchQuery{Text: "secret", In: id, Limit: 1}) {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// rowsOf counts the rows of a session, by table. The tables are found by asking the database
// which have a column id, so that a new one is not forgotten.
func rowsOf(t testing.TB, conn *pgx.Conn, id hansard.SessionID) map[string]int {
	t.Helper()
	rows, err := conn.Query(t.Context(), `SELECT table_name FROM information_schema.columns WHERE table_schema = current_schema AND column_name = 'id' ORDER BY 1`)
	if err != nil {
		t.Fatal(err)
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(tables, "hansard_events") || !slices.Contains(tables, "hansard_sessions") || !slices.Contains(tables, "hansard_listing") {
		t.Fatalf("the tables with ids are %q", tables)
	}
	counts := map[string]int{}
	for _, table := range tables {
		var n int
		if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM "+pgx.Identifier{table}.Sanitize()+" WHERE id = $1", string(id)).Scan(&n); err != nil {
			t.Fatal(err)
		}
		if n > 0 {
			counts[table] = n
		}
	}
	return counts
}

// wantPurged: only the tombstone is left of a deleted session, and none of its content.
func wantPurged(t testing.TB, url string, s *pgstore.Store, id hansard.SessionID) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if left := rowsOf(t, conn, id); len(left) != 1 || left["hansard_heads"] != 1 {
		t.Errorf("the tables have %v of the deleted session", left)
	}
	var clean bool
	if err := conn.QueryRow(t.Context(), "SELECT deleted AND NOT purging AND turn = '' AND current = '' AND h::text NOT LIKE '%secret%' FROM hansard_heads h WHERE id = $1", string(id)).Scan(&clean); err != nil || !clean {
		t.Errorf("the tombstone is clean: %v, %v", clean, err)
	}
	if _, err := s.Stat(t.Context(), id); !errors.Is(err, hansard.ErrDeleted) {
		t.Errorf("stat: %v", err)
	}
}

// TestPurged: when Delete returns, no table has any content of the session.
func TestPurged(t *testing.T) {
	url := pgtest.Shared(t).Schema(t)
	s := open(t, url)
	defer s.Close()
	fill(t, s, "s0")
	if err := s.Delete(t.Context(), "s0", ""); err != nil {
		t.Fatal(err)
	}
	wantPurged(t, url, s, "s0")
	if done, err := s.Prune(t.Context(), false); err != nil || done.Erased != nil {
		t.Errorf("prune: %+v, %v", done, err)
	}
	if _, err := s.Prune(t.Context(), true); !errors.Is(err, hansard.ErrUnsupported) || hansard.Hint(err) == "" {
		t.Errorf("scrub: %v", err)
	}
}

// TestPurgedByOthers: if a process is killed while it removes a session's content, the next
// process to open the store, or Prune, removes the rest.
func TestPurgedByOthers(t *testing.T) {
	for what, finish := range map[string]func(t *testing.T, url string, s *pgstore.Store){
		"the next to open the store": func(t *testing.T, url string, _ *pgstore.Store) {
			next := open(t, url)
			t.Cleanup(func() { next.Close() })
		},
		"prune": func(t *testing.T, _ string, s *pgstore.Store) {
			if done, err := s.Prune(t.Context(), false); err != nil || len(done.Erased) != 1 || done.Erased[0].Session != "s0" {
				t.Errorf("prune: %+v, %v", done, err)
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			server := pgtest.Shared(t)
			url := server.Schema(t)
			s := open(t, url)
			defer s.Close()
			fill(t, s, "s0")
			// Another client has a row in the middle locked: the removal stops there.
			conn, err := pgx.Connect(t.Context(), url)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close(t.Context())
			tx, err := conn.Begin(t.Context())
			if err == nil {
				_, err = tx.Exec(t.Context(), "SELECT FROM hansard_events WHERE id = 's0' AND seq = 2500 FOR UPDATE")
			}
			if err != nil {
				t.Fatal(err)
			}
			w := start(t, 1, work{URL: url, Delete: true})
			events := "SELECT count(*) FROM " + schemaOf(url) + ".hansard_events WHERE id = 's0'"
			server.Until(t, "SELECT ("+events+") BETWEEN 1 AND "+fmt.Sprint(purgedEvents-1000))
			if err := w.commands[0].Process.Kill(); err != nil {
				t.Fatal(err)
			}
			w.running.Wait()
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			server.Until(t, "SELECT deleted AND purging FROM "+schemaOf(url)+".hansard_heads WHERE id = 's0'")
			// A claim that began to wait at the same moment.
			server.Exec(t, "INSERT INTO "+schemaOf(url)+".hansard_waiting (id, ticket, since, seen) VALUES ('s0', 'late', now(), now())")
			finish(t, url, s)
			server.Until(t, "SELECT NOT purging FROM "+schemaOf(url)+".hansard_heads WHERE id = 's0'")
			wantPurged(t, url, s, "s0")
		})
	}
}

// TestPruneAttachments: an attachment that no event names is removed a day after it was stored,
// and nothing else is.
func TestPruneAttachments(t *testing.T) {
	server := pgtest.Shared(t)
	url := server.Schema(t)
	s := open(t, url)
	defer s.Close()
	if _, err := s.Create(t.Context(), "s", hansard.Meta{}); err != nil {
		t.Fatal(err)
	}
	attach := func(content string) hansard.Attachment {
		t.Helper()
		a, err := s.Attach(t.Context(), "s", strings.NewReader(content))
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	named, unnamed := attach("named"), attach("unnamed")
	if _, err := s.Append(t.Context(), "s", hansard.Batch{Events: []hansard.Event{{Data: []byte("1"), Attachments: []hansard.Attachment{named}}}}); err != nil {
		t.Fatal(err)
	}
	server.Exec(t, "SET search_path = "+schemaOf(url)+"; UPDATE hansard_attachments SET made = made - interval '25 hours'")
	fresh := attach("fresh")
	done, err := s.Prune(t.Context(), false)
	if err != nil || !slices.Equal(done.Attachments, []string{"s/" + unnamed.Digest}) {
		t.Errorf("pruned %+v, %v", done, err)
	}
	var left []string
	for a, err := range s.Attachments(t.Context(), "s") {
		if err != nil {
			t.Fatal(err)
		}
		left = append(left, a.Digest)
	}
	want := []string{named.Digest, fresh.Digest}
	slices.Sort(want)
	if !slices.Equal(left, want) {
		t.Errorf("left are %v, want %v", left, want)
	}
	if done, err := s.Prune(t.Context(), false); err != nil || len(done.Attachments) != 0 {
		t.Errorf("pruned again %+v, %v", done, err)
	}
}
