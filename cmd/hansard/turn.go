package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"hansard"
	"hansard/engine"
)

// turnOptions are the flags of turn.
type turnOptions struct {
	wait      waitFlag
	ttl       time.Duration
	maxHold   time.Duration
	grace     time.Duration
	exclusive bool
	label     string
	show      bool
	steal     bool
	reason    string
	program   []string // what follows --
}

func newTurn(a *app) *cobra.Command {
	var o turnOptions
	cmd := &cobra.Command{
		Use:   "turn ID [flags] -- PROGRAM [ARGS…]",
		Short: "Run a program while holding a session's turn",
		Long: `Run a program while holding a session's turn: the right to run the agent loop in
it. At most one process has it at a time. It is not a lock on the session: everybody
may append while it is held, and the program sees what arrives (hansard tail -f).

The turn is held while the program runs, and released after it. Another process
gets it earlier only if this one dies (at once), gives no sign of life for
--ttl (it was stopped, the machine was suspended), or holds it longer than
--max-hold. Then the program is ended: SIGTERM, and after --grace SIGKILL; and
whatever it still tries to write under the turn is refused (exit 5).

The program finds HANSARD_STORE, HANSARD_SESSION and HANSARD_TURN in its
environment. hansard append, set and rm use them automatically for that session,
so that all they write is written under the turn.

While somebody else holds the turn the command waits as long as --wait says, in
order of arrival, and then ends with exit 5 and names the holder. Without
--wait it does not wait. --exclusive keeps others from writing to the session
while the turn is held, except for append --inbox, which is always accepted and
left to the program to take up.

Signals are passed on, SIGUSR1 and SIGUSR2 to the program, the others to its whole
process group. Ctrl-C and Ctrl-Z reach the program and not this process; a turn
that stays stopped for longer than its --ttl may be taken by another. If this process
is killed, even with kill -9, the program and what it runs in its process group
are killed with it. Background processes that the program leaves when it ends by
itself are left alone, without the turn.

The exit code is the program's, 128+n when signal n ended it; 127 when there is no
such program, 126 when it can't be run; 5 when the turn was held by another, or
lost.

--show prints who holds the turn, since when, the last sign of life, until when,
and who wrote last; it changes nothing.

--steal --reason TEXT takes the turn from a living holder; the reason is recorded
in the session. Without a program it is released again at once: whoever
held it has lost it, and others may take it.`,
		Example: `  hansard turn demo -- ./agent.sh
  hansard turn demo --wait 5m --max-hold 1h --label planner -- python agent.py
  hansard turn demo --wait forever --exclusive -- ./compact
  hansard turn demo --show
  hansard turn demo --steal --reason "hangs since noon" -- ./agent.sh`,
		Args:              o.takeArgs,
		ValidArgsFunction: a.completeTurn,
		RunE: func(cmd *cobra.Command, args []string) error {
			id := hansard.SessionID(args[0])
			a.session = args[0]
			if err := hansard.CheckID(id); err != nil {
				return err
			}
			if err := o.check(cmd.Flags().Changed); err != nil {
				return err
			}
			switch {
			case o.show:
				return a.withStore(reading, func(s hansard.Store) error { return a.showTurn(cmd.Context(), s, id) })
			case len(o.program) == 0:
				return a.withStore(writing, func(s hansard.Store) error { return a.fenceHolder(cmd.Context(), s, id, o.claim()) })
			}
			return a.runInTurn(cmd.Context(), id, &o)
		},
	}
	flags := cmd.Flags()
	flags.Var(&o.wait, "wait", "how long to wait for the turn: 30s, 5m, forever")
	hideZero(flags.Lookup("wait"))
	durationVar(flags, &o.ttl, "ttl", hansard.DefaultTTL, "how long without a sign of life before another may take the turn")
	durationVar(flags, &o.maxHold, "max-hold", 0, "how long the turn may be held at all; 0 is no bound")
	durationVar(flags, &o.grace, "grace", 10*time.Second, "how long the program may take to end when the turn is lost")
	flags.BoolVar(&o.exclusive, "exclusive", false, "let others write to the inbox only")
	flags.StringVar(&o.label, "label", "", "the `NAME` of who holds the turn, for people (default the program's name)")
	flags.BoolVar(&o.show, "show", false, "print who holds the turn")
	flags.BoolVar(&o.steal, "steal", false, "take the turn from a living holder")
	flags.StringVar(&o.reason, "reason", "", "with --steal: why, a `TEXT` for the record")
	cmd.SetFlagErrorFunc(behindDashes("the program and its arguments go after --: hansard turn ID -- PROGRAM ARGS"))
	return cmd
}

