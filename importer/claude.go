package importer

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"path/filepath"
	"strings"

	"hansard"
	"hansard/internal/jsontext"
	"hansard/transcript"
)

// claude reads the session files of Claude Code: projects/<directory>/<uuid>.jsonl, and
// the sub-agents' in <uuid>/subagents.
type claude struct{}

func (claude) Name() string { return "claude" }
func (claude) Tool() string { return "Claude Code" }

func (claude) Roots(m Machine) []string {
	dir := m.Getenv("CLAUDE_CONFIG_DIR")
	if dir == "" {
		dir = filepath.Join(m.Home, ".claude")
	}
	return []string{filepath.Join(dir, "projects")}
}

func (claude) Match(path string, head func() []byte) bool {
	if filepath.Ext(path) != ".jsonl" || within(path, toolResults) || within(path, "memory") || filepath.Base(path) == "history.jsonl" {
		return false
	}
	readable := false
	found := anyLine(head(), func(line []byte) bool {
		var r claudeRecord
		if r.parse(line) != nil {
			return false
		}
		readable = true
		return r.isRecord()
	})
	// If nothing at the beginning can be read, the location decides.
	return found || !readable && len(head()) > 0 && (filepath.Base(filepath.Dir(filepath.Dir(path))) == "projects" || within(path, "subagents"))
}

// within reports whether a file is in a directory of this name, at any level.
func within(path, dir string) bool {
	return strings.Contains(filepath.ToSlash(path), "/"+dir+"/")
}

func (claude) Identify(s *Source, _ []byte) {
	stem := strings.TrimSuffix(filepath.Base(s.Path), ".jsonl")
	before, _, sub := strings.Cut(filepath.ToSlash(s.File()), "/subagents/")
	if s.Session = stem; sub {
		s.Parent, s.SubAgent = filepath.Base(before), true
		s.Session = s.Parent + ":" + stem
	}
}

// claudeRecord is the part of a record that is used.
type claudeRecord struct {
	Type, Subtype, UUID, LeafUUID, SessionID, RequestID, Timestamp, Cwd, Version, GitBranch string

	IsMeta, IsSummary               bool
	Title, AITitle, Custom, Summary string
	Attachment                      string // which kind
	Message                         claudeMessage
	ToolUseResult                   json.RawMessage
	// In progress records, and in operations on the queue.
	ParentToolUseID, AgentID, Content string

	Payload json.RawMessage // only Codex has it
}

type claudeMessage struct {
	ID, Model string
	Content   json.RawMessage
	Usage     *claudeUsage
}

// parse reads a record. Nearly all of it is text that is not used, so it is checked once and
// then skipped, not decoded.
func (r *claudeRecord) parse(raw []byte) error {
	if !jsontext.Valid(raw) {
		return errSyntax
	}
	for _, m := range object(raw) {
		if text := r.text(m.name); text != nil {
			*text = textOf(m.value)
			continue
		}
		switch m.name {
		case "isMeta":
			r.IsMeta = string(m.value) == "true"
		case "isCompactSummary":
			r.IsSummary = string(m.value) == "true"
		case "attachment":
			r.Attachment = textOf(find(object(m.value), "type"))
		case "data":
			r.AgentID = textOf(find(object(m.value), "agentId"))
		case "message":
			r.Message.parse(m.value)
		case "toolUseResult":
			r.ToolUseResult = m.value
		case "payload":
			r.Payload = m.value
		}
	}
	return nil
}

// text is the field for the text of a member; nil if there is none.
func (r *claudeRecord) text(name string) *string {
	switch name {
	case "type":
		return &r.Type
	case "subtype":
		return &r.Subtype
	case "uuid":
		return &r.UUID
	case "leafUuid":
		return &r.LeafUUID
	case "sessionId":
		return &r.SessionID
	case "requestId":
		return &r.RequestID
	case "timestamp":
		return &r.Timestamp
	case "cwd":
		return &r.Cwd
	case "version":
		return &r.Version
	case "gitBranch":
		return &r.GitBranch
	case "title":
		return &r.Title
	case "aiTitle":
		return &r.AITitle
	case "customTitle":
		return &r.Custom
	case "summary":
		return &r.Summary
	case "parentToolUseID":
		return &r.ParentToolUseID
	case "content":
		return &r.Content
	}
	return nil
}

