package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"hansard"
	"hansard/transcript"
)

// printer prints events for people: what the page shows, as text.
type printer struct {
	out *output
	now func() time.Time
	// raw prints the stored data; full folds nothing.
	raw, full bool
	// tools are the names of the calls so far, for their results.
	tools map[string]string
	// deleted are the events that were deleted through the OpenAI routes.
	deleted map[hansard.Seq]hansard.Seq
}

func newPrinter(o *output, now func() time.Time) *printer {
	return &printer{out: o, now: now, tools: map[string]string{}}
}

const (
	indent = "      "
	// foldLines is the number of rows from which a text is folded on a terminal, to
	// shownLines; of a model's reasoning, thoughtLines are shown.
	foldLines    = 20
	shownLines   = 10
	thoughtLines = 3
	// toolsMax bounds the names that are remembered.
	toolsMax = 10_000
)

// voiceStyles are the colours of the speakers' names.
var voiceStyles = map[transcript.Voice]string{transcript.User: bold + ";" + cyan, transcript.Agent: bold + ";" + green, transcript.System: bold, transcript.Tool: yellow}

// event prints an event for people, or as JSON.
func (t *printer) event(asJSON bool, e hansard.Event) error {
	if asJSON {
		return t.out.eventJSON(e)
	}
	return t.print(e)
}

// happened is the time of an event for people: the one its writer gave, if any.
func happened(e *hansard.Event) time.Time {
	if !e.At.IsZero() {
		return e.At
	}
	return e.Time
}

func (t *printer) print(e hansard.Event) error {
	o := t.out
	read := transcript.Of(e)
	head := o.paint(dim, fmt.Sprintf("%4d  %s  ", e.Seq, humanTime(t.now(), happened(&e))))
	if text, known := noteText(read); known {
		_, err := fmt.Fprintln(o, head+o.paint(yellow, "── "+text+" ──"))
		return err
	}
	role := read.Role
	if read.Voice == transcript.Tool && role == "user" {
		role = "tool" // a result in the user's name
	}
	name := title(e.Kind, role, read.Author)
	if t.raw {
		name = title(e.Kind, e.Role, e.Author)
	}
	head += o.paint(voiceStyles[read.Voice], name)
	if e.Inbox {
		head += o.paint(yellow, "  inbox")
	}
	if e.Turn != "" {
		head += o.paint(dim, "  turn "+turnName(e.Turn))
	}
	fmt.Fprintln(o, head)
	if by := t.deleted[e.Seq]; t.raw {
		t.rawBody(e)
	} else if by > 0 && !t.full {
		t.line(indent, dim, fmt.Sprintf("(deleted in event %d; --full prints it)", by))
	} else {
		t.parts(read.Parts, indent, false)
	}
	if e.Patch != nil {
		for _, text := range patchTexts(e.Patch) {
			t.lines(text, indent, "", 0, hardWrap)
		}
	}
	// bufio keeps the first error; this returns it.
	_, err := o.WriteString("")
	return err
}

// noteText is what the store itself says, in one line.
func noteText(read transcript.Reading) (string, bool) {
	if len(read.Parts) != 1 {
		return "", false
	}
	switch p := &read.Parts[0]; p.Type {
	case transcript.Note:
		return escapeLine(p.Detail), true
	case transcript.Deletion:
		return fmt.Sprintf("item %d was deleted", p.Seq), true
	}
	return "", false
}

// title is the role and the author of a message, and before them the kind of
// anything else.
func title(kind, role, author string) string {
	var parts []string
	if kind != hansard.KindMessage || role == "" && author == "" {
		parts = append(parts, kind)
	}
	if role != "" {
		parts = append(parts, role)
	}
	if author != "" {
		parts = append(parts, "("+author+")")
	}
	return escapeLine(strings.Join(parts, " "))
}

