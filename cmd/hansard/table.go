package main

import (
	"strings"

	"github.com/mattn/go-runewidth"
)

// column is one column of a table.
type column struct {
	name  string
	right bool // numbers
	// shrink is the width below which the column is not cut; 0 is never cut.
	shrink int
}

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

// widths gives each column what its widest cell needs, and takes from those
// that may be cut, the last first, until the line fits.
func (t *table) widths(limit int) []int {
	widths := make([]int, len(t.columns))
	for i := range t.columns {
		for _, row := range t.rows {
			widths[i] = max(widths[i], runewidth.StringWidth(row[i]))
		}
		if widths[i] > 0 {
			widths[i] = max(widths[i], runewidth.StringWidth(t.columns[i].name))
		}
	}
	if limit <= 0 {
		return widths
	}
	total := -2
	for _, w := range widths {
		if w > 0 {
			total += w + 2
		}
	}
	for i := len(widths) - 1; i >= 0 && total > limit; i-- {
		if least := t.columns[i].shrink; least > 0 && widths[i] > least {
			cut := min(total-limit, widths[i]-least)
			widths[i] -= cut
			total -= cut
		}
	}
	return widths
}
