package exporter

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html"
	"io"
	"maps"
	"slices"
	"strings"

	"hansard"
	"hansard/transcript"
)

//go:embed page.css
var pageStyle string

// maxPicture is the maximum size of an attached picture that is put into a page.
const maxPicture = 8 << 20

// foldBytes is the length from which a tool's result is folded.
const foldBytes = 600

// writeHTML writes a session as one page that needs nothing else: no script, no file, no
// server. All content comes from others, so it is escaped and stays text.
func writeHTML(ctx context.Context, s *session, w *bufio.Writer) error {
	title := html.EscapeString(heading(&s.info))
	fmt.Fprintf(w, `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<title>%s</title><style>%s</style></head>
<body><main><header><h1>%s</h1><dl>`, title, pageStyle, title)
	for _, fact := range factsOf(&s.info) {
		fmt.Fprintf(w, "<dt>%s</dt><dd>%s</dd>", html.EscapeString(fact[0]), html.EscapeString(fact[1]))
	}
	fmt.Fprint(w, "</dl></header>\n")
	p := &page{ctx: ctx, s: s, w: w}
	for e, err := range s.own(ctx) {
		if err != nil {
			return err
		}
		if err := p.event(&e); err != nil {
			return err
		}
	}
	_, err := fmt.Fprint(w, "</main></body></html>\n")
	return err
}

type page struct {
	ctx context.Context
	s   *session
	w   *bufio.Writer
}

func (p *page) event(e *hansard.Event) error {
	r := transcript.Of(*e)
	if len(r.Parts) == 0 {
		return nil
	}
	fmt.Fprintf(p.w, `<article class="%s" id="e%d"><div class="by"><b>%s</b> <time>%s</time> <a href="#e%d">%d</a></div>`,
		html.EscapeString(string(r.Voice)), e.Seq, html.EscapeString(speaker(e, &r)), when(e).UTC().Format("2006-01-02 15:04:05"), e.Seq, e.Seq)
	for i := range r.Parts {
		if err := p.part(&r.Parts[i]); err != nil {
			return err
		}
	}
	_, err := fmt.Fprint(p.w, "</article>\n")
	return err
}

func (p *page) part(part *transcript.Part) error {
	switch part.Type {
	case transcript.Text:
		fmt.Fprintf(p.w, `<div class="text">%s</div>`, html.EscapeString(part.Text))
	case transcript.Summary:
		fmt.Fprintf(p.w, `<div class="text summary">%s</div>`, html.EscapeString(part.Text))
	case transcript.Thinking:
		if part.Text != "" {
			p.fold("thought", "Thinking", part.Text)
		}
	case transcript.Call:
		fmt.Fprintf(p.w, `<div class="call"><b>→ %s</b>`, html.EscapeString(part.Name))
		for _, a := range part.Args {
			p.literal(a.Name, a.Text)
		}
		fmt.Fprint(p.w, "</div>")
	case transcript.Result:
		return p.result(part)
	case transcript.Image, transcript.File:
		return p.picture(part)
	case transcript.Usage:
		fmt.Fprintf(p.w, `<div class="small">%s</div>`, html.EscapeString(tokens(part.Tokens)))
	case transcript.Note:
		fmt.Fprintf(p.w, `<div class="small">%s %s</div>`, html.EscapeString(part.Name), html.EscapeString(part.Text))
	case transcript.JSON:
		label := part.Label
		if label == "" {
			label = "JSON"
		}
		p.fold("json", label, part.Body())
	}
	return nil
}

func (p *page) result(part *transcript.Part) error {
	class, mark := "result", "←"
	if part.Failed {
		class, mark = "result failed", "✗"
	}
	fmt.Fprintf(p.w, `<div class="%s">%s `, class, mark)
	for i := range part.Parts {
		inner := &part.Parts[i]
		if inner.Type == transcript.Image || inner.Type == transcript.File {
			if err := p.picture(inner); err != nil {
				return err
			}
			continue
		}
		if body := inner.Body(); len(body) > foldBytes {
			p.fold("literal", inner.Line(100), body)
		} else {
			p.literal("", body)
		}
	}
	_, err := fmt.Fprint(p.w, "</div>")
	return err
}

func (p *page) fold(class, line, text string) {
	fmt.Fprintf(p.w, `<details class="%s"><summary>%s</summary><pre>%s</pre></details>`, class, html.EscapeString(line), html.EscapeString(transcript.StripEscapes(text)))
}

func (p *page) literal(name, text string) {
	if name != "" {
		fmt.Fprintf(p.w, `<span class="name">%s</span>`, html.EscapeString(name))
	}
	fmt.Fprintf(p.w, "<pre>%s</pre>", html.EscapeString(transcript.StripEscapes(text)))
}

// rasters are the types of pictures that a browser draws and does not run.
var rasters = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}

// picture puts a picture into the page, or mentions it.
func (p *page) picture(part *transcript.Part) error {
	mediaType, data, ok := picture(part)
	if digest, attached := strings.CutPrefix(part.URL, transcript.AttachmentScheme); attached && slices.Contains(rasters, part.MediaType) {
		r, err := p.s.store.OpenAttachment(p.ctx, p.s.info.ID, digest)
		if err != nil {
			return err
		}
		defer r.Close()
		if r.Size() <= maxPicture {
			raw, err := io.ReadAll(r)
			if err != nil {
				return err
			}
			mediaType, data, ok = part.MediaType, base64.StdEncoding.EncodeToString(raw), true
		}
	}
	if _, err := base64.StdEncoding.DecodeString(data); !ok || err != nil || !slices.Contains(rasters, mediaType) {
		fmt.Fprintf(p.w, `<div class="small">%s</div>`, html.EscapeString(part.Line(200)))
		return nil
	}
	fmt.Fprintf(p.w, `<img alt="%s" src="data:%s;base64,%s">`, html.EscapeString(part.Name), mediaType, data)
	return nil
}

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }
