package main

import (
	"github.com/spf13/cobra"

	"hansard"
)

func newArchive(a *app) *cobra.Command {
	yes := "true"
	return newLabelling(a, hansard.LabelArchived, &yes, "archived", &cobra.Command{
		Use:   "archive ID…",
		Short: "Put sessions away, so that lists leave them out",
		Long: `Put sessions away: ls and the page leave them out from then on. Nothing else changes;
they can be read and written as before. An archived session has the label
"archived", which is set by an event of kind "meta", like every label.

ls --archived lists them, unarchive returns them to the lists. With several sessions, one
that can't be archived is reported and the others still are; the exit code is that of the
first that failed. A session whose turn somebody else holds exclusively is refused
(exit 5).`,
		Example: `  hansard archive demo
  hansard ls --before 30d --json | jq -r .id | xargs hansard archive`,
	})
}

func newUnarchive(a *app) *cobra.Command {
	return newLabelling(a, hansard.LabelArchived, nil, "unarchived", &cobra.Command{
		Use:   "unarchive ID…",
		Short: "Return archived sessions to the lists",
		Long: `Return archived sessions to the lists: ls and the page show them again. The label
"archived" is removed; a session that does not have it is left alone.`,
		Example: `  hansard unarchive demo`,
	})
}
