package importer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"unicode/utf8"

	"hansard/internal/wire"
)

// valueBytes is the maximum size of a value of a document that is read as a whole.
const valueBytes = 64 << 20

// member is a member of an object, byte for byte.
type member struct {
	name  string
	value json.RawMessage
}

// document reads a source that is one JSON value: an array, whose elements are passed on,
// or an object, whose members are passed on, except that of an array named in arrays the
// elements are. Unreadable content is reported; what comes before it is passed on.
func (in *Input) document(ctx context.Context, arrays []string, element func(raw Raw) error, each func(member) error) error {
	f, err := in.open()
	if err != nil {
		return err
	}
	defer f.Close()
	limit := &cappedReader{r: f}
	d := &documentReader{dec: json.NewDecoder(limit), limit: limit, ctx: ctx, element: element}
	d.dec.UseNumber()
	if err = d.read(arrays, each); err == nil {
		err = d.end()
	}
	var taken *takeError
	switch {
	case errors.As(err, &taken):
		return taken.err
	case err != nil && ctx.Err() == nil:
		in.Report(Damage{Offset: d.dec.InputOffset(), Message: "the rest can't be read: " + err.Error()})
		return nil
	}
	return err
}

// takeError is an error of the callback that takes what is read.
type takeError struct{ err error }

func (e *takeError) Error() string { return e.err.Error() }

type documentReader struct {
	dec     *json.Decoder
	limit   *cappedReader
	ctx     context.Context
	element func(Raw) error
	n       int
}

func (d *documentReader) read(arrays []string, each func(member) error) error {
	d.limit.left = valueBytes
	begin, err := d.dec.Token()
	if err != nil {
		return err
	}
	switch begin {
	case json.Delim('['):
		return d.elements()
	case json.Delim('{'):
	default:
		return fmt.Errorf("it is neither an array nor an object")
	}
	for d.dec.More() {
		d.limit.left = valueBytes
		name, err := d.dec.Token()
		if err != nil {
			return err
		}
		if text, _ := name.(string); slices.Contains(arrays, text) {
			if begin, err = d.dec.Token(); err != nil {
				return err
			}
			if begin == json.Delim('[') {
				if err := d.elements(); err != nil {
					return err
				}
				continue
			}
			if _, nested := begin.(json.Delim); nested {
				return fmt.Errorf("%q is not an array", text)
			}
			// A prompt may be a text instead. Its escapes are not kept, as it was not read as a whole.
			if err := each(member{text, wire.Marshal(begin)}); err != nil {
				return &takeError{err}
			}
			continue
		}
		var value json.RawMessage
		if err := d.dec.Decode(&value); err != nil {
			return err
		}
		if err := each(member{name.(string), value}); err != nil {
			return &takeError{err}
		}
	}
	_, err = d.dec.Token()
	return err
}

// end makes sure that nothing follows the value, such as a second array: it would be left out.
func (d *documentReader) end() error {
	d.limit.left = valueBytes
	switch _, err := d.dec.Token(); {
	case err == io.EOF:
		return nil
	case err != nil:
		return err
	}
	return errors.New("it is a second value")
}

// elements passes on the elements of an array that has begun.
func (d *documentReader) elements() error {
	for d.dec.More() {
		if err := d.ctx.Err(); err != nil {
			return err
		}
		d.limit.left = valueBytes
		var value json.RawMessage
		if err := d.dec.Decode(&value); err != nil {
			return err
		}
		line := Line{Number: d.n, crc: checksum(value)}
		d.n++
		if err := d.element(Raw{value, "item" + line.ID()[len("line"):]}); err != nil {
			return &takeError{err}
		}
	}
	_, err := d.dec.Token()
	return err
}

// cappedReader bounds what a decoder reads for one value.
type cappedReader struct {
	r    io.Reader
	left int
}

func (c *cappedReader) Read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, fmt.Errorf("one value has more than %d bytes", valueBytes)
	}
	n, err := c.r.Read(p[:min(len(p), c.left)])
	c.left -= n
	return n, err
}

// object is the members of an object that is in memory, in order.
func object(raw []byte) (members []member) {
	// It is valid JSON; if a name occurs twice, the second is ignored.
	_ = wire.EachMember(raw, func(name string, value []byte) error {
		members = append(members, member{name, value})
		return nil
	})
	return members
}

// find is a member's value.
func find(members []member, name string) json.RawMessage {
	for _, m := range members {
		if m.name == name {
			return m.value
		}
	}
	return nil
}

// textOf is the text of a JSON string, and empty for anything else.
func textOf(raw json.RawMessage) (s string) {
	if len(raw) < 2 || raw[0] != '"' {
		return ""
	}
	if bytes.IndexByte(raw, '\\') < 0 && utf8.Valid(raw) { // it is part of valid JSON
		return string(raw[1 : len(raw)-1])
	}
	_ = decode(raw, &s)
	return s
}

// without is an object of all members except some, byte for byte.
func without(members []member, names ...string) json.RawMessage {
	out := []byte{'{'}
	for _, m := range members {
		if slices.Contains(names, m.name) {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(out, marshal(m.name)...), ':'), m.value...)
	}
	return append(out, '}')
}
