package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"time"

	"hansard"
)

// sayAfter is how long the command waits for a turn before it says so.
const sayAfter = time.Second

// The exit codes of a program that could not be run, as in shells.
const (
	exitNotRunnable = 126
	exitNoProgram   = 127
)

// programError is how a program ended, or why it could not be run.
type programError struct {
	exit int
	err  error // nil: it was run, and has reported its own errors
}

func (e *programError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("the program ended with %d", e.exit)
	}
	return e.err.Error()
}

func (e *programError) Unwrap() error { return e.err }

func programLabel(program string) string { return filepath.Base(program) }

// findProgram finds the program before anything is done for it.
func findProgram(name string) error {
	_, err := exec.LookPath(name)
	switch {
	case err == nil || errors.Is(err, exec.ErrDot): // found; ErrDot is reported when it is started
		return nil
	case errors.Is(err, os.ErrPermission):
		return &programError{exitNotRunnable, err}
	}
	return &programError{exitNoProgram, err}
}

// runInTurn takes the turn, runs the program, and releases the turn.
func (a *app) runInTurn(ctx context.Context, id hansard.SessionID, o *turnOptions) error {
	if err := findProgram(o.program[0]); err != nil {
		return err
	}
	// The kernel ends the program with the thread that started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return a.withStore(writing, func(s hansard.Store) error {
		if err := a.notInTurn(ctx, s, id); err != nil {
			return err
		}
		signals := make(chan os.Signal, 16)
		defer signal.Stop(signals)
		lease, err := a.takeTurn(ctx, s, id, o.claim(), signals)
		if err != nil {
			return err
		}
		env, err := a.turnEnv(ctx, s, id, lease.Turn())
		if err != nil {
			return turnEnd(lease, 0, nil, err)
		}
		status, lost, err := a.runProgram(lease, id, o, env, signals)
		return turnEnd(lease, status, lost, err)
	})
}

// notInTurn refuses to wait for a turn from within that turn: it would wait for
// ever.
func (a *app) notInTurn(ctx context.Context, s hansard.Store, id hansard.SessionID) error {
	mine, err := a.turnHeld(id)
	if err != nil || mine == "" {
		return err
	}
	held, err := s.Turn(ctx, id)
	if err != nil || held == nil || held.Grant != mine {
		return err // it was lost: waiting for it again is fine
	}
	return &hinted{&hansard.HeldError{Session: id, Turn: *held},
		"this program runs in that turn already (HANSARD_TURN): run the other one without hansard turn"}
}

// takeTurn acquires the turn. A signal ends the wait; once it has the turn,
// signals go to the program.
func (a *app) takeTurn(ctx context.Context, s hansard.Store, id hansard.SessionID, c hansard.Claim, signals chan os.Signal) (*hansard.Lease, error) {
	patient, giveUp := context.WithCancelCause(context.WithoutCancel(ctx))
	unhook := context.AfterFunc(ctx, func() { giveUp(ctx.Err()) })
	waiting, waited := context.WithCancel(patient)
	say := time.AfterFunc(sayAfter, func() { a.sayWaiting(waiting, s, id, c.Wait) })
	lease, err := hansard.Take(patient, s, id, c)
	say.Stop()
	waited()
	if err != nil {
		giveUp(nil)
		if ctx.Err() != nil {
			return nil, orInterrupted(err, "the turn was not taken")
		}
		return nil, a.heldHint(err, id)
	}
	notifyForwarded(signals)
	if !unhook() { // a signal came at the last moment
		giveUp(nil)
		_ = lease.Release() // nothing was done under it
		return nil, &interrupted{"nothing was run"}
	}
	return lease, nil
}

// sayWaiting tells people whom the command is waiting for.
func (a *app) sayWaiting(ctx context.Context, s hansard.Store, id hansard.SessionID, wait time.Duration) {
	held, err := s.Turn(ctx, id)
	if err != nil || held == nil || a.json || ctx.Err() != nil {
		return
	}
	limit := ""
	if wait < hansard.Forever {
		limit = fmt.Sprintf(", for at most %v", wait)
	}
	fmt.Fprintf(a.stderr, "hansard: waiting%s: the turn of %s is held by %s since %s\n",
		limit, id, escapeLine(held.Holder.String()), humanTime(a.now(), held.Since))
}

func (a *app) heldHint(err error, id hansard.SessionID) error {
	if !errors.Is(err, hansard.ErrHeld) {
		return err
	}
	return &hinted{err, fmt.Sprintf("wait longer with --wait; %s shows who has it; --steal --reason TEXT takes it from a living holder",
		a.again("turn", string(id), "--show"))}
}

// runProgram runs the program as long as the turn is held. lost is why the turn
// was lost, if it was.
func (a *app) runProgram(lease *hansard.Lease, id hansard.SessionID, o *turnOptions, env []string, signals <-chan os.Signal) (status int, lost, err error) {
	cmd := exec.Command(o.program[0], o.program[1:]...)
	cmd.Env = env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = a.stdin, a.stdout, a.stderr
	var p *program
	a.stop.with(func() (also func()) {
		if p, err = startProgram(cmd); err != nil {
			return nil
		}
		return p.stop
	})
	if err != nil {
		return 0, nil, &programError{exitNotRunnable, err}
	}
	defer func() {
		a.stop.with(func() func() { return nil })
		p.finish()
	}()
	gone := lease.Context().Done()
	var enough <-chan time.Time
	for {
		select {
		case <-p.changed:
			if status, ended := p.look(); ended {
				return status, lost, nil
			}
		case sig := <-signals:
			p.forward(sig)
		case <-gone:
			gone, lost = nil, context.Cause(lease.Context())
			fmt.Fprintf(a.stderr, "hansard: the turn of %s was lost; ending the program\n", id)
			p.end()
			enough = time.After(o.grace)
		case <-enough:
			p.kill()
		}
	}
}

// turnEnd releases the turn and returns the result. A lost turn takes precedence
// over the program's exit code: the program was not alone all the time.
func turnEnd(lease *hansard.Lease, status int, lost, err error) error {
	released := lease.Release()
	switch {
	case lost != nil:
		return fmt.Errorf("the turn was lost and the program ended: %w", lost)
	case errors.Is(released, hansard.ErrFenced):
		return fmt.Errorf("the turn was lost before the program ended: %w", released)
	case err != nil:
		return err
	case released != nil && status == 0:
		return fmt.Errorf("the program ended well, but the turn could not be released: %w", released)
	case status != 0:
		return &programError{exit: status}
	}
	return nil
}
