package sessionlog

import (
	"bytes"
	"errors"
	"io"

	"hansard"
	"hansard/internal/vfs"
)

// The first step of a repair: what is still intact in a damaged log, as runs of lines that
// follow each other. Each line proves itself by its checksum and, by prev, the line before
// it. assemble.go decides which runs belong to the session and in which order, rebuild.go
// writes them. This step only reads the old file, and keeps places and checksums instead of
// lines: a log may be larger than memory.

// Source is a file that lines of a session are taken from: its log, or a file in aside/
// with lines that could not go to the log.
type Source struct {
	F    vfs.File
	Log  bool    // it is the session's log, which may have been edited from outside
	Head *Header // of this session, if it has one
	at   int64   // where the header begins,
	raw  []byte  // and its bytes, with its newline
	Runs []*run
}

// run is lines that follow each other in one file, without a gap. The checksums of all of
// them are kept, so that two runs can be compared where they overlap.
type run struct {
	Src         *Source
	At, end     int64 // offsets of its first line and of the end of its last
	First, last *Line
	whole       hansard.Seq // the last line that ends its batch; 0: none does
	crcs        []uint32    // of all its lines
}

// place is a line and where it is. Its bytes are valid until the next line is read.
type place struct {
	*Line
	at int64
	b  []byte // without its newline
}

// Read finds the runs of a session in a file, and its header. Lines after the header of
// another session are not ours, however valid: two logs were concatenated
// (TestRepairLeavesOthersOut). An error is a read error; damage is simply left out of the
// runs.
func (src *Source) Read(id hansard.SessionID) error {
	var cur *run
	// The chain of another session's lines, followed as far as it goes.
	var foreign uint32
	return eachPlace(src.F, 0, func(p place) (more bool, err error) {
		switch {
		case p.Version > 0:
			cur = nil
			uid, ok := ParseUID(p.UID)
			if p.ID != string(id) {
				foreign = p.CRC
				return !src.Log || p.at > 0, nil // a log that begins like this belongs to another session
			}
			// The first one counts. A second header of this session means that a copy of the
			// log was appended to it: its lines are the same, and Assemble already has them.
			if ok && p.Prev == 0 && p.Seq == 0 && src.Head == nil {
				src.raw = append(bytes.Clone(p.b), '\n')
				src.Head, src.at = &Header{Line: p.Line, LogUID: uid, End: int64(len(src.raw))}, p.at
			}
		// Lines whose prev follows another session's line belong to that session, wherever they
		// are.
		case p.Seq == 0 || foreign != 0 && p.Prev == foreign:
			if cur = nil; p.Seq > 0 {
				foreign = p.CRC
			}
		case cur != nil && cur.add(p):
		// It does not follow: something in between is missing, and a new run begins.
		default:
			// A line that can't begin a run is left out: see add.
			if cur = (&run{Src: src, At: p.at, First: p.Line}); !cur.add(p) {
				cur = nil
				break
			}
			src.Runs = append(src.Runs, cur)
		}
		return true, nil
	})
}

// add takes the next line, if it follows (as in Chain.Follow), and tells whether it did.
func (r *run) add(p place) bool {
	if l := r.last; l != nil && (p.Prev != l.CRC || p.Seq != l.Seq+1 || l.Left > 0 && p.Left != l.Left-1 || l.Deleted) {
		return false
	}
	if _, _, ok := offsetsIn(p.b); !ok && (p.MetaAt != 0 || p.TurnAt != 0) {
		return false // its offsets could not be corrected if lines before it change
	}
	r.last, r.end = p.Line, p.at+int64(len(p.b))+1
	r.crcs = append(r.crcs, p.CRC)
	// Where the run may end, if nothing follows it.
	if p.Left == 0 {
		r.whole = p.Seq
	}
	return true
}

// eachPlace calls fn with every intact line of a file, from an offset on, until fn has
// enough. Anything else is skipped; only read errors, and fn's, end it.
func eachPlace(f vfs.File, from int64, fn func(place) (more bool, err error)) error {
	sc := NewScanner(f, from)
	for {
		b, at, err := sc.Next()
		if errors.Is(err, ErrNoLine) {
			// Something longer than any line is damage, and lines may follow it.
			next, err := newlineBehind(f, at)
			if err == nil && next < 0 {
				return lastPlace(f, at, fn)
			}
			if err != nil {
				return err
			}
			sc = NewScanner(f, next)
			continue
		}
		if err != nil {
			return err
		}
		for _, p := range linesIn(b, at) {
			if more, err := fn(p); err != nil || !more {
				return err
			}
		}
	}
}

