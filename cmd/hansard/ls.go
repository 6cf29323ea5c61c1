package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hansard"
	"hansard/engine"
	"hansard/internal/wire"
)

func newLs(a *app) *cobra.Command {
	var q hansard.Query
	var labels []string
	var since, before, createdSince, createdBefore, order, archived string
	var all, count bool
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List sessions, newest first",
		Long: `List sessions, the most recently changed first, or with --order created the most
recently created.

--prefix keeps sessions whose id begins with it; --parent the forks of a session;
--label those that have this label, or all of the labels if it is repeated; --text
those whose id or title contains it, ignoring case; --since and --before those that
changed since or before a time: 90m, 24h, 7d, 2024-06-01 or 2024-06-01T15:04:05Z;
--created-since and --created-before those that were created then; --held those
whose turn is held; --damaged those that are damaged or can't be read. --count
prints how many there are.

Archived sessions are left out: --archived lists them alone, --archived=any with the
others.

On a terminal the list is a screen long and says how many more there are; --all
lists all of them. With --limit the command prints the --cursor that continues
the list. No session is skipped between two such lists; in the order of updates,
those that changed since a minute before the first one are listed again at the end.

A session whose turn is held is marked with its holder. A damaged session is in the
list, marked, and never hides another (exit 0). A session without a title is shown
with the first thing its user said, in quotes.

--json prints one object per line with the members of stat, and cursor, which
continues the list behind that session.`,
		Example: `  hansard ls
  hansard ls --all --label owner=ada --since 7d
  hansard ls --prefix team-a: --order created
  hansard ls --count --archived=any --created-since 7d
  hansard ls --text paris --json | jq -r .id`,
		Args:              arguments(0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if q.Labels, err = parseLabels(labels); err != nil {
				return err
			}
			for _, t := range []struct {
				flag, text string
				into       *time.Time
			}{{"since", since, &q.Since}, {"before", before, &q.Before}, {"created-since", createdSince, &q.CreatedSince}, {"created-before", createdBefore, &q.CreatedBefore}} {
				if *t.into, err = parseTime(a.now(), t.flag, t.text); err != nil {
					return err
				}
			}
			limited := cmd.Flags().Changed("limit")
			switch order {
			case orderNames[0]:
			case orderNames[1]:
				q.Order = hansard.OrderCreated
			default:
				return &usageError{fmt.Sprintf("--order: there is no order %q", order), "updated and created are the orders"}
			}
			switch at := slices.Index(archivedNames, archived); at {
			case -1:
				return &usageError{fmt.Sprintf("--archived: %q is not known", archived), "write --archived, --archived=any or --archived=no"}
			default:
				q.Archived = hansard.Archived(at)
			}
			switch {
			case count && (limited || all || q.Cursor != ""):
				return &usageError{"--count counts all that match", "leave --limit, --all and --cursor out"}
			case q.Limit < 0:
				return &usageError{"--limit can't be negative", ""}
			case limited && all:
				return &usageError{"--limit and --all exclude each other", "give one of them"}
			}
			// Errors in the query are reported before a store is opened.
			if err := engine.CheckQuery(&q); err != nil {
				return err
			}
			return a.withStore(reading, func(s hansard.Store) error {
				if count {
					return a.countSessions(cmd.Context(), s, q)
				}
				if a.json {
					return a.listJSON(cmd, s, q)
				}
				l := &listing{app: a, flags: cmd.Flags(), query: q}
				l.screen = a.out.tty && a.out.height > 0 && !limited && !all
				return l.run(cmd.Context(), s)
			})
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&q.Limit, "limit", 0, "at most `N` sessions (default: all; on a terminal a screen of them)")
	flags.BoolVarP(&all, "all", "a", false, "all sessions, also on a terminal")
	flags.StringArrayVar(&labels, "label", nil, "only sessions with this label, `k=v`; may be repeated")
	flags.StringVar(&q.Prefix, "prefix", "", "only sessions whose id begins with this `PREFIX`")
	flags.StringVar((*string)(&q.Parent), "parent", "", "only forks of the session with this `ID`")
	flags.StringVar(&order, "order", orderNames[0], "by which time: `ORDER` is updated or created")
	flags.StringVar(&q.Text, "text", "", "only sessions whose id or title contains this `TEXT`")
	flags.StringVar(&since, "since", "", "only sessions that changed since a `TIME`: 24h, 7d, 2024-06-01")
	flags.StringVar(&before, "before", "", "only sessions that changed before a `TIME`")
	flags.StringVar(&createdSince, "created-since", "", "only sessions created since a `TIME`")
	flags.StringVar(&createdBefore, "created-before", "", "only sessions created before a `TIME`")
	flags.BoolVar(&q.Held, "held", false, "only sessions whose turn is held")
	flags.BoolVar(&q.Damaged, "damaged", false, "only sessions that are damaged or unreadable")
	flags.StringVar(&archived, "archived", archivedNames[hansard.ArchivedNo], "only archived sessions; `WHICH` is only, any or no")
	flags.Lookup("archived").NoOptDefVal = archivedNames[hansard.ArchivedOnly]
	flags.BoolVar(&count, "count", false, "print how many there are")
	flags.StringVar(&q.Cursor, "cursor", "", "continue a list at this `CURSOR`")
	return cmd
}

// orderNames are the values of --order; the first is the default.
var orderNames = []string{"updated", "created"}

// archivedNames are the values of --archived.
var archivedNames = []string{hansard.ArchivedAny: "any", hansard.ArchivedNo: "no", hansard.ArchivedOnly: "only"}

// countSessions prints how many sessions there are.
func (a *app) countSessions(ctx context.Context, s hansard.Store, q hansard.Query) error {
	n, err := hansard.Count(ctx, s, q)
	if err != nil {
		return err
	}
	if a.json {
		return a.out.jsonLine(wire.Count{Count: n})
	}
	_, err = fmt.Fprintln(a.out, n)
	return err
}

// listJSON prints the sessions as they arrive. An error about one of them
// does not hide the others; the first error is the command's.
func (a *app) listJSON(cmd *cobra.Command, s hansard.Store, q hansard.Query) error {
	var first error
	for info, err := range s.List(cmd.Context(), q) {
		if err != nil {
			first = orFirst(first, err)
			continue
		}
		info, ok := shown(cmd.Context(), s, q, info)
		if !ok {
			continue
		}
		if err := a.out.jsonLine(wire.NewSession(info)); err != nil {
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

// parseTime reads a time or how long ago it was.
func parseTime(now time.Time, flag, s string) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if days, err := strconv.Atoi(strings.TrimSuffix(s, "d")); err == nil && days >= 0 && strings.HasSuffix(s, "d") {
		return now.AddDate(0, 0, -days), nil // calendar days, whatever daylight saving does
	}
	if d, err := parseDuration(s); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02 15:04", time.DateOnly} {
		if t, err := time.ParseInLocation(layout, s, time.Local); err == nil {
			return t, nil
		}
	}
	return time.Time{}, &usageError{fmt.Sprintf("--%s: %q is not a time", flag, s), "write 90m, 24h, 7d, 2024-06-01 or 2024-06-01T15:04:05Z"}
}
