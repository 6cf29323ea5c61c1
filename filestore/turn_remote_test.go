package filestore

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"hansard"
	"hansard/engine"
	"hansard/filestore/internal/journal"
	"hansard/filestore/internal/peers"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

// Turns whose holder is not the process that keeps them alive: when they are taken, when they are
// not, and that somebody can always take them eventually.

// clocked is a set of processes on one disk with one clock, which moves only when told to.
type clocked struct {
	disk  *vfs.Disk
	clock time.Duration
	seed  uint64
}

func (c *clocked) open(t testing.TB, name string) (*Store, *vfs.Proc) {
	t.Helper()
	p := c.disk.Process(name)
	c.seed++
	return openAt(t, p, c.seed, &c.clock), p
}

// TestTurnRemoteOutlives: the server through which a turn was acquired is killed. A process that
// looks once per TTL gets the turn after one TTL of watching, and not before, whether the
// instance file is still there or swept.
func TestTurnRemoteOutlives(t *testing.T) {
	for _, swept := range []bool{false, true} {
		c := &clocked{disk: vfs.NewDisk(1)}
		server, process := c.open(t, "server")
		other, _ := c.open(t, "other")
		say(t, server, "s", nil, "hello")
		one := take(t, server, "s", hansard.Claim{TTL: time.Minute, Remote: true})
		wantHeld(t, other, "s", hansard.Claim{}, one.Grant) // watches the renewal count
		c.clock += 50 * time.Second
		process.Kill()
		wantHeld(t, other, "s", hansard.Claim{}, one.Grant) // and from now on the absence
		if swept {
			want(t, "checkpoint", other.checkpoints.checkpoint(true), nil)
			if _, there := c.disk.CacheBytes(server.lock.state.inst.Name); there {
				t.Fatal("the instance file was not swept")
			}
		}
		c.clock += time.Minute - time.Millisecond
		wantHeld(t, other, "s", hansard.Claim{}, one.Grant)
		if seen, err := other.Turn(context.Background(), "s"); err != nil || seen == nil || seen.Grant != one.Grant || !seen.Remote {
			t.Errorf("turn of a dead server: %+v, %v", seen, err)
		}
		c.clock += time.Millisecond
		two := take(t, other, "s", hansard.Claim{})
		sayUnder(t, other, "s", two.Grant, nil, "mine")
		wantChanges(t, other, "s", "1 granted", "2 taken silent")
	}
}

// TestTurnRemoteCopied: in a copy of the store, and where a log was copied to, nobody can renew a
// remote turn, so it is available after its TTL.
func TestTurnRemoteCopied(t *testing.T) {
	c := &clocked{disk: vfs.NewDisk(1)}
	server, _ := c.open(t, "server")
	say(t, server, "s", nil, "hello")
	one := take(t, server, "s", hansard.Claim{TTL: time.Minute, Remote: true, Exclusive: true})
	log, _ := c.disk.CacheBytes(sessionlog.Path("s"))
	alone := vfs.NewDisk(2)
	first := &clocked{disk: alone}
	s, _ := first.open(t, "first")
	say(t, s, "another", nil, "hello")
	want(t, "close", errors.Join(s.Close(), putLog(alone, "s", log)), nil)
	for _, copied := range []*clocked{{disk: c.disk.Clone(), seed: 10}, {disk: alone, seed: 10}} {
		s, _ := copied.open(t, "later")
		say(t, s, "s", hansard.ErrHeld, "kept out")
		copied.clock += time.Minute
		say(t, s, "s", nil, "past it")
		take(t, s, "s", hansard.Claim{})
	}
	sayUnder(t, server, "s", one.Grant, nil, "as if nothing had happened, for it has not")
}

