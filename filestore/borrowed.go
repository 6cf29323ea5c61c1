package filestore

import (
	"bytes"

	"hansard"
	"hansard/filestore/internal/sessionlog"
)

// A scan decodes one line after the other into the same memory: a line is borrowed, and
// valid until the next one. Callers that keep parts of it copy them with a keeper.

// keeper copies the data of borrowed lines for readers that may keep it.
type keeper struct {
	room []byte // the data of the next events is appended here
}

const (
	keeperLeast = 512
	// keeperMost is how much memory a caller retains that keeps one event of many.
	keeperMost = 16 << 10
)

// keep copies data. Short data is packed together with its neighbours, because an
// allocation takes longer than the copy; the first pieces go to smaller buffers, because
// most reads are short.
func (k *keeper) keep(data []byte) []byte {
	if len(data) > keeperMost/4 {
		return bytes.Clone(data)
	}
	if len(data) > cap(k.room)-len(k.room) {
		k.room = make([]byte, 0, min(keeperMost, max(keeperLeast, 2*cap(k.room), len(data))))
	}
	begin := len(k.room)
	k.room = append(k.room, data...)
	return k.room[begin:len(k.room):len(k.room)] // capped, so that an append to it does not overwrite the next
}

// holdBytes is how much of a batch is held back, at least, before its end is looked for.
const holdBytes = 256 << 10

// heldBatch is the beginning of a batch whose end was not read yet.
type heldBatch struct {
	lines []sessionlog.Line
	data  []byte // data of the lines
	open  bool   // the batch is known to be whole: nothing more is held back
	asked int    // how much was held when that was last checked
}

// long tells whether so much is held back that looking for the end of the batch pays off,
// and again each time the amount has doubled.
func (h *heldBatch) long() bool {
	const ofLine = 256 // a line without data takes memory too
	n := len(h.data) + ofLine*len(h.lines)
	if n < max(holdBytes, 2*h.asked) {
		return false
	}
	h.asked = n
	return true
}

// hold copies a borrowed line.
func (h *heldBatch) hold(l *sessionlog.Line) {
	h.lines = append(h.lines, *l)
	if l.Data == nil {
		return
	}
	begin := len(h.data)
	h.data = append(h.data, l.Data...)
	h.lines[len(h.lines)-1].Data = h.data[begin:len(h.data):len(h.data)]
}

// give passes the lines to fn and forgets them. False: fn asked to stop.
func (h *heldBatch) give(fn func(*sessionlog.Line) bool) bool {
	for i := range h.lines {
		if !fn(&h.lines[i]) {
			return false
		}
	}
	h.lines, h.data = h.lines[:0], h.data[:0]
	return true
}

// event is the event of a borrowed line, with its own copy of the data.
func (k *keeper) event(l *sessionlog.Line) hansard.Event {
	e := l.Event()
	if l.Data != nil && l.Gone == 0 {
		e.Data = k.keep(l.Data)
	}
	return e
}
