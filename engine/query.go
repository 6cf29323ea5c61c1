package engine

import "hansard"

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
	return nil
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
