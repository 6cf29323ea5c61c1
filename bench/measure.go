package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"hansard"
	"hansard/internal/bench"
)

// part is something that can be measured by itself.
type part struct {
	name, about string
	measure     func(*lab, context.Context) error
}

// parts are all that make the table.
func parts() (all []part) {
	for _, w := range bench.Workloads {
		all = append(all, part{w.Name, w.About, func(l *lab, ctx context.Context) error { return l.workload(ctx, w) }})
	}
	return append(all,
		part{"read", "a session of 10,000 events, and its last 50", (*lab).read},
		part{"list", "50 of 100,000 sessions", (*lab).list},
		part{"follow", "from the acknowledgement to a follower in another process", (*lab).follow},
		part{"turns", "acquire and release, alone and 8 processes at once", (*lab).turns},
		part{"create", "1,000 and 100,000 sessions made by their first append", (*lab).create},
		part{"touch", "one append to each of 100,000 sessions", (*lab).touch},
		part{"fresh", "the first append of a process", (*lab).fresh},
	)
}

func everybody(peer) bool    { return true }
func sharedOnly(p peer) bool { return p.shared }

// isOurs reports whether a peer is a store of Hansard.
func isOurs(p peer) bool { return p.Name == bench.Hansard.Name || p.Name == pgHansard.Name }

// each calls do for every peer once per round, in a rotated order each time.
func (l *lab) each(ctx context.Context, name string, rounds int, wanted func(peer) bool, do func(p peer, round int) error) error {
	for round := range rounds {
		for _, p := range l.selected(round, wanted) {
			if err := ctx.Err(); err != nil {
				return err
			}
			l.say("%s  round %d of %d  %s", name, round+1, rounds, p.Name)
			if err := do(p, round); err != nil {
				return fmt.Errorf("%s: %s: %w", name, p.Name, err)
			}
		}
	}
	return nil
}

func (l *lab) workload(ctx context.Context, w bench.Workload) error {
	j := bench.Job{Processes: w.Processes, Goroutines: w.Goroutines, Sessions: w.Sessions, Run: l.run}
	switch w.Name {
	case "w3":
		j.Sessions = l.sizes.w3Sessions
	case "w4":
		j.Sessions, j.Processes = l.sizes.w4Sessions, l.sizes.processes
	}
	wanted := everybody
	if w.Processes > 1 {
		wanted = sharedOnly
	}
	lastRound := -1
	err := l.each(ctx, w.Name, l.rounds, wanted, func(p peer, round int) error {
		if round != lastRound {
			lastRound = round
			if err := l.disk(ctx, w.Name, w.Processes*w.Goroutines); err != nil {
				return err
			}
		}
		o, err := l.append(ctx, p, w.Name, j, false)
		if err == nil {
			l.add(w.Name, p.Name, o.values())
		}
		return err
	})
	if err != nil || l.tracer.name == "" {
		return err
	}
	// Once more, only for the counts: tracing takes time.
	return l.each(ctx, w.Name+" traced", 1, wanted, func(p peer, _ int) error {
		if p.run != nil {
			return nil
		}
		o, err := l.append(ctx, p, w.Name, j, true)
		if err == nil {
			l.add(w.Name, p.Name, o.values())
		}
		return err
	})
}

// staged are the stages of peers over all rounds of a part.
type staged map[string]*stage

func (s staged) strike() error {
	var errs []error
	for _, stage := range s {
		errs = append(errs, stage.strike())
	}
	return errors.Join(errs...)
}

// prepare makes a stage for every peer, and fills it with do.
func (l *lab) prepare(ctx context.Context, name string, wanted func(peer) bool, do func(p peer, j bench.Job) error) (staged, error) {
	all := staged{}
	for _, p := range l.selected(0, wanted) {
		l.say("%s  preparing  %s", name, p.Name)
		s, err := l.stage(ctx, p, name)
		if err == nil {
			all[p.Name] = s
			err = do(p, s.job(p, bench.Job{Processes: 1, Goroutines: manyGoroutines, Sessions: 1}))
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %s: %w", name, p.Name, err), all.strike())
		}
	}
	return all, nil
}

func (l *lab) read(ctx context.Context) (err error) {
	wanted := func(p peer) bool { return p.read != nil }
	stages, err := l.prepare(ctx, "read", wanted, func(p peer, j bench.Job) error { return l.fill(ctx, p, j, l.sizes.read) })
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stages.strike()) }()
	return l.each(ctx, "read", l.rounds, wanted, func(p peer, _ int) error {
		var t readTimes
		if err := l.do(ctx, order{Task: "read", N: l.sizes.read, Job: stages[p.Name].job(p, bench.Job{Goroutines: 1, Sessions: 1})}, &t); err != nil {
			return err
		}
		all := bench.Median(t.All)
		l.add("read", p.Name, map[string]float64{p50: all, rate: float64(l.sizes.read) / all * 1e6, cpu: t.Cost, mallocs: t.Mallocs})
		l.add("last", p.Name, map[string]float64{p50: bench.Median(t.Last)})
		return nil
	})
}

