// Package stats counts what a store holds, in one pass over its list and in memory that
// does not depend on the number of sessions.
package stats

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"hansard"
)

// Count is an amount of sessions, events and bytes.
type Count struct {
	Sessions        int         `json:"sessions"`
	Events          hansard.Seq `json:"events"`
	Bytes           int64       `json:"bytes"` // of the logs
	Attachments     int         `json:"attachments"`
	AttachmentBytes int64       `json:"attachment_bytes"`
}

func (c *Count) add(o Count) {
	c.Sessions += o.Sessions
	c.Events += o.Events
	c.Bytes += o.Bytes
	c.Attachments += o.Attachments
	c.AttachmentBytes += o.AttachmentBytes
}

// Size is all bytes, attached ones included.
func (c *Count) Size() int64 { return c.Bytes + c.AttachmentBytes }

// Group is the count of the sessions that have something in common.
type Group struct {
	Name string `json:"name"`
	Count
}

// Month is the count of the sessions that were created in a month, and of all that were
// created up to its end.
type Month struct {
	Month string `json:"month"` // 2026-01, in UTC
	Count
	Total Count `json:"total"`
}

// Report is what a store holds.
type Report struct {
	Total Count `json:"total"`
	// Held is according to the logs; the holder may be dead.
	Held       int       `json:"held"`
	Pinned     int       `json:"pinned"`
	Archived   int       `json:"archived"`
	Damaged    int       `json:"damaged"`
	Unreadable int       `json:"unreadable"`
	Oldest     time.Time `json:"oldest,omitzero"` // when the first session was created
	Newest     time.Time `json:"newest,omitzero"` // when a session changed last
	// By is the label by whose values Groups is grouped, most bytes first. Sessions
	// without it are in the group with the empty name.
	By     string  `json:"by"`
	Groups []Group `json:"groups"`
	// Labels are the pairs k=v that most sessions have, k=* for a label with more than a
	// hundred values.
	Labels []Group `json:"labels"`
	// Months are those from the first to the last in which a session was created.
	Months []Month `json:"months"`
}

// Others is the name of the group for values too numerous to count individually.
const Others = "(others)"

// The bounds of what is remembered.
const (
	maxGroups = 10_000
	maxKeys   = 1000 // labels
	maxValues = 100  // of a label that are counted individually
	maxMonths = 12 * 200
	maxGap    = 12 * 10 // longest gap of empty months that is listed
	// MaxLabels is how many pairs are in a report.
	MaxLabels = 50
)

// Options are the options of [Gather].
type Options struct {
	By            string // a label; empty is tool
	Query         hansard.Query
	NoAttachments bool
	Progress      func(Count)
}

// Gather counts.
func Gather(ctx context.Context, s hansard.Store, o Options) (*Report, error) {
	g := &gathering{report: &Report{By: cmp.Or(o.By, "tool")}, groups: map[string]*Count{}, labels: map[string]*label{}, months: map[int]*Count{}}
	for info, err := range s.List(ctx, o.Query) {
		if err != nil {
			return nil, err
		}
		c := Count{Sessions: 1, Events: info.LastSeq, Bytes: info.Bytes}
		if !o.NoAttachments && info.Unreadable == "" {
			if err := attachments(ctx, s, info.ID, &c); err != nil {
				return nil, err
			}
		}
		g.take(&info, c)
		if o.Progress != nil {
			o.Progress(g.report.Total)
		}
	}
	return g.finish(), nil
}

// attachments counts what is attached to a session.
func attachments(ctx context.Context, s hansard.Store, id hansard.SessionID, c *Count) error {
	for a, err := range s.Attachments(ctx, id) {
		switch {
		case errors.Is(err, hansard.ErrDeleted), errors.Is(err, hansard.ErrNotFound), errors.Is(err, hansard.ErrDamaged), errors.Is(err, hansard.ErrUnreadable):
			return nil // the counts of the others are still useful
		case err != nil:
			return err
		}
		c.Attachments++
		c.AttachmentBytes += a.Size
	}
	return nil
}

type gathering struct {
	report *Report
	groups map[string]*Count
	labels map[string]*label
	months map[int]*Count // by year*12+month
}

