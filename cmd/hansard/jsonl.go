package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"hansard"
)

// maxLineBytes is the longest line read: the largest event, and room for its
// other members and for spaces.
const maxLineBytes = hansard.MaxBatchBytes + 64<<10

// lineError says on which line of the input something is wrong.
type lineError struct {
	line int
	err  error
}

func (e *lineError) Error() string { return fmt.Sprintf("line %d: %v", e.line, e.err) }
func (e *lineError) Unwrap() error { return e.err }

// record is one line of the input: an event and the patch it carries, if any.
type record struct {
	line  int
	event hansard.Event
	patch *hansard.Patch
	err   error
}

// readRecords reads events, one a line, ahead of whoever takes them from the
// channel. At most two lines are in memory; it ends after the first error. The
// goroutine lets a signal stop a command that waits for its input.
func readRecords(ctx context.Context, r io.Reader, defaults hansard.Event) <-chan record {
	records := make(chan record)
	go func() {
		defer close(records)
		lines := bufio.NewReaderSize(r, 64<<10)
		for n := 1; ; n++ {
			line, err := readLine(lines)
			if err == io.EOF {
				return
			}
			rec := record{line: n}
			if err == nil && len(bytes.TrimSpace(line)) == 0 {
				continue
			}
			if err == nil {
				rec.event, rec.patch, err = parseRecord(line, defaults)
			}
			if err != nil {
				rec.err = &lineError{n, err}
			}
			select {
			case records <- rec:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return records
}

// readLine reads a line of bounded length, without its end. The last line needs
// no line break; io.EOF comes after it.
func readLine(r *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		if len(line) > maxLineBytes {
			return nil, &hansard.InvalidError{Field: "line", TooLarge: true,
				Reason: fmt.Sprintf("it is longer than %d bytes; one append holds %d bytes of data", maxLineBytes, hansard.MaxBatchBytes)}
		}
		switch {
		case err == nil:
			return bytes.TrimSuffix(line[:len(line)-1], []byte("\r")), nil
		case err == io.EOF && len(line) > 0:
			return line, nil
		case err != bufio.ErrBufferFull:
			return nil, err
		}
	}
}

// parseRecord reads one line: an object with a data member is an event, any
// other JSON value is the data of one.
func parseRecord(line []byte, defaults hansard.Event) (hansard.Event, *hansard.Patch, error) {
	event := defaults
	line = bytes.TrimSpace(line)
	if bytes.HasPrefix(line, []byte("\xef\xbb\xbf")) {
		return event, nil, bad("it begins with a byte order mark; save the file as UTF-8 without one")
	}
	if !utf8.Valid(line) {
		return event, nil, bad("it is not valid UTF-8")
	}
	event.Data = line
	var patch *hansard.Patch
	if line[0] == '{' && json.Valid(line) {
		members, err := splitObject(line)
		if err != nil {
			return event, nil, err
		}
		if _, ok := members["data"]; ok {
			if patch, err = fillEvent(&event, members); err != nil {
				return event, nil, err
			}
		}
	}
	return event, patch, checkRecord(event, patch)
}

// checkRecord applies the store's own rules to a single event, so that the
// error can name its line.
func checkRecord(event hansard.Event, patch *hansard.Patch) error {
	err := hansard.CheckBatch(&hansard.Batch{Events: []hansard.Event{event}, Patch: patch})
	var invalid *hansard.InvalidError
	if errors.As(err, &invalid) {
		invalid.Field = strings.TrimPrefix(invalid.Field, "events[0].")
	}
	return err
}

// splitObject gives the members of an object with their bytes as they are. A
// name that comes twice is refused: one of the values would be lost. Only an
// event is looked at so closely; in data anything that is JSON goes.
func splitObject(line []byte) (map[string]json.RawMessage, error) {
	members := make(map[string]json.RawMessage)
	twice := ""
	dec := json.NewDecoder(bytes.NewReader(line))
	if _, err := dec.Token(); err != nil {
		return nil, bad("%v", err)
	}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return nil, bad("%v", err)
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, bad("%v", err)
		}
		if _, known := members[name.(string)]; known {
			twice = name.(string)
		}
		members[name.(string)] = value
	}
	if _, event := members["data"]; event && twice != "" {
		return nil, bad("member %q comes twice", twice)
	}
	return members, nil
}

// fillEvent sets the event's members. What the store sets itself is ignored, so
// that the output of show --json can be appended again.
func fillEvent(e *hansard.Event, members map[string]json.RawMessage) (patch *hansard.Patch, err error) {
	for name, value := range members {
		switch name {
		case "data":
			e.Data = value
		case "seq", "time", "turn":
		case "kind":
			err = unmarshal(name, value, &e.Kind)
		case "role":
			err = unmarshal(name, value, &e.Role)
		case "author":
			err = unmarshal(name, value, &e.Author)
		case "inbox":
			err = unmarshal(name, value, &e.Inbox)
		case "patch":
			err = unmarshal(name, value, &patch)
		default:
			return nil, bad("an event has no member %q; to store the whole object as data, write {\"data\": {…}}", name)
		}
		if err != nil {
			return nil, err
		}
	}
	return patch, nil
}

func unmarshal(name string, value json.RawMessage, into any) error {
	dec := json.NewDecoder(bytes.NewReader(value))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return &hansard.InvalidError{Field: name, Reason: strings.TrimPrefix(err.Error(), "json: ")}
	}
	return nil
}

func bad(format string, args ...any) error {
	return &hansard.InvalidError{Field: "event", Reason: fmt.Sprintf(format, args...)}
}
