package hansard

import (
	"errors"
	"fmt"
	"time"
)

// The errors of the contract. Compare with errors.Is; [Hint] says what to do
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
	// ErrConflict is returned when Batch.Expect is not the last seq, see [ConflictError],
	// and when a test of the state fails, see [StateTestError].
	ErrConflict = errors.New("conflict")
	// ErrKeyReused is returned for a known key with different content: see [KeyReusedError].
	ErrKeyReused = errors.New("idempotency key reused with different content")
	// ErrIDReused is returned for a known event id with different content: see [IDReusedError].
	ErrIDReused = errors.New("event id reused with different content")
	// ErrNoEvent is returned when a session has no event with the id of a Range, or a seq
	// of a Redaction.
	ErrNoEvent = errors.New("no such event")
	// ErrNoAttachment is returned when a session has no attachment with the digest
	// that was requested, or that an event of a batch names.
	ErrNoAttachment = errors.New("no such attachment")
	// ErrHeld is returned when another holder has the session's turn: see [HeldError].
	ErrHeld = errors.New("turn is held")
	// ErrFenced is returned for a write, a renewal or a release under a grant
	// that is not the current one: see [FencedError].
	ErrFenced = errors.New("fenced: this turn is no longer held")
	// ErrUnknown is returned when the outcome of a write is not known: it may or
	// may not be stored.
	ErrUnknown = errors.New("outcome unknown")
	// ErrDamaged is returned when a session's log is damaged: see [DamagedError].
	ErrDamaged = errors.New("session is damaged")
	// ErrUnreadable is returned when a session's log can't be read, by this user or
	// at the moment: see [UnreadableError]. Its content may be sound.
	ErrUnreadable = errors.New("session can't be read")
	// ErrBusy is returned when the store's write lock could not be acquired: see [BusyError].
	ErrBusy = errors.New("store is busy")
	// ErrNoSpace is returned when the disk is full. Nothing was stored.
	ErrNoSpace = errors.New("no space left")
	// ErrReadOnly is returned for a write to a store that can only be read.
	ErrReadOnly = errors.New("store is read-only")
	// ErrFailed is returned for writes after the disk failed in a way that
	// could not be worked around. Reads still work.
	ErrFailed = errors.New("store failed")
	// ErrVersion is returned for data in a format of another version.
	ErrVersion = errors.New("written by another version")
	// ErrUnsupported is returned when a store can't keep its promises where
	// it was asked to run, or can't do what was asked at all.
	ErrUnsupported = errors.New("not supported")
	// ErrClosed is returned by a store after Close.
	ErrClosed = errors.New("store is closed")
)

// kinds are the errors of the contract in the order of precedence for an error that
// matches several, each with what to do next. An unknown outcome comes first: whatever
// caused it, the write may be stored, and a caller told "busy, try again" would store
// it twice.
var kinds = []struct {
	err  error
	hint string
}{
	{ErrUnknown, hintUnknown},
	{ErrTooLarge, "split it, or keep large content elsewhere and store a reference"},
	{ErrInvalid, ""},
	{ErrNotFound, "create it first, or append with create"},
	{ErrDeleted, "a deleted session stays deleted; use a new id, or create one with reuse"},
	{ErrExists, "use another id, or append to the existing session"},
	{ErrConflict, "read what was appended meanwhile and try again with the new last seq"},
	{ErrKeyReused, "use a new key for new content"},
	{ErrIDReused, "leave these events out, or give the new content ids of its own"},
	{ErrNoEvent, "read without the id to see which events there are"},
	{ErrNoAttachment, "attach it to this session first"},
	{ErrHeld, "wait for the turn, or mark the events for the inbox"},
	{ErrFenced, "stop: another holder has the turn; acquire it again before writing"},
	{ErrDamaged, hintDamaged},
	{ErrUnreadable, "check who owns the store's files, and the disk"},
	{ErrBusy, "try again; if a process is stopped, continue or kill it: both are safe"},
	{ErrNoSpace, "free some space and try again; nothing was lost"},
	{ErrReadOnly, "check the permissions and the mount of the store"},
	{ErrFailed, "check the disk, then open the store again"},
	{ErrVersion, "use the version of hansard that wrote it; if that is an older one, copy the sessions with its hansard copy, to a server of this version"},
	{ErrUnsupported, ""},
	{ErrClosed, ""},
}

const (
	hintUnknown = "retry with the same key to settle it"
	hintDamaged = "run verify for a report and repair to make a sound copy; nothing is deleted"
	hintJournal = "repair its journal while nobody else has the store open; everything still in it is brought back"
)

// Kind returns the error of the contract that an error matches: if several, the one that
// takes precedence; nil if none. Code that translates errors (into a status, an exit code)
// uses it, so that all translations agree.
func Kind(err error) error {
	for _, k := range kinds {
		if errors.Is(err, k.err) {
			return k.err
		}
	}
	return nil
}

// Hint says in one sentence what to do next about an error of the contract. It is
// empty for other errors.
func Hint(err error) string {
	kind := Kind(err)
	var own interface{ Hint() string }
	switch more := errors.As(err, &own); {
	case more && kind == ErrUnknown && own.Hint() != "":
		return hintUnknown + "; " + own.Hint()
	case more && kind != ErrUnknown:
		return own.Hint()
	}
	for _, k := range kinds {
		if k.err == kind {
			return k.hint
		}
	}
	return ""
}

// InvalidError says which part of the input was refused and why.
type InvalidError struct {
	Field    string // "id", "events[3].data", "labels[owner]", …
	Reason   string
	TooLarge bool // a limit was exceeded
}

func (e *InvalidError) Error() string { return fmt.Sprintf("invalid %s: %s", e.Field, e.Reason) }

