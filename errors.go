package hansard

import (
	"errors"
	"fmt"
	"time"
)

// The errors of the contract. Compare with errors.Is; [Hint] tells what to do
// next about any of them.
var (
	// ErrInvalid is returned for input that no store accepts: see [InvalidError].
	ErrInvalid = errors.New("invalid")
	// ErrTooLarge is returned for input over a limit; it is an ErrInvalid too.
	ErrTooLarge = errors.New("too large")
	// ErrNotFound is returned when the session never existed.
	ErrNotFound = errors.New("no such session")
	// ErrDeleted is returned when the session was deleted.
	ErrDeleted = errors.New("session was deleted")
	// ErrExists is returned by Create when the session exists.
	ErrExists = errors.New("session exists already")
	// ErrConflict is returned when Batch.Expect is not the last seq: see [ConflictError].
	ErrConflict = errors.New("conflict")
	// ErrKeyReused is returned for a known key with other content: see [KeyReusedError].
	ErrKeyReused = errors.New("idempotency key reused with other content")
	// ErrHeld is returned when somebody else holds the session's turn: see [HeldError].
	ErrHeld = errors.New("turn is held")
	// ErrFenced is returned for a write, a renewal or a release under a grant
	// that is not the current one: see [FencedError].
	ErrFenced = errors.New("fenced: this turn is no longer held")
	// ErrUnknown is returned when the outcome of a write is open: it may or
	// may not be stored.
	ErrUnknown = errors.New("outcome unknown")
	// ErrDamaged is returned when a session's log is damaged: see [DamagedError].
	ErrDamaged = errors.New("session is damaged")
	// ErrBusy is returned when the store's write lock could not be had: see [BusyError].
	ErrBusy = errors.New("store is busy")
	// ErrNoSpace is returned when the disk is full. Nothing was stored.
	ErrNoSpace = errors.New("no space left")
	// ErrReadOnly is returned for a write to a store that can only be read.
	ErrReadOnly = errors.New("store is read-only")
	// ErrFailed is returned for writes after the disk failed in a way that
	// could not be worked around. Reads go on.
	ErrFailed = errors.New("store failed")
	// ErrVersion is returned for data written by a newer version.
	ErrVersion = errors.New("written by a newer version")
	// ErrUnsupported is returned when a store can't keep its promises where
	// it was asked to live.
	ErrUnsupported = errors.New("not supported")
	// ErrClosed is returned by a store after Close.
	ErrClosed = errors.New("store is closed")
)

// hints says what to do next, for the errors that leave the caller a choice.
// The first that matches counts.
var hints = []struct {
	err  error
	hint string
}{
	{ErrTooLarge, "split it, or keep large content elsewhere and store a reference"},
	{ErrNotFound, "create it first, or append with create"},
	{ErrDeleted, "a deleted session stays deleted; use a new id"},
	{ErrExists, "use another id, or append to the existing session"},
	{ErrConflict, "read what was appended meanwhile and try again with the new last seq"},
	{ErrKeyReused, "use a new key for new content"},
	{ErrHeld, "wait for the turn, or mark the events for the inbox"},
	{ErrFenced, "stop: another holder has the turn; acquire it again before writing"},
	{ErrUnknown, "retry with the same key to settle it"},
	{ErrDamaged, "run verify for a report and repair to make a sound copy; nothing is deleted"},
	{ErrBusy, "try again; a stopped process may be continued or killed, both are safe"},
	{ErrNoSpace, "free some space and try again; nothing was lost"},
	{ErrReadOnly, "check the permissions and the mount of the store"},
	{ErrFailed, "check the disk, then open the store again"},
	{ErrVersion, "upgrade hansard"},
}

// Hint tells in one sentence what to do next about an error of the contract,
// or nothing.
func Hint(err error) string {
	var own interface{ Hint() string }
	if errors.As(err, &own) {
		return own.Hint()
	}
	for _, h := range hints {
		if errors.Is(err, h.err) {
			return h.hint
		}
	}
	return ""
}