func (m *claudeMessage) parse(raw []byte) {
	for _, member := range object(raw) {
		switch member.name {
		case "id":
			m.ID = textOf(member.value)
		case "model":
			m.Model = textOf(member.value)
		case "content":
			m.Content = member.value
		case "usage":
			_ = decode(member.value, &m.Usage) // it is JSON
		}
	}
}

// isRecord tells a record of Claude Code from another tool's.
func (r *claudeRecord) isRecord() bool {
	if r.Type == "" || len(r.Payload) > 0 {
		return false
	}
	spoken := (r.Type == "user" || r.Type == "assistant") && len(r.Message.Content) > 0
	return r.SessionID != "" || r.UUID != "" || r.LeafUUID != "" || spoken
}

type claudeUsage struct {
	Input      int64 `json:"input_tokens"`
	Output     int64 `json:"output_tokens"`
	CacheRead  int64 `json:"cache_read_input_tokens"`
	CacheWrite int64 `json:"cache_creation_input_tokens"`
}

func (u *claudeUsage) tokens(model string) transcript.Tokens {
	return transcript.Tokens{Input: u.Input, Output: u.Output, CacheRead: u.CacheRead, CacheWrite: u.CacheWrite, Model: model}
}

// block is an item of a message's content, in the shape of Anthropic's API.
type block struct {
	Type, ID, ToolUseID string
	Text                json.RawMessage // a string
}

// claudeKinds are the kinds of the records without a message.
var claudeKinds = map[string]string{
	"last-prompt": hansard.KindMeta, "mode": hansard.KindMeta, "permission-mode": hansard.KindMeta, "ai-title": hansard.KindMeta, "custom-title": hansard.KindMeta,
	"pr-link": hansard.KindMeta, "queue-operation": hansard.KindMeta, "file-history-snapshot": hansard.KindMeta, "file-history-delta": hansard.KindMeta,
	"agent-name": hansard.KindMeta, "agent-color": hansard.KindMeta, "agent-setting": hansard.KindMeta, "relocated": hansard.KindMeta,
	"worktree-state": hansard.KindMeta, "progress": hansard.KindMeta, "tag": hansard.KindMeta, "system": hansard.KindMeta, "summary": hansard.KindMeta,
	"attachment": KindAttachment,
}

func (f claude) Read(ctx context.Context, in *Input, emit func(Record) error) error {
	p := &claudeReader{in: in, source: in.Source, emit: emit}
	p.agentKind(in)
	return in.Records(ctx, false, func(piece []byte) bool {
		var r claudeRecord
		return r.parse(piece) == nil && (r.isRecord() || claudeKinds[r.Type] != "")
	}, p.take, emit)
}

// claudeReader reads one file.
type claudeReader struct {
	in     *Input
	source *Source
	emit   func(Record) error
	facts  Facts
	// named says that a user gave the session its title, boundary that the record
	// before was the marker of a compaction.
	named, titled, boundary bool
	agent                   string
	linked                  map[string]bool // sub-agents that were linked
}

// agentKind reads which kind of agent a sub-agent is, from the file beside it.
func (p *claudeReader) agentKind(in *Input) {
	if !in.SubAgent {
		return
	}
	f, err := in.openBeside(strings.TrimSuffix(in.Path, ".jsonl") + ".meta.json")
	if err != nil {
		return
	}
	defer f.Close()
	var meta struct {
		Type string `json:"agentType"`
	}
	_ = json.NewDecoder(f).Decode(&meta) // a label less
	p.agent = meta.Type
}

