package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf16"
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
		case isHidden(r) && !joins(s[:i], r, s[i+n:]):
			b.WriteString(escapedRune(r))
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
		if isControl(r) || isHidden(r) {
			return true
		}
	}
	return false
}

// isControl reports the C0 and C1 controls and DEL.
func isControl(r rune) bool { return r < 0x20 || 0x7f <= r && r <= 0x9f }

// isHidden reports characters that can't be seen and make a line read differently from
// what is stored: bidirectional marks, overrides and isolates, zero-width characters,
// fillers, and separators that break a line where none ends.
func isHidden(r rune) bool {
	if r < 0xad {
		return false
	}
	return unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Other_Default_Ignorable_Code_Point) && !unicode.Is(unicode.Prepended_Concatenation_Mark, r)
}

// joining are the scripts that use joiners and non-joiners.
var joining = []*unicode.RangeTable{unicode.Arabic, unicode.Syriac, unicode.Mongolian, unicode.Devanagari, unicode.Bengali, unicode.Gurmukhi, unicode.Gujarati,
	unicode.Oriya, unicode.Tamil, unicode.Telugu, unicode.Kannada, unicode.Malayalam, unicode.Sinhala, unicode.Khmer, unicode.Myanmar}

// joins tells whether a joiner or non-joiner is in a legitimate place: inside an emoji,
// or between letters of a script that needs it. Anywhere else it only hides something.
func joins(before string, r rune, behind string) bool {
	left, _ := utf8.DecodeLastRuneInString(before)
	right, _ := utf8.DecodeRuneInString(behind)
	switch r {
	case 0x200d: // zero width joiner
		if (unicode.In(left, unicode.So, unicode.Sk) || left == 0xfe0f) && unicode.Is(unicode.So, right) {
			return true
		}
		fallthrough
	case 0x200c: // zero width non-joiner
		return unicode.In(left, joining...) && unicode.In(right, joining...)
	}
	return false
}

func escapedRune(r rune) string {
	if r > 0xffff {
		return fmt.Sprintf(`\U%08x`, r)
	}
	return fmt.Sprintf(`\u%04x`, r)
}

// escaper writes text of unknown origin to a terminal, like escapeText, in whatever pieces it
// comes.
type escaper struct {
	to   io.Writer
	rest []byte // the beginning of a character, or of a line break
}

func (e *escaper) Write(b []byte) (int, error) {
	text := append(e.rest, b...)
	end := len(text)
	for i := end - 1; i >= 0 && i >= end-utf8.UTFMax; i-- {
		if utf8.RuneStart(text[i]) {
			if text[i] == '\r' || !utf8.FullRune(text[i:]) {
				end = i
			}
			break
		}
	}
	e.rest = slices.Clone(text[end:])
	_, err := io.WriteString(e.to, escapeText(string(text[:end])))
	return len(b), err
}

// end writes what is left.
func (e *escaper) end() error {
	_, err := io.WriteString(e.to, escapeText(string(e.rest)))
	return err
}

// escapeJSON replaces characters that a terminal must not receive with JSON escapes. In
// JSON such characters can only be inside strings, where both mean the same.
func escapeJSON(b []byte) []byte {
	if !needsEscape(strings.TrimSuffix(string(b), "\n")) {
		return b
	}
	out := make([]byte, 0, len(b)+16)
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			out = append(out, `\ufffd`...)
		case 0x7f <= r && isControl(r) || isHidden(r):
			for _, unit := range utf16.Encode([]rune{r}) {
				out = fmt.Appendf(out, `\u%04x`, unit)
			}
		default:
			out = append(out, b[i:i+n]...)
		}
		i += n
	}
	return out
}
