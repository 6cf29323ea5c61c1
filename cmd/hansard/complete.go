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

// completeTurn offers ids, and behind them what a shell offers for a program and
// its arguments.
func (a *app) completeTurn(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return a.completeIDs(cmd, args, prefix)
}

// completeGrant offers the grant of the turn that is held.
func (a *app) completeGrant(cmd *cobra.Command, args []string, _ string) (grants []string, _ cobra.ShellCompDirective) {
	if len(args) > 0 {
		a.storeSet = cmd.Flags().Changed("store")
		ctx, cancel := context.WithTimeout(cmd.Context(), completeWait)
		defer cancel()
		_ = a.withStore(reading, func(s hansard.Store) error { // not worth a message here
			held, err := s.Turn(ctx, hansard.SessionID(args[0]))
			if err == nil && held != nil {
				grants = append(grants, string(held.Grant)+"\t"+escapeLine(held.Holder.String()))
			}
			return nil
		})
	}
	return grants, cobra.ShellCompDirectiveNoFileComp
}

// completion is an id and, behind a tab, what the shell may show beside it.
func completion(i hansard.Info) string {
	title := strings.ReplaceAll(escapeLine(i.Title), `\n`, " ")
	if title == "" {
		return string(i.ID)
	}
	return string(i.ID) + "\t" + title
}
