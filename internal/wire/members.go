package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"hansard"
)

// SyntaxError is the error of text that is not JSON.
type SyntaxError struct {
	Offset int
	Reason string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("not JSON: %s (at byte %d)", e.Reason, e.Offset)
}

// EachMember parses an object: it passes the name of each member and the exact bytes
// of its value to take. It checks the object but not the values: take does that. A
// duplicate name is an error, because one of the values would be lost.
func EachMember(object []byte, take func(name string, value []byte) error) error {
	s := scanner{data: object}
	var seen names
	return s.list('{', '}', func() error {
		quoted, err := s.string()
		if err != nil {
			return err
		}
		name, ok := nameOf(quoted)
		if !ok {
			return s.wrong("a name is not a string")
		}
		if !seen.add(name) {
			return &hansard.InvalidError{Field: name, Reason: "it is given twice"}
		}
		if s.space(); !s.skip(':') {
			return s.wrong("the colon after a name is missing")
		}
		value, err := s.value()
		if err != nil {
			return err
		}
		return take(name, value)
	})
}

// nameOf is the name in a quoted string.
func nameOf(quoted []byte) (name string, ok bool) {
	inner := quoted[1 : len(quoted)-1]
	for _, c := range inner {
		if c < ' ' || c == '\\' || c >= utf8.RuneSelf {
			err := json.Unmarshal(quoted, &name)
			return name, err == nil
		}
	}
	return string(inner), true
}

// names are the names of an object's members: usually few.
type names struct {
	few  []string
	many map[string]bool
}

// add adds a name. It returns false if it was added before.
func (n *names) add(name string) bool {
	if n.many != nil || len(n.few) == 32 {
		if n.many == nil {
			n.many = make(map[string]bool, 2*len(n.few))
			for _, name := range n.few {
				n.many[name] = true
			}
		}
		if n.many[name] {
			return false
		}
		n.many[name] = true
		return true
	}
	if slices.Contains(n.few, name) {
		return false
	}
	n.few = append(n.few, name)
	return true
}

// EachElement parses an array, as EachMember does an object.
func EachElement(array []byte, take func(value []byte) error) error {
	s := scanner{data: array}
	return s.list('[', ']', func() error {
		value, err := s.value()
		if err != nil {
			return err
		}
		return take(value)
	})
}

// scanner finds where values begin and end. It does not recurse: text nested a million
// levels deep costs nothing.
type scanner struct {
	data []byte
	at   int
}

func (s *scanner) wrong(reason string) error {
	if s.at >= len(s.data) {
		reason = "it ends too soon"
	}
	return &SyntaxError{s.at, reason}
}

func (s *scanner) space() {
	for s.at < len(s.data) && strings.IndexByte(" \t\r\n", s.data[s.at]) >= 0 {
		s.at++
	}
}

func (s *scanner) skip(c byte) bool {
	if s.at < len(s.data) && s.data[s.at] == c {
		s.at++
		return true
	}
	return false
}

// list parses a list, after which nothing may follow.
func (s *scanner) list(open, shut byte, item func() error) error {
	if s.space(); !s.skip(open) {
		return s.wrong(fmt.Sprintf("%q is missing", open))
	}
	if s.space(); !s.skip(shut) {
		for {
			s.space()
			if err := item(); err != nil {
				return err
			}
			if s.space(); s.skip(shut) {
				break
			}
			if !s.skip(',') {
				return s.wrong("a comma between two values is missing")
			}
		}
	}
	if s.space(); s.at < len(s.data) {
		return s.wrong("something follows the end")
	}
	return nil
}

// string is the quoted string that begins here.
func (s *scanner) string() ([]byte, error) {
	begin := s.at
	if !s.skip('"') {
		return nil, s.wrong("a string is missing")
	}
	for {
		n := bytes.IndexByte(s.data[s.at:], '"')
		if n < 0 {
			s.at = len(s.data)
			return nil, s.wrong("a string does not end")
		}
		s.at += n + 1
		// It is the end unless it is escaped: by an odd number of backslashes.
		back := s.at - 2
		for back > begin && s.data[back] == '\\' {
			back--
		}
		if (s.at-2-back)%2 == 0 {
			return s.data[begin:s.at], nil
		}
	}
}

// value is the value that begins here, without the space around it.
func (s *scanner) value() ([]byte, error) {
	s.space()
	begin, depth := s.at, 0
	for s.at < len(s.data) {
		switch c := s.data[s.at]; {
		case c == '"':
			if _, err := s.string(); err != nil {
				return nil, err
			}
			if depth == 0 && s.data[begin] == '"' {
				return s.data[begin:s.at], nil
			}
			continue
		case c == '{' || c == '[':
			depth++
		case (c == '}' || c == ']' || c == ',') && depth == 0:
			return s.plain(begin)
		case c == '}' || c == ']':
			if depth--; depth == 0 {
				s.at++
				return s.data[begin:s.at], nil
			}
		}
		s.at++
	}
	return nil, s.wrong("a value does not end")
}

// plain is the number or literal that ends here.
func (s *scanner) plain(begin int) ([]byte, error) {
	value := bytes.TrimRight(s.data[begin:s.at], " \t\r\n")
	if len(value) == 0 || !json.Valid(value) {
		s.at = begin
		return nil, s.wrong("a value is missing")
	}
	return value, nil
}

// Member decodes the value of a member; the error says which one is wrong.
func Member(name string, value []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(value))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			return &SyntaxError{int(syntax.Offset), fmt.Sprintf("%v in %q", err, name)}
		}
		var mistyped *json.UnmarshalTypeError
		if errors.As(err, &mistyped) {
			return &hansard.InvalidError{Field: strings.TrimSuffix(name+"."+mistyped.Field, "."),
				Reason: fmt.Sprintf("it is a JSON %s, which does not fit", mistyped.Value)}
		}
		var bad *hansard.InvalidError
		if errors.As(err, &bad) { // from an UnmarshalJSON that knows what is wrong
			return bad
		}
		return &hansard.InvalidError{Field: name, Reason: strings.TrimPrefix(err.Error(), "json: ")}
	}
	return nil
}

// someOf decodes a member that is a list of no more than most values. Like parseEvents it stops
// at the limit: decoded, small values take many times the memory.
func someOf[T any](name string, list []byte, most int, into *[]T) error {
	if list[0] != '[' {
		return Member(name, list, into) // null, or an error
	}
	*into = []T{}
	return EachElement(list, func(value []byte) error {
		if len(*into) == most {
			return tooMany(name, most)
		}
		var one T
		err := Member(name, value, &one)
		*into = append(*into, one)
		return err
	})
}
