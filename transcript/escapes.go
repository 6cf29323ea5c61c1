package transcript

import (
	"strings"
	"unicode/utf8"
)

// StripEscapes removes what drives a terminal: colours and other sequences that begin with
// an escape, backspaces that overstrike, and what was overwritten after a carriage return.
// What is left is what a person at the terminal would have read. Text without any of that
// is returned unchanged.
func StripEscapes(s string) string {
	if !strings.ContainsAny(s, "\x1b\b\r") && !strings.Contains(s, "\u009b") { // separately: a search for ASCII is faster
		return s
	}
	out := make([]byte, 0, len(s))
	line := 0 // where the line begins in out
	for i := 0; i < len(s); {
		switch c := s[i]; {
		case c == 0x1b:
			i = sequenceEnd(s, i+1)
		case strings.HasPrefix(s[i:], "\u009b"):
			i = controlEnd(s, i+len("\u009b"))
		case c == '\b':
			if len(out) > line {
				_, size := utf8.DecodeLastRune(out[line:])
				out = out[:len(out)-size]
			}
			i++
		case c == '\r':
			if i+1 < len(s) && s[i+1] != '\n' && s[i+1] != '\r' {
				out = out[:line] // it is overwritten
			}
			i++
		default:
			out = append(out, c)
			if i++; c == '\n' {
				line = len(out)
			}
		}
	}
	return string(out)
}

// sequenceEnd is the end of the sequence whose escape is before i.
func sequenceEnd(s string, i int) int {
	if i >= len(s) {
		return i
	}
	switch s[i] {
	case '[':
		return controlEnd(s, i+1)
	case ']', 'P', 'X', '^', '_': // a string: to the bell, or ESC \
		for j := i + 1; j < len(s); j++ {
			if s[j] == '\a' {
				return j + 1
			}
			if s[j] == 0x1b && j+1 < len(s) && s[j+1] == '\\' {
				return j + 2
			}
			if s[j] == '\n' { // unterminated: it must not swallow the rest
				return j
			}
		}
		return len(s)
	case '(', ')', '#', '%', ' ':
		i++
	}
	if i < len(s) && s[i] >= 0x20 && s[i] < 0x7f {
		i++
	}
	return i // a byte that is not ASCII is not part of a sequence
}

// controlEnd is the end of the control sequence whose parameters begin at i.
func controlEnd(s string, i int) int {
	for i < len(s) && s[i] >= 0x20 && s[i] < 0x40 {
		i++
	}
	if i < len(s) && s[i] >= 0x40 && s[i] < 0x7f {
		i++
	}
	return i
}
