package engine

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"

	"hansard"
)

// Attachments of events, and readers that check their digest.

// NoAttachment is the error for a digest under which a session has no attachment.
func NoAttachment(session hansard.SessionID, digest string) error {
	return fmt.Errorf("%w in session %s: %s", hansard.ErrNoAttachment, session, digest)
}

// NamedBy returns the attachments that events name, each pair of digest and size once.
func NamedBy(events []hansard.Event) (list []hansard.Attachment) {
	seen := map[hansard.Attachment]bool{}
	for i := range events {
		for _, a := range events[i].Attachments {
			if plain := (hansard.Attachment{Digest: a.Digest, Size: a.Size}); !seen[plain] {
				seen[plain] = true
				list = append(list, a)
			}
		}
	}
	return list
}

// CheckNamed checks that a session has the attachments that events name; size looks up
// the size of the one with a digest. Engines call it where they order writes.
func CheckNamed(session hansard.SessionID, named []hansard.Attachment, size func(digest string) (int64, bool)) error {
	for _, a := range named {
		switch n, ok := size(a.Digest); {
		case !ok:
			return NoAttachment(session, a.Digest)
		case n != a.Size:
			return invalid("attachments", "%s is said to have %d bytes, and has %d", a.Digest, a.Size, n)
		}
	}
	return nil
}

// CopyAttachment copies a reader of at most most bytes, and returns their digest and size.
func CopyAttachment(w io.Writer, r io.Reader, most int64) (hansard.Attachment, error) {
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(w, sum), io.LimitReader(r, most+1))
	if err == nil && n > most {
		err = &hansard.InvalidError{Field: "attachment", TooLarge: true, Reason: fmt.Sprintf("it has more than %d bytes", most)}
	}
	if err != nil {
		return hansard.Attachment{}, err
	}
	return hansard.Attachment{Digest: digestOf(sum), Size: n}, nil
}

func digestOf(sum hash.Hash) string { return hansard.DigestPrefix + hex.EncodeToString(sum.Sum(nil)) }

// ReadAttachment makes the reader of an attachment: if it is read from start to end without
// a gap, the bytes are compared with the digest.
func ReadAttachment(r io.ReadSeekCloser, session hansard.SessionID, a hansard.Attachment) hansard.AttachmentReader {
	return &checkedReader{ReadSeekCloser: r, session: session, attachment: a, sum: sha256.New()}
}

type checkedReader struct {
	io.ReadSeekCloser
	session    hansard.SessionID
	attachment hansard.Attachment
	sum        hash.Hash // of all before at
	at         int64
	partly     bool // a seek skipped bytes: there is nothing to compare
}

func (r *checkedReader) Size() int64 { return r.attachment.Size }

// Read compares at the end, or as soon as there are too many bytes.
func (r *checkedReader) Read(p []byte) (int, error) {
	n, err := r.ReadSeekCloser.Read(p)
	r.sum.Write(p[:n])
	r.at += int64(n)
	if r.partly || err != nil && err != io.EOF || err == nil && r.at <= r.attachment.Size {
		return n, err
	}
	if r.at != r.attachment.Size || digestOf(r.sum) != r.attachment.Digest {
		return n, fmt.Errorf("%w: attachment %s of session %s has other bytes than its digest says", hansard.ErrDamaged, r.attachment.Digest, r.session)
	}
	return n, err
}

func (r *checkedReader) Seek(offset int64, whence int) (int64, error) {
	at, err := r.ReadSeekCloser.Seek(offset, whence)
	switch {
	case err != nil:
	case at == 0:
		r.at, r.partly = 0, false
		r.sum.Reset()
	case at != r.at:
		r.at, r.partly = at, true
	}
	return at, err
}
