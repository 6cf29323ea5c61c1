package exporter

import (
	"bufio"
	"context"
	"encoding/json"

	"hansard/importer"
	"hansard/internal/wire"
	"hansard/transcript"
)

// list writes the elements of an array, one per line.
type list struct {
	w *bufio.Writer
	n int
}

func (l *list) add(v any) {
	if l.n++; l.n == 1 {
		_, _ = l.w.WriteString("[\n") // the writer remembers its first error
	} else {
		_, _ = l.w.WriteString(",\n")
	}
	if raw, ok := v.(json.RawMessage); ok {
		_, _ = l.w.Write(raw)
		return
	}
	_, _ = l.w.Write(wire.Marshal(v))
}

func (l *list) end() error {
	if l.n == 0 {
		_, _ = l.w.WriteString("[")
	}
	_, err := l.w.WriteString("\n]\n")
	return err
}

// message is the part of an API's message that is used.
type message struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
	// Message is where Claude Code keeps it.
	Message *message `json:"message"`
}

// asIs reports whether a message was imported in the wanted shape.
func asIs(e *told, tool string) bool {
	var m message
	return e.in.Labels[importer.LabelTool] == tool && e.Kind != importer.KindRaw && json.Unmarshal(e.Data, &m) == nil && m.Role != ""
}

func writeOpenAI(ctx context.Context, s *session, w *bufio.Writer) error {
	out := &list{w: w}
	for e, err := range s.story(ctx) {
		if err != nil {
			return err
		}
		if asIs(&e, "openai") {
			out.add(e.Data)
			continue
		}
		for _, said := range sayings(&e.Event) {
			for _, m := range openAIMessages(&said) {
				out.add(m)
			}
		}
	}
	return out.end()
}

// openAIMessages are one message, and one for every result of a tool.
func openAIMessages(s *saying) (out []any) {
	var parts, calls []any
	for i := range s.parts {
		p := &s.parts[i]
		switch p.Type {
		case transcript.Text, transcript.Summary:
			parts = append(parts, map[string]any{"type": "text", "text": p.Text})
		case transcript.Image:
			if _, _, ok := picture(p); ok {
				parts = append(parts, map[string]any{"type": "image_url", "image_url": map[string]any{"url": p.URL}})
			}
		case transcript.Call:
			calls = append(calls, map[string]any{"id": p.ID, "type": "function", "function": map[string]any{"name": p.Name, "arguments": string(arguments(p))}})
		case transcript.Result:
			out = append(out, map[string]any{"role": "tool", "tool_call_id": p.ID, "content": resultText(p)})
		}
	}
	if len(parts) == 0 && len(calls) == 0 {
		return out
	}
	m := map[string]any{"role": s.role}
	switch text, alone := onlyText(parts); {
	case alone:
		m["content"] = text
	case len(parts) > 0:
		m["content"] = parts
	default:
		m["content"] = nil
	}
	if len(calls) > 0 {
		m["tool_calls"] = calls
	}
	return append(out, m)
}

// onlyText is the text of parts that consist of a single text.
func onlyText(parts []any) (string, bool) {
	if len(parts) != 1 {
		return "", false
	}
	text, ok := parts[0].(map[string]any)["text"].(string)
	return text, ok
}

func writeAnthropic(ctx context.Context, s *session, w *bufio.Writer) error {
	out := &list{w: w}
	// Roles alternate: consecutive events of one role become one message.
	role, blocks := "", []any(nil)
	flush := func() {
		if len(blocks) > 0 {
			out.add(map[string]any{"role": role, "content": blocks})
		}
		blocks = nil
	}
	add := func(who string, more []any) {
		if who == system || len(more) == 0 {
			return // not a message in this format
		}
		if who != role {
			flush()
			role = who
		}
		blocks = append(blocks, more...)
	}
	for e, err := range s.story(ctx) {
		if err != nil {
			return err
		}
		if asIs(&e, "anthropic") {
			flush()
			role = ""
			out.add(e.Data)
			continue
		}
		if who, more, ok := claudeBlocks(&e); ok {
			add(who, more)
			continue
		}
		for _, said := range sayings(&e.Event) {
			add(said.role, anthropicBlocks(&said))
		}
	}
	flush()
	return out.end()
}

// claudeBlocks are the blocks of a record of Claude Code, unchanged: reasoning keeps
// its signature.
func claudeBlocks(e *told) (role string, blocks []any, ok bool) {
	var m message
	if e.in.Labels[importer.LabelTool] != "claude" || json.Unmarshal(e.Data, &m) != nil || m.Message == nil || m.Message.Role == "" {
		return "", nil, false
	}
	var list []json.RawMessage
	if json.Unmarshal(m.Message.Content, &list) == nil {
		for _, b := range list {
			blocks = append(blocks, b)
		}
		return m.Message.Role, blocks, true
	}
	var text string
	if json.Unmarshal(m.Message.Content, &text) != nil || text == "" {
		return "", nil, false
	}
	return m.Message.Role, []any{map[string]any{"type": "text", "text": text}}, true
}
