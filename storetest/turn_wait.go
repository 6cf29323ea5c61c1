package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"hansard"
)

var turnWaitCases = []Case{
	{Name: "turn/wait bounded", run: turnWaitBounded,
		Defends: "a claim whose wait has ended learns who holds the turn", Answers: "10 13"},
	{Name: "turn/wait context", run: turnWaitContext,
		Defends: "waiting for a turn ends with the context, and the error says both that it ended and who holds the turn", Answers: "10 13"},
	{Name: "turn/wait woken", run: turnWaitWoken,
		Defends: "a release hands the turn to one of the waiters, on whichever handle, until all have had it; no wake-up is lost", Answers: "F2"},
	{Name: "turn/wait in order", run: turnWaitOrder,
		Defends: "waiters of one handle are served in FIFO order", Answers: "10"},
	{Name: "turn/wait given up", run: turnWaitGivenUp,
		Defends: "a waiter that gives up is passed over, and leaves no unknown grant behind"},
	{Name: "turn/wait deleted", run: turnWaitDeleted,
		Defends: "waiters for the turn of a session that is deleted learn that it was deleted"},
	{Name: "turn/wait closed", run: turnWaitClosed,
		Defends: "closing releases everyone who waits for a turn", Answers: "19"},
	{Name: "turn/wait and theft", run: turnWaitTheft,
		Defends: "stealing a turn goes ahead of the waiters, and does not drop them"},
	{Name: "turn/others write", run: turnOthersWrite,
		Defends: "while a turn is held others append without waiting for it, and the holder sees what they write as it arrives", Answers: "10 12"},
}

func turnWaitBounded(x *env) {
	handles := x.handles(2)
	x.create("s")
	turn := x.acquire(x.store, "s", hold("holder"))
	for i, s := range handles {
		for _, wait := range []time.Duration{1, time.Millisecond, 20 * time.Millisecond} {
			c := hold("patient")
			c.Wait = wait
			waiter := x.start(fmt.Sprintf("handle %d: Acquire with a wait of %v", i, wait), func() error {
				_, err := s.Acquire(x.ctx, "s", c)
				return err
			})
			err := waiter.result()
			x.wantHeld(waiter.what, err, turn)
			if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
				x.Errorf("%s: %v; its context did not end", waiter.what, err)
			}
		}
	}
	// Waiters that gave up do not get it afterwards.
	x.release(x.store, "s", turn.Grant)
	next := x.acquire(x.store, "s", hold("next"))
	if next.Grant.Number() != turn.Grant.Number()+1 {
		x.Errorf("grant %s follows %s", next.Grant, turn.Grant)
	}
	x.release(x.store, "s", next.Grant)
}

func turnWaitContext(x *env) {
	handles := x.handles(2)
	x.create("s")
	ended, cancel := context.WithCancel(x.ctx)
	cancel()
	for _, c := range []hansard.Claim{hold("late"), waiting(hold("late")), {Steal: "too late"}} {
		late := x.start("Acquire of a free turn with a context that has ended", func() error {
			_, err := x.store.Acquire(ended, "s", c)
			return err
		})
		x.wantErr(late.what, late.result(), context.Canceled)
	}
	x.wantTurn("after that", x.store, "s", nil)
	turn := x.acquire(x.store, "s", hold("holder"))
	for i, s := range handles {
		// If the context ends before the claim is examined, the error does not name
		// the holder; so the timeout grows until it does.
		for after := 5 * time.Millisecond; ; after *= 2 {
			ctx, cancel := context.WithTimeout(x.ctx, after)
			waiter := x.start(fmt.Sprintf("handle %d: Acquire until a deadline", i), func() error {
				_, err := s.Acquire(ctx, "s", waiting(hold("late")))
				return err
			})
			err := waiter.result()
			cancel()
			x.wantErr(waiter.what, err, context.DeadlineExceeded)
			if errors.Is(err, hansard.ErrHeld) || after > x.patience/4 {
				x.wantHeld(waiter.what, err, turn)
				break
			}
		}
		ctx, cancel := context.WithCancel(x.ctx)
		waiter := x.start(fmt.Sprintf("handle %d: Acquire until cancelled", i), func() error {
			_, err := s.Acquire(ctx, "s", hansard.Claim{Wait: time.Hour})
			return err
		})
		letOthersRun()
		cancel()
		x.wantErr(waiter.what, waiter.result(), context.Canceled)
	}
	x.wantTurn("after all that", x.store, "s", &turn)
	x.release(x.store, "s", turn.Grant)
}

