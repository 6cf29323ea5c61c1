package main

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/mattn/go-runewidth"
)

// wrapper breaks a line into rows of at most width columns; 0 is no limit.
type wrapper func(line string, width int) []string

// noWrap leaves wrapping to the terminal.
func noWrap(line string, _ int) []string { return []string{line} }

// hardWrap breaks where the row is full: for text whose columns matter.
func hardWrap(line string, width int) []string {
	if width <= 0 {
		return []string{line}
	}
	if line = expandTabs(line); runewidth.StringWidth(line) <= width {
		return []string{line}
	}
	var rows []string
	for line != "" {
		end := fit(line, width)
		rows = append(rows, line[:end])
		line = line[end:]
	}
	return rows
}

// wordWrap breaks at spaces, and keeps the indentation of a list or of code.
func wordWrap(line string, width int) []string {
	if width <= 0 {
		return []string{line}
	}
	if line = expandTabs(line); runewidth.StringWidth(line) <= width {
		return []string{line}
	}
	hang := hanging(line, width)
	var rows []string
	for rest, prefix := line, ""; rest != ""; prefix = hang {
		end := fit(rest, width-len(prefix))
		if end < len(rest) {
			if at := strings.LastIndexByte(rest[:min(end+1, len(rest))], ' '); at > 0 && strings.TrimSpace(rest[:at]) != "" {
				end = at
			}
		}
		rows = append(rows, prefix+strings.TrimRight(rest[:end], " "))
		rest = strings.TrimLeft(rest[end:], " ")
	}
	return rows
}

// hanging is the indent of continuation rows: below the line's text, after a "- " or
// "12. ".
func hanging(line string, width int) string {
	text := strings.TrimLeft(line, " ")
	in := len(line) - len(text)
	if at := strings.IndexByte(text, ' '); at > 0 && at <= 4 && isMark(text[:at]) {
		in += at + 1
	}
	if in > width/2 {
		return ""
	}
	return strings.Repeat(" ", in)
}

func isMark(word string) bool {
	if word == "-" || word == "*" || word == "+" || word == ">" {
		return true
	}
	number, ok := strings.CutSuffix(word, ".")
	return ok && number != "" && strings.IndexFunc(number, func(r rune) bool { return !unicode.IsDigit(r) }) < 0
}

// fit is how many bytes of a line, at least one character, fit into a row.
func fit(line string, width int) int {
	used := 0
	for i, r := range line {
		w := runewidth.RuneWidth(r)
		if used+w > width && i > 0 {
			return i
		}
		used += w
	}
	return len(line)
}

// expandTabs expands tabs: a terminal would count columns from its own edge, not
// from the text's.
func expandTabs(line string) string {
	if !strings.Contains(line, "\t") {
		return line
	}
	var b strings.Builder
	column := 0
	for _, r := range line {
		if r != '\t' {
			b.WriteRune(r)
			column += runewidth.RuneWidth(r)
			continue
		}
		n := 8 - column%8
		b.WriteString(strings.Repeat(" ", n))
		column += n
	}
	return b.String()
}

// plainWidth is the width of a text that may contain our own colour codes.
func plainWidth(s string) int {
	n := 0
	for i := 0; i < len(s); {
		if s[i] == 0x1b {
			end := strings.IndexByte(s[i:], 'm')
			if end < 0 {
				break
			}
			i += end + 1
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		n += runewidth.RuneWidth(r)
		i += size
	}
	return n
}
