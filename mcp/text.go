package mcp

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"hansard"
	"hansard/transcript"
)

// cite names an event.
func cite(id hansard.SessionID, seq hansard.Seq) string { return fmt.Sprintf("%s#%d", id, seq) }

// heading is the line above an event: where it is, when, and who speaks.
func heading(id hansard.SessionID, e *hansard.Event, r *transcript.Reading) string {
	var b strings.Builder
	fmt.Fprintf(&b, "[%s] %s", cite(id, e.Seq), e.Time.UTC().Format("2006-01-02 15:04:05"))
	for _, word := range []string{r.Role, r.Author} {
		if word != "" {
			b.WriteByte(' ')
			b.WriteString(line(word, 80))
		}
	}
	if e.Kind != hansard.KindMessage {
		fmt.Fprintf(&b, " (%s)", line(e.Kind, 80))
	}
	if e.Inbox {
		b.WriteString(" (inbox)")
	}
	return b.String()
}

// body is what an event says, as text without control characters and encoded data.
func body(r *transcript.Reading) string {
	var b strings.Builder
	writeParts(&b, r.Parts)
	return strings.TrimRight(b.String(), "\n")
}

func writeParts(b *strings.Builder, parts []transcript.Part) {
	put := func(before, text string) {
		b.WriteString(before)
		b.WriteString(clean(text))
		b.WriteByte('\n')
	}
	for i := range parts {
		switch p := &parts[i]; p.Type {
		case transcript.Usage:
		case transcript.Thinking:
			if p.Text != "" {
				put("(thinking) ", p.Text)
			}
		case transcript.Call:
			put("→ calls ", p.Name)
			for _, a := range p.Args {
				put("  "+line(a.Name, 80)+": ", a.Text)
			}
		case transcript.Result:
			mark := "← result"
			if p.Failed {
				mark = "← failed"
			}
			if p.Name != "" {
				mark += " of " + line(p.Name, 80)
			}
			b.WriteString(mark + ":\n")
			writeParts(b, p.Parts)
		case transcript.Image, transcript.File:
			put("", leftOut(p))
		case transcript.Summary:
			put("(summary) ", p.Text)
		case transcript.Deletion:
			put("", fmt.Sprintf("(the item #%d is deleted)", p.Seq))
		case transcript.Note:
			put("", strings.TrimSpace(p.Name+" "+p.Text))
		default:
			put("", p.Body())
		}
	}
}

// leftOut is a placeholder for a picture or a file.
func leftOut(p *transcript.Part) string {
	words := []string{string(p.Type)}
	for _, word := range []string{p.Name, p.MediaType} {
		if word != "" {
			words = append(words, line(word, 200))
		}
	}
	switch {
	case strings.HasPrefix(p.URL, "data:"):
		words = append(words, fmt.Sprintf("%d bytes of data left out", len(p.URL)))
	case p.URL != "":
		words = append(words, line(p.URL, 500))
	}
	return "[" + strings.Join(words, ", ") + "]"
}

// encodedLeast is the length from which a run counts as encoded data: longer than any hash
// or identifier.
const encodedLeast = 256

// clean removes what is useless to a model: terminal escapes, control characters, invisible
// characters, and encoded data.
func clean(s string) string {
	s = strings.Map(func(r rune) rune {
		// Format characters can hide text from people, and change its direction.
		if r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r)) {
			return -1
		}
		return r
	}, transcript.StripEscapes(strings.ToValidUTF8(s, "\uFFFD")))
	var b strings.Builder
	for s != "" {
		n := encodedRun(s)
		if n >= encodedLeast {
			fmt.Fprintf(&b, "[%d bytes of encoded data left out]", n)
		} else {
			n = max(n, 1)
			b.WriteString(s[:n])
		}
		s = s[n:]
	}
	return b.String()
}

// encodedRun is how many bytes at the beginning of a text may be base64, of either
// alphabet, or hex.
func encodedRun(s string) int {
	n := 0
	for n < len(s) {
		c := s[n]
		if c != '+' && c != '/' && c != '-' && c != '_' && c != '=' && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') {
			break
		}
		n++
	}
	return n
}

// indent sets content apart from the server's own text: no content can pass for a
// heading, or for the hint at the end of a page.
func indent(s string) string { return "  " + strings.ReplaceAll(s, "\n", "\n  ") }

// line is the beginning of a text on one line.
func line(s string, most int) string {
	p := transcript.Part{Type: transcript.Text, Text: clean(s[:min(len(s), 8*most+64)])}
	return p.Line(most)
}

// cut is the beginning of a text that takes no more than most bytes once it is indented:
// whole characters, up to the end of a line if there is one.
func cut(s string, most int) string {
	end := 0
	for size := len(indent("")); end < len(s); end++ {
		if size++; s[end] == '\n' {
			size += len(indent(""))
		}
		if size > most {
			break
		}
	}
	if end == len(s) {
		return s
	}
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	if at := strings.LastIndexByte(s[:end], '\n'); at > end/2 {
		end = at + 1
	}
	return s[:end]
}
