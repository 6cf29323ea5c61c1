package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"hansard"
)

// repairAll repairs every session in which verify finds damage.
func (a *app) repairAll(cmd *cobra.Command) error {
	return a.withChecker(writing, func(c hansard.Checker) error {
		ctx := cmd.Context()
		found, sound, err := a.findDamage(ctx, c)
		if err != nil {
			return err
		}
		if len(found) == 0 && !a.json { // programs get one line per session: none here
			_, err := fmt.Fprintf(a.out, "nothing is damaged; %s sound\n", plural(sound, "session"))
			return err
		}
		repaired, left := 0, 0
		for _, f := range found {
			if err := ctx.Err(); err != nil {
				return orInterrupted(err, plural(repaired, "session")+" repaired")
			}
			done, err := a.repairFound(ctx, c, f)
			switch {
			case err != nil && forAll(err):
				return err
			case err != nil:
				left++
				err = a.notRepaired(f.Session, err)
			case done:
				repaired++
			}
			if err != nil {
				return err
			}
		}
		if !a.json {
			fmt.Fprintf(a.out, "%s repaired\n", plural(repaired, "session"))
		}
		if err := a.out.Flush(); left == 0 || err != nil {
			return err
		}
		return &hinted{&damageFound{left, left}, a.again("verify") + " says what is wrong; hansard copy takes along what is safe"}
	})
}

// findDamage is what verify finds, a finding for each damaged session.
func (a *app) findDamage(ctx context.Context, c hansard.Checker) (found []hansard.Finding, sound int, err error) {
	p := newProgress(a.stderr)
	defer p.done()
	for f, err := range c.Verify(ctx, "") {
		switch {
		case err != nil:
			return nil, 0, err
		case f.Level == hansard.LevelDamage && f.Session == "":
			return nil, 0, &hinted{fmt.Errorf("%w: %s: %s", hansard.ErrDamaged, f.File, f.Message),
				a.again("repair", "--journal") + " goes first"}
		case f.Level == hansard.LevelOK && f.Session != "" && f.Message != hansard.FoundDeleted:
			sound++
		case f.Level == hansard.LevelDamage && (len(found) == 0 || found[len(found)-1].Session != f.Session):
			found = append(found, f)
		}
		p.show(func() string { return plural(sound+len(found), "session") + " examined" })
	}
	return found, sound, nil
}

// repairFound repairs one session. Not done: another process already has.
func (a *app) repairFound(ctx context.Context, c hansard.Checker, f hansard.Finding) (done bool, err error) {
	write, cancel := forWrite(ctx)
	defer cancel()
	r, err := c.Repair(write, f.Session)
	if errors.Is(err, hansard.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if !r.Changed {
		for now, err := range c.Verify(ctx, f.Session) {
			if err != nil || now.Level == hansard.LevelDamage {
				return false, errors.Join(err, errors.New(f.Message))
			}
		}
		return false, nil
	}
	if a.json {
		return true, a.out.jsonLine(r)
	}
	return true, a.printRepaired(r)
}

// forAll tells whether the other sessions would get the same error.
func forAll(err error) bool {
	for _, e := range []error{hansard.ErrUnsupported, hansard.ErrReadOnly, hansard.ErrBusy, hansard.ErrNoSpace, hansard.ErrUnknown, hansard.ErrClosed, hansard.ErrFailed,
		context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// notRepaired says why a session could not be repaired.
func (a *app) notRepaired(id hansard.SessionID, err error) error {
	if a.json {
		return a.out.jsonLine(struct {
			Session hansard.SessionID `json:"session"`
			Error   string            `json:"error"`
		}{id, err.Error()})
	}
	_, err = fmt.Fprintf(a.out, "%s can't be repaired: %s\n", escapeLine(string(id)), escapeLine(err.Error()))
	return err
}
