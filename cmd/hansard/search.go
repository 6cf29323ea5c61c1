package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"hansard"
	"hansard/engine/terms"
	"hansard/search"
)

// searchLimit is how many hits a search prints by default.
const searchLimit = 20

// errNothingFound ends a search like grep: with exit code 1, and without a
// message.
var errNothingFound = errors.New("nothing was found")

func newSearch(a *app) *cobra.Command {
	q := hansard.SearchQuery{Limit: searchLimit}
	var labels []string
	var since, before, in string
	cmd := &cobra.Command{
		Use:   "search WORD…",
		Short: "Search the events of all sessions",
		Long: `Search what people read in the events of all sessions: texts, the names of tools,
arguments and results. The best matches come first, and of equally good ones the newest.

All words must be in one event. '"words in quotes"' must stand together, and so must
what is written together, such as read_file; deplo* is the beginning of a word. Case
and diacritics do not count. Chinese, Japanese, Korean, Thai and the like are found
anywhere in a text.

Each hit is cited as session#seq: "hansard show ID --after N" shows what follows.
Nothing found: exit 1.

On files there is an index, cache/search.db in the store, which every search brings up
to date; the first one takes as long as reading the whole store. It may be deleted at
any time.`,
		Example: `  hansard search deploy failed
  hansard search '"connection refused"' --role tool --since 7d
  hansard search 'migrat*' --in demo --json | jq -r .snippet`,
		Args:              arguments1("a word to look for"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, words []string) error {
			q.Text = strings.Join(words, " ")
			q.In = hansard.SessionID(in)
			var err error
			if q.Labels, err = parseLabels(labels); err != nil {
				return err
			}
			if q.Since, err = parseTime(a.now(), "since", since); err != nil {
				return err
			}
			if q.Before, err = parseTime(a.now(), "before", before); err != nil {
				return err
			}
			// Errors in the query are reported before a store is opened.
			if _, err := terms.Check(&q); err != nil {
				return err
			}
			a.session = in
			bar := newProgress(a.stderr)
			defer bar.done()
			a.searching = &search.Options{
				Progress: func(p search.Progress) { bar.show(func() string { return indexing(p) }) },
				Log:      slog.New(notes{w: a.stderr}),
			}
			return a.withStore(reading, func(s hansard.Store) error {
				searcher, ok := s.(hansard.Searcher)
				if !ok {
					return fmt.Errorf("%w: this store has no search", hansard.ErrUnsupported)
				}
				return a.search(cmd.Context(), searcher, q, bar.done)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&q.Role, "role", "", "only events of this `ROLE`, such as user or assistant")
	flags.StringVar(&q.Kind, "kind", "", "only events of this `KIND`, such as message or tool_result")
	flags.StringArrayVar(&labels, "label", nil, "only sessions with this label, `k=v`; may be repeated")
	flags.StringVar(&q.Prefix, "prefix", "", "only sessions whose id begins with this `PREFIX`")
	flags.StringVar(&in, "in", "", "only the session with this `ID`")
	flags.StringVar(&since, "since", "", "only events since a `TIME`: 24h, 7d, 2024-06-01")
	flags.StringVar(&before, "before", "", "only events before a `TIME`")
	flags.IntVar(&q.Limit, "limit", q.Limit, "at most `N` hits; 0 is all of them")
	flags.IntVar(&q.Offset, "offset", 0, "skip the first `N` hits")
	_ = cmd.RegisterFlagCompletionFunc("in", a.completeManyIDs)
	return cmd
}

// arguments1 requires at least one argument.
func arguments1(name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return arguments(1, name)(cmd, args)
		}
		return nil
	}
}

func indexing(p search.Progress) string {
	if p.Waiting {
		return "another process is indexing…"
	}
	return fmt.Sprintf("indexing: %d of %d sessions, %s", p.Done, p.Total, humanBytes(p.Bytes))
}

// search prints what a query finds.
func (a *app) search(ctx context.Context, s hansard.Searcher, q hansard.SearchQuery, found func()) error {
	wanted := q.Limit
	if !a.json && q.Limit > 0 {
		q.Limit++ // one more, to see whether there are more
	}
	n := 0
	for h, err := range s.Search(ctx, q) {
		if found(); err != nil {
			return err
		}
		if n++; !a.json && wanted > 0 && n > wanted {
			if err := a.out.Flush(); err != nil {
				return err
			}
			fmt.Fprintf(a.stderr, "there are more: --limit 0 prints all of them, --offset %d the next\n", q.Offset+wanted)
			return nil
		}
		if a.json {
			err = a.out.jsonLine(h)
		} else {
			err = a.printHit(&h)
		}
		if err != nil {
			return err
		}
	}
	if n == 0 {
		return &quietError{errNothingFound}
	}
	return nil
}

// printHit prints where a hit is, and below that the line that shows it.
func (a *app) printHit(h *hansard.Hit) error {
	about := []string{humanAgo(a.now(), h.Time)}
	for _, s := range []string{h.Role, h.Author, h.Title} {
		if s != "" {
			about = append(about, escapeLine(s))
		}
	}
	if h.Kind != hansard.KindMessage {
		about = append(about, escapeLine(h.Kind))
	}
	var line strings.Builder
	at := 0
	for _, m := range h.Marks {
		if m.Start < at || m.End > len(h.Snippet) || m.Start > m.End {
			break // from a foreign server
		}
		line.WriteString(escapeLine(h.Snippet[at:m.Start]))
		line.WriteString(a.out.paint(bold+";"+yellow, escapeLine(h.Snippet[m.Start:m.End])))
		at = m.End
	}
	line.WriteString(escapeLine(h.Snippet[at:]))
	_, err := fmt.Fprintf(a.out, "%s  %s\n  %s\n", a.out.paint(cyan, fmt.Sprintf("%s#%d", escapeLine(string(h.Session)), h.Seq)), a.out.paint(dim, strings.Join(about, "  ")), line.String())
	return err
}

// notes is a log of notable events, for people.
type notes struct{ w io.Writer }

func (n notes) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }
func (n notes) WithAttrs([]slog.Attr) slog.Handler               { return n }
func (n notes) WithGroup(string) slog.Handler                    { return n }

func (n notes) Handle(_ context.Context, r slog.Record) error {
	why := ""
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "error" || a.Key == "reason" {
			why = ": " + a.Value.String()
		}
		return true
	})
	_, err := fmt.Fprintf(n.w, "hansard: note: %s\n", escapeLine(r.Message+why))
	return err
}
