package importer

import (
	"strings"
	"time"
	"unicode/utf8"

	"hansard"
)

// The kinds of imported events besides those of the store.
const (
	KindReasoning  = "reasoning"  // a model's reasoning
	KindUsage      = "usage"      // tokens
	KindAttachment = "attachment" // what a tool showed the model
	KindSubAgent   = "subagent"   // how a session is linked to the one that started it
	KindRevision   = "revision"   // a record that the tool changed in place
	KindRaw        = "raw"        // anything unknown
)

// The labels of imported sessions.
const (
	LabelTool      = "tool"       // Format.Name
	LabelSource    = "source"     // the tool's own id of the session
	LabelCwd       = "cwd"        // where the agent ran
	LabelBranch    = "branch"     // of git
	LabelModel     = "model"      // the last one used
	LabelVersion   = "version"    // of the tool
	LabelParent    = "parent"     // the session it was forked from, or that started it
	LabelSpawnedBy = "spawned-by" // the call by which the parent started it
	LabelAgent     = "agent"      // which kind of agent
	LabelArchived  = "archived"
	// LabelForkedRecord is the last record that a fork has of its parent, as the tool
	// names it.
	LabelForkedRecord = "forked-record"
	// LabelForkedAt is the seq in the session of LabelParent after which this one
	// continues, if the two could not be stored as a session and its fork.
	LabelForkedAt = "forked-at"
)

// SessionID is the id of an imported session: the format's name followed by the tool's
// id. Characters that ids can't have are replaced, and then a checksum keeps ids
// distinct.
func SessionID(f Format, id string) hansard.SessionID {
	whole := f.Name() + ":" + id
	if hansard.CheckID(hansard.SessionID(whole)) == nil {
		return hansard.SessionID(whole)
	}
	clean := strings.Map(func(r rune) rune {
		if r < utf8.RuneSelf && hansard.CheckID(hansard.SessionID("a"+string(r))) == nil {
			return r
		}
		return '-'
	}, whole)
	return hansard.SessionID(cut(clean, hansard.MaxIDBytes-17) + "-" + shortHash([]byte(whole), 16))
}

// eventID is the id of an event: the tool's, if a store accepts it.
func eventID(id string) string {
	bad := strings.ContainsFunc(id, func(r rune) bool { return r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 })
	if len(id) > hansard.MaxEventID-40 || bad || !utf8.ValidString(id) {
		return "sha256:" + shortHash([]byte(id), 32)
	}
	return id
}

// cut shortens a text to at most limit bytes, between characters.
func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}

// name makes a text fit for a kind, a role, an author or a label.
func name(s string) string {
	return cut(strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", ""), hansard.MaxLabelBytes)
}

// titleBytes is the maximum length of a title made from a prompt.
const titleBytes = 120

// title makes a title from a text: its first line that is not blank.
func title(text string) string {
	for line := range strings.Lines(strings.ToValidUTF8(text, "\uFFFD")) {
		line = strings.Join(strings.Fields(strings.ReplaceAll(line, "\x00", " ")), " ")
		if line != "" {
			if short := cut(line, titleBytes); short != line {
				return short + "…"
			}
			return line
		}
	}
	return ""
}

// parseTime reads a time as tools write it; the zero time if it is not one.
func parseTime(s string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return time.Time{}
	}
	return sane(t)
}

// unixTime is a number of seconds or, if it is too large for that, milliseconds.
func unixTime(n float64) time.Time {
	if n <= 0 || n != n {
		return time.Time{}
	}
	if n < 1e11 {
		n *= 1000
	}
	if n > 2.5e14 { // past the year 9999
		return time.Time{}
	}
	return sane(time.UnixMilli(int64(n)))
}

// sane is a time that a store accepts; otherwise the zero time.
func sane(t time.Time) time.Time {
	if t = t.UTC(); t.Year() < 1 || t.Year() > 9999 {
		return time.Time{}
	}
	return t
}

// Facts notices when what is known about a session changes, so that each change is
// stored once, with the record that brought it.
type Facts struct {
	labels map[string]string
	title  string
}

// Note adds what is new to a record. Empty values are ignored.
func (f *Facts) Note(r *Record, labels map[string]string) {
	for k, v := range labels {
		if v = name(v); v == "" || f.labels[k] == v {
			continue
		}
		if f.labels == nil {
			f.labels = map[string]string{}
		}
		if r.Labels == nil {
			r.Labels = map[string]string{}
		}
		f.labels[k], r.Labels[k] = v, v
	}
}

// Title gives the session a title.
func (f *Facts) Title(r *Record, text string) {
	if text = title(text); text != "" && text != f.title {
		f.title, r.Title = text, text
	}
}