// takeArgs splits the arguments at the --.
func (o *turnOptions) takeArgs(cmd *cobra.Command, args []string) error {
	const use = "usage: hansard turn ID [flags] -- PROGRAM [ARGS…]"
	before := args
	if dash := cmd.ArgsLenAtDash(); dash >= 0 {
		before, o.program = args[:dash], args[dash:]
	}
	switch {
	case len(before) == 0:
		return &usageError{"turn needs a session id", use}
	case len(before) > 1:
		return &usageError{fmt.Sprintf("turn does not take %q", before[1]), "the program comes after --; " + use}
	case len(before) < len(args) && o.program[0] == "":
		return &usageError{"the name of the program is empty", use}
	}
	return nil
}

// check refuses flags that can't be combined, before anything is opened.
func (o *turnOptions) check(given func(flag string) bool) error {
	switch {
	case o.show && (len(o.program) > 0 || o.steal):
		return &usageError{"--show runs nothing and takes nothing", "leave out the program and --steal"}
	case o.steal && o.reason == "":
		return &usageError{"--steal needs --reason", "say why, for the record: --reason TEXT"}
	case !o.steal && given("reason"):
		return &usageError{"--reason is for --steal", "leave it out, or take the turn from its holder with --steal"}
	case !o.show && !o.steal && len(o.program) == 0:
		return &usageError{"there is no program to run", "put it after --: hansard turn ID -- PROGRAM ARGS; or look with --show"}
	case o.grace < 0:
		return &usageError{"--grace can't be negative", ""}
	case given("ttl") && o.ttl == 0:
		return &usageError{"--ttl can't be 0", fmt.Sprintf("leave it out for %v", hansard.DefaultTTL)}
	}
	claim := o.claim()
	return engine.CheckClaim(&claim)
}

func (o *turnOptions) claim() hansard.Claim {
	c := hansard.Claim{Wait: time.Duration(o.wait), TTL: o.ttl, MaxHold: o.maxHold, Exclusive: o.exclusive, Label: o.label, Steal: o.reason}
	if c.Label == "" && len(o.program) > 0 {
		c.Label = programLabel(o.program[0])
	}
	return c
}

// waitFlag is a duration, or "forever".
type waitFlag time.Duration

func (w *waitFlag) Type() string { return "DURATION" }

func (w *waitFlag) String() string {
	if time.Duration(*w) == hansard.Forever {
		return "forever"
	}
	return humanDuration(time.Duration(*w))
}

func (w *waitFlag) Set(s string) error {
	if s == "forever" {
		*w = waitFlag(hansard.Forever)
		return nil
	}
	d, err := parseDuration(s)
	if err != nil || d < 0 {
		return errors.New("is not a time to wait: write 30s, 5m or forever")
	}
	*w = waitFlag(d)
	return nil
}

// fenceHolder takes the turn from its holder and releases it: the holder
// loses it, and then it is free. A free turn is left alone.
func (a *app) fenceHolder(ctx context.Context, s hansard.Store, id hansard.SessionID, c hansard.Claim) error {
	ctx, cancel := forWrite(ctx)
	defer cancel()
	held, err := s.Turn(ctx, id)
	if err != nil {
		return err
	}
	result := struct {
		Session hansard.SessionID `json:"session"`
		Grant   hansard.Grant     `json:"grant,omitempty"`
		From    *hansard.Turn     `json:"from"` // null: nobody held it
	}{Session: id, From: held}
	text := "nobody held the turn; nothing was done"
	if held != nil {
		took, err := s.Acquire(ctx, id, c)
		if err != nil {
			return err
		}
		if err := s.Release(ctx, id, took.Grant); err != nil {
			return fmt.Errorf("the turn was taken as %s, but not released: %w", took.Grant, err)
		}
		result.Grant = took.Grant
		text = fmt.Sprintf("turn %s was taken from %s; it is free now", held.Grant, held.Holder)
	}
	if a.json {
		return a.out.jsonLine(result)
	}
	_, err = fmt.Fprintf(a.out, "%s  %s\n", id, escapeLine(text))
	return err
}