// TestTurnRemoteWaiter: if a client died with its server, a waiter in another process gets the
// turn after its TTL, and at most another TTL and one look later.
func TestTurnRemoteWaiter(t *testing.T) {
	c := &clocked{disk: vfs.NewDisk(1)}
	server, process := c.open(t, "server")
	say(t, server, "s", nil, "hello")
	take(t, server, "s", hansard.Claim{TTL: 10 * time.Second, Remote: true})
	process.Kill()
	other, _ := c.open(t, "other")
	two := take(t, other, "s", hansard.Claim{Wait: hansard.Forever})
	if c.clock < 10*time.Second || c.clock > 10*time.Second+2*turnPollMax || two.Grant.Number() != 2 {
		t.Errorf("%s after %v", two.Grant, c.clock)
	}
}

// TestTurnRemoteGoesOn: the client goes on through another server, and processes that watched the
// first one start watching anew.
func TestTurnRemoteGoesOn(t *testing.T) {
	ctx := context.Background()
	c := &clocked{disk: vfs.NewDisk(1)}
	a, process := c.open(t, "a")
	b, second := c.open(t, "b")
	w, _ := c.open(t, "watcher")
	say(t, a, "s", nil, "hello")
	one := take(t, a, "s", hansard.Claim{TTL: time.Minute, Remote: true, Exclusive: true})
	process.Kill()
	wantHeld(t, w, "s", hansard.Claim{}, one.Grant)
	c.clock += 59 * time.Second
	want(t, "renew through another server", b.Renew(ctx, "s", one.Grant), nil)
	c.clock += 59 * time.Second
	say(t, w, "s", hansard.ErrHeld, "kept out")
	sayUnder(t, b, "s", one.Grant, nil, "the client's")
	second.Kill() // it is still remote
	c.clock += time.Second
	say(t, w, "s", hansard.ErrHeld, "kept out")
	c.clock += time.Minute
	say(t, w, "s", nil, "past it")
	wantChanges(t, w, "s", "1 granted", "1 moved", "1 ended silent")
}

// TestTurnRemoteClosed: closing a server does not end its clients' turns, and writers and
// claimants that are in its commit at that moment still respect them.
func TestTurnRemoteClosed(t *testing.T) {
	c := &clocked{disk: vfs.NewDisk(1)}
	a, _ := c.open(t, "a")
	b, _ := c.open(t, "b")
	say(t, a, "s", nil, "hello")
	say(t, a, "local", nil, "hello")
	one := take(t, a, "s", hansard.Claim{TTL: time.Minute, Remote: true, Exclusive: true})
	take(t, a, "local", hansard.Claim{TTL: time.Minute, Exclusive: true})
	a.turns.releaseAll(time.Second)
	say(t, a, "s", hansard.ErrHeld, "in the commit when the server closes")
	wantHeld(t, a, "s", hansard.Claim{}, one.Grant)
	want(t, "close", a.Close(), nil)
	say(t, b, "local", nil, "its own turn ended with it")
	say(t, b, "s", hansard.ErrHeld, "the client's did not")
	want(t, "renew", b.Renew(context.Background(), "s", one.Grant), nil)
	wantChanges(t, b, "s", "1 granted", "1 moved")
}

// TestTurnMovedIsNotReleased: closing a process releases the turns it keeps alive, but not those
// that another process keeps by now.
func TestTurnMovedIsNotReleased(t *testing.T) {
	ctx := context.Background()
	a, b := twoOn(t, vfs.NewDisk(1))
	say(t, a, "s", nil, "hello")
	turn := take(t, a, "s", hansard.Claim{})
	want(t, "renew elsewhere", b.Renew(ctx, "s", turn.Grant), nil)
	want(t, "close", a.Close(), nil)
	want(t, "renew", b.Renew(ctx, "s", turn.Grant), nil)
	wantChanges(t, b, "s", "1 granted", "1 moved")
	want(t, "close", b.Close(), nil)
}

