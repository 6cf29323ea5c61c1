package filestore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"hansard"
	"hansard/filestore/internal/peers"
	"hansard/internal/vfs"
)

// faulty reports whether an error may be caused by injected faults.
func faulty(err error) bool {
	for _, e := range []error{syscall.EIO, syscall.ENOSPC, syscall.EDQUOT, syscall.EINTR, syscall.EMFILE,
		hansard.ErrNoSpace, hansard.ErrFailed, hansard.ErrUnknown, vfs.ErrCrashed} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// scale is how much more a long run does: HANSARD_TORTURE=10 means ten times as much.
func scale(n int) int {
	if f, err := strconv.Atoi(os.Getenv("HANSARD_TORTURE")); err == nil && f > 0 {
		return n * f
	}
	return n
}

// Simulation is the prefix of the names of simulations: tests in which everything happens on a
// simulated disk and in virtual time, one goroutine at a time. TestOnlySimulationsAreLeftOut
// checks that. They are not run under the race detector: see TestMain.
const Simulation = "TestSim"

// Alone is the pattern of the tests that are not run under the race detector, because they
// let one goroutine run at a time and would take it long: the simulations, and others that
// read or damage much on a simulated disk. TestOnlySimulationsAreLeftOut checks all of them.
const Alone = "^(" + Simulation + "|Test(" +
	"GrowthKeys|GrowthStat|GrowthReverse|GrowthPage|GrowthFirstAppend|Failure55_MetadataOnLargeEvents|Failure60_KeyedAppendsToManySessions|" +
	"Failure60_KeysReadUnderTheLock|RepairJournal|RepairJournalCut|ListEqualsRebuild|KeysMany|MetaFolds|DamagedLongLog|DamagedJournal|" +
	"ReverseMeetsDamage|ContextBoundsReading|NamesReadOnce|ListCache|RunsOfTwoProcesses)$)"

// inWorlds runs fn for each seed, several at once, and requires at least this many states.
func inWorlds(t *testing.T, worlds, want int, fn func(t *testing.T, seed uint64, states *atomic.Int64)) {
	if !strings.HasPrefix(t.Name(), Simulation) {
		t.Fatalf("a test that plays so many worlds is called %s…, or the race detector will take an hour for it", Simulation)
	}
	var states atomic.Int64
	t.Run("seed", func(t *testing.T) {
		for seed := range uint64(scale(worlds)) {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				fn(t, seed, &states)
			})
		}
	})
	t.Logf("%d states", states.Load())
	if n := states.Load(); n < int64(scale(want)) && !t.Failed() {
		t.Errorf("only %d states were tried, want %d", n, scale(want))
	}
}

// TestSimPlain: without any disaster everything is stored as acknowledged, and no outcome is
// unknown.
func TestSimPlain(t *testing.T) {
	inWorlds(t, 40, 800, func(t *testing.T, seed uint64, states *atomic.Int64) {
		w := newWorld(seed)
		w.calm = true
		err := w.play(3+int(seed%4), 25)
		states.Add(int64(w.ledger.acks))
		if err == nil {
			err = w.check(w.disk, "check")
		}
		if err != nil {
			t.Errorf("seed %d: %v\n%s", w.seed, err, trace(w.disk, 60))
		}
	})
}

// TestWorldsApart: worlds played at the same time share nothing but what is guarded. Its name
// does not mark it as a simulation, so that the race detector sees one.
func TestWorldsApart(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			w := newWorld(seed)
			if err := errors.Join(w.play(3, 25), w.finish()); err != nil {
				t.Errorf("seed %d: %v\n%s", w.seed, err, trace(w.disk, 60))
			}
		})
	}
}

// cutWorld plays a world. After every operation that changes the disk it checks what a power cut
// would leave, with any part of the unsynced data surviving, and now and then with a second cut
// during recovery.
func cutWorld(seed uint64, states *atomic.Int64) error {
	w := newWorld(seed)
	w.disk.Writeback = int(seed % 3 * 5)
	found := w.cutEverywhere(states)
	err := w.play(3, 20)
	return errors.Join(*found, err)
}

