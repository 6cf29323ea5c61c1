// Package transcript decides what people read in an event.
//
// Agents of all kinds keep their own shapes of JSON in an event's data. [Of] finds
// the parts that people want to read: text, thinking, tool calls and their results,
// pictures, summaries, usage. It knows the shapes of Claude Code, Codex,
// Gemini and ADK, the Copilot CLI, pi and OpenClaw, opencode, trajectories, the Vercel
// AI SDK, OpenAI's Responses and Chat, and Anthropic's content blocks. Anything else
// stays readable JSON: the unknown members of an object become a part of their own, so
// that nothing is hidden because its object was only half understood.
//
// It never fails, on any bytes. Its work is linear in the size of the data and bounded
// in depth and in the number of parts; the rest is one more part of JSON.
package transcript

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"hansard"
)

// Type is what a part is.
type Type string

// The types of parts.
const (
	Text     Type = "text"     // Markdown, as people and models write it; literal within a result
	Thinking Type = "thinking" // what a model thought; empty where its vendor hides it
	Call     Type = "call"     // a tool is called
	Result   Type = "result"   // what a tool returned, in Parts: literal
	Image    Type = "image"
	File     Type = "file"
	Summary  Type = "summary"  // of what was said before
	Usage    Type = "usage"    // tokens
	Note     Type = "note"     // what the store itself says
	Deletion Type = "deletion" // the event Seq is deleted, for the OpenAI routes
	JSON     Type = "json"     // what is not known
)

// Part is one part of what people read in an event.
type Part struct {
	Type Type
	// Text is the text of a Text, Thinking, Summary or Note.
	Text string
	// ID pairs a Call with its Result.
	ID string
	// Name is that of the tool of a Call or Result, of the file of an Image or File,
	// or of the holder in a Note.
	Name string
	// Args are the arguments of a Call, one by one.
	Args []Arg
	// Failed marks a Result that is an error.
	Failed bool
	// Parts are what the tool returned, in a Result.
	Parts []Part
	// MediaType and URL are where an Image or a File is: in a data: URL, in an
	// attachment: URL with the digest of an attachment, or elsewhere.
	MediaType, URL string
	// First and Last are the events that a Summary covers, 0 if it does not say.
	First, Last hansard.Seq
	// Seq is the event that a Deletion names.
	Seq hansard.Seq
	// Tokens are what a Usage counts.
	Tokens *Tokens
	// JSON is a value as stored: that of a JSON part, or all arguments of a Call.
	JSON json.RawMessage
	// Detail is the long form of a Note, with all details: which turn, which process.
	Detail string
	// Label says what a JSON part is, if that is known.
	Label string
	// Cut is how many bytes [Clip] left out.
	Cut int
}

// Arg is one argument of a call.
type Arg struct {
	Name string // empty if the arguments are not named
	Text string // a string as its text, anything else as JSON
	JSON bool   // whether Text is JSON
	Cut  int    // how many bytes [Clip] left out
}

// Voice is the role in which an event speaks in a conversation.
type Voice string

// The voices.
const (
	User   Voice = "user"
	Agent  Voice = "agent"
	System Voice = "system"
	Tool   Voice = "tool"
)

// Reading is an event as people read it.
type Reading struct {
	// Role and Author are the event's, or those that its data names.
	Role, Author string
	Voice        Voice
	Parts        []Part
	// Aside marks what a tool writes for itself in the user's name: the environment,
	// the output of a local command. It is not a prompt.
	Aside bool
}

// The limits of reading.
const (
	maxParts   = 1000
	maxDepth   = 8
	maxMembers = 256 // of an object whose shape may be known
	maxArgs    = 100
	// maxLooks is how often, on average, a byte may be read: each level of a known
	// shape reads its content a few times.
	maxLooks = 64
)

// Of reads an event.
func Of(e hansard.Event) Reading {
	data := value(bytes.TrimSpace(e.Data))
	r := &reader{left: maxParts, effort: effort(maxLooks*len(data) + 1000)}
	switch {
	case e.Redacted:
		r.out.Parts = []Part{{Type: Note, Text: "The content of this event was redacted", Detail: "the content of this event was redacted" + whose(e)}}
	case len(data) == 0 || e.Kind == hansard.KindMeta && string(data) == "null":
	case e.Kind == hansard.KindLost && string(data) == "null":
		r.out.Parts = []Part{{Type: Note, Text: "This event was lost; a repair put this in its place", Detail: "this event was lost; a repair put this in its place"}}
	case e.Fork != nil:
		r.out.Parts = []Part{{Type: Note, Text: fmt.Sprintf("Forked from %s at event %d", e.Fork.ID, e.Fork.At), Detail: fmt.Sprintf("forked from session %s at event %d", e.Fork.ID, e.Fork.At)}}
	case !json.Valid(data):
		r.out.Parts = []Part{{Type: JSON, JSON: json.RawMessage(data)}}
	default:
		r.out.Parts = r.event(e.Kind, data)
	}
	out := r.out
	if e.Role != "" || out.Role == "" {
		out.Role = e.Role
	}
	if e.Author != "" {
		out.Author = e.Author
	}
	if e.Kind == hansard.KindTurn {
		out.Parts = turnNote(e, out.Parts)
	}
	if len(e.Redacts) > 0 {
		out.Parts = redactionNote(e)
	}
	out.settle(e.Kind)
	for _, a := range e.Attachments {
		p := Part{Type: File, Name: a.Name, MediaType: a.MediaType, URL: AttachmentScheme + a.Digest}
		if strings.HasPrefix(a.MediaType, "image/") {
			p.Type = Image
		}
		out.Parts = append(out.Parts, p)
	}
	return out
}

