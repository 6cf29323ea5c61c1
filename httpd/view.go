package httpd

import (
	"math"
	"time"

	"hansard"
	"hansard/internal/wire"
	"hansard/transcript"
)

// view is how events are written to a reader: as they are stored, or as the parts
// that people read in them.
type view string

const (
	stored view = ""
	// parts is what the page, and other clients that draw a transcript, get: see
	// transcript.Of. Long texts are cut, and say how much is missing: most are
	// displayed folded, and never opened.
	parts view = "parts"
	// wholeParts is parts with nothing cut.
	wholeParts view = "parts whole"
)

// clipBytes is how much of one text is in parts; all texts of an event have four times
// that.
const clipBytes = 16 << 10

// lineMax is the length in characters of the line that stands for a folded part.
const lineMax = 160

// viewOf reads the view that a request asks for.
func viewOf(p *params) view {
	v, ok := parseView(p.text("view"))
	if !ok {
		p.fail("view", "there is no such view; parts is one")
	}
	return v
}

func parseView(name string) (view, bool) { return view(name), name == "" || name == string(parts) }

// event writes an event as a JSON object.
func (v view) event(dst []byte, e *hansard.Event) []byte {
	if v == stored {
		return wire.AppendEvent(dst, e)
	}
	return append(dst, wire.Marshal(v.read(e))...)
}

// line is event without line breaks.
func (v view) line(dst []byte, e *hansard.Event) []byte {
	if v == stored {
		return wire.AppendExactLine(dst, e)
	}
	return v.event(dst, e)
}

// readEvent is an event as people read it.
type readEvent struct {
	Seq         hansard.Seq          `json:"seq"`
	Time        time.Time            `json:"time"`
	Kind        string               `json:"kind"`
	Role        string               `json:"role"`
	Author      string               `json:"author"`
	Voice       transcript.Voice     `json:"voice"`
	Aside       bool                 `json:"aside,omitempty"`
	Turn        hansard.Grant        `json:"turn"`
	By          string               `json:"by,omitempty"`
	ID          string               `json:"id,omitempty"`
	At          time.Time            `json:"at,omitzero"`
	Inbox       bool                 `json:"inbox,omitempty"`
	Attachments []hansard.Attachment `json:"attachments,omitempty"`
	Fork        *hansard.Parent      `json:"fork,omitempty"`
	Redacted    bool                 `json:"redacted,omitempty"`
	Redacts     []hansard.Seq        `json:"redacts,omitempty"`
	Patch       *hansard.Patch       `json:"patch,omitempty"`
	Parts       []readPart           `json:"parts"`
}

// readPart is a part of it.
type readPart struct {
	Type      transcript.Type    `json:"type"`
	Text      string             `json:"text,omitempty"`
	ID        string             `json:"id,omitempty"`
	Name      string             `json:"name,omitempty"`
	Line      string             `json:"line,omitempty"`
	Args      []readArg          `json:"args,omitempty"`
	Failed    bool               `json:"failed,omitempty"`
	Parts     []readPart         `json:"parts,omitempty"`
	MediaType string             `json:"media_type,omitempty"`
	URL       string             `json:"url,omitempty"`
	First     hansard.Seq        `json:"first,omitempty"`
	Last      hansard.Seq        `json:"last,omitempty"`
	Seq       hansard.Seq        `json:"seq,omitempty"`
	Tokens    *transcript.Tokens `json:"tokens,omitempty"`
	Detail    string             `json:"detail,omitempty"`
	Label     string             `json:"label,omitempty"`
	Cut       int                `json:"cut,omitempty"`
}

type readArg struct {
	Name string `json:"name,omitempty"`
	Text string `json:"text"`
	JSON bool   `json:"json,omitempty"`
	Cut  int    `json:"cut,omitempty"`
}

// read makes the parts of an event.
func (v view) read(e *hansard.Event) readEvent {
	r := transcript.Of(*e)
	most := clipBytes
	if v == wholeParts {
		most = math.MaxInt / 8
	}
	return readEvent{Seq: e.Seq, Time: e.Time, Kind: e.Kind, Role: r.Role, Author: r.Author, Voice: r.Voice, Aside: r.Aside, Turn: e.Turn, By: e.By, ID: e.ID, At: e.At, Inbox: e.Inbox, Attachments: e.Attachments,
		Fork: e.Fork, Redacted: e.Redacted, Redacts: e.Redacts, Patch: e.Patch, Parts: readParts(r.Parts, transcript.Clip(r.Parts, most))}
}

// readParts are parts as they are sent. The line of a part is made from the whole text:
// JSON that was cut is no longer JSON.
func readParts(whole, clipped []transcript.Part) []readPart {
	out := make([]readPart, len(clipped))
	for i, p := range clipped {
		out[i] = readPart{Type: p.Type, Text: p.Text, ID: p.ID, Name: p.Name, Failed: p.Failed, Parts: readParts(whole[i].Parts, p.Parts),
			MediaType: p.MediaType, URL: p.URL, First: p.First, Last: p.Last, Seq: p.Seq, Tokens: p.Tokens, Detail: p.Detail, Label: p.Label, Cut: p.Cut}
		switch p.Type {
		case transcript.Call, transcript.Result, transcript.JSON:
			out[i].Line = whole[i].Line(lineMax)
		}
		for _, a := range p.Args {
			out[i].Args = append(out[i].Args, readArg(a))
		}
	}
	return out
}
