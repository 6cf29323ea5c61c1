package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"hansard"
	"hansard/client"
	"hansard/filestore"
	"hansard/internal/bench"
)

// growthSizes are the points of the charts.
type growthSizes struct{ events, sessions, keys, processes, followers, touched []int }

var (
	fullGrowth = growthSizes{events: []int{10, 100, 1000, 10_000, 100_000, 1_000_000}, sessions: []int{10, 100, 1000, 10_000, 100_000},
		keys: []int{10, 1000, 10_000, 100_000, 1_000_000}, processes: []int{1, 2, 4, 8, 16, 32}, followers: []int{1, 10, 100, 1000},
		touched: []int{1, 1000, 10_000, 100_000}}
	smallGrowth = growthSizes{events: []int{10, 60}, sessions: []int{10, 20}, keys: []int{10, 20}, processes: []int{1, 2}, followers: []int{1, 3}, touched: []int{1, 10}}
)

// growing are the charts, by the names that select them.
func growing() []part {
	return []part{
		{"events", "events of a session", nil}, {"sessions", "sessions of a store", nil}, {"keys", "keys of a session", nil},
		{"processes", "processes that write", nil}, {"followers", "followers of a session", nil}, {"memory", "sessions that a server has touched", nil},
	}
}

// growth measures the charts, for Hansard only: they show what grows with what, not who is
// faster.
func (l *lab) growth(ctx context.Context, wanted func(name string) bool) (charts []*chart, err error) {
	for _, g := range []struct {
		name  string
		chart func(context.Context) ([]*chart, error)
	}{
		{"events", l.growEvents}, {"sessions", l.growSessions}, {"keys", l.growKeys}, {"processes", l.growProcesses}, {"followers", l.growFollowers}, {"memory", l.growMemory},
	} {
		if !wanted(g.name) {
			continue
		}
		l.say("growth  %s", g.name)
		more, err := g.chart(ctx)
		if err != nil {
			return nil, fmt.Errorf("growth: %s: %w", g.name, err)
		}
		charts = append(charts, more...)
	}
	return charts, nil
}

var hansardPeer = peer{Candidate: bench.Hansard, shared: true, read: readHansard}

// grown makes a store whose one session gets larger and larger, and calls at for each size.
func (l *lab) grown(ctx context.Context, name string, sizes []int, at func(j bench.Job, n int) error) (err error) {
	s, err := l.stage(ctx, hansardPeer, name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.strike()) }()
	j := s.job(hansardPeer, bench.Job{Processes: 1, Goroutines: 1, Sessions: 1, Run: l.run})
	if err := bench.Hansard.Setup(ctx, j); err != nil {
		return err
	}
	for _, n := range sizes {
		l.say("growth  %s  %s", name, thousands(float64(n)))
		store, err := filestore.Open(j.Dir, bench.FileOptions(j))
		if err != nil {
			return err
		}
		if err = errors.Join(growSession(ctx, store, 0, n), store.Close()); err != nil {
			return err
		}
		if err := at(j, n); err != nil {
			return err
		}
	}
	return nil
}

func (l *lab) growEvents(ctx context.Context) ([]*chart, error) {
	c := &chart{File: "events", Title: "Events of a session: the first things a fresh process does", Across: "events in the session", Unit: "ms, opening included"}
	err := l.grown(ctx, "events", l.sizes.growth.events, func(j bench.Job, n int) error {
		var plain, keyed, last []float64
		for i := range max(3, l.rounds) {
			for _, key := range []string{"", fmt.Sprintf("first-%d-%d", n, i)} {
				var t firstTimes
				if err := l.do(ctx, order{Task: "first", Key: key, Job: j}, &t); err != nil {
					return err
				}
				if key == "" {
					plain, last = append(plain, t.Whole), append(last, t.Last)
				} else {
					keyed = append(keyed, t.Whole)
				}
			}
		}
		c.add("append", float64(n), bench.Median(plain)/1e3)
		c.add("append with a key", float64(n), bench.Median(keyed)/1e3)
		c.add("then its last 50", float64(n), bench.Median(last)/1e3)
		return nil
	})
	return []*chart{c}, err
}

func (l *lab) growSessions(ctx context.Context) ([]*chart, error) {
	speed := &chart{File: "sessions", Title: "Sessions of a store: 64 goroutines append to any of them", Across: "sessions in the store", Unit: "µs of CPU an append"}
	list := &chart{File: "list", Title: "Sessions of a store: a fresh process lists 50", Across: "sessions in the store", Unit: "ms, opening included"}
	for _, n := range l.sizes.growth.sessions {
		l.say("growth  sessions  %s", thousands(float64(n)))
		o, err := l.append(ctx, hansardPeer, "sessions", bench.Job{Processes: 1, Goroutines: manyGoroutines, Sessions: n, Run: l.run}, false)
		if err != nil {
			return nil, err
		}
		v := o.values()
		speed.add("µs of CPU", float64(n), v[cpu])
		if err := l.listOf(ctx, list, n); err != nil {
			return nil, err
		}
	}
	return []*chart{speed, list}, nil
}

func (l *lab) listOf(ctx context.Context, c *chart, n int) (err error) {
	s, err := l.stage(ctx, hansardPeer, "list")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.strike()) }()
	j := s.job(hansardPeer, bench.Job{Sessions: n})
	if err := bench.Hansard.Setup(ctx, j); err != nil {
		return err
	}
	for _, catalog := range []bool{false, true} {
		name := "the library alone"
		if catalog {
			name = "with the catalog, as the command"
		}
		var all []float64
		for i := range max(2, min(l.rounds, 4)) {
			var t listTimes
			if err := l.do(ctx, order{Task: "list", N: n, Catalog: catalog, Job: j}, &t); err != nil {
				return err
			}
			if i > 0 { // the first makes caches
				all = append(all, t.Fresh)
			}
		}
		c.add(name, float64(n), bench.Median(all)/1e3)
	}
	return nil
}

