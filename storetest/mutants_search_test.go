package storetest

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"sync"

	"hansard"
)

// searchMutants break what Search gives.
func searchMutants() []mutant {
	type ctx = context.Context
	type query = hansard.SearchQuery
	searching := func(name string, search func(c ctx, s hansard.Searcher, q query) ([]hansard.Hit, error), caught ...string) mutant {
		return mutant{name: name, caught: caught, plant: inner(func(b *broken, s hansard.Store) {
			b.search = func(c ctx, q query) iter.Seq2[hansard.Hit, error] {
				return func(yield func(hansard.Hit, error) bool) { hitsOf(search(c, s.(hansard.Searcher), q))(yield) }
			}
		})}
	}
	asking := func(name string, change func(q *query), caught ...string) mutant {
		return searching(name, func(c ctx, s hansard.Searcher, q query) ([]hansard.Hit, error) {
			change(&q)
			return searchAll(c, s, q)
		}, caught...)
	}
	giving := func(name string, change func(hits []hansard.Hit) []hansard.Hit, caught ...string) mutant {
		return searching(name, func(c ctx, s hansard.Searcher, q query) ([]hansard.Hit, error) {
			hits, err := searchAll(c, s, q)
			return change(hits), err
		}, caught...)
	}
	return []mutant{
		asking("a phrase is words in any order", func(q *query) { q.Text = strings.NewReplacer(`"`, " ", "_", " ").Replace(q.Text) }, "search/words", "search/invalid"),
		asking("a word is its beginning", func(q *query) {
			if fields := strings.Fields(q.Text); len(fields) == 1 && !strings.Contains(q.Text, `"`) {
				q.Text = fields[0] + "*"
			}
		}, "search/words"),
		asking("one of the words is enough", func(q *query) {
			if fields := strings.Fields(q.Text); len(fields) > 1 && !strings.Contains(q.Text, `"`) {
				q.Text = fields[0]
			}
		}, "search/words", "search/model"),
		giving("characters are found as words only", func(hits []hansard.Hit) []hansard.Hit {
			return slices.DeleteFunc(hits, func(h hansard.Hit) bool { return strings.Contains(h.Snippet, "東") })
		}, "search/words", "search/model"),
		giving("a long text is not searched", func(hits []hansard.Hit) []hansard.Hit {
			return slices.DeleteFunc(hits, func(h hansard.Hit) bool { return strings.Contains(h.Snippet, "startword") })
		}, "search/texts"),
		asking("the role is ignored", func(q *query) { q.Role = "" }, "search/filters"),
		asking("the kind is ignored", func(q *query) { q.Kind = "" }, "search/filters"),
		asking("since is ignored", func(q *query) { q.Since = q.Since.AddDate(-100, 0, 0) }, "search/filters"),
		asking("before is taken in", func(q *query) {
			if !q.Before.IsZero() {
				q.Before = q.Before.Add(1)
			}
		}, "search/filters"),
		asking("labels are ignored", func(q *query) { q.Labels = nil }, "search/filters"),
		asking("the prefix is ignored", func(q *query) { q.Prefix = "" }, "search/filters", "search/invalid"),
		asking("the session is ignored", func(q *query) { q.In = "" }, "search/filters", "search/invalid"),
		asking("the offset is ignored", func(q *query) {
			if q.Offset > 0 && q.Offset%7 == 0 {
				q.Offset--
			}
		}, "search/best first"),
		asking("the limit is one more", func(q *query) {
			if q.Limit > 0 {
				q.Limit++
			}
		}, "search/best first", "search/filters"),
		giving("oldest first", func(hits []hansard.Hit) []hansard.Hit { slices.Reverse(hits); return hits }, "search/best first", "search/model"),
		giving("newest first, whatever the score", func(hits []hansard.Hit) []hansard.Hit {
			slices.SortStableFunc(hits, func(a, b hansard.Hit) int { return b.Time.Compare(a.Time) })
			for i := range hits {
				hits[i].Score = 1
			}
			return hits
		}, "search/best first"),
		giving("marks count characters", func(hits []hansard.Hit) []hansard.Hit {
			for i := range hits {
				for j := range hits[i].Marks {
					m := &hits[i].Marks[j]
					m.Start, m.End = len([]rune(hits[i].Snippet[:m.Start])), len([]rune(hits[i].Snippet[:m.End]))
				}
			}
			return hits
		}, "search/hits", "search/model"),
		giving("a hit has no id", func(hits []hansard.Hit) []hansard.Hit {
			for i := range hits {
				hits[i].ID = ""
			}
			return hits
		}, "search/hits"),
		searching("a bad query finds nothing", func(c ctx, s hansard.Searcher, q query) ([]hansard.Hit, error) {
			hits, err := searchAll(c, s, q)
			if errors.Is(err, hansard.ErrInvalid) {
				err = nil
			}
			return hits, err
		}, "search/invalid"),
		searching("a session that is not there has no hits", func(c ctx, s hansard.Searcher, q query) ([]hansard.Hit, error) {
			hits, err := searchAll(c, s, q)
			if errors.Is(err, hansard.ErrNotFound) || errors.Is(err, hansard.ErrDeleted) {
				err = nil
			}
			return hits, err
		}, "search/invalid"),
		searching("the context is ignored", func(c ctx, s hansard.Searcher, q query) ([]hansard.Hit, error) {
			return searchAll(context.WithoutCancel(c), s, q)
		}, "search/contexts"),
		{name: "the index is behind", caught: []string{"search/complete", "search/reopened", "search/reused", "search/model"}, plant: inner(func(b *broken, s hansard.Store) {
			var mu sync.Mutex // guards before and found
			before := map[string][]hansard.Hit{}
			b.search = func(c ctx, q query) iter.Seq2[hansard.Hit, error] {
				hits, err := searchAll(c, s.(hansard.Searcher), q)
				mu.Lock()
				defer mu.Unlock()
				old := before[q.Text]
				before[q.Text] = hits
				if err != nil {
					old = nil
				}
				return hitsOf(old, err)
			}
		})},
		{name: "what was deleted is still in the index", caught: []string{"search/deleted", "search/redacted"}, plant: inner(func(b *broken, s hansard.Store) {
			var mu sync.Mutex // guards kept
			var kept []hansard.Hit
			b.search = func(c ctx, q query) iter.Seq2[hansard.Hit, error] {
				hits, err := searchAll(c, s.(hansard.Searcher), q)
				mu.Lock()
				defer mu.Unlock()
				if len(hits) == 0 {
					return hitsOf(kept, err)
				}
				kept = hits
				return hitsOf(hits, err)
			}
		})},
	}
}

func hitsOf(hits []hansard.Hit, err error) iter.Seq2[hansard.Hit, error] {
	return func(yield func(hansard.Hit, error) bool) {
		for _, h := range hits {
			if !yield(h, nil) {
				return
			}
		}
		if err != nil {
			yield(hansard.Hit{}, err)
		}
	}
}
