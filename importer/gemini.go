package importer

import (
	"context"
	"encoding/json"
	"path/filepath"
	"regexp"
	"strings"

	"hansard"
	"hansard/transcript"
)

// gemini reads the chats of the Gemini CLI: tmp/<project>/chats/session-*.jsonl, the
// older session-*.json, and those of sub-agents in chats/<parent>.
//
// A line may repeat a message in a newer version, or retract some: every line is kept.
type gemini struct{}

func (gemini) Name() string { return "gemini" }
func (gemini) Tool() string { return "Gemini CLI" }

func (gemini) Roots(m Machine) []string { return []string{filepath.Join(m.Home, ".gemini", "tmp")} }

var geminiSession = regexp.MustCompile(`"sessionId"\s*:\s*"([^"\\]+)"`)

func (gemini) Match(path string, head func() []byte) bool {
	if ext := filepath.Ext(path); ext != ".jsonl" && ext != ".json" || !within(path, "chats") && !strings.HasPrefix(filepath.Base(path), "session-") {
		return false
	}
	text := string(head())
	return geminiSession.MatchString(text) && strings.Contains(text, `"projectHash"`)
}

func (gemini) Identify(s *Source, head []byte) {
	base := filepath.Base(s.Path)
	s.Session = strings.TrimSuffix(base, filepath.Ext(base))
	if found := geminiSession.FindSubmatch(head); found != nil {
		s.Session = string(found[1])
	}
	dir := filepath.Dir(s.File())
	if filepath.Base(filepath.Dir(dir)) == "chats" {
		s.Parent, s.SubAgent = filepath.Base(dir), true
	}
}

// geminiRecord is one line, or a message of the older files.
type geminiRecord struct {
	ID        string                     `json:"id"`
	Timestamp string                     `json:"timestamp"`
	StartTime string                     `json:"startTime"`
	Type      string                     `json:"type"`
	SessionID string                     `json:"sessionId"`
	Summary   string                     `json:"summary"`
	Content   json.RawMessage            `json:"content"`
	Model     string                     `json:"model"`
	Set       map[string]json.RawMessage `json:"$set"`
	RewindTo  *string                    `json:"$rewindTo"`
	ToolCalls []struct {
		ID     string          `json:"id"`
		Result json.RawMessage `json:"result"`
	} `json:"toolCalls"`
	Tokens *struct {
		Input    int64 `json:"input"`
		Output   int64 `json:"output"`
		Cached   int64 `json:"cached"`
		Thoughts int64 `json:"thoughts"`
	} `json:"tokens"`
	Directories []string `json:"directories"`
}

func (gemini) Read(ctx context.Context, in *Input, emit func(Record) error) error {
	p := &geminiReader{emit: emit}
	if filepath.Ext(in.Path) == ".jsonl" {
		return in.Records(ctx, false, func(piece []byte) bool {
			var r geminiRecord
			return decode(piece, &r) == nil && (r.Type != "" && r.ID != "" || r.SessionID != "" || r.Set != nil || r.RewindTo != nil)
		}, p.take, emit)
	}
	return in.document(ctx, []string{"messages"}, p.take, func(m member) error {
		if m.name == "lastUpdated" {
			return nil // the messages show it
		}
		rec := Record{Mutable: true, Event: hansard.Event{ID: "member:" + m.name, Kind: hansard.KindMeta, Data: without([]member{m})}}
		if m.name == "summary" {
			p.facts.Title(&rec, textOf(m.value))
		}
		return emit(rec)
	})
}

type geminiReader struct {
	emit  func(Record) error
	facts Facts
}

func (p *geminiReader) take(raw Raw) error {
	var r geminiRecord
	if err := decode(raw.Bytes, &r); err != nil {
		return err
	}
	rec := Record{Event: hansard.Event{ID: first(r.ID, raw.ID), At: parseTime(first(r.Timestamp, r.StartTime)), Data: raw.Bytes, Kind: KindRaw}}
	switch {
	case r.Type == "user":
		rec.Event.Kind, rec.Event.Role = hansard.KindMessage, "user"
		if p.facts.title == "" {
			p.facts.Title(&rec, geminiText(r.Content))
		}
	case r.Type == "gemini":
		p.answer(&rec, &r)
	case r.Type == "info" || r.Type == "error" || r.Type == "warning":
		rec.Event.Kind, rec.Event.Role = hansard.KindMeta, "system"
	case r.RewindTo != nil:
		rec.Event.Kind = hansard.KindMeta
	case r.Set != nil:
		rec.Event.Kind = hansard.KindMeta
		if _, ok := r.Set["messages"]; ok { // replaces all messages: a compaction
			rec.Event.Kind, rec.Covers = hansard.KindSummary, true
		}
		p.facts.Title(&rec, textOf(r.Set["summary"]))
	case r.SessionID != "":
		rec.Event.Kind = hansard.KindMeta
		p.facts.Title(&rec, r.Summary)
		if len(r.Directories) > 0 {
			p.facts.Note(&rec, map[string]string{LabelCwd: r.Directories[0]})
		}
	}
	return p.emit(rec)
}

// answer is what the model said, with the calls it made and their results.
func (p *geminiReader) answer(rec *Record, r *geminiRecord) {
	rec.Event.Kind, rec.Event.Role = hansard.KindMessage, "assistant"
	if geminiText(r.Content) == "" && len(r.ToolCalls) > 0 {
		rec.Event.Kind = hansard.KindToolCall
	}
	for _, call := range r.ToolCalls {
		rec.Calls = append(rec.Calls, call.ID)
		if len(call.Result) > 0 && string(call.Result) != "null" {
			rec.Results = append(rec.Results, call.ID)
		}
	}
	if t := r.Tokens; t != nil {
		rec.Usage = &Usage{Key: r.ID, Tokens: transcript.Tokens{Input: t.Input, Output: t.Output, CacheRead: t.Cached, Reasoning: t.Thoughts}}
	}
	p.facts.Note(rec, map[string]string{LabelModel: r.Model})
}

// geminiText is the text of a content: a string, or parts.
func geminiText(raw json.RawMessage) string {
	return said(content(raw))
}
