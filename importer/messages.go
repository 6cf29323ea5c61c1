package importer

import (
	"bytes"
	"context"
	"encoding/json"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"hansard"
	"hansard/transcript"
)

// chat reads a file with an array of messages, or an object that has one: what programs
// that talk to a chat API keep. The two formats differ only in name: each understands
// both.
type chat struct{ name, tool string }

var (
	openai    = chat{"openai", "OpenAI messages"}
	anthropic = chat{"anthropic", "Anthropic messages"}
)

func (c chat) Name() string         { return c.name }
func (c chat) Tool() string         { return c.tool }
func (chat) Roots(Machine) []string { return nil }
func (chat) general()               {}

var (
	hasRole   = regexp.MustCompile(`"role"\s*:\s*"(user|assistant|system|developer|tool)"`)
	isClaudes = regexp.MustCompile(`"type"\s*:\s*"(tool_use|tool_result|thinking)"`)
)

func (c chat) Match(path string, head func() []byte) bool {
	if filepath.Ext(path) != ".json" {
		return false
	}
	text := bytes.TrimSpace(head())
	if len(text) == 0 || text[0] != '[' && text[0] != '{' || !hasRole.Match(text) {
		return false
	}
	return c == openai || isClaudes.Match(text)
}

// Identify names a session after its file: the content has no id.
func (chat) Identify(s *Source, _ []byte) { s.Session = byPath(s) }

// byPath is an id for a session that has none: the name of the file, and a checksum of
// where it is.
func byPath(s *Source) string {
	base := filepath.Base(s.Path)
	return strings.TrimSuffix(base, filepath.Ext(base)) + "-" + shortHash([]byte(s.File()), 8)
}

func (c chat) Read(ctx context.Context, in *Input, emit func(Record) error) error {
	var f Facts
	return in.document(ctx, []string{"messages", "input", "items"}, func(raw Raw) error {
		return emit(messageRecord(raw, &f))
	}, func(m member) error { // around the messages
		rec := Record{Mutable: true, Event: hansard.Event{ID: "member:" + m.name, Kind: hansard.KindMeta, Data: without([]member{m})}}
		switch m.name {
		case "model":
			f.Note(&rec, map[string]string{LabelModel: textOf(m.value)})
		case "title":
			f.Title(&rec, textOf(m.value))
		}
		return emit(rec)
	})
}

// jsonl reads any JSON, one value per line.
type jsonl struct{}

func (jsonl) Name() string           { return "jsonl" }
func (jsonl) Tool() string           { return "plain JSONL" }
func (jsonl) Roots(Machine) []string { return nil }
func (jsonl) general()               {}

func (jsonl) Match(path string, head func() []byte) bool {
	ext := filepath.Ext(path)
	return (ext == ".jsonl" || ext == ".ndjson") && len(head()) > 0
}

func (jsonl) Identify(s *Source, _ []byte) { s.Session = byPath(s) }

func (jsonl) Read(ctx context.Context, in *Input, emit func(Record) error) error {
	var f Facts
	return in.Records(ctx, true, func(piece []byte) bool { return true }, func(raw Raw) error {
		if !json.Valid(raw.Bytes) {
			return errSyntax
		}
		return emit(messageRecord(raw, &f))
	}, emit)
}

// message is a message of a chat API, or an item of OpenAI's Responses.
type message struct {
	Type       string          `json:"type"`
	Role       string          `json:"role"`
	Name       string          `json:"name"`
	Model      string          `json:"model"`
	Content    json.RawMessage `json:"content"`
	ToolCallID string          `json:"tool_call_id"`
	ToolCalls  []struct {
		ID string `json:"id"`
	} `json:"tool_calls"`
	Usage *struct {
		claudeUsage
		Prompt     int64 `json:"prompt_tokens"`
		Completion int64 `json:"completion_tokens"`
	} `json:"usage"`
	stamps
}

// stamps are the names that programs use for the time of a record.
type stamps struct {
	Timestamp any `json:"timestamp"`
	Time      any `json:"time"`
	TS        any `json:"ts"`
	CreatedAt any `json:"created_at"`
	Created   any `json:"createdAt"`
}

func (s *stamps) at() time.Time {
	for _, v := range []any{s.Timestamp, s.Time, s.TS, s.CreatedAt, s.Created} {
		switch v := v.(type) {
		case string:
			if t := parseTime(v); !t.IsZero() {
				return t
			}
		case float64:
			return unixTime(v)
		}
	}
	return time.Time{}
}

// messageRecord classifies a message. Anything else is kept as a raw event.
func messageRecord(raw Raw, f *Facts) Record {
	var m message
	_ = decode(raw.Bytes, &m) // it is JSON
	rec := Record{Event: hansard.Event{ID: raw.ID, At: m.at(), Kind: KindRaw, Role: m.Role, Author: m.Name, Data: raw.Bytes}}
	plain, blocks := content(m.Content)
	switch {
	case m.Role == "" && m.Type != "":
		var item codexPayload
		_ = decode(raw.Bytes, &item)
		(&codexReader{titled: true}).item(&rec, &item)
		rec.Event.Author = ""
	case m.Role == "" || len(m.Content) == 0 && len(m.ToolCalls) == 0:
	case m.Role == "tool" || m.Role == "function" || m.ToolCallID != "":
		rec.Event.Kind, rec.Results = hansard.KindToolResult, []string{m.ToolCallID}
	default:
		if shape(&rec, blocks); len(m.ToolCalls) > 0 && said(plain, blocks) == "" {
			rec.Event.Kind = hansard.KindToolCall
		}
	}
	for _, call := range m.ToolCalls {
		rec.Calls = append(rec.Calls, call.ID)
	}
	if m.Usage != nil {
		u := transcript.Tokens{Input: max(m.Usage.Input, m.Usage.Prompt), Output: max(m.Usage.Output, m.Usage.Completion), CacheRead: m.Usage.CacheRead, CacheWrite: m.Usage.CacheWrite}
		rec.Usage = &Usage{Tokens: u}
	}
	if m.Role == "user" && f.title == "" && rec.Event.Kind == hansard.KindMessage {
		f.Title(&rec, said(plain, blocks))
	}
	f.Note(&rec, map[string]string{LabelModel: m.Model})
	return rec
}
