package backup

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"

	"hansard"
	"hansard/internal/wire"
)

// blocks reads the blocks of a backup, one after the other, and verifies their checksums.
type blocks struct {
	file   *File
	dec    *zstd.Decoder
	at     int64 // offset of the next header
	began  int64 // offset of the block that was read last
	header header
	// number and prev are the values that the next header has to have, if known.
	number uint64
	prev   digest
	known  bool
	body   *bufio.Reader // the content of a block of lines
	count  *counter
	stored bytes.Buffer
}

// counter counts the bytes read from a block's content.
type counter struct {
	r    io.Reader
	n    int64
	most int64
}

var errLonger = errors.New("a block has more content than it says")

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	if c.n += int64(n); c.n > c.most {
		return 0, errLonger
	}
	return n, err
}

// blocks reads from an offset on; from 0 on it knows what the first header must contain.
func (b *File) blocks(at int64) *blocks {
	r := &blocks{file: b, at: at}
	if at == 0 {
		r.expect(0, digest{})
	}
	return r
}

func (r *blocks) close() {
	if r.dec != nil {
		r.dec.Close()
	}
}

func (r *blocks) expect(number uint64, prev digest) { r.number, r.prev, r.known = number, prev, true }

func (r *blocks) damaged(at int64, reason string) error {
	return &DamageError{Path: r.file.path, Offset: at, Reason: reason}
}

// next reads a block. Lines are read with line, a piece of an attachment with piece.
func (r *blocks) next() (header, error) {
	h, err := r.nextHeader()
	if err != nil {
		return h, err
	}
	stored, err := r.load(h)
	if err != nil {
		return h, err
	}
	if h.kind == kindAttachment {
		return h, nil
	}
	if r.dec == nil {
		if r.dec, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(2*lineBlock)); err != nil {
			return h, err
		}
	}
	if err := r.dec.Reset(bytes.NewReader(stored)); err != nil {
		return h, r.damaged(r.began, err.Error())
	}
	r.count = &counter{r: r.dec, most: int64(h.content)}
	if r.body == nil {
		r.body = bufio.NewReaderSize(r.count, 64<<10)
	} else {
		r.body.Reset(r.count)
	}
	return h, nil
}

// nextHeader reads a header and checks that it follows the previous one.
func (r *blocks) nextHeader() (header, error) {
	raw := make([]byte, headerBytes)
	if n, err := r.file.f.ReadAt(raw, r.at); n < headerBytes {
		if err != nil && !errors.Is(err, io.EOF) {
			return header{}, err
		}
		return header{}, &NotWholeError{Path: r.file.path, Begun: true, Reason: fmt.Sprintf("it ends at byte %d, inside a block", r.at+int64(n))}
	}
	h, err := decodeHeader(raw)
	switch {
	case errors.Is(err, hansard.ErrVersion):
		return h, fmt.Errorf("%s: %w", r.file.path, err)
	case err != nil:
		return h, r.damaged(r.at, err.Error())
	case r.known && (h.number != r.number || h.prev != r.prev):
		return h, r.damaged(r.at, fmt.Sprintf("block %d is not the one that follows", h.number))
	}
	r.header, r.began = h, r.at
	r.at += headerBytes + int64(h.stored)
	r.expect(h.number+1, sha256.Sum256(raw))
	return h, nil
}

// resync searches for the next valid header, from where the next one should be. It returns
// false if there is none.
func (r *blocks) resync() (bool, error) {
	r.known = false
	const step = 1 << 20
	window := make([]byte, step+headerBytes)
	for at := r.at; at < r.file.size; at += step {
		n, err := r.file.f.ReadAt(window, at)
		if err != nil && !errors.Is(err, io.EOF) {
			return false, err
		}
		for from := 0; ; from++ {
			i := bytes.Index(window[from:n], []byte(magic))
			if i < 0 {
				break
			}
			from += i
			begin := from - magicAt
			if begin < 0 || begin+headerBytes > n || begin >= step {
				continue
			}
			if _, err := decodeHeader(window[begin : begin+headerBytes]); err == nil {
				r.at = at + int64(begin)
				return true, nil
			}
		}
	}
	return false, nil
}

