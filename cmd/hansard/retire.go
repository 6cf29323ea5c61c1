package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"hansard"
	"hansard/retention"
)

// retireOptions are the flags of prune that select sessions to delete.
type retireOptions struct {
	rule   retention.Rule
	labels []string
	dryRun bool
	yes    bool
}

func (o *retireOptions) add(flags *pflag.FlagSet) {
	durationVar(flags, &o.rule.OlderThan, "older-than", 0, "delete sessions that have not changed for this long")
	flags.IntVar(&o.rule.Keep, "keep", 0, "keep the newest `N` sessions, and with --older-than however old they are")
	flags.StringArrayVar(&o.labels, "label", nil, "only sessions with this label, `k=v`; may be repeated")
	flags.BoolVar(&o.rule.Archived, "archived", false, "only sessions that are archived")
	flags.BoolVar(&o.dryRun, "dry-run", false, "list what would be deleted; the default without --yes")
	flags.BoolVarP(&o.yes, "yes", "y", false, "delete them")
}

// asked tells whether any flag asks for sessions to be deleted.
func (o *retireOptions) asked(given func(flag string) bool) bool {
	return slices.ContainsFunc([]string{"older-than", "keep", "label", "archived", "dry-run", "yes"}, given)
}

func (o *retireOptions) check(given func(flag string) bool) (err error) {
	switch {
	case o.yes && o.dryRun:
		return &usageError{"--yes and --dry-run exclude each other", "give one of them"}
	case !given("older-than") && !given("keep"):
		return &usageError{"which sessions are to be deleted?", "give --older-than, --keep or both; without any of these flags prune removes what is left of deleted ones"}
	case o.rule.Keep < 0, o.rule.OlderThan < 0:
		return &usageError{"--keep and --older-than can't be negative", ""}
	case o.rule.Keep == 0 && o.rule.OlderThan == 0:
		return &usageError{"that would be all sessions", "hansard rm deletes the sessions that it is given"}
	}
	o.rule.Labels, err = parseLabels(o.labels)
	return err
}

// retire deletes the sessions that a rule selects, or lists them.
func (a *app) retire(cmd *cobra.Command, o *retireOptions) error {
	if err := o.check(cmd.Flags().Changed); err != nil {
		return err
	}
	want := reading
	if o.yes {
		want = writing
	}
	return a.withStore(want, func(s hansard.Store) error {
		run := &retiring{app: a, store: s, yes: o.yes, left: map[string]int{}}
		if err := run.collect(cmd.Context(), o.rule); err != nil {
			return err
		}
		if o.yes {
			return run.delete(cmd.Context())
		}
		return run.list()
	})
}

// retiring is a prune of sessions in progress.
type retiring struct {
	*app
	store hansard.Store
	yes   bool
	going []going
	left  map[string]int // how many, by reason
	bytes int64
}

// going is a session to be deleted, without the parts that only take memory.
type going struct {
	info  hansard.Info
	bytes int64 // of its log and its attachments
}

// goingJSON is a session in the output.
type goingJSON struct {
	Session hansard.SessionID `json:"session"`
	Title   string            `json:"title,omitempty"`
	Updated time.Time         `json:"updated"`
	Events  hansard.Seq       `json:"events"`
	Bytes   int64             `json:"bytes"`
	Deleted bool              `json:"deleted"`
	Left    string            `json:"left,omitempty"` // why it is kept
}

func (r *retiring) collect(ctx context.Context, rule retention.Rule) error {
	line := newProgress(r.stderr)
	defer line.done()
	for c, err := range retention.Select(ctx, r.store, rule, r.now()) {
		if err != nil {
			return err
		}
		g := going{info: c.Info, bytes: c.Bytes}
		g.info.State, g.info.Labels = nil, nil
		for a, err := range r.store.Attachments(ctx, c.ID) {
			if err != nil {
				break // the size is only informative
			}
			g.bytes += a.Size
		}
		if c.Left != "" {
			if err := r.leave(&g, c.Left); err != nil {
				return err
			}
			continue
		}
		r.going = append(r.going, g)
		line.show(func() string { return plural(len(r.going), "session") + " found" })
	}
	return nil
}

// leave records a session that is not deleted.
func (r *retiring) leave(g *going, why string) error {
	r.left[why]++
	if !r.json {
		return nil
	}
	return r.jsonGoing(g, false, why)
}

func (r *retiring) jsonGoing(g *going, deleted bool, why string) error {
	return r.out.jsonLine(goingJSON{g.info.ID, g.info.Title, g.info.Updated, g.info.LastSeq, g.bytes, deleted, why})
}

// list prints what would be deleted.
func (r *retiring) list() error {
	if r.json {
		for i := range r.going {
			if err := r.jsonGoing(&r.going[i], false, ""); err != nil {
				return err
			}
		}
		return nil
	}
	t := &table{columns: []column{{name: "ID", shrink: 16}, {name: "UPDATED"}, {name: "EVENTS", right: true}, {name: "SIZE", right: true}, {name: "TITLE", shrink: 10, drop: 1}}}
	for i := range r.going {
		g := &r.going[i]
		r.bytes += g.bytes
		t.add("", escapeLine(string(g.info.ID)), humanAgo(r.now(), g.info.Updated), humanCount(g.info.LastSeq), humanBytes(g.bytes), escapeLine(g.info.Title))
	}
	if len(t.rows) > 0 {
		if err := t.print(r.out); err != nil {
			return err
		}
	}
	if _, err := fmt.Fprintf(r.out, "%s, %s, would be deleted%s\n", plural(len(r.going), "session"), humanBytes(r.bytes), r.leftText()); err != nil {
		return err
	}
	if len(r.going) > 0 {
		if err := r.out.Flush(); err != nil {
			return err
		}
		fmt.Fprintln(r.stderr, "nothing was deleted; --yes deletes them permanently")
	}
	return nil
}

// leftText says how many are kept, and why.
func (r *retiring) leftText() string {
	var parts []string
	for _, why := range slices.Sorted(maps.Keys(r.left)) {
		parts = append(parts, fmt.Sprintf("%s %s", humanCount(r.left[why]), why))
	}
	if len(parts) == 0 {
		return ""
	}
	return "; left: " + strings.Join(parts, ", ")
}

func (r *retiring) delete(ctx context.Context) error {
	line := newProgress(r.stderr)
	defer line.done()
	patient, cancel := forWrite(ctx)
	defer cancel()
	deleted := 0
	said := func() string { return plural(deleted, "session") + " deleted" }
	slices.Reverse(r.going) // the oldest first
	for i := range r.going {
		if ctx.Err() != nil {
			return &interrupted{said()}
		}
		g := &r.going[i]
		why, err := retention.Delete(patient, r.store, &g.info)
		if err != nil {
			r.session = string(g.info.ID)
			return fmt.Errorf("%s, then session %s: %w", said(), g.info.ID, orInterrupted(err, said()))
		}
		if why != "" {
			if err := r.leave(g, why); err != nil {
				return err
			}
			continue
		}
		deleted++
		r.bytes += g.bytes
		if r.json {
			err = r.jsonGoing(g, true, "")
		} else {
			_, err = fmt.Fprintf(r.out, "%s  deleted  %s\n", escapeLine(string(g.info.ID)), humanBytes(g.bytes))
		}
		if err != nil {
			return err
		}
		line.show(func() string { return fmt.Sprintf("%s of %s", said(), humanCount(len(r.going))) })
	}
	if r.json {
		return nil
	}
	_, err := fmt.Fprintf(r.out, "%s, %s%s\n", said(), humanBytes(r.bytes), r.leftText())
	return err
}
