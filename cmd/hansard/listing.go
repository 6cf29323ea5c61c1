package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mattn/go-runewidth"
	"github.com/spf13/pflag"

	"hansard"
	"hansard/transcript"
)

// looksMax is for how many sessions without a title a list looks up the first prompt. Each
// costs reading the beginning of its log.
const looksMax = 1000

// lookWidth is the maximum width of a first prompt, which takes the place of a title.
const lookWidth = 60

// countMax is how long to count the sessions that a list on a terminal leaves out.
const countMax = time.Second

// listing is one ls for people.
type listing struct {
	app    *app
	flags  *pflag.FlagSet // as they were given, for the command that continues the list
	query  hansard.Query
	screen bool // the terminal is the limit

	table *table
	last  hansard.Info // of the table
	looks int          // how many first prompts may still be looked up
	more  int          // sessions that are not in it
	cut   bool         // and more than those, which took too long to count
}

func (l *listing) run(ctx context.Context, s hansard.Store) error {
	l.table, l.looks = sessionTable(), looksMax
	first := l.collect(ctx, s)
	if len(l.table.rows) > 0 {
		if err := l.table.print(l.app.out); err != nil {
			return err
		}
	}
	if err := l.app.out.Flush(); err != nil { // the message comes after the table
		return err
	}
	switch {
	case l.more > 0:
		fmt.Fprintln(l.app.stderr, escapeLine(l.moreText()))
	case len(l.table.rows) == 0 && first == nil:
		fmt.Fprintln(l.app.stderr, l.noneText())
	}
	return first
}

// collect fills the table up to the limit. On a terminal it then counts the others.
func (l *listing) collect(ctx context.Context, s hansard.Store) (first error) {
	q, limit := l.query, l.query.Limit
	switch {
	case l.screen:
		limit = max(l.app.out.height-3, 5) // one line for the header, one for the count, one for the shell prompt
	case limit > 0 && !l.app.out.tty:
		q.Limit++ // to see whether there are others
	case limit > 0:
		q.Limit = 0
	}
	counting, stop := context.WithCancel(ctx)
	defer stop()
	for info, err := range s.List(counting, q) {
		switch {
		case err != nil && counting.Err() != nil && ctx.Err() == nil:
			l.cut = true // we stopped it ourselves
			return first
		case err != nil:
			first = orFirst(first, err)
		case limit == 0 || len(l.table.rows) < limit:
			l.last = info
			if info, ok := shown(ctx, s, q, info); ok {
				l.app.addSession(l.table, info, l.titleOf(ctx, s, &info))
			}
		default:
			if l.more++; l.more == 1 {
				defer time.AfterFunc(countMax, stop).Stop()
			}
		}
	}
	return first
}

// shown is a session as a list shows it: with its turn if somebody holds it. A list of held
// sessions leaves out those whose holder is dead.
func shown(ctx context.Context, s hansard.Store, q hansard.Query, info hansard.Info) (hansard.Info, bool) {
	info = liveTurn(ctx, s, info)
	return info, !q.Held || info.Turn != nil
}

// moreText says how many sessions were left out, and how to see them.
func (l *listing) moreText() string {
	next := []string{"ls"}
	l.flags.Visit(func(f *pflag.Flag) {
		switch v, _ := f.Value.(pflag.SliceValue); {
		case f.Name == "label":
			for _, label := range v.GetSlice() {
				next = append(next, "--label", label)
			}
		case f.Name == "archived" || f.Name == "held" || f.Name == "damaged":
			next = append(next, "--"+f.Name+"="+f.Value.String())
		case slices.Contains(listFilters, f.Name) || f.Name == "order":
			next = append(next, "--"+f.Name, f.Value.String())
		}
	})
	if l.screen {
		return fmt.Sprintf("%s more; all of them: %s", l.count(), l.app.again(append(next, "--all")...))
	}
	next = append(next, "--limit", strconv.Itoa(l.query.Limit), "--cursor", l.last.Cursor)
	if !l.app.out.tty { // they were not counted
		return "there are more: " + l.app.again(next...)
	}
	return fmt.Sprintf("%s more: %s", l.count(), l.app.again(next...))
}

func (l *listing) count() string {
	if l.cut {
		return "over " + humanCount(l.more)
	}
	return humanCount(l.more)
}

func (l *listing) noneText() string {
	if slices.ContainsFunc(listFilters, l.flags.Changed) || l.flags.Changed("cursor") {
		return "no session matches"
	}
	return "there are no sessions yet; the first one: " + l.app.again("new", "ID")
}

// listFilters are the flags that leave sessions out.
var listFilters = []string{"label", "prefix", "text", "since", "before", "created-since", "created-before", "held", "damaged", "archived"}

// sessionTable is the table of a list. On a narrow terminal some columns are dropped.
func sessionTable() *table {
	return &table{columns: []column{
		{name: "ID"},
		{name: "TITLE", shrink: 24, drop: 6},
		{name: "EVENTS", right: true, drop: 3},
		{name: "UPDATED", drop: 4},
		{name: "SIZE", right: true, drop: 2},
		{name: "MARKS", shrink: 12, drop: 5},
		{name: "LABELS", shrink: 16, drop: 1},
	}}
}

// titleOf is what people know a session by: its title or, in quotes, the first prompt.
func (l *listing) titleOf(ctx context.Context, s hansard.Store, info *hansard.Info) string {
	if info.Title != "" || info.LastSeq == 0 || info.Unreadable != "" || l.looks == 0 {
		return escapeLine(info.Title)
	}
	l.looks--
	look, _ := transcript.Look(ctx, s, info.ID) // the list works even if a log can't be read
	if look.Text == "" {
		return ""
	}
	return "“" + runewidth.Truncate(escapeLine(look.Text), lookWidth, "…") + "”"
}

func (a *app) addSession(t *table, info hansard.Info, title string) {
	style, marks := "", ""
	if info.Turn != nil {
		style, marks = yellow, "held by "+shortHolder(info.Turn.Holder)
	}
	if info.Archived() {
		marks = strings.TrimPrefix(marks+", archived", ", ")
	}
	if info.Damaged() {
		style, marks = red, strings.TrimPrefix(marks+", damaged", ", ")
	}
	if info.Unreadable != "" {
		style, marks = red, "unreadable"
	}
	t.add(style, escapeLine(string(info.ID)), title, humanCount(info.LastSeq), humanAgo(a.now(), info.Updated),
		humanBytes(info.Bytes), marks, humanLabels(info.Labels))
}

// shortHolder is who holds a turn: the label, if there is one.
func shortHolder(h hansard.Holder) string {
	if h.Label != "" {
		return escapeLine(h.Label)
	}
	return escapeLine(h.String())
}
