// Package pyjson writes JSON as Python's json.dumps does with sort_keys=True, and its defaults
// otherwise, for checksums that are made over such text. Numbers keep their digits.
package pyjson

import (
	"bytes"
	"encoding/json"
	"fmt"
	"sort"
)

// Append writes a valid JSON value. Anything else is written as null.
func Append(dst, raw []byte) []byte {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if dec.Decode(&v) != nil {
		return append(dst, "null"...)
	}
	return value(dst, v)
}

func value(dst []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(dst, "null"...)
	case bool:
		return fmt.Append(dst, v)
	case json.Number:
		return append(dst, v...)
	case string:
		return text(dst, v)
	case []any:
		dst = append(dst, '[')
		for i, item := range v {
			if i > 0 {
				dst = append(dst, ", "...)
			}
			dst = value(dst, item)
		}
		return append(dst, ']')
	case map[string]any:
		names := make([]string, 0, len(v))
		for name := range v {
			names = append(names, name)
		}
		sort.Strings(names) // by code point, as Python does
		dst = append(dst, '{')
		for i, name := range names {
			if i > 0 {
				dst = append(dst, ", "...)
			}
			dst = append(text(dst, name), ": "...)
			dst = value(dst, v[name])
		}
		return append(dst, '}')
	}
	return dst
}

var short = map[rune]string{'"': `\"`, '\\': `\\`, '\n': `\n`, '\r': `\r`, '\t': `\t`, '\b': `\b`, '\f': `\f`}

func text(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for _, r := range s {
		switch escaped, ok := short[r]; {
		case ok:
			dst = append(dst, escaped...)
		case r >= ' ' && r <= '~':
			dst = append(dst, byte(r))
		case r > 0xffff:
			r -= 0x10000
			dst = fmt.Appendf(dst, `\u%04x\u%04x`, 0xd800+(r>>10), 0xdc00+(r&0x3ff))
		default:
			dst = fmt.Appendf(dst, `\u%04x`, r)
		}
	}
	return append(dst, '"')
}
