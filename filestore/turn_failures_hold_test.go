package filestore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"hansard"
	"hansard/filestore/internal/cache"
	"hansard/filestore/internal/peers"
	"hansard/internal/vfs"
)

func TestFailure10_WaitShorterThanTheHoldLosesTheMessage(t *testing.T) {
	a, b := twoOn(t, vfs.NewDisk(1))
	say(t, a, "s", nil, "hello")
	turn := take(t, a, "s", hansard.Claim{})
	for i := range 50 { // nobody has to wait
		say(t, b, "s", nil, "message %d", i)
	}
	want(t, "release", a.Release(context.Background(), "s", turn.Grant), nil)
	take(t, a, "s", hansard.Claim{Exclusive: true})
	letter := text("letter")
	letter.Inbox = true
	_, err := b.Append(context.Background(), "s", hansard.Batch{Events: []hansard.Event{letter}})
	want(t, "inbox of an exclusive turn", err, nil)
}

func TestFailure11_NestedAcquire(t *testing.T) {
	ctx := context.Background()
	s := openReal(t, 1)[0]
	say(t, s, "s", nil, "hello")
	one := take(t, s, "s", hansard.Claim{})
	// Neither a deadlock nor a second owner.
	wantHeld(t, s, "s", hansard.Claim{}, one.Grant)
	wantHeld(t, s, "s", hansard.Claim{Wait: 20 * time.Millisecond}, one.Grant)
	bounded, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	_, err := s.Acquire(bounded, "s", hansard.Claim{Wait: hansard.Forever})
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, hansard.ErrHeld) {
		t.Errorf("acquire until the context ends: %v", err)
	}
	sayUnder(t, s, "s", one.Grant, nil, "mine")
	want(t, "release", s.Release(ctx, "s", one.Grant), nil)
	take(t, s, "s", hansard.Claim{})
}

func TestFailure12_CoWriterKillsTheRun(t *testing.T) {
	a, b := twoOn(t, vfs.NewDisk(1))
	say(t, a, "s", nil, "hello")
	turn := take(t, a, "s", hansard.Claim{})
	sayUnder(t, a, "s", turn.Grant, nil, "question")
	say(t, b, "s", nil, "a note of somebody else, during the model call")
	sayUnder(t, a, "s", turn.Grant, nil, "answer")
	var under []string
	for e, err := range a.Read(context.Background(), "s", hansard.Range{Kinds: []string{hansard.KindMessage}}) {
		if err != nil {
			t.Fatal(err)
		}
		under = append(under, fmt.Sprint(e.Turn == turn.Grant))
	}
	if got := strings.Join(under, " "); got != "false true false true" {
		t.Errorf("written under the turn: %s", got)
	}
}

func TestFailure13_BusyLooksLikeAnyFailure(t *testing.T) {
	a, b := twoOn(t, vfs.NewDisk(1))
	say(t, a, "s", nil, "hello")
	turn := take(t, a, "s", hansard.Claim{Label: "planner", Exclusive: true})
	r := say(t, b, "s", hansard.ErrHeld, "kept out")
	_, err := b.Append(context.Background(), "s", hansard.Batch{Events: []hansard.Event{text("kept out")}})
	var held *hansard.HeldError
	if !errors.As(err, &held) || held.Turn.Grant != turn.Grant || !strings.Contains(err.Error(), "planner") || hansard.Hint(err) == "" || r.Last != 0 || held.Turn.Renewed.IsZero() {
		t.Errorf("%v (%s)", err, hansard.Hint(err))
	}
}

// TestFailure14_TransientErrorTakenForDeath, and 17: a holder whose state can't be read is not
// taken for dead.
func TestFailure14_TransientErrorTakenForDeath(t *testing.T) {
	for _, errno := range []error{syscall.EINTR, syscall.EMFILE, syscall.EIO, syscall.EACCES} {
		for _, kind := range []vfs.Kind{vfs.OpOpen, vfs.OpTryLock, vfs.OpRead, vfs.OpSize} {
			d := vfs.NewDisk(1)
			a, b := twoOn(t, d)
			say(t, a, "s", nil, "hello")
			for i := 0; kind == vfs.OpSize && i < 120; i++ { // the size of a short table is not asked for
				a.leases.Announce(fmt.Sprint("another ", i), 1)
			}
			turn := take(t, a, "s", hansard.Claim{Exclusive: true})
			d.Inject(vfs.Match{Proc: "b", Kind: kind, Name: "instances/*"}, vfs.Fault{Err: errno, Always: true})
			_, err := b.Acquire(context.Background(), "s", hansard.Claim{})
			want(t, fmt.Sprintf("acquire, %v of %v", errno, kind), err, errno)
			say(t, b, "s", errAny, "past it")
			if _, err := b.Turn(context.Background(), "s"); !errors.Is(err, errno) {
				t.Errorf("turn, %v of %v: %v", errno, kind, err)
			}
			d.ClearRules()
			wantHeld(t, b, "s", hansard.Claim{}, turn.Grant)
			sayUnder(t, a, "s", turn.Grant, nil, "mine")
			wantChanges(t, b, "s", "1 granted")
		}
	}
}