// load reads the stored bytes of the block of the last header.
func (r *blocks) load(h header) ([]byte, error) {
	if r.stored.Cap() > 4*lineBlock {
		r.stored = bytes.Buffer{}
	}
	r.stored.Reset()
	// The buffer grows with what is read: the length in the header is not trusted.
	if _, err := io.Copy(&r.stored, io.NewSectionReader(r.file.f, r.began+headerBytes, int64(h.stored))); err != nil {
		return nil, err
	}
	stored := r.stored.Bytes()
	if len(stored) < int(h.stored) {
		return nil, &NotWholeError{Path: r.file.path, Begun: true, Reason: fmt.Sprintf("it ends at byte %d, inside a block", r.began+headerBytes+int64(len(stored)))}
	}
	if sha256.Sum256(stored) != h.sum {
		return nil, r.damaged(r.began, "the checksum of a block is wrong")
	}
	return stored, nil
}

// line returns a copy of the next line of a block of lines, with its newline, and io.EOF
// after the last.
func (r *blocks) line() ([]byte, error) {
	var text []byte
	for {
		chunk, err := r.body.ReadSlice('\n')
		text = append(text, chunk...)
		switch {
		case err == nil:
			return text, nil
		case len(text) > maxLine:
			return nil, r.damaged(r.began, "a line is longer than any can be")
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(text) == 0 && r.count.n == r.count.most:
			return nil, io.EOF
		case errors.Is(err, io.EOF):
			return nil, r.damaged(r.began, "a block ends too soon")
		default:
			return nil, r.damaged(r.began, err.Error())
		}
	}
}

// piece is the content of a block of an attachment.
func (r *blocks) piece() ([]byte, error) {
	content, ok := unframe(r.stored.Bytes())
	if !ok {
		return nil, r.damaged(r.began, "a piece of an attachment can't be read")
	}
	if r.header.coding == codingPacked {
		dec, err := zstd.NewReader(bytes.NewReader(content), zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(2*lineBlock))
		if err != nil {
			return nil, err
		}
		defer dec.Close()
		content, err = io.ReadAll(io.LimitReader(dec, int64(r.header.content)+1))
		if err != nil {
			return nil, r.damaged(r.began, err.Error())
		}
	}
	if len(content) != int(r.header.content) {
		return nil, r.damaged(r.began, "a piece of an attachment has another size than it says")
	}
	return content, nil
}

// item is one element of a session in a backup: a line that is not an event, and if it is
// the line of a part, its events.
type item struct {
	line   line
	events []hansard.Event
	at     int64 // where its block begins
	over   bool  // the manifest begins here: there are no more sessions
}

// scanner reads the sessions of a backup.
type scanner struct {
	r       *blocks
	inLines bool
	// ahead is true if the reader's current block has not been handled yet.
	ahead bool
	rest  int64  // bytes still to come of the attachment announced last
	lost  bool   // something was skipped: ignore everything before the next session
	read  func() // called after each piece of an attachment; may be nil
}

// resync continues after damage, at the next valid block. It returns false if there is none.
func (s *scanner) resync() (bool, error) {
	s.inLines, s.ahead, s.rest, s.lost = false, false, 0, true
	return s.r.resync()
}

// nextSession returns the next line that begins a session.
func (s *scanner) nextSession() (item, error) {
	for {
		text, over, err := s.line()
		if err != nil || over {
			return item{over: over, at: s.r.began}, err
		}
		if l, err := decodeLine(text); err == nil && l.Session != nil && hansard.CheckID(l.Session.ID) == nil {
			s.lost = false
			return item{line: l, at: s.r.began}, nil
		}
	}
}

// next returns the next item. It skips what is left of an attachment.
func (s *scanner) next() (item, error) {
	for s.rest > 0 {
		if more, err := s.pieceAhead(); err != nil {
			return item{}, err
		} else if !more {
			break
		}
		s.rest -= int64(s.r.header.content)
		s.ahead = false
	}
	s.rest = 0
	if s.lost {
		return s.nextSession()
	}
	text, over, err := s.line()
	if err != nil || over {
		return item{over: over, at: s.r.began}, err
	}
	it := item{at: s.r.began}
	if it.line, err = decodeLine(text); err != nil {
		return it, s.r.damaged(it.at, err.Error())
	}
	switch l := &it.line; {
	case l.Part != nil:
		if it.events, err = s.part(l.Part); err != nil {
			return it, err
		}
	case l.Attachment != nil:
		if hansard.CheckDigest(l.Attachment.Digest) != nil || l.Attachment.Size < 0 || l.Attachment.Size > hansard.MaxAttachmentBytes {
			return it, s.r.damaged(it.at, "an attachment that can't be")
		}
		s.rest = l.Attachment.Size
	case l.Session != nil:
		if err := hansard.CheckID(l.Session.ID); err != nil {
			return it, s.r.damaged(it.at, err.Error())
		}
	case l.Done == nil && l.Backup == nil:
		return it, s.r.damaged(it.at, "a line that says nothing")
	}
	return it, nil
}

