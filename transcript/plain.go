package transcript

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Body is the text of a part to show; JSON is laid out.
func (p *Part) Body() string {
	if p.Type == JSON {
		return Pretty(p.JSON)
	}
	return p.Text
}

// Line is what a part says, on one line of at most this many characters: it stands
// for the part while that is folded.
func (p *Part) Line(most int) string {
	switch p.Type {
	case Call:
		return oneLine(p.argLine(), most)
	case Result:
		for i := range p.Parts {
			if line := p.Parts[i].Line(most); line != "" {
				return line
			}
		}
		return ""
	case Image, File:
		return oneLine(strings.Join(slices.DeleteFunc([]string{string(p.Type), p.Name, p.MediaType}, func(s string) bool { return s == "" }), " "), most)
	case JSON:
		return oneLine(string(p.JSON[:min(len(p.JSON), 8*most+64)]), most)
	}
	return oneLine(p.Text, most)
}

// argLine lists the arguments with their names. A command needs no name, nor does a
// single argument.
func (p *Part) argLine() string {
	var out []string
	for _, a := range p.Args {
		switch {
		case len(out) >= 8:
			return strings.Join(out, ", ")
		case a.Name == "command" || a.Name == "cmd" || a.Name == "" || len(p.Args) == 1 && !a.JSON:
			out = append([]string{head(a.Text)}, out...)
		default:
			out = append(out, a.Name+": "+head(a.Text))
		}
	}
	return strings.Join(out, ", ")
}

// head is as much of a text as a line needs.
func head(s string) string { return s[:min(len(s), 2000)] }

// oneLine is the beginning of a text, with white space collapsed into single spaces.
func oneLine(s string, most int) string {
	s = StripEscapes(s[:min(len(s), 8*most+64)])
	var b strings.Builder
	n, gap := 0, false
	for _, r := range s {
		if unicode.IsSpace(r) || unicode.IsControl(r) {
			gap = n > 0
			continue
		}
		if r == utf8.RuneError {
			continue // an incomplete character at the cut
		}
		if gap {
			b.WriteByte(' ')
			n, gap = n+1, false
		}
		if n >= most {
			return strings.TrimRight(b.String(), " ") + "…"
		}
		b.WriteRune(r)
		n++
	}
	return b.String()
}

// PlainText is what people read in an event, as one text without markup, colours
// or JSON syntax of known shapes: for searching and for excerpts.
func (r Reading) PlainText() string {
	var b strings.Builder
	plain(&b, r.Parts)
	return strings.TrimSuffix(b.String(), "\n")
}

func plain(b *strings.Builder, parts []Part) {
	line := func(s string) {
		if s != "" {
			b.WriteString(StripEscapes(s))
			b.WriteByte('\n')
		}
	}
	for i := range parts {
		switch p := &parts[i]; p.Type {
		case Usage, Deletion:
		case Call:
			line(p.Name)
			for _, a := range p.Args {
				line(a.Text)
			}
		case Result:
			plain(b, p.Parts)
		case Image, File:
			line(p.Name)
			line(p.Text)
		case Note:
			line(strings.TrimSpace(p.Name + " " + p.Text))
		default:
			line(p.Body())
		}
	}
}

// Preview is the beginning of a prompt on one line, empty if the event is not a prompt:
// people recognise a session without a title by the first one.
func (r Reading) Preview(most int) string {
	if r.Voice != User || r.Aside {
		return ""
	}
	for _, p := range r.Parts {
		if p.Type == Text && !isAside(p.Text) {
			p.Text = unmarked.Replace(p.Text[:min(len(p.Text), 8*most+64)])
			if line := p.Line(most); line != "" {
				return line
			}
		}
	}
	return ""
}

// unmarked removes the most common marks of Markdown.
var unmarked = strings.NewReplacer("`", "", "**", "", "*", "", "\n#", "\n", "\n##", "\n", "\n###", "\n")

// asides are the beginnings of texts that a tool writes in the user's name.
var asides = []string{"<environment_context>", "<user_instructions>", "<permissions ", "<command-name>", "<command-message>", "<local-command-", "<system-reminder>", "# AGENTS", "Caveat: The messages below"}

func isAside(text string) bool {
	text = strings.TrimSpace(text[:min(len(text), 200)])
	return slices.ContainsFunc(asides, func(begin string) bool { return strings.HasPrefix(text, begin) })
}
