// Package opencode reads the sessions of opencode for an import: its SQLite database, and
// the tree of JSON files that older versions kept. It is a package of its own because of
// the database driver.
//
// opencode changes its rows in place. A row that has changed since it was imported is
// imported again, as a revision.
package opencode

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"time"

	"hansard"
	"hansard/importer"
	"hansard/transcript"
)

// Format is opencode's.
type Format struct{}

// Name is how it is named in --from.
func (Format) Name() string { return "opencode" }

// Tool is its name for people.
func (Format) Tool() string { return "opencode" }

// Roots are where it keeps its data.
func (Format) Roots(m importer.Machine) []string {
	data := m.Getenv("XDG_DATA_HOME")
	if !filepath.IsAbs(data) {
		data = filepath.Join(m.Home, ".local", "share")
	}
	return []string{filepath.Join(data, "opencode")}
}

// Match recognises the database by its name and head, and a session of the tree by its
// location.
func (Format) Match(path string, head func() []byte) bool {
	base, slashed := filepath.Base(path), filepath.ToSlash(path)
	switch {
	case strings.HasPrefix(base, "opencode") && filepath.Ext(base) == ".db":
		return strings.HasPrefix(string(head()), "SQLite format 3\x00")
	case filepath.Ext(base) == ".json" && strings.HasPrefix(base, "ses_"):
		return strings.Contains(slashed, "/storage/session/")
	}
	return false
}

// Identify names the source. A database holds many sessions, which its records name.
func (Format) Identify(s *importer.Source, _ []byte) {
	base := filepath.Base(s.Path)
	if s.Session = strings.TrimSuffix(base, filepath.Ext(base)); filepath.Ext(base) == ".db" {
		s.Session = base
		return
	}
	// The messages and parts are in other branches of the tree.
	file := s.File()
	storage := filepath.ToSlash(file)[:strings.LastIndex(filepath.ToSlash(file), "/session/")]
	s.Root = filepath.FromSlash(storage)
	s.Path, _ = filepath.Rel(s.Root, file) // it is below the root
}

// Read reads a database or a session of the tree.
func (Format) Read(ctx context.Context, in *importer.Input, emit func(importer.Record) error) error {
	if filepath.Ext(in.Path) == ".db" {
		return readDatabase(ctx, in, emit)
	}
	return readTree(ctx, in, emit)
}

// session is what is known about a session.
type session struct {
	id, parent, title, directory, version string
}

// reader turns the rows of one session into records.
type reader struct {
	session
	emit  func(importer.Record) error
	facts importer.Facts
}

func (r *reader) record(id string, at time.Time, data []byte) importer.Record {
	return importer.Record{Session: r.id, Parent: r.parent, Mutable: true, Event: hansard.Event{ID: id, At: at, Kind: importer.KindRaw, Data: data}}
}

// about is the record of the session itself.
func (r *reader) about(at time.Time, data []byte) error {
	rec := r.record("session", at, data)
	rec.Event.Kind = hansard.KindMeta
	r.facts.Title(&rec, r.title)
	r.facts.Note(&rec, map[string]string{importer.LabelCwd: r.directory, importer.LabelVersion: r.version})
	return r.emit(rec)
}

type message struct {
	Role    string          `json:"role"`
	ModelID string          `json:"modelID"`
	Summary json.RawMessage `json:"summary"`
	Model   struct {
		ModelID string `json:"modelID"`
	} `json:"model"`
	Tokens *struct {
		Input     int64 `json:"input"`
		Output    int64 `json:"output"`
		Reasoning int64 `json:"reasoning"`
		Cache     struct {
			Read  int64 `json:"read"`
			Write int64 `json:"write"`
		} `json:"cache"`
	} `json:"tokens"`
	Time struct {
		Created float64 `json:"created"`
	} `json:"time"`
}

