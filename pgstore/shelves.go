package pgstore

import (
	"fmt"
	"sync"
	"time"

	"hansard"
)

// shelves remembers until when the places of sessions in the list are right enough (see
// span), so that appends need not look. It is a hint: a statement that relies on it checks
// it as one of its conditions, and is refused if it is wrong.
type shelves struct {
	mu    sync.Mutex // guards below
	until map[hansard.SessionID]time.Time
}

const (
	// shelfMargin is how long before the place has to be put right an append looks again: a
	// statement may take a while until it is carried out.
	shelfMargin = time.Second
	// shelfRoom bounds the memory. Where more sessions than that are in use at once, each
	// append looks.
	shelfRoom = 10_000
)

// fresh tells whether the session's place is known to be right for a while.
func (h *shelves) fresh(id hansard.SessionID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	until, known := h.until[id]
	if known && !time.Now().Before(until) {
		delete(h.until, id)
		return false
	}
	return known
}

// shelfLeft is for how many seconds the place in the list of a row that an append has
// changed is right, after it was put right if that was due.
var shelfLeft = fmt.Sprintf("CASE WHEN updated >= listed AND updated < listed + %[1]s THEN extract(epoch FROM listed + %[1]s - updated)::float8 ELSE %[2]f END", spanSQL, span.Seconds())

// shelfDue tells whether the place in the list of a row of hansard_heads has to be put
// right.
var shelfDue = "(h.updated < h.listed OR h.updated >= h.listed + " + spanSQL + ")"

// spanSQL is span as the database writes it.
var spanSQL = fmt.Sprintf("interval '%d milliseconds'", span.Milliseconds())

// learn records the shelfLeft that an append found.
func (h *shelves) learn(id hansard.SessionID, seconds float64) {
	left := time.Duration(seconds * float64(time.Second))
	h.mu.Lock()
	defer h.mu.Unlock()
	if left <= shelfMargin {
		delete(h.until, id)
		return
	}
	if h.until == nil {
		h.until = make(map[hansard.SessionID]time.Time)
	}
	if _, known := h.until[id]; !known && len(h.until) >= shelfRoom && !h.makeRoomLocked() {
		return
	}
	h.until[id] = time.Now().Add(left - shelfMargin)
}

// makeRoomLocked forgets places that are no longer right. It looks at only a few, in
// whatever order the map has them.
func (h *shelves) makeRoomLocked() (room bool) {
	now, looked := time.Now(), 0
	for id, until := range h.until {
		if looked++; looked > 16 {
			return false
		}
		if !now.Before(until) {
			delete(h.until, id)
			return true
		}
	}
	return false
}