// Is makes an InvalidError match ErrInvalid, and ErrTooLarge if a limit was exceeded.
func (e *InvalidError) Is(target error) bool {
	return target == ErrInvalid || e.TooLarge && target == ErrTooLarge
}

// ConflictError has the actual last seq, which was not the expected one.
type ConflictError struct {
	Session          SessionID
	Expected, Actual Seq
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("conflict in session %s: expected last seq %d, it is %d", e.Session, e.Expected, e.Actual)
}

// Is makes a ConflictError match ErrConflict.
func (e *ConflictError) Is(target error) bool { return target == ErrConflict }

// StateTestError names the operation of Patch.StateOps that is a test and failed: its path
// has another value, or does not exist. Nothing of the batch was stored.
type StateTestError struct {
	Session SessionID
	Index   int    // in Patch.StateOps
	Path    string // of the operation
}

func (e *StateTestError) Error() string {
	return fmt.Sprintf("conflict in session %s: the state is not what state_ops[%d] tests for at %q", e.Session, e.Index, e.Path)
}

// Is makes a StateTestError match ErrConflict.
func (e *StateTestError) Is(target error) bool { return target == ErrConflict }

// Hint says what to do about it.
func (e *StateTestError) Hint() string {
	return "read the state again and try with operations that fit it"
}

// KeyReusedError says where a key was used before.
type KeyReusedError struct {
	Session     SessionID
	Key         string
	First, Last Seq
}

func (e *KeyReusedError) Error() string {
	return fmt.Sprintf("idempotency key %q was used in session %s for different content at seq %d", e.Key, e.Session, e.First)
}

// Is makes a KeyReusedError match ErrKeyReused.
func (e *KeyReusedError) Is(target error) bool { return target == ErrKeyReused }

// IDReusedError names the events of a batch whose ids the session has with different
// content: all of them, so that a mirror can leave them out.
type IDReusedError struct {
	Session SessionID
	IDs     []string // each once, in the order of the batch
}

func (e *IDReusedError) Error() string {
	const most = 3
	shown, more := e.IDs, ""
	if len(shown) > most {
		shown, more = shown[:most], fmt.Sprintf(" and %d more", len(e.IDs)-most)
	}
	return fmt.Sprintf("session %s has different events with the ids %q%s", e.Session, shown, more)
}

// Is makes an IDReusedError match ErrIDReused.
func (e *IDReusedError) Is(target error) bool { return target == ErrIDReused }

// HeldError says who holds the turn.
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

// FencedError says which grant was refused, and who holds the turn now.
type FencedError struct {
	Session SessionID
	Grant   Grant
	Current *Turn // nil if nobody holds it
}

func (e *FencedError) Error() string {
	now := "nobody holds it now"
	if e.Current != nil {
		now = fmt.Sprintf("it is held by %s since %s", e.Current.Holder, e.Current.Since.Format(time.RFC3339))
	}
	return fmt.Sprintf("fenced: grant %s of session %s is no longer valid; %s", e.Grant, e.Session, now)
}

// Is makes a FencedError match ErrFenced.
func (e *FencedError) Is(target error) bool { return target == ErrFenced }

// DamagedError says what is wrong with a session's log, where, and what is safe.
type DamagedError struct {
	Session SessionID `json:"session"`
	// SafeSeq is the last event before the damage: Read yields all up to it.
	SafeSeq Seq `json:"safe_seq"`
	// Offset and Line say where the damage begins in the log; Line counts
	// from 1, the header. Zero if it is not in the log itself.
	Offset int64  `json:"offset"`
	Line   int    `json:"line,omitempty"`
	Reason string `json:"reason"`
	// Journal: the damage is in the store's journal. The log is sound as far as it
	// goes, but events after its end may be missing.
	Journal bool `json:"journal,omitempty"`
}

func (e *DamagedError) Error() string {
	if e.Journal {
		return fmt.Sprintf("session %s: events behind seq %d may be missing: %s", e.Session, e.SafeSeq, e.Reason)
	}
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

// Hint says which of the two repairs helps.
func (e *DamagedError) Hint() string {
	if e.Journal {
		return hintJournal
	}
	return hintDamaged
}

// UnreadableError says why a session's log can't be read, and what to do about it.
type UnreadableError struct {
	Session SessionID
	Reason  string // for people: which file, whose it is
	Advice  string // what to do; may be empty
	Err     error  // of the operating system
}

func (e *UnreadableError) Error() string {
	return fmt.Sprintf("session %s can't be read: %s", e.Session, e.Reason)
}

// Is makes an UnreadableError match ErrUnreadable.
func (e *UnreadableError) Is(target error) bool { return target == ErrUnreadable }

func (e *UnreadableError) Unwrap() error { return e.Err }

// Hint says what to do about it.
func (e *UnreadableError) Hint() string {
	if e.Advice != "" {
		return e.Advice
	}
	return Hint(ErrUnreadable)
}

// BusyError names the process that holds the store's write lock.
type BusyError struct {
	Holder string // for people: pid and host; empty if unknown
	// Own is what this process itself is doing with the lock; empty if another
	// one has it.
	Own string
}

func (e *BusyError) Error() string {
	switch {
	case e.Own != "":
		return "store is busy: " + e.Own
	case e.Holder == "":
		return "store is busy: another process holds the write lock"
	}
	return "store is busy: " + e.Holder + " holds the write lock"
}

// Is makes a BusyError match ErrBusy.
func (e *BusyError) Is(target error) bool { return target == ErrBusy }

// Hint says what to do about a process that does not release the lock.
func (e *BusyError) Hint() string {
	if e.Own != "" {
		return "wait and try again: it finishes on its own; a very slow or failing disk shows in the system's log"
	}
	return "if that process is stopped, kill -CONT and kill -9 are both safe: nothing is lost"
}
