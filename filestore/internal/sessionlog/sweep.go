package sessionlog

import (
	"bytes"
	"errors"
	"io"
	"math"

	"hansard"
	"hansard/internal/vfs"
)

// Checking a whole log, line by line: for verify, for repair, and once for each log that is
// opened or whose end does not look right. Otherwise the last line is enough.

// Check checks every line of a log (L1 to L5), decoded by decode, and returns how far it
// got: c.Safe is the last event that readers may see. d is damage in the bytes; err means
// that they could not be read, which is not damage: EIO or EMFILE must not mark a session
// damaged.
//
// decode is the method of a Decoder: Decode checks everything, Head all but what the data
// is, whose bytes the checksum covers. No line is used after the next one is decoded.
func Check(f vfs.File, id hansard.SessionID, decode func([]byte) (*Line, error)) (c Chain, d *hansard.DamagedError, err error) {
	return CheckUpTo(f, id, decode, math.MaxInt64)
}

// CheckUpTo is Check of a log that may grow faster than it is read: it ends with the
// batch that reaches upTo. An unfinished end is not damage.
func CheckUpTo(f vfs.File, id hansard.SessionID, decode func([]byte) (*Line, error), upTo int64) (c Chain, d *hansard.DamagedError, err error) {
	c.ID = id
	sc := NewScanner(f, 0)
	for {
		b, at, err := sc.Next()
		if errors.Is(err, ErrNoLine) {
			d, err := unfinished(&c, f, at)
			return c, d, err
		}
		if err != nil {
			return c, nil, err
		}
		// Follow counts the line; one that can't be decoded is counted here, so that the error
		// has its number.
		l, err := decode(b)
		if err == nil {
			err = c.Follow(l)
		} else {
			c.Lines++
		}
		if err != nil {
			return c, c.Damage(at, err), nil
		}
		if l.Left == 0 && sc.At >= upTo {
			return c, nil, nil
		}
	}
}

// unfinished looks at what follows the last newline. The beginning of a line is being
// written now, or was left by a kill or by a copy of a live log: the next writer completes
// or cuts it (W2). Anything else is damage: only the beginning of one of our own lines may
// be cut.
func unfinished(c *Chain, f vfs.File, at int64) (*hansard.DamagedError, error) {
	size, err := f.Size()
	if err != nil || size <= at {
		return nil, err
	}
	rest := make([]byte, min(size-at, MaxLine))
	n, err := f.ReadAt(rest, at)
	if err != nil && err != io.EOF {
		return nil, err
	}
	long := size-at > MaxLine && bytes.IndexByte(rest[:n], '\n') < 0 // no line is longer
	if !long && (c.Started && LooksUnfinished(rest[:n]) || !c.Started && looksBegun(rest[:n])) {
		return nil, nil
	}
	c.Lines++
	return c.Damage(at, lineError("the last line is not one of a log")), nil
}
