package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"hansard"
)

func newRepair(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "repair ID",
		Short: "Make a sound copy of a damaged session",
		Long: `Make a sound copy of a damaged session out of what is safe, in its place, so that it
can be appended to again. Nothing is deleted: the old bytes are kept in the store,
and the command says where. A session that is sound is left alone.

Look first with verify: it says what is damaged and how much is safe.`,
		Example: `  hansard verify demo
  hansard repair demo`,
		Args:              arguments(1, "a session id"),
		ValidArgsFunction: a.completeIDs,
		RunE: func(cmd *cobra.Command, args []string) error {
			id := hansard.SessionID(args[0])
			a.session = args[0]
			if err := hansard.CheckID(id); err != nil {
				return err
			}
			return a.withChecker(writing, func(c hansard.Checker) error {
				ctx, cancel := forWrite(cmd.Context())
				defer cancel()
				r, err := c.Repair(ctx, id)
				if err != nil {
					return err
				}
				if a.json {
					return a.out.jsonLine(r)
				}
				return a.printRepaired(r)
			})
		},
	}
}

func (a *app) printRepaired(r hansard.Repaired) error {
	if !r.Changed {
		_, err := fmt.Fprintf(a.out, "%s is sound; nothing was changed\n", r.Session)
		return err
	}
	_, err := fmt.Fprintf(a.out, "%s has %s again; the old log is kept in %s of the store, %s of it only there\n",
		r.Session, plural(r.Events, "event"), escapeLine(r.Kept), humanBytes(r.DroppedBytes))
	return err
}
