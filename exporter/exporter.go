// Package exporter writes sessions for others: complete, for a later import; for people to
// read; or in the formats that other programs read.
//
// Everything is streamed. What a format can't express is left out, except in jsonl, which
// is package archive and leaves nothing out.
package exporter

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"strconv"

	"hansard"
	"hansard/archive"
	"hansard/importer"
)

// Format is one way to write a session.
type Format struct {
	Name      string // as in --format
	Title     string // for people
	Extension string
	MediaType string
	write     func(ctx context.Context, s *session, w *bufio.Writer) error
}

// Formats are all formats; the first is the default.
func Formats() []Format {
	return []Format{
		{"jsonl", "Everything (JSONL)", ".jsonl", "application/x-ndjson", writeArchive},
		{"md", "Markdown", ".md", "text/markdown; charset=utf-8", writeMarkdown},
		{"html", "Web page", ".html", "text/html; charset=utf-8", writeHTML},
		{"openai", "OpenAI messages", ".json", "application/json", writeOpenAI},
		{"anthropic", "Anthropic messages", ".json", "application/json", writeAnthropic},
		{"claude", "Claude Code", ".jsonl", "application/x-ndjson", writeClaude},
		{"codex", "Codex", ".jsonl", "application/x-ndjson", writeCodex},
		{"cleveragents", "cleveragents", ".json", "application/json", writeCleverAgents},
	}
}

// Find is the format of a name.
func Find(name string) (Format, bool) {
	for _, f := range Formats() {
		if f.Name == name {
			return f, true
		}
	}
	return Format{}, false
}

// Write writes a session. If it fails, the output is incomplete.
func (f Format) Write(ctx context.Context, store hansard.Store, id hansard.SessionID, w io.Writer) error {
	info, err := store.Stat(ctx, id)
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(w, 64<<10)
	s := &session{store: store, info: info}
	if err := s.findForks(ctx); err != nil {
		return err
	}
	if err := f.write(ctx, s, out); err != nil {
		return err
	}
	return out.Flush()
}

// FileName is the name for a file with the session.
func (f Format) FileName(info hansard.Info) string {
	switch f.Name {
	case "claude":
		return sourceID(info) + f.Extension
	case "codex":
		return "rollout-" + info.Created.UTC().Format("2006-01-02T15-04-05") + "-" + sourceID(info) + f.Extension
	}
	name := []byte(info.ID)
	for i, c := range name {
		if c == ':' { // not allowed in file names everywhere
			name[i] = '_'
		}
	}
	return string(name) + f.Extension
}

// session is what is exported.
type session struct {
	store hansard.Store
	info  hansard.Info
	// forks are where sessions that were imported as forks leave their parents: this one
	// last, before it those it was forked from.
	forks []hansard.Seq
}

// findForks looks for the events with which imports made forks. The session may have been
// forked in this store since.
func (s *session) findForks(ctx context.Context) error {
	if s.info.Parent == nil || s.info.Labels[importer.LabelForkedRecord] == "" {
		return nil
	}
	for e, err := range s.store.Read(ctx, s.info.ID, hansard.Range{Before: s.info.LastSeq + 1, Kinds: []string{hansard.KindFork}}) {
		if err != nil {
			return err
		}
		if e.Fork != nil && e.Patch != nil && e.Patch.Labels[importer.LabelForkedRecord] != nil {
			s.forks = append(s.forks, e.Fork.At)
		}
	}
	return nil
}

// shared is the last event that a fork has from its parent; 0 if it has none.
func (s *session) shared() hansard.Seq {
	if forkedHere(&s.info) {
		return s.info.Parent.At
	}
	if len(s.forks) == 0 {
		return 0
	}
	return s.forks[len(s.forks)-1]
}

func writeArchive(ctx context.Context, s *session, w *bufio.Writer) error {
	src, ok := s.store.(hansard.Exporter)
	if !ok {
		return fmt.Errorf("session %s: %w", s.info.ID, hansard.ErrUnsupported)
	}
	return archive.Write(ctx, src, s.info.ID, w)
}

// own yields the session's events, up to the last one at the time of Stat.
func (s *session) own(ctx context.Context) iter.Seq2[hansard.Event, error] {
	return s.store.Read(ctx, s.info.ID, hansard.Range{Before: s.info.LastSeq + 1})
}

// told is an event of a story, and the session it is in.
type told struct {
	hansard.Event
	in hansard.Info
	// repeated says that it is from the history that a fork's file repeats.
	repeated bool
}

// story yields the session's events after those that it was forked from. Events that the
// store wrote itself, and those that only link sessions, are left out.
func (s *session) story(ctx context.Context) iter.Seq2[told, error] {
	return func(yield func(told, error) bool) {
		line, err := s.lineage(ctx)
		if err != nil {
			yield(told{}, err)
			return
		}
		for _, part := range line {
			for e, err := range s.store.Read(ctx, part.info.ID, hansard.Range{Before: part.upto + 1}) {
				if err == nil && ours(&e) {
					continue
				}
				if !yield(told{e, part.info, part.info.ID != s.info.ID || e.Seq <= s.shared()}, err) || err != nil {
					return
				}
			}
		}
	}
}

// ours reports whether an event is the store's or the import's own, or has no content left.
func ours(e *hansard.Event) bool {
	return e.StoresOwn() || e.Redacted || e.Kind == importer.KindSubAgent || e.Kind == hansard.KindLost || e.Kind == hansard.KindMeta && string(e.Data) == "null"
}

// stretch is a session up to one of its events.
type stretch struct {
	info hansard.Info
	upto hansard.Seq
}

// maxAncestors ends a circular chain of forks.
const maxAncestors = 100

// lineage is the sessions that this one continues, the oldest first, and itself.
func (s *session) lineage(ctx context.Context) ([]stretch, error) {
	line := []stretch{{s.info, s.info.LastSeq}}
	for info := s.info; len(line) < maxAncestors; {
		parent, at := forkedFrom(&info)
		if parent == "" {
			break
		}
		var err error
		info, err = s.store.Stat(ctx, parent)
		if errors.Is(err, hansard.ErrNotFound) || errors.Is(err, hansard.ErrDeleted) {
			break // only what the session itself has is left
		}
		if err != nil {
			return nil, err
		}
		line = append([]stretch{{info, at}}, line...)
	}
	return line, nil
}

// forkedFrom is where a session says it was forked.
func forkedFrom(info *hansard.Info) (hansard.SessionID, hansard.Seq) {
	at, err := strconv.ParseUint(info.Labels[importer.LabelForkedAt], 10, 64)
	if err != nil || at == 0 {
		return "", 0
	}
	return hansard.SessionID(info.Labels[importer.LabelParent]), hansard.Seq(at)
}

// raw passes on the bytes of an imported record: those of the event, or of its attachment
// if it was too large for an event.
func (s *session) raw(ctx context.Context, e *told, take func(io.Reader) error) error {
	var stub struct {
		Attached *struct{} `json:"attached"`
	}
	if len(e.Attachments) != 1 || json.Unmarshal(e.Data, &stub) != nil || stub.Attached == nil {
		return take(bytes.NewReader(e.Data))
	}
	r, err := s.store.OpenAttachment(ctx, e.in.ID, e.Attachments[0].Digest)
	if err != nil {
		return err
	}
	defer r.Close()
	return take(r)
}
