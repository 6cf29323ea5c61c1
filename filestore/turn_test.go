package filestore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
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

// take acquires a turn that must be available at once.
func take(t testing.TB, s *Store, id hansard.SessionID, c hansard.Claim) hansard.Turn {
	t.Helper()
	turn, err := s.Acquire(context.Background(), id, c)
	if err != nil {
		t.Fatalf("acquire the turn of %s: %v", id, err)
	}
	return turn
}

// want reports an error that is not the expected one.
func want(t testing.TB, what string, err, want error) {
	t.Helper()
	if want == nil && err != nil || want != nil && !errors.Is(err, want) {
		t.Fatalf("%s: %v, want %v", what, err, want)
	}
}

// sayUnder appends one event under a grant and expects an outcome.
func sayUnder(t testing.TB, s *Store, id hansard.SessionID, g hansard.Grant, wanted error, what string) {
	t.Helper()
	_, err := s.Append(context.Background(), id, hansard.Batch{Turn: g, Events: []hansard.Event{text("%s", what)}})
	want(t, fmt.Sprintf("append %q under %s", what, g), err, wanted)
}

// changes are the turn records of a session, abbreviated.
func changes(t testing.TB, s *Store, id hansard.SessionID) (all []string) {
	t.Helper()
	grants := engine.Grants{}
	for e, err := range s.Read(context.Background(), id, hansard.Range{}) {
		if err != nil {
			t.Fatal(err)
		}
		if err := grants.Next(&e); err != nil {
			t.Fatal(err)
		}
		if e.Kind != hansard.KindTurn {
			continue
		}
		l := sessionlog.Line{Kind: e.Kind, Data: e.Data, Turn: e.Turn, Seq: e.Seq}
		if _, err := l.TurnState(); err != nil {
			t.Fatal(err)
		}
		var r hansard.TurnRecord
		if err := json.Unmarshal(e.Data, &r); err != nil {
			t.Fatal(err)
		}
		all = append(all, strings.TrimSpace(fmt.Sprintf("%d %s %s", e.Turn.Number(), r.Change, r.Why)))
	}
	if err := wantSound(s, id); err != nil {
		t.Fatal(err)
	}
	return all
}

func wantChanges(t testing.TB, s *Store, id hansard.SessionID, want ...string) {
	t.Helper()
	if got := changes(t, s, id); strings.Join(got, "; ") != strings.Join(want, "; ") {
		t.Fatalf("the turn of %s went %q, want %q", id, got, want)
	}
}

