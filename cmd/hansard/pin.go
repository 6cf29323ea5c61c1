package main

import (
	"github.com/spf13/cobra"

	"hansard"
)

func newPin(a *app) *cobra.Command {
	yes := "true"
	return newLabelling(a, hansard.LabelPinned, &yes, "pinned", &cobra.Command{
		Use:   "pin ID…",
		Short: "Keep sessions from being pruned",
		Long: `Pin sessions: hansard prune leaves them, however old they are. Nothing else changes; rm
deletes a pinned session like any other. A pinned session has the label "pinned", which
is set by an event of kind "meta", like every label.

With several sessions, one that can't be pinned is reported and the others still are; the
exit code is that of the first that failed. A session whose turn somebody else holds
exclusively is refused (exit 5).`,
		Example: `  hansard pin demo
  hansard ls --label customer=acme --json | jq -r .id | xargs hansard pin`,
	})
}

func newUnpin(a *app) *cobra.Command {
	return newLabelling(a, hansard.LabelPinned, nil, "not pinned", &cobra.Command{
		Use:   "unpin ID…",
		Short: "Let pinned sessions be pruned again",
		Long: `Let sessions that were pinned be pruned again: the label "pinned" is removed. A session
that does not have it is left alone.`,
		Example: `  hansard unpin demo`,
	})
}
