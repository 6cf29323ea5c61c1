package main

import (
	"slices"
	"strings"

	"github.com/mattn/go-runewidth"
)

// column is one column of a table.
type column struct {
	name  string
	right bool // numbers
	// shrink is the width below which the column is not cut; 0 is never cut.
	shrink int
	// drop is the order in which columns are dropped if lines are still too long, 1
	// first; 0 is never. The last one is cut further before it is dropped.
	drop int
}

// narrowest is the width below which a column is useless.
const narrowest = 8

// table lays out rows in columns as wide as they need, or as the terminal allows.
// Cells must be single lines without control characters: see escapeLine.
type table struct {
	columns []column
	rows    [][]string
	styles  []string // per row; "" is plain
}

func (t *table) add(style string, cells ...string) {
	t.rows = append(t.rows, cells)
	t.styles = append(t.styles, style)
}

// print writes the table. Columns without any content are left out.
func (t *table) print(o *output) error {
	widths := t.widths(o.width)
	header := make([]string, len(t.columns))
	for i, c := range t.columns {
		header[i] = c.name
	}
	if err := t.printRow(o, dim, header, widths); err != nil {
		return err
	}
	for i, row := range t.rows {
		if err := t.printRow(o, t.styles[i], row, widths); err != nil {
			return err
		}
	}
	return nil
}

func (t *table) printRow(o *output, style string, row []string, widths []int) error {
	var b strings.Builder
	pending := 0 // spaces owed before the next cell, so that no line ends in them
	for i, cell := range row {
		if widths[i] == 0 {
			continue
		}
		cell = runewidth.Truncate(cell, widths[i], "…")
		gap := widths[i] - runewidth.StringWidth(cell)
		if t.columns[i].right {
			pending, gap = pending+gap, 0
		}
		if cell != "" {
			b.WriteString(strings.Repeat(" ", pending))
			b.WriteString(cell)
			pending = 0
		}
		pending += gap + 2
	}
	_, err := o.WriteString(o.paint(style, b.String()) + "\n")
	return err
}

// widths gives each column what its widest cell needs. If the line does not fit, it
// cuts the cells that may be cut, the last column first; if that is not enough, it
// drops the least important column, and begins again.
func (t *table) widths(limit int) []int {
	needed := make([]int, len(t.columns))
	for i := range t.columns {
		for _, row := range t.rows {
			needed[i] = max(needed[i], runewidth.StringWidth(row[i]))
		}
		if needed[i] > 0 {
			needed[i] = max(needed[i], runewidth.StringWidth(t.columns[i].name))
		}
	}
	for {
		widths, over := t.fit(needed, limit)
		drop, others := t.nextDrop(needed)
		if over <= 0 || drop < 0 {
			return widths
		}
		if cut := widths[drop] - over; !others && t.columns[drop].shrink > 0 && cut >= narrowest {
			widths[drop] = cut
			return widths
		}
		needed[drop] = 0
	}
}

// fit cuts columns until the line fits, and returns by how much it is still too
// long.
func (t *table) fit(needed []int, limit int) (widths []int, over int) {
	widths = slices.Clone(needed)
	total := -2
	for _, w := range widths {
		if w > 0 {
			total += w + 2
		}
	}
	if limit <= 0 {
		return widths, 0
	}
	for i := len(widths) - 1; i >= 0 && total > limit; i-- {
		if least := t.columns[i].shrink; least > 0 && widths[i] > least {
			cut := min(total-limit, widths[i]-least)
			widths[i] -= cut
			total -= cut
		}
	}
	return widths, total - limit
}

// nextDrop is the column to drop next, -1 if there is none, and whether there are
// others after it.
func (t *table) nextDrop(widths []int) (next int, others bool) {
	next = -1
	for i, c := range t.columns {
		if widths[i] == 0 || c.drop == 0 {
			continue
		}
		others = next >= 0
		if next < 0 || c.drop < t.columns[next].drop {
			next = i
		}
	}
	return next, others
}
