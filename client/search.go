package client

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"hansard"
	"hansard/engine/terms"
)

var _ hansard.Searcher = (*Store)(nil)

// Search implements [hansard.Searcher]: the server searches.
func (s *Store) Search(ctx context.Context, q hansard.SearchQuery) iter.Seq2[hansard.Hit, error] {
	_, err := terms.Check(&q)
	return answers(ctx, s, err, &request{method: http.MethodGet, path: "/v1/search", query: searchQuery(q), lines: true}, "a hit", func(h hansard.Hit) hansard.Hit { return h })
}

// answers yields the lines of one response, each an A on the wire that becomes a T. A
// response that broke off is not continued: the rest may have changed since.
func answers[A, T any](ctx context.Context, s *Store, checked error, q *request, what string, describe func(A) T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		leave, err := s.enter(ctx, checked)
		if err != nil {
			yield(none, err)
			return
		}
		defer leave()
		asking, cancel := s.until(ctx)
		defer cancel()
		given := false
		err = s.lines(asking, func() *request {
			if given {
				return nil
			}
			return q
		}, func(object []byte) (bool, error) {
			given = true
			var one A
			if err := json.Unmarshal(object, &one); err != nil {
				return false, fmt.Errorf("%s sends %s that can't be read: %w", s.name, what, err)
			}
			if err := asking.Err(); err != nil {
				return false, err
			}
			return yield(describe(one), nil), nil
		})
		if err != nil {
			yield(none, s.ended(ctx, err))
		}
	}
}

func searchQuery(q hansard.SearchQuery) url.Values {
	out := url.Values{"q": {q.Text}}
	for name, value := range map[string]string{"role": q.Role, "kind": q.Kind, "in": string(q.In), "prefix": q.Prefix} {
		if value != "" {
			out.Set(name, value)
		}
	}
	for name, t := range map[string]time.Time{"since": q.Since, "before": q.Before} {
		if !t.IsZero() {
			out.Set(name, t.Format(time.RFC3339Nano))
		}
	}
	for name, value := range q.Labels {
		out.Add("label", name+"="+value)
	}
	if q.Limit > 0 {
		out.Set("limit", strconv.Itoa(q.Limit))
	}
	if q.Offset > 0 {
		out.Set("offset", strconv.Itoa(q.Offset))
	}
	return out
}
