package filestore

import (
	"bytes"

	"hansard"
	"hansard/filestore/internal/sessionlog"
)

// A scan decodes one line after the other into the same memory: what it gives is borrowed,
// and good until the next line. Whoever keeps something of it makes it its own here.

// keeper copies the data of borrowed lines for readers that may keep it.
type keeper struct {
	room []byte // what the data of the next events goes to, behind its length
}

const (
	keeperLeast = 512
	// keeperMost is how much memory somebody holds on to who keeps one event of many.
	keeperMost = 16 << 10
)

// keep copies data. What is short is put beside its neighbours, because an allocation takes
// longer than the copy; the first ones in less memory, because most reads are short.
func (k *keeper) keep(data []byte) []byte {
	if len(data) > keeperMost/4 {
		return bytes.Clone(data)
	}
	if len(data) > cap(k.room)-len(k.room) {
		k.room = make([]byte, 0, min(keeperMost, max(keeperLeast, 2*cap(k.room), len(data))))
	}
	begin := len(k.room)
	k.room = append(k.room, data...)
	return k.room[begin:len(k.room):len(k.room)] // whoever appends to it does not write into the next
}

// holdBytes is how much of a batch is held back at least until its end was read.
const holdBytes = 256 << 10

// heldBatch is the beginning of a batch whose end was not read yet.
type heldBatch struct {
	lines []sessionlog.Line
	data  []byte // theirs
	open  bool   // the batch is known to be whole: nothing more is held back
	asked int    // the length at which that was asked
}

// long tells whether so much is held back that it pays to look for the end of the batch,
// and again when there is twice as much.
func (h *heldBatch) long() bool {
	const ofLine = 256 // a line without data is not for nothing
	n := len(h.data) + ofLine*len(h.lines)
	if n < max(holdBytes, 2*h.asked) {
		return false
	}
	h.asked = n
	return true
}

// hold takes a borrowed line.
func (h *heldBatch) hold(l *sessionlog.Line) {
	h.lines = append(h.lines, *l)
	if l.Data == nil {
		return
	}
	begin := len(h.data)
	h.data = append(h.data, l.Data...)
	h.lines[len(h.lines)-1].Data = h.data[begin:len(h.data):len(h.data)]
}

// give passes the lines on and forgets them. False: fn had enough.
func (h *heldBatch) give(fn func(*sessionlog.Line) bool) bool {
	for i := range h.lines {
		if !fn(&h.lines[i]) {
			return false
		}
	}
	h.lines, h.data = h.lines[:0], h.data[:0]
	return true
}

// event is the event of a borrowed line, with data of its own.
func (k *keeper) event(l *sessionlog.Line) hansard.Event {
	e := l.Event()
	if l.Data != nil && l.Gone == 0 {
		e.Data = k.keep(l.Data)
	}
	return e
}
