package filestore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"hansard"
	"hansard/filestore/internal/peers"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

// TestSimTurnSchedules defends: at most one grant is valid at any time, no write under another is
// accepted, a dead holder's turn is available at once, and no holder that lives and renews loses
// its turn, no matter which process is stopped, killed, restarted in place or has a clock that
// jumps. (P5)
func TestSimTurnSchedules(t *testing.T) {
	var all turnCounts
	const each = 100
	inWorlds(t, 56, 5_500, func(t *testing.T, seed uint64, states *atomic.Int64) {
		for i := range uint64(each) {
			chaos := turnChaos{stop: 4, kill: 3}
			switch i % 4 {
			case 1:
				chaos.jump = 200
			case 2:
				chaos = turnChaos{stop: 2, kill: 1, fault: 200}
			case 3:
				chaos = turnChaos{kill: 6}
			}
			w := newTurnWorld(seed*each+i, chaos)
			if err := w.play(3, 8); err != nil {
				t.Fatal(err)
			}
			states.Add(1)
			all.add(&w.counts)
		}
	})
	for what, n := range all.each() {
		t.Logf("%6d × %s", n.Load(), what)
		if n.Load() < int64(scale(100)) {
			t.Errorf("only %d times: %s", n.Load(), what)
		}
	}
}

// huntTurns plays schedules of every kind.
func huntTurns(seed uint64) error {
	for i := range uint64(8) {
		w := newTurnWorld(seed*8+i, turnChaos{stop: 4, kill: 1 + int(i%2), fault: 300 * int(i%2)})
		if err := w.play(3, 8); err != nil {
			return err
		}
	}
	return nil
}

// restoredLog restores an older log, from before a grant: the next grant has the same number, and
// must not admit the holder of the first one.
func restoredLog() error {
	ctx := context.Background()
	w := newWorld(1)
	s, err := w.open(w.disk.Process("before"))
	if err != nil {
		return err
	}
	one := hansard.Batch{Create: true, Events: []hansard.Event{text("one")}}
	if _, err := s.Append(ctx, "a", one); err != nil {
		return err
	}
	backup, _ := w.disk.CacheBytes(sessionlog.Path(sessionlog.EncodeName("a")))
	old, err := s.Acquire(ctx, "a", hansard.Claim{})
	if err = errors.Join(err, s.Close(), putLog(w.disk, "a", backup)); err != nil {
		return err
	}
	if s, err = w.open(w.disk.Process("after")); err != nil {
		return err
	}
	now, err := s.Acquire(ctx, "a", hansard.Claim{})
	if err != nil {
		return err
	}
	if now.Grant == old.Grant || now.Grant.Number() != old.Grant.Number() {
		return fmt.Errorf("grant %s follows the restored log, %s was before", now.Grant, old.Grant)
	}
	stale := hansard.Batch{Turn: old.Grant, Events: []hansard.Event{text("stale")}}
	if _, err := s.Append(ctx, "a", stale); !errors.Is(err, hansard.ErrFenced) {
		return fmt.Errorf("a write under %s, of another time, was answered %v while %s was held", old.Grant, err, now.Grant)
	}
	return s.Close()
}

// TestTurnRestoredLog: the same without the bug.
func TestTurnRestoredLog(t *testing.T) {
	if err := restoredLog(); err != nil {
		t.Fatal(err)
	}
}

// TestTurnTold: a refusal because of a holder stays true, wherever the power fails.
func TestTurnTold(t *testing.T) {
	for seed := range uint64(3) {
		if err := huntTold(5000 + seed); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTurnCourtesyInOrder: a process that gives a turn back and asks for it again at once is
// behind a waiter in another process; a waiter that is stopped is passed over.
func TestTurnCourtesyInOrder(t *testing.T) {
	const rounds = 10
	for _, stopped := range []bool{false, true} {
		w := newTurnWorld(1, turnChaos{})
		var order []string
		contend := func(k *turnProc) {
			s, err := open(k.p, Options{LockWait: time.Hour}, w.config(k, uint64(k.index)))
			if err != nil {
				k.fail("open: %v", err)
				return
			}
			_, err = s.Create(context.Background(), turnSession, hansard.Meta{})
			k.unexpected("create", err, hansard.ErrExists)
			for range rounds {
				turn, err := s.Acquire(context.Background(), turnSession, hansard.Claim{Wait: time.Hour})
				k.unexpected("acquire", err)
				order = append(order, k.p.Name())
				s.cfg.sleep(200 * time.Millisecond) // the other one begins to wait
				k.unexpected("release", s.Release(context.Background(), turnSession, turn.Grant))
			}
		}
		w.process("A", contend)
		b := w.process("B", contend)
		if stopped {
			w.disk.OnOp(func(op vfs.Op) {
				waits := op.Kind == vfs.OpClose && strings.HasPrefix(op.Name, peers.InstancesDir)
				if op.Proc == "B" && len(order) == 5 && waits && b.resume == 0 {
					b.p.Stop()
					b.resume = w.clock + time.Hour
				}
			})
		}
		if err := errors.Join(w.disk.Run(), w.wrong); err != nil {
			t.Fatal(err)
		}
		t.Logf("stopped %v: %s, %v", stopped, strings.Join(order, ""), w.clock)
		switch got := strings.Join(order, ""); {
		case !stopped && strings.Count(got, "AB") < rounds-1:
			t.Errorf("they had the turn in the order %s", got)
		case stopped && !strings.Contains(got, "AAAA"):
			t.Errorf("with B stopped they had the turn in the order %s", got)
		}
	}
}