// label is the count of the sessions that have a label.
type label struct {
	total  Count
	values map[string]*Count // nil if there are too many
}

func (g *gathering) takeLabel(k, v string, c Count) {
	l := g.labels[k]
	if l == nil {
		if len(g.labels) >= maxKeys {
			return
		}
		l = &label{values: map[string]*Count{}}
		g.labels[k] = l
	}
	l.total.add(c)
	if l.values == nil {
		return
	}
	if l.values[v] == nil {
		if len(l.values) == maxValues {
			l.values = nil
			return
		}
		l.values[v] = &Count{}
	}
	l.values[v].add(c)
}

// pairs are the counts of the labels, by k=v or k=*.
func (g *gathering) pairs() map[string]*Count {
	all := map[string]*Count{}
	for k, l := range g.labels {
		if l.values == nil {
			all[k+"=*"] = &l.total
		}
		for v, c := range l.values {
			all[k+"="+v] = c
		}
	}
	return all
}

// group finds a group by its name, or Others if there are too many.
func (g *gathering) group(name string) *Count {
	if g.groups[name] == nil {
		if len(g.groups) >= maxGroups && name != Others {
			return g.group(Others)
		}
		g.groups[name] = &Count{}
	}
	return g.groups[name]
}

func (g *gathering) take(info *hansard.Info, c Count) {
	r := g.report
	r.Total.add(c)
	if info.Unreadable != "" {
		r.Unreadable++
		return
	}
	for k, v := range info.Labels {
		g.takeLabel(k, v, c)
	}
	g.group(info.Labels[r.By]).add(c)
	if _, pinned := info.Labels[hansard.LabelPinned]; pinned {
		r.Pinned++
	}
	if info.Archived() {
		r.Archived++
	}
	if info.Turn != nil {
		r.Held++
	}
	if info.Damaged() {
		r.Damaged++
	}
	if info.Created.IsZero() {
		return // unknown: too damaged
	}
	if r.Oldest.IsZero() || info.Created.Before(r.Oldest) {
		r.Oldest = info.Created.UTC()
	}
	if info.Updated.After(r.Newest) {
		r.Newest = info.Updated.UTC()
	}
	month := monthOf(info.Created)
	if g.months[month] == nil {
		if len(g.months) >= maxMonths { // only wrong clocks give so many
			return
		}
		g.months[month] = &Count{}
	}
	g.months[month].add(c)
}

func monthOf(t time.Time) int {
	t = t.UTC()
	return t.Year()*12 + int(t.Month()) - 1
}

func (g *gathering) finish() *Report {
	r := g.report
	r.Groups = sorted(g.groups, func(c *Count) int64 { return c.Size() })
	r.Labels = sorted(g.pairs(), func(c *Count) int64 { return int64(c.Sessions) })
	r.Labels = r.Labels[:min(len(r.Labels), MaxLabels)]
	months := make([]int, 0, len(g.months))
	for m := range g.months {
		months = append(months, m)
	}
	slices.Sort(months)
	var total Count
	for i, m := range months {
		// Empty months are listed too; a gap of decades is a wrong clock.
		if i > 0 && m-months[i-1] <= maxGap {
			for empty := months[i-1] + 1; empty < m; empty++ {
				r.Months = append(r.Months, Month{Month: nameOf(empty), Total: total})
			}
		}
		total.add(*g.months[m])
		r.Months = append(r.Months, Month{nameOf(m), *g.months[m], total})
	}
	return r
}

func nameOf(month int) string {
	return time.Date(month/12, time.Month(month%12+1), 1, 0, 0, 0, 0, time.UTC).Format("2006-01")
}

// sorted returns groups, the largest first.
func sorted(counts map[string]*Count, size func(*Count) int64) []Group {
	groups := make([]Group, 0, len(counts))
	for name, c := range counts {
		groups = append(groups, Group{name, *c})
	}
	slices.SortFunc(groups, func(a, b Group) int {
		return cmp.Or(cmp.Compare(size(&b.Count), size(&a.Count)), cmp.Compare(a.Name, b.Name))
	})
	return groups
}
