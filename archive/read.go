package archive

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"iter"
	"slices"
	"strings"

	"hansard"
	"hansard/internal/wire"
)

// maxLine bounds the length of a line: the largest event, its data a second time as a
// string with escapes, and room for the rest.
const maxLine = 8 * hansard.MaxBatchBytes

// ErrBroken is wrapped by the errors of files that are incomplete or changed.
var ErrBroken = errors.New("the export is not whole")

// File is a checked archive: an exporter of the sessions in it.
type File struct {
	hansard.Store // nil: methods that only a real store has must not be called
	src           io.ReaderAt
	size          int64
	sessions      []*content
}

// content is where a session is in the file.
type content struct {
	origin      hansard.Origin
	info        hansard.Info
	first, last int64              // of its lines
	attachments map[string]*pieces // by digest
}

// pieces is where an attachment is.
type pieces struct {
	size int64
	at   []span
}

type span struct{ offset, size int64 }

// Open reads a file from its beginning to its end and checks it: every line, the order of
// the events, the checksum. A file may have several sessions, one after the other.
func Open(ctx context.Context, src io.ReaderAt, size int64) (*File, error) {
	f := &File{src: src, size: size}
	c := &checker{file: f}
	err := f.lines(ctx, 0, size, c.take)
	if err == nil && c.now != nil {
		err = errors.New("its last line is missing")
	}
	if err == nil && len(f.sessions) == 0 {
		err = errors.New("it is empty")
	}
	if err != nil && ctx.Err() == nil {
		return nil, fmt.Errorf("%w: line %d, at byte %d: %w", ErrBroken, c.n, c.at, err)
	}
	return f, err
}

// line is any line.
type line struct {
	Hansard    string
	Version    int
	Origin     *hansard.Origin
	Event      []byte
	Key        *hansard.KeyUse
	Attachment *hansard.Attachment
	Piece      *string
	End        *end
}

// parse parses a line. encoding/json would refuse an event whose data is nested as deeply as
// a store allows.
func parse(raw []byte) (line, error) {
	var l line
	err := wire.EachMember(raw, func(name string, value []byte) error {
		switch name {
		case "hansard":
			return wire.Member(name, value, &l.Hansard)
		case "version":
			return wire.Member(name, value, &l.Version)
		case "origin":
			return wire.Member(name, value, &l.Origin)
		case "event":
			l.Event = value
			return nil
		case "key":
			return wire.Member(name, value, &l.Key)
		case "attachment":
			return wire.Member(name, value, &l.Attachment)
		case "piece":
			return wire.Member(name, value, &l.Piece)
		case "end":
			return wire.Member(name, value, &l.End)
		}
		return fmt.Errorf("the member %q is not known", name)
	})
	return l, err
}

// lines passes on the lines between two offsets.
func (f *File) lines(ctx context.Context, from, to int64, take func(offset int64, raw []byte) error) error {
	r := bufio.NewReaderSize(io.NewSectionReader(f.src, from, to-from), 256<<10)
	for at := from; at < to; {
		if err := ctx.Err(); err != nil {
			return err
		}
		raw, err := readLine(r)
		if err != nil {
			return err
		}
		if err := take(at, raw); err != nil {
			return err
		}
		at += int64(len(raw)) + 1
	}
	return nil
}

