package importer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"hansard"
	"hansard/internal/pyjson"
	"hansard/transcript"
)

// cleverAgents reads the exports of cleveragents' sessions: one object with the messages
// and a checksum over all of it. If the checksum is wrong, nothing is imported.
type cleverAgents struct{}

func (cleverAgents) Name() string           { return "cleveragents" }
func (cleverAgents) Tool() string           { return "cleveragents exports" }
func (cleverAgents) Roots(Machine) []string { return nil }
func (cleverAgents) general()               {}

func (cleverAgents) Match(path string, head func() []byte) bool {
	if filepath.Ext(path) != ".json" {
		return false
	}
	h := head()
	has := func(name string) bool { return bytes.Contains(h, []byte(`"`+name+`"`)) }
	// Sorted, the members after the messages may be beyond the head.
	return has("messages") && (has("session_id") && (has("schema_version") || has("checksum")) || has("checksum") && has("actor_name"))
}

func (cleverAgents) Identify(s *Source, _ []byte) {
	base := filepath.Base(s.Path)
	s.Session = strings.TrimSuffix(base, filepath.Ext(base))
	// The id may come after the messages, and messages may have members of the same name.
	// What can't be read is reported when it is imported.
	enough := errors.New("enough")
	_ = s.quiet().document(context.Background(), nil, func(Raw) error { return enough }, func(m member) error {
		if m.name != "session_id" {
			return nil
		}
		s.Session = first(textOf(m.value), s.Session)
		return enough
	})
}

type cleverMessage struct {
	ID       string `json:"message_id"`
	Role     string `json:"role"`
	Content  string `json:"content"`
	Sequence *int64 `json:"sequence"`
	CallID   string `json:"tool_call_id"`
	stamps
}

func (cleverAgents) Read(ctx context.Context, in *Input, emit func(Record) error) error {
	f, err := in.open()
	if err != nil {
		return err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, 4*valueBytes+1))
	if err != nil {
		return err
	}
	if len(data) > 4*valueBytes || !json.Valid(data) {
		return in.Failed(errors.New("it is not JSON, or too large"))
	}
	members := object(data)
	if err := CheckCleverAgents(members2map(members)); err != nil {
		return fmt.Errorf("%w: %w", errSource, err)
	}
	head := Record{Mutable: true, Event: hansard.Event{ID: "session", At: parseTime(textOf(find(members, "created_at"))), Kind: hansard.KindMeta,
		Data: without(members, "messages", "checksum")}}
	var known Facts
	known.Title(&head, first(textOf(find(members, "title")), textOf(find(members, "name"))))
	known.Note(&head, map[string]string{LabelAgent: textOf(find(members, "actor_name")), "namespace": textOf(find(members, "namespace"))})
	var used struct {
		Input  int64 `json:"input_tokens"`
		Output int64 `json:"output_tokens"`
	}
	if usage := find(members, "token_usage"); len(usage) > 0 {
		_ = decode(usage, &used)
		head.Usage = &Usage{Key: "session", Last: true, Tokens: transcript.Tokens{Input: used.Input, Output: used.Output}}
	}
	if err := emit(head); err != nil {
		return err
	}
	return eachElement(find(members, "messages"), func(n int, value []byte) error {
		var m cleverMessage
		_ = decode(value, &m)
		rec := messageRecord(Raw{value, fmt.Sprintf("item:%d:%08x", n, checksum(value))}, &known)
		rec.Event.ID, rec.Event.At = first(m.ID, rec.Event.ID), m.at()
		if rec.Event.Kind == hansard.KindToolResult && m.CallID == "" {
			rec.Results = nil
		}
		return emit(rec)
	})
}

func members2map(members []member) map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	for _, m := range members {
		out[m.name] = m.value
	}
	return out
}

// CheckCleverAgents compares the checksum of an export with its content. The checksum may
// begin with "sha256:". An export without one is incomplete.
func CheckCleverAgents(export map[string]json.RawMessage) error {
	given := strings.TrimPrefix(textOf(export["checksum"]), "sha256:")
	if given == "" {
		return fmt.Errorf("it has no checksum")
	}
	if sum := CleverAgentsSum(export); sum != strings.ToLower(given) {
		return fmt.Errorf("its checksum is %.80s, that of its content %s", given, sum)
	}
	return nil
}

// CleverAgentsSum is the checksum of an export, in hex: SHA-256 over its other members as
// json.dumps(export, sort_keys=True, default=str) writes them.
func CleverAgentsSum(export map[string]json.RawMessage) string {
	content := map[string]json.RawMessage{}
	for name, value := range export {
		if name != "checksum" {
			content[name] = value
		}
	}
	sum := sha256.Sum256(pyjson.Append(nil, marshalRaw(content)))
	return hex.EncodeToString(sum[:])
}

// marshalRaw is an object of members byte for byte: json.Marshal would escape them again.
func marshalRaw(content map[string]json.RawMessage) []byte {
	var members []member
	for name, value := range content {
		members = append(members, member{name, value})
	}
	return without(members)
}
