package hansard

import (
	"context"
	"iter"
)

// Checker is implemented by stores whose logs can be examined and repaired.
type Checker interface {
	// Verify examines one session, or with an empty id the whole store:
	// every line, the chain, the names and what protects the logs. It changes
	// nothing. It yields one finding per session that is sound and one per
	// thing that is not, and an error only when it could not look.
	Verify(ctx context.Context, id SessionID) iter.Seq2[Finding, error]

	// Repair makes a sound copy of a damaged session out of what is safe, in
	// its place, and keeps the old bytes. A session that is not damaged is
	// left alone.
	Repair(ctx context.Context, id SessionID) (Repaired, error)
}

// Level is how bad a finding is.
type Level string

// The levels of a finding.
const (
	LevelOK     Level = "ok"     // sound
	LevelNote   Level = "note"   // worth knowing; nothing is wrong with any session
	LevelDamage Level = "damage" // something that was stored is not what it was
)

// Finding is one thing that Verify has to say.
type Finding struct {
	Level   Level     `json:"level"`
	Session SessionID `json:"session,omitempty"`
	// File is the file concerned, relative to the store.
	File string `json:"file,omitempty"`
	// Offset and Line tell where in the file; Line counts from 1.
	Offset  int64  `json:"offset,omitempty"`
	Line    int    `json:"line,omitempty"`
	Events  Seq    `json:"events,omitempty"` // events that are safe
	Message string `json:"message"`
}

// KindLost is the kind of events that a repair puts where events were that can't be
// read any more, so that those behind them keep their seqs.
const KindLost = "lost"

// Repaired tells what Repair did.
type Repaired struct {
	Session SessionID `json:"session"`
	// Changed is false when the session was sound.
	Changed bool `json:"changed"`
	// Events is how many events the session has now.
	Events Seq `json:"events"`
	// Lost is how many of them, the first ones, could not be read any more:
	// events of kind KindLost take their seqs.
	Lost Seq `json:"lost,omitempty"`
	// Kept names the file, relative to the store, with the old bytes.
	Kept string `json:"kept,omitempty"`
	// DroppedBytes is how many bytes of the old log are only there.
	DroppedBytes int64 `json:"dropped_bytes,omitempty"`
}

// JournalRepairer is implemented by stores that protect their logs with a journal.
type JournalRepairer interface {
	// RepairJournal makes a sound journal out of a damaged one, and keeps the
	// old file. What was only in the journal goes to the sessions it belongs
	// to; where something before it is lost, it is set aside and the session
	// is damaged until Repair. A sound journal is left alone. Nobody else may
	// have the store open: else ErrBusy. It may be called again after a
	// failure.
	RepairJournal(ctx context.Context) (JournalRepaired, error)
}

// JournalRepaired tells what RepairJournal did.
type JournalRepaired struct {
	// Changed is false when the journal was sound.
	Changed bool `json:"changed"`
	// Reason is what was wrong with it.
	Reason string `json:"reason,omitempty"`
	// Kept names the file, relative to the store, with the old journal.
	Kept string `json:"kept,omitempty"`
	// Sessions are those that got something back or may have lost something.
	Sessions []SalvagedSession `json:"sessions,omitempty"`
	// UnreadableBytes is how much of the journal was lost and no longer tells
	// which sessions it was for. If their logs had it already nothing is
	// missing; else those sessions end earlier than they did.
	UnreadableBytes int64 `json:"unreadable_bytes,omitempty"`
}

// SalvagedSession is a session of which a damaged journal had something.
type SalvagedSession struct {
	Session SessionID `json:"session"`
	// Events is how many events the session has now.
	Events Seq `json:"events"`
	// Restored is how many of them only the journal had.
	Restored int `json:"restored,omitempty"`
	// Aside names the files, relative to the store, with what could not follow
	// them. The session is damaged until it is repaired.
	Aside []string `json:"aside,omitempty"`
	// MissingFirst to MissingLast are the seqs that are neither in the session
	// nor, all of them, readable in those files; 0 when none is.
	MissingFirst Seq `json:"missing_first,omitempty"`
	MissingLast  Seq `json:"missing_last,omitempty"`
}
