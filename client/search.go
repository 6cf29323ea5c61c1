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
	return func(yield func(hansard.Hit, error) bool) {
		_, err := terms.Check(&q)
		leave, err := s.enter(ctx, err)
		if err != nil {
			yield(hansard.Hit{}, err)
			return
		}
		defer leave()
		searching, cancel := s.until(ctx)
		defer cancel()
		given := false
		err = s.lines(searching, func() *request {
			if given {
				return nil // the rest of an answer that broke off may have changed
			}
			return &request{method: http.MethodGet, path: "/v1/search", query: searchQuery(q), lines: true}
		}, func(object []byte) (bool, error) {
			given = true
			var hit hansard.Hit
			if err := json.Unmarshal(object, &hit); err != nil {
				return false, fmt.Errorf("%s sends a hit that can't be read: %w", s.name, err)
			}
			if err := searching.Err(); err != nil {
				return false, err
			}
			return yield(hit, nil), nil
		})
		if err != nil {
			yield(hansard.Hit{}, s.ended(ctx, err))
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
