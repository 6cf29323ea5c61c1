package filestore

import (
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"

	"hansard/internal/vfs"
)

var plantNames = map[plant]string{
	plantNoSync: "no sync", plantNoDirSync: "no directory sync", plantLogBeforeSync: "log before sync",
	plantStartEarly: "start before slot", plantNoChain: "no chain", plantReplayEarly: "replay before durable",
	plantTrustControl: "control trusted", plantRetrySync: "sync retried", plantNoRewrite: "opener without rule A",
	plantNoLock: "no lock", plantHalfBatch: "half a batch read", plantCutMore: "good line cut",
	plantAppendMode: "append mode", plantNoCopy: "log not copied", plantNoAdopt: "no adoption",
	plantLostLockFile: "lock file removed",
}

// TestSimPlanted defends the simulation itself: each bug that is put in on
// purpose is found.
func TestSimPlanted(t *testing.T) {
	for p := plantNone + 1; p < plantCount; p++ {
		t.Run(plantNames[p], func(t *testing.T) {
			t.Parallel()
			found := hunt(p)
			if found == nil {
				t.Fatal("the simulation does not find it")
			}
			msg := found.Error()
			t.Logf("found: %s", msg[:min(len(msg), 200)])
		})
	}
}

// hunt tries one disaster after the other until something goes wrong.
func hunt(p plant) error {
	if p == plantCutMore {
		return tornCopy(p)
	}
	var states atomic.Int64
	for seed := range uint64(12) {
		if err := quietWorld(5000+seed, p); err != nil {
			return err
		}
		if err := huntKills(5000+seed, p); err != nil {
			return err
		}
		if err := huntSyncErrors(5000+seed, p); err != nil {
			return err
		}
		if err := cutWorld(5000+seed, p, &states); err != nil {
			return err
		}
	}
	return nil
}

func quietWorld(seed uint64, p plant) error {
	return disaster(seed, p, 3, 20, func(*vfs.Disk) {})
}

func huntKills(seed uint64, p plant) error {
	for k := 1 + int(seed%5); k <= 600; k += 5 {
		err := disaster(seed, p, 3, 10, func(d *vfs.Disk) { d.KillAt(vfs.Match{N: k}, -1) })
		if err != nil {
			return err
		}
	}
	return nil
}

// huntSyncErrors has a sync fail and the process that was told of it die at its
// next operation, so that nobody knows.
func huntSyncErrors(seed uint64, p plant) error {
	for k := 1; k <= 40; k++ {
		for _, kill := range []bool{false, true} {
			err := disaster(seed, p, 3, 10, func(d *vfs.Disk) {
				d.Inject(vfs.Match{Kind: vfs.OpSync, N: k}, vfs.Fault{Err: syscall.EIO})
				if kill {
					d.OnOp(func(op vfs.Op) {
						if op.Kind == vfs.OpSync && op.Err != nil {
							d.KillAt(vfs.Match{Proc: op.Proc}, 0)
						}
					})
				}
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// tornCopy puts a log in place that was cut in its last line, as a copy may be.
func tornCopy(p plant) error {
	w := newWorld(1)
	w.plant = p
	if err := w.play(1, 20); err != nil {
		return err
	}
	path := logPath(encodeName("a"))
	b, ok := w.disk.CacheBytes(path)
	if !ok {
		return nil
	}
	f, err := w.disk.Process("copy").Open(path, 0)
	if err != nil {
		return nil
	}
	if err := f.Truncate(int64(len(b)) - 20); err != nil {
		return nil
	}
	tail, err := readTail(f, int64(len(b))-20)
	if err != nil {
		return nil
	}
	for seq := range w.ledger.acked["a"] {
		if seq > tail.last.Seq {
			delete(w.ledger.acked["a"], seq) // the copy's loss, not ours
		}
	}
	w.ledger.seen = newLedger().seen
	w.spawn("after", 20, 7)
	if err := w.disk.Run(); err != nil {
		return err
	}
	if w.wrong != nil {
		return fmt.Errorf("after the copy: %w", w.wrong)
	}
	return w.finish()
}

// TestTornCopy: the same without the bug: nothing but what the copy lost is lost.
func TestTornCopy(t *testing.T) {
	if err := tornCopy(plantNone); err != nil {
		t.Fatal(err)
	}
}
