package exporter

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"hansard/importer"
	"hansard/internal/wire"
	"hansard/transcript"
)

// writeCleverAgents writes an export of a session as cleveragents makes it: one object,
// with a checksum over the rest.
func writeCleverAgents(ctx context.Context, s *session, w *bufio.Writer) error {
	export := map[string]json.RawMessage{
		"schema_version":  wire.Marshal("1.0"),
		"session_id":      wire.Marshal(sourceOr(s)),
		"created_at":      wire.Marshal(s.info.Created.UTC().Format(time.RFC3339Nano)),
		"updated_at":      wire.Marshal(s.info.Updated.UTC().Format(time.RFC3339Nano)),
		"actor_name":      wire.Marshal(s.info.Labels[importer.LabelAgent]),
		"metadata":        wire.Marshal(map[string]any{"title": s.info.Title}),
		"linked_plan_ids": wire.Marshal([]string{}),
	}
	native := s.info.Labels[importer.LabelTool] == "cleveragents"
	messages := []json.RawMessage{}
	for e, err := range s.story(ctx) {
		switch {
		case err != nil:
			return err
		case native && (e.ID == "session" || len(e.ID) > 8 && e.ID[:8] == "session~"):
			export = map[string]json.RawMessage{}
			if err := json.Unmarshal(e.Data, &export); err != nil {
				return err
			}
			if forkedHere(&s.info) { // the record is its parent's
				export["session_id"] = wire.Marshal(sourceOr(s))
			}
		case native && e.ID != "":
			messages = append(messages, e.Data)
		default:
			for i, said := range sayings(&e.Event) {
				if m := cleverMessage(&e, i, len(messages), &said); m != nil {
					messages = append(messages, m)
				}
			}
		}
	}
	export["messages"] = joined('[', messages, ']')
	// Without "sha256:": cleveragents adds that prefix itself when it imports a file.
	export["checksum"] = wire.Marshal(importer.CleverAgentsSum(export))
	var members []json.RawMessage
	// The messages last, so that programs find the rest at the beginning.
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(export)), func(name string) bool { return name == "messages" })
	for _, name := range append(names, "messages") {
		members = append(members, append(append(wire.Marshal(name), ": "...), export[name]...))
	}
	_, err := w.Write(append(joined('{', members, '}'), '\n'))
	return err
}

// joined joins values byte for byte: json.Marshal would rewrite them.
func joined(begin byte, values []json.RawMessage, end byte) json.RawMessage {
	out := []byte{begin}
	for i, v := range values {
		if i > 0 {
			out = append(out, ", "...)
		}
		out = append(out, v...)
	}
	return append(out, end)
}

func sourceOr(s *session) string {
	if s.info.Labels[importer.LabelTool] == "cleveragents" && !forkedHere(&s.info) {
		return s.info.Labels[importer.LabelSource]
	}
	return string(s.info.ID)
}

func cleverMessage(e *told, i, n int, s *saying) json.RawMessage {
	text, call := "", ""
	for i := range s.parts {
		p := &s.parts[i]
		more := p.Text
		switch p.Type {
		case transcript.Call:
			more = p.Name + " " + string(arguments(p))
		case transcript.Result:
			more, call = resultText(p), p.ID
		case transcript.Thinking, transcript.Image:
			continue
		}
		if text != "" && more != "" {
			text += "\n"
		}
		text += more
	}
	if text == "" {
		return nil
	}
	role := s.role
	if s.parts[0].Type == transcript.Result {
		role = "tool"
	}
	m := map[string]any{"message_id": madeID(fmt.Sprintf("%s/%d/%d", e.in.ID, e.Seq, i)), "role": role, "content": text, "sequence": n,
		"timestamp": when(&e.Event).UTC().Format(time.RFC3339Nano), "metadata": map[string]any{}}
	if call != "" {
		m["tool_call_id"] = call
	}
	return wire.Marshal(m)
}
