package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"hansard"
)

func newPin(a *app) *cobra.Command {
	yes := "true"
	return newPinning(a, &yes, "pinned", &cobra.Command{
		Use:   "pin ID…",
		Short: "Keep sessions from being pruned",
		Long: `Pin sessions: hansard prune leaves them, however old they are. Nothing else changes; rm
deletes a pinned session like any other. A pinned session has the label "pinned", which
is set by an event of kind "meta", like every label.

Of several sessions those that can be pinned are; each that can't is named, and the
exit code is that of the first. An exclusive turn of somebody else keeps a session from
it (exit 5).`,
		Example: `  hansard pin demo
  hansard ls --label customer=acme --json | jq -r .id | xargs hansard pin`,
	})
}

func newUnpin(a *app) *cobra.Command {
	return newPinning(a, nil, "not pinned", &cobra.Command{
		Use:   "unpin ID…",
		Short: "Let pinned sessions be pruned again",
		Long: `Let sessions that were pinned be pruned again: the label "pinned" is removed. A session
that does not have it is left alone.`,
		Example: `  hansard unpin demo`,
	})
}

// newPinning sets or removes the label of pinned sessions.
func newPinning(a *app, label *string, done string, cmd *cobra.Command) *cobra.Command {
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
				if _, pinned := info.Labels[hansard.LabelPinned]; err == nil && pinned != (label != nil) {
					_, err = s.Append(patient, t.id, hansard.Batch{Turn: t.grant, Patch: &hansard.Patch{Labels: map[string]*string{hansard.LabelPinned: label}}})
				}
				if err != nil {
					if err := run.failed(cmd.Context(), t.id, err); err != nil {
						return err
					}
					continue
				}
				if a.json {
					err = a.out.jsonLine(map[string]any{"session": t.id, "pinned": label != nil})
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
