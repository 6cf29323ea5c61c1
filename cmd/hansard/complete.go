package main

import (
	"context"
	"slices"
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

const idsDirective = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder

// completeIDs offers the ids of sessions to the shell, newest first, with their
// titles. Errors here are not worth a message in the middle of a line.
func (a *app) completeIDs(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, idsDirective
	}
	return a.completeManyIDs(cmd, args, prefix)
}

// completeManyIDs is completeIDs for a command that takes several ids; those already
// given are not offered again.
func (a *app) completeManyIDs(cmd *cobra.Command, args []string, prefix string) (ids []string, _ cobra.ShellCompDirective) {
	a.look(cmd, func(ctx context.Context, s hansard.Store) {
		for info, err := range s.List(ctx, hansard.Query{Prefix: prefix}) {
			if err != nil || hansard.CheckID(info.ID) != nil || slices.Contains(args, string(info.ID)) {
				continue
			}
			if ids = append(ids, completion(info)); len(ids) == completeMax {
				break
			}
		}
	})
	return ids, idsDirective
}

// completeTurn offers ids, and after them what a shell offers for a program and its
// arguments.
func (a *app) completeTurn(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return a.completeIDs(cmd, args, prefix)
}

// completeGrant offers the grant of the current turn.
func (a *app) completeGrant(cmd *cobra.Command, args []string, _ string) (grants []string, _ cobra.ShellCompDirective) {
	if len(args) > 0 {
		a.look(cmd, func(ctx context.Context, s hansard.Store) {
			held, err := s.Turn(ctx, hansard.SessionID(args[0]))
			if err == nil && held != nil && escapeLine(string(held.Grant)) == string(held.Grant) {
				grants = append(grants, string(held.Grant)+"\t"+escapeLine(held.Holder.String()))
			}
		})
	}
	return grants, cobra.ShellCompDirectiveNoFileComp
}

// completion is an id and, after a tab, what the shell may show beside it.
func completion(i hansard.Info) string {
	title := strings.ReplaceAll(escapeLine(i.Title), `\n`, " ")
	if title == "" {
		return string(i.ID)
	}
	return string(i.ID) + "\t" + title
}
