package conversations

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Items are stored and returned byte for byte, so they are never decoded and
// re-encoded: only the positions of an object's members are found, and additions are
// spliced in between the given bytes.

// object is the bytes of a JSON object and the positions of its members. If a member
// occurs twice the last one counts, as in every JSON library. Of an object with more than
// maxMembers only those are known that mean something here: the positions of millions of
// members would take many times the memory of the object.
type object struct {
	raw     json.RawMessage
	members map[string]span
	names   []string // in the order they were given
}

const maxMembers = 1000

// meant are the members that the handler looks at.
var meant = map[string]bool{"metadata": true, "items": true, "type": true, "id": true, "role": true, "content": true, "text": true, "status": true,
	"call_id": true, "name": true, "arguments": true, "output": true}

// span is the place of a member's value: raw[begin:end].
type span struct{ begin, end int }

var errNotObject = errors.New("it is not an object")

// parseObject finds the members of a JSON object that a client sent. Anything but
// white space after the object is an error.
func parseObject(raw []byte) (*object, error) {
	raw = trim(raw)
	if !json.Valid(raw) {
		return nil, fmt.Errorf("it is not JSON: %w", syntaxError(raw))
	}
	if raw[0] != '{' {
		return nil, errNotObject
	}
	return scanObject(raw), nil
}

// scanObject finds the members of an object that is known to be valid JSON: it was
// checked when it arrived, or is from a store, which holds nothing else.
func scanObject(raw []byte) *object {
	o := &object{raw: raw, members: make(map[string]span)}
	for at := skipSpace(raw, 1); raw[at] != '}'; {
		end := skipValue(raw, at)
		name, _ := stringOf(raw[at:end])
		at = skipSpace(raw, skipSpace(raw, end)+1) // after the colon
		end = skipValue(raw, at)
		_, twice := o.members[name]
		if known := twice || len(o.names) < maxMembers || meant[name]; known {
			o.members[name] = span{at, end}
			if !twice {
				o.names = append(o.names, name)
			}
		}
		at = skipComma(raw, end)
	}
	return o
}

// eachElement calls take with the elements of an array that is known to be valid JSON, until it
// returns false.
func eachElement(raw []byte, take func(element json.RawMessage) bool) {
	for at := skipSpace(raw, 1); raw[at] != ']'; {
		end := skipValue(raw, at)
		if !take(raw[at:end]) {
			return
		}
		at = skipComma(raw, end)
	}
}

func skipSpace(raw []byte, at int) int {
	for raw[at] == ' ' || raw[at] == '\t' || raw[at] == '\r' || raw[at] == '\n' {
		at++
	}
	return at
}

// skipComma goes to the next element or the closing bracket.
func skipComma(raw []byte, at int) int {
	at = skipSpace(raw, at)
	if raw[at] == ',' {
		at = skipSpace(raw, at+1)
	}
	return at
}

// skipValue is the end of the value that begins at a position.
func skipValue(raw []byte, at int) int {
	switch raw[at] {
	case '"':
		return skipString(raw, at)
	case '{', '[':
		for depth := 0; ; at++ {
			switch raw[at] {
			case '"':
				at = skipString(raw, at) - 1
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return at + 1
				}
			}
		}
	}
	if n := bytes.IndexAny(raw[at:], ",]} \t\r\n"); n >= 0 {
		return at + n
	}
	return len(raw)
}

func skipString(raw []byte, at int) int {
	for at++; ; {
		at += bytes.IndexByte(raw[at:], '"') + 1
		// A quote after an odd number of backslashes is part of the string.
		back := at - 2
		for raw[back] == '\\' {
			back--
		}
		if (at-2-back)%2 == 0 {
			return at
		}
	}
}

// trim removes the white space that JSON allows around a value.
func trim(raw []byte) []byte { return bytes.Trim(raw, " \t\r\n") }

// syntaxError says where bytes that are not JSON go wrong.
func syntaxError(raw []byte) error {
	var v json.RawMessage
	if err := json.Unmarshal(raw, &v); err != nil {
		return err
	}
	return errors.New("it is not valid")
}

// value is the bytes of a member; nil if it is absent.
func (o *object) value(name string) json.RawMessage {
	at, ok := o.members[name]
	if !ok {
		return nil
	}
	return o.raw[at.begin:at.end]
}

// given reports whether a member is present and not null: clients write null for
// values they do not have.
func (o *object) given(name string) bool {
	v := o.value(name)
	return v != nil && string(v) != "null"
}

// text is a member that is a string.
func (o *object) text(name string) (string, bool) {
	return stringOf(o.value(name))
}

// only returns the first member that is not one of these.
func (o *object) only(names ...string) (unknown string, ok bool) {
	for _, name := range o.names {
		if !slices.Contains(names, name) {
			return name, false
		}
	}
	return "", true
}

func stringOf(v json.RawMessage) (s string, ok bool) {
	if len(v) == 0 || v[0] != '"' {
		return "", false
	}
	if bytes.IndexByte(v, '\\') < 0 {
		return string(v[1 : len(v)-1]), true
	}
	return s, json.Unmarshal(v, &s) == nil
}

// The values given to these functions are parts of valid JSON.

func objectOf(v json.RawMessage) (*object, bool) {
	if len(v) == 0 || v[0] != '{' {
		return nil, false
	}
	return scanObject(v), true
}

// arrayOf returns the first elements of an array, no more than most, and how many it has.
func arrayOf(v json.RawMessage, most int) (first []json.RawMessage, n int, ok bool) {
	if !isArray(v) {
		return nil, 0, false
	}
	eachElement(v, func(element json.RawMessage) bool {
		if n++; n <= most {
			first = append(first, element)
		}
		return true
	})
	return first, n, true
}

func isArray(v json.RawMessage) bool { return len(v) > 0 && v[0] == '[' }

// typeName is the type of a JSON value, for error messages.
func typeName(v json.RawMessage) string {
	if len(v) == 0 {
		return "nothing"
	}
	switch c := v[0]; {
	case c == '{':
		return "an object"
	case c == '[':
		return "an array"
	case c == '"':
		return "a string"
	case c == 't' || c == 'f':
		return "a boolean"
	case c == 'n':
		return "null"
	case strings.ContainsAny(string(v), ".eE"):
		return "a decimal"
	default:
		return "an integer"
	}
}

// member is a member to be set in an object.
type member struct {
	name  string
	value []byte
}

// with returns the object's bytes with members set: the value of an existing member is
// replaced in place, a new member is put in front. All other bytes stay as they were.
func (o *object) with(set []member) []byte {
	type change struct {
		span
		value []byte
	}
	var changes []change
	var front []byte
	for _, m := range set {
		if at, ok := o.members[m.name]; ok {
			changes = append(changes, change{at, m.value})
			continue
		}
		front = append(front, quote(m.name)...)
		front = append(front, ':')
		front = append(front, m.value...)
		front = append(front, ',')
	}
	if len(o.members) == 0 {
		front = bytes.TrimSuffix(front, []byte(","))
	}
	slices.SortFunc(changes, func(a, b change) int { return a.begin - b.begin })
	out := append([]byte{'{'}, front...)
	at := 1
	for _, c := range changes {
		out = append(out, o.raw[at:c.begin]...)
		out = append(out, c.value...)
		at = c.end
	}
	return append(out, o.raw[at:]...)
}

// quote writes a string as JSON.
func quote(s string) []byte {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a string: can't fail
	return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
}
