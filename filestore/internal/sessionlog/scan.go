package sessionlog

import (
	"bytes"
	"errors"
	"io"
	"strconv"

	"hansard"
	"hansard/internal/vfs"
)

// Where lines begin and end in a log, forward and from the end. Nothing here interprets a
// line. The log may grow while it is read: a line without its newline is not there yet, and
// the next read may find it.

// ErrNoLine is the end of the lines: what follows, if anything, has no newline within
// MaxLine. It is not a read error.
var ErrNoLine = errors.New("no complete line")

// ErrLongLine is a line longer than the caller wants to read: under write.lock a long line
// is refused, then read without the lock before it is taken again.
var ErrLongLine = errors.New("the line is longer than is to be read now")

// ReadLineAt reads the line that begins at off, without its newline. ErrNoLine: there is
// none.
func ReadLineAt(f vfs.File, off int64) ([]byte, error) { return ReadLineWithin(f, off, MaxLine) }

// ReadLineWithin is ReadLineAt that reads no more than limit bytes: ErrLongLine if that was
// not enough. It reads 4 KiB first and doubles, so that little is read beyond the line and
// a long one costs no more than twice its length.
func ReadLineWithin(f vfs.File, off int64, limit int) ([]byte, error) {
	var buf []byte
	for size := min(4<<10, limit); ; size = min(2*size, limit) {
		have := len(buf)
		buf = append(make([]byte, 0, size), buf...)[:size]
		n, err := f.ReadAt(buf[have:], off+int64(have))
		if err != nil && err != io.EOF {
			return nil, err
		}
		if i := bytes.IndexByte(buf[have:have+n], '\n'); i >= 0 {
			return buf[: have+i : have+i], nil
		}
		// Fewer bytes than asked for: the file ends here.
		switch {
		case have+n < size, size == MaxLine:
			return nil, ErrNoLine
		case size == limit:
			return nil, ErrLongLine
		}
	}
}

// lineBefore finds the line whose newline is at end-1: where it begins, and its bytes
// without the newline. It reads backwards in doubling steps, so the cost depends on the
// length of the line, not of the log. A line with no newline before it begins the file.
// DamagedError: it is longer than any line can be.
func lineBefore(f vfs.File, end int64) (at int64, b []byte, err error) {
	var buf []byte // up to the newline
	for size := int64(4 << 10); ; size *= 2 {
		begin := max(0, end-1-size)
		more := end - 1 - begin - int64(len(buf))
		buf = append(make([]byte, more, end-1-begin), buf...)
		if _, err := f.ReadAt(buf[:more], begin); err != nil && err != io.EOF {
			return 0, nil, err
		}
		if i := bytes.LastIndexByte(buf[:more], '\n'); i >= 0 {
			return begin + int64(i) + 1, buf[i+1:], nil
		}
		if begin == 0 {
			return 0, buf, nil
		}
		if size > MaxLine {
			return 0, nil, DamagedAt("", begin, "no line ends within %d bytes", size)
		}
	}
}

// lastNewline is the offset after the last newline before size; 0 if there is none. What
// follows is unfinished. DamagedError: there is none within MaxLine, as in a log that ends
// in a long run of NULs (failure 23).
func lastNewline(f vfs.File, size int64) (int64, error) {
	for chunk := int64(4 << 10); ; chunk *= 8 {
		begin := max(0, size-chunk)
		buf := make([]byte, size-begin)
		if _, err := f.ReadAt(buf, begin); err != nil && err != io.EOF {
			return 0, err
		}
		if i := bytes.LastIndexByte(buf, '\n'); i >= 0 || begin == 0 {
			if i < 0 {
				return 0, nil
			}
			return begin + int64(i) + 1, nil
		}
		if chunk > MaxLine {
			return 0, DamagedAt("", begin, "no line ends within %d bytes", chunk)
		}
	}
}

// QuickSeq reads the seq of an event's line without decoding or checking it: bisection
// looks at lines that it does not return. False: it is not an event's line.
func QuickSeq(b []byte) (hansard.Seq, bool) {
	rest, ok := bytes.CutPrefix(b, []byte(`{"seq":`))
	if !ok {
		return 0, false
	}
	n := 0
	for n < len(rest) && n < 20 && '0' <= rest[n] && rest[n] <= '9' {
		n++
	}
	seq, err := strconv.ParseUint(string(rest[:n]), 10, 64)
	return hansard.Seq(seq), err == nil
}

