package filestore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"hansard"
	"hansard/filestore/internal/peers"
	"hansard/internal/vfs"
)

// One test for each way in which the locks of agents' sessions failed elsewhere: F2 and F3 of the
// founding reports and numbers 1 to 20. TestSimTurnSchedules tries all of them in depth, and so
// do real processes in test/.

// openAt opens a store as a process with the given clock, which moves only when the process
// sleeps.
func openAt(t testing.TB, fsys vfs.FS, seed uint64, clock *time.Duration) *Store {
	t.Helper()
	cfg := simConfig(seed, simRing)
	cfg.mono = func() time.Duration { return *clock }
	cfg.sleep = func(d time.Duration) { *clock += d }
	s, err := open(fsys, Options{LockWait: time.Hour}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// wantHeld expects a claim to be refused because of a grant.
func wantHeld(t testing.TB, s *Store, id hansard.SessionID, c hansard.Claim, by hansard.Grant) {
	t.Helper()
	_, err := s.Acquire(context.Background(), id, c)
	var held *hansard.HeldError
	if !errors.As(err, &held) || held.Turn.Grant != by {
		t.Fatalf("acquire: %v, want it held by %s", err, by)
	}
}

// lockFile is a lock file as used elsewhere: if the file exists it is locked, and the owner is
// remembered only in memory.
type lockFile struct {
	fs   vfs.FS
	mine bool
}

const lockFileName = "s.lock"

func (l *lockFile) acquire() bool {
	f, err := l.fs.Open(lockFileName, vfs.Create|vfs.Exclusive)
	if err == nil {
		_ = f.Close()
		l.mine = true
	}
	return err == nil
}

func (l *lockFile) exists() bool {
	_, err := l.fs.Stat(lockFileName)
	return err == nil
}

// TestFailureF2_ReleaseDestroysTheNextOwnersLock, also number 9.
func TestFailureF2_ReleaseDestroysTheNextOwnersLock(t *testing.T) {
	d := vfs.NewDisk(1)
	a, b := &lockFile{fs: d.Process("a")}, &lockFile{fs: d.Process("b")}
	a.acquire()
	// Release: forgotten in memory first; the file is removed later.
	a.mine = false
	late := func() { _ = a.fs.Remove(lockFileName) }
	// The same process again sees a file without an owner in memory: an orphan.
	if a.exists() && !a.mine {
		_ = a.fs.Remove(lockFileName)
	}
	a.acquire()
	late()
	if !b.acquire() || !a.mine {
		t.Fatal("the lock file way does not fail: this test shows nothing")
	}

	ctx := context.Background()
	x, y := twoOn(t, vfs.NewDisk(1))
	say(t, x, "s", nil, "hello")
	one := take(t, x, "s", hansard.Claim{})
	want(t, "release", x.Release(ctx, "s", one.Grant), nil)
	two := take(t, x, "s", hansard.Claim{})
	for _, s := range []*Store{x, y} { // the late clean-up, here and in the other process
		want(t, "late release", s.Release(ctx, "s", one.Grant), hansard.ErrFenced)
	}
	wantHeld(t, y, "s", hansard.Claim{}, two.Grant)
	sayUnder(t, x, "s", one.Grant, hansard.ErrFenced, "a handle used after release")
	sayUnder(t, x, "s", two.Grant, nil, "mine")
	wantChanges(t, y, "s", "1 granted", "1 released", "2 granted")
}

// TestFailureF3_StaleTakeOver, also numbers 1 and 2: first by delete-and-create and by rename,
// then our way, with three contenders in many orders.
func TestFailureF3_StaleTakeOver(t *testing.T) {
	d := vfs.NewDisk(1)
	a, b := &lockFile{fs: d.Process("a")}, &lockFile{fs: d.Process("b")}
	dead := &lockFile{fs: d.Process("dead")}
	dead.acquire()
	// Both find it stale; each removes the file and creates its own.
	staleA, staleB := a.exists(), b.exists()
	if staleA {
		_ = a.fs.Remove(lockFileName)
		a.acquire()
	}
	if staleB {
		_ = b.fs.Remove(lockFileName)
		b.acquire()
	}
	if !a.mine || !b.mine {
		t.Fatal("the way of delete and create does not fail: this test shows nothing")
	}
	for i, l := range []*lockFile{a, b} { // a fresh lock renamed over the stale one
		l.mine = false
		tmp := fmt.Sprintf("tmp%d", i)
		f, err := l.fs.Open(tmp, vfs.Create)
		if err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
		l.mine = l.fs.Rename(tmp, lockFileName) == nil
	}
	if !a.mine || !b.mine {
		t.Fatal("the way of renaming does not fail: this test shows nothing")
	}

	for seed := range uint64(60) {
		d := vfs.NewDisk(seed)
		holder := d.Process("holder")
		h := openSim(t, holder, 1)
		say(t, h, "s", nil, "hello")
		old := take(t, h, "s", hansard.Claim{})
		holder.Kill()
		var won []hansard.Grant
		var errs []error
		for i := range uint64(3) {
			p := d.Process(fmt.Sprint("P", i))
			d.Go(p, func() {
				s, err := openOn(p, 10+i, simRing)
				if err != nil {
					errs = append(errs, err)
					return
				}
				turn, err := s.Acquire(context.Background(), "s", hansard.Claim{})
				if err == nil {
					won = append(won, turn.Grant)
				} else if !errors.Is(err, hansard.ErrHeld) {
					errs = append(errs, err)
				}
				// The losers also try to write under the dead holder's grant.
				_, err = s.Append(context.Background(), "s", hansard.Batch{Turn: old.Grant, Events: []hansard.Event{text("stale")}})
				if !errors.Is(err, hansard.ErrFenced) && !slices.Contains(won, turn.Grant) && len(won) > 0 {
					errs = append(errs, fmt.Errorf("a stale write: %w", err))
				}
			})
		}
		if err := errors.Join(append(errs, d.Run())...); err != nil || len(won) != 1 {
			t.Fatalf("seed %d: the turn was taken by %v, %v", seed, won, err)
		}
	}
}

func TestFailure03_LockReclaimedBeforeItIsFilled(t *testing.T) {
	both := map[bool]int{} // whether the other process got it, and how often
	for k := 1; ; k++ {    // the acquiring process is stopped at its k-th operation
		d := vfs.NewDisk(1)
		pa, pb := d.Process("a"), d.Process("b")
		a, b := openSim(t, pa, 1), openSim(t, pb, 2)
		say(t, a, "s", nil, "hello")
		var first, second hansard.Turn
		var errA, errB error
		inLock, reached := false, false
		d.OnOp(func(op vfs.Op) {
			if op.Proc == "a" && op.Name == peers.WriteLock {
				inLock = op.Kind == vfs.OpLock
			}
		})
		d.StopAt(vfs.Match{Proc: "a", N: k})
		d.Go(pa, func() { first, errA = a.Acquire(context.Background(), "s", hansard.Claim{}) })
		d.OnIdle(func() bool {
			stopped := pa.Stopped()
			if stopped && !inLock && !reached {
				d.Go(pb, func() { second, errB = b.Acquire(context.Background(), "s", hansard.Claim{}) })
			} else {
				pa.Continue()
			}
			reached = reached || stopped
			return stopped
		})
		if err := d.Run(); err != nil {
			t.Fatal(err)
		}
		switch {
		case !reached && k > 10:
			if both[true] == 0 || both[false] == 0 {
				t.Errorf("the other one always or never got it: %v", both)
			}
			return
		case errA == nil && errB == nil && second.Grant != "":
			t.Fatalf("stopped at operation %d: both have the turn: %s and %s", k, first.Grant, second.Grant)
		case errA != nil && !errors.Is(errA, hansard.ErrHeld) || errB != nil && !errors.Is(errB, hansard.ErrHeld):
			t.Fatalf("stopped at operation %d: %v; %v", k, errA, errB)
		}
		both[second.Grant != ""]++
	}
}

// TestFailure04_PIDReuse, also 5 (restart in place) and 6 (containers): all processes here have
// the same pid and host.
func TestFailure04_PIDReuse(t *testing.T) {
	d := vfs.NewDisk(1)
	p := d.Process("agent")
	a, b := openSim(t, p, 1), openSim(t, d.Process("other"), 2)
	say(t, a, "s", nil, "hello")
	one := take(t, a, "s", hansard.Claim{})
	wantHeld(t, b, "s", hansard.Claim{}, one.Grant) // alive, though the pid is the same
	p.Kill()
	again := openSim(t, d.Process("agent"), 3) // the same pid, right away
	two := take(t, again, "s", hansard.Claim{})
	if two.Holder != one.Holder {
		t.Fatalf("the holders differ, %v and %v: this test shows nothing", one.Holder, two.Holder)
	}
	sayUnder(t, again, "s", one.Grant, hansard.ErrFenced, "of a former life")
	wantHeld(t, b, "s", hansard.Claim{}, two.Grant)
	wantChanges(t, b, "s", "1 granted", "2 taken dead")
}

func TestFailure07_TakeOverByAgeOfASlowOwner(t *testing.T) {
	ctx := context.Background()
	d := vfs.NewDisk(1)
	var clock time.Duration
	a, b := openAt(t, d.Process("a"), 1, &clock), openAt(t, d.Process("b"), 2, &clock)
	say(t, a, "s", nil, "hello")
	one := take(t, a, "s", hansard.Claim{TTL: time.Minute})
	for range 500 { // for hours, slow but alive
		clock += 50 * time.Second
		wantHeld(t, b, "s", hansard.Claim{}, one.Grant)
		want(t, "renew", a.Renew(ctx, "s", one.Grant), nil)
	}
	info, err := a.Stat(ctx, "s")
	if err != nil || info.LastSeq != 2 {
		t.Errorf("an hour's turn wrote to the session: last seq %d, %v", info.LastSeq, err)
	}
	sayUnder(t, a, "s", one.Grant, nil, "still mine")
}

func TestFailure08_WatchdogReleasesUnderTheOwner(t *testing.T) {
	ctx := context.Background()
	d := vfs.NewDisk(1)
	var clock time.Duration
	a, b := openAt(t, d.Process("a"), 1, &clock), openAt(t, d.Process("b"), 2, &clock)
	say(t, a, "s", nil, "hello")
	one := take(t, a, "s", hansard.Claim{TTL: time.Minute, MaxHold: 90 * time.Second})
	for range 8 {
		clock += 10 * time.Second
		want(t, "renew", a.Renew(ctx, "s", one.Grant), nil)
		wantHeld(t, b, "s", hansard.Claim{}, one.Grant)
	}
	clock += 10 * time.Second
	// It may be taken now; until it is, the owner may still write.
	sayUnder(t, a, "s", one.Grant, nil, "the last word")
	want(t, "renew past MaxHold", a.Renew(ctx, "s", one.Grant), hansard.ErrFenced)
	two := take(t, b, "s", hansard.Claim{TTL: time.Minute})
	sayUnder(t, a, "s", one.Grant, hansard.ErrFenced, "too late")
	// A stuck program sets no flag and does not renew.
	wantHeld(t, a, "s", hansard.Claim{}, two.Grant)
	clock += time.Minute
	take(t, a, "s", hansard.Claim{})
	wantChanges(t, a, "s", "1 granted", "2 taken overdue", "3 taken silent")
}
