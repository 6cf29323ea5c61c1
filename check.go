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

// Repaired tells what Repair did.
type Repaired struct {
	Session SessionID `json:"session"`
	// Changed is false when the session was sound.
	Changed bool `json:"changed"`
	// Events is how many events the session has now.
	Events Seq `json:"events"`
	// Kept names the file, relative to the store, with the old bytes.
	Kept string `json:"kept,omitempty"`
	// DroppedBytes is how many bytes of the old log are only there.
	DroppedBytes int64 `json:"dropped_bytes,omitempty"`
}