func (p *claudeReader) take(raw Raw) error {
	var r claudeRecord
	if err := r.parse(raw.Bytes); err != nil {
		return err
	}
	rec := Record{Event: hansard.Event{ID: raw.ID, At: parseTime(r.Timestamp), Data: raw.Bytes}}
	if r.UUID != "" {
		rec.Event.ID, rec.Same = r.UUID, r.UUID
	}
	switch r.Type {
	case "user", "assistant":
		p.message(&rec, &r)
	default:
		p.other(&rec, &r)
	}
	p.boundary = r.Type == "system" && r.Subtype == "compact_boundary"
	p.facts.Note(&rec, map[string]string{LabelCwd: r.Cwd, LabelBranch: r.GitBranch, LabelVersion: r.Version, LabelModel: model(r.Message.Model), LabelAgent: p.agent})
	if err := p.emit(rec); err != nil {
		return err
	}
	if err := p.persisted(&r, &rec); err != nil {
		return err
	}
	return p.link(&r, rec.Results)
}

// persisted passes on a tool's output that is kept in a separate file, in the session's
// directory tool-results. A record names it by its full path; a path elsewhere is not
// followed. A missing file is not damage: Claude Code removes them.
func (p *claudeReader) persisted(r *claudeRecord, rec *Record) error {
	if len(rec.Results) == 0 || !bytes.Contains(r.ToolUseResult, []byte("persistedOutputPath")) {
		return nil
	}
	path := textOf(find(object(r.ToolUseResult), "persistedOutputPath"))
	parts := strings.FieldsFunc(path, func(c rune) bool { return c == '/' || c == '\\' })
	session, dir := p.source.Session, filepath.Dir(p.source.Path)
	if p.source.SubAgent {
		before, _, _ := strings.Cut(filepath.ToSlash(p.source.Path), "/subagents/")
		session, dir = p.source.Parent, filepath.Dir(filepath.FromSlash(before))
	}
	n := len(parts)
	if n < 3 || parts[n-2] != toolResults || parts[n-3] != session || parts[n-1] == ".." {
		return nil
	}
	name, file := parts[n-1], filepath.Join(dir, session, toolResults, parts[n-1])
	p.in.reading.beside(filepath.Join(p.source.Root, file))
	size, err := sizeIn(p.source.Root, file)
	if err != nil {
		return nil
	}
	return p.emit(Record{
		Event: hansard.Event{ID: "tool-result:" + name, At: rec.Event.At, Kind: KindAttachment, Role: "tool",
			Data: marshal(map[string]any{"persisted_output": map[string]any{"tool_use_id": rec.Results[0], "file": name, "bytes": size}})},
		Long: &Long{Size: size, Reason: "kept in a file of its own", Name: cut(name, hansard.MaxNameBytes), MediaType: "text/plain",
			Open: func() (io.ReadCloser, error) { return openIn(p.source.Root, file) }},
	})
}

const toolResults = "tool-results"

// model is the name of a model; empty for messages made by Claude Code itself.
func model(name string) string {
	if name == "<synthetic>" {
		return ""
	}
	return name
}

func (p *claudeReader) message(rec *Record, r *claudeRecord) {
	e := &rec.Event
	e.Kind, e.Role = hansard.KindMessage, r.Type
	text, blocks := content(r.Message.Content)
	if r.Type == "user" && !p.titled {
		text = said(text, blocks)
	}
	shape(rec, blocks)
	if r.Message.Usage != nil {
		rec.Usage = &Usage{Key: r.Message.ID + " " + r.RequestID, Tokens: r.Message.Usage.tokens(r.Message.Model)}
	}
	if r.IsSummary {
		e.Kind, rec.Covers = hansard.KindSummary, !p.boundary
	}
	if r.Type == "user" && !r.IsMeta && !r.IsSummary && e.Kind == hansard.KindMessage && !p.titled && !strings.HasPrefix(text, "<") {
		p.titled = true
		p.facts.Title(rec, text)
	}
}

func (p *claudeReader) other(rec *Record, r *claudeRecord) {
	e := &rec.Event
	if e.Kind = claudeKinds[r.Type]; e.Kind == "" {
		e.Kind = KindRaw
	}
	switch r.Type {
	case "system":
		e.Role = "system"
		if r.Subtype == "compact_boundary" {
			e.Kind, rec.Covers = hansard.KindSummary, true
		}
	case "attachment":
		if r.Attachment == "queued_command" {
			e.Kind, e.Role = hansard.KindMessage, "user"
		}
	case "custom-title":
		p.named, p.titled = true, true
		p.facts.Title(rec, first(r.Custom, r.Title))
	case "ai-title", "summary":
		if !p.named {
			p.titled = true
			p.facts.Title(rec, first(r.AITitle, r.Title, r.Summary))
		}
	}
}

