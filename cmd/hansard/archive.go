package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"hansard"
)

func newArchive(a *app) *cobra.Command {
	yes := "true"
	return newPutAway(a, &yes, "archived", &cobra.Command{
		Use:   "archive ID…",
		Short: "Put sessions away, so that lists leave them out",
		Long: `Put sessions away: ls and the page leave them out from then on. Nothing else changes;
they can be read and written as before. An archived session has the label
"archived", which is set by an event of kind "meta", like every label.

ls --archived lists them, unarchive takes them back. Of several sessions those that
can be archived are; each that can't is named, and the exit code is that of the
first. An exclusive turn of somebody else keeps a session from it (exit 5).`,
		Example: `  hansard archive demo
  hansard ls --before 30d --json | jq -r .id | xargs hansard archive`,
	})
}

func newUnarchive(a *app) *cobra.Command {
	return newPutAway(a, nil, "unarchived", &cobra.Command{
		Use:   "unarchive ID…",
		Short: "Take archived sessions back",
		Long: `Take archived sessions back: ls and the page list them again. The label "archived" is
removed; a session that does not have it is left alone.`,
		Example: `  hansard unarchive demo`,
	})
}

// newPutAway sets or removes the label of archived sessions.
func newPutAway(a *app, label *string, done string, cmd *cobra.Command) *cobra.Command {
	var turn turnFlag
	cmd.Args = someIDs
	cmd.ValidArgsFunction = a.completeManyIDs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		run, err := newRmRun(a, &turn, args)
		if err != nil {
			return err
		}
		return a.withStore(writing, func(s hansard.Store) error {
			patient, cancel := forWrite(cmd.Context())
			defer cancel()
			for _, t := range run.targets {
				if cmd.Context().Err() != nil {
					return &interrupted{"the others are as they were"}
				}
				info, err := s.Stat(patient, t.id)
				if err == nil && info.Archived() != (label != nil) {
					_, err = s.Append(patient, t.id, hansard.Batch{Turn: t.grant, Patch: &hansard.Patch{Labels: map[string]*string{hansard.LabelArchived: label}}})
				}
				if err != nil {
					if err := run.failed(cmd.Context(), t.id, err); err != nil {
						return err
					}
					continue
				}
				if a.json {
					err = a.out.jsonLine(map[string]any{"session": t.id, "archived": label != nil})
				} else {
					_, err = fmt.Fprintf(a.out, "%s  %s\n", t.id, done)
				}
				if err != nil {
					return err
				}
			}
			return run.outcome()
		})
	}
	turn.add(a, cmd)
	return cmd
}