// TestTurnRenewedOnceMore: a process forgot a lease that was silent for long, or that had moved
// away, and the lease is renewed there again. A watcher that saw its first count, and looks again
// only now, must not take the new count for the old one.
func TestTurnRenewedOnceMore(t *testing.T) {
	ctx := context.Background()
	for _, moved := range []bool{false, true} {
		c := &clocked{disk: vfs.NewDisk(1)}
		a, _ := c.open(t, "a")
		b, _ := c.open(t, "b")
		w, _ := c.open(t, "watcher")
		for i := range 4 {
			say(t, a, hansard.SessionID(fmt.Sprint("s", i)), nil, "hello")
		}
		turn := take(t, a, "s0", hansard.Claim{TTL: time.Minute, Remote: true, Exclusive: true})
		wantHeld(t, w, "s0", hansard.Claim{}, turn.Grant)
		if moved {
			want(t, "renew elsewhere", b.Renew(ctx, "s0", turn.Grant), nil)
		}
		c.clock += 5 * time.Minute
		for i := 1; i < 4; i++ { // somewhere along the way the silent one is dropped
			take(t, a, hansard.SessionID(fmt.Sprint("s", i)), hansard.Claim{TTL: time.Hour})
		}
		if a.leases.Holds("s0", turn.Grant) {
			t.Fatal("the lease was not dropped")
		}
		want(t, "renew", a.Renew(ctx, "s0", turn.Grant), nil)
		say(t, w, "s0", hansard.ErrHeld, "kept out")
		wantHeld(t, w, "s0", hansard.Claim{}, turn.Grant)
		c.clock += time.Minute
		say(t, w, "s0", nil, "past it")
	}
}

// TestTurnMaxHoldRemembered: a holder that was silent for so long that its lease was forgotten
// does not get a new MaxHold.
func TestTurnMaxHoldRemembered(t *testing.T) {
	ctx := context.Background()
	c := &clocked{disk: vfs.NewDisk(1)}
	s, _ := c.open(t, "a")
	say(t, s, "s", nil, "hello")
	turn := take(t, s, "s", hansard.Claim{TTL: time.Second, MaxHold: time.Minute, Remote: true})
	others := 0
	forget := func() {
		for range 8 { // somewhere along the way the silent ones are dropped
			id := hansard.SessionID(fmt.Sprint("other", others))
			others++
			say(t, s, id, nil, "hello")
			take(t, s, id, hansard.Claim{TTL: time.Hour})
		}
	}
	c.clock += 30 * time.Second
	forget()
	want(t, "renew", s.Renew(ctx, "s", turn.Grant), nil)
	c.clock += 30 * time.Second
	want(t, "renew past MaxHold", s.Renew(ctx, "s", turn.Grant), hansard.ErrFenced)
	c.clock += 30 * time.Second
	forget()
	if s.leases.Holds("s", turn.Grant) {
		t.Fatal("the lease was not dropped")
	}
	want(t, "renew long past MaxHold", s.Renew(ctx, "s", turn.Grant), hansard.ErrFenced)
	take(t, s, "s", hansard.Claim{})
}

// TestTurnRenewalInDoubt: a client goes on through another server, which can't tell whether the
// renewal was stored. That does not make the client dead.
func TestTurnRenewalInDoubt(t *testing.T) {
	ctx := context.Background()
	for _, kind := range []vfs.Kind{vfs.OpSync, vfs.OpWrite} {
		c := &clocked{disk: vfs.NewDisk(1)}
		a, process := c.open(t, "a")
		b, _ := c.open(t, "b")
		w, _ := c.open(t, "watcher")
		say(t, a, "s", nil, "hello")
		turn := take(t, a, "s", hansard.Claim{TTL: time.Minute, Remote: true})
		process.Kill()
		fault := vfs.Match{Proc: "b", Kind: kind, Name: journal.Name}
		if kind == vfs.OpWrite {
			fault.Name = sessionlog.Path("s")
		}
		c.disk.Inject(fault, vfs.Fault{Err: syscall.EIO, Always: true})
		c.disk.Inject(vfs.Match{Proc: "b", Kind: vfs.OpRename}, vfs.Fault{Err: syscall.EIO, Always: true})
		if err := b.Renew(ctx, "s", turn.Grant); !errors.Is(err, hansard.ErrUnknown) {
			t.Fatalf("%v fails: %v", kind, err)
		}
		c.disk.ClearRules()
		say(t, w, "another", nil, "brings what is in the journal to the logs")
		wantChanges(t, w, "s", "1 granted", "1 moved")
		wantHeld(t, w, "s", hansard.Claim{}, turn.Grant)
		want(t, "renew", b.Renew(ctx, "s", turn.Grant), nil)
		wantHeld(t, w, "s", hansard.Claim{}, turn.Grant)
		c.clock += time.Minute
		take(t, w, "s", hansard.Claim{})
	}
}