func turnWaitWoken(x *env) {
	handles := x.handles(3)
	x.create("s")
	for round := range 5 {
		turn := x.acquire(x.store, "s", hold("first"))
		var mu sync.Mutex // guards got
		got := map[uint64]int{}
		var waiters []*task
		for i := range 9 {
			s := handles[i%len(handles)]
			waiters = append(waiters, x.start(fmt.Sprint("round ", round, ", waiter ", i), func() error {
				turn, err := s.Acquire(x.ctx, "s", waiting(hold(fmt.Sprint(i))))
				if err != nil {
					return err
				}
				mu.Lock()
				got[turn.Grant.Number()]++
				mu.Unlock()
				if _, err := s.Append(x.ctx, "s", under(turn.Grant, "mine")); err != nil {
					return err
				}
				return s.Release(x.ctx, "s", turn.Grant)
			}))
		}
		letOthersRun()
		x.release(handles[round%len(handles)], "s", turn.Grant)
		for _, w := range waiters {
			w.finish()
		}
		for n := turn.Grant.Number() + 1; n <= turn.Grant.Number()+9; n++ {
			if got[n] != 1 {
				x.Errorf("round %d: grant %d was given to %d", round, n, got[n])
			}
		}
		x.wantTurn("when all had it", x.store, "s", nil)
	}
}

// turnWaitOrder can't know when a claim has joined the queue. It gives each some time,
// and more if the order was not kept: an engine that keeps the order soon passes, and
// one that does not will hardly pass by chance.
func turnWaitOrder(x *env) {
	x.create("s")
	var got []string
	for apart := time.Millisecond; apart < 600*time.Millisecond; apart *= 4 {
		turn := x.acquire(x.store, "s", hold("first"))
		first := turn.Seq
		var want []string
		var waiters []*task
		for i := range 8 {
			label := fmt.Sprint("waiter ", i)
			want = append(want, label)
			waiters = append(waiters, x.start(label, func() error {
				turn, err := x.store.Acquire(x.ctx, "s", waiting(hold(label)))
				if err != nil {
					return err
				}
				return x.store.Release(x.ctx, "s", turn.Grant)
			}))
			time.Sleep(apart)
		}
		x.release(x.store, "s", turn.Grant)
		for _, w := range waiters {
			w.finish()
		}
		got = nil
		for _, e := range x.read("s", hansard.Range{After: first}) {
			if r, err := recordOf(e); err != nil {
				x.Fatal(err)
			} else if r.Grants() {
				got = append(got, r.Holder.Label)
			}
		}
		if slices.Equal(got, want) {
			return
		}
	}
	x.Errorf("served in the order %q", got)
}

func turnWaitGivenUp(x *env) {
	handles := x.handles(2)
	x.create("s")
	for round := range 30 {
		turn := x.acquire(x.store, "s", hold("first"))
		s := handles[round%len(handles)]
		ctx, cancel := context.WithCancel(x.ctx)
		var got hansard.Turn
		leaving := x.start("a waiter that leaves", func() (err error) {
			got, err = s.Acquire(ctx, "s", waiting(hold("leaves")))
			return err
		})
		staying := x.start("a waiter that stays", func() error {
			turn, err := s.Acquire(x.ctx, "s", waiting(hold("stays")))
			if err != nil {
				return err
			}
			return s.Release(x.ctx, "s", turn.Grant)
		})
		if round%3 > 0 {
			letOthersRun()
		}
		// It leaves before the release, after it, or at the same moment.
		if round%2 == 0 {
			cancel()
		}
		releasing := x.start("the release", func() error { return x.store.Release(x.ctx, "s", turn.Grant) })
		cancel()
		releasing.finish()
		if err := leaving.result(); err == nil {
			x.release(s, "s", got.Grant) // it got the turn at the last moment
		} else {
			x.wantErr("the waiter that left", err, context.Canceled)
		}
		staying.finish()
		// Nobody holds it now, except perhaps a holder that is about to release it.
		x.start("the turn is free in the end", func() error {
			turn, err := x.store.Acquire(x.ctx, "s", waiting(hold("last")))
			if err != nil {
				return err
			}
			return x.store.Release(x.ctx, "s", turn.Grant)
		}).finish()
	}
}

