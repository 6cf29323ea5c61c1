package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/spf13/cobra"

	"hansard"
)

// someIDs requires one session id or more.
func someIDs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return nil
	}
	return arguments(1, "a session id")(cmd, args)
}

// checkIDs refuses an invalid id before anything is done with the others, and
// drops duplicates.
func checkIDs(args []string) ([]hansard.SessionID, error) {
	ids := make([]hansard.SessionID, 0, len(args))
	seen := make(map[string]bool, len(args))
	for _, arg := range args {
		if err := hansard.CheckID(hansard.SessionID(arg)); err != nil {
			return nil, err
		}
		if !seen[arg] {
			ids = append(ids, hansard.SessionID(arg))
		}
		seen[arg] = true
	}
	return ids, nil
}

// several is a command on more than one session. A session that fails is
// reported, and the command continues with the others; the first failure gives
// the exit code.
type several struct {
	app   *app
	many  bool // otherwise a failure is returned as the command's own
	first error
}

// failed takes the failure of one session; it returns nil to continue with the
// next. An error that is not about the session, such as an unreachable store,
// ends the command.
func (v *several) failed(ctx context.Context, id hansard.SessionID, err error) error {
	v.app.session = string(id)
	if !v.many || !aboutSession(err) {
		return err
	}
	if flushErr := v.app.out.Flush(); flushErr != nil {
		return flushErr // earlier output comes before the message
	}
	v.app.report(ctx, err)
	v.first = orFirst(v.first, err)
	return nil
}

// outcome is the error of the command: all failures have been reported.
func (v *several) outcome() error {
	if v.first == nil {
		return nil
	}
	return &quietError{v.first}
}

func aboutSession(err error) bool {
	for _, e := range []error{hansard.ErrNotFound, hansard.ErrDeleted, hansard.ErrHeld, hansard.ErrFenced, hansard.ErrDamaged,
		fs.ErrExist} { // of the session's export
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// describe is a session in a few words: its title and its size.
func describe(i hansard.Info) string {
	if i.Title == "" {
		return plural(i.LastSeq, "event")
	}
	return fmt.Sprintf("%q, %s", escapeLine(i.Title), plural(i.LastSeq, "event"))
}
