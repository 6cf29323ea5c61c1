package engine

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"unicode/utf8"
)

// depth is how deeply the objects and arrays of valid JSON are nested.
func depth(data []byte) (deepest int) {
	n, inString := 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case c == '"':
			inString = !inString
		case inString && c == '\\':
			i++
		case inString:
		case c == '{' || c == '[':
			n++
			deepest = max(deepest, n)
		case c == '}' || c == ']':
			n--
		}
	}
	return deepest
}

func checkJSON(field string, data []byte) error {
	if len(data) == 0 {
		return invalid(field, "it is empty; the JSON value for nothing is null")
	}
	if bytes.HasPrefix(data, []byte("\xef\xbb\xbf")) {
		return invalid(field, "it begins with a byte order mark, which JSON does not allow")
	}
	if !utf8.Valid(data) {
		return invalid(field, "it is not valid UTF-8 (at byte %d)", firstInvalidUTF8(data))
	}
	if plainString(data) || json.Valid(data) {
		return nil
	}
	// json.Valid is fast but gives no reason; Unmarshal says where.
	var v json.RawMessage
	err := json.Unmarshal(data, &v)
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return invalid(field, "it is not JSON: %v (at byte %d)", err, syntax.Offset)
	}
	return invalid(field, "it is not JSON: %v", err)
}

// plainString reports whether data is a JSON string without escapes, the most
// common data there is; json.Valid takes ten times as long to find out.
func plainString(data []byte) bool {
	n := len(data)
	if n < 2 || data[0] != '"' || data[n-1] != '"' {
		return false
	}
	text := data[1 : n-1]
	for ; len(text) >= 8; text = text[8:] {
		if anySpecial(binary.LittleEndian.Uint64(text)) {
			return false
		}
	}
	for _, c := range text {
		if c < 0x20 || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

// anySpecial reports whether one of eight bytes is a control character, a quote or a
// backslash: a subtraction borrows from the top bit of a byte that is too small.
func anySpecial(eight uint64) bool {
	const each, top = 0x0101010101010101, 0x8080808080808080
	quote, backslash := eight^('"'*each), eight^('\\'*each)
	return ((eight-' '*each)&^eight|(quote-each)&^quote|(backslash-each)&^backslash)&top != 0
}

func firstInvalidUTF8(data []byte) int {
	for i := 0; i < len(data); {
		r, n := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return len(data)
}
