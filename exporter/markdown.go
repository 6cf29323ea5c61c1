package exporter

import (
	"bufio"
	"context"
	"fmt"
	"strings"

	"hansard"
	"hansard/transcript"
)

// writeMarkdown writes a session for people, and for Markdown renderers.
func writeMarkdown(ctx context.Context, s *session, w *bufio.Writer) error {
	fmt.Fprintf(w, "# %s\n\n", markdownLine(heading(&s.info)))
	for _, fact := range factsOf(&s.info) {
		fmt.Fprintf(w, "- %s: %s\n", fact[0], code(fact[1]))
	}
	m := &markdown{w: w}
	for e, err := range s.own(ctx) {
		if err != nil {
			return err
		}
		m.event(&e)
	}
	return nil
}

// heading is what a session is called.
func heading(info *hansard.Info) string {
	if info.Title != "" {
		return info.Title
	}
	return string(info.ID)
}

// factsOf are the facts about a session that precede its events.
func factsOf(info *hansard.Info) [][2]string {
	facts := [][2]string{{"session", string(info.ID)}, {"created", info.Created.UTC().Format("2006-01-02 15:04:05 UTC")}}
	for _, k := range sortedKeys(info.Labels) {
		facts = append(facts, [2]string{k, info.Labels[k]})
	}
	return facts
}

type markdown struct{ w *bufio.Writer }

func (m *markdown) event(e *hansard.Event) {
	r := transcript.Of(*e)
	if len(r.Parts) == 0 {
		return
	}
	fmt.Fprintf(m.w, "\n## %s\n\n<sub>%d · %s</sub>\n", markdownLine(speaker(e, &r)), e.Seq, when(e).UTC().Format("2006-01-02 15:04:05"))
	for i := range r.Parts {
		m.part(&r.Parts[i])
	}
}

// speaker is who speaks, and as what.
func speaker(e *hansard.Event, r *transcript.Reading) string {
	who := r.Role
	if who == "" {
		who = string(r.Voice)
	}
	if r.Author != "" {
		who = r.Author + " (" + who + ")"
	}
	if e.Kind != hansard.KindMessage && e.Kind != "" {
		who += ", " + e.Kind
	}
	return who
}

func (m *markdown) part(p *transcript.Part) {
	switch p.Type {
	case transcript.Text, transcript.Summary:
		fmt.Fprintf(m.w, "\n%s\n", p.Text)
		if fence := openFence(p.Text); fence != "" {
			fmt.Fprintln(m.w, fence)
		}
	case transcript.Thinking:
		if p.Text != "" {
			fmt.Fprintf(m.w, "\n> %s\n", strings.ReplaceAll(p.Text, "\n", "\n> "))
		}
	case transcript.Call:
		fmt.Fprintf(m.w, "\n**%s**\n", markdownLine(p.Name))
		for _, a := range p.Args {
			if a.Name != "" {
				fmt.Fprintf(m.w, "\n%s:\n", markdownLine(a.Name))
			}
			m.fence(a.Text)
		}
	case transcript.Result:
		what := "Result"
		if p.Failed {
			what = "Failed"
		}
		fmt.Fprintf(m.w, "\n%s:\n", what)
		for i := range p.Parts {
			m.result(&p.Parts[i])
		}
	case transcript.Image, transcript.File:
		fmt.Fprintf(m.w, "\n*%s*\n", markdownLine(p.Line(200)))
	case transcript.Usage:
		fmt.Fprintf(m.w, "\n<sub>%s</sub>\n", tokens(p.Tokens))
	case transcript.Note:
		fmt.Fprintf(m.w, "\n*%s %s*\n", markdownLine(p.Name), markdownLine(p.Text))
	case transcript.JSON:
		m.fence(p.Body())
	}
}

func (m *markdown) result(p *transcript.Part) {
	if p.Type == transcript.Image || p.Type == transcript.File {
		m.part(p)
		return
	}
	m.fence(p.Body())
}

// openFence is what closes a block of code that a text leaves open, as an answer that was cut off
// does: all that follows would be code.
func openFence(text string) (open string) {
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \t\r\n")
		indented := strings.TrimLeft(line, " ")
		rest := strings.TrimLeft(indented, "`")
		if strings.HasPrefix(indented, "~") {
			rest = strings.TrimLeft(indented, "~")
		}
		fence := indented[:len(indented)-len(rest)]
		switch {
		case len(line)-len(indented) > 3 || len(fence) < 3:
		case open == "" && (fence[0] == '~' || !strings.Contains(rest, "`")):
			open = fence
		case open != "" && rest == "" && strings.HasPrefix(fence, open):
			open = ""
		}
	}
	return open
}

// fence writes a text in which nothing is markup.
func (m *markdown) fence(text string) {
	ticks := "```"
	for strings.Contains(text, ticks) {
		ticks += "`"
	}
	fmt.Fprintf(m.w, "\n%s\n%s\n%s\n", ticks, strings.TrimRight(text, "\n"), ticks)
}

// code is a short text between ticks.
func code(s string) string {
	ticks := "`"
	for strings.Contains(s, ticks) {
		ticks += "`"
	}
	return ticks + strings.Join(strings.Fields(s), " ") + ticks
}

// markdownLine is a text on one line, escaped so that nothing in it becomes
// markup.
func markdownLine(s string) string {
	var b strings.Builder
	for _, r := range strings.Join(strings.Fields(s), " ") {
		if strings.ContainsRune("\\`*_{}[]<>#|", r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// tokens describes a token count.
func tokens(t *transcript.Tokens) string {
	var out []string
	for _, c := range []struct {
		n    int64
		what string
	}{{t.Input, "in"}, {t.CacheRead, "cached"}, {t.CacheWrite, "written to the cache"}, {t.Output, "out"}, {t.Reasoning, "reasoning"}} {
		if c.n > 0 {
			out = append(out, fmt.Sprint(c.n, " ", c.what))
		}
	}
	return strings.Join(out, ", ") + " tokens"
}
