package main

import (
	"errors"

	"hansard"
)

// notFoundHint is what to do about a missing session: a command that writes
// may create it; for the others the name is wrong.
func (a *app) notFoundHint(id string) string {
	switch a.command {
	case "append", "turn":
		return "make it with: " + a.again("new", id) + "; or append with --create"
	case "set":
		return "make it with: " + a.again("new", id)
	}
	return "ids have to be exact; " + a.again("ls") + " lists the sessions"
}

// fencedHint is what to do if the grant is not the current one.
func (a *app) fencedHint(err error, id string) string {
	var fenced *hansard.FencedError
	if errors.As(err, &fenced) && fenced.Current == nil {
		return "stop: that turn is over, and nobody has it now; to take it again: " + a.again("turn", id, "--", "PROGRAM")
	}
	return "stop: nothing can be written under a lost turn; " + a.again("turn", id, "--show") + " shows who has it now"
}