// TestTurnManyWatched: however many turns of silent holders are watched, each is available after
// its TTL; and those that nobody watches any more are forgotten.
func TestTurnManyWatched(t *testing.T) {
	const many = 3 * maxSessions
	c := &clocked{disk: vfs.NewDisk(1)}
	s, _ := c.open(t, "a")
	look := func(i int) bool {
		turn := hansard.Turn{Grant: engine.NextGrant("", uint64(i)), TTL: time.Minute, Remote: true}
		return s.leases.StoodStill(fmt.Sprint("s", i), &turn, "", peers.Uncounted, c.clock)
	}
	for round := range 4 {
		for i := range many {
			if silent := look(i); silent != (round == 3) {
				t.Fatalf("round %d: session %d silent: %v", round, i, silent)
			}
		}
		c.clock += 20 * time.Second
	}
	c.clock += time.Hour
	for i := range many {
		look(2*many + i)
	}
	if n := s.leases.Counts().Watched; n > many+1 {
		t.Errorf("%d are watched of %d that are looked at", n, many)
	}
}

// TestTurnExclusiveEnds: the first write past an exclusive turn whose holder is gone ends the
// turn, with a record, for all later writes of the group; a write that fails for another reason
// does not end it.
func TestTurnExclusiveEnds(t *testing.T) {
	ctx := context.Background()
	c := &clocked{disk: vfs.NewDisk(1)}
	a, _ := c.open(t, "a")
	b, _ := c.open(t, "b")
	say(t, a, "s", nil, "hello")
	one := take(t, a, "s", hansard.Claim{TTL: time.Minute, Exclusive: true})
	say(t, b, "s", hansard.ErrHeld, "it begins to watch")
	c.clock += 40 * time.Second
	want(t, "renew", a.Renew(ctx, "s", one.Grant), nil)
	c.clock += 40 * time.Second // the second look is after 80 s: it notices the renewal in between
	say(t, b, "s", hansard.ErrHeld, "it begins anew")
	c.clock += time.Minute
	wrong, right := hansard.Seq(1), hansard.Seq(2)
	batch := func(e *hansard.Seq, g hansard.Grant, what string) *request {
		return newAppend("s", &hansard.Batch{Expect: e, Turn: g, Events: []hansard.Event{text("%s", what)}})
	}
	all := []*request{
		batch(&wrong, "", "for another seq: ends nothing"),
		batch(nil, one.Grant, "the holder, while nobody has ended its turn"),
		batch(&right, "", "that was right before"),
		batch(nil, "", "past it"),
		batch(nil, "", "behind it"),
		batch(nil, one.Grant, "the holder, too late"),
	}
	b.committer.submitAll(ctx, all)
	for i, wanted := range []error{hansard.ErrConflict, nil, hansard.ErrConflict, nil, nil, hansard.ErrFenced} {
		want(t, fmt.Sprint("request ", i), all[i].err, wanted)
	}
	if first := all[3].receipt.First; first != 5 { // 1 hello, 2 granted, 3 the holder's, 4 ended
		t.Errorf("the write past it is at seq %d", first)
	}
	wantChanges(t, b, "s", "1 granted", "1 ended silent")
}
