package memstore

import (
	"context"
	"iter"

	"hansard"
	"hansard/engine/terms"
)

var _ hansard.Searcher = (*Store)(nil)

// Search implements [hansard.Searcher], by looking at every event.
func (s *Store) Search(ctx context.Context, q hansard.SearchQuery) iter.Seq2[hansard.Hit, error] {
	return func(yield func(hansard.Hit, error) bool) {
		hits, err := s.search(ctx, q)
		if err != nil {
			yield(hansard.Hit{}, err)
			return
		}
		for _, h := range hits {
			if err := ctx.Err(); err != nil {
				yield(hansard.Hit{}, err)
				return
			}
			if !yield(h, nil) {
				return
			}
		}
	}
}

func (s *Store) search(ctx context.Context, q hansard.SearchQuery) ([]hansard.Hit, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, hansard.ErrClosed
	}
	query, err := terms.Check(&q)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var hits []hansard.Hit
	for id, ses := range s.sessions {
		info := ses.info(id)
		if ses.deleted || !terms.WantsSession(&q, &info) {
			continue
		}
		for i := range ses.events {
			e := &ses.events[i]
			d := terms.Of(*e)
			if !terms.WantsEvent(&q, e, &d) {
				continue
			}
			if found, ok := query.Find(d.Text); ok {
				hits = append(hits, found.Hit(&info, e, &d))
			}
		}
	}
	if q.In != "" {
		if _, err := s.findLocked(q.In); err != nil {
			return nil, err
		}
	}
	return terms.Best(hits, &q, 0), nil
}