// fill appends n events to session 0.
func (l *lab) fill(ctx context.Context, p peer, j bench.Job, n int) error {
	if err := p.Setup(ctx, j); err != nil {
		return err
	}
	t, err := p.Open(j)
	if err != nil {
		return err
	}
	counter := make([]int, j.Goroutines)
	err = bench.Parallel(ctx, j.Goroutines, j.Goroutines, func(g int) error {
		for i := g; i < n; i += j.Goroutines {
			if _, err := t.Append(ctx, g, 0, uint64(i+1)); err != nil {
				return err
			}
			counter[g]++
		}
		return nil
	})
	return errors.Join(err, t.Close())
}

func (l *lab) list(ctx context.Context) (err error) {
	wanted := func(p peer) bool { return isOurs(p) || p.Name == "sqlite-modernc" }
	stages, err := l.prepare(ctx, "list", wanted, func(p peer, j bench.Job) error {
		if isSQLite(p.Name) {
			return makeListSQLite(ctx, j, l.sizes.list)
		}
		j.Sessions = l.sizes.list
		return p.Setup(ctx, j)
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stages.strike()) }()
	return l.each(ctx, "list", min(l.rounds, 3), wanted, func(p peer, round int) error {
		for _, catalog := range []bool{false, true} {
			name := p.Name
			if catalog {
				if name += "+catalog"; p.Name != bench.Hansard.Name {
					continue
				}
			}
			var t listTimes
			o := order{Task: "list", N: l.sizes.list, Catalog: catalog, Job: stages[p.Name].job(p, bench.Job{})}
			if round == 0 { // the very first process makes caches: that is not what a fresh one costs
				if err := l.do(ctx, o, &t); err != nil {
					return err
				}
				l.add("list first ever", name, map[string]float64{p50: t.Fresh})
			}
			if err := l.do(ctx, o, &t); err != nil {
				return err
			}
			l.add("list fresh", name, map[string]float64{p50: t.Fresh})
			l.add("list warm", name, map[string]float64{p50: bench.Median(t.Warm)})
		}
		return nil
	})
}

func (l *lab) follow(ctx context.Context) error {
	return l.each(ctx, "follow", l.rounds, isOurs, func(p peer, _ int) (err error) {
		s, err := l.stage(ctx, p, "follow")
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.strike()) }()
		j := s.job(p, bench.Job{Goroutines: 1, Sessions: 1})
		if err := l.fill(ctx, p, j, 1); err != nil {
			return err
		}
		var seen moments
		acked, err := l.writeTo(ctx, order{Task: "follow", Job: j, N: l.sizes.follow}, &seen)
		if err != nil {
			return err
		}
		l.add("follow", p.Name, lags(acked, seen))
		return nil
	})
}

// writeTo lets one process follow and another write, and decodes what the follower saw.
func (l *lab) writeTo(ctx context.Context, o order, seen any) (acked moments, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // the other, if one fails
	follower, err := l.start(ctx, o)
	if err != nil {
		return nil, err
	}
	if err := follower.ready(); err != nil {
		return nil, err
	}
	o.Task = "write"
	writer, err := l.start(ctx, o)
	if err == nil {
		if err = writer.ready(); err == nil {
			err = errors.Join(follower.proceed(), writer.proceed())
		}
	}
	if err == nil {
		err = writer.result(&acked)
	}
	if err != nil {
		cancel()
		return nil, errors.Join(err, follower.ended(nil))
	}
	return acked, follower.result(seen)
}

// lags are how long after the acknowledgement each event was seen; 0 for one that
// was seen before it.
func lags(acked, seen moments) map[string]float64 {
	var nanos []int64
	for i := range min(len(acked), len(seen)) {
		nanos = append(nanos, max(0, seen[i]-acked[i]))
	}
	slices.Sort(nanos)
	return map[string]float64{p50: bench.Percentile(nanos, 50) / 1e3, p99: bench.Percentile(nanos, 99) / 1e3, worst: float64(slices.Max(append(nanos, 0))) / 1e3}
}

func (l *lab) turns(ctx context.Context) error {
	return l.each(ctx, "turns", l.rounds, isOurs, func(p peer, _ int) error {
		for _, processes := range []int{1, l.sizes.processes} {
			if err := l.turnsOf(ctx, p, processes); err != nil {
				return err
			}
		}
		return nil
	})
}

