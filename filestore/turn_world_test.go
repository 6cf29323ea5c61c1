package filestore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"hansard"
	"hansard/internal/vfs"
)

// Turns are played in virtual time: several processes of the real engine on a simulated disk,
// whose clocks move only when all of them wait. They are stopped and continued, killed and
// restarted in place, and their clocks jump, at moments chosen by a seed. What they were told is
// kept outside of the store.

// turnWorld is one schedule.
type turnWorld struct {
	disk   *vfs.Disk
	seed   uint64
	rng    *rand.Rand
	chaos  turnChaos
	clock  time.Duration // of the world; each process adds its own jump
	procs  []*turnProc
	grants map[hansard.Grant]*grantSeen
	order  []*grantSeen // the grants, in the order they were answered
	newest uint64       // number of the newest grant that was answered
	acked  map[hansard.Seq]hansard.Event
	wrong  error
	counts turnCounts
}

// turnChaos is what may happen in a world, in per mille of operations.
type turnChaos struct{ stop, kill, fault, jump int }

// turnCounts counts what happened in a world, to make sure that something did.
type turnCounts struct {
	grants, fenced, taken, stolen, moved, stops, kills, held atomic.Int64
	// outlived: a remote turn whose process was dead kept somebody out; continued: its holder
	// went on through another process; watched: it was finally taken.
	outlived, continued, watched atomic.Int64
	// A writer ended an exclusive turn: of a dead holder, or of a silent or overdue one.
	endedDead, endedSilent atomic.Int64
}

// each returns the counts by their names in a report.
func (c *turnCounts) each() map[string]*atomic.Int64 {
	return map[string]*atomic.Int64{"grant": &c.grants, "fenced write": &c.fenced, "take-over": &c.taken, "steal": &c.stolen, "move": &c.moved,
		"stop": &c.stops, "kill": &c.kills, "refusal": &c.held, "refusal for a client of a dead server": &c.outlived,
		"client that left a dead server": &c.continued, "client that never came back": &c.watched,
		"end of an exclusive turn of the dead": &c.endedDead, "end of an exclusive turn of the silent": &c.endedSilent}
}

func (c *turnCounts) add(o *turnCounts) {
	to := c.each()
	for what, n := range o.each() {
		to[what].Add(n.Load())
	}
}

// grantSeen is what callers were told about a grant.
type grantSeen struct {
	turn    hansard.Turn
	keeper  *turnProc     // nil: not certain who
	crowd   int           // processes that are renewing it; with two at once the keeper is no longer certain
	asked   time.Duration // when the acquire that gave it was invoked
	renewed time.Duration // when the last renewal that succeeded was invoked
	moved   bool          // a process other than the one it was granted to renewed it, or tried to

	answered time.Duration
	void     bool // somebody was told that it is over
	givenUp  bool // its holder began to give it up
}

// turnProc is a process of a turnWorld.
type turnProc struct {
	w      *turnWorld
	index  int
	p      *vfs.Proc
	s      *Store
	rng    *rand.Rand
	jump   time.Duration
	until  time.Duration // it sleeps until then; 0: it does not sleep
	resume time.Duration // it is stopped until then
	died   time.Duration
	gone   bool
	tag    int
	steps  int
}

const turnSession = hansard.SessionID("s")

func newTurnWorld(seed uint64, chaos turnChaos) *turnWorld {
	d := vfs.NewDisk(seed)
	d.PageSize, d.SectorSize = 512, 128
	w := &turnWorld{disk: d, seed: seed, rng: rand.New(rand.NewPCG(seed, 3)), chaos: chaos,
		grants: map[hansard.Grant]*grantSeen{}, acked: map[hansard.Seq]hansard.Event{}}
	d.OnIdle(w.passTime)
	return w
}

// passTime moves the clock to when the next process wakes up or is continued.
func (w *turnWorld) passTime() bool {
	next := time.Duration(-1)
	for _, k := range w.procs {
		at := k.until
		if k.p.Stopped() {
			at = k.resume
		}
		if !k.gone && at > 0 && (next < 0 || at < next) {
			next = at
		}
	}
	if next < 0 {
		return false
	}
	w.clock = max(w.clock, next)
	for _, k := range w.procs {
		if k.p.Stopped() && k.resume <= w.clock {
			k.p.Continue()
		}
	}
	return true
}

