package importer

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"path/filepath"
	"unicode/utf8"

	"hansard"
)

// heldBytes is the longest line that is kept in memory. A longer one becomes an
// attachment. It stays below the size limit of a batch.
const heldBytes = hansard.MaxBatchBytes - 64<<10

// Input is a source while it is read.
type Input struct {
	*Source
	damage  func(Damage)
	reading *reading // nil if nothing of it is remembered
}

// openBeside opens another file in the root of the source.
func (in *Input) openBeside(name string) (io.ReadCloser, error) {
	in.reading.beside(filepath.Join(in.Root, name))
	return openIn(in.Root, name)
}

// Line is one whole line of a source.
type Line struct {
	Number int
	Offset int64 // of its first byte, after decompression
	Size   int64 // without its line break
	Bytes  []byte
	crc    uint32
}

// ID identifies the line by its number and its content. Two records of one line have
// different ids.
func (l *Line) ID() string { return lineID(l.Number, l.crc) }

// LineID is the ID of a line that is not read from a file.
func LineID(number int, line []byte) string { return lineID(number, checksum(line)) }

func lineID(number int, crc uint32) string { return fmt.Sprintf("line:%d:%08x", number, crc) }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(data []byte) uint32 { return crc32.Checksum(data, castagnoli) }

// eachLine passes on the complete lines of a reader. What follows the last line break is
// reported as unfinished, unless lastToo says that it counts as a line.
func (in *Input) eachLine(ctx context.Context, r io.Reader, lastToo bool, take func(*Line) error) error {
	br := bufio.NewReaderSize(r, 256<<10)
	at := int64(0)
	for n := 1; ; n++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		line, whole, err := readLine(br)
		if err != nil {
			return err
		}
		line.Number, line.Offset = n, at
		if !whole && line.Size == 0 {
			return nil
		}
		if !whole && (!lastToo || !json.Valid(line.Bytes)) {
			in.Report(Damage{Offset: at, Line: n, Unfinished: true, Message: fmt.Sprintf("the last line has no end; its %d bytes are left for later", line.Size)})
			return nil
		}
		at += line.Size + 1
		if len(line.Bytes) > 0 && line.Bytes[len(line.Bytes)-1] == '\r' {
			line.Bytes = line.Bytes[:len(line.Bytes)-1]
		}
		if err := take(line); err != nil {
			return err
		}
		if !whole {
			return nil
		}
	}
}

// readLine reads up to a line break. Beyond heldBytes the bytes are counted but not
// kept.
func readLine(br *bufio.Reader) (line *Line, whole bool, err error) {
	line = &Line{}
	var held []byte
	for {
		part, err := br.ReadSlice('\n')
		if err == nil {
			part, whole = part[:len(part)-1], true
		}
		line.Size += int64(len(part))
		line.crc = crc32.Update(line.crc, castagnoli, part)
		switch {
		case line.Size <= heldBytes:
			held = append(held, part...)
		default:
			held = nil
		}
		switch {
		case whole || err == io.EOF:
			line.Bytes = held
			return line, whole, nil
		case err != bufio.ErrBufferFull:
			return nil, false, err
		}
	}
}

// errSyntax is what a parser returns for bytes that are not exactly one JSON value.
var errSyntax = errors.New("not JSON")

// Raw is one record, byte for byte as in the source.
type Raw struct {
	Bytes []byte
	// ID is for records that have none of their own.
	ID string
}

// parser takes one record. It returns errSyntax, and has done nothing, if the bytes are
// not one JSON value.
type parser func(Raw) error

// Records reads a source with one JSON value per line. whole tells a record from a
// fragment of one if a line is damaged: complete records in it are passed on, the rest
// is reported.
func (in *Input) Records(ctx context.Context, lastToo bool, whole func([]byte) bool, parse parser, long func(Record) error) error {
	f, err := in.open()
	if err != nil {
		return err
	}
	defer f.Close()
	return in.eachLine(ctx, f, lastToo, func(l *Line) error {
		if l.Bytes == nil && l.Size > 0 {
			return long(in.longRecord(l))
		}
		data := bytes.TrimSpace(l.Bytes)
		if len(data) == 0 {
			return nil
		}
		if !utf8.Valid(data) && json.Valid(data) {
			in.Report(Damage{Offset: l.Offset, Line: l.Number, Message: "the line is not valid UTF-8; it is kept as an attachment"})
			return long(Record{Event: hansard.Event{ID: l.ID(), Kind: KindRaw}, Long: heldLong(data, "not valid UTF-8")})
		}
		err := parse(Raw{data, l.ID()})
		if errors.Is(err, errSyntax) {
			err = in.salvage(l, whole, parse)
		}
		return err
	})
}

