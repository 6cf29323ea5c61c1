package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hansard"
	"hansard/internal/wire"
)

func newLs(a *app) *cobra.Command {
	var q hansard.Query
	var labels []string
	var since string
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List sessions, newest first",
		Long: `List sessions, the one that changed last first.

--label keeps sessions that have this label, and all of them when it is repeated;
--text those whose id or title contains it, ignoring case; --since those that
changed since a time: 90m, 24h, 7d, 2024-06-01 or 2024-06-01T15:04:05Z.

With --limit the rest can be had with --cursor; the command says with which. A
session whose turn is held is marked with its holder. A damaged session is in the
list, marked, and never hides another (exit 0).

--json prints one object per line with the members of stat, and cursor, which
continues the list behind that session.`,
		Example: `  hansard ls
  hansard ls --limit 20 --label owner=ada --since 7d
  hansard ls --text paris --json | jq -r .id`,
		Args:              arguments(0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if q.Labels, err = parseLabels(labels); err != nil {
				return err
			}
			if q.Since, err = parseSince(a.now(), since); err != nil {
				return err
			}
			if q.Limit < 0 {
				return &usageError{"--limit can't be negative", ""}
			}
			// A bad cursor is refused whether or not there is a session to compare it with.
			if _, err := q.Wants(&hansard.Info{}); err != nil {
				return err
			}
			return a.withStore(reading, func(s hansard.Store) error {
				if a.json {
					return a.listJSON(cmd, s, q)
				}
				return a.listTable(cmd, s, q)
			})
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&q.Limit, "limit", 0, "at most `N` sessions")
	flags.StringArrayVar(&labels, "label", nil, "only sessions with this label, `k=v`; may be repeated")
	flags.StringVar(&q.Text, "text", "", "only sessions whose id or title contains this")
	flags.StringVar(&since, "since", "", "only sessions that changed since a `TIME`: 24h, 7d, 2024-06-01")
	flags.StringVar(&q.Cursor, "cursor", "", "continue a list")
	return cmd
}

// listJSON prints the sessions as they come. An error about one of them does
// not hide the others; the first is the command's.
func (a *app) listJSON(cmd *cobra.Command, s hansard.Store, q hansard.Query) error {
	var first error
	for info, err := range s.List(cmd.Context(), q) {
		if err != nil {
			first = orFirst(first, err)
			continue
		}
		line := wire.NewSession(liveTurn(cmd.Context(), s, info))
		line.Cursor = hansard.Cursor(info)
		if err := a.out.jsonLine(line); err != nil {
			return err
		}
	}
	return first
}

func orFirst(first, err error) error {
	if first != nil {
		return first
	}
	return err
}

func (a *app) listTable(cmd *cobra.Command, s hansard.Store, q hansard.Query) error {
	t := &table{columns: []column{
		{name: "ID"}, {name: "TITLE", shrink: 12}, {name: "EVENTS", right: true}, {name: "UPDATED"},
		{name: "SIZE", right: true}, {name: "MARKS", shrink: 12}, {name: "LABELS", shrink: 8},
	}}
	limit := q.Limit
	if limit > 0 {
		q.Limit++ // to see whether there are more
	}
	var first error
	var last hansard.Info
	more := false
	for info, err := range s.List(cmd.Context(), q) {
		if err != nil {
			first = orFirst(first, err)
			continue
		}
		if limit > 0 && len(t.rows) == limit {
			more = true
			break
		}
		last = info
		info = liveTurn(cmd.Context(), s, info)
		style, marks := "", ""
		if info.Turn != nil {
			style, marks = yellow, "held by "+shortHolder(info.Turn.Holder)
		}
		if info.Damaged() {
			style, marks = red, strings.TrimPrefix(marks+", damaged", ", ")
		}
		t.add(style, string(info.ID), escapeLine(info.Title), humanCount(info.LastSeq), humanAgo(a.now(), info.Updated),
			humanBytes(info.Bytes), marks, humanLabels(info.Labels))
	}
	if len(t.rows) > 0 {
		if err := t.print(a.out); err != nil {
			return err
		}
	}
	if more {
		fmt.Fprintf(a.stderr, "there are more: %s\n", a.again("ls", "--limit", strconv.Itoa(limit), "--cursor", hansard.Cursor(last)))
	}
	return first
}

// shortHolder is who holds a turn, in a word if there is one.
func shortHolder(h hansard.Holder) string {
	if h.Label != "" {
		return escapeLine(h.Label)
	}
	return escapeLine(h.String())
}

// parseSince reads a time or how long ago it was.
func parseSince(now time.Time, s string) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if days, ok := strings.CutSuffix(s, "d"); ok {
		if n, err := strconv.Atoi(days); err == nil && n >= 0 {
			return now.AddDate(0, 0, -n), nil
		}
	}
	if d, err := time.ParseDuration(s); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02 15:04", time.DateOnly} {
		if t, err := time.ParseInLocation(layout, s, time.Local); err == nil {
			return t, nil
		}
	}
	return time.Time{}, &usageError{fmt.Sprintf("--since: %q is not a time", s), "write 90m, 24h, 7d, 2024-06-01 or 2024-06-01T15:04:05Z"}
}
