package importer

import (
	"context"
	"encoding/json"
	"io"
	"path/filepath"
	"regexp"
	"strings"

	"hansard"
	"hansard/transcript"
)

// piFormat reads the sessions of pi and of tools built on it, oh-my-pi and OpenClaw. A file
// is a tree of entries; all of them are kept, in the order of the file.
type piFormat struct {
	name, tool string
	archives   bool // OpenClaw's: files with a suffix after .jsonl, and sessions.json
}

var (
	pi       = piFormat{name: "pi", tool: "pi"}
	openclaw = piFormat{name: "openclaw", tool: "OpenClaw", archives: true}
)

// FileFormat is a format of this package that another package extends.
type FileFormat interface {
	Format
	forking
}

// OpenClaw reads OpenClaw's session files. Package openclaw reads its databases, too.
var OpenClaw FileFormat = openclaw

func (p piFormat) Name() string { return p.name }
func (p piFormat) Tool() string { return p.tool }

func (p piFormat) Roots(m Machine) []string {
	if p.archives {
		return []string{filepath.Join(m.Home, ".openclaw", "agents")}
	}
	return []string{filepath.Join(m.Home, ".pi", "agent", "sessions"), filepath.Join(m.Home, ".omp", "agent", "sessions")}
}

// openclawName has the id and how a file was archived as its groups.
var openclawName = regexp.MustCompile(`^(.+?)\.jsonl(?:\.(reset|deleted)\.[^/]*|\.(full)\.bak|\.full\.bak)?$`)

func (p piFormat) Match(path string, head func() []byte) bool {
	base := filepath.Base(path)
	if p.archives {
		if !openclawName.MatchString(base) || !within(path, "sessions") || !within(path, "agents") {
			return false
		}
	} else if filepath.Ext(base) != ".jsonl" {
		return false
	}
	return anyLine(head(), func(line []byte) bool {
		var r piRecord
		return decode(line, &r) == nil && r.Type == "session" && r.ID != ""
	})
}

func (p piFormat) Identify(s *Source, head []byte) {
	var r piRecord
	anyLine(head, func(line []byte) bool {
		r = piRecord{}
		return decode(line, &r) == nil && r.Type == "session" && r.ID != ""
	})
	s.Session = first(r.ID, strings.TrimSuffix(filepath.Base(s.Path), ".jsonl"))
	if r.ParentSession != "" {
		s.Parent = piName(r.ParentSession)
	}
	if !p.archives {
		return
	}
	if name := openclawName.FindStringSubmatch(filepath.Base(s.Path)); name != nil && name[2] != "" {
		s.Labels = map[string]string{LabelArchived: name[2]}
	}
	if key := openclawKey(s); key != "" {
		if s.Labels == nil {
			s.Labels = map[string]string{}
		}
		s.Labels["key"] = key
	}
}

// piName is the id of a session by its file name: <time>_<uuid>.jsonl, or <uuid>.jsonl.
// OpenClaw names a session in a database sqlite:<agent>:<uuid>:<path of the database>.
func piName(path string) string {
	if row := strings.SplitN(path, ":", 4); len(row) == 4 && row[0] == "sqlite" {
		return row[2]
	}
	base := strings.TrimSuffix(filepath.Base(filepath.ToSlash(path)), ".jsonl")
	if _, id, ok := strings.Cut(base, "_"); ok {
		return id
	}
	return base
}

// openclawKey is the session's key in the sessions.json beside the file.
func openclawKey(s *Source) string {
	f, err := openIn(s.Root, filepath.Join(filepath.Dir(s.Path), "sessions.json"))
	if err != nil {
		return ""
	}
	defer f.Close()
	var keys map[string]struct {
		SessionID string `json:"sessionId"`
	}
	_ = json.NewDecoder(io.LimitReader(f, valueBytes)).Decode(&keys) // at worst a label is missing
	for key, entry := range keys {
		if entry.SessionID == s.Session {
			return key
		}
	}
	return ""
}

// relate finds the parents that files name: a branch repeats their entries.
func (piFormat) relate(sources []*Source) { relateByName(sources) }

func (piFormat) restamped(string) bool { return false }

