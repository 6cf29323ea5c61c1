package filestore

import (
	"bytes"
	"errors"
	"io"
	"strconv"

	"hansard"
	"hansard/internal/vfs"
)

// Where lines begin and end in a log, forward and from the end.

// errNoLine is the end of the lines: what follows has no newline.
var errNoLine = errors.New("no complete line")

// readLineAt reads the line that begins at off, without its newline.
func readLineAt(f vfs.File, off int64) ([]byte, error) {
	for size := 4 << 10; ; size *= 8 {
		buf := make([]byte, min(size, maxLineBytes))
		n, err := f.ReadAt(buf, off)
		if err != nil && err != io.EOF {
			return nil, err
		}
		if i := bytes.IndexByte(buf[:n], '\n'); i >= 0 {
			return buf[:i:i], nil
		}
		if n < len(buf) || len(buf) == maxLineBytes {
			return nil, errNoLine
		}
	}
}

// lineBefore finds the line whose newline is at end-1: where it begins and what
// it is, without the newline.
func lineBefore(f vfs.File, end int64) (at int64, b []byte, err error) {
	for size := int64(4 << 10); ; size *= 8 {
		begin := max(0, end-1-size)
		buf := make([]byte, end-1-begin)
		if _, err := f.ReadAt(buf, begin); err != nil && err != io.EOF {
			return 0, nil, err
		}
		if i := bytes.LastIndexByte(buf, '\n'); i >= 0 {
			return begin + int64(i) + 1, buf[i+1:], nil
		}
		if begin == 0 {
			return 0, buf, nil
		}
		if size > maxLineBytes {
			return 0, nil, damagedAt("", begin, "no line ends within %d bytes", size)
		}
	}
}

// lastNewline is the offset behind the last newline before size; 0 if none.
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
		if chunk > maxLineBytes {
			return 0, damagedAt("", begin, "no line ends within %d bytes", chunk)
		}
	}
}

// quickSeq reads the seq of an event's line without decoding it.
func quickSeq(b []byte) (hansard.Seq, bool) {
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

// scanner reads a log line by line, forward.
type scanner struct {
	f    vfs.File
	at   int64 // of the next line
	buf  []byte
	used int // bytes of buf before the next line
}

func newScanner(f vfs.File, at int64) *scanner {
	room := int64(64 << 10)
	if size, err := f.Size(); err == nil { // no more than a short log needs
		room = min(room, max(512, size-at+1))
	}
	return &scanner{f: f, at: at, buf: make([]byte, 0, room)}
}

// next gives the next line, without its newline, and where it begins; it is
// good until the next call. errNoLine is the end.
func (sc *scanner) next() (b []byte, at int64, err error) {
	searched := sc.used
	for {
		if i := bytes.IndexByte(sc.buf[searched:], '\n'); i >= 0 {
			b, at = sc.buf[sc.used:searched+i], sc.at
			sc.used = searched + i + 1
			sc.at += int64(len(b)) + 1
			return b, at, nil
		}
		// Make room: drop what was given, grow for a line that is longer.
		rest := copy(sc.buf, sc.buf[sc.used:])
		sc.buf, sc.used = sc.buf[:rest], 0
		searched = rest
		if rest == cap(sc.buf) {
			if rest >= maxLineBytes {
				return nil, sc.at, errNoLine
			}
			sc.buf = append(make([]byte, 0, 4*cap(sc.buf)), sc.buf...)
		}
		n, err := sc.f.ReadAt(sc.buf[rest:cap(sc.buf)], sc.at+int64(rest))
		if err != nil && err != io.EOF {
			return nil, sc.at, err
		}
		if n == 0 {
			return nil, sc.at, errNoLine
		}
		sc.buf = sc.buf[:rest+n]
	}
}
