package sessionlog

import (
	"bytes"
	"errors"
	"io"
	"sync"

	"hansard"
	"hansard/internal/vfs"
)

// The end of a log. To append, only the last line is needed: it has the seq and the
// checksum that the next line continues, and the offsets of the newest metadata and turn.
// Reading it costs the same for a log of any length (failure 55).

// Tail is the end of the whole batches of a log: its last line that ends a batch. What
// follows it, if anything, is an unfinished batch: it does not exist for readers (R1), and
// a writer completes it from the ring, or cuts it (W2).
type Tail struct {
	Last   *Line
	LastAt int64 // where it begins
	End    int64 // offset after it
}

// looksPartial tells whether bytes may be a part of a line: no control characters (NULs are
// pages that a power cut lost), and not a whole line followed by something other than a
// newline. What it accepts may be cut off the log, so when in doubt it says no: then it is
// damage, and nothing is removed (failure 33).
func looksPartial(b []byte) bool {
	for _, c := range b {
		if c < 0x20 {
			return false
		}
	}
	// Content may look like the end of a line, but not with the right checksum. Each try
	// computes one over everything before it: a few are enough, and more would let content
	// make this quadratic.
	for at, looks := 0, 0; looks < 16; looks++ {
		i := bytes.Index(b[at:], []byte(`,"crc":"`))
		if i < 0 || len(b) <= at+i+CRCWidth {
			break
		}
		at += i + CRCWidth
		if _, _, err := CheckFrame(b[:at]); err == nil {
			return false
		}
	}
	return true
}

// ReadTail finds the last line that ends its batch, in the first size bytes of a log.
// Only the end is read. DamagedError: the last lines are not valid, or, with offset 0, no
// batch is whole, which is also what a log looks like while its first batch is being
// written (WholeBatch).
func ReadTail(f vfs.File, size int64) (*Tail, error) { return FindTail(f, size, Decode) }

// HeadOrTurn decodes a line without its data, except a turn record, whose data is needed:
// decoding megabytes under write.lock would keep every other process waiting.
func HeadOrTurn(b []byte) (*Line, error) {
	l, err := DecodeHead(b)
	if err == nil && l.Kind == hansard.KindTurn {
		return Decode(b)
	}
	return l, err
}

// FindTail is ReadTail with another decoder. It goes back line by line over an unfinished
// batch; each line has to be valid and to follow the one before it, so that a line added by
// hand is noticed where it matters most. Lines before the tail are not checked: check.go
// does that once per log.
func FindTail(f vfs.File, size int64, decode func([]byte) (*Line, error)) (*Tail, error) {
	end, err := lastNewline(f, size)
	if err != nil {
		return nil, err
	}
	for end > 0 {
		at, b, err := lineBefore(f, end)
		if err != nil {
			return nil, err
		}
		l, err := decode(b)
		if err != nil {
			return nil, DamagedAt("", at, "%v", err)
		}
		// A line that does not follow the one before was inserted or moved. The header has
		// nothing before it.
		if at > 0 {
			if crc, err := CRCBefore(f, at); err != nil || crc != l.Prev {
				if err == nil {
					err = DamagedAt("", at, "the line does not follow the one before it")
				}
				return nil, err
			}
		}
		if l.Left == 0 {
			return &Tail{Last: l, LastAt: at, End: end}, nil
		}
		end = at
	}
	return nil, DamagedAt("", 0, "no batch of it is whole")
}

// LooksUnfinished tells whether the bytes after a whole batch are an unfinished batch:
// whole lines, and a last one cut off anywhere. Only that may be cut (W2); no bytes at all
// also count as unfinished.
func LooksUnfinished(b []byte) bool {
	const begin = `{"seq":`
	for len(b) > 0 {
		if n := min(len(b), len(begin)); string(b[:n]) != begin[:n] {
			return false
		}
		i := bytes.IndexByte(b, '\n')
		if i < 0 {
			return looksPartial(b)
		}
		b = b[i+1:]
	}
	return true
}

// CRCBefore reads the crc of the line that ends at off: 11 bytes, so that apply can
// compare it with the entry's LinePrev before every write (W1, "behind the line it
// names"). The line itself is not checked. An error is a read error, or off is too small
// for a line to end there.
func CRCBefore(f vfs.File, off int64) (uint32, error) {
	var b [11]byte // xxxxxxxx"}\n
	if off < int64(len(b)) {
		return 0, lineError("no line ends there")
	}
	if _, err := f.ReadAt(b[:], off-int64(len(b))); err != nil {
		return 0, err
	}
	crc, ok := parseHex(b[:8])
	if !ok || string(b[8:]) != "\"}\n" {
		return ^uint32(0), nil // not a crc: it matches none, except by chance
	}
	return crc, nil
}

// EndsWith tells whether a log ends at off, with a line that has this crc. One read answers
// both: it also asks for the byte at off, which must not exist.
func EndsWith(f vfs.File, off int64, crc uint32) bool {
	b := ends.Get().(*[12]byte)
	defer ends.Put(b)
	if off < int64(len(b)-1) {
		return false
	}
	n, err := vfs.ReadEnd(f, b[:], off-int64(len(b)-1))
	if n != len(b)-1 || err != io.EOF {
		return false
	}
	there, ok := parseHex(b[:8])
	return ok && there == crc && string(b[8:n]) == "\"}\n"
}

// ends are buffers for the ends of logs: xxxxxxxx"}\n and one byte more. One is needed for
// every append, and reading through an interface would put each on the heap.
var ends = sync.Pool{New: func() any { return new([12]byte) }}

// EndsDeleted tells whether the last whole batch of a log is a tombstone. False if it can't
// be read: the callers then treat the log as still in use.
func EndsDeleted(f vfs.File) bool {
	deleted, err := Deleted(f)
	return err == nil && deleted
}

// Deleted is EndsDeleted for callers that must not take an error for a log in use. A
// damaged end is no tombstone.
func Deleted(f vfs.File) (bool, error) {
	size, err := f.Size()
	if err != nil {
		return false, err
	}
	tail, err := ReadTail(f, size)
	var damaged *hansard.DamagedError
	if errors.As(err, &damaged) {
		return false, nil
	}
	return err == nil && tail.Last.Deleted, err
}

// WholeBatch tells whether a log has one whole batch, however damaged the rest. If it has
// none, it is a session whose first batch is being written: not found, rather than damaged.
// A line that can't be decoded counts as whole: its batch was written once, and the session
// must not appear not to exist (failure 24).
func WholeBatch(f vfs.File) (bool, error) {
	sc := NewScanner(f, 0)
	for {
		b, _, err := sc.Next()
		if errors.Is(err, ErrNoLine) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		l, err := Decode(b)
		if err != nil || l.Left == 0 {
			return true, nil
		}
	}
}

// DamagedEnd looks at what follows the last whole batch: nil if it may be a batch that is
// being written, otherwise the damage, after which nothing may be appended.
func DamagedEnd(f vfs.File, id hansard.SessionID, tail *Tail, size int64) (*hansard.DamagedError, error) {
	rest := make([]byte, min(size-tail.End, MaxLine))
	n, err := f.ReadAt(rest, tail.End)
	if err != nil && err != io.EOF {
		return nil, err
	}
	if LooksUnfinished(rest[:n]) {
		return nil, nil
	}
	d := DamagedAt(id, tail.End, "what is behind the last batch is no line of a log")
	d.SafeSeq = tail.Last.Seq
	return d, nil
}
