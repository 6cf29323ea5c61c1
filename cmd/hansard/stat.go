package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"hansard"
	"hansard/internal/wire"
)

func newStat(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "stat ID",
		Short: "Describe a session",
		Long: `Describe a session: title, labels, state, times, last seq, size, and whether it is
damaged. A damaged session is described as far as it is safe; that is an answer
and not an error (exit 0).

--json prints id, title, labels, state, created, updated, last_seq, bytes, turn and
damaged; damage, with what is wrong and where, is there only when it is.`,
		Example: `  hansard stat demo
  hansard stat demo --json | jq .last_seq`,
		Args:              arguments(1, "a session id"),
		ValidArgsFunction: a.completeIDs,
		RunE: func(cmd *cobra.Command, args []string) error {
			id := hansard.SessionID(args[0])
			a.session = args[0]
			if err := hansard.CheckID(id); err != nil {
				return err
			}
			return a.withStore(reading, func(s hansard.Store) error {
				info, err := s.Stat(cmd.Context(), id)
				if err != nil {
					return err
				}
				if a.json {
					return a.out.jsonLine(wire.NewSession(info))
				}
				return a.printInfo(info)
			})
		},
	}
}

func (a *app) printInfo(i hansard.Info) error {
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(a.out, "%s %s\n", a.out.paint(dim, fmt.Sprintf("%-8s", name)), value)
		}
	}
	line("id", string(i.ID))
	line("title", escapeLine(i.Title))
	line("labels", humanLabels(i.Labels))
	line("events", humanCount(i.LastSeq))
	line("size", humanBytes(i.Bytes))
	line("created", fmt.Sprintf("%s (%s)", i.Created.Local().Format("2006-01-02 15:04:05"), humanAgo(a.now(), i.Created)))
	line("updated", fmt.Sprintf("%s (%s)", i.Updated.Local().Format("2006-01-02 15:04:05"), humanAgo(a.now(), i.Updated)))
	if i.Turn != nil {
		line("turn", escapeLine(fmt.Sprintf("%s, held by %s since %s", i.Turn.Grant, i.Turn.Holder, humanAgo(a.now(), i.Turn.Since))))
	}
	if len(i.State) > 0 && string(i.State) != "null" {
		line("state", escapeText(dataText(i.State)))
	}
	if i.Damage != nil {
		line("damaged", a.out.paint(red, escapeLine(i.Damage.Error())))
	}
	_, err := a.out.WriteString("")
	return err
}
