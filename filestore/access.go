package filestore

import (
	"errors"
	"fmt"
	"io/fs"
	"path"

	"hansard"
	"hansard/internal/vfs"
)

// Permission errors, turned into something a person can act on: which file it is, who
// owns it, which user this process runs as, and the command that fixes it. The usual
// cause is a store that root wrote to once, or that was restored under another user.

// accessError is a file that this user may not access. Nothing is wrong with its content,
// so it is neither damage nor a failed disk.
type accessError struct {
	file string // relative to the store's directory
	why  string // who owns it; empty: not known
	what string // what to do
	err  error
}

// Error puts the reason before the operating system's message.
func (e *accessError) Error() string {
	if e.why == "" {
		return e.err.Error()
	}
	return e.why + ": " + e.err.Error()
}

// Unwrap keeps fs.ErrPermission recognisable: isReadOnly and isForeign check for it.
func (e *accessError) Unwrap() error { return e.err }

// Hint is what the command and the server print after the error.
func (e *accessError) Hint() string { return e.what }

// noAccess explains a permission error. Any other error, nil, and one that is already
// explained are returned unchanged. Gathering details must never replace the error: if
// that fails, noAccess returns what it has found so far.
func (p *process) noAccess(err error) error {
	var known *accessError
	if !errors.Is(err, fs.ErrPermission) || errors.As(err, &known) {
		return err
	}
	e := &accessError{err: err, what: "check who owns the files of the store and their permissions"}
	var at *fs.PathError
	// The simulated disk has no owners.
	owners, ok := p.fs.(interface {
		Owner(name string) (vfs.Owner, error)
	})
	if !ok || !errors.As(err, &at) {
		return e
	}
	store, err := owners.Owner(".")
	if err != nil {
		return e
	}
	e.file = at.Path
	file, err := owners.Owner(e.file)
	if err != nil { // the file is missing, or its directory can't be searched: then explain the directory
		e.file = path.Dir(e.file)
		if file, err = owners.Owner(e.file); err != nil {
			return e
		}
	}
	named := e.file
	if named == "." {
		named = "the store's directory"
	}
	e.why = fmt.Sprintf("%s belongs to %s, with mode %04o, and this is %s", named, file, file.Mode, store.Self())
	// A file that the store's owner does not own has to be given back, whichever user
	// asks. Only if it is theirs does it matter who asks.
	switch {
	case file.User != store.User:
		e.what = fmt.Sprintf("give it back to the owner of the store, as root, in the store's directory: chown %s %s", store.User, e.file)
	case store.User != store.SelfUser:
		e.what = fmt.Sprintf("the store is %s's: use it as that user, or through a server that runs as that user", store.User)
	default:
		// All files at once: a user who took the right away from one did so from all of them.
		e.what = "give yourself the right, in the store's directory: chmod -R u+rwX ."
	}
	return e
}

// readError types an operating system error while reading a log as ErrUnreadable. That is
// distinct from damage: the content may be fine, and a repair would not help. Errors that
// come neither from the disk nor from permissions (a context, damage) are returned
// unchanged.
func (p *process) readError(id hansard.SessionID, err error) error {
	if err = ifClosed(p, err); errors.Is(err, hansard.ErrUnreadable) || !isDiskError(err) && !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return p.unreadableLog(id, err)
}

// unreadableLog is the error for a log that can't be opened or read, with the advice that
// fits its cause.
func (p *process) unreadableLog(id hansard.SessionID, err error) error {
	if err = ifClosed(p, p.explain(err)); errors.Is(err, hansard.ErrClosed) {
		return err
	}
	e := &hansard.UnreadableError{Session: id, Reason: err.Error(), Err: err}
	var hinted interface{ Hint() string }
	if errors.As(err, &hinted) {
		e.Advice = hinted.Hint()
	}
	return e
}
