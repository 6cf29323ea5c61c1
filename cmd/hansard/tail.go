package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/spf13/cobra"

	"hansard"
)

func newTail(a *app) *cobra.Command {
	var follow bool
	var after uint64
	var n int
	var style printStyle
	cmd := &cobra.Command{
		Use:   "tail ID…",
		Short: "Print the last events of sessions, and follow them with -f",
		Long: `Print the last events of a session, ten unless -n says otherwise, or with
--after all events after a seq you have seen.

With -f it continues and prints each new event the moment it is durable, whoever
writes it, each once and in order, until Ctrl-C (exit 130) or SIGTERM (exit 143).
A reader that is slow or was away loses nothing: it continues with --after and
the last seq it has seen. Events are printed as show prints them, without a pager.

With several sessions each is named before its events, with --json in the member
"session". One that does not exist, is damaged or is deleted meanwhile is reported
and does not keep the others from being followed.`,
		Example: `  hansard tail demo
  hansard tail -f demo
  hansard tail -f trip-1 trip-2
  hansard tail -f demo -n 0 --json
  hansard tail -f demo --after 120 --json | ./notify`,
		Args:              someIDs,
		ValidArgsFunction: a.completeManyIDs,
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := newTailRun(a, args, style)
			if err != nil {
				return err
			}
			if err := checkCounts(n); err != nil {
				return err
			}
			if cmd.Flags().Changed("after") {
				if t.many {
					return &usageError{"--after is the seq of one session", "follow the sessions one by one"}
				}
				t.sessions[0].after = hansard.Seq(after)
				t.sessions[0].all = !cmd.Flags().Changed("lines")
			}
			return a.withStore(reading, func(s hansard.Store) error {
				if err := t.last(cmd.Context(), s, n); err != nil {
					return err
				}
				if !follow {
					return t.outcome()
				}
				return t.follow(cmd.Context(), s)
			})
		},
	}
	flags := cmd.Flags()
	flags.BoolVarP(&follow, "follow", "f", false, "print new events as they arrive")
	flags.Uint64Var(&after, "after", 0, "start after seq `N` instead of near the end")
	flags.IntVarP(&n, "lines", "n", 10, "start `N` events from the end")
	style.add(cmd)
	return cmd
}

// tailRun is one tail in progress.
type tailRun struct {
	several
	sessions []*tailed
	shown    hansard.SessionID // whose events were printed last
}

// tailed is one of its sessions.
type tailed struct {
	id    hansard.SessionID
	after hansard.Seq // the last seq that was printed or skipped
	all   bool        // --after without -n: everything after it
	print *printer    // it knows the calls of this session
}

func newTailRun(a *app, args []string, style printStyle) (*tailRun, error) {
	a.session = args[0]
	ids, err := checkIDs(args)
	if err != nil {
		return nil, err
	}
	t := &tailRun{several: several{app: a, many: len(ids) > 1}}
	for _, id := range ids {
		t.sessions = append(t.sessions, &tailed{id: id, print: a.newPrinter(style)})
	}
	return t, nil
}

// last prints the last n events of each session and remembers how far it got.
// Sessions that fail are not followed.
func (t *tailRun) last(ctx context.Context, s hansard.Store, n int) error {
	var fine []*tailed
	for _, one := range t.sessions {
		if err := t.lastOf(ctx, s, one, n); err != nil {
			if err := t.failed(ctx, one.id, err); err != nil {
				return err
			}
			continue
		}
		fine = append(fine, one)
	}
	t.sessions = fine
	return nil
}

func (t *tailRun) lastOf(ctx context.Context, s hansard.Store, one *tailed, n int) error {
	if n == 0 && !one.all {
		// Range.Last 0 would be "from the start".
		info, err := s.Stat(ctx, one.id)
		if err == nil {
			one.after = max(one.after, info.LastSeq)
		}
		return err
	}
	r := hansard.Range{After: one.after, Last: n}
	if one.all {
		r.Last = 0
	}
	if !t.app.json {
		if err := one.print.findDeleted(ctx, s, one.id, r); err != nil {
			return err
		}
	}
	for e, err := range s.Read(ctx, one.id, r) {
		if err != nil {
			return err
		}
		if err := t.show(one, e); err != nil {
			return err
		}
		one.after = e.Seq
	}
	return nil
}

// show prints an event and, if there are several sessions, which one it is from.
func (t *tailRun) show(one *tailed, e hansard.Event) error {
	out := t.app.out
	switch {
	case !t.many:
	case t.app.json:
		return out.sessionEventJSON(one.id, e)
	case t.shown != one.id:
		if t.shown != "" {
			fmt.Fprintln(out)
		}
		fmt.Fprintln(out, out.paint(bold, fmt.Sprintf("==> %s <==", one.id)))
		t.shown = one.id
	}
	return one.print.event(t.app.json, e)
}

// follow prints what arrives in any of the sessions until all of them have ended.
func (t *tailRun) follow(ctx context.Context, s hansard.Store) error {
	if err := t.app.out.Flush(); err != nil {
		return err
	}
	inner, cancel := context.WithCancel(ctx)
	news := t.news(inner, s)
	defer func() {
		cancel()
		for range news { // nothing may read the store once it is closed
		}
	}()
	for n := range news {
		err := n.err
		if _, stopped := stoppedBy(ctx); stopped && errors.Is(err, context.Canceled) {
			return &quietError{err} // the normal end of a follow
		}
		if err != nil {
			err = t.failed(ctx, n.of.id, err)
		} else if err = t.show(n.of, n.event); err == nil {
			err = t.app.out.Flush()
		}
		if err != nil {
			return err
		}
	}
	return t.outcome()
}

// tailNews is an event that arrived in a session, or the end of following it.
type tailNews struct {
	of    *tailed
	event hansard.Event
	err   error
}

// news delivers what arrives in the sessions. It ends when all of them have
// ended, or the context.
func (t *tailRun) news(ctx context.Context, s hansard.Store) <-chan tailNews {
	news := make(chan tailNews)
	var following sync.WaitGroup
	for _, one := range t.sessions {
		following.Go(func() {
			for e, err := range hansard.Follow(ctx, s, one.id, one.after) {
				news <- tailNews{one, e, err}
			}
		})
	}
	go func() {
		following.Wait()
		close(news)
	}()
	return news
}
