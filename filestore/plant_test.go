package filestore

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"

	"hansard/internal/vfs"
)

var plantNames = map[plant]string{
	plantNoSync: "no sync", plantNoDirSync: "no directory sync", plantLogBeforeSync: "log before sync",
	plantNoChain: "no chain", plantReplayEarly: "replay before durable", plantHeldEarly: "holder told before his grant is durable",
	plantTrustControl: "control trusted", plantRetrySync: "sync retried", plantNoRewrite: "opener without rule A",
	plantNoLock: "no lock", plantHalfBatch: "half a batch read", plantCutMore: "good line cut",
	plantAppendMode: "append mode", plantNoCopy: "log not copied",
	plantLostLockFile: "lock file removed",
	plantNoFence:      "no fence", plantFenceByNumber: "grants compared by number", plantErrorIsDead: "error taken for death",
	plantGrantEarly: "grant before durable", plantLeaseLate: "lease after its grant",
	plantNoCatchup:  "late rotation not caught up with",
	plantPastEnd:    "written past the end of the ring",
	plantRemoteDead: "client dead with its server", plantSilentEarly: "silent too early",
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

// hunt tries the disasters that a bug should show in, for seed after seed, until
// something goes wrong.
func hunt(p plant) error {
	var disasters []func(seed uint64, p plant) error
	switch p {
	case plantCutMore:
		return tornCopy(p)
	case plantFenceByNumber:
		return restoredLog(p)
	case plantNoFence, plantErrorIsDead, plantLeaseLate, plantRemoteDead, plantSilentEarly:
		disasters = append(disasters, huntTurns)
	case plantHeldEarly:
		disasters = append(disasters, huntTold)
	case plantNoRewrite:
		disasters = append(disasters, huntLateComer)
	case plantNoCopy:
		disasters = append(disasters, huntSyncErrors)
	case plantRetrySync:
		disasters = append(disasters, huntCutAfterSyncError)
	case plantAppendMode:
		disasters = append(disasters, huntKills)
	case plantNoLock, plantLostLockFile:
		disasters = append(disasters, quietWorld)
	case plantHalfBatch:
		disasters = append(disasters, huntReaders)
	case plantNoCatchup:
		disasters = append(disasters, huntPairs)
	case plantReplayEarly:
		disasters = append(disasters, huntSharedKeys)
	case plantPastEnd:
		disasters = append(disasters, func(seed uint64, p plant) error { return cutGroups(seed, p, new(atomic.Int64)) })
	default:
		var states atomic.Int64
		disasters = append(disasters, func(seed uint64, p plant) error { return cutWorld(seed, p, &states) })
	}
	for seed := range uint64(120) {
		for _, d := range disasters {
			if err := d(5000+seed, p); err != nil {
				return err
			}
		}
	}
	return nil
}

// huntCutAfterSyncError has a sync of the ring fail, and cuts the power
// everywhere after it.
func huntCutAfterSyncError(seed uint64, p plant) error {
	for k := 4; k <= 12; k++ {
		w := newWorld(seed)
		w.plant = p
		w.disk.Inject(vfs.Match{Kind: vfs.OpSync, Name: journalName, N: k}, vfs.Fault{Err: syscall.EIO})
		var states atomic.Int64
		var found *error
		w.disk.OnOp(func(op vfs.Op) {
			if op.Kind == vfs.OpSync && op.Err != nil && found == nil {
				found = w.cutEverywhere(&states)
			}
		})
		err := w.play(2, 6)
		if found != nil {
			err = errors.Join(*found, err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// huntLateComer has a sync fail, the process that was told of it die, the other
// one stop, and a third one join and write, before the power is cut: nobody
// tells the third one that the ring lost what is before its entries.
func huntLateComer(seed uint64, p plant) error {
	for k := 4; k <= 30; k++ {
		w := newWorld(seed)
		w.plant = p
		w.disk.Inject(vfs.Match{Kind: vfs.OpSync, Name: journalName, N: k}, vfs.Fault{Err: syscall.EIO})
		both := []*worker{w.spawn("P0", 10, 100), w.spawn("P1", 10, 101)}
		var late *worker
		w.disk.OnOp(func(op vfs.Op) {
			if op.Kind != vfs.OpSync || op.Err == nil || late != nil {
				return
			}
			w.disk.KillAt(vfs.Match{Proc: op.Proc}, 0)
			for _, k := range both {
				if k.p.Name() != op.Proc {
					k.p.Stop()
				}
			}
			late = w.spawn("late", 6, 102)
		})
		var found error
		w.disk.OnIdle(func() bool {
			if late != nil && late.done && found == nil {
				d := w.disk.Clone()
				d.PowerCut(vfs.Cut{})
				found = w.check(d, "after")
			}
			stopped := false
			for _, k := range both {
				stopped = stopped || k.p.Stopped()
				k.p.Continue()
			}
			return stopped
		})
		if err := errors.Join(w.disk.Run(), found, w.wrong); err != nil {
			return fmt.Errorf("seed %d: sync %d fails, a third process joins: %w\n%s", seed, k, err, trace(w.disk, 60))
		}
	}
	return nil
}

func quietWorld(seed uint64, p plant) error {
	return disaster(seed, p, 3, 20, func(*vfs.Disk) {})
}

// huntReaders has readers read all the time while writes happen in two steps.
func huntReaders(seed uint64, p plant) error {
	w := newWorld(seed)
	w.plant = p
	w.disk.Split = 100
	w.spawn("P0", 12, 100)
	for i := range 2 {
		r := &worker{w: w, p: w.disk.Process(fmt.Sprintf("R%d", i))}
		w.disk.Go(r.p, func() {
			for range 60 {
				s, err := w.openWith(r.p, Options{ReadOnly: true, MustExist: true})
				if err != nil {
					_ = r.p.Yield()
					continue // no store yet
				}
				r.s = s
				for _, id := range simSessions {
					r.read(context.Background(), id)
				}
				_ = s.Close()
			}
		})
	}
	if err := errors.Join(w.disk.Run(), w.wrong); err != nil {
		return fmt.Errorf("seed %d: %w\n%s", seed, err, trace(w.disk, 60))
	}
	return nil
}

// huntSharedKeys has all processes append under the same keys, and cuts the
// power everywhere.
func huntSharedKeys(seed uint64, p plant) error {
	return huntStopped(seed, p, 1, func(k *worker) { k.shared = true })
}

// huntTold does the same with processes that want the same turn, behind the first
// write, which makes the session.
func huntTold(seed uint64, p plant) error {
	return huntStopped(seed, p, 2, func(k *worker) { k.taking = true })
}

// huntStopped stops one process between its writes, from one of them on, and their
// syncs while others do the same as it, and cuts the power everywhere.
func huntStopped(seed uint64, p plant, from int, work func(*worker)) error {
	w := newWorld(seed)
	w.plant = p
	var states atomic.Int64
	found := w.cutEverywhere(&states)
	var all []*worker
	for i := range 3 {
		k := w.spawn(fmt.Sprintf("P%d", i), 8, uint64(100+i))
		work(k)
		all = append(all, k)
	}
	// It lasts until the others are done.
	wrote, writes := false, 0
	w.disk.OnOp(func(op vfs.Op) {
		switch {
		case op.Proc != "P0":
		case op.Kind == vfs.OpWrite && op.Name == journalName && op.Off >= ringAt:
			wrote = true
			writes++
		case op.Kind == vfs.OpUnlock && op.Name == writeLockName && wrote:
			wrote = false
			if writes >= from {
				all[0].p.Stop()
			}
		}
	})
	w.disk.OnIdle(func() bool {
		stopped := all[0].p.Stopped()
		all[0].p.Continue()
		return stopped
	})
	return errors.Join(w.disk.Run(), *found, w.wrong)
}

// huntStoppedCheckpoint stops a process that has written a slot and not synced
// it, while another goes on, and cuts the power everywhere.
func huntStoppedCheckpoint(seed uint64, p plant) error {
	w := newWorld(seed)
	w.plant = p
	var states atomic.Int64
	victim := w.spawn("P0", 30, 100)
	w.spawn("P1", 30, 101)
	var found *error
	w.disk.OnOp(func(op vfs.Op) {
		slot := op.Kind == vfs.OpWrite && op.Name == journalName && op.Off < ringAt && op.Len == slotUsed
		if slot && op.Proc == "P0" && op.PN > 120 && found == nil {
			victim.p.Stop()
			found = w.cutEverywhere(&states)
		}
	})
	w.disk.OnIdle(func() bool {
		stopped := victim.p.Stopped()
		victim.p.Continue()
		return stopped
	})
	err := errors.Join(w.disk.Run(), w.wrong)
	if found != nil {
		err = errors.Join(*found, err)
	}
	return err
}

// TestSimHunts: the hunts find nothing where no bug was planted.
func TestSimHunts(t *testing.T) {
	for seed := range uint64(3) {
		for _, hunt := range []func(uint64, plant) error{huntSharedKeys, huntStoppedCheckpoint, huntCutAfterSyncError, huntSyncErrors, huntKills, huntPairs} {
			if err := hunt(5000+seed, plantNone); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestSimReaders: the same without the bug. (P4)
func TestSimReaders(t *testing.T) {
	for seed := range uint64(20) {
		if err := huntReaders(5000+seed, plantNone); err != nil {
			t.Fatal(err)
		}
	}
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

// TestSimLateComer: the same without the bug.
func TestSimLateComer(t *testing.T) {
	for seed := range uint64(6) {
		if err := huntLateComer(5000+seed, plantNone); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTornCopy: the same without the bug: nothing but what the copy lost is lost.
func TestTornCopy(t *testing.T) {
	if err := tornCopy(plantNone); err != nil {
		t.Fatal(err)
	}
}
