package sessionlog

import (
	"bytes"
	"io"
	"time"

	"hansard"
	"hansard/internal/vfs"
)

// What is left of a deleted session once its content has been erased: a header without
// metadata, with the uid and the time of creation that the log had, and a tombstone. The id
// stays taken, and entries of a journal older than the log (a restored backup, a salvaged
// ring) can be recognised as those of the erased log.

// maxErased bounds the length of such a log: an id has at most 128 characters.
const maxErased = 1 << 10

// AppendErased writes all that is left of a deleted session's log.
func AppendErased(dst []byte, id hansard.SessionID, uid uint64, created, deleted time.Time) []byte {
	dst = AppendHeader(dst, id, uid, created.UTC(), 0, hansard.Meta{})
	st := Stamp{Seq: 1, Time: deleted.UTC().Format(TimeLayout), Prev: LineCRC(dst)}
	return AppendEvent(dst, &st, []byte(Tombstone))
}

// ReadErased tells whether a log is exactly what AppendErased writes, byte for byte, and
// returns its uid.
func ReadErased(f vfs.File, id hansard.SessionID) (uid uint64, erased bool, err error) {
	size, err := f.Size()
	if err != nil || size == 0 || size > maxErased {
		return 0, false, err
	}
	b := make([]byte, size)
	if n, err := f.ReadAt(b, 0); err != nil && err != io.EOF || int64(n) < size {
		return 0, false, err
	}
	first, last, _ := bytes.Cut(b, []byte("\n"))
	h, err := Decode(first)
	if err != nil {
		return 0, false, nil
	}
	t, err := Decode(bytes.TrimSuffix(last, []byte("\n")))
	uid, ok := ParseUID(h.UID)
	if err != nil || !ok {
		return 0, false, nil
	}
	return uid, bytes.Equal(b, AppendErased(nil, id, uid, h.Created, t.Time)), nil
}
