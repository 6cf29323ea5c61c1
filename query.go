package hansard

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"time"
)

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

// Wants tells whether a range selects an event of this kind.
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

// Wants tells whether a query selects a session. The limit is not looked at.
func (q *Query) Wants(i *Info) (bool, error) {
	if q.Cursor != "" {
		updated, id, err := parseCursor(q.Cursor)
		if err != nil {
			return false, err
		}
		behind := i.Updated.UnixNano() < updated || i.Updated.UnixNano() == updated && i.ID < id
		if !behind {
			return false, nil
		}
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

// Newer is the order of List: by Updated, then by id, both descending.
func Newer(a, b *Info) bool {
	if !a.Updated.Equal(b.Updated) {
		return a.Updated.After(b.Updated)
	}
	return a.ID > b.ID
}

// Cursor is the Query.Cursor that continues a list behind this session.
func Cursor(i Info) string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%d %s", i.Updated.UnixNano(), i.ID))
}

func parseCursor(cursor string) (updated int64, id SessionID, err error) {
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	if err == nil {
		stamp, rest, ok := strings.Cut(string(raw), " ")
		updated, err = strconv.ParseInt(stamp, 10, 64)
		if ok && err == nil && CheckID(SessionID(rest)) == nil {
			return updated, SessionID(rest), nil
		}
	}
	return 0, "", invalid("cursor", "%q was not made by this store", cursor)
}

// CheckRange tells whether a range is one that a store accepts.
func CheckRange(r *Range) error {
	if r.Limit < 0 {
		return invalid("limit", "%d is negative; 0 is no limit", r.Limit)
	}
	if r.Last < 0 {
		return invalid("last", "%d is negative", r.Last)
	}
	return nil
}

// CheckQuery tells whether a query is one that a store accepts.
func CheckQuery(q *Query) error {
	if q.Limit < 0 {
		return invalid("limit", "%d is negative; 0 is no limit", q.Limit)
	}
	if q.Cursor != "" {
		_, _, err := parseCursor(q.Cursor)
		return err
	}
	return nil
}
