package transcript

import (
	"encoding/json"
	"strings"
)

const (
	// flatMax is how long a list or an object may be to stay on one line.
	flatMax = 72
	// indentMax is how deep lines are indented. Deeper values stay on one
	// line: indenting thousands of levels would be quadratic.
	indentMax = 12
)

// Pretty lays JSON out for people: short values on one line, others indented. The
// tokens stay as they are stored; what is not JSON is returned unchanged.
func Pretty(raw json.RawMessage) string {
	if !json.Valid(raw) {
		return string(raw)
	}
	var b strings.Builder
	b.Grow(len(raw) + len(raw)/4)
	begin := space(raw, 0)
	pretty(&b, value(raw[begin:skip(raw, begin)]), 0)
	return b.String()
}

func pretty(b *strings.Builder, v value, level int) {
	if kind := v.kind(); kind != '{' && kind != '[' {
		b.Write(v)
		return
	}
	if level >= indentMax || v.isEmpty() || fitsLine(v) {
		flatten(b, v)
		return
	}
	b.WriteByte(v[0])
	for i, first := space(v, 1), true; i < len(v)-1; first = false {
		if !first {
			b.WriteByte(',')
			if i = space(v, i); v[i] == ',' {
				i = space(v, i+1)
			}
		}
		newLine(b, level+1)
		if v[0] == '{' {
			end := skip(v, i)
			b.Write(v[i:end])
			b.WriteString(": ")
			i = space(v, space(v, end)+1)
		}
		end := skip(v, i)
		pretty(b, v[i:end], level+1)
		i = space(v, end)
	}
	newLine(b, level)
	b.WriteByte(v[len(v)-1])
}

func newLine(b *strings.Builder, level int) {
	b.WriteByte('\n')
	for range level {
		b.WriteString("  ")
	}
}

// fitsLine reports whether a value is short, and not deep.
func fitsLine(v value) bool {
	if len(v) > 2*flatMax { // there may be space between the tokens, but not that much
		return false
	}
	var b strings.Builder
	flatten(&b, v)
	return b.Len() <= flatMax
}

// flatten writes a value on one line, with a space after commas and colons.
func flatten(b *strings.Builder, v value) {
	for i := 0; i < len(v); {
		switch c := v[i]; c {
		case '"':
			end := skipString(v, i)
			b.Write(v[i:end])
			i = end
		case ' ', '\t', '\n', '\r':
			i++
		case ',', ':':
			b.WriteByte(c)
			b.WriteByte(' ')
			i++
		default:
			b.WriteByte(c)
			i++
		}
	}
}
