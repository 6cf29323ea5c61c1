// Command bench compares Hansard with its alternatives, which are plain files, Pebble,
// bbolt, SQLite, Redis and PostgreSQL, and with the limits of the disk.
//
//	go run . -dir /srv              the table, and charts, into dist/bench
//	go run . -only w2,w3 -peers hansard,pebble -rounds 3
//	go run . -growth                how times grow with the size of the store
//	go run . -check                 whether a run meets our marks
//
// Events are of 1 KiB and durable before they are acknowledged. Peers take turns within
// a round, in a rotated order each time; the medians of the rounds are shown. Every run
// is read back and compared with what was acknowledged: a peer that loses, duplicates
// or misplaces an event ends the program.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// config is the command line.
type config struct {
	dir, out, docs, only, peers, from, program string
	rounds                                     int
	run                                        time.Duration
	growth, check, small                       bool
}

func parse(args []string, stderr io.Writer) (c config, err error) {
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(stderr)
	var names, things []string
	for _, p := range peers() {
		names = append(names, p.Name)
	}
	for _, p := range slices.Concat(parts(), growing()) {
		things = append(things, p.name)
	}
	f.StringVar(&c.dir, "dir", ".", "the `DIRECTORY` to measure in: on the disk that matters; up to 3 GB, removed at the end")
	f.StringVar(&c.out, "out", "dist/bench", "the `DIRECTORY` for results.json, performance.md and the charts")
	f.StringVar(&c.docs, "docs", "", "the `DIRECTORY` with performance.md, to put the tables and the charts there as well")
	f.StringVar(&c.only, "only", "", "measure only these, separated by commas, of: "+strings.Join(things, " "))
	f.StringVar(&c.peers, "peers", "", "measure only these, separated by commas, of: "+strings.Join(names, " "))
	f.StringVar(&c.from, "from", "", "measure nothing: take this `FILE`, a results.json, or with -growth a growth.json")
	f.StringVar(&c.program, "hansard", "", "the `PROGRAM` hansard, for the memory of a server")
	f.IntVar(&c.rounds, "rounds", 6, "how many rounds")
	f.DurationVar(&c.run, "run", 2*time.Second, "how long each peer appends in a round")
	f.BoolVar(&c.growth, "growth", false, "measure how times grow, instead of the table")
	f.BoolVar(&c.check, "check", false, "compare the table with what it has to show; not zero if something is missed")
	f.BoolVar(&c.small, "small", false, "tiny counts: to see that it works")
	if err := f.Parse(args); err != nil {
		return c, err
	}
	if f.NArg() > 0 {
		return c, fmt.Errorf("unexpected: %s", f.Arg(0))
	}
	if c.rounds < 1 || c.run <= 0 {
		return c, errors.New("-rounds and -run have to be more than 0")
	}
	if err := known("-only", c.only, things); err != nil {
		return c, err
	}
	return c, known("-peers", c.peers, names)
}

func known(name, list string, all []string) error {
	for _, word := range words(list) {
		if !slices.Contains(all, word) {
			return fmt.Errorf("%s: there is no %q; there are %s", name, word, strings.Join(all, " "))
		}
	}
	return nil
}

func words(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}

