package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"syscall"

	"hansard"
	"hansard/httpd"
	"hansard/internal/wire"
)

// The exit codes. They are part of the command's contract.
const (
	exitOK       = 0
	exitOther    = 1
	exitUsage    = 2
	exitNotFound = 3
	exitConflict = 4
	exitHeld     = 5
	exitDamaged  = 6
	exitSignal   = 128 // plus the signal's number
)

// outcomes maps errors to exit codes and to the codes that programs compare: errors of
// the contract by their kind, others by the first match.
var outcomes = []struct {
	err  error
	exit int
	code string
}{
	{hansard.ErrUnknown, exitOther, "unknown"},
	{hansard.ErrTooLarge, exitUsage, "too_large"},
	{hansard.ErrInvalid, exitUsage, "invalid"},
	{errNoStore, exitNotFound, "no_store"},
	{errNotSet, exitNotFound, "not_set"},
	{hansard.ErrNotFound, exitNotFound, "not_found"},
	{hansard.ErrDeleted, exitNotFound, "deleted"},
	{hansard.ErrExists, exitConflict, "exists"},
	{hansard.ErrConflict, exitConflict, "conflict"},
	{hansard.ErrKeyReused, exitConflict, "key_reused"},
	{hansard.ErrIDReused, exitConflict, "id_reused"},
	{hansard.ErrNoEvent, exitNotFound, "no_event"},
	{hansard.ErrNoAttachment, exitNotFound, "no_attachment"},
	{httpd.ErrNoToken, exitNotFound, "no_token"},
	{httpd.ErrTokenExists, exitConflict, "exists"},
	{hansard.ErrHeld, exitHeld, "held"},
	{hansard.ErrFenced, exitHeld, "fenced"},
	{hansard.ErrDamaged, exitDamaged, "damaged"},
	{hansard.ErrUnreadable, exitOther, "unreadable"},
	{hansard.ErrBusy, exitOther, "busy"},
	{hansard.ErrNoSpace, exitOther, "no_space"},
	{hansard.ErrReadOnly, exitOther, "read_only"},
	{hansard.ErrFailed, exitOther, "failed"},
	{hansard.ErrVersion, exitOther, "version"},
	{hansard.ErrUnsupported, exitOther, "unsupported"},
	{hansard.ErrClosed, exitOther, "closed"},
	{fs.ErrPermission, exitOther, "permission"},
}

// usageError is a mistake in the arguments.
type usageError struct{ msg, hint string }

func (e *usageError) Error() string { return e.msg }
func (e *usageError) Hint() string  { return e.hint }

// asUsage makes an error of the argument parser a usage error.
func asUsage(err error) error {
	var usage *usageError
	if errors.As(err, &usage) {
		return err
	}
	return &usageError{msg: err.Error(), hint: "add --help for the usage"}
}

// outcome returns the exit code and the code word for an error.
func outcome(ctx context.Context, err error) (exit int, code string) {
	var usage *usageError
	if errors.As(err, &usage) {
		return exitUsage, "usage"
	}
	var program *programError
	if errors.As(err, &program) {
		return program.exit, "program"
	}
	kind := hansard.Kind(err)
	for _, o := range outcomes {
		if o.err == kind || (kind == nil || o.err == errNoStore) && errors.Is(err, o.err) {
			return o.exit, o.code
		}
	}
	if sig, ok := stoppedBy(ctx); ok && errors.Is(err, context.Canceled) {
		return exitSignal + sig, "interrupted"
	}
	return exitOther, "error"
}

// hinted adds a hint to an error.
type hinted struct {
	error
	hint string
}

func (e *hinted) Unwrap() error { return e.error }
func (e *hinted) Hint() string  { return e.hint }

// interrupted is the error of a command stopped by a signal; done is what it had done
// by then.
type interrupted struct{ done string }

func (e *interrupted) Error() string        { return "interrupted; " + e.done }
func (e *interrupted) Is(target error) bool { return target == context.Canceled }

// orInterrupted says what was done before a signal, if a signal caused err. Not for an
// unknown outcome: that has to be reported.
func orInterrupted(err error, done string) error {
	if errors.Is(err, context.Canceled) && !errors.Is(err, hansard.ErrUnknown) {
		return &interrupted{done}
	}
	return err
}

// quietError is an error that has been reported already or needs no message; only its
// exit code counts.
type quietError struct{ err error }

func (e *quietError) Error() string { return e.err.Error() }
func (e *quietError) Unwrap() error { return e.err }

// report says on stderr what went wrong and what to do about it, and returns the exit
// code.
func (a *app) report(ctx context.Context, err error) int {
	if err == nil {
		return exitOK
	}
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrClosedPipe) {
		// The reader of our output has seen enough.
		return exitSignal + int(syscall.SIGPIPE)
	}
	exit, code := outcome(ctx, err)
	var quiet *quietError
	var program *programError
	if errors.As(err, &quiet) || errors.As(err, &program) && program.err == nil {
		return exit
	}
	// Names and reasons may come from a file that was tampered with.
	message, hint := escapeText(a.message(err)), escapeText(a.hint(err))
	fmt.Fprintf(a.stderr, "hansard: %s\n", message)
	if hint != "" {
		fmt.Fprintf(a.stderr, "hint: %s\n", hint)
	}
	if a.json {
		line, _ := json.Marshal(struct { // strings and a number: can't fail
			Error string `json:"error"`
			Code  string `json:"code"`
			Exit  int    `json:"exit"`
			Hint  string `json:"hint"`
			// Turn is the current turn, if that is the reason.
			Turn *hansard.Turn `json:"turn,omitempty"`
		}{message, code, exit, hint, turnOf(err)})
		fmt.Fprintf(a.stderr, "%s\n", escapeJSON(line))
	}
	return exit
}

