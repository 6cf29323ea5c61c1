package search_test

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"hansard"
	"hansard/memstore"
	"hansard/search"
	"hansard/storetest"
)

// TestCommonContract: words that are nearly everywhere are found as the contract says, whether
// sessions are asked one by one or all events are looked at.
func TestCommonContract(t *testing.T) {
	for _, parts := range []int{1000, 0} {
		t.Run(fmt.Sprint(parts), func(t *testing.T) {
			search.Rank(t, 0, 500, parts)
			storetest.RunSome(t, engine(), "search/")
		})
	}
}

// TestCommonWords: of very many matches the newest come first, in the order of their scores,
// and the others by time; in pages too, whatever else is asked for.
func TestCommonWords(t *testing.T) {
	const depth, sessions, events = 10, 3, 200
	for _, parts := range []int{1000, 1} {
		t.Run(fmt.Sprint(parts), func(t *testing.T) {
			search.Rank(t, 50, depth, parts)
			search.SmallShards(t, 6000)
			seed := rand.Uint64()
			t.Log("seed", seed)
			rng := rand.New(rand.NewPCG(seed, 1))
			index, s := search.New(t.TempDir(), nil), memstore.New()
			defer index.Close()
			for range events {
				role := []string{"user", "assistant"}[rng.IntN(2)]
				e := hansard.Message(role, "the "+strings.Repeat("deploy ", 1+rng.IntN(5))+strings.Repeat("and so on ", rng.IntN(9)))
				if _, err := s.Append(t.Context(), hansard.SessionID(fmt.Sprint("s", rng.IntN(sessions))), hansard.Batch{Create: true, Events: []hansard.Event{e}}); err != nil {
					t.Fatal(err)
				}
				if rng.IntN(10) == 0 {
					find(t, over{index, s}, "deploy") // so that sessions are in several shards
				}
			}
			for _, q := range []hansard.SearchQuery{{Text: "deploy"}, {Text: `"the deploy"`, Role: "user"}, {Text: "the dep*", Prefix: "s"}, {Text: "deploy", Role: "nobody"}} {
				checkCommon(t, over{index, s}, s, q, depth)
			}
		})
	}
}

// checkCommon compares an answer with the model's, which has all in the order of their scores.
func checkCommon(t *testing.T, s, model hansard.Searcher, q hansard.SearchQuery, depth int) {
	t.Helper()
	got, want := answers(t, s, q), answers(t, model, q)
	newer := func(a, b hansard.Hit) int { return cmp.Or(b.Time.Compare(a.Time), cmp.Compare(b.Seq, a.Seq)) }
	slices.SortStableFunc(want, newer)
	if len(got) != len(want) {
		t.Fatalf("%q: %d hits, want %d", q.Text, len(got), len(want))
	}
	for i := range got {
		switch {
		case i < depth && got[i].Time.Before(want[min(depth, len(want))-1].Time):
			t.Errorf("%q: hit %d is not among the newest %d", q.Text, i, depth)
		case i > 0 && i < depth && got[i].Score > got[i-1].Score:
			t.Errorf("%q: hit %d is better than the one before", q.Text, i)
		case i > depth && got[i].Time.After(got[i-1].Time):
			t.Errorf("%q: hit %d is newer than the one before", q.Text, i)
		}
	}
	// In pages it is the same.
	var pages []hansard.Hit
	for q.Limit = 7; ; q.Offset += q.Limit {
		page := answers(t, s, q)
		if pages = append(pages, page...); len(page) < q.Limit {
			break
		}
	}
	same := func(a, b hansard.Hit) bool { return a.Session == b.Session && a.Seq == b.Seq }
	if !slices.EqualFunc(pages, got, same) {
		t.Errorf("%q: the pages are not the answer", q.Text)
	}
}

func answers(t *testing.T, s hansard.Searcher, q hansard.SearchQuery) (hits []hansard.Hit) {
	t.Helper()
	for h, err := range s.Search(t.Context(), q) {
		if err != nil {
			t.Fatal(err)
		}
		hits = append(hits, h)
	}
	return hits
}

// TestCommonReads: how much is read for the first page does not depend on how many match, and
// FTS5 gives the newest without looking at the others.
func TestCommonReads(t *testing.T) {
	search.Rank(t, 100, 50, 1000)
	index, s := search.New(t.TempDir(), nil), &countingReads{Store: memstore.New()}
	defer index.Close()
	var read []int
	for range 4 {
		for i := range 10 {
			say(t, s, hansard.SessionID(fmt.Sprint("s", i)), slices.Repeat([]string{"common words"}, 100)...)
		}
		find(t, over{index, s}, "nothing")
		s.events = 0
		if hits := answers(t, over{index, s}, hansard.SearchQuery{Text: "common", Limit: 10}); len(hits) != 10 {
			t.Fatalf("%d hits", len(hits))
		}
		read = append(read, s.events)
	}
	if read[0] != 50 || slices.Max(read) != 50 {
		t.Errorf("%v events are read for a page, want 50", read)
	}
	plan, err := index.NewestPlan(t.Context())
	if err != nil || slices.ContainsFunc(plan, func(line string) bool { return strings.Contains(line, "TEMP B-TREE") }) {
		t.Errorf("the newest rows are sorted: %q, %v", plan, err)
	}
}

// countingReads is a store that counts the events that are read.
type countingReads struct {
	hansard.Store
	events int
}

func (s *countingReads) Read(ctx context.Context, id hansard.SessionID, r hansard.Range) iter.Seq2[hansard.Event, error] {
	return func(yield func(hansard.Event, error) bool) {
		for e, err := range s.Store.Read(ctx, id, r) {
			s.events++
			if !yield(e, err) {
				return
			}
		}
	}
}
