package storetest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"hansard"
)

var waitCases = []Case{
	{Name: "wait/already there", run: waitThere,
		Defends: "Wait returns at once when there is an event past the seq"},
	{Name: "wait/arrives", run: waitArrives,
		Defends: "an append wakes everyone who waits for it, and no wake-up is ever lost"},
	{Name: "wait/past the end", run: waitPastEnd,
		Defends: "Wait returns nil only if Read has an event past the seq"},
	{Name: "wait/context", run: waitContext,
		Defends: "Wait ends with its context, and the error says how"},
	{Name: "wait/deleted", run: waitDeleted,
		Defends: "waiters for a session that is deleted learn that it was deleted"},
	{Name: "wait/ping pong", run: waitPingPong,
		Defends: "two that respond to each other's events never wait for ever, on one handle or on two"},
	{Name: "follow/each once", run: followEachOnce,
		Defends: "each of many followers gets every event once and in order, and takes none from another", Answers: "47 48"},
	{Name: "follow/resume", run: followResume,
		Defends: "a follower that resumes from the last seq it has misses nothing and gets nothing twice", Answers: "48"},
	{Name: "follow/slow", run: followSlow,
		Defends: "a slow follower lags, loses nothing, and blocks no writer", Answers: "49"},
	{Name: "follow/ends", run: followEnds,
		Defends: "following ends with the context's error, with the session's deletion, and when the caller stops"},
}

func waitThere(x *env) {
	x.create("s")
	x.append("s", texts("one", "two", "three"))
	for after := range hansard.Seq(3) {
		x.start("Wait for what is there", func() error { return x.store.Wait(x.ctx, "s", after) }).finish()
	}
}

func waitArrives(x *env) {
	handles := x.handles(3)
	x.create("s")
	for round := range hansard.Seq(15) {
		var waiters []*task
		for i := range 12 {
			s := handles[i%len(handles)]
			waiters = append(waiters, x.start("Wait", func() error {
				if err := s.Wait(x.ctx, "s", round); err != nil {
					return err
				}
				events, err := readRange(x.ctx, s, "s", hansard.Range{After: round})
				if err == nil && (len(events) != 1 || events[0].Seq != round+1) {
					err = fmt.Errorf("woken for seq %d, and Read has %d", round+1, seqs(events))
				}
				return err
			}))
		}
		letOthersRun()
		x.append("s", texts("news"))
		for _, w := range waiters {
			w.finish()
		}
	}
}

func waitPastEnd(x *env) {
	x.create("s")
	x.append("s", texts("1"))
	woken := x.start("Wait past 5", func() error {
		if err := x.store.Wait(x.ctx, "s", 5); err != nil {
			return err
		}
		if events, err := readRange(x.ctx, x.store, "s", hansard.Range{After: 5}); err != nil || len(events) == 0 {
			return fmt.Errorf("woken, and Read has nothing past 5 (%w)", err)
		}
		return nil
	})
	for _, s := range []string{"2", "3", "4", "5"} {
		letOthersRun()
		x.append("s", texts(s))
	}
	letOthersRun()
	x.append("s", texts("6", "7"))
	woken.finish()
	// Events of other sessions must not wake it.
	x.create("t")
	ctx, cancel := context.WithCancel(x.ctx)
	other := x.start("Wait on another session", func() error { return x.store.Wait(ctx, "t", 0) })
	letOthersRun()
	x.append("s", texts("8"))
	letOthersRun()
	cancel()
	x.wantErr("Wait on a session where nothing happens", other.result(), context.Canceled)
}

func waitContext(x *env) {
	x.create("s")
	ctx, cancel := context.WithCancel(x.ctx)
	waiter := x.start("Wait until cancelled", func() error { return x.store.Wait(ctx, "s", 0) })
	letOthersRun()
	cancel()
	x.wantErr("Wait", waiter.result(), context.Canceled)

	ctx, cancel = context.WithTimeout(x.ctx, 5*time.Millisecond)
	defer cancel()
	waiter = x.start("Wait until the deadline", func() error { return x.store.Wait(ctx, "s", 0) })
	x.wantErr("Wait", waiter.result(), context.DeadlineExceeded)
	x.append("s", texts("the store goes on"))
}

func waitDeleted(x *env) {
	handles := x.handles(2)
	for i := range 10 {
		id := hansard.SessionID(fmt.Sprint("s", i))
		x.create(id)
		x.append(id, texts("one"))
		var waiters []*task
		for n := range 4 {
			s := handles[n%len(handles)]
			waiters = append(waiters, x.start("Wait on a session that is deleted", func() error { return s.Wait(x.ctx, id, 1) }))
		}
		letOthersRun()
		x.delete(id)
		for _, w := range waiters {
			x.wantErr("Wait", w.result(), hansard.ErrDeleted)
		}
	}
}

