package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"hansard"
)

// transcript prints events for people.
type transcript struct {
	out *output
	now func() time.Time
}

const transcriptIndent = "      "

func (t *transcript) print(e hansard.Event) error {
	o := t.out
	head := o.paint(dim, fmt.Sprintf("%4d  %s  ", e.Seq, humanTime(t.now(), e.Time)))
	if text, known := turnText(e); known {
		_, err := fmt.Fprintln(o, head+o.paint(yellow, "── "+text+" ──"))
		return err
	}
	head += o.paint(bold, title(e))
	if e.Inbox {
		head += o.paint(yellow, "  inbox")
	}
	if e.Turn != "" {
		head += o.paint(dim, "  turn "+turnName(e.Turn))
	}
	fmt.Fprintln(o, head)
	for _, text := range body(e) {
		for line := range strings.Lines(text) {
			o.WriteString(transcriptIndent)
			o.WriteString(strings.TrimSuffix(line, "\n"))
			o.WriteByte('\n')
		}
	}
	// bufio keeps the first error; this asks for it.
	_, err := o.WriteString("")
	return err
}

// title is the role and the author of a message, and before them the kind of
// anything else.
func title(e hansard.Event) string {
	var parts []string
	if e.Kind != hansard.KindMessage || e.Role == "" && e.Author == "" {
		parts = append(parts, e.Kind)
	}
	if e.Role != "" {
		parts = append(parts, e.Role)
	}
	if e.Author != "" {
		parts = append(parts, "("+e.Author+")")
	}
	return escapeLine(strings.Join(parts, " "))
}

// body is the content in lines that are safe to print.
func body(e hansard.Event) []string {
	var texts []string
	data := bytes.TrimSpace(e.Data)
	if e.Patch == nil || string(data) != "null" {
		texts = append(texts, escapeText(dataText(data)))
	}
	if e.Patch != nil {
		texts = append(texts, patchTexts(e.Patch)...)
	}
	return texts
}

// compactMax is the length up to which JSON is shown on one line.
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
	var tall bytes.Buffer
	if err := json.Indent(&tall, data, "", "  "); err != nil {
		return flat.String()
	}
	return tall.String()
}

// patchTexts tells what a patch changed.
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
		texts = append(texts, "state: "+escapeText(dataText(p.State)))
	}
	return texts
}
