package main

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hansard"
)

// completeMax is how many sessions a shell is offered; completeWait how long it waits.
const (
	completeMax  = 200
	completeWait = time.Second
)

// completeIDs offers the ids of sessions to the shell, newest first, with their
// titles. What goes wrong here is not worth a message in the middle of a line.
func (a *app) completeIDs(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	const directive = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	if len(args) > 0 {
		return nil, directive
	}
	a.storeSet = cmd.Flags().Changed("store")
	ctx, cancel := context.WithTimeout(cmd.Context(), completeWait)
	defer cancel()
	var ids []string
	err := a.withStore(reading, func(s hansard.Store) error {
		for info, err := range s.List(ctx, hansard.Query{Text: prefix}) {
			if err != nil {
				continue
			}
			if !strings.HasPrefix(string(info.ID), prefix) {
				continue
			}
			if ids = append(ids, completion(info)); len(ids) == completeMax {
				break
			}
		}
		return nil
	})
	if err != nil {
		return nil, directive | cobra.ShellCompDirectiveError
	}
	return ids, directive
}

// completion is an id and, behind a tab, what the shell may show beside it.
func completion(i hansard.Info) string {
	title := strings.ReplaceAll(escapeLine(i.Title), `\n`, " ")
	if title == "" {
		return string(i.ID)
	}
	return string(i.ID) + "\t" + title
}
