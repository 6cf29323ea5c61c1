package pgstore_test

import (
	"fmt"
	"testing"

	"hansard"
	"hansard/internal/pgtest"
)

// countWords counts the index rows of words for the first event of the session.
const countWords = "SELECT count(*) FROM hansard_words WHERE id = 's' AND seq = 1"

// TestWordsOfRedacted: the indexed words of a redacted event are removed with its content, even
// words that are being added at that moment.
func TestWordsOfRedacted(t *testing.T) {
	for _, filled := range []bool{false, true} {
		t.Run(fmt.Sprintf("filled %v", filled), func(t *testing.T) {
			server := pgtest.Shared(t)
			url := server.Schema(t)
			s := open(t, url)
			defer s.Close()
			if _, err := s.Append(t.Context(), "s", hansard.Batch{Create: true, Events: []hansard.Event{hansard.Message("user", "a secret word"), hansard.Message("user", "what stays")}}); err != nil {
				t.Fatal(err)
			}
			if filled {
				if n := len(hits(t, s, hansard.SearchQuery{Text: "secret"})); n != 1 {
					t.Fatalf("%d hits", n)
				}
			}
			// A filler has locked the session's row and read the events.
			filler := connect(t, url)
			exec := func(statement string) {
				t.Helper()
				if _, err := filler.Exec(t.Context(), statement); err != nil {
					t.Fatal(err)
				}
			}
			exec("INSERT INTO hansard_searched VALUES ('s', 0) ON CONFLICT DO NOTHING")
			exec("BEGIN")
			exec("SELECT last FROM hansard_searched WHERE id = 's' FOR UPDATE")
			done := make(chan error, 1)
			go func() {
				_, err := s.Redact(t.Context(), "s", hansard.Redaction{Seqs: []hansard.Seq{1}})
				done <- err
			}()
			server.Until(t, "SELECT count(*) = 1 FROM pg_stat_activity WHERE query LIKE '%hansard_searched%' AND wait_event_type = 'Lock'")
			exec("INSERT INTO hansard_words VALUES ('s', 1, now(), 'message', 'user', 'secret') ON CONFLICT DO NOTHING; UPDATE hansard_searched SET last = 2")
			exec("COMMIT")
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			var n int
			if err := filler.QueryRow(t.Context(), countWords).Scan(&n); err != nil || n != 0 {
				t.Errorf("%d redacted events have words (%v)", n, err)
			}
			if got := hits(t, s, hansard.SearchQuery{Text: "secret"}); len(got) > 0 {
				t.Errorf("%d redacted events are found", len(got))
			}
		})
	}
}

// TestWordsBesideRedaction: indexing the words of a session does not begin while a redaction has
// not committed: it would read them from the old rows.
func TestWordsBesideRedaction(t *testing.T) {
	server := pgtest.Shared(t)
	url := server.Schema(t)
	s := open(t, url)
	defer s.Close()
	if _, err := s.Append(t.Context(), "s", hansard.Batch{Create: true, Events: []hansard.Event{hansard.Message("user", "a secret word"), hansard.Message("user", "what stays")}}); err != nil {
		t.Fatal(err)
	}
	// The redaction is stopped before it commits.
	stopper := connect(t, url)
	if _, err := stopper.Exec(t.Context(), "BEGIN; LOCK TABLE hansard_words IN SHARE MODE"); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 2)
	go func() {
		_, err := s.Redact(t.Context(), "s", hansard.Redaction{Seqs: []hansard.Seq{1}})
		done <- err
	}()
	waiting := func(n int) {
		server.Until(t, fmt.Sprintf("SELECT count(*) = %d FROM pg_stat_activity WHERE query LIKE '%%hansard_%%' AND wait_event_type = 'Lock'", n))
	}
	waiting(1)
	searcher := open(t, url)
	defer searcher.Close()
	go func() {
		for _, err := range searcher.Search(t.Context(), hansard.SearchQuery{Text: "stays"}) {
			if err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	waiting(2)
	if _, err := stopper.Exec(t.Context(), "COMMIT"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	var n int
	if err := stopper.QueryRow(t.Context(), countWords).Scan(&n); err != nil || n != 0 {
		t.Errorf("%d redacted events have words (%v)", n, err)
	}
}

// TestWordsOfReused: words left over from a deleted session, because its process died before it
// had removed them, do not hide events of the next session with that id.
func TestWordsOfReused(t *testing.T) {
	url := pgtest.Shared(t).Schema(t)
	s := open(t, url)
	defer s.Close()
	if _, err := s.Append(t.Context(), "s", hansard.Batch{Create: true, Events: []hansard.Event{hansard.Message("user", "old word")}}); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(t.Context(), "s", ""); err != nil {
		t.Fatal(err)
	}
	conn := connect(t, url)
	if _, err := conn.Exec(t.Context(), "INSERT INTO hansard_searched VALUES ('s', 5); INSERT INTO hansard_words VALUES ('s', 1, now(), 'message', 'user', 'old word')"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Create(t.Context(), "s", hansard.Meta{Reuse: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Append(t.Context(), "s", hansard.Batch{Events: []hansard.Event{hansard.Message("user", "new word")}}); err != nil {
		t.Fatal(err)
	}
	if n := len(hits(t, s, hansard.SearchQuery{Text: "new"})); n != 1 {
		t.Errorf("the new session's event is found %d times", n)
	}
	if n := len(hits(t, s, hansard.SearchQuery{Text: "old"})); n != 0 {
		t.Errorf("the old session's event is found %d times", n)
	}
}