func (l *lab) growKeys(ctx context.Context) ([]*chart, error) {
	c := &chart{File: "keys", Title: "Keys of a session: 64 goroutines append with new ones", Across: "keys in the session", Unit: "µs of CPU an append"}
	err := l.grown(ctx, "keys", l.sizes.growth.keys, func(j bench.Job, n int) error {
		var t keyedTimes
		if err := l.do(ctx, order{Task: "keyed", Key: fmt.Sprintf("at-%d", n), Job: j}, &t); err != nil {
			return err
		}
		c.add("µs of CPU", float64(n), t.CPU/float64(max(t.Appends, 1)))
		return nil
	})
	return []*chart{c}, err
}

func (l *lab) growProcesses(ctx context.Context) ([]*chart, error) {
	speed := &chart{File: "processes", Title: "Processes that write, 8 goroutines each, to 100 sessions", Across: "processes", Unit: "appends a second"}
	costs := &chart{File: "processes-cpu", Title: "Processes that write: what an append costs", Across: "processes", Unit: "µs of CPU an append, of all processes"}
	for _, n := range l.sizes.growth.processes {
		l.say("growth  processes  %d", n)
		o, err := l.append(ctx, hansardPeer, "processes", bench.Job{Processes: n, Goroutines: 8, Sessions: l.sizes.w4Sessions, Run: l.run}, false)
		if err != nil {
			return nil, err
		}
		v := o.values()
		speed.add("appends a second", float64(n), v[rate])
		costs.add("µs of CPU", float64(n), v[cpu])
	}
	return []*chart{speed, costs}, nil
}

func (l *lab) growFollowers(ctx context.Context) ([]*chart, error) {
	lag := &chart{File: "followers", Title: "Followers of a session in one process, the writer in another: when they know", Across: "followers", Unit: "µs after the acknowledgement"}
	costs := &chart{File: "followers-cpu", Title: "Followers of a session: what an event costs", Across: "followers", Unit: "µs of CPU an event and follower"}
	for _, n := range l.sizes.growth.followers {
		l.say("growth  followers  %d", n)
		if err := l.followersOf(ctx, lag, costs, n); err != nil {
			return nil, err
		}
	}
	return []*chart{lag, costs}, nil
}

func (l *lab) followersOf(ctx context.Context, lag, costs *chart, n int) (err error) {
	s, err := l.stage(ctx, hansardPeer, "followers")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.strike()) }()
	j := s.job(hansardPeer, bench.Job{Goroutines: 1, Sessions: 1})
	if err := l.fill(ctx, hansardPeer, j, 1); err != nil {
		return err
	}
	var seen followersSeen
	events := max(l.sizes.follow/5, 1)
	acked, err := l.writeTo(ctx, order{Task: "followers", Job: j, N: events, Session: n}, &seen)
	if err != nil {
		return err
	}
	var medians []float64
	for _, m := range seen.Last {
		medians = append(medians, lags(acked, m)[p50])
	}
	slices.Sort(medians)
	lag.add("the median follower", float64(n), bench.Median(medians))
	lag.add("the slowest", float64(n), medians[len(medians)-1])
	costs.add("µs of CPU", float64(n), seen.CPU/float64(events*n))
	return nil
}

var serving = regexp.MustCompile(`^serving (http://\S+?)/?\s*$`)

// growMemory touches more and more sessions through one server and records its memory.
func (l *lab) growMemory(ctx context.Context) (charts []*chart, err error) {
	if l.program == "" {
		l.note("the memory of a server was not measured: -hansard names no program")
		return nil, nil
	}
	dir, err := os.MkdirTemp(l.dir, "memory-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	const token = "hansard-bench-token-hansard-bench-token"
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte(token), 0o600); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, l.program, "serve", "--store", filepath.Join(dir, "store"), "--listen", "127.0.0.1:0", "--token-from", secret)
	cmd.Stderr = l.progress
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	defer func() {
		err = errors.Join(err, cmd.Process.Signal(os.Interrupt))
		_ = cmd.Wait() // how it ended no longer matters
	}()
	address := ""
	lines := bufio.NewScanner(out)
	for address == "" && lines.Scan() {
		if m := serving.FindStringSubmatch(lines.Text()); m != nil {
			address = m[1]
		}
	}
	if address == "" {
		return nil, fmt.Errorf("%s serve did not say where it serves", l.program)
	}
	go func() {
		for lines.Scan() { // it may write more
		}
	}()
	store, err := client.New(address, &client.Options{Token: token})
	if err != nil {
		return nil, err
	}
	defer store.Close()
	c := &chart{File: "memory", Title: "Memory of a server", Across: "sessions that were appended to", Unit: "MB resident"}
	from := 0
	for _, n := range l.sizes.growth.touched {
		l.say("growth  memory  %s sessions", thousands(float64(n)))
		err := bench.Parallel(ctx, manyGoroutines, n-from, func(i int) error {
			_, err := store.Append(ctx, bench.SessionID(from+i), hansard.Batch{Create: true, Events: []hansard.Event{hansard.Message("user", "hello")}})
			return err
		})
		if err != nil {
			return nil, err
		}
		from = n
		kb, err := residentKB(cmd.Process.Pid)
		if err != nil {
			return nil, err
		}
		c.add("at once", float64(n), kb/1024)
		select { // garbage is returned to the system within a minute
		case <-time.After(min(20*l.run, 30*time.Second)):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if kb, err = residentKB(cmd.Process.Pid); err != nil {
			return nil, err
		}
		c.add("half a minute later", float64(n), kb/1024)
	}
	return []*chart{c}, nil
}
