package engine

import (
	"fmt"
	"reflect"

	"hansard"
)

// Newer is the order of List: by Updated, then by id, both descending.
func Newer(a, b *hansard.Info) bool {
	if !a.Updated.Equal(b.Updated) {
		return a.Updated.After(b.Updated)
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
	if alone := (hansard.Range{ID: r.ID}); r.ID != "" && !reflect.DeepEqual(*r, alone) {
		return invalid("id", "it selects one event; leave the other conditions out")
	}
	return checkEventID("id", r.ID)
}

// NoEvent is the answer to a range with an event's id that the session does not have.
func NoEvent(session hansard.SessionID, id string) error {
	return fmt.Errorf("%w in session %s: id %q", hansard.ErrNoEvent, session, id)
}

// CheckQuery checks that a store may accept a query.
func CheckQuery(q *hansard.Query) error {
	if q.Limit < 0 {
		return invalid("limit", "%d is negative; 0 is no limit", q.Limit)
	}
	if _, ok := q.Before(); q.Cursor != "" && !ok {
		return invalid("cursor", "%q was not made by this store", q.Cursor)
	}
	return nil
}
