package main

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The configuration file is TOML of the plainest kind: lines of key = "value", and
// comments. It is read line by line, because set and unset change one line and keep
// all others with their comments, and because an error names the line; the rest of
// TOML (tables, numbers, multi-line strings) is not used by any setting, and is
// refused.

// tomlLine is a line of the file.
type tomlLine struct {
	number     int // from 1
	key, value string
	comment    string // after the value, with its #
}

// tomlError says which line of a file is wrong, and why.
func tomlError(file string, line int, reason, hint string) error {
	return &usageError{fmt.Sprintf("%s, line %d: %s", file, line, reason), hint}
}

var (
	tomlKey    = regexp.MustCompile(`^([A-Za-z0-9_-]+|"[A-Za-z0-9_-]+"|'[A-Za-z0-9_-]+')[ \t]*=[ \t]*`)
	tomlString = regexp.MustCompile(`^(?:"(?:[^"\\]|\\(?:[btnfr"\\]|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}))*"|'[^']*')`)
	tomlRest   = regexp.MustCompile(`^[ \t]*(#.*)?$`)
)

// parseTOML returns the lines that set something.
func parseTOML(file, content string) ([]tomlLine, error) {
	var lines []tomlLine
	for i, text := range tomlLines(content) {
		bad := func(reason string) error {
			return tomlError(file, i+1, reason, `a line is: key = "value"`)
		}
		switch {
		case !utf8.ValidString(text):
			return nil, bad("it is not valid UTF-8")
		case strings.ContainsFunc(text, func(r rune) bool { return r != '\t' && isControl(r) }):
			return nil, bad("it has a control character")
		}
		text = strings.Trim(text, " \t")
		if text == "" || text[0] == '#' {
			continue
		}
		name := tomlKey.FindStringSubmatch(text)
		if name == nil {
			return nil, bad(fmt.Sprintf("%q is no setting", text))
		}
		line := tomlLine{number: i + 1, key: strings.Trim(name[1], `"'`)}
		text = text[len(name[0]):]
		quoted := tomlString.FindString(text)
		rest := tomlRest.FindStringSubmatch(text[len(quoted):])
		if quoted == "" || rest == nil {
			return nil, bad(fmt.Sprintf("the value of %s is not a text in quotes", line.key))
		}
		line.value, line.comment = quoted[1:len(quoted)-1], rest[1]
		if quoted[0] == '"' {
			var err error
			if line.value, err = strconv.Unquote(quoted); err != nil {
				return nil, bad(fmt.Sprintf("%s is not a text", quoted)) // \ud800: no character
			}
		}
		if same := slices.IndexFunc(lines, func(l tomlLine) bool { return l.key == line.key }); same >= 0 {
			return nil, bad(fmt.Sprintf("%s was set on line %d already", line.key, lines[same].number))
		}
		lines = append(lines, line)
	}
	return lines, nil
}

// tomlLines splits a file into its lines, without their ends.
func tomlLines(content string) []string {
	content = strings.TrimPrefix(content, "\uFEFF") // some editors begin files with it
	lines := strings.Split(strings.TrimSuffix(content, "\n"), "\n")
	for i := range lines {
		lines[i] = strings.TrimSuffix(lines[i], "\r")
	}
	return lines
}

// setTOML changes the value of a key, or adds it; nil removes it. All other lines,
// and comments, stay.
func setTOML(file, content, key string, value *string) (string, error) {
	set, err := parseTOML(file, content)
	if err != nil {
		return "", err
	}
	lines := tomlLines(content)
	if content == "" {
		lines = nil
	}
	at := slices.IndexFunc(set, func(l tomlLine) bool { return l.key == key })
	switch {
	case at >= 0 && value != nil:
		lines[set[at].number-1] = strings.TrimSpace(fmt.Sprintf("%s = %s %s", key, strconv.Quote(*value), set[at].comment))
	case at >= 0:
		lines = slices.Delete(lines, set[at].number-1, set[at].number)
	case value != nil:
		lines = append(lines, fmt.Sprintf("%s = %s", key, strconv.Quote(*value)))
	}
	if len(lines) == 0 {
		return "", nil
	}
	return strings.Join(lines, "\n") + "\n", nil
}
