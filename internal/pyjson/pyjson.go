// Package pyjson writes JSON as Python's json.dumps does with sort_keys=True, for
// checksums that are made over such text. Numbers keep the digits they have.
package pyjson

import (
	"bytes"
	"encoding/json"
	"fmt"
	"sort"
	"unicode/utf8"
)

// Style is how json.dumps is asked to write; the zero value is its default.
type Style struct {
	Compact bool // separators=(",", ":")
	Unicode bool // ensure_ascii=False
}

// Append writes a valid JSON value. What is not JSON is written as null.
func Append(dst []byte, raw []byte, s Style) []byte {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if dec.Decode(&v) != nil {
		return append(dst, "null"...)
	}
	return s.value(dst, v)
}

func (s Style) value(dst []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(dst, "null"...)
	case bool:
		return fmt.Append(dst, v)
	case json.Number:
		return append(dst, v...)
	case string:
		return s.text(dst, v)
	case []any:
		dst = append(dst, '[')
		for i, item := range v {
			if i > 0 {
				dst = s.comma(dst)
			}
			dst = s.value(dst, item)
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
				dst = s.comma(dst)
			}
			dst = append(s.text(dst, name), ':')
			if !s.Compact {
				dst = append(dst, ' ')
			}
			dst = s.value(dst, v[name])
		}
		return append(dst, '}')
	}
	return dst
}

func (s Style) comma(dst []byte) []byte {
	if s.Compact {
		return append(dst, ',')
	}
	return append(dst, ", "...)
}

var short = map[rune]string{'"': `\"`, '\\': `\\`, '\n': `\n`, '\r': `\r`, '\t': `\t`, '\b': `\b`, '\f': `\f`}

func (s Style) text(dst []byte, text string) []byte {
	dst = append(dst, '"')
	for _, r := range text {
		switch escaped, ok := short[r]; {
		case ok:
			dst = append(dst, escaped...)
		case r >= ' ' && r <= '~' || s.Unicode && r >= ' ':
			dst = utf8.AppendRune(dst, r)
		case r > 0xffff:
			r -= 0x10000
			dst = fmt.Appendf(dst, `\u%04x\u%04x`, 0xd800+(r>>10), 0xdc00+(r&0x3ff))
		default:
			dst = fmt.Appendf(dst, `\u%04x`, r)
		}
	}
	return append(dst, '"')
}
