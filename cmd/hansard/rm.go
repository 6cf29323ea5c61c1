package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"hansard"
)

func newRm(a *app) *cobra.Command {
	var yes, held bool
	var turn turnFlag
	cmd := &cobra.Command{
		Use:   "rm ID…",
		Short: "Delete sessions permanently",
		Long: `Delete sessions. The id of each answers "deleted" (exit 3) from then on, and
nothing brings it back by accident: not a late append, not append --create, not
new.

Ids have to be exact; a prefix never stands for a session. The command asks
first; where there is no terminal to ask on, it needs --yes. With several sessions,
one that can't be deleted is reported and the others still are; the exit code is
that of the first that failed.

The content of the session is removed soon after: in a directory by the next
checkpoint, within half a minute or when the last program that uses the store
ends. hansard prune does it now, and --scrub leaves nothing in the journal
either. A damaged session can be deleted, too, and nothing of it is kept.

A session whose turn somebody else holds exclusively is not deleted (exit 5). If the
turn is not exclusive the question says who holds it, and --yes needs --held as well.
In a program that hansard turn runs it is deleted under the turn, as with append.`,
		Example: `  hansard rm demo
  hansard rm trip-1 trip-2 --yes
  hansard ls --label source=demo --json | jq -r .id | xargs hansard rm --yes`,
		Args:              someIDs,
		ValidArgsFunction: a.completeManyIDs,
		RunE: func(cmd *cobra.Command, args []string) error {
			run, err := newRmRun(a, &turn, args)
			if err != nil {
				return err
			}
			if !yes && (!isTerminal(a.stdin) || !isTerminal(a.stderr)) {
				return &usageError{"nothing was deleted: rm asks first, and there is no terminal to ask on",
					"to delete without a question: " + a.again(append([]string{"rm", "--yes"}, args...)...)}
			}
			return a.withStore(writing, func(s hansard.Store) error {
				if !yes {
					if err := run.confirm(cmd.Context(), s); err != nil {
						return err
					}
				}
				run.spareHeld = yes && !held
				return run.delete(cmd.Context(), s)
			})
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	cmd.Flags().BoolVar(&held, "held", false, "with --yes: delete sessions whose turn somebody holds as well")
	turn.add(a, cmd)
	return cmd
}

// rmRun is one rm in progress.
type rmRun struct {
	several
	targets []rmTarget
	deleted int
	// spareHeld: leave sessions whose turn somebody else holds. Nobody was asked.
	spareHeld bool
}

type rmTarget struct {
	id    hansard.SessionID
	grant hansard.Grant
}

func newRmRun(a *app, turn *turnFlag, args []string) (*rmRun, error) {
	a.session = args[0]
	ids, err := checkIDs(args)
	if err != nil {
		return nil, err
	}
	run := &rmRun{several: several{app: a, many: len(ids) > 1}}
	if run.many && turn.given() && turn.grant != "" {
		return nil, &usageError{"--turn names the grant of one session", "name that session alone"}
	}
	for _, id := range ids {
		grant, err := turn.of(a, id)
		if err != nil {
			return nil, err
		}
		run.targets = append(run.targets, rmTarget{id, grant})
	}
	return run, nil
}

// confirm asks once, for all sessions that exist.
func (r *rmRun) confirm(ctx context.Context, s hansard.Store) error {
	var there []rmTarget
	var lines []string
	for _, t := range r.targets {
		info, err := s.Stat(ctx, t.id)
		if err != nil {
			if err := r.failed(ctx, t.id, err); err != nil {
				return err
			}
			continue
		}
		there = append(there, t)
		what := describe(info)
		if other := holds(ctx, s, t); other != nil {
			what += "; its turn is held by " + escapeLine(other.Holder.String())
		}
		lines = append(lines, fmt.Sprintf("%s (%s)", t.id, what))
	}
	r.targets = there
	question := "Delete session "
	switch len(there) {
	case 0:
		return r.outcome()
	case 1:
		question += lines[0]
	default:
		question = fmt.Sprintf("  %s\nDelete these %d sessions", strings.Join(lines, "\n  "), len(there))
	}
	fmt.Fprintf(r.app.stderr, "%s permanently? [y/N] ", question)
	return r.app.answerYes(ctx, "nothing was deleted")
}

// answerYes waits for the answer to a question; only yes is yes. Any other answer is an
// error with the text nothing, such as "nothing was deleted".
func (a *app) answerYes(ctx context.Context, nothing string) error {
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(a.stdin).ReadString('\n')
		answer <- line
	}()
	select {
	case line := <-answer:
		switch strings.ToLower(strings.TrimSpace(line)) {
		case "y", "yes":
			return nil
		}
		return errors.New(nothing)
	case <-ctx.Done():
		fmt.Fprintln(a.stderr)
		return &interrupted{nothing}
	}
}

// holds is the turn of a session that somebody else holds, as far as that is known: it is
// for people, and the store decides.
func holds(ctx context.Context, s hansard.Store, t rmTarget) *hansard.Turn {
	if t.grant != "" {
		return nil // deleted under this turn, or refused
	}
	turn, err := s.Turn(ctx, t.id)
	if err != nil {
		return nil
	}
	return turn
}

// one deletes one session.
func (r *rmRun) one(ctx context.Context, s hansard.Store, t rmTarget) error {
	if other := holds(ctx, s, t); r.spareHeld && other != nil && !other.Exclusive { // else the store refuses it
		return &hinted{&hansard.HeldError{Session: t.id, Turn: *other}, "to delete it all the same: " + r.app.again("rm", "--yes", "--held", string(t.id))}
	}
	return s.Delete(ctx, t.id, t.grant)
}

func (r *rmRun) delete(ctx context.Context, s hansard.Store) error {
	patient, cancel := forWrite(ctx)
	defer cancel()
	for _, t := range r.targets {
		if ctx.Err() != nil {
			return &interrupted{r.done()}
		}
		if err := r.one(patient, s, t); err != nil {
			if err := r.failed(ctx, t.id, orInterrupted(err, r.done())); err != nil {
				return err
			}
			continue
		}
		r.deleted++
		var err error
		if r.app.json {
			err = r.app.out.jsonLine(map[string]any{"session": t.id, "deleted": true})
		} else {
			_, err = fmt.Fprintf(r.app.out, "%s  deleted\n", t.id)
		}
		if err != nil {
			return err
		}
	}
	return r.outcome()
}

func (r *rmRun) done() string {
	switch r.deleted {
	case 0:
		return "nothing was deleted"
	case 1:
		return "1 session was deleted"
	}
	return fmt.Sprintf("%d sessions were deleted", r.deleted)
}
