package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"hansard/internal/bench"
)

// diskPeer is the disk itself, which bounds all peers.
const diskPeer = "disk"

// sizes are the amounts that are measured.
type sizes struct {
	w3Sessions, w4Sessions, processes int
	read, list, create, touch         int
	fresh                             []int
	follow, turns                     int
	rawRun, probeRun                  time.Duration
	growth                            growthSizes
}

var fullSizes = sizes{w3Sessions: 1000, w4Sessions: 100, processes: 8, read: 10_000, list: 100_000, create: 1000, touch: 100_000,
	fresh: []int{10, 100_000, 1_000_000}, follow: 500, turns: 1000, rawRun: 500 * time.Millisecond, probeRun: 5 * time.Second, growth: fullGrowth}

// smallSizes are for tests: everything is done, and nothing takes long.
var smallSizes = sizes{w3Sessions: 20, w4Sessions: 10, processes: 3, read: 120, list: 100, create: 20, touch: 100,
	fresh: []int{10, 50, 100}, follow: 5, turns: 5, rawRun: 5 * time.Millisecond, probeRun: 5 * time.Millisecond, growth: smallGrowth}

// lab is where things are measured.
type lab struct {
	results
	sizes    sizes
	rounds   int
	run      time.Duration
	dir      string // for everything, removed at the end
	peers    []peer
	self     string // this program
	program  string // the hansard command, for what needs a server; may be empty
	tracer   tracer
	progress io.Writer
	began    time.Time
}

func (l *lab) say(format string, args ...any) {
	fmt.Fprintf(l.progress, "%6.0f s  %s\n", time.Since(l.began).Seconds(), fmt.Sprintf(format, args...))
}

// leaveOutMissing leaves out the peers whose server can't be started.
func (l *lab) leaveOutMissing(ctx context.Context) error {
	var there []peer
	for _, p := range l.peers {
		if p.serve != nil {
			dir, err := os.MkdirTemp(l.dir, "try-")
			if err != nil {
				return err
			}
			s, err := p.serve(ctx, dir)
			if err == nil {
				err = s.stop()
			}
			if p.Name == pgBench.Name && err == nil {
				_, err = pgbenchProgram()
			}
			if err != nil {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				l.note(fmt.Sprintf("%s was not measured: %v", p.Name, err))
				l.say("without %s: %v", p.Name, err)
				continue
			}
			if err := os.RemoveAll(dir); err != nil {
				return err
			}
		}
		there = append(there, p)
	}
	l.peers = there
	return nil
}

// selected are the peers that take part in a task. Their order is rotated in every round, so
// that no peer always comes first.
func (l *lab) selected(round int, wanted func(peer) bool) (out []peer) {
	for _, p := range l.peers {
		if wanted(p) {
			out = append(out, p)
		}
	}
	if len(out) > 0 {
		at := round % len(out)
		out = slices.Concat(out[at:], out[:at])
	}
	return out
}

// stage is a peer with a directory and, if it needs one, a server.
type stage struct {
	dir    string
	server *server
}

// stage makes one for a run, which has to strike it afterwards.
func (l *lab) stage(ctx context.Context, p peer, task string) (*stage, error) {
	dir, err := os.MkdirTemp(l.dir, task+"-"+p.Name+"-")
	if err != nil {
		return nil, err
	}
	s := &stage{dir: dir}
	if p.serve != nil {
		if s.server, err = p.serve(ctx, dir); err != nil {
			return nil, errors.Join(err, os.RemoveAll(dir))
		}
	}
	return s, nil
}

