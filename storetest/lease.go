package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"hansard"
)

var leaseCases = []Case{
	{Name: "lease/renews itself", run: leaseRenews,
		Defends: "a lease keeps its turn past its TTL automatically, without an event in the log", Answers: "7"},
	{Name: "lease/released", run: leaseReleased,
		Defends: "a lease that is released ends its context and leaves the turn to the next; releasing again is an error and harmless", Answers: "F2 9"},
	{Name: "lease/stolen", run: leaseStolen,
		Defends: "the context of a lease whose turn was stolen ends at once, and says who has it", Answers: "8 20"},
	{Name: "lease/max hold", run: leaseMaxHold,
		Defends: "the context of a lease ends when the turn was held for its MaxHold", Answers: "8"},
	{Name: "lease/deleted", run: leaseDeleted,
		Defends: "the context of a lease ends at once when its session is deleted", Answers: "32"},
	{Name: "lease/closed", run: leaseClosed,
		Defends: "the context of a lease ends at once when its store is closed", Answers: "19"},
	{Name: "lease/context", run: leaseContext,
		Defends: "a lease ends with the context it was taken under, and can still be released"},
	{Name: "lease/refused", run: leaseRefused,
		Defends: "a lease is refused while another holds the turn, and waiting for a lease is waiting for the turn"},
}

// take takes a lease, which must succeed.
func (x *env) take(s hansard.Store, id hansard.SessionID, c hansard.Claim) *hansard.Lease {
	x.Helper()
	l, err := hansard.Take(x.ctx, s, id, c)
	if err != nil {
		x.Fatalf("Take(%q): %v", id, err)
	}
	return l
}

// cause waits for a lease to end and returns why it did.
func (x *env) cause(l *hansard.Lease) error {
	x.Helper()
	x.within("the lease's context ends", l.Context().Done())
	return context.Cause(l.Context())
}

// renewals is a store that records the renewals made through it.
type renewals struct {
	hansard.Store

	mu   sync.Mutex // guards all below
	life signsOfLife
	n    int
}

func (r *renewals) Acquire(ctx context.Context, id hansard.SessionID, c hansard.Claim) (hansard.Turn, error) {
	asked := time.Now()
	t, err := r.Store.Acquire(ctx, id, c)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.life.note(asked, time.Now())
	return t, err
}

func (r *renewals) Renew(ctx context.Context, id hansard.SessionID, g hansard.Grant) error {
	asked := time.Now()
	err := r.Store.Renew(ctx, id, g)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.life.note(asked, time.Now())
	r.n++
	return err
}

func (r *renewals) seen() (n int, longest time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.n, r.life.longest()
}

// leaseRenews allows for a machine so slow that the turn was rightly lost, as
// turnRenewed does.
func leaseRenews(x *env) {
	handles := x.handles(2)
	for i, ttl := 0, 400*time.Millisecond; ; i, ttl = i+1, 2*ttl {
		id := hansard.SessionID(fmt.Sprint("s", i))
		x.create(id)
		store := &renewals{Store: x.store}
		lease := x.take(store, id, hansard.Claim{TTL: ttl, Label: "alive"})
		lost := x.whileWanted(handles[1], id, func() error {
			end := time.NewTimer(3 * ttl)
			defer end.Stop()
			select {
			case <-end.C:
				return nil
			case <-lease.Context().Done():
				return context.Cause(lease.Context())
			}
		})
		n, longest := store.seen()
		switch {
		case lost == nil:
			if n == 0 {
				x.Error("it was never renewed")
			}
			turn := lease.Turn()
			x.wantTurn("after renewals", x.store, id, &turn)
			if err := lease.Release(); err != nil {
				x.Errorf("Release: %v", err)
			}
			if last := x.stat(id).LastSeq; last != 2 {
				x.Errorf("a turn that was renewed %d times is %d events", n, last)
			}
			return
		case longest < ttl || ttl > x.patience:
			x.Fatalf("renewed %d times, every %v at most, with a TTL of %v: %v", n, longest, ttl, lost)
		}
	}
}

