package engine

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"strconv"
	"time"

	"hansard"
)

// Normalize returns the events that a checked batch stores: kinds are filled in, and
// a batch with only a patch becomes one event of kind "meta". The patch is on the
// last event. All engines call it, so that they store the same.
func Normalize(b *hansard.Batch) []hansard.Event {
	events := make([]hansard.Event, len(b.Events), max(1, len(b.Events)))
	copy(events, b.Events)
	for i := range events {
		if events[i].Kind == "" {
			events[i].Kind = hansard.KindMessage
		}
	}
	if len(events) == 0 {
		events = append(events, hansard.Event{Kind: hansard.KindMeta, Data: json.RawMessage("null")})
	}
	for i := range events {
		events[i].By = b.By
	}
	events[len(events)-1].Patch = b.Patch
	return events
}

// ContentHash identifies what a batch stores. Two batches with the same key are the
// same if their hashes are; conditions do not count.
func ContentHash(events []hansard.Event) string {
	h := sha256.New()
	field := func(s []byte) {
		var n [8]byte
		binary.LittleEndian.PutUint64(n[:], uint64(len(s)))
		h.Write(n[:])
		h.Write(s)
	}
	for i := range events {
		e := &events[i]
		field([]byte(e.Kind))
		field([]byte(e.Role))
		field([]byte(e.Author))
		field(strconv.AppendBool(nil, e.Inbox))
		field(e.Data)
		if e.Patch != nil {
			patch, _ := json.Marshal(e.Patch) // strings, maps and checked JSON: can't fail
			field(patch)
		}
	}
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:18])
}

// Now is the time that a store puts on what it stores: UTC, in whole microseconds, so
// that it is the same after any engine has written and read it.
func Now() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }
