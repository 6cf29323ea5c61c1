package exporter

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"hansard"
	"hansard/importer"
	"hansard/internal/wire"
	"hansard/transcript"
)

// when is the time of an event: when it happened, if known, else when it was stored.
func when(e *hansard.Event) time.Time {
	if !e.At.IsZero() {
		return e.At
	}
	return e.Time
}

func stamp(e *hansard.Event) string { return when(e).UTC().Format("2006-01-02T15:04:05.000Z") }

// writeClaude writes a file that claude --resume reads: the records as they were imported,
// and new chained records for events from elsewhere.
func writeClaude(ctx context.Context, s *session, w *bufio.Writer) error {
	c := &claudeWriter{w: w, id: sourceID(s.info), info: s.info}
	for e, err := range s.story(ctx) {
		if err != nil {
			return err
		}
		if e.in.Labels[importer.LabelTool] == "claude" && c.isRecord(&e) {
			if e.repeated && !copyable(&e) {
				continue
			}
			if err := s.raw(ctx, &e, func(r io.Reader) error { return c.copy(&e, r) }); err != nil {
				return err
			}
			continue
		}
		for i, said := range sayings(&e.Event) {
			c.write(&e, i, &said)
		}
	}
	return nil
}

type claudeWriter struct {
	w      *bufio.Writer
	id     string // the session's id in the file
	info   hansard.Info
	parent any // the uuid of the record before
}

// isRecord reports whether an event is a record of Claude Code.
func (c *claudeWriter) isRecord(e *told) bool {
	var r struct {
		Type     string    `json:"type"`
		UUID     string    `json:"uuid"`
		Attached *struct{} `json:"attached"`
	}
	if json.Unmarshal(e.Data, &r) != nil || e.ID == "" || r.Type == "" && r.Attached == nil {
		return false
	}
	if r.UUID != "" {
		c.parent = r.UUID
	}
	return true
}

// copyable reports whether a fork's file repeats a record of its parent: one that has no
// id of its own is never copied.
func copyable(e *told) bool {
	var r struct {
		UUID string `json:"uuid"`
	}
	return json.Unmarshal(e.Data, &r) == nil && r.UUID != ""
}

// copy writes a record unchanged. In a fork's file the records of its parent have the
// fork's id.
func (c *claudeWriter) copy(e *told, r io.Reader) error {
	if e.repeated && len(e.Attachments) == 0 {
		var of struct {
			Session string `json:"sessionId"`
		}
		_ = json.Unmarshal(e.Data, &of) // it is a record
		old := `"sessionId":` + string(wire.Marshal(of.Session))
		r = bytes.NewReader(bytes.ReplaceAll(e.Data, []byte(old), []byte(`"sessionId":`+string(wire.Marshal(c.id)))))
	}
	if _, err := io.Copy(c.w, r); err != nil {
		return err
	}
	return c.w.WriteByte('\n')
}

// write writes a new record for an event.
func (c *claudeWriter) write(e *told, i int, s *saying) {
	blocks := anthropicBlocks(s)
	if s.role == system || len(blocks) == 0 {
		return
	}
	id := madeID(fmt.Sprintf("%s/%d/%d", e.in.ID, e.Seq, i))
	record := map[string]any{"type": s.role, "uuid": id, "parentUuid": c.parent, "sessionId": c.id, "timestamp": stamp(&e.Event), "isSidechain": false,
		"userType": "external", "cwd": c.info.Labels[importer.LabelCwd], "gitBranch": c.info.Labels[importer.LabelBranch], "version": "2.1.0"}
	if s.role == assistant {
		record["message"] = map[string]any{"id": "msg_" + id, "type": "message", "role": assistant, "model": c.info.Labels[importer.LabelModel], "content": blocks,
			"stop_reason": nil, "stop_sequence": nil, "usage": map[string]any{"input_tokens": 0, "output_tokens": 0}}
	} else {
		record["message"] = map[string]any{"role": user, "content": blocks}
	}
	c.parent = id
	_, _ = c.w.Write(wire.Marshal(record)) // the writer remembers its first error
	_ = c.w.WriteByte('\n')
}