func waitPingPong(x *env) {
	handles := x.handles(2)
	x.create("s")
	x.append("s", texts("serve"))
	const rally = 60
	x.each(2, "player", func(i int) error {
		s := handles[i]
		for n := hansard.Seq(1 + i); n < rally; n += 2 {
			if err := s.Wait(x.ctx, "s", n-1); err != nil {
				return err
			}
			b := texts(fmt.Sprint(n))
			b.Expect = hansard.At(n)
			if _, err := s.Append(x.ctx, "s", b); err != nil {
				return err
			}
		}
		return nil
	})
	if n := x.stat("s").LastSeq; n != rally {
		x.Errorf("last seq %d, want %d", n, rally)
	}
}

func followEachOnce(x *env) {
	handles := x.handles(3)
	x.create("s")
	x.append("s", hansard.Batch{Events: Marked("first", 0, 1, 0)})
	const writers, batches = 4, 40
	total := hansard.Seq(1)
	var work []*writer
	for i := range writers {
		w := &writer{Name: fmt.Sprint("w", i), Sessions: []hansard.SessionID{"s"}, Batches: batches, Largest: 3}
		for n := range batches {
			_, b := w.batch(n)
			total += hansard.Seq(len(b.Events))
		}
		work = append(work, w)
	}
	var followers []*task
	for i := range 8 {
		began := make(chan struct{})
		f := follower{Session: "s", Upto: total, began: began}
		following := x.start("follower", func() error {
			return f.run(x.ctx, handles[i%len(handles)], func(report) {})
		})
		// All of them follow before the events that only waiting can deliver.
		following.reaches("the first event", began)
		followers = append(followers, following)
	}
	x.each(writers, "writer", func(i int) error {
		return work[i].run(x.ctx, handles[i%len(handles)], func(report) {})
	})
	for _, f := range followers {
		f.finish()
	}
}

func followResume(x *env) {
	x.create("s")
	const total = 60
	feeding := x.start("writer", func() error {
		for i := range total {
			if _, err := x.store.Append(x.ctx, "s", hansard.Batch{Events: Marked("w", i, 1, 0)}); err != nil {
				return err
			}
		}
		return nil
	})
	// It stops after every few events and resumes.
	after := hansard.Seq(0)
	following := x.start("a follower that comes and goes", func() error {
		for after < total {
			n := 0
			for e, err := range hansard.Follow(x.ctx, x.store, "s", after) {
				if err != nil {
					return err
				}
				if e.Seq != after+1 {
					return fmt.Errorf("came back after %d and got %d", after, e.Seq)
				}
				after = e.Seq
				if n++; n == 7 || after == total {
					break
				}
			}
		}
		return nil
	})
	feeding.finish()
	following.finish()
}

func followSlow(x *env) {
	x.create("s")
	x.append("s", hansard.Batch{Events: Marked("first", 0, 1, 0)})
	standing, resume := make(chan struct{}), make(chan struct{})
	slow := x.start("a slow follower", func() error {
		want := hansard.Seq(1)
		for e, err := range hansard.Follow(x.ctx, x.store, "s", 0) {
			if err != nil {
				return err
			}
			if e.Seq != want {
				return fmt.Errorf("got seq %d, want %d", e.Seq, want)
			}
			if want++; e.Seq == 1 {
				close(standing)
				<-resume
			}
			if e.Seq == 301 {
				return nil
			}
		}
		return errors.New("the following ended by itself")
	})
	slow.reaches("the first event", standing)
	for i := range 3 {
		writing := x.start("writer past a slow follower", func() error {
			_, err := x.store.Append(x.ctx, "s", hansard.Batch{Events: Marked("w", i, 100, 1000)})
			return err
		})
		writing.finish()
	}
	close(resume)
	slow.finish()
}

func followEnds(x *env) {
	x.create("s")
	x.append("s", texts("one", "two"))
	follow := func(ctx context.Context, seen chan<- struct{}) func() error {
		return func() error {
			for e, err := range hansard.Follow(ctx, x.store, "s", 0) {
				if err != nil {
					return err
				}
				if e.Seq == 2 {
					close(seen)
				}
			}
			return nil
		}
	}
	ctx, cancel := context.WithCancel(x.ctx)
	seen := make(chan struct{})
	following := x.start("a follower until cancelled", follow(ctx, seen))
	following.reaches("the end", seen)
	cancel()
	x.wantErr("Follow", following.result(), context.Canceled)

	seen = make(chan struct{})
	following = x.start("a follower until the session is deleted", follow(x.ctx, seen))
	following.reaches("the end", seen)
	x.delete("s")
	x.wantErr("Follow", following.result(), hansard.ErrDeleted)
}