// InvalidError says which part of the input was refused and why.
type InvalidError struct {
	Field    string // "id", "events[3].data", "labels[owner]", …
	Reason   string
	TooLarge bool // it is over a limit
}

func (e *InvalidError) Error() string { return fmt.Sprintf("invalid %s: %s", e.Field, e.Reason) }

// Is makes an InvalidError match ErrInvalid, and ErrTooLarge where it is that.
func (e *InvalidError) Is(target error) bool {
	return target == ErrInvalid || e.TooLarge && target == ErrTooLarge
}

// ConflictError tells the last seq that was found instead of the expected one.
type ConflictError struct {
	Session          SessionID
	Expected, Actual Seq
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("conflict in session %s: expected last seq %d, it is %d", e.Session, e.Expected, e.Actual)
}

// Is makes a ConflictError match ErrConflict.
func (e *ConflictError) Is(target error) bool { return target == ErrConflict }

// KeyReusedError tells where a key was used before.
type KeyReusedError struct {
	Session     SessionID
	Key         string
	First, Last Seq
}

func (e *KeyReusedError) Error() string {
	return fmt.Sprintf("idempotency key %q was used in session %s for other content at seq %d", e.Key, e.Session, e.First)
}

// Is makes a KeyReusedError match ErrKeyReused.
func (e *KeyReusedError) Is(target error) bool { return target == ErrKeyReused }

// HeldError tells who holds the turn.
type HeldError struct {
	Session SessionID
	Turn    Turn
}

func (e *HeldError) Error() string {
	how := ""
	if e.Turn.Exclusive {
		how = " exclusively"
	}
	return fmt.Sprintf("turn of session %s is held%s by %s since %s", e.Session, how, e.Turn.Holder, e.Turn.Since.Format(time.RFC3339))
}

// Is makes a HeldError match ErrHeld.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// FencedError tells which grant was refused, and who has the turn now.
type FencedError struct {
	Session SessionID
	Grant   Grant
	Current *Turn // nil when nobody holds it
}

func (e *FencedError) Error() string {
	now := "nobody holds it now"
	if e.Current != nil {
		now = fmt.Sprintf("it is held by %s under %s", e.Current.Holder, e.Current.Grant)
	}
	return fmt.Sprintf("fenced: grant %s of session %s is no longer valid; %s", e.Grant, e.Session, now)
}

// Is makes a FencedError match ErrFenced.
func (e *FencedError) Is(target error) bool { return target == ErrFenced }

// DamagedError tells what is wrong with a session's log, where, and what is safe.
type DamagedError struct {
	Session SessionID `json:"session"`
	// SafeSeq is the last event before the damage: Read gives all up to it.
	SafeSeq Seq `json:"safe_seq"`
	// Offset and Line are where the damage begins in the log; Line counts
	// from 1, the header. Zero when it is not in the log itself.
	Offset int64  `json:"offset"`
	Line   int    `json:"line,omitempty"`
	Reason string `json:"reason"`
}

func (e *DamagedError) Error() string {
	where := ""
	if e.Offset > 0 || e.Line > 0 {
		where = fmt.Sprintf(" at byte %d", e.Offset)
	}
	if e.Line > 0 {
		where += fmt.Sprintf(" (line %d)", e.Line)
	}
	return fmt.Sprintf("session %s is damaged%s: %s; events up to seq %d are safe", e.Session, where, e.Reason, e.SafeSeq)
}

// Is makes a DamagedError match ErrDamaged.
func (e *DamagedError) Is(target error) bool { return target == ErrDamaged }

// BusyError names the process that keeps the store's write lock.
type BusyError struct {
	Holder string // for people: pid and host; empty when it is not known
}

func (e *BusyError) Error() string {
	if e.Holder == "" {
		return "store is busy: another process holds the write lock"
	}
	return "store is busy: " + e.Holder + " holds the write lock"
}

// Is makes a BusyError match ErrBusy.
func (e *BusyError) Is(target error) bool { return target == ErrBusy }

// Hint says what to do about a process that does not let go.
func (e *BusyError) Hint() string {
	return "if that process is stopped, kill -CONT and kill -9 are both safe: nothing is lost"
}