func TestFailure17_UnreadableLeaseTakenForNone(t *testing.T) {
	d := vfs.NewDisk(1)
	a, b := twoOn(t, d)
	say(t, a, "s", nil, "hello")
	turn := take(t, a, "s", hansard.Claim{})
	name := a.lock.state.inst.Name
	whole, _ := d.CacheBytes(name)
	d.Poke(name, peers.TableAt+8, []byte{0xee})
	_, err := b.Acquire(context.Background(), "s", hansard.Claim{})
	if err == nil || errors.Is(err, hansard.ErrHeld) {
		t.Errorf("acquire with a lease that can't be read: %v", err)
	}
	d.Poke(name, 0, whole)
	wantHeld(t, b, "s", hansard.Claim{}, turn.Grant)
}

func TestFailure18_StartUpSweepDeletesLiveLocks(t *testing.T) {
	ctx := context.Background()
	d := vfs.NewDisk(1)
	a := openSim(t, d.Process("a"), 1)
	say(t, a, "s", nil, "hello")
	turn := take(t, a, "s", hansard.Claim{Exclusive: true})
	for i := range uint64(5) { // they come and go, some without closing
		p := d.Process(fmt.Sprint("guest", i))
		s := openSim(t, p, 10+i)
		say(t, s, "other", nil, "hello")
		want(t, "checkpoint", s.checkpoints.checkpoint(true), nil)
		if i%2 == 0 {
			want(t, "close", s.Close(), nil)
		} else {
			take(t, s, "other", hansard.Claim{})
			p.Kill()
		}
		s = openSim(t, d.Process("after"), 20+i)
		wantHeld(t, s, "s", hansard.Claim{}, turn.Grant)
		take(t, s, "other", hansard.Claim{})
		want(t, "close", s.Close(), nil)
	}
	want(t, "renew", a.Renew(ctx, "s", turn.Grant), nil)
	sayUnder(t, a, "s", turn.Grant, nil, "mine")
	// Nothing needs cleaning up, and nothing that matters can be removed by it.
	want(t, "close", a.Close(), nil)
	for _, name := range d.Names() {
		if strings.HasPrefix(name, cache.Dir+"/") || name == peers.ControlName || strings.HasPrefix(name, peers.InstancesDir+"/") {
			putFile(t, d, name, nil)
		}
	}
	b := openSim(t, d.Process("b"), 30)
	if two := take(t, b, "s", hansard.Claim{}); two.Grant.Number() != 2 || two.Grant == turn.Grant {
		t.Errorf("grant %s follows %s", two.Grant, turn.Grant)
	}
	sayUnder(t, b, "s", turn.Grant, hansard.ErrFenced, "stale")
}

func TestFailure19_ReleaseBeforeWritesInFlightAreDone(t *testing.T) {
	// That a child process does not inherit the lock is tested with a child, in test/.
	ctx := context.Background()
	dir := t.TempDir()
	s, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	say(t, s, "s", nil, "hello")
	turn := take(t, s, "s", hansard.Claim{})
	var wg sync.WaitGroup
	var mu sync.Mutex
	acked := map[hansard.Seq]bool{}
	started := make(chan struct{}, 64)
	for range 8 {
		wg.Go(func() {
			for {
				r, err := s.Append(ctx, "s", hansard.Batch{Turn: turn.Grant, Events: []hansard.Event{text("in flight")}})
				if err != nil {
					return // closed, or fenced by the release that closing implies
				}
				mu.Lock()
				acked[r.First] = true
				mu.Unlock()
				select {
				case started <- struct{}{}:
				default:
				}
			}
		})
	}
	<-started
	want(t, "close", s.Close(), nil)
	wg.Wait()
	after, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer after.Close()
	wantChanges(t, after, "s", "1 granted", "1 released") // and nothing under it after that
	for e, err := range after.Read(ctx, "s", hansard.Range{}) {
		if err != nil {
			t.Fatal(err)
		}
		delete(acked, e.Seq)
	}
	if len(acked) > 0 {
		t.Errorf("%d writes were acknowledged and are gone", len(acked))
	}
}

func TestFailure20_SuspendedHolderWritesWithAnExpiredRight(t *testing.T) {
	d := vfs.NewDisk(1)
	// Its own clock stands still while it sleeps, as in a suspended laptop.
	var asleep, awake time.Duration
	a, b := openAt(t, d.Process("a"), 1, &asleep), openAt(t, d.Process("b"), 2, &awake)
	say(t, a, "s", nil, "hello")
	one := take(t, a, "s", hansard.Claim{TTL: time.Minute})
	wantHeld(t, b, "s", hansard.Claim{}, one.Grant) // it begins to watch
	awake += 59 * time.Second
	wantHeld(t, b, "s", hansard.Claim{}, one.Grant)
	awake += time.Second
	two := take(t, b, "s", hansard.Claim{})
	sayUnder(t, a, "s", one.Grant, hansard.ErrFenced, "as if nothing had happened")
	want(t, "renew", a.Renew(context.Background(), "s", one.Grant), hansard.ErrFenced)
	want(t, "release", a.Release(context.Background(), "s", one.Grant), hansard.ErrFenced)
	sayUnder(t, b, "s", two.Grant, nil, "mine")
	wantChanges(t, a, "s", "1 granted", "2 taken silent")
}
