package importer

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"

	"hansard"
	"hansard/transcript"
)

// codex reads the rollouts of Codex: sessions/YYYY/MM/DD/rollout-<time>-<thread>.jsonl,
// also compressed, and those that were archived.
type codex struct{}

func (codex) Name() string { return "codex" }
func (codex) Tool() string { return "Codex" }

func (codex) Roots(m Machine) []string {
	dir := m.Getenv("CODEX_HOME")
	if dir == "" {
		dir = filepath.Join(m.Home, ".codex")
	}
	return []string{filepath.Join(dir, "sessions"), filepath.Join(dir, "archived_sessions")}
}

// rolloutName has the thread and, after a revert, the rollout as its groups.
var rolloutName = regexp.MustCompile(`^rollout-\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d-([^_]+)(_.+)?$`)

func rolloutStem(path string) string {
	return strings.TrimSuffix(strings.TrimSuffix(filepath.Base(path), ".zst"), ".jsonl")
}

func (codex) Match(path string, head func() []byte) bool {
	if !strings.HasSuffix(path, ".jsonl") && !strings.HasSuffix(path, ".jsonl.zst") {
		return false
	}
	if rolloutName.MatchString(rolloutStem(path)) {
		return true
	}
	return anyLine(head(), func(line []byte) bool {
		var r codexRecord
		return decode(line, &r) == nil && r.Type == "session_meta" && len(r.Payload) > 0
	})
}

func (codex) Identify(s *Source, head []byte) {
	var meta codexPayload
	anyLine(head, func(line []byte) bool {
		var r codexRecord
		return decode(line, &r) == nil && r.Type == "session_meta" && decode(r.Payload, &meta) == nil
	})
	stem := rolloutStem(s.Path)
	s.Session = first(meta.ID, stem)
	if name := rolloutName.FindStringSubmatch(stem); name != nil {
		s.Session = name[1] + name[2]
		if name[2] != "" {
			s.Parent = name[1]
		}
	}
	spawn := meta.spawn()
	switch {
	case meta.ForkedFrom != "":
		s.Parent = meta.ForkedFrom
	case spawn != "":
		s.Parent, s.SubAgent = spawn, true
	}
}

// relate finds the sources of parents, whose lines a fork and a sub-agent repeat.
func (codex) relate(sources []*Source) { relateByName(sources) }

// restamped: a copy has another time and another ordinal.
func (codex) restamped(member string) bool { return member == "timestamp" || member == "ordinal" }

// relateByName is relate for tools whose files name the parent.
func relateByName(sources []*Source) {
	bySession := map[string]*Source{}
	for _, s := range sources {
		if bySession[s.Session] == nil {
			bySession[s.Session] = s
		}
	}
	for _, s := range sources {
		if s.Parent != "" && s.Parent != s.Session {
			s.parent = bySession[s.Parent]
		}
	}
	for _, s := range sources { // files that name each other in a circle have no parents
		if s.generation() >= maxGenerations {
			s.parent = nil
		}
	}
}

// codexRecord is a line of a rollout.
type codexRecord struct {
	Timestamp string          `json:"timestamp"`
	Type      string          `json:"type"`
	Payload   json.RawMessage `json:"payload"`
}

type codexPayload struct {
	Type       string          `json:"type"`
	ID         string          `json:"id"`
	Role       string          `json:"role"`
	Name       string          `json:"name"`
	CallID     string          `json:"call_id"`
	TurnID     string          `json:"turn_id"`
	Content    json.RawMessage `json:"content"`
	Message    string          `json:"message"`
	Output     json.RawMessage `json:"output"`
	ThreadName string          `json:"thread_name"`
	NewThread  string          `json:"new_thread_id"`
	Info       struct {
		Total *codexUsage `json:"total_token_usage"`
		Last  *codexUsage `json:"last_token_usage"`
	} `json:"info"`
	Cwd        string `json:"cwd"`
	Model      string `json:"model"`
	Version    string `json:"cli_version"`
	ForkedFrom string `json:"forked_from_id"`
	Git        struct {
		Branch string `json:"branch"`
	} `json:"git"`
	Source json.RawMessage `json:"source"` // a word, or an object
}

type codexUsage struct {
	Input     int64 `json:"input_tokens"`
	Cached    int64 `json:"cached_input_tokens"`
	Output    int64 `json:"output_tokens"`
	Reasoning int64 `json:"reasoning_output_tokens"`
	Total     int64 `json:"total_tokens"`
}

// codexSource is what started a thread.
type codexSource struct {
	SubAgent struct {
		Spawn struct {
			Parent string `json:"parent_thread_id"`
			Role   string `json:"agent_role"`
		} `json:"thread_spawn"`
	} `json:"subagent"`
}

func (p *codexPayload) source() (s codexSource) {
	if len(p.Source) > 0 {
		_ = decode(p.Source, &s)
	}
	return s
}

func (p *codexPayload) spawn() string { return p.source().SubAgent.Spawn.Parent }

func (codex) Read(ctx context.Context, in *Input, emit func(Record) error) error {
	p := &codexReader{source: in.Source, emit: emit, spawns: map[string]bool{}}
	return in.Records(ctx, false, func(piece []byte) bool {
		var r codexRecord
		return decode(piece, &r) == nil && r.Type != "" && len(r.Payload) > 0
	}, p.take, emit)
}

