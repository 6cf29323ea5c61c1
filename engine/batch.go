package engine

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"hash"
	"slices"
	"strconv"
	"time"

	"hansard"
)

// Normalize returns the events of a checked batch as they are stored: kinds are filled
// in, At is in UTC and whole microseconds, and a batch with only a patch becomes one
// event of kind "meta". The patch is on the last event. All engines call it, so that
// they store the same.
func Normalize(b *hansard.Batch) []hansard.Event { return NormalizeInto(nil, b) }

// NormalizeInto is Normalize with memory to reuse, whose content is overwritten.
func NormalizeInto(memory []hansard.Event, b *hansard.Batch) []hansard.Event {
	events := append(slices.Grow(memory[:0], max(1, len(b.Events))), b.Events...)
	for i := range events {
		if events[i].Kind == "" {
			events[i].Kind = hansard.KindMessage
		}
		events[i].At = at(events[i].At)
	}
	if len(events) == 0 {
		events = append(events, MetaEvent(b.By))
	}
	for i := range events {
		events[i].By = b.By
	}
	events[len(events)-1].Patch = b.Patch
	return events
}

// at is a time as engines store it.
func at(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC().Truncate(time.Microsecond)
}

// ContentHash identifies what a batch stores. Two batches with the same key are the
// same if their hashes are; conditions do not count.
func ContentHash(events []hansard.Event) string {
	h := newHash()
	for i := range events {
		h.event(&events[i])
		h.patch(events[i].Patch)
	}
	return h.sum()
}

// contentHash hashes fields, each with its length, so that different lists of fields never
// hash the same bytes.
type contentHash struct{ hash.Hash }

func newHash() contentHash { return contentHash{sha256.New()} }

func (h contentHash) field(s []byte) {
	var n [8]byte
	binary.LittleEndian.PutUint64(n[:], uint64(len(s)))
	h.Write(n[:])
	h.Write(s)
}

// event hashes the fields of an event that its writer sets.
func (h contentHash) event(e *hansard.Event) {
	h.field([]byte(e.ID))
	h.field([]byte(e.Kind))
	h.field([]byte(e.Role))
	h.field([]byte(e.Author))
	h.field(strconv.AppendBool(nil, e.Inbox))
	var happened []byte
	if !e.At.IsZero() {
		happened = strconv.AppendInt(nil, e.At.UnixMicro(), 10)
	}
	h.field(happened)
	h.field(strconv.AppendInt(nil, int64(len(e.Attachments)), 10))
	for _, a := range e.Attachments {
		h.field([]byte(a.Digest))
		h.field([]byte(a.MediaType))
		h.field([]byte(a.Name))
	}
	h.field(e.Data)
}

func (h contentHash) patch(p *hansard.Patch) {
	if p != nil {
		text, _ := json.Marshal(p) // strings, maps and checked JSON: can't fail
		// Marshal leaves U+0085 unescaped, but a log of lines has to escape it. Escaped
		// here too, a patch has the same hash when it is read back.
		h.field(bytes.ReplaceAll(text, []byte("\u0085"), []byte(`\u0085`)))
	}
}

func (h contentHash) sum() string {
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:18])
}

// Now is the time that a store puts on what it stores: UTC, in whole microseconds, so
// that it is the same after any engine has written and read it.
func Now() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }
