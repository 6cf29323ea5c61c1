package terms

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"hansard"

	"golang.org/x/text/unicode/norm"
)

// Query is what a SearchQuery's text asks for: all of its phrases.
type Query struct{ Phrases []Phrase }

// Phrase is a sequence of consecutive terms.
type Phrase struct {
	Terms []string
	// Prefix: the last term is only the beginning of one.
	Prefix bool
}

// Check checks a query, the same for every engine, and parses its text.
func Check(q *hansard.SearchQuery) (Query, error) {
	switch {
	case q.Limit < 0:
		return Query{}, invalid("limit", "%d is negative; 0 is no limit", q.Limit)
	case q.Offset < 0:
		return Query{}, invalid("offset", "%d is negative", q.Offset)
	}
	if q.In != "" {
		if err := hansard.CheckID(q.In); err != nil {
			return Query{}, renamed("in", err)
		}
	}
	if q.Prefix != "" {
		if err := hansard.CheckID(hansard.SessionID(q.Prefix)); err != nil {
			return Query{}, renamed("prefix", err)
		}
	}
	return Parse(q.Text)
}

func renamed(field string, err error) error {
	var bad *hansard.InvalidError
	if errors.As(err, &bad) {
		bad.Field = field
	}
	return err
}

func invalid(field, format string, args ...any) error {
	return &hansard.InvalidError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

// Parse reads the text of a query.
func Parse(text string) (Query, error) {
	if len(text) > hansard.MaxSearchText {
		return Query{}, &hansard.InvalidError{Field: "text", TooLarge: true, Reason: fmt.Sprintf("%d bytes, the limit is %d", len(text), hansard.MaxSearchText)}
	}
	if !utf8.ValidString(text) {
		return Query{}, invalid("text", "it is not valid UTF-8")
	}
	text = norm.NFC.String(text)
	var q Query
	for rest := text; ; {
		rest = strings.TrimLeftFunc(rest, unicode.IsSpace)
		if rest == "" {
			break
		}
		var piece string
		if rest[0] == '"' {
			inner, behind, closed := strings.Cut(rest[1:], `"`)
			if !closed {
				return Query{}, invalid("text", `the quote at %q is not closed`, beginning(rest))
			}
			piece, rest = inner, behind
			if strings.HasPrefix(rest, "*") {
				piece, rest = piece+"*", rest[1:]
			}
		} else {
			end := strings.IndexFunc(rest, func(r rune) bool { return r == '"' || unicode.IsSpace(r) })
			if end < 0 {
				end = len(rest)
			}
			piece, rest = rest[:end], rest[end:]
		}
		p, err := phrase(piece)
		if err != nil {
			return Query{}, err
		}
		if len(p.Terms) == 0 {
			continue // punctuation
		}
		if q.Phrases = append(q.Phrases, p); len(q.Phrases) > hansard.MaxSearchWords {
			return Query{}, &hansard.InvalidError{Field: "text", TooLarge: true, Reason: fmt.Sprintf("more than %d words and phrases", hansard.MaxSearchWords)}
		}
	}
	if len(q.Phrases) == 0 {
		return Query{}, invalid("text", "there is no word in it to look for")
	}
	return q, nil
}

// beginning returns enough of a text to recognise it.
func beginning(s string) string {
	if r := []rune(s); len(r) > 20 {
		return string(r[:20]) + "…"
	}
	return s
}

// phrase parses a quoted text or a run without spaces.
func phrase(piece string) (p Phrase, err error) {
	body, star := strings.CutSuffix(piece, "*")
	start, end, lastFirst := 0, 0, 0
	Scan(body, func(term []byte, from, first, to int) bool {
		p.Terms = append(p.Terms, string(term))
		start, end, lastFirst = from, to, first
		return true
	})
	if tooLong(body) {
		return p, invalid("text", "%q is a word of more than %d characters", beginning(body), hansard.MaxSearchedWord)
	}
	if len(p.Terms) == 0 {
		return p, nil
	}
	p.Prefix = star && end == len(body)
	// In a script without spaces a text may continue after what the query has: there the
	// last character may be the first of a pair. If a pair precedes it, that pair already
	// ends with this character.
	r, _ := utf8.DecodeRuneInString(body[start:])
	if lastFirst == end && foldOf(r).gram {
		if n := len(p.Terms); n > 1 && strings.HasSuffix(p.Terms[n-2], p.Terms[n-1]) && isPair(p.Terms[n-2]) {
			p.Terms, p.Prefix = p.Terms[:n-1], false
		} else {
			p.Prefix = true
		}
	}
	return p, nil
}

// isPair reports whether a term is two characters of a script without spaces.
func isPair(term string) bool {
	r, size := utf8.DecodeRuneInString(term)
	_, second := utf8.DecodeRuneInString(term[size:])
	return r >= utf8.RuneSelf && second > 0 && size+second == len(term) && foldOf(r).gram
}

// tooLong reports whether a text has a run of letters that is too long to be a word.
func tooLong(text string) bool {
	n := 0
	for _, r := range text {
		f := foldOf(r)
		switch {
		case f.text == "" && !f.joins || f.gram:
			n = 0
		default:
			if n += utf8.RuneCountInString(f.text); n > hansard.MaxSearchedWord {
				return true
			}
		}
	}
	return false
}
