package engine

import (
	"errors"
	"fmt"
	"reflect"

	"hansard"
)

// Newer is the order of List: by Updated, then by id, both descending.
func Newer(a, b *hansard.Info) bool { return NewerBy(hansard.OrderUpdated, a, b) }

// NewerBy reports whether a comes before b in a list of this order: by its time, then
// by id, both descending.
func NewerBy(o hansard.Order, a, b *hansard.Info) bool {
	if at, bt := o.Of(a), o.Of(b); !at.Equal(bt) {
		return at.After(bt)
	}
	return a.ID > b.ID
}

// CheckRange checks that a store may accept a range.
func CheckRange(r *hansard.Range) error {
	if r.Limit < 0 {
		return invalid("limit", "%d is negative; 0 is no limit", r.Limit)
	}
	if r.Last < 0 {
		return invalid("last", "%d is negative", r.Last)
	}
	if r.FromSummary && r.FromKind != "" && r.FromKind != hansard.KindSummary {
		return invalid("from_kind", "it is %q, and the range is to start at the summary", r.FromKind)
	}
	if alone := (hansard.Range{ID: r.ID}); r.ID != "" && !reflect.DeepEqual(*r, alone) {
		return invalid("id", "it selects one event; leave the other conditions out")
	}
	return checkEventID("id", r.ID)
}

// NoEvent is the error for a range with an event id that the session does not have.
func NoEvent(session hansard.SessionID, id string) error {
	return fmt.Errorf("%w in session %s: id %q", hansard.ErrNoEvent, session, id)
}

// Plain returns an equivalent range in canonical form: FromSummary becomes a FromKind, and
// Last with Reverse becomes the Limit it amounts to.
func Plain(r hansard.Range) hansard.Range {
	if r.FromSummary {
		r.FromKind, r.FromSummary = hansard.KindSummary, false
	}
	if r.Reverse && r.Last > 0 {
		if r.Limit == 0 || r.Last < r.Limit {
			r.Limit = r.Last
		}
		r.Last = 0
	}
	return r
}

// CheckQuery checks that a store may accept a query.
func CheckQuery(q *hansard.Query) error {
	if q.Limit < 0 {
		return invalid("limit", "%d is negative; 0 is no limit", q.Limit)
	}
	if q.Order != hansard.OrderUpdated && q.Order != hansard.OrderCreated {
		return invalid("order", "%d is no order", q.Order)
	}
	if q.Archived < hansard.ArchivedAny || q.Archived > hansard.ArchivedOnly {
		return invalid("archived", "%d is not one of: any, no, only", q.Archived)
	}
	if _, err := ParseCursor(q); err != nil {
		return err
	}
	if q.Prefix != "" {
		if err := hansard.CheckID(hansard.SessionID(q.Prefix)); err != nil {
			return renamed("prefix", err)
		}
	}
	if q.Parent != "" {
		if err := hansard.CheckID(q.Parent); err != nil {
			return renamed("parent", err)
		}
	}
	if len(q.IDs) > hansard.MaxQueryIDs {
		return tooLarge("ids", len(q.IDs), hansard.MaxQueryIDs, "ids")
	}
	for _, id := range q.IDs {
		if err := hansard.CheckID(id); err != nil {
			return renamed("ids", err)
		}
	}
	return nil
}

// renamed turns an error about an id into one about another field.
func renamed(field string, err error) error {
	var bad *hansard.InvalidError
	if errors.As(err, &bad) {
		bad.Field = field
	}
	return err
}
