package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hansard"
	"hansard/internal/wire"
)

func newStat(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "stat ID",
		Short: "Describe a session",
		Long: `Describe a session: title, labels, state, times, last seq, size, who holds its turn,
and whether it is damaged. A damaged session is described as far as it is safe; that
is an answer and not an error (exit 0).

A fork is shown with its parent, and a session with its forks.

--json prints id, title, labels, state, created, updated, last_seq, bytes, turn and
damaged; for a fork also parent, and for a damaged session damage, which says what is
wrong and where.`,
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
				info = liveTurn(cmd.Context(), s, info)
				if a.json {
					return a.out.jsonLine(wire.NewSession(info))
				}
				return a.printInfo(info, forksOf(cmd.Context(), s, id)...)
			})
		},
	}
}

// infoRow is one line of a session's description; without a value it is left out.
type infoRow struct{ name, value string }

func (a *app) printRows(rows []infoRow) error {
	for _, r := range rows {
		if r.value != "" {
			fmt.Fprintf(a.out, "%s %s\n", a.out.paint(dim, fmt.Sprintf("%-8s", r.name)), r.value)
		}
	}
	_, err := a.out.WriteString("")
	return err
}

// shownForks is how many forks of a session are named.
const shownForks = 10

// forksOf lists the forks of a session.
func forksOf(ctx context.Context, s hansard.Store, id hansard.SessionID) (rows []infoRow) {
	var names []string
	for info, err := range s.List(ctx, hansard.Query{Parent: id, Limit: shownForks + 1}) {
		if err != nil {
			return nil // the request was for the session itself
		}
		if len(names) == shownForks {
			names = append(names, fmt.Sprintf("… (hansard ls --parent %s)", escapeLine(string(id))))
			break
		}
		names = append(names, escapeLine(string(info.ID)))
	}
	return []infoRow{{"forks", strings.Join(names, ", ")}}
}

func (a *app) printInfo(i hansard.Info, more ...infoRow) error {
	rows := []infoRow{
		{"id", escapeLine(string(i.ID))},
		{"title", escapeLine(i.Title)},
		{"labels", humanLabels(i.Labels)},
		{"events", humanCount(i.LastSeq)},
		{"size", humanBytes(i.Bytes)},
		{"created", a.when(i.Created)},
		{"updated", a.when(i.Updated)},
	}
	if p := i.Parent; p != nil {
		rows = append(rows, infoRow{"fork of", escapeLine(fmt.Sprintf("%s at %d", p.ID, p.At))})
	}
	rows = append(rows, more...)
	if t := i.Turn; t != nil {
		how := ""
		if t.Exclusive {
			how = ", exclusive"
		}
		rows = append(rows, infoRow{"turn", escapeLine(fmt.Sprintf("%s, held by %s since %s%s", t.Grant, t.Holder, humanTime(a.now(), t.Since), how))})
	}
	if len(i.State) > 0 && string(i.State) != "null" {
		rows = append(rows, infoRow{"state", escapeText(dataText(i.State))})
	}
	if i.Damage != nil {
		rows = append(rows, infoRow{"damaged", a.out.paint(red, escapeLine(i.Damage.Error()))})
	}
	return a.printRows(rows)
}

// stamp is a local time, when is one with how long ago it was.
func (a *app) stamp(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05") }

func (a *app) when(t time.Time) string {
	return fmt.Sprintf("%s (%s)", a.stamp(t), humanAgo(a.now(), t))
}

// liveTurn leaves out the turn of a holder that is known to be dead, which the log
// alone does not show.
func liveTurn(ctx context.Context, s hansard.Store, i hansard.Info) hansard.Info {
	if i.Turn == nil {
		return i
	}
	if held, err := s.Turn(ctx, i.ID); err == nil { // otherwise keep what the log says
		i.Turn = held
	}
	return i
}