// message is the record of a message, without its parts.
func (r *reader) message(id string, at time.Time, data []byte) (role string, err error) {
	var m message
	_ = json.Unmarshal(data, &m) // the data is kept even if it does not fit
	if at.IsZero() {
		at = milliseconds(m.Time.Created)
	}
	rec := r.record(id, at, data)
	rec.Event.Kind = hansard.KindMeta
	if t := m.Tokens; t != nil {
		rec.Event.Kind = importer.KindUsage
		rec.Usage = &importer.Usage{Key: id, Last: true,
			Tokens: transcript.Tokens{Input: t.Input, Output: t.Output, Reasoning: t.Reasoning, CacheRead: t.Cache.Read, CacheWrite: t.Cache.Write}}
	}
	model := m.ModelID
	if model == "" {
		model = m.Model.ModelID
	}
	r.facts.Note(&rec, map[string]string{importer.LabelModel: model})
	return m.Role, r.emit(rec)
}

type part struct {
	Type   string `json:"type"`
	Text   string `json:"text"`
	CallID string `json:"callID"`
	State  struct {
		Status string `json:"status"`
	} `json:"state"`
}

var partKinds = map[string]string{"text": hansard.KindMessage, "file": hansard.KindMessage, "reasoning": importer.KindReasoning, "tool": hansard.KindToolCall,
	"step-start": hansard.KindMeta, "step-finish": hansard.KindMeta, "snapshot": hansard.KindMeta, "patch": hansard.KindMeta, "subtask": hansard.KindMeta,
	"retry": hansard.KindMeta, "agent": hansard.KindMeta, "compaction": hansard.KindSummary}

// part is the record of a part of a message.
func (r *reader) part(id, role string, at time.Time, data []byte) error {
	var p part
	_ = json.Unmarshal(data, &p)
	rec := r.record(id, at, data)
	rec.Event.Role = role
	if kind := partKinds[p.Type]; kind != "" {
		rec.Event.Kind = kind
	}
	switch p.Type {
	case "text":
		if role == "user" && r.title == "" {
			r.facts.Title(&rec, p.Text)
		}
	case "tool": // including the result
		rec.Calls = []string{p.CallID}
		if p.State.Status == "completed" || p.State.Status == "error" {
			rec.Results = rec.Calls
		}
	case "compaction":
		rec.Covers = true
	}
	return r.emit(rec)
}

// entry is the record of a message of version 2, which contains all its parts.
func (r *reader) entry(id, typ string, at time.Time, data []byte) error {
	rec := r.record(id, at, data)
	var e struct {
		message
		Text    string `json:"text"`
		Content []struct {
			Type  string `json:"type"`
			ID    string `json:"id"`
			State struct {
				Status string `json:"status"`
			} `json:"state"`
		} `json:"content"`
	}
	_ = json.Unmarshal(data, &e)
	switch typ {
	case "user", "assistant", "system", "synthetic":
		rec.Event.Kind, rec.Event.Role = hansard.KindMessage, typ
		for _, c := range e.Content {
			if c.Type != "tool" {
				continue
			}
			rec.Calls = append(rec.Calls, c.ID)
			if c.State.Status == "completed" || c.State.Status == "error" {
				rec.Results = append(rec.Results, c.ID)
			}
		}
	case "compaction":
		rec.Event.Kind, rec.Covers = hansard.KindSummary, true
	case "shell", "agent-switched", "model-switched":
		rec.Event.Kind = hansard.KindMeta
	}
	if t := e.Tokens; t != nil {
		rec.Usage = &importer.Usage{Key: id, Last: true,
			Tokens: transcript.Tokens{Input: t.Input, Output: t.Output, Reasoning: t.Reasoning, CacheRead: t.Cache.Read, CacheWrite: t.Cache.Write}}
	}
	return r.emit(rec)
}

func milliseconds(n float64) time.Time {
	if n <= 0 || n > 2.5e14 {
		return time.Time{}
	}
	return time.UnixMilli(int64(n)).UTC()
}
