package sessionlog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"hansard"
	"hansard/internal/vfs"
)

// Header is the first line of a log. Everything about a session is in its log, so the
// header also says which session it is: a copied or renamed file is noticed.
type Header struct {
	*Line
	LogUID uint64 // random: tells two logs of one id apart, for example after a restore
	End    int64  // offset after it
}

// Head is what a header says.
type Head struct {
	ID      hansard.SessionID
	UID     uint64
	Created time.Time
	Left    int // events in the batch that makes the session
	Meta    hansard.Meta
	Own     int64           // of a fork, see Line
	Parent  *hansard.Parent // of an imported fork
	Was     uint64          // the uid of the deleted log that this one follows; 0: none
}

// AppendHeader writes the first line of a new session. hansard and uid come first and have
// fixed widths: the version is read before anything else is trusted, and the uid is
// compared before an entry is applied (ReadUID). left is how many events are in the batch
// that makes the session; the header belongs to that batch, so a power cut leaves either
// all of it or no session.
func AppendHeader(dst []byte, id hansard.SessionID, uid uint64, created time.Time, left int, m hansard.Meta) []byte {
	return AppendHead(dst, &Head{ID: id, UID: uid, Created: created, Left: left, Meta: m})
}

// AppendReused is AppendHeader for a session whose id was deleted before. was is the uid of
// the deleted log: entries of a journal older than this log can be recognised as that log's.
func AppendReused(dst []byte, id hansard.SessionID, uid, was uint64, created time.Time, m hansard.Meta) []byte {
	return AppendHead(dst, &Head{ID: id, UID: uid, Was: was, Created: created, Meta: m})
}

// AppendHead is AppendHeader with every member that a header may have.
func AppendHead(dst []byte, h *Head) []byte {
	begin := len(dst)
	dst = appendHead(dst, h)
	dst = appendFill(dst, saltDigits+ownRoom+max(0, idRoom-len(h.ID)))
	return AppendSuffix(dst, begin, 0)
}

// A header has room to spare, a member of zeros without meaning: so a fork's header, which
// has another id and says where the fork's own lines begin, can be as long as its parent's.
const (
	idRoom     = 48                                    // a fork may have an id of this length
	ownRoom    = len(`,"own":`) + len("9999999999999") // and say this
	saltDigits = 16                                    // and have any crc, see headerLike
)

func appendHead(dst []byte, h *Head) []byte {
	dst = fmt.Appendf(dst, `{"hansard":%d,"uid":"%016x","id":`, FormatVersion, h.UID)
	dst = appendString(dst, string(h.ID))
	dst = fmt.Appendf(dst, `,"created":"%s","b":%d`, h.Created.UTC().Format(TimeLayout), h.Left)
	if h.Was != 0 {
		dst = fmt.Appendf(dst, `,"was":"%016x"`, h.Was)
	}
	if !h.Meta.IsZero() {
		dst = append(dst, `,"snap":`...)
		dst = append(dst, Marshal(h.Meta)...)
	}
	if h.Parent != nil {
		dst = append(dst, `,"parent":`...)
		dst = append(dst, Marshal(h.Parent)...)
	}
	if h.Own > 0 {
		dst = fmt.Appendf(dst, `,"own":%d`, h.Own)
	}
	return dst
}

func appendFill(dst []byte, zeros int) []byte {
	dst = append(dst, `,"fill":"`...)
	dst = append(dst, bytes.Repeat([]byte{'0'}, zeros)...)
	return append(dst, '"')
}

// Head is what the header says, as a starting point for a changed one.
func (h *Header) Head() Head {
	head := Head{ID: hansard.SessionID(h.ID), UID: h.LogUID, Created: h.Created, Left: h.Left, Own: h.Own, Parent: h.Parent}
	head.Was, _ = ParseUID(h.Was) // empty: none
	if h.Snap != nil {
		head.Meta = *h.Snap
	}
	return head
}

