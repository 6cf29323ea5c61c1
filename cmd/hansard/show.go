package main

import (
	"github.com/spf13/cobra"

	"hansard"
)

func newShow(a *app) *cobra.Command {
	var r hansard.Range
	var after uint64
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Print the events of a session",
		Long: `Print the events of a session, oldest first.

People get a transcript: number, local time, kind, role and author, then the text.
Control characters in the content are shown as \x1b and the like, never sent to
the terminal.

--json prints one event per line with seq, time, kind, role, author, turn and data,
and inbox and patch where they are set. The data has the bytes it was stored with,
except that data with line breaks between its tokens is compacted, so that a line
stays a line.

Reading takes no lock and changes nothing. Of a damaged session the events before
the damage are printed; then it ends with exit 6.`,
		Example: `  hansard show demo
  hansard show demo --last 20
  hansard show demo --after 100 --limit 50 --json | jq -r .data
  hansard show demo --kind message --kind summary
  hansard show demo --from-summary`,
		Args:              arguments(1, "a session id"),
		ValidArgsFunction: a.completeIDs,
		RunE: func(cmd *cobra.Command, args []string) error {
			id := hansard.SessionID(args[0])
			a.session = args[0]
			if err := checkRead(id, r.Limit, r.Last); err != nil {
				return err
			}
			r.After = hansard.Seq(after)
			return a.withStore(reading, func(s hansard.Store) error {
				print := a.eventPrinter()
				for e, err := range s.Read(cmd.Context(), id, r) {
					if err != nil {
						return err
					}
					if err := print(e); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
	flags := cmd.Flags()
	flags.Uint64Var(&after, "after", 0, "only events after seq `N`")
	flags.IntVar(&r.Limit, "limit", 0, "at most `N` events")
	flags.IntVar(&r.Last, "last", 0, "start `N` events from the end")
	flags.StringArrayVar(&r.Kinds, "kind", nil, "only events of this kind; may be repeated")
	flags.BoolVar(&r.FromSummary, "from-summary", false, "start at the last summary, if there is one")
	return cmd
}

// checkRead refuses what no store can be asked, before one is opened.
func checkRead(id hansard.SessionID, counts ...int) error {
	if err := hansard.CheckID(id); err != nil {
		return err
	}
	for _, n := range counts {
		if n < 0 {
			return &usageError{"a number of events can't be negative", ""}
		}
	}
	return nil
}

// eventPrinter prints events the way --json asks for.
func (a *app) eventPrinter() func(hansard.Event) error {
	if a.json {
		return a.out.eventJSON
	}
	t := &transcript{out: a.out, now: a.now}
	return t.print
}
