package main

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"hansard/internal/bench"
)

// thousands is a number as people read it.
func thousands(x float64) string {
	s := fmt.Sprintf("%.0f", x)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// short is a small number with as many digits as are significant.
func short(x float64) string {
	switch {
	case x == 0:
		return "0"
	case x >= 100:
		return thousands(x)
	case x >= 10:
		return fmt.Sprintf("%.0f", x)
	case x >= 1:
		return fmt.Sprintf("%.1f", x)
	case x >= 0.1:
		return fmt.Sprintf("%.2f", x)
	}
	return fmt.Sprintf("%.3f", x)
}

// duration is a time given in µs.
func duration(us float64) string {
	switch {
	case us < 1000:
		return short(us) + " µs"
	case us < 1e6:
		return short(us/1e3) + " ms"
	}
	return short(us/1e6) + " s"
}

const unknown = "–"

// cell is the median of a value as text.
func (r *results) cell(task, peer, value string, format func(float64) string) string {
	m, ok := r.median(task, peer, value)
	if !ok {
		return unknown
	}
	return format(m)
}

// table is a Markdown table with aligned columns, so that its source is readable.
type table struct{ rows [][]string }

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) String() string {
	if len(t.rows) < 2 {
		return ""
	}
	widths := make([]int, len(t.rows[0]))
	for _, row := range t.rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for n, row := range t.rows {
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i == 0 {
				cell += pad
			} else {
				cell = pad + cell
			}
			b.WriteString("| " + cell + " ")
		}
		b.WriteString("|\n")
		if n > 0 {
			continue
		}
		for i, width := range widths {
			if i == 0 {
				b.WriteString("|" + strings.Repeat("-", width+2))
			} else {
				b.WriteString("|" + strings.Repeat("-", width+1) + ":")
			}
		}
		b.WriteString("|\n")
	}
	return b.String()
}

// markdown is everything that was measured.
func (r *results) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s; medians of %d rounds.\n", r.Machine, r.Rounds)
	if t := r.overview().String(); t != "" {
		fmt.Fprintf(&b, "\nAppends a second (in brackets the CPU time of one, in µs, of all processes):\n\n%s", t)
	}
	for _, w := range bench.Workloads {
		if t := r.details(w.Name).String(); t != "" {
			fmt.Fprintf(&b, "\n**%s: %s.**\n\n%s", w.Name, w.About, t)
		}
	}
	if t := r.others().String(); t != "" {
		fmt.Fprintf(&b, "\n**Everything else.**\n\n%s", t)
	}
	for i, note := range r.Notes {
		if i == 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "- %s\n", note)
	}
	return b.String()
}

func workloadNames() (names []string) {
	for _, w := range bench.Workloads {
		names = append(names, w.Name)
	}
	return names
}

func (r *results) overview() *table {
	t := &table{}
	names := r.peersOf(workloadNames()...)
	t.add(append([]string{""}, names...)...)
	for _, w := range bench.Workloads {
		row := []string{w.Name + ": " + w.About}
		measured := false
		for _, name := range names {
			cell := r.cell(w.Name, name, rate, thousands)
			measured = measured || cell != unknown
			if used := r.cell(w.Name, name, cpu, short); used != unknown {
				cell += " (" + used + ")"
			}
			row = append(row, cell)
		}
		if measured {
			t.add(row...)
		}
	}
	return t
}

func (r *results) details(task string) *table {
	t := &table{}
	t.add("", "appends/s", "hansard is ×", "p50", "p99", "CPU µs", "of it server", "allocations", "bytes", "system calls", "flushes", "slowest/fastest process")
	for _, name := range r.peersOf(task) {
		against := unknown
		if ratio, ok := r.ratio(task, bench.Hansard.Name, name, rate); ok && name != bench.Hansard.Name {
			against = fmt.Sprintf("%.2f", ratio)
		}
		t.add(name, r.cell(task, name, rate, thousands), against, r.cell(task, name, p50, duration), r.cell(task, name, p99, duration), r.cell(task, name, cpu, short),
			r.cell(task, name, serverCPU, short), r.cell(task, name, mallocs, short), r.cell(task, name, allocated, thousands), r.cell(task, name, calls, short),
			r.cell(task, name, flushes, short), r.cell(task, name, share, short))
	}
	return t
}

// line is a row of the second table: a task, and which of its values are shown.
type line struct {
	task, about string
	values      []string
}

func (r *results) others() *table {
	lines := []line{
		{"read", "read a session of 10,000 events, decoded", []string{p50, cpu, mallocs}},
		{"last", "read its last 50", []string{p50}},
		{"list warm", "list 50 of 100,000 sessions", []string{p50}},
		{"list fresh", "the same, first thing in a process", []string{p50}},
		{"list first ever", "the same, first process ever", []string{p50}},
		{"follow", "follow: acknowledgement to another process", []string{p50, p99}},
		{"turns alone", "turn: acquire and release, alone", []string{rate, p50, p99}},
		{"turns contended", "turn: 8 processes at once", []string{rate, p50, p99, share}},
	}
	for _, row := range r.Rows {
		switch {
		case strings.HasPrefix(row.Task, "create "):
			lines = appendLine(lines, line{row.Task, "create sessions by their first append: " + row.Task[7:], []string{rate, p99, worst}})
		case strings.HasPrefix(row.Task, "touch "):
			lines = appendLine(lines, line{row.Task, "append once to each of " + row.Task[6:] + " sessions", []string{rate, p99, worst}})
		case strings.HasPrefix(row.Task, "fresh keyed "):
			lines = appendLine(lines, line{row.Task, "first append of a process, with a key, events: " + row.Task[12:], []string{p50, appendOnly}})
		case strings.HasPrefix(row.Task, "fresh "):
			lines = appendLine(lines, line{row.Task, "first append of a process, events: " + row.Task[6:], []string{p50, appendOnly}})
		}
	}
	t := &table{}
	t.add("", "", "a second", "p50", "p99", "worst", "without opening", "slowest/fastest", "CPU µs an event", "allocations")
	for _, l := range lines {
		for i, name := range r.peersOf(l.task) {
			about := l.about
			if i > 0 {
				about = ""
			}
			cell := func(value string, format func(float64) string) string {
				for _, v := range l.values {
					if v == value {
						return r.cell(l.task, name, value, format)
					}
				}
				return ""
			}
			t.add(about, name, cell(rate, thousands), cell(p50, duration), cell(p99, duration), cell(worst, duration), cell(appendOnly, duration), cell(share, short), cell(cpu, short), cell(mallocs, short))
		}
	}
	return t
}

func appendLine(lines []line, l line) []line {
	for _, known := range lines {
		if known.task == l.task {
			return lines
		}
	}
	return append(lines, l)
}
