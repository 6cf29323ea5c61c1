package importer

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"path/filepath"
	"strings"

	"hansard"
	"hansard/transcript"
)

// copilot reads the sessions of the Copilot CLI: session-state/<uuid>/events.jsonl with
// workspace.yaml beside it, and the older session-state/<uuid>.jsonl.
type copilot struct{}

func (copilot) Name() string { return "copilot" }
func (copilot) Tool() string { return "Copilot CLI" }

func (copilot) Roots(m Machine) []string {
	dir := m.Getenv("COPILOT_HOME")
	if dir == "" {
		dir = filepath.Join(m.Home, ".copilot")
	}
	return []string{filepath.Join(dir, "session-state")}
}

func (copilot) Match(path string, head func() []byte) bool {
	if filepath.Ext(path) != ".jsonl" {
		return false
	}
	return anyLine(head(), func(line []byte) bool {
		var r copilotRecord
		return decode(line, &r) == nil && r.known()
	})
}

func (copilot) Identify(s *Source, _ []byte) {
	s.Session = strings.TrimSuffix(filepath.Base(s.Path), ".jsonl")
	if s.Session == "events" {
		s.Session = filepath.Base(filepath.Dir(s.File()))
	}
}

type copilotRecord struct {
	Type      string `json:"type"`
	ID        string `json:"id"`
	Timestamp string `json:"timestamp"`
	AgentID   string `json:"agentId"`
	Data      struct {
		Content    json.RawMessage `json:"content"`
		NewModel   string          `json:"newModel"`
		Version    string          `json:"copilotVersion"`
		ToolCallID string          `json:"toolCallId"`
		Context    struct {
			Cwd    string `json:"cwd"`
			Branch string `json:"branch"`
		} `json:"context"`
		ToolRequests []struct {
			ID string `json:"toolCallId"`
		} `json:"toolRequests"`
		ModelMetrics map[string]struct {
			Usage struct {
				Input      int64 `json:"inputTokens"`
				Output     int64 `json:"outputTokens"`
				CacheRead  int64 `json:"cacheReadTokens"`
				CacheWrite int64 `json:"cacheWriteTokens"`
				Reasoning  int64 `json:"reasoningTokens"`
			} `json:"usage"`
		} `json:"modelMetrics"`
	} `json:"data"`
}

// copilotTypes are prefixes of the types of its events.
var copilotTypes = []string{"session.", "user.", "assistant.", "tool.", "subagent.", "skill.", "elicitation.", "hook.", "permission.", "system.", "abort"}

func (r *copilotRecord) known() bool {
	for _, prefix := range copilotTypes {
		if strings.HasPrefix(r.Type, prefix) {
			return r.ID != ""
		}
	}
	return false
}

func (copilot) Read(ctx context.Context, in *Input, emit func(Record) error) error {
	p := &copilotReader{source: in.Source, emit: emit, facts: map[string]*Facts{}}
	if err := p.workspace(in); err != nil {
		return err
	}
	return in.Records(ctx, false, func(piece []byte) bool {
		var r copilotRecord
		return decode(piece, &r) == nil && r.Type != "" && r.ID != ""
	}, p.take, emit)
}

type copilotReader struct {
	source *Source
	emit   func(Record) error
	facts  map[string]*Facts // by agent
}

// workspace keeps the file that has the session's name. It is YAML, and stored as a
// JSON string.
func (p *copilotReader) workspace(in *Input) error {
	if filepath.Base(in.Path) != "events.jsonl" {
		return nil
	}
	f, err := openIn(in.Root, filepath.Join(filepath.Dir(in.Path), "workspace.yaml"))
	if err != nil {
		return nil // it is optional
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, 1<<20))
	if err != nil {
		return err
	}
	rec := Record{Mutable: true, Event: hansard.Event{ID: "workspace", Kind: hansard.KindMeta, Data: marshal(string(data))}}
	values := map[string]string{}
	for lines := bufio.NewScanner(strings.NewReader(string(data))); lines.Scan(); {
		if k, v, ok := strings.Cut(lines.Text(), ":"); ok {
			values[k] = strings.Trim(strings.TrimSpace(v), `"'`)
		}
	}
	p.of("").Title(&rec, values["name"])
	p.of("").Note(&rec, map[string]string{LabelCwd: values["cwd"]})
	return p.emit(rec)
}

func (p *copilotReader) of(agent string) *Facts {
	if p.facts[agent] == nil {
		p.facts[agent] = &Facts{}
	}
	return p.facts[agent]
}

func (p *copilotReader) take(raw Raw) error {
	var r copilotRecord
	if err := decode(raw.Bytes, &r); err != nil {
		return err
	}
	rec := Record{Event: hansard.Event{ID: first(r.ID, raw.ID), At: parseTime(r.Timestamp), Data: raw.Bytes, Kind: KindRaw}}
	if r.AgentID != "" { // a separate session in the same file
		rec.Session, rec.Parent = p.source.Session+":"+r.AgentID, p.source.Session
	}
	if r.known() {
		rec.Event.Kind = hansard.KindMeta
	}
	f, data := p.of(r.AgentID), &r.Data
	switch r.Type {
	case "user.message":
		rec.Event.Kind, rec.Event.Role = hansard.KindMessage, "user"
		if f.title == "" {
			f.Title(&rec, textOf(data.Content))
		}
	case "assistant.message":
		rec.Event.Kind, rec.Event.Role = hansard.KindMessage, "assistant"
		if textOf(data.Content) == "" && len(data.ToolRequests) > 0 {
			rec.Event.Kind = hansard.KindToolCall
		}
		for _, call := range data.ToolRequests {
			rec.Calls = append(rec.Calls, call.ID)
		}
	case "tool.execution_complete":
		rec.Event.Kind, rec.Event.Role, rec.Results = hansard.KindToolResult, "tool", []string{data.ToolCallID}
	case "session.compaction_complete":
		rec.Event.Kind, rec.Covers = hansard.KindSummary, true
	case "session.shutdown":
		rec.Usage = &Usage{Key: "shutdown " + r.AgentID, Last: true, Tokens: r.used()}
	}
	f.Note(&rec, map[string]string{LabelCwd: data.Context.Cwd, LabelBranch: data.Context.Branch, LabelModel: data.NewModel, LabelVersion: data.Version})
	return p.emit(rec)
}

// used is the usage of all models since the session began.
func (r *copilotRecord) used() (t transcript.Tokens) {
	for _, m := range r.Data.ModelMetrics {
		u := &m.Usage
		addTokens(&t, &transcript.Tokens{Input: u.Input, Output: u.Output, CacheRead: u.CacheRead, CacheWrite: u.CacheWrite, Reasoning: u.Reasoning})
	}
	return t
}