// start has a process of this name do a number of steps.
func (w *turnWorld) start(name string, steps int) *turnProc {
	k := w.process(name, (*turnProc).run)
	k.steps = steps
	return k
}

// process has a process of this name run a function.
func (w *turnWorld) process(name string, do func(*turnProc)) *turnProc {
	k := &turnProc{w: w, index: len(w.procs), p: w.disk.Process(name), rng: rand.New(rand.NewPCG(w.seed, uint64(len(w.procs)+10)))}
	w.procs = append(w.procs, k)
	w.disk.Go(k.p, func() {
		do(k)
		k.end()
	})
	return k
}

func (k *turnProc) end() {
	if !k.gone {
		k.p.Kill() // the end of a process, whatever it left open
		k.gone, k.died = true, k.w.clock
	}
}

// disturb stops, kills or restarts the process that has just done an operation.
func (w *turnWorld) disturb(op vfs.Op) {
	var k *turnProc
	for _, o := range w.procs {
		if o.p.Name() == op.Proc && !o.gone {
			k = o
		}
	}
	if k == nil || k.s == nil {
		return
	}
	switch r := w.rng.IntN(1000); {
	case r < w.chaos.stop:
		k.p.Stop()
		k.resume = w.clock + time.Duration(1+w.rng.IntN(800))*time.Millisecond // never 0, which is not stopped
		w.counts.stops.Add(1)
	case r < w.chaos.stop+w.chaos.kill:
		k.end()
		w.counts.kills.Add(1)
		w.start(op.Proc, k.steps) // in place, with the same name
	}
}

func (w *turnWorld) config(k *turnProc, seed uint64) config {
	rng := rand.New(rand.NewPCG(w.seed, seed))
	return config{ringSize: simRing, inline: true, random: rng.Uint64,
		now: func() time.Time { // a wall clock that nobody should trust
			return time.Date(2026, 1, 1, rng.IntN(48), 0, 0, rng.IntN(1e9), time.UTC).Truncate(time.Microsecond)
		},
		mono: func() time.Duration { return w.clock + k.jump },
		sleep: func(d time.Duration) {
			k.until = w.clock + max(d, time.Millisecond)
			_ = k.p.Await("time", func() bool { return w.clock >= k.until })
			k.until = 0
		}}
}

func (k *turnProc) fail(format string, args ...any) {
	if k.w.wrong == nil {
		k.w.wrong = fmt.Errorf("%s at %v: %w\n%s", k.p.Name(), k.w.clock, fmt.Errorf(format, args...), trace(k.w.disk, 80))
	}
}

func (k *turnProc) run() {
	s, err := open(k.p, Options{LockWait: time.Hour}, k.w.config(k, uint64(1000+k.index)))
	if err != nil {
		if !k.p.Dead() && !faulty(err) {
			k.fail("open: %v", err)
		}
		return
	}
	k.s = s
	_, err = s.Create(context.Background(), turnSession, hansard.Meta{})
	k.unexpected("create", err, hansard.ErrExists)
	for ; k.steps > 0 && !k.p.Dead(); k.steps-- {
		k.step()
	}
	if k.rng.IntN(2) == 0 && !k.p.Dead() {
		for g := range k.w.grants {
			if k.w.grants[g].keeper == k && !k.w.grants[g].turn.Remote {
				k.w.grants[g].givenUp = true
			}
		}
		k.unexpected("close", s.Close())
	}
}

// unexpected reports an error that is none of those allowed.
func (k *turnProc) unexpected(what string, err error, may ...error) {
	if err == nil || k.p.Dead() || k.w.chaos.fault > 0 && faulty(err) {
		return
	}
	for _, e := range may {
		if errors.Is(err, e) {
			return
		}
	}
	k.fail("%s: %v", what, err)
}

// play runs a schedule and examines the result.
func (w *turnWorld) play(procs, steps int) error {
	first := w.start("P0", steps)
	w.disk.OnOp(func(op vfs.Op) {
		if first.s != nil { // there is a store
			w.disturb(op)
		}
	})
	for i := 1; i < procs; i++ {
		w.start(fmt.Sprintf("P%d", i), steps)
	}
	err := w.disk.Run()
	if err = errors.Join(err, w.wrong); err == nil {
		w.disk.ClearRules()
		err = w.examine()
	}
	if err != nil {
		return fmt.Errorf("seed %d: %w", w.seed, err)
	}
	return nil
}
