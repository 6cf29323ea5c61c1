package filestore

import (
	"errors"
	"fmt"

	"hansard"
)

// chain checks that lines follow each other as they were written: each with the
// crc of the one before, the next seq, and the batches whole.
type chain struct {
	id      hansard.SessionID
	lines   int // seen, the header included; 0: not from the beginning
	started bool
	crc     uint32
	seq     hansard.Seq
	left    int // lines of the batch that have to come
	deleted bool
	safe    hansard.Seq // last seq of the last whole batch
	partial bool        // begun behind the header: lines are not counted
}

// resume continues behind a line that was checked by itself.
func (c *chain) resume(l *line) {
	c.started, c.partial = true, true
	c.crc, c.seq, c.left = l.crc, l.Seq, l.Left
	c.safe = l.Seq
}

// follow checks the next line.
func (c *chain) follow(l *line) error {
	c.lines++
	if !c.started {
		c.started = true
		if l.Version == 0 || l.prev != 0 || l.Seq != 0 {
			return lineError("the first line is not a header")
		}
		c.crc, c.left = l.crc, l.Left
		return nil
	}
	switch {
	case l.prev != c.crc:
		return lineError("the line does not follow the one before it: lines are missing, doubled, moved or exchanged")
	case l.Seq != c.seq+1:
		return lineError(fmt.Sprintf("seq %d follows seq %d", l.Seq, c.seq))
	case c.left > 0 && l.Left != c.left-1:
		return lineError(fmt.Sprintf("a batch of which %d lines had to follow goes on with %d", c.left, l.Left))
	case c.deleted:
		return lineError("a line follows the tombstone")
	}
	c.crc, c.seq, c.left, c.deleted = l.crc, l.Seq, l.Left, l.Deleted
	if l.Left == 0 {
		c.safe = l.Seq
	}
	return nil
}

// damage is the error for the line at an offset.
func (c *chain) damage(at int64, err error) *hansard.DamagedError {
	d := &hansard.DamagedError{Session: c.id, SafeSeq: c.safe, Offset: at, Reason: err.Error()}
	if !c.partial {
		d.Line = max(c.lines, 1)
		var bad lineError
		if errors.As(err, &bad) && c.lines == 0 {
			d.Line = 1
		}
	}
	return d
}