func (l *lab) turnsOf(ctx context.Context, p peer, processes int) (err error) {
	s, err := l.stage(ctx, p, "turns")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.strike()) }()
	name, o := "turns contended", order{Task: "turns", Job: s.job(p, bench.Job{Sessions: 1, Goroutines: 1, Run: l.run})}
	if processes == 1 {
		name, o.N = "turns alone", l.sizes.turns
	}
	if err := p.Setup(ctx, o.Job); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	children := make([]*child, processes)
	for i := range children {
		if children[i], err = l.start(ctx, o); err != nil {
			return err
		}
	}
	for _, c := range children {
		if err := c.ready(); err != nil {
			return err
		}
	}
	for _, c := range children {
		if err := c.proceed(); err != nil {
			return err
		}
	}
	total, least, most := 0, -1, 0
	var waits []int64
	var took float64 // seconds
	for _, c := range children {
		var t turnTimes
		if err := c.result(&t); err != nil {
			return err
		}
		total += t.Grants
		took = max(took, t.Took/1e6)
		waits = append(waits, t.Waits...)
		if least < 0 || t.Grants < least {
			least = t.Grants
		}
		most = max(most, t.Grants)
	}
	if err := checkTurns(ctx, o, total); err != nil {
		return err
	}
	slices.Sort(waits)
	l.add(name, p.Name, map[string]float64{rate: float64(total) / took, p50: bench.Percentile(waits, 50) / 1e3, p99: bench.Percentile(waits, 99) / 1e3,
		worst: float64(slices.Max(append(waits, 0))) / 1e3, share: float64(least) / float64(max(most, 1))})
	return nil
}

// checkTurns checks that the session has a record of each grant and of each release, by
// their number.
func checkTurns(ctx context.Context, o order, grants int) error {
	s, err := openStore(o)
	if err != nil {
		return err
	}
	defer s.Close()
	n := 0
	for _, err := range s.Read(ctx, bench.SessionID(0), hansard.Range{Kinds: []string{hansard.KindTurn}}) {
		if err != nil {
			return err
		}
		n++
	}
	if n != 2*grants {
		return fmt.Errorf("%d grants and releases are recorded, of %d grants", n, grants)
	}
	return nil
}

// onceRounds is the number of rounds of these: they take long, and their worst value matters.
const onceRounds = 3

func (l *lab) create(ctx context.Context) error {
	for _, n := range []int{l.sizes.create, l.sizes.touch} {
		name := "create " + thousands(float64(n))
		j := bench.Job{Processes: 1, Goroutines: manyGoroutines, Sessions: n, Once: true, Create: true}
		if err := l.once(ctx, name, isOurs, j); err != nil {
			return err
		}
	}
	return nil
}

func (l *lab) touch(ctx context.Context) error {
	j := bench.Job{Processes: 1, Goroutines: manyGoroutines, Sessions: l.sizes.touch, Once: true}
	wanted := func(p peer) bool {
		return !p.manyFiles && p.Name != pgNaive.Name && p.Name != pgInsert.Name && p.run == nil
	}
	return l.once(ctx, "touch "+thousands(float64(l.sizes.touch)), wanted, j)
}

func (l *lab) once(ctx context.Context, name string, wanted func(peer) bool, j bench.Job) error {
	return l.each(ctx, name, min(l.rounds, onceRounds), wanted, func(p peer, _ int) error {
		// The disk has bad moments of its own: measure its worst in the same minutes.
		s, err := bench.RunRaw(ctx, l.dir, l.sizes.probeRun, bench.RawWrite)
		if err != nil {
			return err
		}
		l.add(name, diskPeer, rawValues(s))
		o, err := l.append(ctx, p, "once", j, false)
		if err == nil {
			l.add(name, p.Name, o.values())
		}
		return err
	})
}

func (l *lab) fresh(ctx context.Context) (err error) {
	// On files: a process that is new to a server's database has nothing to catch up on.
	wanted := func(p peer) bool { return p.Name == ours }
	stages, err := l.prepare(ctx, "fresh", wanted, func(p peer, j bench.Job) error {
		j.Sessions = len(l.sizes.fresh)
		if err := p.Setup(ctx, j); err != nil {
			return err
		}
		s, err := openStore(order{Job: j})
		if err != nil {
			return err
		}
		for i, n := range l.sizes.fresh {
			if err == nil {
				err = growSession(ctx, s, i, n)
			}
		}
		return errors.Join(err, s.Close())
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stages.strike()) }()
	return l.each(ctx, "fresh", max(l.rounds, 5), wanted, func(p peer, round int) error {
		for i, n := range l.sizes.fresh {
			for _, key := range []string{"", fmt.Sprintf("fresh-%d", round)} {
				var t firstTimes
				if err := l.do(ctx, order{Task: "first", Session: i, Key: key, Job: stages[p.Name].job(p, bench.Job{})}, &t); err != nil {
					return err
				}
				if int(t.Seq) <= n {
					return fmt.Errorf("the first append got seq %d in a session of %d", t.Seq, n)
				}
				l.add(freshName(n, key != ""), p.Name, map[string]float64{p50: t.Whole, appendOnly: t.Append})
			}
		}
		return nil
	})
}

func freshName(events int, keyed bool) string {
	if keyed {
		return "fresh keyed " + thousands(float64(events))
	}
	return "fresh " + thousands(float64(events))
}