// ReadUID reads the uid in a log's header. It is at a fixed offset, so that apply can
// compare it with the entry's without parsing the line. 0 without an error: the file does
// not begin with one of our headers, so it matches no entry.
func ReadUID(f vfs.File) (uint64, error) {
	var b [len(`{"hansard":1,"uid":"0123456789abcdef"`)]byte
	// A short file leaves zeros in b: the prefix does not match.
	if _, err := f.ReadAt(b[:], 0); err != nil && err != io.EOF {
		return 0, err
	}
	if !bytes.HasPrefix(b[:], []byte(`{"hansard":`)) || string(b[13:20]) != `"uid":"` {
		return 0, nil // not one of our headers
	}
	uid, _ := ParseUID(string(b[20:36]))
	return uid, nil
}

// FollowsDeleted tells whether a log replaced a deleted one with this uid.
func FollowsDeleted(f vfs.File, id hansard.SessionID, uid uint64) bool {
	h, err := ReadHeader(f, id)
	if err != nil || h.Was == "" {
		return false
	}
	was, ok := ParseUID(h.Was)
	return ok && was == uid
}

// ReadHeader reads and checks the first line of a session's log.
//
// io.EOF: the first line is not complete yet. For readers the session does not exist yet; it is not
// damaged (failure F1). io.EOF with a header: a fork whose first own line is missing; the caller
// has to find out whether that is damage. ErrEmptyLog: an empty file, for the caller to judge.
// ErrVersion: another format. DamagedError: it is not, or no longer, the header of this session.
func ReadHeader(f vfs.File, id hansard.SessionID) (*Header, error) {
	b, err := ReadLineAt(f, 0)
	if errors.Is(err, ErrNoLine) {
		if err := beingMade(f, id); err != nil {
			return nil, err
		}
		b, err = ReadLineAt(f, 0) // it is there now
	}
	if err != nil {
		return nil, err
	}
	// Checked before the checksum: a later format may have another one, and must not be
	// called damaged.
	if v := HeaderVersion(b); v > 0 && v != FormatVersion {
		return nil, fmt.Errorf("the log of session %s has format %d, this program reads format %d: %w", id, v, FormatVersion, hansard.ErrVersion)
	}
	l, err := Decode(b)
	if err != nil {
		d := DamagedAt(id, 0, "header: %v", err)
		d.Line = 1
		return nil, d
	}
	// From here on the line is known to be what was written; it may still not be the header
	// of this log.
	uid, ok := ParseUID(l.UID)
	d := DamagedAt(id, 0, "")
	d.Line = 1
	switch {
	case l.Version == 0:
		d.Reason = "the first line is not the header of a log"
	// A file copied to another session's name must not pass for that session's log.
	case l.ID != string(id):
		d.Reason = fmt.Sprintf("the log belongs to session %q", l.ID)
	case !ok || l.Prev != 0 || l.Seq != 0:
		d.Reason = "the header is not valid"
	default:
		h := &Header{Line: l, LogUID: uid, End: int64(len(b)) + 1}
		return h, h.begun(f)
	}
	return nil, d
}

// beingMade judges a log without a complete line. io.EOF: its first line is being written,
// or was when its writer died. ErrEmptyLog: there is nothing at all. Any other bytes are
// damage. Nil: the line has been completed since, so read again.
func beingMade(f vfs.File, id hansard.SessionID) error {
	size, err := f.Size()
	if err != nil {
		return err
	}
	b := make([]byte, min(size, MaxLine))
	n, err := f.ReadAt(b, 0)
	if err != nil && err != io.EOF {
		return err
	}
	// ReadLineAt did not see it: it was written since.
	if bytes.IndexByte(b[:n], '\n') >= 0 {
		return nil
	}
	if looksBegun(b[:n]) && n > 0 {
		return io.EOF
	}
	if n == 0 {
		return ErrEmptyLog
	}
	d := DamagedAt(id, 0, "it has no line of a log")
	d.Line = 1
	return d
}

// ErrEmptyLog is an empty file: a log being created, or one truncated from outside. The two
// look the same here; the entries pending in the ring tell them apart (reader.emptied).
var ErrEmptyLog = errors.New("the log is empty")

// looksBegun tells whether bytes are the beginning of a header, cut off anywhere: what a
// writer leaves if it is killed in its first write to a log.
func looksBegun(b []byte) bool {
	const begin = `{"hansard":`
	n := min(len(b), len(begin))
	return string(b[:n]) == begin[:n] && looksPartial(b)
}

// HeaderVersion reads the version, before anything else in the line is trusted. 0: the line
// is not a header.
func HeaderVersion(b []byte) int {
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
