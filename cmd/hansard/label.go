package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"hansard"
)

// newLabelling completes a command that sets a label with a meaning to Hansard itself,
// or with a nil value removes it. done is what it prints for each session.
func newLabelling(a *app, label string, value *string, done string, cmd *cobra.Command) *cobra.Command {
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
				if _, has := info.Labels[label]; err == nil && has != (value != nil) {
					_, err = s.Append(patient, t.id, hansard.Batch{Turn: t.grant, Patch: &hansard.Patch{Labels: map[string]*string{label: value}}})
				}
				if err != nil {
					if err := run.failed(cmd.Context(), t.id, err); err != nil {
						return err
					}
					continue
				}
				if a.json {
					err = a.out.jsonLine(map[string]any{"session": t.id, label: value != nil})
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
