package backup

import (
	"fmt"

	"hansard"
)

// DamageError says what is wrong with a backup, and where.
type DamageError struct {
	Path   string
	Offset int64
	Reason string
	Err    error // may be nil
}

func (e *DamageError) Error() string {
	return fmt.Sprintf("backup %s is damaged at byte %d: %s", e.Path, e.Offset, e.Reason)
}

// Is makes a DamageError match hansard.ErrDamaged.
func (e *DamageError) Is(target error) bool { return target == hansard.ErrDamaged }

func (e *DamageError) Unwrap() error { return e.Err }

// Hint says what to do about it.
func (e *DamageError) Hint() string {
	return "take another copy of it if there is one; restore --salvage brings back what can be read"
}

// NotWholeError says that a file is not a backup, or only part of one.
type NotWholeError struct {
	Path   string
	Reason string
	// Begun is true if it begins as a backup does.
	Begun bool
}

func (e *NotWholeError) Error() string {
	if !e.Begun {
		return fmt.Sprintf("%s is not a backup: %s", e.Path, e.Reason)
	}
	return fmt.Sprintf("backup %s is not whole: %s", e.Path, e.Reason)
}

// Is makes a NotWholeError match hansard.ErrDamaged.
func (e *NotWholeError) Is(target error) bool { return e.Begun && target == hansard.ErrDamaged }

// Hint says what to do about it.
func (e *NotWholeError) Hint() string {
	if !e.Begun {
		return "name a file that hansard backup has written"
	}
	return "copy it again if it was cut on its way; restore --salvage brings back what can be read"
}

// refusal is an error with a hint what to do about it.
type refusal struct{ msg, hint string }

func (e *refusal) Error() string { return e.msg }

// Hint says what to do about it.
func (e *refusal) Hint() string { return e.hint }
