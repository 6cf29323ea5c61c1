package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"hansard"
)

func newRm(a *app) *cobra.Command {
	var yes bool
	var turn turnFlag
	cmd := &cobra.Command{
		Use:   "rm ID",
		Short: "Delete a session for ever",
		Long: `Delete a session. Its id answers "deleted" (exit 3) from then on, and nothing brings
it back by accident: not a late append, not append --create, not new.

The id has to be exact; a prefix never stands for a session. On a terminal the
command asks first, unless --yes is given.

An exclusive turn of somebody else keeps the session from being deleted (exit 5).
In a program that hansard turn runs it is deleted under the turn, as with append.`,
		Example: `  hansard rm demo
  hansard rm demo --yes`,
		Args:              arguments(1, "a session id"),
		ValidArgsFunction: a.completeIDs,
		RunE: func(cmd *cobra.Command, args []string) error {
			id := hansard.SessionID(args[0])
			a.session = args[0]
			if err := hansard.CheckID(id); err != nil {
				return err
			}
			grant, err := turn.of(a, id)
			if err != nil {
				return err
			}
			return a.withStore(writing, func(s hansard.Store) error {
				if !yes && isTerminal(a.stdin) && isTerminal(a.stderr) {
					if err := a.confirmDelete(cmd.Context(), s, id); err != nil {
						return err
					}
				}
				ctx, cancel := forWrite(cmd.Context())
				defer cancel()
				if err := s.Delete(ctx, id, grant); err != nil {
					return orInterrupted(err, "nothing was deleted")
				}
				if a.json {
					return a.out.jsonLine(map[string]any{"session": id, "deleted": true})
				}
				_, err := fmt.Fprintf(a.out, "%s  deleted\n", id)
				return err
			})
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	turn.add(a, cmd)
	return cmd
}

func (a *app) confirmDelete(ctx context.Context, s hansard.Store, id hansard.SessionID) error {
	info, err := s.Stat(ctx, id)
	if err != nil {
		return err
	}
	what := plural(info.LastSeq, "event")
	if info.Title != "" {
		what = fmt.Sprintf("%q, %s", escapeLine(info.Title), what)
	}
	fmt.Fprintf(a.stderr, "Delete session %s (%s) for ever? [y/N] ", id, what)
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(a.stdin).ReadString('\n')
		answer <- line
	}()
	select {
	case line := <-answer:
		switch strings.ToLower(strings.TrimSpace(line)) {
		case "y", "yes":
			return nil
		}
		return errors.New("nothing was deleted")
	case <-ctx.Done():
		fmt.Fprintln(a.stderr)
		return &interrupted{"nothing was deleted"}
	}
}