func (s *stage) strike() error {
	var err error
	if s.server != nil {
		err = s.server.stop()
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}

func (s *stage) job(p peer, j bench.Job) bench.Job {
	j.Candidate, j.Dir = p.Name, s.dir
	if s.server != nil {
		j.Address = s.server.address
	}
	return j
}

// outcome is the result of one run.
type outcome struct {
	samples   []bench.Sample
	serverCPU time.Duration
	counts    *counts // if it was traced
}

// append runs one job of one peer: sets up, measures, checks and cleans up.
func (l *lab) append(ctx context.Context, p peer, task string, j bench.Job, traced bool) (o outcome, err error) {
	s, err := l.stage(ctx, p, task)
	if err != nil {
		return o, err
	}
	defer func() { err = errors.Join(err, s.strike()) }()
	j = s.job(p, j)
	if err := p.Setup(ctx, j); err != nil {
		return o, fmt.Errorf("making the sessions: %w", err)
	}
	var stop func() (counts, error)
	var before time.Duration
	hooks := bench.Hooks{
		Ready: func(pids []int) (err error) {
			all := func() []int { return pids }
			if s.server != nil {
				all = func() []int { return append(slices.Clone(pids), family(s.server.pid)...) }
				before = familyCPU(s.server.pid)
			}
			if traced {
				stop, err = l.tracer.attach(all, s.dir)
			}
			return err
		},
		Done: func() error {
			if s.server != nil {
				o.serverCPU = familyCPU(s.server.pid) - before
			}
			if stop == nil {
				return nil
			}
			c, err := stop()
			o.counts = &c
			return err
		},
	}
	if p.run != nil {
		if err := hooks.Ready(nil); err != nil {
			return o, err
		}
		if o.samples, err = p.run(ctx, j); err != nil {
			return o, err
		}
		return o, hooks.Done()
	}
	if o.samples, err = bench.RunProcesses(ctx, []string{l.self, roleWorker}, j, hooks); err != nil {
		return o, err
	}
	if err := p.Check(ctx, j, bench.AcksBySession(j, o.samples)); err != nil {
		return o, fmt.Errorf("after the run: %w", err)
	}
	return o, nil
}

// values are the numbers of an outcome.
func (o *outcome) values() map[string]float64 {
	var nanos []int64
	var longest time.Duration
	var cost bench.Cost
	least, most := -1, 0
	for _, s := range o.samples {
		n := len(s.Nanos)
		if least < 0 || n < least {
			least = n
		}
		most = max(most, n)
		nanos = append(nanos, s.Nanos...)
		longest = max(longest, s.Elapsed)
		cost.CPU += s.Cost.CPU
		cost.Mallocs += s.Cost.Mallocs
		cost.Bytes += s.Cost.Bytes
	}
	n := float64(max(len(nanos), 1))
	if o.counts != nil {
		return map[string]float64{calls: o.counts.calls / n, flushes: o.counts.flushes / n}
	}
	slices.Sort(nanos)
	v := map[string]float64{rate: float64(len(nanos)) / longest.Seconds(), cpu: micros(cost.CPU+o.serverCPU) / n}
	if o.serverCPU > 0 {
		v[serverCPU] = micros(o.serverCPU) / n
	}
	if cost.Mallocs > 0 { // unknown for programs in other languages, as are the times of single appends
		v[mallocs], v[allocated] = float64(cost.Mallocs)/n, float64(cost.Bytes)/n
		v[p50], v[p99] = bench.Percentile(nanos, 50)/1e3, bench.Percentile(nanos, 99)/1e3
		v[worst] = float64(slices.Max(append(nanos, 0))) / 1e3
	}
	if len(o.samples) > 1 {
		v[share] = float64(least) / float64(max(most, 1))
	}
	return v
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

// disk measures what the disk can do for this many writers whose events go into one write.
func (l *lab) disk(ctx context.Context, task string, writers int) error {
	s, err := bench.RunRaw(ctx, l.dir, l.sizes.rawRun, writers*bench.RawWrite)
	if err != nil {
		return fmt.Errorf("disk: %w", err)
	}
	v := rawValues(s)
	v[rate] *= float64(writers)
	v[flushes] = 1 / float64(writers)
	l.add(task, diskPeer, v)
	return nil
}

func rawValues(s bench.Sample) map[string]float64 {
	slices.Sort(s.Nanos)
	return map[string]float64{rate: float64(len(s.Nanos)) / s.Elapsed.Seconds(), p50: bench.Percentile(s.Nanos, 50) / 1e3,
		p99: bench.Percentile(s.Nanos, 99) / 1e3, worst: float64(slices.Max(append(s.Nanos, 0))) / 1e3}
}

// open makes the directory of a lab. PostgreSQL, if it is measured, runs in it too.
func (l *lab) open(parent string) error {
	dir, err := os.MkdirTemp(parent, "hansard-bench-")
	if err != nil {
		return fmt.Errorf("making a directory to measure in: %w", err)
	}
	if l.dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	postgres.dir = l.dir
	return os.Chmod(l.dir, 0o755) // PostgreSQL runs as another user
}

func (l *lab) close() error {
	removePostgres()
	return os.RemoveAll(l.dir)
}
