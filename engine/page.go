package engine

import (
	"encoding/base64"
	"slices"
	"strings"
	"time"

	"hansard"
)

// The pages of a list. Each is a snapshot of its own, and between two of them sessions
// are created, updated and deleted. Sorted by creation that does no harm: a session
// keeps its place. Sorted by update, a session that is updated moves to the front, past
// the cursor, and would be on no page. So such a list has two parts:
//
//	rest    the sessions in order, after the cursor
//	again   those updated since a minute before the first page, by creation
//
// Nothing is skipped: a session that the first part misses was updated after the first
// page was read, so it is in the second part, and stays there, because Updated only grows.
// The second part is sorted by creation, so places in it do not change: sorted by update,
// sessions updated while it is read would move again. A session that enters the second
// part only while that is read was not updated before, so the first part had it. And the
// second part ends: sessions created in the meantime go to its front.
//
// The minute covers updates with a time before the first page that were not visible then:
// their commit was under way, or their writer's clock is slow. It is counted from the newest
// session of the first page, if that is not older than a minute, so that a page stays the same
// as long as its sessions do; if it is older, only sessions that changed are listed again.

// slack is that minute.
const slack = time.Minute

// Cursor is where in its pages a list continues.
type Cursor struct {
	Order hansard.Order
	// Since: the sessions updated at or after this time are listed again.
	Since time.Time
	// Again says that the list is in the second part.
	Again bool
	// At and ID are those of the session that the list continues after; At is its time
	// in the order of the part. An empty ID is the beginning.
	At time.Time
	ID hansard.SessionID
}

// ParseCursor returns the cursor of a query.
func ParseCursor(q *hansard.Query) (Cursor, error) {
	c := Cursor{Order: q.Order}
	if q.Cursor == "" {
		return c, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(q.Cursor)
	if err == nil {
		words := strings.Split(string(raw), " ")
		var since, at error
		switch {
		case len(words) == 4 && q.Order == hansard.OrderUpdated && (words[0] == "updated" || words[0] == "again"):
			c.Again, c.ID = words[0] == "again", hansard.SessionID(words[3])
			c.Since, since = time.Parse(time.RFC3339Nano, words[1])
			c.At, at = time.Parse(time.RFC3339Nano, words[2])
		case len(words) == 3 && q.Order == hansard.OrderCreated && words[0] == "created":
			c.ID = hansard.SessionID(words[2])
			c.At, at = time.Parse(time.RFC3339Nano, words[1])
		}
		if since == nil && at == nil && hansard.CheckID(c.ID) == nil {
			return c, nil
		}
	}
	return Cursor{}, invalid("cursor", "%.200q was not made by a list of this order", q.Cursor)
}

// Mark gives the sessions of the page that begins at c their cursors. The first rest
// sessions are in the first part. now was taken before the page was read.
func (c Cursor) Mark(page []hansard.Info, rest int, now time.Time) {
	if c.ID == "" && len(page) > 0 {
		c.Since = page[0].Updated.Add(-slack)
		if page[0].Updated.Before(now.Add(-slack)) {
			c.Since = page[0].Updated.Add(1)
		}
	}
	for i := range page {
		page[i].Cursor = c.behind(&page[i], i >= rest)
	}
}

// behind returns the cursor that continues after a session.
func (c *Cursor) behind(i *hansard.Info, again bool) string {
	stamp := func(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
	text := "created " + stamp(i.Created)
	switch {
	case again:
		text = "again " + stamp(c.Since) + " " + stamp(i.Created)
	case c.Order == hansard.OrderUpdated:
		text = "updated " + stamp(c.Since) + " " + stamp(i.Updated)
	}
	return base64.RawURLEncoding.EncodeToString([]byte(text + " " + string(i.ID)))
}

// InRest reports whether a session is in the first part of the page.
func (c *Cursor) InRest(i *hansard.Info) bool {
	return !c.Again && (c.ID == "" || c.isBehind(c.Order, i))
}

// ComesAgain reports whether the page may have a second part.
func (c *Cursor) ComesAgain() bool { return c.ID != "" && c.Order == hansard.OrderUpdated }

// InAgain reports whether a session is in the second part of the page. A session in the
// first part of the same page is not: both are of one snapshot.
func (c *Cursor) InAgain(i *hansard.Info) bool {
	if !c.ComesAgain() || i.Updated.Before(c.Since) {
		return false
	}
	return c.Again && c.isBehind(hansard.OrderCreated, i) || !c.Again && !c.isBehind(c.Order, i)
}

func (c *Cursor) isBehind(o hansard.Order, i *hansard.Info) bool {
	at := o.Of(i)
	return at.Before(c.At) || at.Equal(c.At) && i.ID < c.ID
}

// Page returns the page that a query selects from all, a snapshot of the sessions. now was
// taken before the snapshot.
func Page(q *hansard.Query, now time.Time, all []hansard.Info) ([]hansard.Info, error) {
	c, err := ParseCursor(q)
	if err != nil {
		return nil, err
	}
	var rest, again []hansard.Info
	for i := range all {
		switch info := &all[i]; {
		case !q.Wants(info):
		case c.InRest(info):
			rest = append(rest, *info)
		case c.InAgain(info):
			again = append(again, *info)
		}
	}
	SortBy(q.Order, rest)
	SortBy(hansard.OrderCreated, again)
	n := len(rest)
	page := append(rest, again...)
	if q.Limit > 0 && len(page) > q.Limit {
		page = page[:q.Limit]
	}
	c.Mark(page, n, now)
	return page, nil
}

// SortBy puts sessions into an order.
func SortBy(o hansard.Order, infos []hansard.Info) {
	slices.SortFunc(infos, func(a, b hansard.Info) int {
		if NewerBy(o, &a, &b) {
			return -1
		}
		return 1 // never the same: ids differ
	})
}