// line returns the next line, or over if the manifest begins instead.
func (s *scanner) line() (text []byte, over bool, err error) {
	for {
		if s.inLines {
			text, err := s.r.line()
			if !errors.Is(err, io.EOF) {
				return text, false, err
			}
			s.inLines = false
		}
		if !s.ahead {
			if _, err := s.r.next(); err != nil {
				return nil, false, err
			}
		}
		s.ahead = false
		switch s.r.header.kind {
		case kindLines:
			s.inLines = true
		case kindAttachment:
			if s.lost {
				continue
			}
			return nil, false, s.r.damaged(s.r.began, "a piece of no attachment")
		default:
			s.ahead = true
			return nil, true, nil
		}
	}
}

// part reads the events of a part.
func (s *scanner) part(p *partLine) ([]hansard.Event, error) {
	if p.Events < 1 || p.Events > 2*hansard.MaxBatchEvents || len(p.Keys) > p.Events {
		return nil, s.r.damaged(s.r.began, fmt.Sprintf("a part of %d events", p.Events))
	}
	var events []hansard.Event
	size := 0
	for range p.Events {
		text, over, err := s.line()
		if err != nil {
			return nil, err
		}
		if over {
			return nil, s.r.damaged(s.r.began, "a part ends too soon")
		}
		if size += len(text); size > 2*maxLine {
			return nil, s.r.damaged(s.r.began, "a part is larger than any can be")
		}
		e, err := wire.ParseEvent(text)
		if err != nil {
			return nil, s.r.damaged(s.r.began, fmt.Sprintf("an event can't be read: %v", err))
		}
		events = append(events, e)
	}
	return events, nil
}

// pieceAhead reports whether the next block is a piece of an attachment.
func (s *scanner) pieceAhead() (bool, error) {
	if s.inLines {
		// The line of an attachment is the last of its block.
		if _, err := s.r.line(); !errors.Is(err, io.EOF) {
			if err == nil {
				err = s.r.damaged(s.r.began, "lines stand where an attachment should be")
			}
			return false, err
		}
		s.inLines = false
	}
	if !s.ahead {
		if _, err := s.r.next(); err != nil {
			return false, err
		}
		s.ahead = true
	}
	if s.r.header.kind != kindAttachment {
		return false, nil
	}
	if n := int64(s.r.header.content); n == 0 || n > s.rest {
		return false, s.r.damaged(s.r.began, "an attachment is longer than it says")
	}
	return true, nil
}

// errCut is returned by an attachment's reader if the backup does not have all of it.
var errCut = errors.New("the backup does not have all of the attachment")

// attachment reads the attachment announced last.
type attachment struct {
	s    *scanner
	left []byte
	err  error // of the backup, not of the attachment
}

func (a *attachment) Read(p []byte) (int, error) {
	if len(a.left) > 0 {
		n := copy(p, a.left)
		a.left = a.left[n:]
		return n, nil
	}
	if a.err != nil {
		return 0, a.err
	}
	if a.s.rest == 0 {
		return 0, io.EOF
	}
	more, err := a.s.pieceAhead()
	switch {
	case err != nil:
		a.err = err
		return 0, err
	case !more:
		return 0, errCut
	}
	if a.left, err = a.s.r.piece(); err != nil {
		a.err = err
		return 0, err
	}
	a.s.rest -= int64(len(a.left))
	a.s.ahead = false
	if a.s.read != nil {
		a.s.read()
	}
	return a.Read(p)
}

func decodeEntry(text []byte) (Entry, error) {
	var e Entry
	if err := json.Unmarshal(text, &e); err != nil {
		return e, fmt.Errorf("an entry can't be read: %v", err)
	}
	if err := hansard.CheckID(e.ID); err != nil {
		return e, err
	}
	if e.From < 0 || e.Offset < 0 {
		return e, fmt.Errorf("the entry of session %s contradicts itself", e.ID)
	}
	return e, nil
}
