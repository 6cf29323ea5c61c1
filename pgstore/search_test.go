package pgstore_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"hansard"
	"hansard/internal/pgtest"
	"hansard/pgstore"
)

func hits(t testing.TB, s hansard.Searcher, q hansard.SearchQuery) (out []hansard.Hit) {
	t.Helper()
	for h, err := range s.Search(t.Context(), q) {
		if err != nil {
			t.Fatalf("%+v: %v", q, err)
		}
		out = append(out, h)
	}
	return out
}

// TestSearchReadOnly: a store that may not write answers from the existing index, and reads the
// rest.
func TestSearchReadOnly(t *testing.T) {
	url := pgtest.Shared(t).Schema(t)
	s := open(t, url)
	defer s.Close()
	add := func(text string) {
		t.Helper()
		if _, err := s.Append(t.Context(), "s", hansard.Batch{Create: true, Events: []hansard.Event{hansard.Message("user", text)}}); err != nil {
			t.Fatal(err)
		}
	}
	add("first word")
	if n := len(hits(t, s, hansard.SearchQuery{Text: "word"})); n != 1 {
		t.Fatalf("%d hits", n)
	}
	add("second word")
	reader, err := pgstore.Open(t.Context(), url, &pgstore.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	for range 2 {
		if got := hits(t, reader, hansard.SearchQuery{Text: "word"}); len(got) != 2 || got[0].Seq != 2 {
			t.Errorf("a reader finds %+v", got)
		}
	}
	conn := connect(t, url)
	var last int
	if err := conn.QueryRow(t.Context(), "SELECT last FROM hansard_searched WHERE id = 's'").Scan(&last); err != nil || last != 1 {
		t.Errorf("words are there up to %d (%v): a reader has written", last, err)
	}
}

func connect(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

// TestWordsOfDeleted: indexing words while the session is deleted leaves none of them behind.
func TestWordsOfDeleted(t *testing.T) {
	url := pgtest.Shared(t).Schema(t)
	a, b := open(t, url), open(t, url)
	defer a.Close()
	defer b.Close()
	for i := range 40 {
		id := hansard.SessionID(fmt.Sprint("s", i))
		var batch hansard.Batch
		for range 50 {
			batch.Events = append(batch.Events, hansard.Message("user", "a secret word"))
		}
		batch.Create = true
		if _, err := a.Append(t.Context(), id, batch); err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			for _, err := range b.Search(t.Context(), hansard.SearchQuery{Text: "secret"}) {
				if err != nil {
					t.Error(err)
				}
			}
		}()
		if err := a.Delete(t.Context(), id, ""); err != nil {
			t.Fatal(err)
		}
		<-done
	}
	if got := hits(t, a, hansard.SearchQuery{Text: "secret"}); len(got) > 0 {
		t.Errorf("%d deleted events are found", len(got))
	}
	conn := connect(t, url)
	var words, sessions int
	if err := conn.QueryRow(t.Context(), "SELECT (SELECT count(*) FROM hansard_words), (SELECT count(*) FROM hansard_searched)").Scan(&words, &sessions); err != nil || words != 0 {
		t.Errorf("%d events and %d sessions have words left (%v)", words, sessions, err)
	}
}

// TestWordsOfLongTexts: no text is too long for the index, whatever it consists of.
func TestWordsOfLongTexts(t *testing.T) {
	s := open(t, pgtest.Shared(t).Schema(t))
	defer s.Close()
	var han, latin strings.Builder
	for i := range 200_000 {
		han.WriteRune(rune(0x4e00 + (i*7919)%20_000))
		fmt.Fprintf(&latin, "%x ", i)
	}
	for i, text := range []string{han.String(), latin.String(), strings.Repeat("x", 1<<20), strings.Repeat("a'b\\c ", 50_000)} {
		if _, err := s.Append(t.Context(), "s", hansard.Batch{Create: true, Events: []hansard.Event{hansard.Message("user", fmt.Sprintf("begin%d %s end%d", i, text, i))}}); err != nil {
			t.Fatal(err)
		}
		for _, word := range []string{"begin", "end"} {
			if got := hits(t, s, hansard.SearchQuery{Text: fmt.Sprint(word, i)}); len(got) != 1 || got[0].Seq != hansard.Seq(i+1) {
				t.Errorf("%s%d: %d hits", word, i, len(got))
			}
		}
	}
}

// TestSearchDepth: of very many matches the newest are ranked, and all are returned, once.
func TestSearchDepth(t *testing.T) {
	s := open(t, pgtest.Shared(t).Schema(t))
	defer s.Close()
	const n = 6300
	for i := 0; i < n; {
		b := hansard.Batch{Create: true}
		for range min(900, n-i) {
			b.Events = append(b.Events, hansard.Message("user", fmt.Sprint("word ", strings.Repeat("word ", i%3), i)))
			i++
		}
		if _, err := s.Append(t.Context(), "s", b); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[hansard.Seq]bool{}
	for i, h := range hits(t, s, hansard.SearchQuery{Text: "word"}) {
		if seen[h.Seq] {
			t.Fatalf("%d is given twice", h.Seq)
		}
		seen[h.Seq] = true
		if i == 0 && h.Seq < n-500 {
			t.Errorf("the first hit is %d, not of the newest", h.Seq)
		}
	}
	if len(seen) != n {
		t.Errorf("%d hits, want %d", len(seen), n)
	}
	if got := hits(t, s, hansard.SearchQuery{Text: "word", Offset: n - 3}); len(got) != 3 {
		t.Errorf("%d hits behind the others", len(got))
	}
}
