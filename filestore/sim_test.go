package filestore

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"

	"hansard"
	"hansard/internal/vfs"
)

const cutWorlds = 16

// faulty tells whether an error is one that injected faults cause.
func faulty(err error) bool {
	for _, e := range []error{syscall.EIO, syscall.ENOSPC, syscall.EDQUOT, syscall.EINTR, syscall.EMFILE,
		hansard.ErrNoSpace, hansard.ErrFailed, hansard.ErrUnknown, vfs.ErrCrashed} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// scale is how much more a long run does: HANSARD_TORTURE=10 is ten times.
func scale(n int) int {
	if f, err := strconv.Atoi(os.Getenv("HANSARD_TORTURE")); err == nil && f > 0 {
		return n * f
	}
	return n
}

// TestSimPlain: without any disaster everything is stored as it was told.
func TestSimPlain(t *testing.T) {
	for seed := range uint64(scale(40)) {
		w := newWorld(seed)
		w.play(t, 3, 25)
		if w.ledger.acks < 20 {
			t.Errorf("seed %d: only %d appends were acknowledged", seed, w.ledger.acks)
		}
		if err := w.check(w.disk, "check"); err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, trace(w.disk, 40))
		}
	}
}

// TestSimPowerCut cuts the power after every operation that changes the disk,
// with any part of what is not synced surviving, and again inside recovery.
func TestSimPowerCut(t *testing.T) {
	var states atomic.Int64
	t.Run("worlds", func(t *testing.T) {
		for seed := range uint64(scale(cutWorlds)) {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				w := newWorld(1000 + seed)
				w.disk.Writeback = int(seed % 3 * 5)
				failed, version := false, uint64(0)
				w.disk.OnOp(func(op vfs.Op) {
					if failed || w.disk.Version() == version {
						return // it would leave the same
					}
					version = w.disk.Version()
					for i, keep := range []int{0, 30, 70, 100} {
						c := vfs.Cut{Keep: keep, Seed: uint64(op.N*4 + i)}
						if err := w.cutAndCheck(c, op.N%7 == 0, &states); err != nil {
							t.Errorf("seed %d: power cut after operation %d, %+v: %v\n%s", w.seed, op.N, c, err, trace(w.disk, 40))
							failed = true
							return
						}
					}
				})
				w.play(t, 3, 20)
			})
		}
	})
	t.Logf("%d states", states.Load())
	if n := states.Load(); n < int64(scale(50_000)) && !t.Failed() {
		t.Errorf("only %d power cuts were tried", n)
	}
}

// cutAndCheck looks at what a power cut now would leave, on a clone; twice: a
// second cut may hit the recovery.
func (w *world) cutAndCheck(c vfs.Cut, again bool, states *atomic.Int64) error {
	d := w.disk.Clone()
	d.PowerCut(c)
	if again {
		n := 1 + int(c.Seed*7919%60)
		d.CutAt(vfs.Match{Kind: vfs.OpChange, N: n}, vfs.Cut{Keep: int(c.Seed * 31 % 101), Seed: c.Seed})
		s, err := w.open(d.Process("first"))
		if err == nil {
			_ = s.Close()
		}
		d.ClearRules()
		states.Add(1)
	}
	states.Add(1)
	return w.check(d, "check")
}

// TestSimKill kills a process before every operation, in the middle of writes
// too; the others go on, a new one comes, and at the end the power is cut.
func TestSimKill(t *testing.T) {
	var states atomic.Int64
	t.Run("worlds", func(t *testing.T) {
		for seed := range uint64(scale(4)) {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				probe := newWorld(2000 + seed)
				probe.play(t, 3, 12)
				for k := 1; k <= probe.disk.Ops() && !t.Failed(); k++ {
					w := newWorld(2000 + seed)
					w.disk.KillAt(vfs.Match{N: k}, -1)
					w.play(t, 3, 12)
					states.Add(1)
					w.finish(t, fmt.Sprintf("killed before operation %d", k))
				}
			})
		}
	})
	t.Logf("%d kills", states.Load())
}

// finish compares a world as it is, and after a power cut of all that was not
// synced.
func (w *world) finish(t *testing.T, what string) {
	t.Helper()
	d := w.disk.Clone()
	d.ClearRules()
	d.PowerCut(vfs.Cut{})
	if err := w.check(d, "after"); err != nil {
		t.Fatalf("seed %d: %s, then a power cut: %v\n%s", w.seed, what, err, trace(w.disk, 80))
	}
	w.disk.ClearRules()
	if err := w.check(w.disk, "check"); err != nil {
		t.Fatalf("seed %d: %s: %v\n%s", w.seed, what, err, trace(w.disk, 80))
	}
}

// TestSimErrors has operations fail, once or from then on until the fault is
// over; then everything must work again without a restart.
func TestSimErrors(t *testing.T) {
	faults := []vfs.Fault{
		{Err: syscall.EIO}, {Err: syscall.EIO, Part: -1}, {Err: syscall.EIO, Keep: 50}, {Err: syscall.EIO, Done: true},
		{Err: syscall.ENOSPC}, {Err: syscall.ENOSPC, Part: -1}, {Err: syscall.EINTR}, {Err: syscall.EMFILE},
		{Err: syscall.EIO, Always: true}, {Err: syscall.ENOSPC, Always: true},
	}
	var states atomic.Int64
	t.Run("worlds", func(t *testing.T) {
		for seed := range uint64(scale(2)) {
			for f, fault := range faults {
				t.Run(fmt.Sprintf("%d/%d", seed, f), func(t *testing.T) {
					t.Parallel()
					probe := newWorld(3000 + seed)
					probe.play(t, 2, 12)
					for k := 1; k <= probe.disk.Ops() && !t.Failed(); k++ {
						w := newWorld(3000 + seed)
						w.disk.Inject(vfs.Match{N: k}, fault)
						w.play(t, 2, 12)
						states.Add(1)
						w.finish(t, fmt.Sprintf("%+v at operation %d", fault, k))
					}
				})
			}
		}
	})
	t.Logf("%d faults", states.Load())
	if n := states.Load(); n < int64(scale(20_000)) && !t.Failed() {
		t.Errorf("only %d faults were tried", n)
	}
}
