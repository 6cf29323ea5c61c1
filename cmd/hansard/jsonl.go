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
	"hansard/engine"
	"hansard/internal/jsontext"
	"hansard/transcript"
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
	// copied says that it has a seq: it is the output of show --json. left says why
	// such an event is not appended.
	copied bool
	left   string
	err    error
}

// readRecords reads events, one per line, ahead of the receiver of the channel. At
// most two lines are in memory; it ends after the first error. The goroutine lets a
// signal stop a command that waits for its input.
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
				rec, err = parseRecord(line, defaults)
				rec.line = n
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

// parseRecord reads one line: an object with a data member is an event, one with a
// role and a content is a message, any other JSON value is the data of an event.
func parseRecord(line []byte, defaults hansard.Event) (record, error) {
	rec := record{event: defaults}
	line = bytes.TrimSpace(line)
	if bytes.HasPrefix(line, []byte("\xef\xbb\xbf")) {
		return rec, bad("it begins with a byte order mark; save the file as UTF-8 without one")
	}
	if !utf8.Valid(line) {
		return rec, bad("it is not valid UTF-8")
	}
	rec.event.Data = line
	if line[0] == '{' && jsontext.ValidAround(line) {
		members, err := splitObject(line)
		if err != nil {
			return rec, err
		}
		if _, ok := members["data"]; ok {
			if rec.patch, err = fillEvent(&rec.event, members); err != nil {
				return rec, err
			}
			_, rec.copied = members["seq"]
			if rec.left = storesOwn(&rec); rec.left != "" && rec.patch == nil {
				return rec, nil
			} else if rec.left != "" { // the patch it carries is kept
				rec.left, rec.event = "", hansard.Event{Kind: hansard.KindMeta, Data: json.RawMessage("null")}
			}
		} else {
			fillMessage(&rec.event, members)
		}
	}
	return rec, checkRecord(rec.event, rec.patch)
}

// storesOwn says what an event is that only a store writes, or that would have a
// different meaning in another session; empty if it is neither.
func storesOwn(rec *record) string {
	switch {
	case !rec.copied:
	case rec.event.Kind == hansard.KindTurn:
		return "about the turn, which the store writes itself"
	case rec.event.Kind == hansard.KindLost && rec.event.Role == "" && rec.event.Author == "" && !rec.event.Inbox && rec.patch == nil && string(rec.event.Data) == "null":
		return "in the place of lost ones, which a repair wrote"
	case len(rec.event.Redacts) > 0:
		return "recording redactions, which name events of the other session"
	case rec.event.Redacted:
		return "redacted: there is nothing left to store"
	case rec.event.Kind == transcript.KindDeleted:
		return "of items that were deleted, which name events of the other session"
	}
	return ""
}

// fillMessage takes what a message of a chat says about itself: {"role","content"},
// {"role","parts"}, {"role","tool_calls"}. The whole object is the data.
func fillMessage(e *hansard.Event, members map[string]json.RawMessage) {
	var role, name string
	if json.Unmarshal(members["role"], &role) != nil || role == "" {
		return
	}
	_, content := members["content"]
	_, parts := members["parts"]
	_, calls := members["tool_calls"]
	if !content && !parts && !calls {
		return
	}
	e.Role = role
	if json.Unmarshal(members["name"], &name) == nil && name != "" && e.Author == "" && role != "tool" {
		e.Author = name
	}
	if e.Kind == "" && (role == "tool" || role == "function") {
		e.Kind = hansard.KindToolResult
	}
}

// checkRecord applies the store's own rules to a single event, so that the
// error can name its line.
func checkRecord(event hansard.Event, patch *hansard.Patch) error {
	err := engine.CheckBatch(&hansard.Batch{Events: []hansard.Event{event}, Patch: patch})
	var invalid *hansard.InvalidError
	if errors.As(err, &invalid) {
		invalid.Field = strings.TrimPrefix(invalid.Field, "events[0].")
	}
	return err
}

// splitObject returns the members of an object, byte for byte. A duplicate name is
// refused: one of the values would be lost. Only an event is checked so strictly;
// data may be any JSON.
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

// fillEvent sets the event's members. Those that the store sets itself are ignored,
// so that the output of show --json can be appended again.
func fillEvent(e *hansard.Event, members map[string]json.RawMessage) (patch *hansard.Patch, err error) {
	for name, value := range members {
		switch name {
		case "data":
			e.Data = value
		case "seq", "time", "turn", "by":
		case "kind":
			err = unmarshal(name, value, &e.Kind)
		case "role":
			err = unmarshal(name, value, &e.Role)
		case "author":
			err = unmarshal(name, value, &e.Author)
		case "id":
			err = unmarshal(name, value, &e.ID)
		case "at":
			err = unmarshal(name, value, &e.At)
		case "attachments":
			err = unmarshal(name, value, &e.Attachments)
		case "inbox":
			err = unmarshal(name, value, &e.Inbox)
		case "redacted":
			err = unmarshal(name, value, &e.Redacted)
		case "redacts":
			err = unmarshal(name, value, &e.Redacts)
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
		var bad *hansard.InvalidError
		if errors.As(err, &bad) { // from an UnmarshalJSON that knows what is wrong
			return bad
		}
		return &hansard.InvalidError{Field: name, Reason: strings.TrimPrefix(err.Error(), "json: ")}
	}
	return nil
}

func bad(format string, args ...any) error {
	return &hansard.InvalidError{Field: "event", Reason: fmt.Sprintf(format, args...)}
}
