package hansard

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Before is the latest time at which sessions past a query's cursor were updated:
// where an engine that keeps them in order starts looking. ok is false if the query
// has no cursor.
func (q *Query) Before() (latest time.Time, ok bool) {
	if q.Cursor == "" {
		return time.Time{}, false
	}
	updated, _, err := parseCursor(q.Cursor)
	return time.Unix(0, updated).UTC(), err == nil
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

// Cursor is the Query.Cursor that continues a list after this session.
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