// longRecord is a line that is too long to be an event.
func (in *Input) longRecord(l *Line) Record {
	offset, size := l.Offset, l.Size
	return Record{
		Event: hansard.Event{ID: l.ID(), Kind: KindRaw},
		Long: &Long{Size: size, Reason: "too large for an event", Open: func() (io.ReadCloser, error) {
			f, err := in.open()
			if err != nil {
				return nil, err
			}
			if seeker, ok := f.(io.Seeker); ok {
				_, err = seeker.Seek(offset, io.SeekStart)
			} else {
				_, err = io.CopyN(io.Discard, f, offset)
			}
			if err != nil {
				return nil, errors.Join(err, f.Close())
			}
			return &limited{io.LimitReader(f, size), f}, nil
		}},
	}
}

// heldLong is a record in memory that goes into an attachment.
func heldLong(data []byte, reason string) *Long {
	return &Long{Size: int64(len(data)), Reason: reason, Open: func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(data)), nil
	}}
}

type limited struct {
	io.Reader
	io.Closer
}

// maxPieces is at how many places in a damaged line a complete record is looked for.
const maxPieces = 64

// salvage passes on the complete records in a line that is not a single one: records
// joined by a lost line break, records after the beginning of a torn one, or records
// with NUL bytes around them.
func (in *Input) salvage(l *Line, whole func([]byte) bool, parse parser) error {
	data, pieces := l.Bytes, 0
	lost := -1 // where the unreadable part begins
	report := func(upto int) {
		if lost >= 0 {
			what := fmt.Sprintf("%d bytes are not a whole record", upto-lost)
			if len(bytes.Trim(data[lost:upto], "\x00")) == 0 {
				what = fmt.Sprintf("%d NUL bytes", upto-lost)
			}
			in.Report(Damage{Offset: l.Offset + int64(lost), Line: l.Number, Message: what})
			lost = -1
		}
	}
	found := 0
	for i := 0; i < len(data); {
		next := bytes.IndexByte(data[i:], '{')
		if next < 0 || pieces == maxPieces {
			if rest := bytes.TrimSpace(data[i:]); lost < 0 && len(rest) > 0 {
				lost = i
			}
			break
		}
		if lost < 0 && len(bytes.TrimSpace(data[i:i+next])) > 0 {
			lost = i
		}
		i += next
		pieces++
		var value json.RawMessage
		dec := json.NewDecoder(bytes.NewReader(data[i:]))
		if dec.Decode(&value) != nil || !whole(value) {
			if lost < 0 {
				lost = i
			}
			i++
			continue
		}
		report(i)
		record := Line{Number: l.Number, crc: checksum(value)}
		if err := parse(Raw{value, record.ID()}); err != nil && !errors.Is(err, errSyntax) {
			return err
		}
		found++
		i += int(dec.InputOffset())
	}
	if report(len(data)); found > 1 {
		in.Report(Damage{Offset: l.Offset, Line: l.Number, Message: fmt.Sprintf("%d records are fused on one line; each is imported", found)})
	}
	return nil
}

// Report reports damage. The file is the source's, if it names none.
func (in *Input) Report(d Damage) {
	if d.File == "" {
		d.File = in.File()
	}
	in.damage(d)
}

// Failed marks an error as one about the source.
func (in *Input) Failed(err error) error { return fmt.Errorf("%w: %w", errSource, err) }

// decode decodes a record. Members of an unexpected type are ignored: the data is kept
// anyway. Only input that is not JSON at all is an error, errSyntax.
func decode(raw []byte, v any) error {
	err := json.Unmarshal(raw, v)
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return errSyntax
	}
	return nil
}