// link records in a sub-agent's session which call started it. Three kinds of records say
// so, depending on the version and on how the agent runs.
func (p *claudeReader) link(r *claudeRecord, results []string) error {
	var agent, call string
	switch {
	case len(results) > 0 && len(r.ToolUseResult) > 0 && r.ToolUseResult[0] == '{':
		agent, call = textOf(find(object(r.ToolUseResult), "agentId")), results[0]
	case r.Type == "progress":
		agent, call = r.AgentID, r.ParentToolUseID
	case r.Type == "queue-operation" && strings.HasPrefix(r.Content, "{"):
		var task struct {
			Call string `json:"tool_use_id"`
			ID   string `json:"task_id"`
		}
		_ = decode([]byte(r.Content), &task)
		agent, call = task.ID, task.Call
	}
	if agent == "" || call == "" || p.linked[agent] {
		return nil
	}
	if p.linked == nil {
		p.linked = map[string]bool{}
	}
	p.linked[agent] = true
	parent := p.source.Session
	if p.source.SubAgent {
		parent = p.source.Parent // agents of agents are kept beside them
	}
	return p.emit(spawned(claude{}, parent+":agent-"+agent, p.source.Session, call))
}

// spawned is the record that links a sub-agent's session to the call that started it.
func spawned(f Format, child, parent, call string) Record {
	return Record{Session: child, Link: true, Labels: map[string]string{LabelSpawnedBy: name(call)},
		Event: hansard.Event{ID: "spawned-by:" + call, Kind: KindSubAgent, Data: marshal(map[string]any{"parent": SessionID(f, parent), "tool_call_id": call})}}
}

// content is the text of a message's content and its blocks.
func content(raw json.RawMessage) (text string, blocks []block) {
	if len(raw) > 0 && raw[0] == '"' {
		_ = decode(raw, &text)
		return text, nil
	}
	// It is part of a valid record: the members are found without decoding the texts, which
	// are nearly all of it.
	_ = eachElement(raw, func(_ int, value []byte) error {
		var b block
		for _, m := range object(value) {
			switch m.name {
			case "type":
				b.Type = textOf(m.value)
			case "text":
				b.Text = m.value
			case "id":
				b.ID = textOf(m.value)
			case "tool_use_id":
				b.ToolUseID = textOf(m.value)
			}
		}
		blocks = append(blocks, b)
		return nil
	})
	return "", blocks
}

// said is the text of a message: that of its first block with text.
func said(text string, blocks []block) string {
	for i := range blocks {
		if text == "" {
			text = textOf(blocks[i].Text)
		}
	}
	return text
}

// shape decides what a message is by the blocks of its content.
func shape(rec *Record, blocks []block) {
	e, texts, thoughts := &rec.Event, 0, 0
	for _, b := range blocks {
		switch b.Type {
		case "tool_use", "server_tool_use", "mcp_tool_use":
			rec.Calls = append(rec.Calls, b.ID)
		case "tool_result", "web_search_tool_result", "mcp_tool_result", "code_execution_tool_result":
			rec.Results = append(rec.Results, b.ToolUseID)
		case "thinking", "redacted_thinking":
			thoughts++
		default:
			texts++
		}
	}
	switch {
	case len(rec.Results) > 0 && e.Role == "user":
		e.Kind, e.Role = hansard.KindToolResult, "tool"
	case texts > 0 || len(blocks) == 0:
		e.Kind = hansard.KindMessage
	case len(rec.Calls) > 0:
		e.Kind = hansard.KindToolCall
	case thoughts > 0:
		e.Kind = KindReasoning
	}
}

// first is the first text that is not empty.
func first(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}

// anyLine reports whether one of the complete lines at the beginning of a file satisfies the
// predicate is.
func anyLine(head []byte, is func([]byte) bool) bool {
	for range 50 {
		line, rest, whole := bytes.Cut(head, []byte{'\n'})
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] == '{' && is(line) {
			return true
		}
		if !whole {
			return false
		}
		head = rest
	}
	return false
}
