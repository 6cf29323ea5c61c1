package backup

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/zstd"

	"hansard"
	"hansard/internal/wire"
)

// archive writes a backup, block by block. Its first error is sticky: a partly written
// backup is useless.
type archive struct {
	out    io.Writer
	enc    *zstd.Encoder
	at     int64
	number uint64
	prev   digest
	lines  []byte
	packed []byte // reused
	// spool holds the manifest until the sessions are written, so that memory use does not
	// depend on their number.
	spool   *os.File
	entries *bufio.Writer
	content int64
	wrote   func() // called after each block
	err     error
}

func newArchive(out io.Writer, spoolDir string) (*archive, error) {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(lineBlock), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return nil, err
	}
	removeSpools(spoolDir)
	spool, err := os.CreateTemp(spoolDir, spoolPrefix+"*")
	if err != nil {
		return nil, err
	}
	// If the system allows removing an open file, a process that is killed after this leaves
	// nothing behind. Elsewhere close removes it.
	_ = os.Remove(spool.Name())
	return &archive{out: out, enc: enc, spool: spool, entries: bufio.NewWriterSize(spool, 64<<10)}, nil
}

const spoolPrefix = ".hansard-manifest-"

// removeSpools removes the spools of backups that were killed. One in use can be removed as well,
// where open files can be: nobody opens it by its name.
func removeSpools(dir string) {
	left, _ := filepath.Glob(filepath.Join(escapeGlob(cmp.Or(dir, os.TempDir())), spoolPrefix+"*"))
	for _, path := range left {
		_ = os.Remove(path)
	}
}

func (w *archive) close() {
	_ = w.enc.Close()
	_ = w.spool.Close()
	_ = os.Remove(w.spool.Name())
}

// block writes one block.
func (w *archive) block(k kind, content []byte) {
	if w.err != nil {
		return
	}
	if len(content) > maxContent {
		w.err = fmt.Errorf("a block of %d bytes is more than a backup can have", len(content))
		return
	}
	h := header{kind: k, coding: codingFrame, number: w.number, content: uint32(len(content)), prev: w.prev}
	stored := w.packed[:0]
	if k == kindAttachment {
		h.coding = codingPacked
		stored = append(stored, make([]byte, skippedBytes)...)
	}
	stored = w.enc.EncodeAll(content, stored)
	w.packed = stored
	if k == kindAttachment {
		if len(stored) >= len(content)+skippedBytes { // pictures are compressed already
			h.coding = codingSkipped
			stored = append(stored[:skippedBytes], content...)
			w.packed = stored
		}
		frame(stored)
	}
	if len(stored) > maxStored {
		w.err = fmt.Errorf("a block of %d bytes is more than a backup can have", len(stored))
		return
	}
	h.stored, h.sum = uint32(len(stored)), sha256.Sum256(stored)
	head := h.encode()
	w.write(head)
	w.write(stored)
	w.number++
	w.prev = sha256.Sum256(head)
	w.content += int64(len(content))
	if w.wrote != nil {
		w.wrote()
	}
}

func (w *archive) write(b []byte) {
	if w.err == nil {
		var n int
		n, w.err = w.out.Write(b)
		w.at += int64(n)
	}
}

// put writes a line.
func (w *archive) put(l line) { w.putLine(wire.Marshal(l)) }

func (w *archive) putLine(text []byte) {
	w.lines = append(append(w.lines, text...), '\n')
	if len(w.lines) >= lineBlock {
		w.flush()
	}
}

// flush writes the buffered lines.
func (w *archive) flush() {
	if len(w.lines) == 0 {
		return
	}
	w.block(kindLines, w.lines)
	w.lines = w.lines[:0]
	if cap(w.lines) > 4*lineBlock { // do not keep the memory of one huge event
		w.lines = nil
	}
	if cap(w.packed) > 4*lineBlock {
		w.packed = nil
	}
}

// attachment writes an attachment. It returns errors of the reader; what was written before
// that stays in the backup, and readers of the backup can tell that it is incomplete.
func (w *archive) attachment(a attachLine, r io.Reader) error {
	w.put(line{Attachment: &a})
	w.flush()
	piece := make([]byte, min(attachmentPiece, a.Size+1))
	for rest := a.Size; ; {
		n, err := io.ReadFull(r, piece)
		if n > 0 {
			if rest -= int64(n); rest < 0 {
				return fmt.Errorf("%w: it has more than its %d bytes", hansard.ErrDamaged, a.Size)
			}
			w.block(kindAttachment, piece[:n])
		}
		switch {
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
			if rest > 0 {
				return fmt.Errorf("%w: it ends %d bytes too soon", hansard.ErrDamaged, rest)
			}
			return nil
		case err != nil:
			return err
		case w.err != nil:
			return nil // the error is kept in w.err
		}
	}
}

// entry adds a session to the manifest.
func (w *archive) entry(e *Entry) {
	if w.err == nil {
		_, w.err = w.entries.Write(append(wire.Marshal(e), '\n'))
	}
}

// finish writes the manifest and the end.
func (w *archive) finish(t *Totals) error {
	w.flush()
	t.Manifest, t.Bytes = w.at, w.content
	if err := w.entries.Flush(); w.err == nil {
		w.err = err
	}
	if _, err := w.spool.Seek(0, io.SeekStart); w.err == nil {
		w.err = err
	}
	chunk := make([]byte, 0, 1<<20)
	for r := bufio.NewReaderSize(w.spool, 64<<10); w.err == nil; {
		text, err := r.ReadBytes('\n')
		chunk = append(chunk, text...)
		if len(chunk) > 0 && (err != nil || len(chunk) >= 1<<20) {
			w.block(kindManifest, chunk)
			chunk = chunk[:0]
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if w.err == nil {
			w.err = err
		}
	}
	end := w.at
	w.block(kindEnd, append(wire.Marshal(line{End: t}), '\n'))
	w.write(encodeTrailer(end))
	return w.err
}

// decodeLine reads a line that is not an event.
func decodeLine(text []byte) (line, error) {
	var l line
	if len(text) > maxRecord {
		return l, errors.New("a line is longer than any of its kind can be")
	}
	if err := json.Unmarshal(bytes.TrimSuffix(text, []byte("\n")), &l); err != nil {
		return l, fmt.Errorf("a line can't be read: %v", err)
	}
	return l, nil
}
