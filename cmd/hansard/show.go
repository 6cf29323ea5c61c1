package main

import (
	"context"

	"github.com/spf13/cobra"

	"hansard"
	"hansard/engine"
	"hansard/transcript"
)

func newShow(a *app) *cobra.Command {
	var r hansard.Range
	var after, before uint64
	var style printStyle
	var noPager bool
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Print the events of a session",
		Long: `Print the events of a session, oldest first, or with --reverse newest first.

It prints a transcript: number, local time, kind, role and author, then what the page
shows: text, the model's thinking, tool calls with their names and arguments, and their
results. On a terminal long outputs are folded (--full prints
all of them), lines are wrapped, and what is longer than the screen is shown by
$PAGER, else less; --no-pager turns that off. A pipe gets everything. --raw prints the
data as it is stored. Control characters in the content are shown as \x1b and the
like, never sent to the terminal.

--json prints one event per line with seq, time, kind, role, author, turn and data,
and by, id, at, inbox and patch where they are set. The data has the bytes it was
stored with, except that data with line breaks between its tokens is compacted, so
that a line stays a line.

--after, --before, --from-kind and --kind say which events, --limit and --last how
many of them. With --reverse --limit counts from the newest, and so does --last.

Reading takes no lock and changes nothing. For a damaged session it prints the events
before the damage and ends with exit 6. With --reverse it prints nothing of such a
session, unless --before limits it to what is safe.`,
		Example: `  hansard show demo
  hansard show demo --last 20
  hansard show demo --after 100 --limit 50 --json | jq -r .data
  hansard show demo --kind message --kind summary
  hansard show demo --from-summary
  hansard show demo --id toolu_01ABC
  hansard show demo --from-kind tool_call
  hansard show demo --reverse --limit 20 --before 481
  hansard show demo --full --no-pager`,
		Args:              arguments(1, "a session id"),
		ValidArgsFunction: a.completeIDs,
		RunE: func(cmd *cobra.Command, args []string) error {
			id := hansard.SessionID(args[0])
			a.session = args[0]
			if err := checkRead(id, r.Limit, r.Last); err != nil {
				return err
			}
			r.After, r.Before = hansard.Seq(after), hansard.Seq(before)
			if r.FromSummary && r.FromKind != "" && r.FromKind != hansard.KindSummary {
				return &usageError{"--from-summary and another --from-kind exclude each other", "give one of them"}
			}
			if err := engine.CheckRange(&r); err != nil {
				return err
			}
			return a.withStore(reading, func(s hansard.Store) error {
				return a.paged(noPager, func() error {
					print := a.newPrinter(style)
					if !a.json {
						if err := print.findDeleted(cmd.Context(), s, id, r); err != nil {
							return err
						}
					}
					for e, err := range s.Read(cmd.Context(), id, r) {
						if err != nil {
							return err
						}
						if err := print.event(a.json, e); err != nil {
							return err
						}
					}
					return nil
				})
			})
		},
	}
	flags := cmd.Flags()
	flags.Uint64Var(&after, "after", 0, "only events after seq `N`")
	flags.Uint64Var(&before, "before", 0, "only events before seq `N`")
	flags.BoolVar(&r.Reverse, "reverse", false, "newest first")
	flags.IntVar(&r.Limit, "limit", 0, "at most `N` events; 0: all")
	flags.IntVar(&r.Last, "last", 0, "start `N` events from the end")
	flags.StringArrayVar(&r.Kinds, "kind", nil, "only events of this `KIND`; may be repeated")
	flags.StringVar(&r.FromKind, "from-kind", "", "start at the last event of this `KIND`, if there is one")
	flags.BoolVar(&r.FromSummary, "from-summary", false, "start at the last summary, if there is one")
	flags.StringVar(&r.ID, "id", "", "the event that its writer named `NAME`")
	flags.BoolVar(&noPager, "no-pager", false, "never use a pager")
	style.add(cmd)
	return cmd
}

// printStyle is how events are printed for people.
type printStyle struct{ raw, full bool }

func (s *printStyle) add(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&s.raw, "raw", false, "print the data as it is stored")
	cmd.Flags().BoolVar(&s.full, "full", false, "fold nothing")
}

// checkRead refuses requests that no store accepts, before one is opened.
func checkRead(id hansard.SessionID, counts ...int) error {
	if err := hansard.CheckID(id); err != nil {
		return err
	}
	return checkCounts(counts...)
}

func checkCounts(counts ...int) error {
	for _, n := range counts {
		if n < 0 {
			return &usageError{"a number of events can't be negative", ""}
		}
	}
	return nil
}

func (a *app) newPrinter(style printStyle) *printer {
	t := newPrinter(a.out, a.now)
	t.raw, t.full = style.raw, style.full
	return t
}

// findDeleted looks for events of a range that were deleted through the OpenAI routes:
// the events that say so come after it. Damage is reported when the range itself is
// read.
func (t *printer) findDeleted(ctx context.Context, s hansard.Store, id hansard.SessionID, r hansard.Range) error {
	if t.raw || t.full || r.ID != "" {
		return nil
	}
	info, err := s.Stat(ctx, id)
	if err != nil || info.Damage != nil {
		return nil // the read reports it
	}
	after := r.After
	if n := hansard.Seq(r.Last); n > 0 && r.Before == 0 && len(r.Kinds) == 0 && info.LastSeq > n {
		after = max(after, info.LastSeq-n)
	}
	t.deleted = map[hansard.Seq]hansard.Seq{}
	for e, err := range s.Read(ctx, id, hansard.Range{After: after, Kinds: []string{transcript.KindDeleted}}) {
		if err != nil {
			return err
		}
		for _, p := range transcript.Of(e).Parts {
			if p.Type == transcript.Deletion && p.Seq < e.Seq {
				t.deleted[p.Seq] = e.Seq
			}
		}
	}
	return nil
}
