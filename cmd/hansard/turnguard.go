package main

import "github.com/spf13/cobra"

// newTurnGuard is the process that leads the process group of a turn's program:
// see runGuard.
func newTurnGuard(a *app) *cobra.Command {
	return &cobra.Command{
		Use:    guardName,
		Hidden: true,
		Args:   arguments(0),
		RunE: func(*cobra.Command, []string) error {
			return runGuard(a.stdin, a.stdout)
		},
	}
}