// codexReader reads one rollout.
type codexReader struct {
	source *Source
	emit   func(Record) error
	facts  Facts
	titled bool
	spawns map[string]bool // calls that start sub-agents, not answered yet
	// turn is the turn that the records belong to, n their number in it.
	turn string
	n    int
	meta bool // the session's own metadata was seen
}

func (p *codexReader) take(raw Raw) error {
	var r codexRecord
	if err := decode(raw.Bytes, &r); err != nil {
		return err
	}
	var body codexPayload
	if len(r.Payload) > 0 {
		_ = decode(r.Payload, &body) // it is JSON
	}
	rec := Record{Event: hansard.Event{ID: raw.ID, At: parseTime(r.Timestamp), Data: raw.Bytes, Kind: KindRaw}}
	own := !p.meta
	rec.Same = p.same(&r, &body)
	rec.Own = own && r.Type == "session_meta" && p.source.Parent != ""
	labels := map[string]string{}
	switch r.Type {
	case "session_meta":
		rec.Event.Kind = hansard.KindMeta
		if own { // copies of the parent's metadata may follow
			labels = map[string]string{LabelCwd: body.Cwd, LabelBranch: body.Git.Branch, LabelVersion: body.Version, LabelAgent: body.source().SubAgent.Spawn.Role}
		}
	case "turn_context":
		rec.Event.Kind = hansard.KindMeta
		labels = map[string]string{LabelCwd: body.Cwd, LabelModel: body.Model}
	case "response_item":
		p.item(&rec, &body)
	case "event_msg":
		p.message(&rec, &body)
	case "compacted":
		rec.Event.Kind, rec.Covers = hansard.KindSummary, true
	case "world_state", "inter_agent_communication", "inter_agent_communication_metadata", "security_risk_score":
		rec.Event.Kind = hansard.KindMeta
	}
	p.facts.Note(&rec, labels)
	if err := p.emit(rec); err != nil {
		return err
	}
	return p.link(&body)
}

// same identifies a record by its turn and its place in the turn: a fork's copy has
// another time.
func (p *codexReader) same(r *codexRecord, body *codexPayload) string {
	if r.Type == "session_meta" {
		p.meta = true
		return "meta:" + body.ID
	}
	if body.TurnID != "" && body.TurnID != p.turn {
		p.turn, p.n = body.TurnID, 0
	}
	p.n++
	if p.turn == "" { // before the first turn, and in old rollouts
		return fmt.Sprintf("%d:%s:%d:%08x", p.n, r.Type, len(r.Payload), checksum(r.Payload))
	}
	return fmt.Sprintf("%s:%d:%s", p.turn, p.n, r.Type)
}

// item is what the model was given or said.
func (p *codexReader) item(rec *Record, body *codexPayload) {
	e := &rec.Event
	switch body.Type {
	case "message", "agent_message":
		e.Kind, e.Role = hansard.KindMessage, body.Role
		if body.Role == "user" && !p.titled {
			text := said(content(body.Content))
			if t := strings.TrimSpace(text); t != "" && t[0] != '<' && t[0] != '#' {
				p.titled = true
				p.facts.Title(rec, text)
			}
		}
	case "reasoning":
		e.Kind, e.Role = KindReasoning, "assistant"
	case "function_call", "custom_tool_call", "local_shell_call", "tool_search_call":
		e.Kind, e.Role = hansard.KindToolCall, "assistant"
		if id := first(body.CallID, body.ID); id != "" {
			rec.Calls = []string{id}
		}
	case "web_search_call", "image_generation_call": // including the result
		e.Kind, e.Role = hansard.KindToolCall, "assistant"
	case "function_call_output", "custom_tool_call_output", "tool_search_output", "local_shell_call_output":
		e.Kind, e.Role = hansard.KindToolResult, "tool"
		rec.Results = []string{body.CallID}
	case "compaction", "compaction_summary":
		e.Kind, rec.Covers = hansard.KindSummary, true
	}
}

// message is an event for the user interface. The same prompts and answers are also
// items.
func (p *codexReader) message(rec *Record, body *codexPayload) {
	rec.Event.Kind = hansard.KindMeta
	switch body.Type {
	case "token_count":
		rec.Event.Kind = KindUsage
		if last := body.Info.Last; last != nil {
			rec.Usage = &Usage{Tokens: transcript.Tokens{Input: last.Input, Output: last.Output, CacheRead: last.Cached, Reasoning: last.Reasoning}}
			if total := body.Info.Total; total != nil { // a repeated report counts once
				rec.Usage.Key = fmt.Sprint("total ", total.Total, total.Input, total.Output)
			}
		}
	case "user_message":
		if !p.titled {
			p.titled = true
			p.facts.Title(rec, body.Message)
		}
	case "thread_name_updated":
		p.titled = true
		p.facts.Title(rec, body.ThreadName)
	}
}

// link records in a sub-agent's session which call started it.
func (p *codexReader) link(body *codexPayload) error {
	child := ""
	switch {
	case body.Type == "function_call" && body.Name == "spawn_agent":
		p.spawns[body.CallID] = true
	case body.Type == "function_call_output" && p.spawns[body.CallID]:
		var text string
		var out struct {
			ID string `json:"agent_id"`
		}
		if decode(body.Output, &text) == nil && decode([]byte(text), &out) == nil {
			child = out.ID
		}
	case body.Type == "collab_agent_spawn_end" && p.spawns[body.CallID]:
		child = body.NewThread
	}
	if child == "" {
		return nil
	}
	delete(p.spawns, body.CallID)
	return p.emit(spawned(codex{}, child, p.source.Session, body.CallID))
}