// parts prints parts. Within a result text is literal.
func (t *printer) parts(parts []transcript.Part, in string, literal bool) {
	for i := range parts {
		switch p := &parts[i]; p.Type {
		case transcript.Text:
			if literal {
				t.lines(transcript.StripEscapes(p.Text), in, "", shownLines, hardWrap)
			} else {
				t.lines(p.Text, in, "", 0, wordWrap)
			}
		case transcript.Thinking:
			t.thinking(p, in)
		case transcript.Call:
			t.call(p, in)
		case transcript.Result:
			t.result(p, in)
		case transcript.Summary:
			t.lines(summaryHead(p)+p.Text, in, "", 0, wordWrap)
		case transcript.Usage:
			t.line(in, dim, usageText(p.Tokens))
		case transcript.Note:
			t.line(in, "", strings.TrimSpace(p.Name+" "+p.Text))
		case transcript.Image, transcript.File:
			t.line(in, dim, fileText(p))
			if p.Text != "" {
				t.lines(p.Text, in+"  ", "", shownLines, hardWrap)
			}
		case transcript.JSON:
			if p.Label != "" {
				t.line(in, dim, p.Label)
			}
			t.lines(p.Body(), in, dimIf(p.Label != ""), shownLines, hardWrap)
		}
	}
}

func dimIf(yes bool) string {
	if yes {
		return dim
	}
	return ""
}

func summaryHead(p *transcript.Part) string {
	if p.Last > 0 {
		return fmt.Sprintf("Summary of %d–%d: ", p.First, p.Last)
	}
	return ""
}

func (t *printer) thinking(p *transcript.Part, in string) {
	if p.Text == "" {
		t.line(in, dim, "(thinking, hidden by the model)")
		return
	}
	t.lines(p.Text, in+t.out.paint(dim, "┊ "), dim, thoughtLines, wordWrap)
}

// call prints one line with the name and the arguments; all of them if nothing is
// folded.
func (t *printer) call(p *transcript.Part, in string) {
	if p.ID != "" {
		if len(t.tools) == toolsMax {
			clear(t.tools) // a result comes soon after its call
		}
		t.tools[p.ID] = p.Name
	}
	name := escapeLine(p.Name)
	head := in + t.out.paint(bold, "→ "+name)
	short := len(p.Args) == 0 || !slices.ContainsFunc(p.Args, func(a transcript.Arg) bool { return strings.Contains(a.Text, "\n") || len(a.Text) > 60 })
	if t.folds() || short {
		most := 400
		if t.out.width > 0 && t.folds() {
			most = max(20, t.out.width-len(in)-len(name)-5)
		}
		if line := p.Line(most); line != "" {
			head += "  " + escapeLine(line)
		}
		fmt.Fprintln(t.out, head)
		return
	}
	fmt.Fprintln(t.out, head)
	for _, a := range p.Args {
		text := a.Text
		if a.Name != "" && !strings.Contains(text, "\n") {
			text = a.Name + ": " + text
		} else if a.Name != "" {
			t.line(in+"  ", dim, a.Name+":")
		}
		t.lines(text, in+"  ", "", 0, hardWrap)
	}
}

func (t *printer) result(p *transcript.Part, in string) {
	name := p.Name
	if known := t.tools[p.ID]; known != "" {
		name = known
	}
	if name == "" {
		name = "result"
	}
	style, note := dim, ""
	if p.Failed {
		style, note = red, " failed"
	}
	if len(p.Parts) == 0 {
		note += "  (no output)"
	}
	t.line(in, style, "← "+escapeLine(name)+note)
	t.parts(p.Parts, in+"  ", true)
}

// rawBody prints the data: a string as its text, anything else as JSON.
func (t *printer) rawBody(e hansard.Event) {
	data := bytes.TrimSpace(e.Data)
	if e.Patch == nil || string(data) != "null" {
		t.lines(dataText(data), indent, "", 0, noWrap)
	}
}

// folds tells whether long texts are folded: on a terminal, unless everything was
// requested. A pipe gets everything.
func (t *printer) folds() bool { return t.out.tty && !t.full }

