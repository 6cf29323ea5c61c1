// Package bench measures what a disk can do and how much of it Hansard uses: it is the
// small benchmark of the command, and has the parts that the large one, the module in
// bench/, shares with it.
//
// Three candidates take turns, so that noise on the machine affects all of them:
//
//   - raw: a preallocated file, one 1 KiB write and one fdatasync after the other.
//   - plain: one JSONL file per session; for every event flock, append,
//     fdatasync, unlock. What one would write without Hansard, if done right.
//   - hansard: the file engine.
//
// Every event is about 1 KiB on disk and durable before it is acknowledged. After each
// run the disk is checked for everything that was acknowledged: each event once, none
// missing, and Hansard's seqs 1 … n.
package bench

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"
)

// Config says where and how long to measure. Dir and Worker are required.
type Config struct {
	Dir          string // a temporary directory is made in it, and removed
	Quick        bool   // within 30 seconds instead of about two minutes
	AllowNetwork bool
	// Worker is the command line that makes another process call RunWorker.
	Worker []string
	// Progress is called with what is being measured. May be nil.
	Progress func(string)
}

// Result is the median of the rounds of one candidate on one workload.
type Result struct {
	Workload  string  `json:"workload"`
	Candidate string  `json:"candidate"`
	OpsS      float64 `json:"ops_s"`
	P50       float64 `json:"p50_us"`
	P99       float64 `json:"p99_us"`
	Rounds    int     `json:"rounds"`
	// Ratio is OpsS against that of plain, on hansard's results.
	Ratio float64 `json:"ratio,omitempty"`
	// MinShare is the share of the slowest process relative to the mean of all, in
	// the worst round; only if there are several.
	MinShare float64 `json:"min_share,omitempty"`
}

// Workload is how many processes and goroutines write to how many sessions.
type Workload struct {
	Name, About                     string
	Processes, Goroutines, Sessions int // goroutines of each process
}

// Workloads are the four that are measured.
var Workloads = []Workload{
	{"w1", "1 writer", 1, 1, 1},
	{"w2", "64 goroutines, 1 session", 1, 64, 1},
	{"w3", "64 goroutines, 1,000 sessions", 1, 64, 1000},
	{"w4", "8 processes × 8 goroutines, 100 sessions", 8, 8, 100},
}

// plan is how the time is spent: the number of rounds and their length; fewer rounds if
// the budget runs out, but never less than one.
type plan struct {
	rounds      int
	run, rawRun time.Duration
	budget      time.Duration
}

var (
	fullPlan  = plan{rounds: 5, run: 2 * time.Second, rawRun: 400 * time.Millisecond, budget: 110 * time.Second}
	quickPlan = plan{rounds: 3, run: 400 * time.Millisecond, rawRun: 150 * time.Millisecond, budget: 22 * time.Second}
)

// Run measures everything and returns the results, raw first. The temporary directory is
// removed in any case, even if the context ends.
func Run(ctx context.Context, cfg Config) (results []Result, err error) {
	p := fullPlan
	if cfg.Quick {
		p = quickPlan
	}
	return measure(ctx, cfg, p, Workloads)
}

func measure(ctx context.Context, cfg Config, p plan, workloads []Workload) (results []Result, err error) {
	dir, err := os.MkdirTemp(cfg.Dir, "hansard-bench-")
	if err != nil {
		return nil, fmt.Errorf("making a directory to measure in: %w", err)
	}
	defer func() {
		if rmErr := os.RemoveAll(dir); err == nil && rmErr != nil {
			err = fmt.Errorf("removing what was measured: %w", rmErr)
		}
	}()
	if dir, err = filepath.Abs(dir); err != nil { // workers get the path
		return nil, err
	}
	start := time.Now()
	raw := &series{workload: "raw", candidate: "raw"}
	for i, w := range workloads {
		plain, ours := &series{workload: w.Name, candidate: "plain"}, &series{workload: w.Name, candidate: "hansard"}
		until := p.budget * time.Duration(i+1) / time.Duration(len(workloads))
		for round := 0; round < p.rounds && (round == 0 || time.Since(start) < until); round++ {
			cfg.progress("%s  %s  round %d of %d", w.Name, w.About, round+1, p.rounds)
			r := &runner{cfg: cfg, plan: p, dir: dir}
			if err := r.round(ctx, w, raw, plain, ours); err != nil {
				return nil, err
			}
		}
		results = append(results, plain.result(), ours.result())
		results[len(results)-1].Ratio = round(ours.result().OpsS/plain.result().OpsS, 2)
	}
	return append([]Result{raw.result()}, results...), nil
}