// warn reports on stderr a problem that is not a failure of the command.
func (a *app) warn(what string, err error) {
	fmt.Fprintf(a.stderr, "hansard: warning: %s: %s\n", what, escapeText(err.Error()))
	if hint := a.hint(err); hint != "" {
		fmt.Fprintf(a.stderr, "hint: %s\n", escapeText(hint))
	}
}

// turnOf is the turn that an error is about.
func turnOf(err error) *hansard.Turn {
	var held *hansard.HeldError
	var fenced *hansard.FencedError
	switch {
	case errors.As(err, &held):
		return &held.Turn
	case errors.As(err, &fenced):
		return fenced.Current
	}
	return nil
}

// message adds the session's name if the error does not have it.
func (a *app) message(err error) string {
	msg := err.Error()
	if errors.Is(err, context.Canceled) && err.Error() == context.Canceled.Error() {
		return "interrupted"
	}
	about := errors.Is(err, hansard.ErrNotFound) || errors.Is(err, hansard.ErrDeleted) || errors.Is(err, hansard.ErrExists) ||
		errors.Is(err, hansard.ErrHeld) || errors.Is(err, hansard.ErrFenced) || errors.Is(err, hansard.ErrDamaged)
	if about && a.session != "" && !strings.Contains(msg, a.session) {
		return fmt.Sprintf("session %s: %s", a.session, msg)
	}
	return msg
}

// hint is hansard.Hint in terms of the command: what to type next.
func (a *app) hint(err error) string {
	var refused *wire.Problem
	if errors.As(err, &refused) && refused.Type == wire.ProblemType("unauthorized") {
		return "set HANSARD_TOKEN to one that the server knows; where it runs, hansard token add NAME makes one"
	}
	var damaged *hansard.DamagedError
	if errors.As(err, &damaged) && damaged.Journal {
		return fmt.Sprintf("while nobody else has the store open, %s brings back everything still in the journal", a.again("repair", "--journal"))
	}
	var failed *hansard.StateTestError
	if hansard.Kind(err) == hansard.ErrConflict && errors.As(err, &failed) {
		return fmt.Sprintf("see what the state is now with: %s", a.again("stat", string(failed.Session)))
	}
	var own interface{ Hint() string }
	if hansard.Kind(err) != hansard.ErrUnknown && errors.As(err, &own) && !inGeneral(err, own.Hint()) {
		return own.Hint()
	}
	id := a.session
	if id == "" {
		id = "ID"
	}
	switch {
	case errors.Is(err, hansard.ErrUnknown):
		return "run it again with the same --key to settle it; without a key, look with: " + a.again("tail", id)
	case errors.Is(err, hansard.ErrTooLarge):
		return hansard.Hint(err)
	case errors.Is(err, hansard.ErrNotFound):
		return a.notFoundHint(id)
	case errors.Is(err, hansard.ErrExists):
		return fmt.Sprintf("use another id, or add to it with: %s", a.again("append", id, "TEXT"))
	case errors.Is(err, hansard.ErrConflict):
		return fmt.Sprintf("see what was appended meanwhile with: %s", a.again("tail", id))
	case errors.Is(err, hansard.ErrHeld):
		return fmt.Sprintf("append --inbox is always accepted; or wait for the turn: hansard turn %s --wait 5m -- …; %s shows who has it",
			id, a.again("turn", id, "--show"))
	case errors.Is(err, hansard.ErrFenced):
		return a.fencedHint(err, id)
	case errors.Is(err, hansard.ErrDamaged):
		return fmt.Sprintf("%s reports what is wrong; %s makes a sound copy and keeps the old bytes", a.again("verify", id), a.again("repair", id))
	case errors.Is(err, hansard.ErrUnsupported):
		return "keep the store on a local disk; --allow-network-fs overrides this where you know that locks work"
	case errors.Is(err, httpd.ErrNoToken):
		return a.again("token", "ls") + " lists them"
	case errors.Is(err, httpd.ErrTokenExists):
		return "use another name, or withdraw that one with: " + a.again("token", "rm", "NAME")
	case errors.Is(err, fs.ErrPermission):
		return "check who owns the files and their permissions"
	}
	return hansard.Hint(err)
}

// inGeneral tells whether a hint is the general one of its kind of error, meant for
// programs. A server sends that for a missing session; the command knows better what
// to type.
func inGeneral(err error, hint string) bool {
	kind := hansard.Kind(err)
	return kind != nil && hint == hansard.Hint(kind)
}

// again is a command line on the same store.
func (a *app) again(args ...string) string {
	line := append([]string{"hansard"}, args...)
	if a.storeSet {
		end := slices.Index(line, "--") // what follows it is not ours
		if end < 0 {
			end = len(line)
		}
		line = slices.Insert(line, end, "--store", shownStore(a.store))
	}
	for i, arg := range line {
		line[i] = shellQuote(arg)
	}
	return strings.Join(line, " ")
}

func shellQuote(s string) string {
	plain := func(r rune) bool {
		return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("_-./:@+~=,%", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 && s[0] != '~' {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
