package filestore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"hansard"
	"hansard/filestore/internal/peers"
)

// contend has each store take and release the turn of session s, rounds times.
func contend(t *testing.T, rounds int, stores ...*Store) {
	t.Helper()
	var wg sync.WaitGroup
	for i, s := range stores {
		wg.Go(func() {
			for range rounds {
				turn, err := s.Acquire(context.Background(), "s", hansard.Claim{Wait: time.Minute})
				if err == nil {
					err = s.Release(context.Background(), "s", turn.Grant)
				}
				if err != nil {
					t.Errorf("process %d: %v", i, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// waitsAnnounced waits until the process sees n others waiting for session s.
func waitsAnnounced(t *testing.T, s *Store, n int) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if next, _ := s.leases.Waiters("s"); len(next) == n {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("there are not %d that wait", n)
		}
	}
}

// TestTurnHandedOn: releasing a turn calls the longest waiter and nobody else. Nobody polls here
// and nobody is passed over, so whoever gets the turn was called. The first waiter is an
// exception: it also sees the release in the log.
func TestTurnHandedOn(t *testing.T) {
	stores := openReal(t, 6)
	for _, s := range stores {
		s.turns.pace = pace{time.Hour, time.Hour, time.Hour}
	}
	holder, others := stores[0], stores[1:]
	say(t, holder, "s", nil, "hello")
	turn := take(t, holder, "s", hansard.Claim{})
	var wg sync.WaitGroup
	for i, s := range others {
		wg.Go(func() {
			turn, err := s.Acquire(context.Background(), "s", hansard.Claim{Wait: time.Hour, Label: fmt.Sprint(i)})
			if err == nil {
				err = s.Release(context.Background(), "s", turn.Grant)
			}
			if err != nil {
				t.Errorf("process %d: %v", i, err)
			}
		})
		waitsAnnounced(t, holder, i+1)
		say(t, holder, "another", nil, "hello") // so that the next waiter has a later ticket
		if i > 0 {
			callInVain(t, holder, s)
			waitsAnnounced(t, holder, i+1)
		}
	}
	want(t, "release", holder.Release(context.Background(), "s", turn.Grant), nil)
	wg.Wait()
	for i, s := range others[1:] {
		if n := s.turns.calls.heeded.Load(); n != 2 {
			t.Errorf("process %d made %d claims because of a call: one in vain, and which others?", i+1, n)
		}
	}
	if got := labels(t, holder); got != "01234" {
		t.Errorf("served in the order %q", got)
	}
	for _, s := range stores {
		if c := s.leases.Counts(); c.Held != 0 || c.Torn != 0 {
			t.Errorf("left behind: %+v", c)
		}
	}
	changes(t, holder, "s")
}

// callInVain calls the only claimant of a process once while the turn is held, and waits until it
// has tried to claim. From then on it listens for calls.
func callInVain(t *testing.T, caller, s *Store) {
	t.Helper()
	rung := false
	for end := time.Now().Add(time.Minute); s.turns.calls.heeded.Load() == 0; time.Sleep(time.Millisecond) {
		s.turns.calls.mu.Lock()
		hears := s.turns.calls.bell != nil
		s.turns.calls.mu.Unlock()
		if hears && !rung {
			rung = true
			want(t, "ring", caller.leases.Ring(peers.Waiter{Instance: s.leases.Instance().Base()}, "s", 1), nil)
		}
		if time.Now().After(end) {
			t.Fatal("it does not hear")
		}
	}
}

// TestTurnContended: processes that contend for a turn each get it as often as they ask.
func TestTurnContended(t *testing.T) {
	stores := openReal(t, 5)
	say(t, stores[0], "s", nil, "hello")
	contend(t, 40, stores...)
	for _, s := range stores {
		if c := s.leases.Counts(); c.Held != 0 || c.Torn != 0 {
			t.Errorf("left behind: %+v", c)
		}
	}
	changes(t, stores[0], "s")
}

// TestTurnCallsLost: lost calls cost time, but everybody still gets the turn.
func TestTurnCallsLost(t *testing.T) {
	stores := openReal(t, 3)
	for _, s := range stores {
		s.waiters.rung = func() {}
	}
	say(t, stores[0], "s", nil, "hello")
	contend(t, 3, stores...)
}

// TestTurnNoBell: a process that can't have a bell is woken by writes to the session, like a
// follower.
func TestTurnNoBell(t *testing.T) {
	stores := openReal(t, 3)
	say(t, stores[0], "s", nil, "hello")
	bells := filepath.Join(stores[0].path, peers.BellsDir)
	if err := errors.Join(os.Remove(bells), os.WriteFile(bells, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	contend(t, 5, stores...)
	for _, s := range stores {
		if s.turns.calls.bell != nil {
			t.Error("there is a bell after all: this shows nothing")
		}
	}
}

// TestTurnBellRemoved: a bell that was removed from outside is made again.
func TestTurnBellRemoved(t *testing.T) {
	stores := openReal(t, 3)
	say(t, stores[0], "s", nil, "hello")
	contend(t, 10, stores...)
	if err := os.RemoveAll(filepath.Join(stores[0].path, peers.BellsDir)); err != nil {
		t.Fatal(err)
	}
	contend(t, 20, stores...)
	for i, s := range stores {
		if b := s.turns.calls.bell; b == nil || !b.Found(s.fs) {
			t.Errorf("nobody can call process %d", i)
		}
	}
}

// TestTurnNextIsCalled: if the waiter that was called does not come, the next one is called. That
// one does not poll here.
func TestTurnNextIsCalled(t *testing.T) {
	stores := openReal(t, 3)
	holder, stopped, next := stores[0], stores[1], stores[2]
	say(t, holder, "s", nil, "hello")
	turn := take(t, holder, "s", hansard.Claim{})
	stopped.leases.Announce("s", 1)
	listening(t, stopped)
	next.turns.pace.poll, next.turns.pace.pollMax = time.Hour, time.Hour
	got := make(chan error)
	go func() {
		_, err := next.Acquire(t.Context(), "s", hansard.Claim{Wait: time.Hour})
		got <- err
	}()
	callInVain(t, holder, next)
	waitsAnnounced(t, holder, 2)
	want(t, "release", holder.Release(t.Context(), "s", turn.Grant), nil)
	select {
	case err := <-got:
		want(t, "acquire", err, nil)
	case <-time.After(time.Minute):
		t.Error("the next one was not called")
	}
}

// TestTurnCalledOnce: the patience with a called waiter runs from the first call, however often
// it is called again; likewise for the next one. A timer that fires while it is being reset
// passes nobody over.
func TestTurnCalledOnce(t *testing.T) {
	stores := openReal(t, 3)
	a, first, second := stores[0], stores[1], stores[2]
	a.turns.pace.patience = time.Hour
	say(t, a, "s", nil, "hello")
	hears, alsoHears := listening(t, first), listening(t, second)
	awaited := func() called {
		a.turns.calls.mu.Lock()
		defer a.turns.calls.mu.Unlock()
		if n := len(a.turns.calls.awaited); n != 1 {
			t.Fatalf("%d are looked after", n)
		}
		return *a.turns.calls.awaited["s"]
	}
	first.leases.Announce("s", 1)
	second.leases.Announce("s", 2)
	a.turns.callNext("s")
	hears("the oldest was not called")
	once := awaited()
	a.turns.callNext("s")
	hears("the oldest was not called again")
	if twice := awaited(); twice != once || twice.Ticket != 1 {
		t.Errorf("it gets another hour: %+v, then %+v", once, twice)
	}
	first.leases.Withdraw("s") // it came
	a.turns.callNext("s")
	alsoHears("the next one was not called")
	next := awaited()
	if next.Ticket != 2 || !next.until.After(once.until) {
		t.Errorf("looked after: %+v", next)
	}
	a.turns.lookAfter("s") // too early
	if _, passed := a.leases.Waiters("s"); len(passed) > 0 || awaited() != next {
		t.Errorf("passed over too early: %v", passed)
	}
}

// TestTurnDeaf: a claimant woken by a write pauses before the next write can wake it. One woken
// only by calls sleeps until it is called.
func TestTurnDeaf(t *testing.T) {
	w := &claimant{looked: time.Second}
	if d := w.deafFor(time.Second); d != 0 {
		t.Errorf("it wakes up after %v for nothing", d)
	}
	w.woken = make(chan struct{})
	for after, want := range map[time.Duration]time.Duration{0: turnPause, turnPause / 2: turnPause / 2, turnPause: 0, time.Hour: 0} {
		if d := w.deafFor(time.Second + after); d != want {
			t.Errorf("%v after its look it is deaf for %v, want %v", after, d, want)
		}
	}
}

// TestTurnWatchEnds: a claimant is woken by writes to the session while it is the oldest waiter,
// and not after that. A follower still is.
func TestTurnWatchEnds(t *testing.T) {
	s := openReal(t, 1)[0]
	say(t, s, "s", nil, "hello")
	watched := func() bool { return s.waiters.m["s"] != nil && s.waiters.m["s"].watched }
	claim := func() {
		w := &claimant{id: "s", name: "s", claim: &hansard.Claim{}}
		s.turns.lineUp(w)
		s.turns.listen(w)
		if !watched() {
			t.Skip("SKIPPED: there is no inotify here: logs are polled")
		}
		s.turns.stepOut(w, true)
	}
	claim()
	if watched() || len(s.waiters.m) > 0 {
		t.Error("it is woken by everything that others write")
	}
	follower := s.waiters.join("s")
	claim()
	if !watched() {
		t.Error("the follower is not woken any more")
	}
	s.waiters.leave("s", follower, true)
	claim()
	if !watched() {
		t.Error("the follower finds no watch when it comes back")
	}
}

// TestTurnNewWaiter: a waiter that arrives right after a look for waiters is still called.
func TestTurnNewWaiter(t *testing.T) {
	a := openReal(t, 1)[0]
	say(t, a, "s", nil, "hello")
	if next, _ := a.leases.Waiters("s"); len(next) > 0 {
		t.Fatalf("%v waits", next)
	}
	b, err := Open(a.path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	b.leases.Announce("s", 1)
	if next, _ := a.leases.Waiters("s"); len(next) != 1 {
		t.Errorf("waiters: %v", next)
	}
}

// TestTurnStoppedWaiter: if the longest waiter does not come because it is stopped, it is passed
// over, and at once by a process that has called it before. Once it runs again it counts again.
func TestTurnStoppedWaiter(t *testing.T) {
	stores := openReal(t, 3)
	stopped, others := stores[0], stores[1:]
	say(t, stopped, "s", nil, "hello")
	if !stopped.leases.Announce("s", 1) { // before everybody else, with nobody behind it
		t.Fatal("it does not wait")
	}
	if _, err := stopped.leases.NewBell(); err != nil { // nobody listens to it
		t.Fatal(err)
	}
	contend(t, 5, others...)
	for i, s := range others {
		waitsAnnounced(t, s, 0) // the last to release may still be waiting for the stopped one
		if _, passed := s.leases.Waiters("s"); len(passed) != 1 {
			t.Errorf("process %d has passed over %v", i, passed)
		}
		// A waiter that was passed over is still called: it may be awake by now.
		s.turns.callNext("s")
	}
	hears := listening(t, stopped)
	others[0].turns.callNext("s")
	hears("who was passed over is not called any more")
	stopped.leases.Withdraw("s")
	stopped.leases.Announce("s", 2) // waits again
	if next, _ := others[0].leases.Waiters("s"); len(next) != 1 {
		t.Errorf("who waits anew does not count: %v", next)
	}
}

// TestTurnDeadWaiter: nobody waits for a waiter that died, while waiting or right after it was
// called, and its bell is removed.
func TestTurnDeadWaiter(t *testing.T) {
	stores := openReal(t, 3)
	dead, others := stores[0], stores[1:]
	say(t, dead, "s", nil, "hello")
	dead.leases.Announce("s", 1)
	dead.turns.canBeCalled()
	seen, _ := others[0].leases.Waiters("s")
	if len(seen) != 1 {
		t.Fatalf("waiters: %v", seen)
	}
	_ = dead.lock.state.inst.File().Close() // as the kernel does when the process dies
	if came := others[0].leases.Came("s", seen[0]); came != peers.CameDead {
		t.Errorf("it counts as %v", came)
	}
	if next, passed := others[0].leases.Waiters("s"); len(next)+len(passed) > 0 {
		t.Errorf("waited for %v, passed over %v", next, passed)
	}
	contend(t, 5, others...)
	want(t, "checkpoint", others[0].checkpoints.checkpoint(true), nil)
	if dead.turns.calls.bell.Found(others[0].fs) {
		t.Error("the bell of a dead process stays")
	}
}

// TestTurnGivenUpWhenCalled: a claimant that is called but no longer wants the turn passes the
// call on, whether or not it has noticed the call.
func TestTurnGivenUpWhenCalled(t *testing.T) {
	stores := openReal(t, 2)
	a, b := stores[0], stores[1]
	a.turns.pace.patience = time.Hour // it calls once
	say(t, a, "s", nil, "hello")
	hears := listening(t, b)
	b.leases.Announce("s", 1<<60)
	w := &claimant{id: "s", name: "s", claim: &hansard.Claim{}}
	a.turns.lineUp(w)
	w.callUp()
	a.turns.stepOut(w, false)
	hears("the next one was not called")

	ctx, cancel := context.WithCancel(t.Context())
	w = &claimant{id: "s", name: "s", claim: &hansard.Claim{Wait: time.Hour}}
	a.turns.lineUp(w)
	w.callUp()
	w.listened = true
	if err := a.turns.await(ctx, w, &hansard.Turn{}); err != nil || !w.called {
		t.Fatalf("it was not called: %v", err)
	}
	cancel()
	if _, _, err := a.turns.tryTurn(ctx, w); !errors.Is(err, context.Canceled) {
		t.Fatalf("it claims the turn: %v", err)
	}
	a.turns.stepOut(w, false)
	hears("the next one was not called after a claim that failed")
}

// TestTurnCalledInVain: a claimant that was called and finds the turn held has nothing to pass
// on.
func TestTurnCalledInVain(t *testing.T) {
	stores := openReal(t, 2)
	a, b := stores[0], stores[1]
	say(t, a, "s", nil, "hello")
	take(t, b, "s", hansard.Claim{})
	w := &claimant{id: "s", name: "s", claim: &hansard.Claim{Wait: time.Hour}, called: true, next: true}
	a.turns.lineUp(w)
	if _, held, err := a.turns.tryTurn(t.Context(), w); held == nil || err != nil {
		t.Fatalf("held by %v, %v", held, err)
	}
	if w.next || w.called {
		t.Error("it takes itself for the next one still")
	}
	a.turns.stepOut(w, false)
}

// TestTurnUnannounced: a claimant that can't announce that it waits is woken by writes to the
// session, because nobody will call it.
func TestTurnUnannounced(t *testing.T) {
	stores := openReal(t, 2)
	a, b := stores[0], stores[1]
	say(t, a, "s", nil, "hello")
	b.leases.Announce("s", 0) // older
	w := &claimant{id: "s", name: "s", claim: &hansard.Claim{}}
	a.turns.lineUp(w)
	defer a.turns.stepOut(w, false)
	if !a.turns.listen(w) || w.point == nil {
		t.Error("nothing will wake it")
	}
	w.listened, w.announced = false, true
	if w.point = nil; a.turns.listen(w) {
		t.Error("who is announced is woken by every line, too")
	}
	w.announced = false
}

// listening lets only the test hear the calls for a process. The function it returns waits for a
// call.
func listening(t *testing.T, s *Store) (hears func(what string)) {
	rung := make(chan struct{}, 100)
	s.waiters.rung = func() { rung <- struct{}{} }
	if !s.turns.canBeCalled() {
		t.Skip("SKIPPED: bells are not watched here: turns are polled for")
	}
	return func(what string) {
		t.Helper()
		for end := time.After(time.Minute); ; {
			select {
			case <-rung:
				if slots, _ := s.turns.calls.bell.Heard(); slots[peers.BellSlot("s")] {
					return
				}
			case <-end:
				t.Fatal(what)
			}
		}
	}
}

// TestTurnBellLeft: a process that leaves removes its bell.
func TestTurnBellLeft(t *testing.T) {
	stores := openReal(t, 2)
	say(t, stores[0], "s", nil, "hello")
	contend(t, 5, stores...)
	for _, s := range stores {
		want(t, "close", s.Close(), nil)
	}
	if left, err := os.ReadDir(filepath.Join(stores[0].path, peers.BellsDir)); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
