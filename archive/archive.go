// Package archive is a session as a file: everything a store knows about it, one JSON
// object per line, so that it can be kept, sent and imported again unchanged.
//
// The first line says what it is and how the session began. Then come the events in order,
// each with its exact data, the idempotency keys after the batches they belong to, and
// attachments, in pieces, before the events that name them. The last line has the
// session's metadata, and a SHA-256 over all bytes before it.
//
//	{"hansard":"session","version":1,"origin":{"id":"demo","created":…,"meta":{…},"deleted":false}}
//	{"attachment":{"digest":"sha256:…","size":3},"piece":"YWJj"}
//	{"event":{"seq":1,…,"data":…}}
//	{"key":{"key":…,"hash":…,"first":1,"last":1}}
//	{"end":{"info":{…},"events":1,"keys":1,"attachments":1,"sha256":"…"}}
//
// [Write] makes one from any store that is an [hansard.Exporter]. [Open] checks one and is
// an Exporter itself, so that [hansard.Copy] copies its sessions to any other store,
// continues where an earlier attempt ended, and compares both ends.
package archive

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"iter"

	"hansard"
	"hansard/internal/wire"
)

// Version is that of the format.
const Version = 1

// pieceBytes is how much of an attachment is on one line.
const pieceBytes = 384 << 10

// head is the first line.
type head struct {
	Hansard string         `json:"hansard"`
	Version int            `json:"version"`
	Origin  hansard.Origin `json:"origin"`
}

// end is the last line.
type end struct {
	Info        hansard.Info `json:"info"`
	Events      hansard.Seq  `json:"events"`
	Keys        int          `json:"keys"`
	Attachments int          `json:"attachments"`
	SHA256      string       `json:"sha256"`
}

// Write writes a session as it is now. Events appended in the meantime are not included.
// For a damaged session it returns an error, and the file lacks its last line.
func Write(ctx context.Context, src hansard.Exporter, id hansard.SessionID, w io.Writer) error {
	info, err := src.Stat(ctx, id)
	if err != nil {
		return err
	}
	if info.Damage != nil {
		return info.Damage
	}
	origin, err := originOf(ctx, src, id)
	if err != nil {
		return err
	}
	out := &writer{w: w, sum: sha256.New(), attached: map[string]bool{}}
	info.Turn, info.Bytes = nil, 0 // they hold only for this store, at this moment
	out.end.Info = info
	out.line(wire.Marshal(head{"session", Version, origin}))
	if err := out.events(ctx, src, &info); err != nil {
		return err
	}
	out.end.SHA256 = hex.EncodeToString(out.sum.Sum(nil))
	out.line([]byte(`{"end":` + string(wire.Marshal(out.end)) + `}`))
	return out.err
}

// originOf finds how a session began.
func originOf(ctx context.Context, src hansard.Exporter, id hansard.SessionID) (hansard.Origin, error) {
	// Origins come by ascending id, and only few are between an id and itself
	// without its last character.
	for o, err := range src.Origins(ctx, id[:len(id)-1]) {
		if err != nil {
			return o, err
		}
		if o.ID == id {
			return o, nil
		}
		if o.ID > id {
			break
		}
	}
	return hansard.Origin{}, fmt.Errorf("session %s: %w", id, hansard.ErrNotFound)
}

// writer writes lines. Its first error sticks.
type writer struct {
	w        io.Writer
	sum      hash.Hash
	err      error
	end      end
	attached map[string]bool
}

func (w *writer) line(line []byte) {
	if w.err != nil {
		return
	}
	line = append(line, '\n')
	w.sum.Write(line)
	_, w.err = w.w.Write(line)
}

func (w *writer) events(ctx context.Context, src hansard.Exporter, info *hansard.Info) error {
	keys, stop := iter.Pull2(src.Keys(ctx, info.ID, 0))
	defer stop()
	key, err, more := keys()
	for e, readErr := range src.Read(ctx, info.ID, hansard.Range{Before: info.LastSeq + 1}) {
		if err := errors.Join(readErr, err, w.err); err != nil {
			return err
		}
		for _, a := range e.Attachments {
			if err := w.attachment(ctx, src, info.ID, a); err != nil {
				return err
			}
		}
		w.line(append(wire.AppendExactLine([]byte(`{"event":`), &e), '}'))
		w.end.Events = e.Seq
		for more && err == nil && key.Last <= e.Seq {
			w.line([]byte(`{"key":` + string(wire.Marshal(key)) + `}`))
			w.end.Keys++
			key, err, more = keys()
		}
	}
	if w.end.Events != info.LastSeq && w.err == nil && err == nil {
		return fmt.Errorf("session %s ends at seq %d, not %d", info.ID, w.end.Events, info.LastSeq)
	}
	return errors.Join(err, w.err)
}

// attachment writes an attachment, once.
func (w *writer) attachment(ctx context.Context, src hansard.Exporter, id hansard.SessionID, a hansard.Attachment) error {
	if w.attached[a.Digest] {
		return nil
	}
	w.attached[a.Digest] = true
	w.end.Attachments++
	r, err := src.OpenAttachment(ctx, id, a.Digest)
	if err != nil {
		return err
	}
	defer r.Close()
	name := wire.Marshal(hansard.Attachment{Digest: a.Digest, Size: r.Size()})
	buf := make([]byte, pieceBytes)
	for written := false; ; written = true {
		n, err := io.ReadFull(r, buf)
		if n > 0 || !written {
			line := append(append([]byte(`{"attachment":`), name...), `,"piece":"`...)
			line = base64.StdEncoding.AppendEncode(line, buf[:n])
			w.line(append(line, `"}`...))
		}
		switch {
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
			return w.err
		case err != nil:
			return err
		case w.err != nil:
			return w.err
		}
	}
}

// Is reports whether a file begins as an archive does.
func Is(beginning []byte) bool {
	var h head
	dec := json.NewDecoder(bytes.NewReader(beginning))
	return dec.Decode(&h) == nil && h.Hansard == "session" && h.Version > 0
}
