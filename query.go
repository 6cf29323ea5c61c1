package hansard

import "time"

// Before is when the sessions behind a query's cursor were updated at the latest:
// where an engine that keeps them in order begins to look. It is false when the
// query has no cursor.
func (q *Query) Before() (latest time.Time, ok bool) {
	if q.Cursor == "" {
		return time.Time{}, false
	}
	updated, _, err := parseCursor(q.Cursor)
	return time.Unix(0, updated).UTC(), err == nil
}