// line prints one line.
func (t *printer) line(in, style, text string) {
	fmt.Fprintln(t.out, in+t.out.paint(style, escapeLine(text)))
}

// lines prints a text, each line after the indent. most is how many lines are shown if
// it is folded; 0 folds nothing.
func (t *printer) lines(text, in, style string, most int, wrap wrapper) {
	text = escapeText(strings.TrimSuffix(text, "\n"))
	width := 0
	if t.out.width > 0 {
		width = max(20, t.out.width-plainWidth(in))
	}
	var rows []string
	for line := range strings.SplitSeq(text, "\n") {
		rows = append(rows, wrap(line, width)...)
	}
	// Rows count, not lines: one line of a megabyte would flood the screen as well.
	left := 0
	if n := len(rows); t.folds() && most > 0 && n > most && (most == thoughtLines || n >= foldLines) {
		left, rows = n-most, rows[:most]
	}
	for _, row := range rows {
		t.out.WriteString(strings.TrimRight(in+t.out.paint(style, row), " ") + "\n")
	}
	if left > 0 {
		fmt.Fprintln(t.out, in+t.out.paint(dim, fmt.Sprintf("… %s more; --full prints all", plural(left, "line"))))
	}
}

func usageText(tokens *transcript.Tokens) string {
	var counts []string
	for _, c := range []struct {
		n    int64
		name string
	}{{tokens.Input, "in"}, {tokens.CacheRead, "cached"}, {tokens.CacheWrite, "written to the cache"}, {tokens.Output, "out"}, {tokens.Reasoning, "thinking"}} {
		if c.n > 0 {
			counts = append(counts, humanCount(c.n)+" "+c.name)
		}
	}
	if len(counts) == 0 {
		counts = append(counts, humanCount(tokens.Total))
	}
	text := "tokens: " + strings.Join(counts, ", ")
	if tokens.Model != "" {
		text += " (" + tokens.Model + ")"
	}
	return text
}

// fileText describes what a terminal can't show.
func fileText(p *transcript.Part) string {
	about := []string{string(p.Type)}
	for _, s := range []string{p.Name, p.MediaType} {
		if s != "" {
			about = append(about, s)
		}
	}
	if data, ok := strings.CutPrefix(p.URL, "data:"); ok {
		_, data, _ = strings.Cut(data, ",")
		about = append(about, humanBytes(int64(len(data))*3/4))
	} else if digest, ok := strings.CutPrefix(p.URL, transcript.AttachmentScheme); ok {
		about = append(about, "attached", digest)
	} else if p.URL != "" {
		about = append(about, p.URL)
	}
	return "[" + strings.Join(about, " ") + "]"
}

// compactMax is the length up to which raw JSON is shown on one line.
const compactMax = 100

// dataText shows a JSON string as its text and any other value as JSON.
func dataText(data []byte) string {
	var text string
	if len(data) > 0 && data[0] == '"' && json.Unmarshal(data, &text) == nil {
		return text
	}
	var flat bytes.Buffer
	if err := json.Compact(&flat, data); err != nil {
		return string(data)
	}
	if flat.Len() <= compactMax {
		return flat.String()
	}
	return transcript.Pretty(data)
}

// patchTexts says what a patch changed.
func patchTexts(p *hansard.Patch) []string {
	var texts []string
	if p.Title != nil {
		texts = append(texts, "title: "+escapeLine(*p.Title))
	}
	for _, k := range slices.Sorted(maps.Keys(p.Labels)) {
		if v := p.Labels[k]; v == nil {
			texts = append(texts, "label "+escapeLine(k)+" removed")
		} else {
			texts = append(texts, "label "+escapeLine(k+"="+*v))
		}
	}
	if len(p.State) > 0 {
		texts = append(texts, "state: "+dataText(p.State))
	}
	for _, o := range p.StateOps {
		text := "state: " + o.Op + " " + strconv.Quote(o.Path)
		if len(o.Value) > 0 {
			text += " " + dataText(o.Value)
		}
		texts = append(texts, text)
	}
	return texts
}