// AttachmentScheme begins the URL of a part that is an attachment; its digest follows.
const AttachmentScheme = "attachment:"

// settle decides who speaks. What a tool says is its result, in whatever shape.
func (out *Reading) settle(kind string) {
	switch out.Role {
	case "user", "human":
		out.Voice = User
	case "system", "developer":
		out.Voice = System
	case "tool", "function", "toolResult", "tool_result":
		out.Voice = Tool
		if len(out.Parts) > 0 && all(out.Parts, isContent) {
			out.Parts = []Part{{Type: Result, Parts: out.Parts}}
		}
	case "":
		out.Voice = Agent
		if hasType(out.Parts, Thinking) || hasType(out.Parts, Call) {
			out.Role = "assistant" // nobody else thinks or calls tools
		}
	default:
		out.Voice = Agent
	}
	if kind == hansard.KindToolResult || len(out.Parts) > 0 && all(out.Parts, isResult) {
		out.Voice = Tool
	}
}

func all(parts []Part, is func(*Part) bool) bool {
	return !slices.ContainsFunc(parts, func(p Part) bool { return !is(&p) })
}

func isResult(p *Part) bool { return p.Type == Result || p.Type == JSON && p.Label == toolUseResult }

func isContent(p *Part) bool {
	return p.Type == Text || p.Type == JSON || p.Type == Image || p.Type == File
}

// reader reads one event.
type reader struct {
	out    Reading
	effort effort
	left   int // items of arrays that may still be read
	depth  int
}

// event reads the data of an event of a kind.
func (r *reader) event(kind string, v value) []Part {
	switch kind {
	case hansard.KindToolCall:
		if parts, ok := r.known(v); ok && hasType(parts, Call) {
			return parts
		}
		if parts, ok := r.calls(v); ok {
			return parts
		}
	case hansard.KindToolResult:
		if parts, ok := r.known(v); ok && hasType(parts, Result) {
			return parts
		}
		return r.results(v)
	case hansard.KindSummary:
		if parts, ok := r.summary(v); ok {
			return parts
		}
	case "usage":
		if o, ok := r.effort.object(v); ok {
			if parts, ok := usageOf(o); ok {
				return parts
			}
		}
	case KindDeleted:
		if part, ok := r.deletion(v); ok {
			return []Part{part}
		}
	}
	if parts, ok := r.known(v); ok {
		return parts
	}
	label := ""
	if o, ok := r.effort.object(v); ok {
		label = o.word("type")
	}
	return []Part{unknown(v, label)}
}

func hasType(parts []Part, want Type) bool {
	return slices.ContainsFunc(parts, func(p Part) bool { return p.Type == want })
}

func unknown(v value, label string) Part {
	return Part{Type: JSON, JSON: json.RawMessage(v), Label: label}
}

// known returns the parts of a value whose shape is known.
func (r *reader) known(v value) ([]Part, bool) {
	if r.depth >= maxDepth {
		return nil, false
	}
	r.depth++
	defer func() { r.depth-- }()
	switch v.kind() {
	case '"':
		return []Part{{Type: Text, Text: v.text()}}, true
	case '[':
		return r.list(v)
	case '{':
		o, ok := r.effort.object(v)
		if !ok {
			return nil, false
		}
		return r.object(o)
	}
	return nil, false
}

// object tries the shapes of an object, the most specific first.
func (r *reader) object(o *object) ([]Part, bool) {
	for _, shape := range []func(*reader, *object) ([]Part, bool){
		(*reader).envelope, (*reader).block, (*reader).geminiPart, (*reader).message,
	} {
		if parts, ok := shape(r, o); ok {
			return parts, true
		}
		o.forget()
	}
	return nil, false
}

// list reads an array of content: objects that say what they are. A list of
// strings may be a list of anything.
func (r *reader) list(v value) ([]Part, bool) {
	if v.isEmpty() {
		return nil, false
	}
	return r.each(v, func(item value) ([]Part, bool) {
		o, ok := r.effort.object(item)
		if !ok || !o.isContent() {
			return nil, false
		}
		if parts, ok := r.known(item); ok {
			return parts, true
		}
		return []Part{unknown(item, o.word("type"))}, true
	})
}

// each reads the items of an array; if one is not known, the array is not. The items
// beyond the maximum number of parts are one more part.
func (r *reader) each(v value, read func(item value) ([]Part, bool)) ([]Part, bool) {
	if v.kind() != '[' || !r.effort.spend(v) {
		return nil, false
	}
	var out []Part
	for at, item := range v.items() {
		if r.left--; r.left < 0 {
			return append(out, unknown(v.from(at), "the rest")), true
		}
		parts, ok := read(item)
		if !ok {
			return nil, false
		}
		out = append(out, parts...)
	}
	return out, true
}

// isContent reports whether an object is part of a message's content.
func (o *object) isContent() bool {
	return o.word("type") != "" || o.find("text").kind() == '"' || o.find(geminiNames...) != nil
}
