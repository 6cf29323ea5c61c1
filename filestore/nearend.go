package filestore

import (
	"bytes"

	"hansard"
	"hansard/filestore/internal/sessionlog"
)

// What followers want is at the end of the log: an event or two after the last one they
// got. A wake-up announces each, so the time it takes to read it is their delay.

// onlyLast is the last line of the log, if that is all of (after, last]; otherwise nil.
// It was read, and checked to follow the line before it, when the log was opened.
func (l *openedLog) onlyLast(after, last hansard.Seq) *sessionlog.Line {
	if l.damage != nil || l.tail == nil || l.tail.Last.Seq != last || after+1 != last {
		return nil
	}
	return l.tail.Last
}

// nearEnd is how many bytes before the last line are searched for a line that is at most
// nearLines before it, before bisecting: one read, instead of some twenty.
const (
	nearEnd   = 8 << 10
	nearLines = 64
)

// locateNearEnd is locate for a line shortly before the tail. Not ok: it was not found.
func locateNearEnd(l *openedLog, tail *sessionlog.Tail, seq hansard.Seq) (at *sessionlog.Tail, ok bool) {
	begin := max(l.header.End, tail.LastAt-nearEnd)
	if tail.Last.Seq-seq > nearLines || begin >= tail.LastAt {
		return nil, false
	}
	b := make([]byte, tail.LastAt-begin)
	if n, _ := l.f.ReadAt(b, begin); n < len(b) {
		return nil, false
	}
	for len(b) > 0 {
		// Skip the newline that ends this line; look for the one before it.
		i := bytes.LastIndexByte(b[:len(b)-1], '\n') + 1
		if i == 0 && begin > l.header.End {
			return nil, false // the line begins before the part that was read
		}
		got, isEvent := sessionlog.QuickSeq(b[i:])
		if !isEvent || got < seq {
			return nil, false
		}
		if got == seq {
			e, err := sessionlog.Decode(bytes.Clone(b[i : len(b)-1]))
			return &sessionlog.Tail{Last: e, LastAt: begin + int64(i), End: begin + int64(len(b))}, err == nil
		}
		b = b[:i]
	}
	return nil, false
}
