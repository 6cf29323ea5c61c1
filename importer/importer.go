// Package importer imports the sessions of other tools into a store.
//
// A [Format] knows one tool: where its files are, and how to read one of them record by
// record. An [Engine] delivers the records to any [hansard.Store]. Every record becomes
// one event, whose data is the record byte for byte, under an id that the tool itself
// gave it, or else its place and checksum. So a file may be imported again, by several
// processes at once, or after it grew: every record is stored once.
//
// What is added to the records is the envelope: kind, role, time, and the session's
// title and labels. It is derived from the preceding records, never from where an import
// began or ended, so that the same file gives the same session however the imports were
// split.
//
// Damage in a source is reported, with the file and the offset, and the rest is imported.
package importer

import (
	"context"
	"io"
	"os"
	"slices"
	"time"

	"hansard"
	"hansard/transcript"
)

// Format reads the files of one tool.
type Format interface {
	// Name is how the format is named in --from, and the beginning of the ids of its
	// sessions.
	Name() string
	// Tool is its name for people.
	Tool() string
	// Roots are the directories where the tool keeps its sessions.
	Roots(m Machine) []string
	// Match reports whether a file is one of the tool's, by its path and, if that is not
	// enough, by its beginning. Files that it rejects by their path are not opened.
	Match(path string, head func() []byte) bool
	// Identify completes a source whose path is known: the session it holds.
	Identify(s *Source, head []byte)
	// Read reads a source from its beginning and passes its records on, in order.
	Read(ctx context.Context, in *Input, emit func(Record) error) error
}

// forking is implemented by formats whose forks copy the history of their parents into
// their own files.
type forking interface {
	// relate finds the parent of each source among the others.
	relate(sources []*Source)
	// restamped reports whether a member of a record may differ in a fork's copy of it.
	restamped(member string) bool
}

// Machine is what discovery needs to know about the machine.
type Machine struct {
	Home   string
	Dir    string // the current directory
	Getenv func(string) string
}

// Source is one file of a tool.
type Source struct {
	Format Format
	// Root is the directory that reading stays within, Path the file in it.
	Root, Path string
	Size       int64
	Modified   time.Time
	// Session is the id of the session it holds, as the tool knows it.
	Session string
	// Parent is the id, as the tool knows it, of the session that this one was
	// forked from or started by.
	Parent string
	// Labels are what the session is created with, beside the tool's.
	Labels map[string]string
	// SubAgent says that the parent started it; otherwise it is a fork.
	SubAgent bool
	// parent is the source of the parent, if there is one and this is a fork that
	// repeats its records.
	parent *Source
	// forkOf and read belong to a part: see Input.Part.
	forkOf string
	read   func(in *Input, emit func(Record) error) error
	// unreadable is why a directory could not be read.
	unreadable error
	// tell decides which of the copies of one history is the original.
	tell forkEvidence
	// known is set if the file has not changed since it was imported.
	known *note
	// mark is the file system's stamp of the file when it was found.
	mark string
}

// Record is one record of a source, and what it says about its session.
type Record struct {
	// Session is the tool's id of the session that the record belongs to; empty is
	// the source's.
	Session string
	// Parent is the parent of that session, if Session is set.
	Parent string
	// Begins is set, and nothing else, before the first record of a session that may
	// repeat the records of another one of the source: see [Input.Part].
	Begins *Source
	// Event has ID, At, Kind, Role, Author and Data.
	Event hansard.Event
	// Long is set instead of the data if the record is too large to be an event, or
	// is not what a store accepts: it becomes an attachment.
	Long *Long
	// Title and Labels change the session's. An empty title changes nothing.
	Title  string
	Labels map[string]string
	// Calls and Results are the ids of tool calls and of their results.
	Calls, Results []string
	// Usage is the token count of a model, if the record has one.
	Usage *Usage
	// Covers says that the record is a compaction of everything before it.
	Covers bool
	// Mutable says that the tool changes its records in place: one that has changed
	// is stored as a revision.
	Mutable bool
	// Link says that the record links its session to another. It is stored after all
	// others, if the session exists.
	Link bool
	// Same is equal for a record and its copy in a fork's file. It is empty for
	// records that are never copied.
	Same string
	// Own says that the record is not a copy, even among copies: it is what a fork's file
	// begins with.
	Own bool
}

// Long is a record that goes into an attachment.
type Long struct {
	Size   int64
	Reason string
	Open   func() (io.ReadCloser, error)
	// Name and MediaType are set for a file beside the source. Then the event keeps the
	// data it has.
	Name, MediaType string
}

// Usage is a model's token count for one answer.
type Usage struct {
	// Key identifies the answer. Of several records with the same key the highest counts
	// are used, or with Last the last ones: such tools count from the beginning of the
	// session.
	Key  string
	Last bool
	transcript.Tokens
}

// Damage is something in a source that could not be imported unchanged.
type Damage struct {
	File   string `json:"file"`
	Offset int64  `json:"offset"`
	Line   int    `json:"line,omitempty"`
	// Unfinished marks an incomplete last line: it may still be being written.
	Unfinished bool   `json:"unfinished,omitempty"`
	Message    string `json:"message"`
}

// Formats are the formats of this package and others, the most specific first. The last
// ones accept nearly anything that is JSON. One with the same name as a format of this
// package replaces it.
func Formats(others ...Format) []Format {
	formats := []Format{claude{}, codex{}, gemini{}, copilot{}, openclaw, pi, cortex{}, trajectories{}, cleverAgents{}}
	for _, f := range others {
		i := slices.IndexFunc(formats, func(known Format) bool { return known.Name() == f.Name() })
		if i >= 0 {
			formats[i] = f
		} else {
			formats = append(formats, f)
		}
	}
	return append(formats, anthropic, openai, jsonl{})
}

// Find is the format of a name.
func Find(formats []Format, name string) (Format, bool) {
	for _, f := range formats {
		if f.Name() == name {
			return f, true
		}
	}
	return nil, false
}

// ThisMachine is where the program runs.
func ThisMachine() Machine {
	m := Machine{Getenv: os.Getenv}
	m.Home, _ = os.UserHomeDir() // without a home directory nothing is found there
	m.Dir, _ = os.Getwd()
	return m
}