// writeCodex writes a rollout that codex resume reads.
func writeCodex(ctx context.Context, s *session, w *bufio.Writer) error {
	native := s.info.Labels[importer.LabelTool] == "codex"
	out := &numbered{w: w}
	line := func(at, typ string, payload any) {
		out.line(wire.Marshal(map[string]any{"timestamp": at, "type": typ, "payload": payload}))
	}
	first := map[hansard.Seq]bool{}
	if here := native && forkedHere(&s.info); here || !native {
		meta := map[string]any{"cwd": s.info.Labels[importer.LabelCwd], "originator": "hansard", "cli_version": "0.0.0", "source": "cli", "model_provider": "openai"}
		if here {
			if err := s.parentMeta(ctx, meta); err != nil {
				return err
			}
		}
		created := s.info.Created.UTC().Format("2006-01-02T15:04:05.000Z")
		meta["id"], meta["timestamp"] = sourceID(s.info), created
		line(created, "session_meta", meta)
	}
	if native {
		var err error
		if first, err = s.firstLines(ctx, out); err != nil {
			return err
		}
	}
	for e, err := range s.story(ctx) {
		if err != nil {
			return err
		}
		if e.in.ID == s.info.ID && first[e.Seq] {
			continue
		}
		if e.in.Labels[importer.LabelTool] == "codex" && isRollout(&e.Event) {
			if !e.repeated {
				out.reach(e.ID)
			}
			err := s.raw(ctx, &e, func(r io.Reader) error {
				_, err := io.Copy(w, r)
				out.line(nil)
				return err
			})
			if err != nil {
				return err
			}
			continue
		}
		for _, said := range sayings(&e.Event) {
			for _, item := range codexItems(&said) {
				line(stamp(&e.Event), "response_item", item)
			}
		}
	}
	return nil
}

// parentMeta makes the metadata of a fork that was made here from its parent's, as Codex does.
func (s *session) parentMeta(ctx context.Context, meta map[string]any) error {
	r := hansard.Range{Limit: 1}
	if n := len(s.forks); n > 0 {
		r.After = s.forks[n-1] + 1 // after the event that made the parent
	}
	for e, err := range s.store.Read(ctx, s.info.ID, r) {
		if err != nil {
			return err
		}
		var line struct {
			Type    string                     `json:"type"`
			Payload map[string]json.RawMessage `json:"payload"`
		}
		if json.Unmarshal(e.Data, &line) != nil || line.Type != "session_meta" {
			return nil
		}
		for name, value := range line.Payload {
			meta[name] = value
		}
		meta["forked_from_id"] = line.Payload["id"]
	}
	return nil
}

// firstLines writes the lines that a fork's file begins with: its own first line, then that
// of its parent if that is a fork itself, and so on. The repeated history follows them. It
// returns which events these lines are.
func (s *session) firstLines(ctx context.Context, out *numbered) (map[hansard.Seq]bool, error) {
	var begins []hansard.Range
	for i := len(s.forks) - 1; i >= 0; i-- {
		begins = append(begins, hansard.Range{After: s.forks[i] + 1, Limit: 1}) // after the event that made it
	}
	if parent, _ := forkedFrom(&s.info); parent != "" {
		begins = append(begins, hansard.Range{Limit: 1})
	}
	written := map[hansard.Seq]bool{}
	for _, r := range begins {
		for e, err := range s.store.Read(ctx, s.info.ID, r) {
			if err != nil {
				return nil, err
			}
			if isRollout(&e) && len(e.Attachments) == 0 {
				written[e.Seq] = true
				out.line(e.Data)
			}
		}
	}
	return written, nil
}

// numbered counts the lines that are written: the records of a rollout have no ids of their
// own, so an import tells them apart by their lines.
type numbered struct {
	w *bufio.Writer
	n int
}

func (l *numbered) line(text []byte) {
	_, _ = l.w.Write(text) // the writer remembers its first error
	_ = l.w.WriteByte('\n')
	l.n++
}

// maxBlank bounds how many lines are left blank: anyone may give an event such an id.
const maxBlank = 1000

// reach leaves lines blank, which Codex skips, where the imported file had some that could not
// be read or were redacted since: so that the record with this id is on its line again.
func (l *numbered) reach(id string) {
	var at int
	if _, err := fmt.Sscanf(id, "line:%d:", &at); err != nil || at-l.n > maxBlank {
		return
	}
	for l.n < at-1 {
		l.line(nil)
	}
}

// isRollout reports whether an event is a line of a rollout.
func isRollout(e *hansard.Event) bool {
	var r struct {
		Type     string          `json:"type"`
		Payload  json.RawMessage `json:"payload"`
		Attached *struct{}       `json:"attached"`
	}
	return e.ID != "" && json.Unmarshal(e.Data, &r) == nil && (r.Type != "" && len(r.Payload) > 0 || r.Attached != nil)
}

func codexItems(s *saying) (items []any) {
	kind := map[string]string{user: "input_text", assistant: "output_text", system: "input_text"}[s.role]
	for i := range s.parts {
		p := &s.parts[i]
		switch p.Type {
		case transcript.Text, transcript.Summary:
			role := s.role
			if role == system {
				role = "developer"
			}
			items = append(items, map[string]any{"type": "message", "role": role, "content": []any{map[string]any{"type": kind, "text": p.Text}}})
		case transcript.Image:
			if _, _, ok := picture(p); ok {
				items = append(items, map[string]any{"type": "message", "role": s.role, "content": []any{map[string]any{"type": "input_image", "image_url": p.URL}}})
			}
		case transcript.Call:
			items = append(items, map[string]any{"type": "function_call", "name": p.Name, "arguments": string(arguments(p)), "call_id": p.ID})
		case transcript.Result:
			items = append(items, map[string]any{"type": "function_call_output", "call_id": p.ID, "output": resultText(p)})
		}
	}
	return items
}
