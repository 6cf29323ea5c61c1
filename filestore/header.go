package filestore

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"

	"hansard"
	"hansard/internal/vfs"
)

// header is the first line of a log.
type header struct {
	*line
	uid uint64
	end int64 // behind it
}

// readUID reads the uid in a log's header: it stands at a fixed place, so that
// it can be compared without reading the whole line.
func readUID(f vfs.File) (uint64, error) {
	var b [len(`{"hansard":1,"uid":"0123456789abcdef"`)]byte
	if _, err := f.ReadAt(b[:], 0); err != nil && err != io.EOF {
		return 0, err
	}
	if !bytes.HasPrefix(b[:], []byte(`{"hansard":`)) || string(b[13:20]) != `"uid":"` {
		return 0, nil // none of ours
	}
	uid, _ := parseUID(string(b[20:36]))
	return uid, nil
}

// readHeader reads and checks the first line of a session's log. io.EOF is a
// log whose first line is not there yet.
func readHeader(f vfs.File, id hansard.SessionID) (*header, error) {
	b, err := readLineAt(f, 0)
	if errors.Is(err, errNoLine) {
		if err := beingMade(f, id); err != nil {
			return nil, err
		}
		b, err = readLineAt(f, 0) // it is there now
	}
	if err != nil {
		return nil, err
	}
	if v := headerVersion(b); v > formatVersion {
		return nil, fmt.Errorf("the log of session %s has format %d: %w", id, v, hansard.ErrVersion)
	}
	l, err := decodeLine(b)
	if err != nil {
		d := damagedAt(id, 0, "header: %v", err)
		d.Line = 1
		return nil, d
	}
	uid, ok := parseUID(l.UID)
	d := damagedAt(id, 0, "")
	d.Line = 1
	switch {
	case l.Version == 0:
		d.Reason = "the first line is not the header of a log"
	case l.ID != string(id):
		d.Reason = fmt.Sprintf("the log belongs to session %q", l.ID)
	case !ok || l.prev != 0 || l.Seq != 0:
		d.Reason = "the header is not valid"
	default:
		return &header{line: l, uid: uid, end: int64(len(b)) + 1}, nil
	}
	return nil, d
}

// beingMade tells whether a log without a line is one whose first line is being
// written: io.EOF; anything else is damage. Nil: the line has come meanwhile.
func beingMade(f vfs.File, id hansard.SessionID) error {
	size, err := f.Size()
	if err != nil {
		return err
	}
	b := make([]byte, min(size, maxLineBytes))
	n, err := f.ReadAt(b, 0)
	if err != nil && err != io.EOF {
		return err
	}
	if bytes.IndexByte(b[:n], '\n') >= 0 {
		return nil
	}
	if looksBegun(b[:n]) && n > 0 {
		return io.EOF
	}
	if n == 0 {
		return errEmptyLog
	}
	d := damagedAt(id, 0, "it has no line of a log")
	d.Line = 1
	return d
}

// errEmptyLog is a log of no bytes: being made, or emptied by somebody else.
var errEmptyLog = errors.New("the log is empty")

// looksBegun tells whether bytes are the beginning of a header.
func looksBegun(b []byte) bool {
	const begin = `{"hansard":`
	n := min(len(b), len(begin))
	return string(b[:n]) == begin[:n] && looksPartial(b)
}

// headerVersion reads the version before anything else of the line is believed.
func headerVersion(b []byte) int {
	rest, ok := bytes.CutPrefix(b, []byte(`{"hansard":`))
	if !ok {
		return 0
	}
	n := 0
	for n < len(rest) && '0' <= rest[n] && rest[n] <= '9' {
		n++
	}
	v, _ := strconv.Atoi(string(rest[:n]))
	return v
}
