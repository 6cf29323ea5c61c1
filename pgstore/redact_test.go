package pgstore_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"hansard"
	rules "hansard/engine"
	"hansard/internal/pgtest"
	"hansard/pgstore"
)

// inTables returns the tables that have a row with this word, in any column.
func inTables(t testing.TB, conn *pgx.Conn, word string) (found []string) {
	t.Helper()
	rows, err := conn.Query(t.Context(), `SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema`)
	if err != nil {
		t.Fatal(err)
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range tables {
		var n int
		// Bytes are written in hex there.
		sql := "SELECT count(*) FROM " + pgx.Identifier{table}.Sanitize() + " r WHERE r::text LIKE '%' || $1 || '%' OR r::text LIKE '%' || encode(convert_to($1, 'UTF8'), 'hex') || '%'"
		if err := conn.QueryRow(t.Context(), sql, word).Scan(&n); err != nil {
			t.Fatal(err)
		}
		if n > 0 {
			found = append(found, table)
		}
	}
	return found
}

// TestRedactLeavesNothing: redacted content is in no row of any table, and neither is anything it
// could be compared with, such as a hash.
func TestRedactLeavesNothing(t *testing.T) {
	url := pgtest.Shared(t).Schema(t)
	s := open(t, url)
	defer s.Close()
	if _, err := s.Create(t.Context(), "s", hansard.Meta{}); err != nil {
		t.Fatal(err)
	}
	a, err := s.Attach(t.Context(), "s", strings.NewReader("hidden bytes"))
	if err != nil {
		t.Fatal(err)
	}
	event := hansard.Event{ID: "e", Data: []byte(`"hidden text"`), Attachments: []hansard.Attachment{{Digest: a.Digest, Size: a.Size, Name: "hidden.png"}}}
	stays := hansard.Event{Kind: "message", Data: []byte(`"stays"`)}
	if _, err := s.Append(t.Context(), "s", hansard.Batch{Key: "k", Events: []hansard.Event{stays, event}}); err != nil {
		t.Fatal(err)
	}
	event.Kind = "message"
	words := []string{"hidden", rules.EventHash(&event), rules.ContentHash([]hansard.Event{stays, event}), a.Digest}
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	for _, word := range words {
		if len(inTables(t, conn, word)) == 0 {
			t.Fatalf("the test does not find %q", word)
		}
	}
	if _, err := s.Redact(t.Context(), "s", hansard.Redaction{Seqs: []hansard.Seq{2}}); err != nil {
		t.Fatal(err)
	}
	for _, word := range words {
		if found := inTables(t, conn, word); len(found) > 0 {
			t.Errorf("%q is still in %q", word, found)
		}
	}
	verifies(t, s, "")
	// Changes made to the rows from outside are found.
	for what, sql := range map[string]string{
		"a redaction without a record": "UPDATE hansard_events SET data = 'null', redacted = true WHERE seq = 1",
		"a record without redaction":   "UPDATE hansard_events SET redacted = false WHERE seq = 2",
		"content that came back":       `UPDATE hansard_events SET data = '"hidden"' WHERE seq = 2`,
		"a record that is gone":        "UPDATE hansard_events SET redacts = NULL WHERE seq = 3",
	} {
		if _, err := conn.Exec(t.Context(), "CREATE TABLE kept AS SELECT * FROM hansard_events"); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
		verifies(t, s, what)
		if _, err := conn.Exec(t.Context(), "DELETE FROM hansard_events; INSERT INTO hansard_events SELECT * FROM kept; DROP TABLE kept"); err != nil {
			t.Fatal(err)
		}
	}
	verifies(t, s, "")
}

// verifies expects this damage of a session, or none.
func verifies(t testing.TB, s *pgstore.Store, damage string) {
	t.Helper()
	var damaged []string
	for f, err := range s.Verify(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		if f.Level == hansard.LevelDamage {
			damaged = append(damaged, fmt.Sprint(f.Message))
		}
	}
	if (len(damaged) > 0) != (damage != "") {
		t.Errorf("%s: verify says %q", damage, damaged)
	}
}

// TestVerifyBesideRedact: a session that is redacted while it is verified is sound.
func TestVerifyBesideRedact(t *testing.T) {
	s := open(t, pgtest.Shared(t).Schema(t))
	defer s.Close()
	const events = 3000 // more than a page
	b := hansard.Batch{Create: true}
	for i := range events {
		b.Events = append(b.Events, hansard.Event{Data: fmt.Appendf(nil, `"event %d"`, i)})
	}
	if _, err := s.Append(t.Context(), "s", b); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		for seq := hansard.Seq(events); seq > events-40; seq-- {
			if _, err := s.Redact(t.Context(), "s", hansard.Redaction{Seqs: []hansard.Seq{seq}}); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for over := false; !over; {
		select {
		case err := <-done:
			if over = true; err != nil {
				t.Fatal(err)
			}
		default:
		}
		verifies(t, s, "")
	}
}
