package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"hansard"
)

// AppendEvent writes an event as a JSON object. The data has the bytes it was
// stored with.
func AppendEvent(dst []byte, e *hansard.Event) []byte {
	return append(appendHead(dst, e, e.Data), '}')
}

// AppendLine writes an event as a JSON object without line breaks: data with line
// breaks is compacted.
func AppendLine(dst []byte, e *hansard.Event) []byte {
	return append(appendHead(dst, e, flat(e.Data)), '}')
}

// AppendExactLine is AppendLine with one more member, "raw", the data as a string, if
// "data" does not have the exact bytes. [ParseEvent] reads it.
func AppendExactLine(dst []byte, e *hansard.Event) []byte {
	data := flat(e.Data)
	dst = appendHead(dst, e, data)
	if !survives(e.Data) || len(data) != len(e.Data) {
		dst = append(dst, `,"raw":`...)
		dst = appendString(dst, string(e.Data))
	}
	return append(dst, '}')
}

// survives reports whether data keeps its bytes as a member of an object: space around
// it would be lost.
func survives(data []byte) bool { return len(bytes.TrimSpace(data)) == len(data) }

func flat(data []byte) []byte {
	if bytes.IndexByte(data, '\n') < 0 && bytes.IndexByte(data, '\r') < 0 {
		return data
	}
	var out bytes.Buffer
	if json.Compact(&out, data) != nil {
		return []byte("null") // not JSON, which no store contains
	}
	return out.Bytes()
}

func appendHead(dst []byte, e *hansard.Event, data []byte) []byte {
	dst = append(dst, `{"seq":`...)
	dst = strconv.AppendUint(dst, uint64(e.Seq), 10)
	dst = append(dst, `,"time":"`...)
	dst = e.Time.AppendFormat(dst, time.RFC3339Nano)
	dst = append(dst, `","kind":`...)
	dst = appendString(dst, e.Kind)
	dst = append(dst, `,"role":`...)
	dst = appendString(dst, e.Role)
	dst = append(dst, `,"author":`...)
	dst = appendString(dst, e.Author)
	dst = append(dst, `,"turn":`...)
	dst = appendString(dst, string(e.Turn))
	if e.By != "" {
		dst = appendString(append(dst, `,"by":`...), e.By)
	}
	dst = appendOptional(dst, e)
	if e.Fork != nil {
		dst = append(append(dst, `,"fork":`...), Marshal(e.Fork)...)
	}
	if e.Redacted {
		dst = append(dst, `,"redacted":true`...)
	}
	if len(e.Redacts) > 0 {
		dst = append(append(dst, `,"redacts":`...), Marshal(e.Redacts)...)
	}
	if e.Patch != nil {
		dst = append(dst, `,"patch":`...)
		dst = append(dst, Marshal(e.Patch)...)
	}
	dst = append(dst, `,"data":`...)
	if len(data) == 0 {
		return append(dst, "null"...)
	}
	return append(dst, data...)
}

// appendOptional writes the fields that callers may set and seldom do.
func appendOptional(dst []byte, e *hansard.Event) []byte {
	if e.ID != "" {
		dst = appendString(append(dst, `,"id":`...), e.ID)
	}
	if !e.At.IsZero() {
		dst = e.At.AppendFormat(append(dst, `,"at":"`...), time.RFC3339Nano)
		dst = append(dst, '"')
	}
	if e.Inbox {
		dst = append(dst, `,"inbox":true`...)
	}
	if len(e.Attachments) > 0 {
		dst = append(append(dst, `,"attachments":`...), Marshal(e.Attachments)...)
	}
	return dst
}

// ParseEvent reads an event as the functions above write it, and as it is sent to be
// stored.
func ParseEvent(object []byte) (hansard.Event, error) {
	var e hansard.Event
	var raw *string
	err := EachMember(object, func(name string, value []byte) error {
		switch name {
		case "seq":
			return Member(name, value, &e.Seq)
		case "time":
			return Member(name, value, &e.Time)
		case "kind":
			return Member(name, value, &e.Kind)
		case "role":
			return Member(name, value, &e.Role)
		case "author":
			return Member(name, value, &e.Author)
		case "turn":
			return Member(name, value, &e.Turn)
		case "by":
			return Member(name, value, &e.By)
		case "id":
			return Member(name, value, &e.ID)
		case "at":
			return Member(name, value, &e.At)
		case "inbox":
			return Member(name, value, &e.Inbox)
		case "attachments":
			return someOf(name, value, hansard.MaxAttachments, &e.Attachments)
		case "fork":
			return Member(name, value, &e.Fork)
		case "redacted":
			return Member(name, value, &e.Redacted)
		case "redacts":
			return someOf(name, value, hansard.MaxRedactions, &e.Redacts)
		case "patch":
			return Member(name, value, &e.Patch)
		case "data":
			e.Data = value
			return nil
		case "raw":
			return Member(name, value, &raw)
		}
		return &hansard.InvalidError{Field: name, Reason: `an event has no such member; content goes into "data"`}
	})
	if raw != nil {
		e.Data = []byte(*raw)
	}
	return e, err
}

// Marshal is json.Marshal without escaping <, > and &. It panics if v can't be
// written.
func Marshal(v any) []byte {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(fmt.Sprintf("wire: %T can't be written: %v", v, err))
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
}

func appendString(dst []byte, s string) []byte {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c < 0x20 || c >= 0x7f || c == '"' || c == '\\' {
			return append(dst, Marshal(s)...)
		}
	}
	dst = append(dst, '"')
	dst = append(dst, s...)
	return append(dst, '"')
}
