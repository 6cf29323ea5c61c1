package transcript

import (
	"bytes"
	"encoding/json"
	"iter"
	"slices"
	"unicode/utf8"
)

// value is valid JSON, without space around it. Its members and items are found by
// skipping over the rest: nothing is allocated for what is not read.
type value []byte

// kind is the first byte: { [ " t f n or that of a number; 0 for none.
func (v value) kind() byte {
	if len(v) == 0 {
		return 0
	}
	return v[0]
}

// text is the text of a string, and empty for anything else.
func (v value) text() string {
	if v.kind() != '"' || len(v) < 2 {
		return ""
	}
	if inner := v[1 : len(v)-1]; !bytes.ContainsRune(inner, '\\') && utf8.Valid(inner) {
		return string(inner)
	}
	var s string
	_ = json.Unmarshal(v, &s) // it is valid
	return s
}

// shown is a string as its text and anything else as JSON.
func (v value) shown() string {
	if v.kind() == '"' {
		return v.text()
	}
	return Pretty(json.RawMessage(v))
}

func (v value) isNull() bool { return len(v) == 0 || v[0] == 'n' }
func (v value) isTrue() bool { return len(v) > 0 && v[0] == 't' }

// isEmpty reports whether a value says nothing: null, "", [] or {}.
func (v value) isEmpty() bool {
	if v.isNull() {
		return true
	}
	if v[0] != '"' && v[0] != '[' && v[0] != '{' {
		return false
	}
	return len(v) <= 2 || v[0] != '"' && space(v, 1) == len(v)-1
}

func space(v []byte, i int) int {
	for i < len(v) && (v[i] == ' ' || v[i] == '\t' || v[i] == '\n' || v[i] == '\r') {
		i++
	}
	return i
}

// skip is the end of the value that begins at i. It counts brackets instead of recursing,
// so that depth costs nothing.
func skip(v []byte, i int) int {
	depth := 0
	for i < len(v) {
		switch v[i] {
		case '"':
			i = skipString(v, i)
		case '{', '[':
			depth++
			i++
		case '}', ']':
			if depth == 0 {
				return i
			}
			depth--
			i++
		case ',', ':', ' ', '\t', '\n', '\r':
			if depth == 0 {
				return i
			}
			i++
			continue
		default: // a number or a word
			for i < len(v) && !isDelimiter(v[i]) {
				i++
			}
		}
		if depth == 0 {
			return i
		}
	}
	return i
}

func isDelimiter(c byte) bool {
	switch c {
	case ',', ':', ']', '}', '[', '{', '"', ' ', '\t', '\n', '\r':
		return true
	}
	return false
}