// cutEverywhere checks every later state as a power cut would leave it. The result is the first
// error found.
func (w *world) cutEverywhere(states *atomic.Int64) *error {
	found := new(error)
	version, acks := uint64(0), 0
	w.disk.OnOp(func(op vfs.Op) {
		if *found != nil || w.disk.Version() == version && w.ledger.acks == acks {
			return // the result would be the same, and nobody was told more
		}
		version, acks = w.disk.Version(), w.ledger.acks
		for i, keep := range []int{0, 30, 70, 100} {
			c := vfs.Cut{Keep: keep, Seed: uint64(op.N*4 + i)}
			if err := w.cutAndCheck(c, op.N%7 == 0, states); err != nil {
				*found = fmt.Errorf("seed %d: power cut after operation %d, %+v: %w\n%s", w.seed, op.N, c, err, trace(w.disk, 40))
				return
			}
		}
	})
	return found
}

// cutAndCheck checks what a power cut now would leave, on a clone; a second cut may hit the
// recovery.
func (w *world) cutAndCheck(c vfs.Cut, again bool, states *atomic.Int64) error {
	d := w.disk.Clone()
	d.PowerCut(c)
	if again {
		n := 1 + int(c.Seed*7919%60)
		d.CutAt(vfs.Match{Kind: vfs.OpChange, N: n}, vfs.Cut{Keep: int(c.Seed * 31 % 101), Seed: c.Seed})
		if s, err := w.open(d.Process("first")); err == nil {
			_ = s.Close()
		}
		d.ClearRules()
		states.Add(1)
	}
	states.Add(1)
	return w.check(d, "check")
}

// TestSimPowerCut defends: whatever was acknowledged or shown to a reader is there after a power
// cut at any moment, also during recovery. (P2, P3, P6, P9)
func TestSimPowerCut(t *testing.T) {
	inWorlds(t, 16, 50_000, func(t *testing.T, seed uint64, states *atomic.Int64) {
		if err := cutWorld(1000+seed, states); err != nil {
			t.Error(err)
		}
	})
}

// disaster plays a world in which something happens at operation k.
func disaster(seed uint64, procs, steps int, what func(*vfs.Disk)) error {
	w := newWorld(seed)
	return w.strike(procs, steps, what)
}

func (w *world) strike(procs, steps int, what func(*vfs.Disk)) error {
	what(w.disk)
	err := w.play(procs, steps)
	if err == nil {
		err = w.finish()
	}
	if err != nil {
		return fmt.Errorf("seed %d: %w\n%s", w.seed, err, trace(w.disk, 80))
	}
	return nil
}

// opsOf is how many operations a world has without a disaster.
func opsOf(seed uint64, procs, steps int) int {
	w := newWorld(seed)
	_ = w.play(procs, steps)
	return w.disk.Ops()
}

// TestSimKill defends: killing a process before any operation, or in the middle of a write, loses
// nothing acknowledged, and the others go on. (P6)
func TestSimKill(t *testing.T) {
	inWorlds(t, 3, 1_500, func(t *testing.T, seed uint64, states *atomic.Int64) {
		seed += 2000
		ops := opsOf(seed, 3, 10)
		for k := 1 + int(seed%3); k <= ops; k += 3 {
			err := disaster(seed, 3, 10, func(d *vfs.Disk) { d.KillAt(vfs.Match{N: k}, -1) })
			if states.Add(1); err != nil {
				t.Fatalf("killed before operation %d: %v", k, err)
			}
		}
	})
}

var simFaults = []vfs.Fault{
	{Err: syscall.EIO}, {Err: syscall.EIO, Part: -1}, {Err: syscall.EIO, Keep: 50}, {Err: syscall.EIO, Done: true},
	{Err: syscall.ENOSPC}, {Err: syscall.ENOSPC, Part: -1}, {Err: syscall.EINTR}, {Err: syscall.EMFILE},
	{Err: syscall.EIO, Always: true}, {Err: syscall.ENOSPC, Always: true},
}

// TestSimErrors defends: whatever operation fails, once or until the fault is over, callers get
// an error, nothing acknowledged is lost, and afterwards everything works again without a
// restart. (P7)
func TestSimErrors(t *testing.T) {
	inWorlds(t, 30, 20_000, func(t *testing.T, seed uint64, states *atomic.Int64) {
		fault := simFaults[seed%uint64(len(simFaults))]
		seed = 3000 + seed/uint64(len(simFaults))
		ops := opsOf(seed, 2, 5)
		for k := 1; k <= ops; k++ {
			err := disaster(seed, 2, 5, func(d *vfs.Disk) {
				d.Inject(vfs.Match{N: k}, fault)
				if fault.Always && k%2 == 0 {
					d.OnOp(func(op vfs.Op) { // the fault ends in the middle of the work
						if op.N == k+5+k%40 {
							d.ClearRules()
						}
					})
				}
			})
			if states.Add(1); err != nil {
				t.Fatalf("%+v at operation %d: %v", fault, k, err)
			}
		}
	})
}