// scanner reads a log line by line, forward, with one read for many lines. It takes no lock
// and has no fixed end: a growing log is read as far as it goes.
type scanner struct {
	f    vfs.File
	At   int64 // offset of the next line
	buf  []byte
	used int    // bytes of buf before the next line
	lent []byte // the line returned last
}

// Spoil overwrites lines that are no longer valid, in tests, so that any further use of one
// is noticed.
var Spoil func([]byte)

// NewScanner begins at the offset at, which must be the beginning of a line.
func NewScanner(f vfs.File, at int64) *scanner {
	room := int64(64 << 10)
	if size, err := f.Size(); err == nil { // a short log needs less
		room = min(room, max(512, size-at+1))
	}
	return &scanner{f: f, At: at, buf: make([]byte, 0, room)}
}

// Next returns the next line, without its newline, and where it begins. The bytes are valid
// until the next call. ErrNoLine is the end, with at after the last complete line; what
// follows may be an unfinished line, or damage longer than any line. Other errors are read
// errors, and Next may be called again.
func (sc *scanner) Next() (b []byte, at int64, err error) {
	if Spoil != nil {
		Spoil(sc.lent)
	}
	// Where the search for the newline continues, so that a long line is not searched again
	// with each read.
	searched := sc.used
	for {
		if i := bytes.IndexByte(sc.buf[searched:], '\n'); i >= 0 {
			b, at = sc.buf[sc.used:searched+i], sc.At
			sc.lent = b
			sc.used = searched + i + 1
			sc.At += int64(len(b)) + 1
			return b, at, nil
		}
		// Make room: drop what was returned, grow for a line that is longer than the buffer.
		rest := copy(sc.buf, sc.buf[sc.used:])
		sc.buf, sc.used, sc.lent = sc.buf[:rest], 0, nil
		searched = rest
		if rest == cap(sc.buf) {
			if rest >= MaxLine {
				return nil, sc.At, ErrNoLine
			}
			sc.buf = append(make([]byte, 0, 4*cap(sc.buf)), sc.buf...)
		}
		n, err := sc.f.ReadAt(sc.buf[rest:cap(sc.buf)], sc.At+int64(rest))
		if err != nil && err != io.EOF {
			return nil, sc.At, err
		}
		if n == 0 {
			return nil, sc.At, ErrNoLine
		}
		sc.buf = sc.buf[:rest+n]
	}
}

// backScanner reads a log line by line from an offset back to its beginning, with one
// read for many lines. Nothing before the offset changes, so the caller may take as long as
// it likes.
type backScanner struct {
	f   vfs.File
	at  int64  // offset of buf
	buf []byte // up to the end of the next line, whose newline is its last byte
}

// backChunk is how much a backScanner reads at once, at least.
const backChunk = 64 << 10

// NewBackScanner begins before the offset end, which must directly follow a newline.
func NewBackScanner(f vfs.File, end int64) *backScanner { return &backScanner{f: f, at: end} }

// Prev returns the line before, without its newline, and where it begins. The bytes are
// valid until the next call. ErrNoLine: there are no more lines, or none begins within
// MaxLine. Other errors are read errors.
func (sc *backScanner) Prev() (b []byte, at int64, err error) {
	searched := len(sc.buf) // nothing after it begins a line
	for {
		// The newline of the line itself is not the one that ends the line before.
		if to := min(searched, len(sc.buf)-1); to > 0 {
			if i := bytes.LastIndexByte(sc.buf[:to], '\n'); i >= 0 {
				b = sc.buf[i+1 : len(sc.buf)-1]
				sc.buf = sc.buf[:i+1]
				return b, sc.at + int64(i) + 1, nil
			}
		}
		if sc.at == 0 || len(sc.buf) > MaxLine {
			if sc.at > 0 || len(sc.buf) == 0 {
				return nil, sc.at, ErrNoLine
			}
			b, sc.buf = sc.buf[:len(sc.buf)-1], nil
			return b, 0, nil
		}
		// Double the buffer, so that a long line costs no more than twice its length.
		more := min(sc.at, max(backChunk, int64(len(sc.buf))))
		grown := make([]byte, more+int64(len(sc.buf)))
		copy(grown[more:], sc.buf)
		n, err := sc.f.ReadAt(grown[:more], sc.at-more)
		if err != nil && err != io.EOF {
			return nil, sc.at, err
		}
		if int64(n) < more {
			return nil, sc.at, ErrNoLine // it was truncated since
		}
		sc.buf, sc.at = grown, sc.at-more
		searched = int(more)
	}
}
