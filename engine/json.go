package engine

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"unicode/utf8"

	"hansard/internal/jsontext"
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
	if jsontext.Valid(data) {
		return nil
	}
	// Valid gives no reason; Unmarshal says where the error is.
	var v json.RawMessage
	err := json.Unmarshal(data, &v)
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) && syntax.Offset >= int64(len(data)) && data[len(data)-1] != ' ' && strings.HasPrefix(err.Error(), "invalid character ' '") {
		// To encoding/json the end of a number or a word is the space that would follow.
		return invalid(field, "it is not JSON: it ends too soon (at byte %d)", syntax.Offset)
	}
	if errors.As(err, &syntax) {
		return invalid(field, "it is not JSON: %v (at byte %d)", err, syntax.Offset)
	}
	return invalid(field, "it is not JSON: %v", err)
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