// TestSimStop defends: a process stopped at any operation blocks no reader, and no writer unless
// it is inside write.lock. (invariant 19)
func TestSimStop(t *testing.T) {
	inWorlds(t, 6, 1_000, func(t *testing.T, seed uint64, states *atomic.Int64) {
		seed += 4000
		ops := opsOf(seed, 1, 8)
		for k := 1 + int(seed%4); k <= ops; k += 2 {
			if err := stopped(seed, k); err != nil {
				t.Fatalf("stopped before operation %d: %v", k, err)
			}
			states.Add(1)
		}
	})
}

// stopped stops one process at its k-th operation while another works and a third reads.
func stopped(seed uint64, k int) error {
	w := newWorld(seed)
	inLock := false
	w.disk.OnOp(func(op vfs.Op) {
		if op.Proc == "P0" && op.Name == peers.WriteLock && op.Err == nil {
			switch op.Kind {
			case vfs.OpLock:
				inLock = true
			case vfs.OpUnlock:
				inLock = false
			}
		}
	})
	w.disk.StopAt(vfs.Match{Proc: "P0", N: k})
	victim, other := w.spawn("P0", 8, 100), w.spawn("P1", 8, 101)
	reader := &worker{w: w, p: w.disk.Process("reader")}
	w.disk.Go(reader.p, func() {
		s, err := w.openWith(reader.p, Options{ReadOnly: true, MustExist: true})
		for _, id := range simSessions {
			if err == nil { // else there is no store yet
				reader.s = s
				reader.read(context.Background(), id)
			}
		}
		reader.done = true
	})
	var held error
	w.disk.OnIdle(func() bool {
		if !victim.p.Stopped() {
			return false
		}
		if !reader.done || !other.done && !inLock {
			held = fmt.Errorf("it holds up others: reader done %v, writer done %v, in write.lock %v", reader.done, other.done, inLock)
		}
		victim.p.Continue()
		return true
	})
	err := w.disk.Run()
	if err = errors.Join(held, err, w.wrong); err == nil {
		err = w.finish()
	}
	if err != nil {
		return fmt.Errorf("seed %d: %w\n%s", seed, err, trace(w.disk, 60))
	}
	return nil
}

// TestSimFinish defends: three processes have written a group each, the first of them in the
// belief that it is alone. Whatever the order in which they sync, publish and look, with up to
// three switches, each is told that its event is stored. Random schedules hardly ever meet the few
// orders in which one process overwrites what another has just relied on.
func TestSimFinish(t *testing.T) {
	inWorlds(t, 1, 10_000, func(t *testing.T, seed uint64, states *atomic.Int64) {
		c := &vfs.Chooser{Limit: 3}
		for more := true; more; more = c.Next() {
			if err := finishedBy(c); err != nil {
				t.Fatalf("%v, in the order %v", err, c.Taken())
			}
			states.Add(1)
		}
	})
}

// finishedBy has three processes write a group each, and then finish it in the order that the
// chooser gives.
func finishedBy(c *vfs.Chooser) error {
	d := vfs.NewDisk(7)
	var stores []*Store
	var groups []*group
	for i := range 3 {
		s, err := open(d.Process(fmt.Sprintf("P%d", i)), Options{}, simConfig(uint64(i), simRing))
		if err == nil {
			_, err = s.Append(context.Background(), "a", hansard.Batch{Create: true, Events: []hansard.Event{text("first")}})
		}
		if err != nil {
			return err
		}
		stores = append(stores, s)
	}
	for i, s := range stores {
		r := newAppend("a", &hansard.Batch{Events: []hansard.Event{text("next")}})
		r.done = make(chan struct{}, 1)
		s.committer.queue.waiting = append(s.committer.queue.waiting, r)
		g := s.committer.writeGroup()
		g.alone = i == 0
		groups = append(groups, g)
	}
	d.Schedule(c)
	for i, s := range stores {
		d.Go(s.fs.(*vfs.Proc), func() { s.committer.finishGroup(groups[i]) })
	}
	err := d.Run()
	for i, g := range groups {
		r := g.requests[0]
		if err = errors.Join(err, r.err); r.receipt.Last != hansard.Seq(4+i) {
			err = fmt.Errorf("process %d was told %+v: %w", i, r.receipt, err)
		}
	}
	if got, cutErr := afterCut(d, "a"); got != "first first first next next next" {
		err = errors.Join(err, fmt.Errorf("after a power cut %q: %v", got, cutErr))
	}
	return err
}
