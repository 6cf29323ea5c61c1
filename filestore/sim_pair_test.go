package filestore

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"syscall"
	"testing"

	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

// Some bugs take two faults: one that is handled, and another that hits the handling. There are
// too many pairs of operations to try all; these are sampled.

// mishap is a fault at an operation: an error or a kill.
type mishap struct {
	at    vfs.Match
	fault *vfs.Fault // nil: the process is killed
}

func (m mishap) String() string {
	what := "kill"
	if m.fault != nil {
		what = fmt.Sprintf("%+v", *m.fault)
	}
	return fmt.Sprintf("%s at %s %d", what, m.at.Kind, m.at.N)
}

func (m mishap) arrange(d *vfs.Disk) {
	if m.fault == nil {
		d.KillAt(m.at, -1)
	} else {
		d.Inject(m.at, *m.fault)
	}
}

// pairOf chooses two mishaps for a run of this many operations. The second is usually close
// behind the first, where the error handling is. An error comes first: after a kill there is
// nothing left to go wrong.
func pairOf(rng *rand.Rand, ops int) [2]mishap {
	fault := func() *vfs.Fault {
		f := simFaults[rng.IntN(len(simFaults))]
		return &f
	}
	kinds := []vfs.Kind{0, vfs.OpChange, vfs.OpSync, vfs.OpSync} // a failed sync needs the most handling
	first := mishap{at: vfs.Match{Kind: kinds[rng.IntN(len(kinds))]}, fault: fault()}
	first.at.N = 1 + rng.IntN(ops)
	switch first.at.Kind { // about as many as there are
	case vfs.OpChange:
		first.at.N = 1 + rng.IntN(ops/3)
	case vfs.OpSync:
		first.at.N = 1 + rng.IntN(ops/12)
	}
	second := mishap{at: vfs.Match{N: 1 + rng.IntN(1<<(1+rng.IntN(8)))}}
	if rng.IntN(3) > 0 {
		second.fault = fault()
	}
	return [2]mishap{first, second}
}

// pair plays a world in which two things go wrong.
func pair(seed uint64, m [2]mishap) error {
	err := disaster(seed, 2, 6, func(d *vfs.Disk) {
		m[0].arrange(d)
		seen := 0
		d.OnOp(func(op vfs.Op) {
			if op.Proc != "P0" && op.Proc != "P1" || m[0].at.Kind != 0 && m[0].at.Kind&op.Kind == 0 {
				return // it is over and the result is being checked, or it is another kind
			}
			if seen++; seen == m[0].at.N {
				m[1].arrange(d) // counted from here on
			}
		})
	})
	if err != nil {
		return fmt.Errorf("%v, then %v: %w", m[0], m[1], err)
	}
	return nil
}

// huntPairs tries some pairs.
func huntPairs(seed uint64) error {
	rng := rand.New(rand.NewPCG(seed, 99))
	ops := opsOf(seed, 2, 6)
	for range 150 {
		if err := pair(seed, pairOf(rng, ops)); err != nil {
			return err
		}
	}
	return nil
}

// TestSimPairs defends: two faults in one run, an error followed by another error or a kill, lose
// nothing acknowledged. (P6, P7)
func TestSimPairs(t *testing.T) {
	inWorlds(t, 40, 5_000, func(t *testing.T, seed uint64, states *atomic.Int64) {
		if err := huntPairs(6000 + seed); err != nil {
			t.Error(err)
		}
		states.Add(150)
	})
}

// TestSuspectOutlives: a process whose sync of a log failed, and whose copy of the log failed as
// well, leaves. Its mark stays, because the next process's sync of that log would not report the
// error. (Found by TestSimPairs.)
func TestSuspectOutlives(t *testing.T) {
	w := newWorld(1)
	a, err := w.open(w.disk.Process("a"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := w.open(w.disk.Process("b"))
	if err != nil {
		t.Fatal(err)
	}
	say(t, a, "s", nil, "one")
	w.disk.Inject(vfs.Match{Proc: "a", Kind: vfs.OpSync, Name: sessionlog.Path("s")}, vfs.Fault{Err: syscall.EIO})
	w.disk.Inject(vfs.Match{Proc: "a", Kind: vfs.OpOpen, Name: "log.*.tmp"}, vfs.Fault{Err: syscall.EIO})
	if err := a.checkpoints.checkpoint(true); !errors.Is(err, syscall.EIO) {
		t.Fatalf("checkpoint: %v, want EIO", err)
	}
	w.disk.ClearRules()
	if err := errors.Join(a.Close(), b.checkpoints.checkpoint(true)); err != nil {
		t.Fatal(err)
	}
	w.disk.PowerCut(vfs.Cut{})
	c, err := w.open(w.disk.Process("c"))
	if err != nil {
		t.Fatal(err)
	}
	hears(t, c, "s", "one")
}