// wants returns a function that reports whether a list has a word. An empty list has all.
func wants(list string) func(string) bool {
	all := words(list)
	return func(word string) bool { return len(all) == 0 || slices.Contains(all, word) }
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	served, err := serveRole(ctx)
	if !served {
		err = run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	}
	stop()
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	c, err := parse(args, stderr)
	if err != nil {
		return err
	}
	s := fullSizes
	if c.small {
		s = smallSizes
	}
	if c.from != "" {
		return again(c, s, stdout)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	l := &lab{sizes: s, rounds: c.rounds, run: c.run, self: self, program: c.program, progress: stderr, began: time.Now()}
	l.Machine, l.When, l.Rounds = machine(), time.Now().UTC().Format(time.DateOnly), c.rounds
	for _, p := range peers() {
		if wants(c.peers)(p.Name) {
			l.peers = append(l.peers, p)
		}
	}
	if err := os.MkdirAll(c.out, 0o755); err != nil {
		return err
	}
	if err := l.open(c.dir); err != nil {
		return err
	}
	if c.growth {
		charts, err := l.growth(ctx, wants(c.only))
		if err = errors.Join(err, l.close()); err != nil {
			return err
		}
		return reportGrowth(c, charts, l.Notes, stdout)
	}
	err = l.measureAll(ctx, wants(c.only), filepath.Join(c.out, "results.json"))
	if err = errors.Join(err, l.close()); err != nil {
		return err
	}
	return report(c, s, &l.results, stdout)
}

// again reports results that were measured earlier.
func again(c config, s sizes, stdout io.Writer) error {
	if !c.growth {
		r, err := readResults(c.from)
		if err != nil {
			return err
		}
		return report(c, s, r, stdout)
	}
	text, err := os.ReadFile(c.from)
	if err != nil {
		return err
	}
	var charts []*chart
	if err := json.Unmarshal(text, &charts); err != nil {
		return fmt.Errorf("%s: %w", c.from, err)
	}
	return reportGrowth(c, charts, nil, stdout)
}

// measureAll makes the table, and saves what it has so far in a file.
func (l *lab) measureAll(ctx context.Context, wanted func(string) bool, file string) error {
	if err := l.leaveOutMissing(ctx); err != nil {
		return err
	}
	if l.tracer = findTracer(); l.tracer.name == "" {
		l.note("System calls and flushes were not counted: neither perf nor strace works here.")
	} else if l.tracer.name == "strace" {
		l.note("System calls and flushes were counted by strace, which slows processes down: groups are not as large as otherwise.")
	}
	for _, p := range parts() {
		if !wanted(p.name) {
			continue
		}
		if err := p.measure(l, ctx); err != nil {
			return err
		}
		// It takes long: whatever happens, the results so far can be shown with -from.
		if err := l.write(file); err != nil {
			return err
		}
	}
	return nil
}

// machine says what machine the numbers are from.
func machine() string {
	return fmt.Sprintf("%d cores, %s/%s, %s", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version())
}

// report prints and writes what was measured.
func report(c config, s sizes, r *results, stdout io.Writer) error {
	text := r.markdown()
	if _, err := io.WriteString(stdout, text); err != nil {
		return err
	}
	if err := os.MkdirAll(c.out, 0o755); err != nil {
		return err
	}
	files := map[string]string{"performance.md": text, "performance.svg": r.bars()}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(c.out, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	if err := r.write(filepath.Join(c.out, "results.json")); err != nil {
		return err
	}
	if c.docs != "" {
		if err := os.WriteFile(filepath.Join(c.docs, "performance.svg"), []byte(files["performance.svg"]), 0o644); err != nil {
			return err
		}
		if err := replacePart(filepath.Join(c.docs, "performance.md"), "table", text); err != nil {
			return err
		}
	}
	fmt.Fprintf(stdout, "\nwritten to %s\n", c.out)
	if !c.check {
		return nil
	}
	marks, missed := r.marked(s)
	fmt.Fprintf(stdout, "\n%s", marks)
	if missed > 0 {
		return fmt.Errorf("%d marks were missed", missed)
	}
	return nil
}

// reportGrowth writes the charts.
func reportGrowth(c config, charts []*chart, notes []string, stdout io.Writer) error {
	if err := os.MkdirAll(c.out, 0o755); err != nil {
		return err
	}
	var text strings.Builder
	for _, chart := range charts {
		fmt.Fprintf(&text, "![%s](performance/%s.svg)\n\n%s\n", chart.Title, chart.File, chart.markdown())
	}
	for _, note := range notes {
		fmt.Fprintf(&text, "- %s\n", note)
	}
	if _, err := io.WriteString(stdout, text.String()); err != nil {
		return err
	}
	points, err := json.MarshalIndent(charts, "", " ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(c.out, "growth.json"), append(points, '\n'), 0o644); err != nil {
		return err
	}
	targets := []string{c.out}
	if c.docs != "" {
		targets = append(targets, c.docs)
		if err := replacePart(filepath.Join(c.docs, "performance.md"), "growth", text.String()); err != nil {
			return err
		}
	}
	for _, target := range targets {
		if err := os.MkdirAll(filepath.Join(target, "performance"), 0o755); err != nil {
			return err
		}
		for _, chart := range charts {
			if err := os.WriteFile(filepath.Join(target, "performance", chart.File+".svg"), []byte(chart.svg()), 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// markdown is the chart as a table, for readers who can't see it.
func (c *chart) markdown() string {
	t := &table{}
	head := []string{c.Across + " (" + c.Unit + ")"}
	rows := map[float64][]string{}
	var order []float64
	for i, curve := range c.Curves {
		head = append(head, curve.Name)
		for _, p := range curve.Points {
			if rows[p.X] == nil {
				rows[p.X] = slices.Repeat([]string{unknown}, len(c.Curves)+1)
				rows[p.X][0] = thousands(p.X)
				order = append(order, p.X)
			}
			rows[p.X][i+1] = short(p.Y)
		}
	}
	t.add(head...)
	slices.Sort(order)
	for _, x := range order {
		t.add(rows[x]...)
	}
	return t.String()
}

// replacePart puts a text between two comments of a page.
func replacePart(path, name, text string) error {
	page, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	begin, end := "<!-- "+name+": made by make bench -->\n", "<!-- end of "+name+" -->"
	before, rest, ok := strings.Cut(string(page), begin)
	_, after, ended := strings.Cut(rest, end)
	if !ok || !ended {
		return fmt.Errorf("%s has no place for the %s: %s", path, name, strings.TrimSpace(begin))
	}
	return os.WriteFile(path, []byte(before+begin+"\n"+strings.TrimRight(text, "\n")+"\n\n"+end+after), 0o644)
}