type piRecord struct {
	Type          string `json:"type"`
	ID            string `json:"id"`
	Timestamp     string `json:"timestamp"`
	Cwd           string `json:"cwd"`
	ParentSession string `json:"parentSession"`
	Name          string `json:"name"`
	Title         string `json:"title"`
	Provider      string `json:"provider"`
	ModelID       string `json:"modelId"`
	Message       struct {
		Role       string          `json:"role"`
		Content    json.RawMessage `json:"content"`
		Model      string          `json:"model"`
		ToolCallID string          `json:"toolCallId"`
		Usage      *struct {
			Input      int64 `json:"input"`
			Output     int64 `json:"output"`
			CacheRead  int64 `json:"cacheRead"`
			CacheWrite int64 `json:"cacheWrite"`
		} `json:"usage"`
	} `json:"message"`
}

// piKinds are the kinds of entries that are not messages.
var piKinds = map[string]string{"session": hansard.KindMeta, "title": hansard.KindMeta, "model_change": hansard.KindMeta, "thinking_level_change": hansard.KindMeta,
	"compaction": hansard.KindSummary, "branch_summary": hansard.KindMeta, "custom": hansard.KindMeta, "custom_message": hansard.KindMeta, "label": hansard.KindMeta,
	"session_info": hansard.KindMeta}

func (p piFormat) Read(ctx context.Context, in *Input, emit func(Record) error) error {
	var f Facts
	return in.Records(ctx, false, func(piece []byte) bool {
		var r piRecord
		return decode(piece, &r) == nil && (r.Type == "message" || piKinds[r.Type] != "") && r.Timestamp != ""
	}, func(raw Raw) error {
		rec, ok := PiEntry(raw, &f)
		if !ok {
			return errSyntax
		}
		return emit(rec)
	}, emit)
}

// PiEntry is the record of one entry of a session; not ok if it is not JSON.
func PiEntry(raw Raw, f *Facts) (rec Record, ok bool) {
	var r piRecord
	if decode(raw.Bytes, &r) != nil {
		return rec, false
	}
	return r.record(raw, f), true
}

// PiParent is the id of the session that the first line of another one names as its parent;
// empty if it names none.
func PiParent(line []byte) string {
	var r piRecord
	if decode(line, &r) != nil || r.Type != "session" || r.ParentSession == "" {
		return ""
	}
	return piName(r.ParentSession)
}

func (r *piRecord) record(raw Raw, f *Facts) Record {
	rec := Record{Event: hansard.Event{ID: raw.ID, At: parseTime(r.Timestamp), Data: raw.Bytes, Kind: piKinds[r.Type]}}
	switch {
	case r.Type == "session":
		f.Note(&rec, map[string]string{LabelCwd: r.Cwd})
	case r.ID != "":
		rec.Event.ID, rec.Same = r.ID, r.ID
	}
	switch r.Type {
	case "message":
		r.message(&rec, f)
	case "compaction":
		rec.Covers = true
	case "model_change":
		f.Note(&rec, map[string]string{LabelModel: r.ModelID})
	case "session_info":
		f.Title(&rec, r.Name)
	case "title":
		f.Title(&rec, r.Title)
	}
	return rec
}

func (r *piRecord) message(rec *Record, f *Facts) {
	e, m := &rec.Event, &r.Message
	e.Kind, e.Role = hansard.KindMessage, m.Role
	plain, blocks := content(m.Content)
	switch m.Role {
	case "user":
		if f.title == "" {
			f.Title(rec, said(plain, blocks))
		}
	case "assistant":
		texts := false
		thoughts := false
		for _, b := range blocks {
			switch b.Type {
			case "toolCall":
				rec.Calls = append(rec.Calls, b.ID)
			case "thinking":
				thoughts = true
			default:
				texts = true
			}
		}
		switch {
		case !texts && len(rec.Calls) > 0:
			e.Kind = hansard.KindToolCall
		case !texts && thoughts:
			e.Kind = KindReasoning
		}
		f.Note(rec, map[string]string{LabelModel: m.Model})
	case "toolResult":
		e.Kind, e.Role, rec.Results = hansard.KindToolResult, "tool", []string{m.ToolCallID}
	case "bashExecution":
		e.Kind, e.Role = hansard.KindToolResult, "tool" // of a command that the user ran
	case "branchSummary", "compactionSummary", "custom":
		e.Kind, e.Role = hansard.KindMeta, ""
	}
	if u := m.Usage; u != nil {
		rec.Usage = &Usage{Tokens: transcript.Tokens{Input: u.Input, Output: u.Output, CacheRead: u.CacheRead, CacheWrite: u.CacheWrite}}
	}
}
