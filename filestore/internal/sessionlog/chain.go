package sessionlog

import (
	"errors"
	"fmt"

	"hansard"
)

// Chain checks that lines follow each other as they were written (L3 to L5): each with
// the crc of the one before, the next seq, and the batches whole. A line's own checksum
// does not show that lines are missing, duplicated, reordered or from another log; the
// chain does (invariants 2 and 12).
//
// The zero value, with an ID for its errors, begins before the header. It stops at the
// first error; the lines after it are left to repair (runs.go).
type Chain struct {
	ID    hansard.SessionID
	Lines int // seen, the header included, for error messages
	// Started: a line was seen, so the next one has to follow it.
	Started bool
	crc     uint32
	seq     hansard.Seq
	Left    int         // lines of the batch that are still to come
	Deleted bool        // the last line was a tombstone: nothing may follow
	Safe    hansard.Seq // last seq of the last whole batch
	partial bool        // begun after the header: line numbers are not known
}

// Resume continues after a line that was checked by itself, as bisection finds it: the
// lines before it are not checked (R4).
func (c *Chain) Resume(l *Line) {
	c.Started, c.partial = true, true
	c.crc, c.seq, c.Left = l.CRC, l.Seq, l.Left
	c.Safe = l.Seq
}

// Follow checks the next line, which passed Decode. After an error it must not be called
// again; Safe is how far readers may go.
func (c *Chain) Follow(l *Line) error {
	c.Lines++
	if !c.Started {
		c.Started = true
		if l.Version == 0 || l.Prev != 0 || l.Seq != 0 {
			return lineError("the first line is not a header")
		}
		c.crc, c.Left = l.CRC, l.Left
		return nil
	}
	switch {
	// First, because it is the strongest: the others can only fail for lines that were
	// written with the right prev.
	case l.Prev != c.crc:
		return lineError("the line does not follow the one before it: lines are missing, duplicated, moved or exchanged")
	case l.Seq != c.seq+1:
		return lineError(fmt.Sprintf("seq %d follows seq %d", l.Seq, c.seq))
	case c.Left > 0 && l.Left != c.Left-1:
		return lineError(fmt.Sprintf("a batch with %d lines to come continues with %d", c.Left, l.Left))
	case c.Deleted:
		return lineError("a line follows the tombstone")
	}
	c.crc, c.seq, c.Left, c.Deleted = l.CRC, l.Seq, l.Left, l.Deleted
	// Half a batch does not exist for readers (R1, failure 35).
	if l.Left == 0 {
		c.Safe = l.Seq
	}
	return nil
}

// Precedes checks that a line, which passed Decode, is the one before next: what Follow
// checks, for a reader that goes backwards.
func (l *Line) Precedes(next *Line) error {
	c := Chain{Started: true, crc: l.CRC, seq: l.Seq, Left: l.Left, Deleted: l.Deleted}
	return c.Follow(next)
}

// Damage is the error for the line at an offset: err is what Decode or Follow returned for
// it. The line number is left out if the chain began in the middle.
func (c *Chain) Damage(at int64, err error) *hansard.DamagedError {
	d := &hansard.DamagedError{Session: c.ID, SafeSeq: c.Safe, Offset: at, Reason: err.Error()}
	if !c.partial {
		d.Line = max(c.Lines, 1)
		var bad lineError
		if errors.As(err, &bad) && c.Lines == 0 {
			d.Line = 1
		}
	}
	return d
}
