package main

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// escapeText makes text of unknown origin safe for a terminal: control
// characters, which could move the cursor, set the clipboard or hide what was
// written, become visible as \x1b and the like. Line breaks and tabs stay.
func escapeText(s string) string { return escape(s, true) }

// escapeLine is escapeText for what has to stay on one line: titles, names, labels.
func escapeLine(s string) string { return escape(s, false) }

func escape(s string, breaks bool) string {
	if !needsEscape(s) {
		return s
	}
	var b strings.Builder
	b.Grow(len(s) + 16)
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case breaks && (r == '\n' || r == '\t'):
			b.WriteRune(r)
		case breaks && strings.HasPrefix(s[i:], "\r\n"):
			b.WriteByte('\n')
			n = 2
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case isControl(r):
			fmt.Fprintf(&b, `\x%02x`, r)
		case isReordering(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteString(s[i : i+n])
		}
		i += n
	}
	return b.String()
}

func needsEscape(s string) bool {
	if !utf8.ValidString(s) {
		return true
	}
	for _, r := range s {
		if isControl(r) || isReordering(r) {
			return true
		}
	}
	return false
}

// isControl tells the C0 and C1 controls and DEL.
func isControl(r rune) bool { return r < 0x20 || 0x7f <= r && r <= 0x9f }

// isReordering tells the characters that make a line read other than it is
// stored (bidirectional overrides and isolates), or break it where no line ends.
func isReordering(r rune) bool {
	return 0x202a <= r && r <= 0x202e || 0x2066 <= r && r <= 0x2069 || r == 0x2028 || r == 0x2029
}