// openReal opens a store on the real disk n times, as n processes.
func openReal(t testing.TB, n int) (stores []*Store) {
	t.Helper()
	dir := t.TempDir()
	for range n {
		s, err := Open(dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		stores = append(stores, s)
	}
	return stores
}

// TestTurnAcrossProcesses: a grant of one process counts in every other.
func TestTurnAcrossProcesses(t *testing.T) {
	ctx := context.Background()
	a, b := twoOn(t, vfs.NewDisk(1))
	say(t, a, "s", nil, "hello")
	_, err := a.Acquire(ctx, "none", hansard.Claim{})
	want(t, "acquire", err, hansard.ErrNotFound)

	one := take(t, a, "s", hansard.Claim{Label: "planner", MaxHold: time.Hour})
	if one.Grant.Number() != 1 || one.Holder.Label != "planner" || one.Seq != 2 {
		t.Errorf("granted %+v", one)
	}
	_, err = b.Acquire(ctx, "s", hansard.Claim{})
	var held *hansard.HeldError
	if !errors.As(err, &held) || held.Turn.Grant != one.Grant || held.Turn.Renewed.IsZero() {
		t.Errorf("acquire of another process: %v", err)
	}
	for _, s := range []*Store{a, b} {
		seen, err := s.Turn(ctx, "s")
		if err != nil || seen == nil || seen.Grant != one.Grant || seen.TTL != hansard.DefaultTTL || seen.MaxHold != time.Hour || !seen.Since.Equal(one.Since) {
			t.Errorf("turn: %+v, %v", seen, err)
		}
		info, err := s.Stat(ctx, "s")
		if err != nil || info.Turn == nil || info.Turn.Grant != one.Grant {
			t.Errorf("stat: %+v, %v", info, err)
		}
	}
	sayUnder(t, a, "s", one.Grant, nil, "under it")
	say(t, b, "s", nil, "beside it")
	sayUnder(t, b, "s", "1-0000000000000000", hansard.ErrFenced, "another nonce")
	want(t, "renew", a.Renew(ctx, "s", one.Grant), nil)
	want(t, "release of another", b.Release(ctx, "s", "1-0000000000000000"), hansard.ErrFenced)
	want(t, "release", b.Release(ctx, "s", one.Grant), nil) // only equality counts
	want(t, "second release", a.Release(ctx, "s", one.Grant), hansard.ErrFenced)
	want(t, "renew after release", a.Renew(ctx, "s", one.Grant), hansard.ErrFenced)
	sayUnder(t, a, "s", one.Grant, hansard.ErrFenced, "after release")
	if n := a.leases.Counts().Held; n != 0 {
		t.Errorf("%d leases are left", n)
	}

	two := take(t, b, "s", hansard.Claim{})
	three := take(t, a, "s", hansard.Claim{Steal: "stuck"})
	sayUnder(t, b, "s", two.Grant, hansard.ErrFenced, "robbed")
	sayUnder(t, a, "s", three.Grant, nil, "mine")
	if three.Reason != "stuck" {
		t.Errorf("stolen: %+v", three)
	}
	want(t, "close", a.Close(), nil)
	wantChanges(t, b, "s", "1 granted", "1 released", "2 granted", "3 stolen stolen", "3 released")
	turn, err := b.Turn(ctx, "s")
	if turn != nil || err != nil {
		t.Errorf("after close: %+v, %v", turn, err)
	}
}

// TestTurnExclusive: an exclusive turn keeps out other writes except for the inbox, and that of a
// dead holder keeps out none.
func TestTurnExclusive(t *testing.T) {
	ctx := context.Background()
	d := vfs.NewDisk(1)
	holder := d.Process("holder")
	a, b := openSim(t, holder, 1), openSim(t, d.Process("b"), 2)
	say(t, a, "s", nil, "hello")
	say(t, a, "gone", nil, "hello")
	turn := take(t, a, "s", hansard.Claim{Exclusive: true})
	take(t, a, "gone", hansard.Claim{Exclusive: true})
	say(t, b, "s", hansard.ErrHeld, "kept out")
	title := "x"
	_, err := b.Append(ctx, "s", hansard.Batch{Patch: &hansard.Patch{Title: &title}})
	want(t, "patch", err, hansard.ErrHeld)
	want(t, "delete", b.Delete(ctx, "s", ""), hansard.ErrHeld)
	letter := text("letter")
	letter.Inbox = true
	_, err = b.Append(ctx, "s", hansard.Batch{Events: []hansard.Event{letter}})
	want(t, "inbox", err, nil)
	sayUnder(t, a, "s", turn.Grant, nil, "holder")

	holder.Kill()
	if seen, err := b.Turn(ctx, "s"); seen != nil || err != nil {
		t.Errorf("the turn of a dead holder: %+v, %v", seen, err)
	}
	r, err := b.Append(ctx, "s", hansard.Batch{Key: "k", Expect: hansard.At(4), Events: []hansard.Event{text("in")}})
	if err != nil || r.First != 6 || r.Last != 6 {
		t.Errorf("append past a dead holder: %+v, %v", r, err)
	}
	again, err := b.Append(ctx, "s", hansard.Batch{Key: "k", Expect: hansard.At(4), Events: []hansard.Event{text("in")}})
	if err != nil || again.First != 6 || !again.Replayed {
		t.Errorf("replay: %+v, %v", again, err)
	}
	sayUnder(t, b, "s", turn.Grant, hansard.ErrFenced, "stale")
	wantChanges(t, b, "s", "1 granted", "1 ended dead")
	want(t, "delete past a dead holder", b.Delete(ctx, "gone", ""), nil)
	want(t, "acquire of a deleted session", func() error { _, err := b.Acquire(ctx, "gone", hansard.Claim{}); return err }(), hansard.ErrDeleted)
}

// TestTurnMoves: a grant is renewed by another process than the one that has its lease, as with
// two servers on one store.
func TestTurnMoves(t *testing.T) {
	ctx := context.Background()
	d := vfs.NewDisk(1)
	holder := d.Process("a")
	a, b := openSim(t, holder, 1), openSim(t, d.Process("b"), 2)
	say(t, a, "s", nil, "hello")
	turn := take(t, a, "s", hansard.Claim{Exclusive: true, Label: "client", MaxHold: time.Hour})
	want(t, "renew elsewhere", b.Renew(ctx, "s", turn.Grant), nil)
	want(t, "renew elsewhere again", b.Renew(ctx, "s", turn.Grant), nil)
	wantChanges(t, a, "s", "1 granted", "1 moved")
	holder.Kill() // it no longer matters
	seen, err := b.Turn(ctx, "s")
	if err != nil || seen == nil || seen.Seq != turn.Seq || !seen.Since.Equal(turn.Since) || seen.Holder != turn.Holder || !seen.Exclusive || seen.MaxHold != time.Hour {
		t.Errorf("after the move: %+v, %v, want %+v", seen, err, turn)
	}
	sayUnder(t, b, "s", turn.Grant, nil, "on")
	c := openSim(t, d.Process("c"), 3)
	_, err = c.Acquire(ctx, "s", hansard.Claim{})
	want(t, "acquire", err, hansard.ErrHeld)
	want(t, "release", c.Release(ctx, "s", turn.Grant), nil)
	want(t, "renew after release", b.Renew(ctx, "s", turn.Grant), hansard.ErrFenced)
}

// TestTurnMovesBack: a grant that moved away and back is renewed in one place only.
func TestTurnMovesBack(t *testing.T) {
	ctx := context.Background()
	d := vfs.NewDisk(1)
	var clock time.Duration
	a, b := openAt(t, d.Process("a"), 1, &clock), openAt(t, d.Process("b"), 2, &clock)
	c := openAt(t, d.Process("c"), 3, &clock)
	say(t, a, "s", nil, "hello")
	turn := take(t, a, "s", hansard.Claim{TTL: time.Minute, MaxHold: 5 * time.Minute})
	for _, s := range []*Store{b, a, b, a} {
		want(t, "renew", s.Renew(ctx, "s", turn.Grant), nil)
		clock += 40 * time.Second
		wantHeld(t, c, "s", hansard.Claim{}, turn.Grant)
		s.leases.Lapsed("s", turn.Grant) // as its timer does
	}
	for range 3 {
		want(t, "renew", a.Renew(ctx, "s", turn.Grant), nil)
		clock += 40 * time.Second
		wantHeld(t, c, "s", hansard.Claim{}, turn.Grant)
	}
	// Its MaxHold moved with it.
	clock += 20 * time.Second
	want(t, "renew past MaxHold", a.Renew(ctx, "s", turn.Grant), hansard.ErrFenced)
	want(t, "renew past MaxHold elsewhere", b.Renew(ctx, "s", turn.Grant), hansard.ErrFenced)
}

// TestTurnNoJump: a claim without waiting does not get ahead of a waiter.
func TestTurnNoJump(t *testing.T) {
	ctx := context.Background()
	s := openReal(t, 1)[0]
	say(t, s, "s", nil, "hello")
	for range 20 {
		turn := take(t, s, "s", hansard.Claim{})
		waiter := make(chan hansard.Turn)
		go func() {
			turn, err := s.Acquire(ctx, "s", hansard.Claim{Wait: time.Minute})
			if err != nil {
				t.Error(err)
			}
			waiter <- turn
		}()
		s.turns.inLine.until(t, "s", 1)
		want(t, "release", s.Release(ctx, "s", turn.Grant), nil)
		_, err := s.Acquire(ctx, "s", hansard.Claim{})
		next := <-waiter
		var held *hansard.HeldError
		if !errors.As(err, &held) || held.Turn.Grant != next.Grant {
			t.Fatalf("acquire at once: %v, while %s waited", err, next.Grant)
		}
		want(t, "release", s.Release(ctx, "s", next.Grant), nil)
	}
}

// TestTurnInstanceRemoved: if someone cleans up instances/, others take the holder for dead until
// it reports that it is alive.
func TestTurnInstanceRemoved(t *testing.T) {
	ctx := context.Background()
	d := vfs.NewDisk(1)
	a, b := twoOn(t, d)
	say(t, a, "s", nil, "hello")
	one := take(t, a, "s", hansard.Claim{})
	clean := func() {
		for _, name := range d.Names() {
			if strings.HasPrefix(name, peers.InstancesDir+"/") {
				putFile(t, d, name, nil)
			}
		}
	}
	clean()
	want(t, "renew", a.Renew(ctx, "s", one.Grant), nil)
	wantHeld(t, b, "s", hansard.Claim{}, one.Grant)
	clean()
	putFile(t, d, a.lock.state.inst.Name, []byte("a copy of somebody's"))
	two := take(t, b, "s", hansard.Claim{})
	sayUnder(t, a, "s", one.Grant, hansard.ErrFenced, "robbed, and told so")
	want(t, "release", b.Release(ctx, "s", two.Grant), nil)
	three := take(t, a, "s", hansard.Claim{})
	wantHeld(t, b, "s", hansard.Claim{}, three.Grant)
	want(t, "close", errors.Join(a.checkpoints.checkpoint(true), a.Close(), b.Close()), nil)
	for _, name := range d.Names() {
		if strings.HasPrefix(name, peers.InstancesDir+"/") {
			t.Errorf("%s is left", name)
		}
	}
}

// TestTurnUnknownGrant: a grant whose outcome is unknown blocks nobody, whether it is in the log
// or not.
func TestTurnUnknownGrant(t *testing.T) {
	ctx := context.Background()
	for _, kind := range []vfs.Kind{vfs.OpSync, vfs.OpWrite} {
		for _, name := range []string{journal.Name, sessionlog.Path("s"), "instances/*"} {
			d := vfs.NewDisk(1)
			a, b := twoOn(t, d)
			say(t, a, "s", nil, "hello")
			d.Inject(vfs.Match{Proc: "a", Kind: kind, Name: name}, vfs.Fault{Err: syscall.EIO, Always: true})
			_, err := a.Acquire(ctx, "s", hansard.Claim{Exclusive: true})
			d.ClearRules()
			if err == nil {
				continue // what failed is not needed for a grant, or was worked around
			}
			say(t, b, "s", nil, "past it")
			take(t, b, "s", hansard.Claim{})
			if a.leases.Counts().Held > 0 {
				t.Errorf("%v of %s fails: a lease is left", kind, name)
			}
		}
	}
}

// TestTurnMaxHoldLapses: the holder's own process records when MaxHold is over, while its caller
// sleeps.
func TestTurnMaxHoldLapses(t *testing.T) {
	ctx := context.Background()
	stores := openReal(t, 2)
	say(t, stores[0], "s", nil, "hello")
	take(t, stores[0], "s", hansard.Claim{TTL: time.Hour, MaxHold: 50 * time.Millisecond})
	bounded, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	two, err := stores[1].Acquire(bounded, "s", hansard.Claim{Wait: hansard.Forever})
	if err != nil || two.Grant.Number() != 2 {
		t.Fatalf("acquire past MaxHold: %+v, %v", two, err)
	}
	wantChanges(t, stores[0], "s", "1 granted", "2 taken overdue")
}
