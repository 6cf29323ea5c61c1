package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"hansard"
	"hansard/cmd/hansard/internal/stats"
)

func newStats(a *app) *cobra.Command {
	var o stats.Options
	var labels []string
	cmd := &cobra.Command{
		Use:   "stats",
		Short: "Count the sessions, events and bytes of a store, and chart its growth",
		Long: `Count the sessions of a store, their events, bytes and attachments: all together, by the
label tool, by the labels that most sessions have, and by the month in which a session
was created, with a chart.

--by groups by another label. --label keeps sessions that have this label, or all of the
labels if it is repeated. --no-attachments leaves out attachments, which take one query
per session. Deleted sessions are not counted. Sizes are those of the logs as the store
counts them; a disk or a database may take more, or less, for them.

--json prints one object.`,
		Example: `  hansard stats
  hansard stats --by project --label team=a
  hansard stats --json | jq '.months[-1].total'`,
		Args:              arguments(0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if o.Query.Labels, err = parseLabels(labels); err != nil {
				return err
			}
			return a.withStore(reading, func(s hansard.Store) error {
				line := newProgress(a.stderr)
				defer line.done()
				o.Progress = func(c stats.Count) {
					line.show(func() string { return plural(c.Sessions, "session") + " counted" })
				}
				r, err := stats.Gather(cmd.Context(), s, o)
				if err != nil {
					return err
				}
				line.done()
				if a.json {
					return a.out.jsonLine(r)
				}
				return (&statsPage{a, r, o.NoAttachments}).print()
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.By, "by", "tool", "group by the values of this `LABEL`")
	flags.StringArrayVar(&labels, "label", nil, "only sessions with this label, `k=v`; may be repeated")
	flags.BoolVar(&o.NoAttachments, "no-attachments", false, "do not count what is attached")
	return cmd
}

// statsPage prints a report for people.
type statsPage struct {
	*app
	r             *stats.Report
	noAttachments bool
}

// How much of a long report is shown.
const (
	shownGroups = 12
	shownLabels = 10
	shownMonths = 24
	barWidth    = 24
)

func (p *statsPage) print() error {
	if err := p.printRows(p.summary()); err != nil {
		return err
	}
	if p.r.Total.Sessions == 0 {
		return nil
	}
	if len(p.r.Groups) > 1 || p.r.Groups != nil && p.r.Groups[0].Name != "" {
		if err := p.groups(strings.ToUpper(escapeLine(p.r.By)), p.r.Groups, shownGroups); err != nil {
			return err
		}
	}
	if len(p.r.Labels) > 0 {
		if err := p.groups("LABEL", p.r.Labels, shownLabels); err != nil {
			return err
		}
	}
	return p.months()
}

func (p *statsPage) summary() []infoRow {
	t := &p.r.Total
	rows := []infoRow{{"sessions", humanCount(t.Sessions)}, {"events", humanCount(t.Events)}, {"size", humanBytes(t.Bytes)}}
	if !p.noAttachments {
		rows = append(rows, infoRow{"attached", fmt.Sprintf("%s, %s", plural(t.Attachments, "file"), humanBytes(t.AttachmentBytes))})
	}
	for _, c := range []struct {
		name string
		n    int
	}{{"held", p.r.Held}, {"pinned", p.r.Pinned}, {"archived", p.r.Archived}, {"damaged", p.r.Damaged}, {"unreadable", p.r.Unreadable}} {
		if c.n > 0 {
			rows = append(rows, infoRow{c.name, plural(c.n, "session")})
		}
	}
	if !p.r.Oldest.IsZero() {
		rows = append(rows, infoRow{"oldest", p.when(p.r.Oldest)}, infoRow{"changed", p.when(p.r.Newest)})
	}
	return rows
}

// countCells are the cells of a count.
func (p *statsPage) countCells(c *stats.Count) []string {
	attached := ""
	if c.Attachments > 0 {
		attached = humanBytes(c.AttachmentBytes)
	}
	return []string{humanCount(c.Sessions), humanCount(c.Events), humanBytes(c.Bytes), attached}
}

var countColumns = []column{{name: "SESSIONS", right: true}, {name: "EVENTS", right: true, drop: 2}, {name: "SIZE", right: true}, {name: "ATTACHED", right: true, drop: 1}}

// groups prints a table of groups, with the rest of a long one on one line.
func (p *statsPage) groups(title string, groups []stats.Group, most int) error {
	t := &table{columns: append([]column{{name: title, shrink: 10}}, countColumns...)}
	for i, g := range groups {
		if i == most {
			t.add(dim, fmt.Sprintf("… and %s more", humanCount(len(groups)-most)), "", "", "", "")
			break
		}
		name, style := escapeLine(g.Name), ""
		if g.Name == "" {
			name, style = "(none)", dim
		}
		t.add(style, append([]string{name}, p.countCells(&g.Count)...)...)
	}
	fmt.Fprintln(p.out)
	return t.print(p.out)
}

// months prints the growth, with a bar for what each month brought.
func (p *statsPage) months() error {
	months := p.r.Months
	if len(months) > shownMonths {
		months = months[len(months)-shownMonths:]
	}
	var most int64
	for i := range months {
		most = max(most, months[i].Size())
	}
	columns := append([]column{{name: "MONTH"}}, countColumns...)
	t := &table{columns: append(columns, column{name: "TOTAL", right: true}, column{name: "GROWTH", drop: 3})}
	for i := range months {
		m := &months[i]
		cells := append([]string{m.Month}, p.countCells(&m.Count)...)
		t.add("", append(cells, humanBytes(m.Total.Size()), bar(m.Size(), most))...)
	}
	if len(t.rows) == 0 {
		return nil
	}
	fmt.Fprintln(p.out)
	return t.print(p.out)
}

// bar is a bar in eighths of a character, at least one if n is not zero.
func bar(n, most int64) string {
	if n <= 0 || most <= 0 {
		return ""
	}
	eighths := max(int(float64(n)/float64(most)*barWidth*8+0.5), 1)
	text := strings.Repeat("█", eighths/8)
	if rest := eighths % 8; rest > 0 {
		text += string([]rune("▏▎▍▌▋▊▉")[rest-1])
	}
	return text
}
