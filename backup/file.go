package backup

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"time"

	"hansard"
)

// File is a backup that is open for reading.
type File struct {
	path   string
	f      io.ReaderAt
	closer io.Closer
	size   int64
	head   head
	totals Totals
	end    int64  // where its end block begins
	last   header // of the end block
	digest digest // of that header
	broken bool   // the end block is missing or can't be read
}

// OpenFile opens a backup. It reads only the beginning and the end. It returns a
// [NotWholeError] for a file that was cut off.
func OpenFile(path string) (*File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &NotWholeError{Path: path, Reason: "it is not a file"}
	}
	var opened *File
	if err == nil {
		opened, err = newFile(path, f, info.Size())
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	opened.closer = f
	return opened, nil
}

func newFile(path string, f io.ReaderAt, size int64) (*File, error) {
	b := &File{path: path, f: f, size: size}
	if err := b.readHead(); err != nil {
		return nil, err
	}
	if err := b.readEnd(); err != nil {
		return nil, err
	}
	return b, nil
}

// openBroken opens a backup whose end, or even head, can't be read.
func openBroken(path string, number int) (*File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, err
	}
	b := &File{path: path, f: f, closer: f, size: info.Size(), broken: true}
	if b.readHead() != nil {
		b.head = head{Number: number}
	}
	return b, nil
}

// readHead reads the first line.
func (b *File) readHead() error {
	begin := make([]byte, headerBytes)
	if n, err := b.f.ReadAt(begin, 0); n < headerBytes {
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		return &NotWholeError{Path: b.path, Reason: "it is too short"}
	}
	if !bytes.Equal(begin[8:16], []byte(magic)) {
		return &NotWholeError{Path: b.path, Reason: "it does not begin as one"}
	}
	r := b.blocks(0)
	defer r.close()
	s := scanner{r: r}
	it, err := s.next()
	if err != nil {
		return err
	}
	if it.line.Backup == nil {
		return r.damaged(0, "its first line does not say which backup it is")
	}
	b.head = *it.line.Backup
	if b.head.Number < 0 || (b.head.Number == 0) != (b.head.Base == "") {
		return r.damaged(0, "its first line contradicts itself")
	}
	return nil
}

// readEnd reads the end block.
func (b *File) readEnd() error {
	cut := &NotWholeError{Path: b.path, Begun: true, Reason: "its end is missing"}
	if b.size < headerBytes+trailerBytes {
		return cut
	}
	trailer := make([]byte, trailerBytes)
	if _, err := b.f.ReadAt(trailer, b.size-trailerBytes); err != nil {
		return err
	}
	end, ok := decodeTrailer(trailer)
	if !ok || end < 0 || end > b.size-trailerBytes-headerBytes {
		return cut
	}
	raw := make([]byte, headerBytes)
	if _, err := b.f.ReadAt(raw, end); err != nil {
		return err
	}
	r := b.blocks(end)
	defer r.close()
	h, err := decodeHeader(raw)
	if err != nil || h.kind != kindEnd || end+headerBytes+int64(h.stored) != b.size-trailerBytes {
		return r.damaged(end, "its end block can't be read")
	}
	r.expect(h.number, h.prev)
	if _, err := r.next(); err != nil {
		return err
	}
	text, err := r.line()
	if err != nil {
		return err
	}
	l, err := decodeLine(text)
	if err != nil || l.End == nil || l.End.Manifest < 0 || l.End.Manifest > end {
		return r.damaged(end, "its end block can't be read")
	}
	b.totals, b.end, b.last, b.digest = *l.End, end, h, sha256.Sum256(raw)
	return nil
}

// Path is the name it was opened by.
func (b *File) Path() string { return b.path }

// Digest identifies the backup: no other has the same.
func (b *File) Digest() string { return b.digest.String() }

// Base is the digest of the backup that this one is an increment of; empty for a full backup.
func (b *File) Base() string { return b.head.Base }

// Number is 0 for a full backup, and one more than that of its base for an increment.
func (b *File) Number() int { return b.head.Number }

// Started is when the backup began: everything acknowledged before that is in it.
func (b *File) Started() time.Time { return b.head.Started }

// Store is the identity of the store it was made from, empty if the store had none.
func (b *File) Store() string { return b.head.Store }

// Totals says how much the backup contains.
func (b *File) Totals() Totals { return b.totals }

// Size is the size of the file in bytes.
func (b *File) Size() int64 { return b.size }

// Close closes the file.
func (b *File) Close() error {
	if b.closer == nil {
		return nil
	}
	return b.closer.Close()
}

// Entries yields the manifest: every session that the store had, by ascending id.
func (b *File) Entries() iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		if b.broken {
			yield(Entry{}, &NotWholeError{Path: b.path, Begun: true, Reason: "its manifest is missing"})
			return
		}
		r := b.blocks(b.totals.Manifest)
		defer r.close()
		var last hansard.SessionID
		for {
			h, err := r.next()
			if err != nil {
				yield(Entry{}, err)
				return
			}
			if h.kind == kindEnd && r.began == b.end {
				return
			}
			if h.kind != kindManifest {
				yield(Entry{}, r.damaged(r.began, "there is something else in the manifest"))
				return
			}
			for {
				text, err := r.line()
				if errors.Is(err, io.EOF) {
					break
				}
				var e Entry
				if err == nil {
					e, err = decodeEntry(text)
					if err == nil && e.ID <= last {
						err = fmt.Errorf("session %s is not in order", e.ID)
					}
					if err != nil {
						err = r.damaged(r.began, err.Error())
					}
				}
				if err != nil {
					yield(Entry{}, err)
					return
				}
				last = e.ID
				if !yield(e, nil) {
					return
				}
			}
		}
	}
}
