package exporter

import (
	"encoding/json"
	"strings"

	"github.com/google/uuid"

	"hansard"
	"hansard/importer"
	"hansard/internal/wire"
	"hansard/transcript"
)

// The roles of a conversation.
const (
	user      = "user"
	assistant = "assistant"
	system    = "system"
)

// saying is what one role says, in the parts that model APIs know.
type saying struct {
	role  string
	parts []transcript.Part
}

// sayings splits an event by speaker: a tool's result is an answer to the model, even if
// it is stored with the call. Notes, usage and anything not meant for a model are left
// out.
func sayings(e *hansard.Event) (out []saying) {
	r := transcript.Of(*e)
	role := assistant
	switch r.Voice {
	case transcript.User, transcript.Tool:
		role = user
	case transcript.System:
		role = system
	}
	if e.Kind == hansard.KindMeta || e.Kind == importer.KindUsage || e.Kind == importer.KindRaw || e.Kind == importer.KindAttachment || e.Kind == importer.KindRevision {
		return nil
	}
	for _, p := range r.Parts {
		who := role
		switch p.Type {
		case transcript.Result:
			who = user
		case transcript.Call, transcript.Thinking:
			who = assistant
		case transcript.Summary:
			who = user
		case transcript.Text, transcript.Image:
			if p.Text == "" && p.URL == "" {
				continue
			}
		default:
			continue
		}
		if n := len(out); n == 0 || out[n-1].role != who {
			out = append(out, saying{role: who})
		}
		out[len(out)-1].parts = append(out[len(out)-1].parts, p)
	}
	return out
}

// resultText is the result of a tool, as text.
func resultText(p *transcript.Part) string {
	var texts []string
	for i := range p.Parts {
		texts = append(texts, p.Parts[i].Body())
	}
	return strings.Join(texts, "\n")
}

// arguments are those of a call as a JSON object.
func arguments(p *transcript.Part) json.RawMessage {
	if len(p.JSON) > 0 && p.JSON[0] == '{' {
		return p.JSON
	}
	var inner string
	if json.Unmarshal(p.JSON, &inner) == nil && json.Valid([]byte(inner)) && strings.HasPrefix(strings.TrimSpace(inner), "{") {
		return json.RawMessage(inner)
	}
	named := map[string]any{}
	for _, a := range p.Args {
		name := a.Name
		if name == "" {
			name = "input"
		}
		named[name] = a.Text
	}
	return wire.Marshal(named)
}

// picture is a picture that is in the event: its type and its base64.
func picture(p *transcript.Part) (mediaType, data string, ok bool) {
	head, data, ok := strings.Cut(strings.TrimPrefix(p.URL, "data:"), ",")
	mediaType, encoding, _ := strings.Cut(head, ";")
	return mediaType, data, ok && strings.HasPrefix(p.URL, "data:image/") && encoding == "base64"
}

// anthropicBlocks are the parts as content blocks of Anthropic's API. Reasoning is left
// out: the API does not accept it without its signature.
func anthropicBlocks(s *saying) (blocks []any) {
	for i := range s.parts {
		p := &s.parts[i]
		switch p.Type {
		case transcript.Text, transcript.Summary:
			blocks = append(blocks, map[string]any{"type": "text", "text": p.Text})
		case transcript.Image:
			if mediaType, data, ok := picture(p); ok {
				blocks = append(blocks, map[string]any{"type": "image", "source": map[string]any{"type": "base64", "media_type": mediaType, "data": data}})
			}
		case transcript.Call:
			blocks = append(blocks, map[string]any{"type": "tool_use", "id": p.ID, "name": p.Name, "input": arguments(p)})
		case transcript.Result:
			blocks = append(blocks, map[string]any{"type": "tool_result", "tool_use_id": p.ID, "content": resultText(p), "is_error": p.Failed})
		}
	}
	return blocks
}

// sourceID is the id of a session for tools that want a UUID: its own, if it is one.
func sourceID(info hansard.Info) string {
	if forkedHere(&info) {
		info.Labels = nil // with its parent's id, its file would take the place of its parent's
	}
	for _, id := range []string{info.Labels[importer.LabelSource], string(info.ID)} {
		if parsed, err := uuid.Parse(id); err == nil && parsed.String() == strings.ToLower(id) {
			return id
		}
	}
	if tool := info.Labels[importer.LabelTool]; tool == "claude" || tool == "codex" {
		if source := info.Labels[importer.LabelSource]; source != "" && hansard.CheckID(hansard.SessionID(source)) == nil {
			return source
		}
	}
	return madeID(string(info.ID))
}

// forkedHere reports whether a session was forked in a store, and not by the tool that it was
// imported from: then its labels are its parent's, also the one with the tool's id.
func forkedHere(info *hansard.Info) bool {
	return info.Parent != nil && !strings.HasSuffix(string(info.ID), ":"+info.Labels[importer.LabelSource])
}

// madeID is a UUID that is always the same for the same name.
func madeID(name string) string {
	return uuid.NewSHA1(uuid.NameSpaceURL, []byte("hansard:"+name)).String()
}