func readLine(r *bufio.Reader) ([]byte, error) {
	var out []byte
	for {
		part, err := r.ReadSlice('\n')
		out = append(out, part...)
		switch {
		case err == nil:
			return out[:len(out)-1], nil
		case len(out) > maxLine:
			return nil, errors.New("the line is too long")
		case err == io.EOF:
			return nil, errors.New("the line has no end")
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}

// checker checks a file, line by line.
type checker struct {
	file *File
	now  *content // the session whose lines these are
	sum  hash.Hash
	got  end
	n    int
	at   int64
	open string // the attachment being read
	part hash.Hash
}

func (c *checker) take(offset int64, raw []byte) error {
	c.n++
	c.at = offset
	l, err := parse(raw)
	if err != nil {
		return err
	}
	if c.now == nil {
		return c.begin(&l, offset, raw)
	}
	if l.Attachment == nil || l.Attachment.Digest != c.open {
		if err := c.closeAttachment(); err != nil {
			return err
		}
	}
	begins := func(with string) bool { return bytes.HasPrefix(raw, []byte(with)) }
	switch {
	case l.End != nil:
		return c.finish(l.End, offset)
	case l.Event != nil && begins(`{"event":`):
		e, err := wire.ParseEvent(l.Event)
		if err != nil {
			return err
		}
		if e.Seq != c.got.Events+1 {
			return fmt.Errorf("seq %d follows seq %d", e.Seq, c.got.Events)
		}
		c.got.Events++
		for _, a := range e.Attachments {
			if c.now.attachments[a.Digest] == nil {
				return fmt.Errorf("attachment %s is missing", a.Digest)
			}
		}
	case l.Key != nil && begins(`{"key":`):
		if c.got.Keys++; l.Key.Last > c.got.Events {
			return fmt.Errorf("a key is of seq %d, which has not come yet", l.Key.Last)
		}
	case l.Attachment != nil && l.Piece != nil:
		if err := c.piece(l.Attachment, *l.Piece, offset, raw); err != nil {
			return err
		}
	default:
		return errors.New("its kind is not known")
	}
	c.hash(raw)
	return nil
}

func (c *checker) hash(raw []byte) {
	c.sum.Write(raw)
	c.sum.Write([]byte{'\n'})
}

func (c *checker) begin(l *line, offset int64, raw []byte) error {
	switch {
	case l.Hansard != "session" || l.Origin == nil:
		return errors.New("it does not begin as an export of a session does")
	case l.Version != Version:
		return fmt.Errorf("version %d: %w", l.Version, hansard.ErrVersion)
	}
	if err := hansard.CheckID(l.Origin.ID); err != nil {
		return err
	}
	if _, err := c.file.find(l.Origin.ID); err == nil {
		return fmt.Errorf("session %s comes twice", l.Origin.ID)
	}
	c.now = &content{origin: *l.Origin, first: offset + int64(len(raw)) + 1, attachments: map[string]*pieces{}}
	c.sum, c.got = sha256.New(), end{}
	c.hash(raw)
	return nil
}

func (c *checker) piece(a *hansard.Attachment, piece string, offset int64, raw []byte) error {
	data, err := base64.StdEncoding.DecodeString(piece)
	if err != nil {
		return err
	}
	p := c.now.attachments[a.Digest]
	if p == nil {
		p = &pieces{size: a.Size}
		c.now.attachments[a.Digest] = p
		c.open, c.part = a.Digest, sha256.New()
		c.got.Attachments++
	} else if c.open != a.Digest {
		return fmt.Errorf("attachment %s comes twice", a.Digest)
	}
	c.part.Write(data)
	p.at = append(p.at, span{offset, int64(len(raw))})
	return nil
}

// closeAttachment compares an attachment, once all its pieces have been read, with its
// digest.
func (c *checker) closeAttachment() error {
	if c.open == "" {
		return nil
	}
	if got := hansard.DigestPrefix + hex.EncodeToString(c.part.Sum(nil)); got != c.open {
		return fmt.Errorf("attachment %s is %s", c.open, got)
	}
	c.open = ""
	return nil
}

func (c *checker) finish(e *end, offset int64) error {
	sum := hex.EncodeToString(c.sum.Sum(nil))
	switch {
	case e.SHA256 != sum:
		return fmt.Errorf("its checksum is %s, that of the lines before is %s", e.SHA256, sum)
	case e.Events != c.got.Events || e.Keys != c.got.Keys || e.Attachments != c.got.Attachments:
		return fmt.Errorf("it has %d events, %d keys and %d attachments, and says %d, %d and %d", c.got.Events, c.got.Keys, c.got.Attachments, e.Events, e.Keys, e.Attachments)
	}
	c.now.info, c.now.last = e.Info, offset
	c.file.sessions = append(c.file.sessions, c.now)
	c.now = nil
	return nil
}

// Sessions are the ids of the sessions in the file.
func (f *File) Sessions() (ids []hansard.SessionID) {
	for _, s := range f.sessions {
		ids = append(ids, s.origin.ID)
	}
	return ids
}

func (f *File) find(id hansard.SessionID) (*content, error) {
	for _, s := range f.sessions {
		if s.origin.ID == id {
			return s, nil
		}
	}
	return nil, fmt.Errorf("session %s: %w", id, hansard.ErrNotFound)
}

// Origins yields how the sessions of the file began.
func (f *File) Origins(_ context.Context, after hansard.SessionID) iter.Seq2[hansard.Origin, error] {
	return func(yield func(hansard.Origin, error) bool) {
		sorted := slices.SortedFunc(slices.Values(f.sessions), func(a, b *content) int { return strings.Compare(string(a.origin.ID), string(b.origin.ID)) })
		for _, s := range sorted {
			if s.origin.ID > after && !yield(s.origin, nil) {
				return
			}
		}
	}
}

// Stat describes a session as it was when it was exported.
func (f *File) Stat(_ context.Context, id hansard.SessionID) (hansard.Info, error) {
	s, err := f.find(id)
	if err != nil {
		return hansard.Info{}, err
	}
	return s.info, nil
}

var errEnough = errors.New("enough")

// Read yields the events of a session past a seq. It supports no other range.
func (f *File) Read(ctx context.Context, id hansard.SessionID, r hansard.Range) iter.Seq2[hansard.Event, error] {
	return each(f, ctx, id, `{"event":`, func(l *line) (hansard.Event, bool, error) {
		e, err := wire.ParseEvent(l.Event)
		return e, e.Seq > r.After && (r.Before == 0 || e.Seq < r.Before), err
	})
}

// Keys yields the keys of a session.
func (f *File) Keys(ctx context.Context, id hansard.SessionID, after hansard.Seq) iter.Seq2[hansard.KeyUse, error] {
	return each(f, ctx, id, `{"key":`, func(l *line) (hansard.KeyUse, bool, error) {
		return *l.Key, l.Key.First > after, nil
	})
}

// each yields what want takes from the lines of a session that begin with begins: the
// checker has verified how all lines begin.
func each[T any](f *File, ctx context.Context, id hansard.SessionID, begins string, want func(*line) (T, bool, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		s, err := f.find(id)
		if err == nil {
			err = f.lines(ctx, s.first, s.last, func(_ int64, raw []byte) error {
				if !bytes.HasPrefix(raw, []byte(begins)) {
					return nil
				}
				l, err := parse(raw)
				if err != nil {
					return err
				}
				v, ok, err := want(&l)
				if err == nil && ok && !yield(v, nil) {
					return errEnough
				}
				return err
			})
		}
		if err != nil && !errors.Is(err, errEnough) {
			yield(none, err)
		}
	}
}

// OpenAttachment opens an attachment of a session.
func (f *File) OpenAttachment(_ context.Context, id hansard.SessionID, digest string) (hansard.AttachmentReader, error) {
	s, err := f.find(id)
	if err != nil {
		return nil, err
	}
	p := s.attachments[digest]
	if p == nil {
		return nil, hansard.ErrNoAttachment
	}
	return &attachment{file: f, pieces: p}, nil
}

// attachment reads the pieces of an attachment.
type attachment struct {
	file   *File
	pieces *pieces
	next   int
	rest   []byte
}

func (a *attachment) Size() int64  { return a.pieces.size }
func (a *attachment) Close() error { return nil }

func (a *attachment) Read(p []byte) (int, error) {
	for len(a.rest) == 0 {
		if a.next == len(a.pieces.at) {
			return 0, io.EOF
		}
		raw := make([]byte, a.pieces.at[a.next].size)
		if _, err := a.file.src.ReadAt(raw, a.pieces.at[a.next].offset); err != nil {
			return 0, err
		}
		l, err := parse(raw)
		if err != nil || l.Piece == nil {
			return 0, fmt.Errorf("%w: it was changed while it was read", ErrBroken)
		}
		if a.rest, err = base64.StdEncoding.DecodeString(*l.Piece); err != nil {
			return 0, err
		}
		a.next++
	}
	n := copy(p, a.rest)
	a.rest = a.rest[n:]
	return n, nil
}

// Seek goes back to the beginning, and nowhere else.
func (a *attachment) Seek(offset int64, whence int) (int64, error) {
	if offset != 0 || whence != io.SeekStart {
		return 0, hansard.ErrUnsupported
	}
	a.next, a.rest = 0, nil
	return 0, nil
}
