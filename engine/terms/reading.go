package terms

import (
	"context"
	"errors"
	"iter"
	"slices"

	"hansard"
)

// ByReading searches a store without an index: it reads all events of the sessions that a
// query includes.
func ByReading(ctx context.Context, s hansard.Store, q hansard.SearchQuery) iter.Seq2[hansard.Hit, error] {
	return func(yield func(hansard.Hit, error) bool) {
		hits, err := byReading(ctx, s, &q)
		for _, h := range hits {
			if err = ctx.Err(); err != nil {
				break
			}
			if !yield(h, nil) {
				return
			}
		}
		if err != nil {
			yield(hansard.Hit{}, err)
		}
	}
}

func byReading(ctx context.Context, s hansard.Store, q *hansard.SearchQuery) (hits []hansard.Hit, err error) {
	query, err := Check(q)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	look := func(info *hansard.Info) error {
		if info.Unreadable != "" || !WantsSession(q, info) {
			return nil
		}
		for e, err := range s.Read(ctx, info.ID, hansard.Range{}) {
			if err != nil {
				return err
			}
			d := Of(e)
			if !WantsEvent(q, &e, &d) {
				continue
			}
			if found, ok := query.Find(d.Text); ok {
				hits = append(hits, found.Hit(info, &e, &d))
				hits = Best(hits, q, 10_000)
			}
		}
		return nil
	}
	if q.In != "" {
		info, err := s.Stat(ctx, q.In)
		if err == nil {
			err = look(&info)
		}
		if err != nil && !errors.Is(err, hansard.ErrDamaged) {
			return nil, err
		}
		return Best(hits, q, 0), nil
	}
	for info, err := range s.List(ctx, hansard.Query{Prefix: q.Prefix, Labels: q.Labels, Since: q.Since}) {
		if err == nil {
			err = look(&info)
		}
		if err != nil && !OneSession(err) {
			return nil, err
		}
	}
	return Best(hits, q, 0), nil
}

// OneSession reports whether an error is about one session only, which is then left out of
// the answer.
func OneSession(err error) bool {
	return errors.Is(err, hansard.ErrNotFound) || errors.Is(err, hansard.ErrDeleted) || errors.Is(err, hansard.ErrDamaged) || errors.Is(err, hansard.ErrUnreadable)
}

// Best sorts hits and keeps those that a query wants, once there are more than slack
// others: so the query bounds the memory. With slack 0 it returns the answer.
func Best(hits []hansard.Hit, q *hansard.SearchQuery, slack int) []hansard.Hit {
	if slack > 0 && (q.Limit == 0 || len(hits) <= slack || len(hits)-slack <= q.Offset+q.Limit) {
		return hits
	}
	slices.SortFunc(hits, func(a, b hansard.Hit) int { return Better(&a, &b) })
	if q.Limit > 0 {
		hits = hits[:min(len(hits), q.Offset+q.Limit)]
	}
	if slack == 0 {
		hits = hits[min(q.Offset, len(hits)):]
	}
	return hits
}
