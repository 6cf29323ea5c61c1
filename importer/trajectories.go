package importer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"hansard"
	"hansard/internal/wire"
)

// trajectories reads the trajectories of agent-trajectories: traj_*.json, each a task with
// its chapters and their events. index.json, which says where they are, is not needed.
type trajectories struct{}

func (trajectories) Name() string { return "trajectories" }
func (trajectories) Tool() string { return "trajectories" }

func (trajectories) Roots(m Machine) []string {
	if dir := m.Getenv("TRAJECTORIES_DATA_DIR"); dir != "" {
		return []string{dir}
	}
	return []string{filepath.Join(m.Dir, ".trajectories")}
}

func (trajectories) Match(path string, head func() []byte) bool {
	base := filepath.Base(path)
	return strings.HasPrefix(base, "traj_") && filepath.Ext(base) == ".json" && strings.Contains(string(head()), `"id"`)
}

func (trajectories) Identify(s *Source, _ []byte) {
	s.Session = strings.TrimSuffix(filepath.Base(s.Path), ".json")
}

// trajectoryKinds are the kinds and roles of its events. All others are messages of the
// agent.
var trajectoryKinds = map[string][2]string{
	"prompt": {hansard.KindMessage, "user"}, "message_received": {hansard.KindMessage, "user"}, "thinking": {KindReasoning, "assistant"},
	"tool_call": {hansard.KindToolCall, "assistant"}, "tool_result": {hansard.KindToolResult, "tool"}, "message_sent": {hansard.KindMessage, "assistant"},
	"decision": {hansard.KindMessage, "assistant"}, "finding": {hansard.KindMessage, "assistant"}, "note": {hansard.KindMessage, "assistant"},
	"reflection": {hansard.KindMessage, "assistant"}, "error": {hansard.KindMessage, "assistant"},
}

func (trajectories) Read(ctx context.Context, in *Input, emit func(Record) error) error {
	f, err := in.open()
	if err != nil {
		return err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, valueBytes+1))
	if err != nil {
		return err
	}
	if len(data) > valueBytes || !json.Valid(data) {
		return in.Failed(errors.New("it is not JSON, or too large"))
	}
	members := object(data)
	var task struct {
		Title string `json:"title"`
	}
	_ = decode(find(members, "task"), &task)
	head := Record{Mutable: true, Event: hansard.Event{ID: "trajectory", At: parseTime(textOf(find(members, "startedAt"))), Kind: hansard.KindMeta,
		Data: without(members, "chapters", "retrospective")}}
	var known Facts
	known.Title(&head, task.Title)
	known.Note(&head, map[string]string{"status": textOf(find(members, "status")), "project": textOf(find(members, "projectId"))})
	if err := emit(head); err != nil {
		return err
	}
	if err := eachElement(find(members, "chapters"), func(_ int, chapter []byte) error { return readChapter(chapter, emit) }); err != nil {
		return err
	}
	if end := find(members, "retrospective"); len(end) > 0 {
		return emit(Record{Mutable: true, Event: hansard.Event{ID: "retrospective", At: parseTime(textOf(find(members, "completedAt"))), Kind: hansard.KindSummary,
			Role: "assistant", Data: end}})
	}
	return nil
}

func readChapter(chapter []byte, emit func(Record) error) error {
	members := object(chapter)
	id, agent := textOf(find(members, "id")), textOf(find(members, "agentName"))
	err := emit(Record{Mutable: true, Event: hansard.Event{ID: "chapter:" + id, At: parseTime(textOf(find(members, "startedAt"))), Kind: hansard.KindMeta, Author: agent,
		Data: without(members, "events")}})
	if err != nil {
		return err
	}
	return eachElement(find(members, "events"), func(n int, event []byte) error {
		var e struct {
			TS   float64 `json:"ts"`
			Type string  `json:"type"`
		}
		_ = decode(event, &e)
		kind, ok := trajectoryKinds[e.Type]
		if !ok {
			kind = [2]string{KindRaw, ""}
		}
		author := ""
		if kind[1] == "assistant" {
			author = agent
		}
		return emit(Record{Mutable: true, Event: hansard.Event{ID: fmt.Sprintf("chapter:%s:%d", id, n), At: unixTime(e.TS), Kind: kind[0], Role: kind[1], Author: author, Data: event}})
	})
}

// eachElement passes on the elements of an array; of anything else there are none.
func eachElement(array json.RawMessage, take func(n int, value []byte) error) error {
	if len(array) == 0 || array[0] != '[' {
		return nil
	}
	n := -1
	return wire.EachElement(array, func(value []byte) error {
		n++
		return take(n, value)
	})
}
