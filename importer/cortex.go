package importer

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"

	"hansard"
)

// cortex reads what the cortex app server keeps: history/<id>.jsonl with the messages,
// and sessions/<id>.json with what is known about the session, which it overwrites.
type cortex struct{}

func (cortex) Name() string { return "cortex" }
func (cortex) Tool() string { return "cortex" }

func (cortex) Roots(m Machine) []string {
	var roots []string
	for _, dir := range []string{filepath.Join(m.Home, ".cortex"), filepath.Join(m.Home, ".cortex", "app-server")} {
		roots = append(roots, filepath.Join(dir, "sessions"), filepath.Join(dir, "history"))
	}
	return roots
}

func (cortex) Match(path string, head func() []byte) bool {
	dir := filepath.Base(filepath.Dir(path))
	other := map[string]string{"sessions": "history", "history": "sessions"}[dir]
	if dir == "sessions" && filepath.Ext(path) != ".json" || dir == "history" && filepath.Ext(path) != ".jsonl" || other == "" {
		return false
	}
	if info, err := os.Stat(filepath.Join(filepath.Dir(filepath.Dir(path)), other)); err != nil || !info.IsDir() {
		return false
	}
	if dir == "history" {
		return anyLine(head(), func(line []byte) bool {
			var m message
			return decode(line, &m) == nil && m.Role != ""
		})
	}
	var s cortexSession
	return filepath.Base(path) != "sessions.json" && decode(head(), &s) == nil && s.ID != ""
}

// Identify makes one source of the two files of a session: its history, or, if it has
// none, what is known about it.
func (cortex) Identify(s *Source, _ []byte) {
	file := s.File()
	s.Session = strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
	s.Root = filepath.Dir(filepath.Dir(file))
	s.Path = filepath.Join("history", s.Session+".jsonl")
	if info, err := os.Lstat(s.File()); err == nil && info.Mode().IsRegular() {
		s.Size, s.Modified = info.Size(), info.ModTime()
		return
	}
	s.Path = filepath.Join("sessions", s.Session+".json")
}

type cortexSession struct {
	ID    string `json:"id"`
	Title string `json:"title"`
	Name  string `json:"name"`
	Model string `json:"model"`
	Cwd   string `json:"cwd"`
	stamps
}

func (cortex) Read(ctx context.Context, in *Input, emit func(Record) error) error {
	var f Facts
	if err := readCortexSession(in, &f, emit); err != nil || filepath.Ext(in.Path) == ".json" {
		return err
	}
	return in.Records(ctx, false, func(piece []byte) bool {
		var m message
		return decode(piece, &m) == nil && m.Role != ""
	}, func(raw Raw) error {
		if !json.Valid(raw.Bytes) {
			return errSyntax
		}
		return emit(messageRecord(raw, &f))
	}, emit)
}

// readCortexSession reads what is known about a session, if anything.
func readCortexSession(in *Input, known *Facts, emit func(Record) error) error {
	f, err := openIn(in.Root, filepath.Join("sessions", in.Session+".json"))
	if err != nil {
		return nil
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, valueBytes))
	if err != nil {
		return err
	}
	var s cortexSession
	if decode(data, &s) != nil {
		in.Report(Damage{Message: "what is known about the session is not JSON: it may be being written"}) // it truncates the file first
		return nil
	}
	rec := Record{Mutable: true, Event: hansard.Event{ID: "session", At: s.at(), Kind: hansard.KindMeta, Data: data}}
	known.Title(&rec, first(s.Title, s.Name))
	known.Note(&rec, map[string]string{LabelCwd: s.Cwd, LabelModel: s.Model})
	return emit(rec)
}
