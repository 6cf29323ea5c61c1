package hansard

import (
	"context"
	"iter"
)

// Checker is implemented by stores whose logs can be examined and repaired.
type Checker interface {
	// Verify examines one session, or with an empty id the whole store:
	// every line, the chain, the names and what protects the logs. It changes
	// nothing. It yields one finding per sound session and one per problem,
	// and an error only if it could not examine the store.
	Verify(ctx context.Context, id SessionID) iter.Seq2[Finding, error]

	// Repair makes a sound copy of a damaged session in its place, and keeps
	// the old bytes. Every event that can still be read stays, at its seq. A
	// session that is not damaged is left alone.
	Repair(ctx context.Context, id SessionID) (Repaired, error)
}

// Level is how bad a finding is.
type Level string

// The levels of a finding.
const (
	LevelOK     Level = "ok"     // sound
	LevelNote   Level = "note"   // worth knowing; nothing is wrong with any session
	LevelUnread Level = "unread" // could not be examined: its state is unknown
	LevelDamage Level = "damage" // something that was stored is not what it was
)

// Finding is one thing that Verify reports.
type Finding struct {
	Level   Level     `json:"level"`
	Session SessionID `json:"session,omitempty"`
	// File is the file concerned, relative to the store.
	File string `json:"file,omitempty"`
	// Offset and Line say where in the file; Line counts from 1.
	Offset  int64  `json:"offset,omitempty"`
	Line    int    `json:"line,omitempty"`
	Events  Seq    `json:"events,omitempty"` // events that are safe
	Message string `json:"message"`
}

// FoundDeleted is the Message of a finding of level ok about a session that was deleted. Its
// Events are those that it had.
const FoundDeleted = "deleted"

// KindLost is the kind of the events that a repair puts in place of events that can
// no longer be read, so that later events keep their seqs.
const KindLost = "lost"

// IsLost reports whether an event is one that a repair wrote in the place of others.
func (e *Event) IsLost() bool {
	return e.Kind == KindLost && !e.Redacted && e.Turn == "" && e.Role == "" && e.Author == "" && !e.Inbox && e.Patch == nil && string(e.Data) == "null"
}

// Repaired says what Repair did.
type Repaired struct {
	Session SessionID `json:"session"`
	// Changed is false if the session was sound.
	Changed bool `json:"changed"`
	// Events is how many events the session has now.
	Events Seq `json:"events"`
	// Lost is how many of them can no longer be read: events of kind KindLost
	// take their seqs.
	Lost Seq `json:"lost,omitempty"`
	// Kept names the file, relative to the store, with the old bytes.
	Kept string `json:"kept,omitempty"`
	// DroppedBytes is how many bytes of the old log are in that file only.
	DroppedBytes int64 `json:"dropped_bytes,omitempty"`
}

// JournalRepairer is implemented by stores that protect their logs with a journal.
type JournalRepairer interface {
	// RepairJournal makes a sound journal out of a damaged one, and keeps the old
	// file. Events that only the journal had are appended to their sessions; if
	// events before them are lost, they are set aside and the session is damaged
	// until Repair. A sound journal is left alone. It returns ErrBusy if anyone
	// else has the store open. It may be called again after a failure.
	RepairJournal(ctx context.Context) (JournalRepaired, error)
}

// JournalRepaired says what RepairJournal did.
type JournalRepaired struct {
	// Changed is false if the journal was sound.
	Changed bool `json:"changed"`
	// Reason is what was wrong with it.
	Reason string `json:"reason,omitempty"`
	// Kept names the file, relative to the store, with the old journal.
	Kept string `json:"kept,omitempty"`
	// Sessions are those that got events back or may have lost some.
	Sessions []SalvagedSession `json:"sessions,omitempty"`
	// UnreadableBytes is how many bytes of the journal were lost without it being
	// known which sessions they belonged to. If the logs already had their content,
	// nothing is missing; otherwise those sessions end earlier than they did.
	UnreadableBytes int64 `json:"unreadable_bytes,omitempty"`
}

// SalvagedSession is a session that had events in a damaged journal.
type SalvagedSession struct {
	Session SessionID `json:"session"`
	// Events is how many events the session has now.
	Events Seq `json:"events"`
	// Restored is how many of them only the journal had.
	Restored int `json:"restored,omitempty"`
	// Aside names the files, relative to the store, with what could not be appended
	// to the session. The session is damaged until it is repaired.
	Aside []string `json:"aside,omitempty"`
	// MissingFirst to MissingLast is the range of seqs in which some are neither in
	// the session nor readable in those files; 0 if none is missing.
	MissingFirst Seq `json:"missing_first,omitempty"`
	MissingLast  Seq `json:"missing_last,omitempty"`
}

// Pruner is implemented by stores that remove the content of a deleted session some time
// after Delete. They do so on their own; Prune does it now, for the whole store.
type Pruner interface {
	// Prune removes what is left of every deleted session. With scrub it also removes
	// what such a session may have left in places that are reused over time: in a
	// filestore the free part of the journal, caches, and the old files of repaired
	// journals. It may be called at any time, even while others use the store.
	Prune(ctx context.Context, scrub bool) (Pruned, error)
}

// Pruned says what Prune did.
type Pruned struct {
	// Erased are the deleted sessions that had content left.
	Erased []ErasedSession `json:"erased,omitempty"`
	// Attachments are the removed files of attachments that no event named for a day,
	// and of abandoned uploads: paths in the store, or the session and the digest.
	Attachments []string `json:"attachments,omitempty"`
	// Scrubbed names what else was overwritten or removed.
	Scrubbed []string `json:"scrubbed,omitempty"`
}

// ErasedSession is a deleted session whose content was removed.
type ErasedSession struct {
	Session SessionID `json:"session"`
	// Bytes is how many were removed, where the store knows.
	Bytes int64 `json:"bytes,omitempty"`
	// Files are those that were removed besides its log, relative to the store.
	Files []string `json:"files,omitempty"`
}
