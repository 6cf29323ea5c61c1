package filestore

import (
	"hansard"
	"hansard/filestore/internal/sessionlog"
)

// locateWindow is how much of a log is searched line by line, with one read.
const locateWindow = 64 << 10

// locate finds the line with a seq by bisection over byte offsets: lines are in the order
// of their seqs. It returns the line with its offsets, as if the log ended after it; tail
// is where the log does end.
//
//	lo               mid-1  begin                    hi
//	├─ line ─┼─ line ───┼────┼─ line ─┼─ line ────────┤
//	                    └skip┘  seq? → lo or hi
//
// It reads about two lines per step and only the seq of each, and the last window at
// once. Most callers want the last events, so it looks near the end first. Not ok: it hit
// something unexpected (damage, an error, a seq out of order); the caller scans from one
// end, which reports it properly.
func locate(l *openedLog, tail *sessionlog.Tail, seq hansard.Seq) (at *sessionlog.Tail, ok bool) {
	if tail == nil || seq >= tail.Last.Seq {
		return tail, tail != nil && seq == tail.Last.Seq
	}
	if at, ok := locateNearEnd(l, tail, seq); ok {
		return at, true
	}
	// The line begins in [lo, hi). lo is always where a line begins; hi need not be.
	lo, hi := l.header.End, tail.LastAt
	back := int64(locateWindow) // how far before the end to look; 0: bisect
	for hi-lo > locateWindow {
		mid := lo + (hi-lo)/2
		if back > 0 && tail.LastAt-back > mid {
			mid = tail.LastAt - back
			back *= 8
		}
		begin, got, ok := seqFrom(l, mid)
		switch {
		case !ok:
			return nil, false
		case begin >= hi:
			hi = mid // no line begins in [mid, hi)
		case got <= seq:
			lo, back = begin, 0
		default:
			hi = mid
		}
	}
	return walkTo(l, lo, hi, seq)
}

// seqFrom is the first line that begins at or after an offset inside a log, and its seq.
func seqFrom(l *openedLog, mid int64) (begin int64, seq hansard.Seq, ok bool) {
	// From mid-1: mid itself may be the beginning of a line, which would be skipped.
	skip, err := sessionlog.ReadLineAt(l.f, mid-1)
	if err != nil {
		return 0, 0, false
	}
	begin = mid - 1 + int64(len(skip)) + 1
	b, err := sessionlog.ReadLineAt(l.f, begin)
	if err != nil {
		return 0, 0, false
	}
	seq, ok = sessionlog.QuickSeq(b)
	return begin, seq, ok
}

// walkTo finds the line with a seq among those that begin in [lo, hi).
func walkTo(l *openedLog, lo, hi int64, seq hansard.Seq) (*sessionlog.Tail, bool) {
	sc := sessionlog.NewScanner(l.f, lo)
	for {
		b, at, err := sc.Next()
		if err != nil || at >= hi {
			return nil, false
		}
		switch got, isEvent := sessionlog.QuickSeq(b); {
		case !isEvent || got > seq:
			return nil, false // it is missing
		case got == seq:
			e, err := sessionlog.Decode(b)
			return &sessionlog.Tail{Last: e, LastAt: at, End: sc.At}, err == nil
		}
	}
}
