package pgstore

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"hansard"
	"hansard/internal/pgtest"
)

// TestPieces: a text that contains another has all the pieces that the other is looked up by.
func TestPieces(t *testing.T) {
	title := `Über 'quotes' \ and 100% 日本語`
	have := " " + termsOf("Agent-7", title, map[string]string{"a": "it's", "archived": ""}) + " "
	runes := []rune(title)
	for from := range runes {
		for to := from + 1; to <= len(runes); to++ {
			for _, text := range []string{string(runes[from:to]), strings.ToUpper(string(runes[from:to]))} {
				q := hansard.Query{Text: text, Labels: map[string]string{"a": "it's"}, Archived: hansard.ArchivedOnly}
				for term := range strings.SplitSeq(termQuery(&q), " & ") {
					begin, isPrefix := strings.CutSuffix(term, "':*")
					if isPrefix && !strings.Contains(have, " "+begin) || !isPrefix && !strings.Contains(have, " "+term+" ") {
						t.Errorf("%q is looked for by %s, which the title does not have: %s", text, term, have)
					}
				}
			}
		}
	}
}

// TestTermsOfOthers: sessions whose terms are missing, or belong to an older title because an
// older program changed it, are still found, and get the right terms.
func TestTermsOfOthers(t *testing.T) {
	s, err := Open(t.Context(), pgtest.Shared(t).Schema(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	conn, err := s.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	grow(t, conn.Conn(), 10, 3000) // more than walkFirst
	oldest := "small-3000"
	for _, sql := range []string{
		"UPDATE hansard_sessions SET terms = NULL, said = NULL WHERE id LIKE 'small-%99'",
		"UPDATE hansard_sessions SET title = 'the needle' WHERE id = '" + oldest + "'",
	} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	find := func(q hansard.Query, want string) {
		t.Helper()
		var got []string
		for info, err := range s.List(t.Context(), q) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, string(info.ID))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%+v gives %q, want %q", q, got, want)
		}
	}
	check := func() {
		t.Helper()
		find(hansard.Query{Limit: 5, Text: "NEEDLE"}, oldest)
		find(hansard.Query{Limit: 5, Text: "dl"}, oldest)
		find(hansard.Query{Limit: 5, Text: "title of " + oldest}, "")
		find(hansard.Query{Limit: 5, Text: "title of small-2999"}, "small-2999")
		find(hansard.Query{Limit: 5, Labels: map[string]string{"self": "small-2899", "team": "red"}}, "small-2899")
		find(hansard.Query{Limit: 5, Order: hansard.OrderCreated, Text: "needle", Labels: map[string]string{"team": "red"}}, oldest)
		find(hansard.Query{Limit: 5, Text: "needle", Labels: map[string]string{"team": "blue"}}, "")
	}
	check()
	for deadline := time.Now().Add(20 * time.Second); ; {
		var left int
		if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM hansard_sessions WHERE terms IS NULL OR said IS DISTINCT FROM hashtextextended(title || labels, 0)").Scan(&left); err != nil {
			t.Fatal(err)
		}
		if left == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d sessions are still without terms", left)
		}
	}
	check()
}

// BenchmarkFind lists with two labels and a text, over HANSARD_SESSIONS sessions (100,000).
func BenchmarkFind(b *testing.B) {
	sessions := 100_000
	if n, err := strconv.Atoi(os.Getenv("HANSARD_SESSIONS")); err == nil {
		sessions = n
	}
	s, err := Open(b.Context(), pgtest.Shared(b).Schema(b), nil)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	conn, err := s.pool.Acquire(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	grow(b, conn.Conn(), 10, sessions)
	if _, err := conn.Exec(b.Context(), "VACUUM ANALYZE"); err != nil {
		b.Fatal(err)
	}
	conn.Release()
	both := map[string]string{"team": "red", "shard": fmt.Sprint(len(fmt.Sprint("small-", sessions-1)))}
	for name, q := range map[string]hansard.Query{
		"nothing matches":       {Limit: 50, Labels: both, Text: "nowhere to be found"},
		"one matches":           {Limit: 50, Labels: both, Text: fmt.Sprintf("small-%d", sessions-7)},
		"two letters, nothing":  {Limit: 50, Labels: both, Text: "qz"},
		"labels without a pair": {Limit: 50, Labels: map[string]string{"team": "red", "shard": "99"}},
		"all match":             {Limit: 50, Labels: both, Text: "title"},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				for _, err := range s.List(b.Context(), q) {
					if err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
