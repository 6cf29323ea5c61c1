package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"hansard"
)

func newTail(a *app) *cobra.Command {
	var follow bool
	var after uint64
	var n int
	cmd := &cobra.Command{
		Use:   "tail ID",
		Short: "Print the last events of a session, and follow it with -f",
		Long: `Print the last events of a session, ten unless -n says otherwise, or with --after
all behind a seq you have seen.

With -f it goes on and prints each new event the moment it is durable, whoever
writes it, each once and in order, until Ctrl-C (exit 130) or SIGTERM (exit 143).
A reader that is slow or was away can only be late: continue with --after and
the last seq it has seen, and nothing is missing.`,
		Example: `  hansard tail demo
  hansard tail -f demo
  hansard tail -f demo -n 0 --json
  hansard tail -f demo --after 120 --json | ./notify`,
		Args:              arguments(1, "a session id"),
		ValidArgsFunction: a.completeIDs,
		RunE: func(cmd *cobra.Command, args []string) error {
			id := hansard.SessionID(args[0])
			a.session = args[0]
			if err := checkRead(id, n); err != nil {
				return err
			}
			t := &tailRun{app: a, id: id, after: hansard.Seq(after), print: a.eventPrinter()}
			t.all = cmd.Flags().Changed("after") && !cmd.Flags().Changed("lines")
			return a.withStore(reading, func(s hansard.Store) error {
				if err := t.last(cmd.Context(), s, n); err != nil || !follow {
					return err
				}
				return t.follow(cmd.Context(), s)
			})
		},
	}
	flags := cmd.Flags()
	flags.BoolVarP(&follow, "follow", "f", false, "go on as new events arrive")
	flags.Uint64Var(&after, "after", 0, "start behind seq `N` instead of near the end")
	flags.IntVarP(&n, "lines", "n", 10, "start `N` events from the end")
	return cmd
}

// tailRun is one tail under way.
type tailRun struct {
	app   *app
	id    hansard.SessionID
	after hansard.Seq // the last seq that was printed or is not wanted
	all   bool        // --after without -n: everything behind it
	print func(hansard.Event) error
}

// last prints the last n events and remembers where it got to.
func (t *tailRun) last(ctx context.Context, s hansard.Store, n int) error {
	if n == 0 && !t.all {
		// Range.Last 0 would be "from the start".
		info, err := s.Stat(ctx, t.id)
		if err == nil {
			t.after = max(t.after, info.LastSeq)
		}
		return err
	}
	r := hansard.Range{After: t.after, Last: n}
	if t.all {
		r.Last = 0
	}
	for e, err := range s.Read(ctx, t.id, r) {
		if err != nil {
			return err
		}
		if err := t.print(e); err != nil {
			return err
		}
		t.after = e.Seq
	}
	return nil
}

func (t *tailRun) follow(ctx context.Context, s hansard.Store) error {
	if err := t.app.out.Flush(); err != nil {
		return err
	}
	for e, err := range hansard.Follow(ctx, s, t.id, t.after) {
		if err != nil {
			if _, stopped := stoppedBy(ctx); stopped && errors.Is(err, context.Canceled) {
				return &quietError{err} // the normal end of a follow
			}
			return err
		}
		if err := t.print(e); err != nil {
			return err
		}
		if err := t.app.out.Flush(); err != nil {
			return err
		}
	}
	return nil
}