func turnWaitDeleted(x *env) {
	handles := x.handles(2)
	for i := range 6 {
		id := hansard.SessionID(fmt.Sprint("s", i))
		x.create(id)
		turn := x.acquire(x.store, id, hold("holder"))
		var waiters []*task
		for n := range 4 {
			s := handles[n%len(handles)]
			waiters = append(waiters, x.start("Acquire on a session that is deleted", func() error {
				_, err := s.Acquire(x.ctx, id, waiting(hold("waits")))
				return err
			}))
		}
		letOthersRun()
		if err := x.store.Delete(x.ctx, id, []hansard.Grant{"", turn.Grant}[i%2]); err != nil {
			x.Fatalf("Delete: %v", err)
		}
		for _, w := range waiters {
			x.wantErr(w.what, w.result(), hansard.ErrDeleted)
		}
	}
}

func turnWaitClosed(x *env) {
	x.create("s")
	x.acquire(x.store, "s", hold("holder"))
	var waiters []*task
	for i := range 4 {
		c := hold("waits")
		c.Wait = []time.Duration{hansard.Forever, time.Hour}[i%2]
		waiters = append(waiters, x.start("Acquire on a store that is closed", func() error {
			_, err := x.store.Acquire(x.ctx, "s", c)
			return err
		}))
	}
	letOthersRun()
	x.start("Close", x.store.Close).finish()
	for _, w := range waiters {
		x.wantErr(w.what, w.result(), hansard.ErrClosed)
	}
}

func turnWaitTheft(x *env) {
	x.create("s")
	turn := x.acquire(x.store, "s", hold("first"))
	var waiters []*task
	for range 3 {
		waiters = append(waiters, x.start("a waiter", func() error {
			turn, err := x.store.Acquire(x.ctx, "s", waiting(hold("waiter")))
			if err != nil {
				return err
			}
			return x.store.Release(x.ctx, "s", turn.Grant)
		}))
	}
	letOthersRun()
	c := hold("thief")
	c.Steal = "in a hurry"
	stolen := x.acquire(x.store, "s", c)
	if stolen.Grant.Number() != turn.Grant.Number()+1 {
		x.Errorf("the thief got %s after %s", stolen.Grant, turn.Grant)
	}
	x.wantFenced("Release by the victim", x.store.Release(x.ctx, "s", turn.Grant), &stolen)
	x.release(x.store, "s", stolen.Grant)
	for _, w := range waiters {
		w.finish()
	}
}

func turnOthersWrite(x *env) {
	handles := x.handles(4)
	x.create("s")
	lease, err := hansard.Take(x.ctx, x.store, "s", hold("holder"))
	if err != nil {
		x.Fatal(err)
	}
	const writers, batches = 8, 30
	seen := make(chan struct{})
	following := x.start("the holder, following", func() error {
		var log []hansard.Event
		outside := 0
		for e, err := range hansard.Follow(lease.Context(), x.store, "s", lease.Turn().Seq) {
			if err != nil {
				return err
			}
			log = append(log, e)
			if e.Turn != "" {
				continue
			}
			if outside++; outside == 1 {
				close(seen)
			}
			if outside <= writers { // it answers while they write
				answer := hansard.Batch{Events: Marked("holder", outside, 1, 0), Turn: lease.Grant()}
				if _, err := x.store.Append(lease.Context(), "s", answer); err != nil {
					return err
				}
			}
			if outside == writers*batches {
				return CheckWhole(log)
			}
		}
		return errors.New("the following ended by itself")
	})
	var work []*writer
	for i := range writers {
		work = append(work, &writer{Name: fmt.Sprint("w", i), Sessions: []hansard.SessionID{"s"}, Batches: batches, Largest: 1})
	}
	var writing []*task
	for i := range writers {
		writing = append(writing, x.start("a writer beside the turn", func() error {
			return work[i].run(x.ctx, handles[i%len(handles)], func(report) {})
		}))
	}
	following.reaches("the first message from outside", seen)
	for _, w := range writing {
		w.finish()
	}
	following.finish()
	if err := lease.Context().Err(); err != nil {
		x.Errorf("the turn was lost: %v", context.Cause(lease.Context()))
	}
	if err := lease.Release(); err != nil {
		x.Errorf("Release: %v", err)
	}
}