func skipString(v []byte, i int) int {
	for i++; i < len(v); i++ {
		switch v[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(v)
}

// effort is how many bytes may still be read. Shapes nest and are tried one after the
// other; counting the bytes keeps the cost linear by construction.
type effort int

// spend counts the bytes of a value, and reports whether they may be read.
func (e *effort) spend(v value) bool {
	*e -= effort(len(v))
	return *e >= 0
}

// items gives the items of an array, each with the place where it begins.
func (v value) items() iter.Seq2[int, value] {
	return func(yield func(int, value) bool) {
		for i := space(v, 1); i < len(v) && v[i] != ']'; {
			end := skip(v, i)
			if end == i || !yield(i, v[i:end]) {
				return
			}
			if i = space(v, end); i < len(v) && v[i] == ',' {
				i = space(v, i+1)
			}
		}
	}
}

// from is the array without the items before a place.
func (v value) from(at int) value { return append(value{'['}, v[at:]...) }

// object holds the members of a JSON object, and which of them were understood.
type object struct {
	effort  *effort
	names   []string
	values  []value
	taken   []bool
	entered []*object // the members that were entered, by index; nil until then
}

// object reads the members of an object. One with a duplicate name, or with more members
// than any shape has, is not known.
func (e *effort) object(v value) (*object, bool) {
	if v.kind() != '{' || !e.spend(v) {
		return nil, false
	}
	o := &object{effort: e}
	for i := space(v, 1); i < len(v) && v[i] != '}'; {
		nameEnd := skip(v, i)
		name := v[i:nameEnd].text()
		colon := space(v, nameEnd)
		begin := space(v, colon+1)
		end := skip(v, begin)
		if end <= begin || len(o.names) == maxMembers || slices.Contains(o.names, name) {
			return nil, false
		}
		o.names = append(o.names, name)
		o.values = append(o.values, v[begin:end])
		if i = space(v, end); i < len(v) && v[i] == ',' {
			i = space(v, i+1)
		}
	}
	o.taken = make([]bool, len(o.names))
	return o, true
}

// find is the first of these members that is present and not null.
func (o *object) find(names ...string) value {
	for _, name := range names {
		if i := slices.Index(o.names, name); i >= 0 && !o.values[i].isNull() {
			return o.values[i]
		}
	}
	return nil
}

// word is a member that is a string.
func (o *object) word(names ...string) string { return o.find(names...).text() }

// take is find, and marks the member as understood.
func (o *object) take(names ...string) value {
	for _, name := range names {
		if i := slices.Index(o.names, name); i >= 0 && !o.values[i].isNull() {
			o.taken[i] = true
			return o.values[i]
		}
	}
	return nil
}

// takeText is take of a member that is a string.
func (o *object) takeText(names ...string) (string, bool) {
	for _, name := range names {
		if o.find(name).kind() == '"' {
			return o.take(name).text(), true
		}
	}
	return "", false
}

// dropMax is the longest string that is of no interest to people.
const dropMax = 300

// drop marks members as uninteresting to people, if they are words and numbers, as they
// should be.
func (o *object) drop(names ...string) {
	for i, name := range o.names {
		if v := o.values[i]; slices.Contains(names, name) && len(v) <= dropMax && v.kind() != '{' && v.kind() != '[' {
			o.taken[i] = true
		}
	}
}

// dropFlags is drop of members that are true or false.
func (o *object) dropFlags(names ...string) {
	for i, name := range o.names {
		if k := o.values[i].kind(); slices.Contains(names, name) && (k == 't' || k == 'f') {
			o.taken[i] = true
		}
	}
}

// dropAll marks members as uninteresting, whatever they are.
func (o *object) dropAll(names ...string) {
	for i, name := range o.names {
		if slices.Contains(names, name) {
			o.taken[i] = true
		}
	}
}

// enter is take of a member that is an object. Those of its members that are not
// understood stay part of the rest.
func (o *object) enter(names ...string) (*object, bool) {
	for _, name := range names {
		i := slices.Index(o.names, name)
		if i < 0 {
			continue
		}
		if inner, ok := o.effort.object(o.values[i]); ok {
			if o.entered == nil {
				o.entered = make([]*object, len(o.names))
			}
			o.taken[i], o.entered[i] = true, inner
			return inner, true
		}
	}
	return nil, false
}

// forget undoes all marks: another shape is tried.
func (o *object) forget() {
	clear(o.taken)
	o.entered = nil
}

// rest is what was not understood, as one more part of JSON.
func (o *object) rest(label string) []Part {
	left := o.left()
	if left == nil {
		return nil
	}
	return []Part{unknown(left, label)}
}

// left is the object without what was understood, nil if nothing is left.
func (o *object) left() value {
	var out value
	for i, name := range o.names {
		v := o.values[i]
		if o.entered != nil && o.entered[i] != nil {
			o.entered[i].dropPlumbing()
			v = o.entered[i].left()
		} else if o.taken[i] {
			continue
		}
		if v.isEmpty() {
			continue
		}
		if out == nil {
			out = append(out, '{')
		} else {
			out = append(out, ',')
		}
		out = append(append(append(out, marshal(name)...), ':'), v...)
	}
	if out == nil {
		return nil
	}
	return append(out, '}')
}

// marshal writes a string as JSON, with < and > as they are.
func marshal(s string) []byte {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a string can always be written
	return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
}
