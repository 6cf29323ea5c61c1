package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"hansard/internal/bench"
)

// benchWorkerName is the hidden command with which bench starts more processes.
const benchWorkerName = "bench-worker"

func newBench(a *app) *cobra.Command {
	var dir string
	var quick bool
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure this disk, and Hansard on it",
		Long: `Measure what this disk can do, and what Hansard does on it, with events of 1 KiB that
are durable before they are acknowledged:

  raw      1 KiB written over a preallocated file, then fdatasync, again and again
  plain    one JSONL file per session: flock, append, fdatasync, unlock per event
  hansard  the file engine

plain and hansard take turns on four workloads, so that the noise of the machine
hits both alike; the medians are shown:

  w1  1 writer                     w3  64 goroutines over 1,000 sessions
  w2  64 goroutines, one session   w4  8 processes × 8 goroutines over 100 sessions

Every run is read back and compared with what was acknowledged: an event that is
missing, duplicated or out of order is an error.

It takes about two minutes, with --quick less than 30 seconds, and up to 1 GB in a
temporary directory, which is always removed. That directory is created in --dir, or
else next to the store, on the disk that matters.

--json prints one line each, {"workload","candidate","ops_s","p50_us","p99_us"}, with
rounds, ratio (against plain) and min_share (w4: the slowest process against the
mean).`,
		Example: `  hansard bench --quick
  hansard bench --dir /srv --json`,
		Args:              arguments(0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dir == "" {
				var err error
				if dir, err = a.benchDir(); err != nil {
					return err
				}
			}
			return a.bench(cmd.Context(), dir, quick)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "the `DIRECTORY` to measure in (default: where the store is)")
	cmd.Flags().BoolVar(&quick, "quick", false, "less than 30 seconds; less precise")
	return cmd
}

func newBenchWorker(a *app) *cobra.Command {
	return &cobra.Command{
		Use:    benchWorkerName,
		Hidden: true,
		Args:   arguments(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return bench.RunWorker(cmd.Context(), a.stdin, promptWriter{a.out}, bench.Plain, bench.Hansard)
		},
	}
}

// promptWriter is the output, flushed after every write: the other end waits for
// each word. It hides the buffer's other methods, which would not flush.
type promptWriter struct{ out *output }

func (w promptWriter) Write(p []byte) (int, error) {
	n, err := w.out.Write(p)
	if err == nil {
		err = w.out.Flush()
	}
	return n, err
}

// benchDir is the nearest existing directory above the store: on the disk the
// store is on, or would be.
func (a *app) benchDir() (string, error) {
	spec, err := a.storeSpec()
	if err != nil {
		return "", err
	}
	scheme, rest := splitScheme(spec)
	if scheme != "" && scheme != "file" {
		return "", &usageError{"bench measures a disk, not a server", "name a directory with --dir"}
	}
	path, err := filePath(scheme, rest)
	if err != nil {
		return "", err
	}
	if path, err = filepath.Abs(path); err != nil {
		return "", err
	}
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
			return dir, err
		}
	}
}

func (a *app) bench(ctx context.Context, dir string, quick bool) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	show := newProgress(a.stderr)
	results, err := bench.Run(ctx, bench.Config{
		Dir: dir, Quick: quick, AllowNetwork: a.allowNetwork,
		Worker:   []string{self, benchWorkerName},
		Progress: func(text string) { show.now(text) },
	})
	show.done()
	if err != nil {
		return orInterrupted(err, "nothing was measured to the end")
	}
	if a.json {
		for _, r := range results {
			if err := a.out.jsonLine(r); err != nil {
				return err
			}
		}
		return nil
	}
	return a.printBench(dir, results)
}

func (a *app) printBench(dir string, results []bench.Result) error {
	about := map[string]string{"raw": "1 KiB write + fdatasync"}
	for _, w := range bench.Workloads {
		about[w.Name] = w.About
	}
	t := &table{columns: []column{
		{name: ""}, {name: "WORKLOAD", shrink: 10}, {name: "CANDIDATE"}, {name: "APPENDS/S", right: true},
		{name: "P50", right: true}, {name: "P99", right: true}, {name: "× PLAIN", right: true},
	}}
	var notes []string
	last := ""
	for _, r := range results {
		name, what := r.Workload, about[r.Workload]
		if name == last {
			name, what = "", ""
		}
		last = r.Workload
		style, ratio := "", ""
		if r.Ratio > 0 {
			style, ratio = bold, fmt.Sprintf("%.1f", r.Ratio)
		}
		if r.MinShare > 0 {
			notes = append(notes, fmt.Sprintf("%s %s: the slowest process got %.0f %% of the mean.", r.Workload, r.Candidate, 100*r.MinShare))
		}
		t.add(style, name, what, r.Candidate, humanCount(int64(r.OpsS)), humanMicros(r.P50), humanMicros(r.P99), ratio)
	}
	fmt.Fprintf(a.out, "1 KiB events, durable before acknowledged, in %s\n\n", escapeLine(dir))
	if err := t.print(a.out); err != nil {
		return err
	}
	notes = append([]string{"Every run was read back: nothing is missing or duplicated."}, append(notes, diskInWords(results)...)...)
	_, err := fmt.Fprintf(a.out, "\n%s\n", strings.Join(notes, "\n"))
	return err
}

// diskInWords says what the disk can do, and what that means for writers.
func diskInWords(results []bench.Result) []string {
	var raw, alone, best float64
	for _, r := range results {
		switch {
		case r.Candidate == "raw":
			raw = r.OpsS
		case r.Candidate == "hansard":
			if r.Workload == "w1" {
				alone = r.OpsS
			}
			best = max(best, r.OpsS)
		}
	}
	if raw <= 0 || alone <= 0 {
		return nil
	}
	words := []string{fmt.Sprintf("This disk makes a write durable in %s, so one writer who waits can append %s times a second at most; hansard does %.0f %% of that.",
		humanMicros(1e6/raw), humanCount(int64(raw)), 100*alone/raw)}
	if best > raw {
		words = append(words, fmt.Sprintf("Writers who come at the same time share a flush: together they get up to %.0f times as much.", best/raw))
	}
	if raw > 20_000 {
		words = append(words, "A flush that takes less than 50 µs may never have reached the disk: does it, or the machine below this one, keep its promise after a power cut?")
	}
	return words
}

// humanMicros is a time given in microseconds.
func humanMicros(us float64) string {
	switch {
	case us < 1000:
		return fmt.Sprintf("%.0f µs", us)
	case us < 10_000:
		return fmt.Sprintf("%.1f ms", us/1000)
	case us < 1e6:
		return fmt.Sprintf("%.0f ms", us/1000)
	}
	return fmt.Sprintf("%.1f s", us/1e6)
}
