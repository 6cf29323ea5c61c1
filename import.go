package hansard

import (
	"context"
	"iter"
	"time"
)

// Exporter is implemented by stores that can export everything they know about
// their sessions, so that [Copy] can recreate them elsewhere.
type Exporter interface {
	Store

	// Origins yields how each session began, including deleted ones, by
	// ascending id, starting after the given one.
	Origins(ctx context.Context, after SessionID) iter.Seq2[Origin, error]

	// Keys yields the idempotency keys of a session whose batches begin past a
	// seq, in the order of the log.
	Keys(ctx context.Context, id SessionID, after Seq) iter.Seq2[KeyUse, error]
}

// Importer is implemented by stores that can take in sessions as they are.
type Importer interface {
	Exporter

	// Import adds a part of another store's session after the last event that
	// is here, with the seqs, times, grants and keys it has there, and creates
	// the session if it is not here. Nil means it is durable. A part that does
	// not begin one past the last seq is a [ConflictError]; if the session with
	// this id here began differently, the error is [ErrExists], and if it was
	// deleted here, [ErrDeleted].
	//
	// A part of a deleted session leaves only a tombstone, whether the session was here or not.
	Import(ctx context.Context, p Part) error
}

// ImportChecker is implemented by importers that may refuse every import, such as a
// client of a server where the caller lacks a right.
type ImportChecker interface {
	// CheckImport returns the error that every import would give, or nil.
	CheckImport(ctx context.Context) error
}

// Origin is how a session began.
type Origin struct {
	ID      SessionID `json:"id"`
	Created time.Time `json:"created"`
	// Meta is what it was created with; patches may have changed it since. A
	// deleted session has none.
	Meta    Meta `json:"meta"`
	Deleted bool `json:"deleted"`
	// Parent is the session that it is a fork of, nil if it is not a fork.
	Parent *Parent `json:"parent,omitempty"`
}

// KeyUse is what a store remembers of an idempotency key.
type KeyUse struct {
	Key   string `json:"key"`
	Hash  string `json:"hash"`
	First Seq    `json:"first"`
	Last  Seq    `json:"last"`
}

// Part is a run of a session's events on the way from one store to another.
type Part struct {
	Origin
	Events []Event
	// Keys are the keys of the batches in Events, which are all whole.
	Keys []KeyUse
}
