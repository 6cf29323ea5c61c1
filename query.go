package hansard

import (
	"context"
	"slices"
	"strings"
	"time"
)

// Wants reports whether a range selects an event of this kind.
func (r *Range) Wants(kind string) bool {
	if len(r.Kinds) == 0 {
		return true
	}
	for _, k := range r.Kinds {
		if k == kind {
			return true
		}
	}
	return false
}

// Wants reports whether a query selects a session, ignoring limit and cursor.
func (q *Query) Wants(i *Info) bool {
	if !strings.HasPrefix(string(i.ID), q.Prefix) || len(q.IDs) > 0 && !slices.Contains(q.IDs, i.ID) {
		return false
	}
	if !within(i.Updated, q.Since, q.Before) || !within(i.Created, q.CreatedSince, q.CreatedBefore) {
		return false
	}
	if q.Held && i.Turn == nil || q.Damaged && i.Damage == nil && i.Unreadable == "" {
		return false
	}
	if q.Parent != "" && (i.Parent == nil || i.Parent.ID != q.Parent) {
		return false
	}
	if q.Archived != ArchivedAny && i.Archived() != (q.Archived == ArchivedOnly) {
		return false
	}
	for k, v := range q.Labels {
		if got, ok := i.Labels[k]; !ok || got != v {
			return false
		}
	}
	if q.Text == "" {
		return true
	}
	text := strings.ToLower(q.Text)
	return strings.Contains(strings.ToLower(string(i.ID)), text) || strings.Contains(strings.ToLower(i.Title), text)
}

// within reports whether a time is at or after since and before before; a zero time means
// no bound.
func within(t, since, before time.Time) bool {
	return (since.IsZero() || !t.Before(since)) && (before.IsZero() || t.Before(before))
}

// Of returns the time of a session that this order sorts by.
func (o Order) Of(i *Info) time.Time {
	if o == OrderCreated {
		return i.Created
	}
	return i.Updated
}

// Archived reports whether a session is archived: whether it has the label [LabelArchived].
func (i Info) Archived() bool {
	_, ok := i.Labels[LabelArchived]
	return ok
}

// Counter is implemented by stores that can count sessions without describing them.
type Counter interface {
	// Count is how many sessions a query selects, whatever its Limit and Cursor say.
	Count(ctx context.Context, q Query) (int, error)
}

// Count counts the sessions that a query selects, whatever its Limit and Cursor say: with
// [Counter] if the store is one, else by listing them.
func Count(ctx context.Context, s Store, q Query) (n int, err error) {
	if c, ok := s.(Counter); ok {
		return c.Count(ctx, q)
	}
	q.Limit, q.Cursor = 0, ""
	for _, err := range s.List(ctx, q) {
		if err != nil {
			return 0, err
		}
		n++
	}
	return n, nil
}