// lastPlace calls fn with the line at the end of a file if only its newline is damaged.
// Without any byte there it was cut off, and may be part of a batch that was never stored.
func lastPlace(f vfs.File, at int64, fn func(place) (more bool, err error)) error {
	size, err := f.Size()
	if err != nil || size <= at || size-at > MaxLine {
		return err // nothing, or longer than any line
	}
	b := make([]byte, size-at)
	if _, err := f.ReadAt(b, at); err != nil && err != io.EOF {
		return err
	}
	b = b[:len(b)-1]
	if l, err := Decode(b); err == nil {
		_, err := fn(place{l, at, b})
		return err
	}
	return nil
}

// newlineBehind is the offset after the next newline at or after at; -1: there is none. It
// is for damage longer than any line, such as a run of NULs.
func newlineBehind(f vfs.File, at int64) (int64, error) {
	buf := make([]byte, 1<<20)
	for {
		n, err := f.ReadAt(buf, at)
		if i := bytes.IndexByte(buf[:n], '\n'); i >= 0 {
			return at + int64(i) + 1, nil
		}
		// A short read at the end of the file comes with io.EOF: use its bytes first, then go
		// on until nothing is left.
		if err != nil && err != io.EOF || n == 0 {
			if err == io.EOF {
				err = nil
			}
			return -1, err
		}
		at += int64(n)
	}
}

// linesIn decodes what is between two newlines: a line, or nothing, or two lines if the
// newline between them was damaged. One flipped bit there must not cost two intact lines.
func linesIn(b []byte, at int64) (found []place) {
	l, err := Decode(b)
	if err == nil {
		return []place{{l, at, b}}
	}
	// No checksum needed: if b does not end like a line, it does not end with a second line
	// either.
	if _, _, err := checkEnd(b); err != nil {
		return nil
	}
	// From the end: the second line is the one whose checksums end b. Content may look like
	// the beginning of a line, so there may be several places to try; a few are enough.
	for i, looks := len(b), 0; looks < 64; looks++ {
		if i = bytes.LastIndex(b[:i], []byte(`{"seq":`)); i <= 0 {
			break
		}
		second, err := Decode(b[i:])
		if err != nil {
			continue
		}
		// The byte at i-1 was the newline, whatever it is now. If the first line is damaged as
		// well, only the second is kept.
		if first, err := Decode(b[:i-1]); err == nil {
			found = append(found, place{first, at, b[:i-1]})
		}
		return append(found, place{second, at + int64(i), b[i:]})
	}
	return nil
}

// offsetsIn finds the members of a line that are offsets of other lines: b[from:to], empty
// if there are none. It relies on the exact order in which AppendEvent writes. Not ok:
// something else wrote the line, and it can't be changed without parsing and re-encoding,
// which might not keep its bytes.
func offsetsIn(b []byte) (from, to int, ok bool) {
	// A hand-written parser for the few members before the offsets. JSON would allow other
	// spellings of the same line; those are not ok here.
	rest := b
	skip := func(prefix string) bool {
		var found bool
		rest, found = bytes.CutPrefix(rest, []byte(prefix))
		return found
	}
	until := func(set string) { rest = bytes.TrimLeft(rest, set) }
	// Skips past the closing quote; times and grants have no escapes.
	quoted := func() bool {
		i := bytes.IndexAny(rest, `"\`)
		if i < 0 || rest[i] != '"' {
			return false
		}
		rest = rest[i+1:]
		return true
	}
	const digits = "0123456789"
	if !skip(`{"seq":`) {
		return 0, 0, false
	}
	if until(digits); !skip(`,"time":"`) || !quoted() || !skip(`,"b":`) {
		return 0, 0, false
	}
	until(digits)
	if skip(`,"turn":"`) && !quoted() {
		return 0, 0, false
	}
	// The offsets begin here, if there are any.
	from = len(b) - len(rest)
	for _, member := range []string{`,"meta":`, `,"turned":`} {
		if skip(member) {
			until(digits + " ") // earlier versions of repair left spaces
		}
	}
	return from, len(b) - len(rest), bytes.HasPrefix(rest, []byte(`,"`))
}