func (c *Config) progress(format string, args ...any) {
	if c.Progress != nil {
		c.Progress(fmt.Sprintf(format, args...))
	}
}

// runner measures single runs, each in a directory of its own.
type runner struct {
	cfg  Config
	plan plan
	dir  string
}

// round lets each candidate run once.
func (r *runner) round(ctx context.Context, w Workload, raw, plain, ours *series) error {
	s, err := RunRaw(ctx, r.dir, r.plan.rawRun, RawWrite)
	if err != nil {
		return fmt.Errorf("raw: %w", err)
	}
	raw.add([]Sample{s})
	for _, c := range []struct {
		Candidate
		*series
	}{{Plain, plain}, {Hansard, ours}} {
		samples, err := r.run(ctx, w, c.Candidate)
		if err != nil {
			return fmt.Errorf("%s %s: %w", w.Name, c.Name, err)
		}
		c.series.add(samples)
	}
	return nil
}

// run makes the sessions, measures, checks and cleans up.
func (r *runner) run(ctx context.Context, w Workload, c Candidate) (samples []Sample, err error) {
	dir, err := os.MkdirTemp(r.dir, w.Name+"-"+c.Name+"-")
	if err != nil {
		return nil, err
	}
	defer func() {
		if rmErr := os.RemoveAll(dir); err == nil {
			err = rmErr
		}
	}()
	j := Job{Candidate: c.Name, Dir: dir, Processes: w.Processes, Goroutines: w.Goroutines, Sessions: w.Sessions,
		Run: r.plan.run, AllowNetwork: r.cfg.AllowNetwork}
	if err := c.Setup(ctx, j); err != nil {
		return nil, fmt.Errorf("making the sessions: %w", err)
	}
	runtime.GC() // this run must not pay for the garbage of the last
	if w.Processes > 1 {
		samples, err = RunProcesses(ctx, r.cfg.Worker, j, Hooks{})
	} else {
		samples, err = RunHere(ctx, c, j)
	}
	if err != nil {
		return nil, err
	}
	if err := c.Check(ctx, j, AcksBySession(j, samples)); err != nil {
		return nil, fmt.Errorf("after the run: %w", err)
	}
	return samples, nil
}

// RunHere measures in this process.
func RunHere(ctx context.Context, c Candidate, j Job) ([]Sample, error) {
	t, err := c.Open(j)
	if err != nil {
		return nil, err
	}
	var s Sample
	warm, err := warmUp(ctx, t, j)
	if err == nil {
		s, err = drive(ctx, t, j)
		s.Warm = warm
	}
	if closeErr := t.Close(); err == nil {
		err = closeErr
	}
	return []Sample{s}, err
}

// series collects the rounds of one candidate on one workload.
type series struct {
	workload, candidate string
	ops, p50, p99       []float64
	minShare            float64
}

// add takes the samples of one round, one per process.
func (s *series) add(samples []Sample) {
	total, least := 0, -1
	var longest time.Duration
	var nanos []int64
	for _, sample := range samples {
		n := len(sample.Nanos)
		total += n
		if least < 0 || n < least {
			least = n
		}
		longest = max(longest, sample.Elapsed)
		nanos = append(nanos, sample.Nanos...)
	}
	slices.Sort(nanos)
	s.ops = append(s.ops, float64(total)/longest.Seconds())
	s.p50 = append(s.p50, Percentile(nanos, 50)/1e3)
	s.p99 = append(s.p99, Percentile(nanos, 99)/1e3)
	if len(samples) > 1 && total > 0 {
		share := float64(least) * float64(len(samples)) / float64(total)
		if len(s.ops) == 1 || share < s.minShare {
			s.minShare = share
		}
	}
}

func (s *series) result() Result {
	return Result{Workload: s.workload, Candidate: s.candidate, Rounds: len(s.ops),
		OpsS: round(Median(s.ops), 1), P50: round(Median(s.p50), 1), P99: round(Median(s.p99), 1), MinShare: round(s.minShare, 3)}
}

// round keeps this many decimals; more would only look precise.
func round(x float64, decimals int) float64 {
	scale := math.Pow10(decimals)
	return math.Round(x*scale) / scale
}

// Percentile is the value at or above p percent of the sorted values.
func Percentile(sorted []int64, p int) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return float64(sorted[min(len(sorted)-1, len(sorted)*p/100)])
}

// Median is the middle of some values; there has to be at least one.
func Median[T cmp.Ordered](values []T) T {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