func leaseReleased(x *env) {
	x.create("s")
	lease := x.take(x.store, "s", hold("first"))
	if turn := lease.Turn(); turn.Grant != lease.Grant() || turn.Holder.Label != "first" {
		x.Errorf("the lease is %+v, grant %s", turn, lease.Grant())
	}
	x.append("s", under(lease.Grant(), "mine"))
	if err := lease.Context().Err(); err != nil {
		x.Errorf("the context of a lease that is held: %v", err)
	}
	if err := lease.Release(); err != nil {
		x.Fatalf("Release: %v", err)
	}
	if err := x.cause(lease); errors.Is(err, hansard.ErrFenced) {
		x.Errorf("a release looks like a loss: %v", err)
	}
	next := x.acquire(x.store, "s", hold("next"))
	for range 2 {
		x.wantFenced("a second release", lease.Release(), &next)
	}
	x.refused(hansard.ErrFenced, "s", under(lease.Grant(), "late"))
	x.release(x.store, "s", next.Grant)
}

func leaseStolen(x *env) {
	handles := x.handles(2)
	x.create("s")
	lease := x.take(x.store, "s", hold("victim"))
	c := hold("thief")
	c.Steal = "it is stuck"
	thief := x.acquire(handles[1], "s", c)
	x.wantFenced("the lease ended", x.cause(lease), &thief)
	x.wantFenced("Release after the loss", lease.Release(), &thief)
	x.refused(hansard.ErrFenced, "s", under(lease.Grant(), "late"))
	x.wantTurn("after all that", x.store, "s", &thief)
	x.release(x.store, "s", thief.Grant)
}

func leaseMaxHold(x *env) {
	x.create("s")
	c := hold("stuck")
	c.MaxHold = 50 * time.Millisecond
	lease := x.take(x.store, "s", c)
	x.wantErr("the lease ended", x.cause(lease), hansard.ErrFenced)
	next := x.acquire(x.store, "s", waiting(hold("next")))
	x.wantFenced("Release after the loss", lease.Release(), &next)
	x.release(x.store, "s", next.Grant)
}

func leaseDeleted(x *env) {
	handles := x.handles(2)
	x.create("s")
	lease := x.take(x.store, "s", hold("holder"))
	if err := handles[1].Delete(x.ctx, "s", ""); err != nil {
		x.Fatal(err)
	}
	x.wantErr("the lease ended", x.cause(lease), hansard.ErrDeleted)
	x.wantErr("Release", lease.Release(), hansard.ErrDeleted)
}

func leaseClosed(x *env) {
	x.create("s")
	lease := x.take(x.store, "s", hold("holder"))
	x.start("Close", x.store.Close).finish()
	x.wantErr("the lease ended", x.cause(lease), hansard.ErrClosed)
	x.wantErr("Release", lease.Release(), hansard.ErrClosed)
}

func leaseContext(x *env) {
	x.create("s")
	because := errors.New("the user pressed a key")
	ctx, cancel := context.WithCancelCause(x.ctx)
	lease, err := hansard.Take(ctx, x.store, "s", hold("holder"))
	if err != nil {
		x.Fatal(err)
	}
	cancel(because)
	x.wantErr("the lease ended", x.cause(lease), because)
	turn := lease.Turn()
	x.wantTurn("until it is released", x.store, "s", &turn)
	x.append("s", under(lease.Grant(), "a last word"))
	if err := lease.Release(); err != nil {
		x.Errorf("Release: %v", err)
	}
	x.wantTurn("after the release", x.store, "s", nil)
}

func leaseRefused(x *env) {
	x.create("s")
	turn := x.acquire(x.store, "s", hold("first"))
	_, err := hansard.Take(x.ctx, x.store, "s", hold("second"))
	x.wantHeld("Take", err, turn)
	_, err = hansard.Take(x.ctx, x.store, "nowhere", hold("second"))
	x.wantErr("Take", err, hansard.ErrNotFound)
	taking := x.start("Take with a wait", func() error {
		lease, err := hansard.Take(x.ctx, x.store, "s", waiting(hold("second")))
		if err != nil {
			return err
		}
		return lease.Release()
	})
	letOthersRun()
	x.release(x.store, "s", turn.Grant)
	taking.finish()
}
