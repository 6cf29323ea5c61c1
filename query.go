package hansard

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Before is the latest time that sessions past a query's cursor have, in its order:
// where an engine that keeps them in order starts looking. ok is false if the query
// has no cursor, or one that is not of its order.
func (q *Query) Before() (latest time.Time, ok bool) {
	if q.Cursor == "" {
		return time.Time{}, false
	}
	at, _, err := q.Order.parseCursor(q.Cursor)
	return time.Unix(0, at).UTC(), err == nil
}

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

// Wants reports whether a query selects a session, ignoring the limit.
func (q *Query) Wants(i *Info) (bool, error) {
	if q.Cursor != "" {
		at, id, err := q.Order.parseCursor(q.Cursor)
		if err != nil {
			return false, err
		}
		mine := q.Order.Of(i).UnixNano()
		behind := mine < at || mine == at && i.ID < id
		if !behind {
			return false, nil
		}
	}
	if !strings.HasPrefix(string(i.ID), q.Prefix) || len(q.IDs) > 0 && !slices.Contains(q.IDs, i.ID) {
		return false, nil
	}
	if q.Parent != "" && (i.Parent == nil || i.Parent.ID != q.Parent) {
		return false, nil
	}
	if !q.Since.IsZero() && i.Updated.Before(q.Since) {
		return false, nil
	}
	for k, v := range q.Labels {
		if got, ok := i.Labels[k]; !ok || got != v {
			return false, nil
		}
	}
	if q.Text != "" {
		text := strings.ToLower(q.Text)
		return strings.Contains(strings.ToLower(string(i.ID)), text) ||
			strings.Contains(strings.ToLower(i.Title), text), nil
	}
	return true, nil
}

// Of is the time by which a session has its place in this order.
func (o Order) Of(i *Info) time.Time {
	if o == OrderCreated {
		return i.Created
	}
	return i.Updated
}

// Cursor is the Query.Cursor that continues a list of this order after a session.
func (o Order) Cursor(i Info) string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%s%d %s", o.mark(), o.Of(&i).UnixNano(), i.ID))
}

// Cursor is the Query.Cursor that continues a list of [OrderUpdated] after this session.
func Cursor(i Info) string { return OrderUpdated.Cursor(i) }

// mark is what the cursors of an order begin with: what a cursor of another one does not.
func (o Order) mark() string {
	if o == OrderCreated {
		return "created "
	}
	return ""
}

func (o Order) parseCursor(cursor string) (at int64, id SessionID, err error) {
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	if err == nil {
		unmarked, marked := strings.CutPrefix(string(raw), o.mark())
		stamp, rest, ok := strings.Cut(unmarked, " ")
		at, err = strconv.ParseInt(stamp, 10, 64)
		if marked && ok && err == nil && CheckID(SessionID(rest)) == nil {
			return at, SessionID(rest), nil
		}
	}
	return 0, "", invalid("cursor", "%q was not made by a list of this order", cursor)
}
