package storetest

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"hansard"
)

// turnWaitMutants break how turns are waited for.
func turnWaitMutants() []mutant {
	type ctx = context.Context
	const short = 500 * time.Millisecond
	acquiring := func(name string, acquire func(c ctx, s hansard.Store, id hansard.SessionID, claim hansard.Claim) (hansard.Turn, error), caught ...string) mutant {
		return mutant{name: name, caught: caught, patience: short, plant: inner(func(b *broken, s hansard.Store) {
			b.acquire = func(c ctx, id hansard.SessionID, claim hansard.Claim) (hansard.Turn, error) {
				return acquire(c, s, id, claim)
			}
		})}
	}
	return []mutant{
		claiming("who waits waits for ever", func(c *hansard.Claim) {
			if c.Wait > 0 {
				c.Wait = hansard.Forever
			}
		}, "turn/wait bounded"),
		claiming("nobody waits", func(c *hansard.Claim) { c.Wait = min(c.Wait, 0) },
			"turn/wait woken", "turn/wait in order", "turn/wait and theft", "turn/silent holder"),
		acquiring("waiting ignores the context", func(c ctx, s hansard.Store, id hansard.SessionID, claim hansard.Claim) (hansard.Turn, error) {
			return s.Acquire(context.WithoutCancel(c), id, claim)
		}, "turn/wait context"),
		acquiring("the end of the context does not tell the holder", func(c ctx, s hansard.Store, id hansard.SessionID, claim hansard.Claim) (hansard.Turn, error) {
			t, err := s.Acquire(c, id, claim)
			if err != nil && c.Err() != nil {
				err = c.Err()
			}
			return t, err
		}, "turn/wait context"),
		acquiring("the end of a wait looks like the end of the context", func(c ctx, s hansard.Store, id hansard.SessionID, claim hansard.Claim) (hansard.Turn, error) {
			t, err := s.Acquire(c, id, claim)
			if claim.Wait > 0 && errors.Is(err, hansard.ErrHeld) {
				err = errors.Join(err, context.DeadlineExceeded)
			}
			return t, err
		}, "turn/wait bounded"),
		acquiring("a holder is not named", func(c ctx, s hansard.Store, id hansard.SessionID, claim hansard.Claim) (hansard.Turn, error) {
			t, err := s.Acquire(c, id, claim)
			if errors.Is(err, hansard.ErrHeld) && c.Err() == nil {
				err = hansard.ErrHeld
			}
			return t, err
		}, "turn/held", "turn/wait bounded", "lease/refused"),
		acquiring("those who wait ask again and again, in no order", func(c ctx, s hansard.Store, id hansard.SessionID, claim hansard.Claim) (hansard.Turn, error) {
			wait := claim.Wait
			for claim.Wait = 0; ; {
				t, err := s.Acquire(c, id, claim)
				if wait == 0 || !errors.Is(err, hansard.ErrHeld) {
					return t, err
				}
				time.Sleep(time.Duration(rand.IntN(int(3 * time.Millisecond))))
			}
		}, "turn/wait in order"),
		acquiring("a release wakes nobody", func(c ctx, s hansard.Store, id hansard.SessionID, claim hansard.Claim) (hansard.Turn, error) {
			wait := claim.Wait
			claim.Wait = 0
			t, err := s.Acquire(c, id, claim)
			if wait > 0 && errors.Is(err, hansard.ErrHeld) {
				time.Sleep(min(wait, 2*short))
			}
			return t, err
		}, "turn/wait woken", "turn/wait and theft"),
		acquiring("who left still gets the turn", func(c ctx, s hansard.Store, id hansard.SessionID, claim hansard.Claim) (t hansard.Turn, err error) {
			done := make(chan struct{})
			go func() {
				defer close(done)
				t, err = s.Acquire(context.WithoutCancel(c), id, claim)
			}()
			select {
			case <-done:
				return t, err
			case <-c.Done():
				return hansard.Turn{}, c.Err()
			}
		}, "turn/wait given up"),
		acquiring("a deletion wakes nobody who waits for the turn", func(c ctx, s hansard.Store, id hansard.SessionID, claim hansard.Claim) (hansard.Turn, error) {
			t, err := s.Acquire(c, id, claim)
			if claim.Wait > 0 && errors.Is(err, hansard.ErrDeleted) {
				<-c.Done()
			}
			return t, err
		}, "turn/wait deleted"),
		acquiring("a turn is granted to a context that has ended", func(c ctx, s hansard.Store, id hansard.SessionID, claim hansard.Claim) (hansard.Turn, error) {
			if c.Err() != nil && holding(context.WithoutCancel(c), s, id) == nil {
				c = context.WithoutCancel(c)
			}
			return s.Acquire(c, id, claim)
		}, "turn/wait context"),
		{name: "a holder is seen after its release", caught: []string{"history/linearizable", "model/random operations"}, plant: inner(func(b *broken, s hansard.Store) {
			var before atomic.Pointer[hansard.HeldError]
			b.acquire = func(c ctx, id hansard.SessionID, claim hansard.Claim) (hansard.Turn, error) {
				t, err := s.Acquire(c, id, claim)
				var held *hansard.HeldError
				if errors.As(err, &held) {
					if old := before.Swap(held); old != nil {
						return t, old
					}
				}
				return t, err
			}
		})},
		{name: "closing leaves those who wait for a turn", caught: []string{"turn/wait closed", "close/refuses"}, patience: short,
			plant: perHandle(func(b *broken, _, s hansard.Store, _ int) { b.acquire = s.Acquire })},
		{name: "a write waits for the turn", caught: []string{"turn/others write", "processes/beside a turn"}, patience: short, plant: inner(func(b *broken, s hansard.Store) {
			b.append = func(c ctx, id hansard.SessionID, batch hansard.Batch) (hansard.Receipt, error) {
				for batch.Turn == "" && holding(c, s, id) != nil && c.Err() == nil {
					dawdle()
				}
				return s.Append(c, id, batch)
			}
		})},
	}
}

// exclusiveMutants break exclusive turns and the inbox.
func exclusiveMutants() []mutant {
	type ctx = context.Context
	// open makes a mutant that lets some batches past an exclusive turn.
	open := func(name string, which func(b *hansard.Batch) bool, caught ...string) mutant {
		return mutant{name: name, caught: caught, plant: inner(func(b *broken, s hansard.Store) {
			b.append = func(c ctx, id hansard.SessionID, batch hansard.Batch) (hansard.Receipt, error) {
				r, err := s.Append(c, id, batch)
				if t := holding(c, s, id); errors.Is(err, hansard.ErrHeld) && which(&batch) && t != nil {
					batch.Turn = t.Grant
					return s.Append(c, id, batch)
				}
				return r, err
			}
		})}
	}
	shut := func(name string, keep func(t *hansard.Turn, b *hansard.Batch) bool, caught ...string) mutant {
		return mutant{name: name, caught: caught, plant: inner(func(b *broken, s hansard.Store) {
			b.append = func(c ctx, id hansard.SessionID, batch hansard.Batch) (hansard.Receipt, error) {
				if t := holding(c, s, id); t != nil && keep(t, &batch) {
					return hansard.Receipt{}, &hansard.HeldError{Session: id, Turn: *t}
				}
				return s.Append(c, id, batch)
			}
		})}
	}
	return []mutant{
		claiming("no turn is exclusive", func(c *hansard.Claim) { c.Exclusive = false }, "exclusive/refuses", "exclusive/ends", "turn/granted"),
		claiming("every turn is exclusive", func(c *hansard.Claim) { c.Exclusive = true },
			"turn/others write", "turn/on events", "turn/deleted", "exclusive/ends", "lease/deleted", "processes/beside a turn"),
		open("an exclusive turn lets appends in", func(b *hansard.Batch) bool { return b.Patch == nil }, "exclusive/refuses", "exclusive/ends", "model/random operations"),
		open("an exclusive turn lets patches in", func(b *hansard.Batch) bool { return len(b.Events) == 0 }, "exclusive/refuses"),
		open("the inbox lets patches in", func(b *hansard.Batch) bool {
			events := *b
			events.Patch = nil
			return len(b.Events) > 0 && events.InboxOnly()
		}, "exclusive/refuses"),
		open("one event for the inbox lets the batch in", func(b *hansard.Batch) bool { return len(b.Events) > 0 && b.Events[0].Inbox && b.Patch == nil }, "exclusive/refuses"),
		shut("the inbox is shut", func(t *hansard.Turn, b *hansard.Batch) bool { return t.Exclusive && b.Turn == "" && b.InboxOnly() },
			"exclusive/inbox", "exclusive/inbox crowd", "model/random operations"),
		shut("a silent holder keeps everybody out", func(t *hansard.Turn, b *hansard.Batch) bool { return t.Exclusive && b.Turn == "" && !b.InboxOnly() },
			"exclusive/silent holder"),
		{name: "a silent holder's turn ends without a word", caught: []string{"exclusive/silent holder"}, plant: inner(func(b *broken, s hansard.Store) {
			b.append = func(c ctx, id hansard.SessionID, batch hansard.Batch) (hansard.Receipt, error) {
				t := holding(c, s, id)
				if t != nil && t.Exclusive && batch.Turn == "" && time.Since(t.Since) > max(t.TTL, t.MaxHold) {
					batch.Turn = t.Grant
				}
				return s.Append(c, id, batch)
			}
		})},
		shut("the holder may not change metadata", func(t *hansard.Turn, b *hansard.Batch) bool { return t.Exclusive && b.Patch != nil }, "exclusive/holder"),
		{name: "an exclusive turn lets deletions in", caught: []string{"exclusive/refuses"}, plant: inner(func(b *broken, s hansard.Store) {
			b.delete = func(c ctx, id hansard.SessionID, g hansard.Grant) error {
				err := s.Delete(c, id, g)
				if t := holding(c, s, id); errors.Is(err, hansard.ErrHeld) && t != nil {
					return s.Delete(c, id, t.Grant)
				}
				return err
			}
		})},
		{name: "the expectation comes before the turn", caught: []string{"exclusive/refuses"}, plant: inner(func(b *broken, s hansard.Store) {
			b.append = func(c ctx, id hansard.SessionID, batch hansard.Batch) (hansard.Receipt, error) {
				r, err := s.Append(c, id, batch)
				info, _ := s.Stat(c, id)
				if errors.Is(err, hansard.ErrHeld) && batch.Expect != nil && *batch.Expect != info.LastSeq {
					err = &hansard.ConflictError{Session: id, Expected: *batch.Expect, Actual: info.LastSeq}
				}
				return r, err
			}
		})},
		{name: "an exclusive turn lasts past its release", caught: []string{"exclusive/ends", "exclusive/refuses"}, plant: inner(func(b *broken, s hansard.Store) {
			var last *hansard.Turn
			b.acquire = func(c ctx, id hansard.SessionID, claim hansard.Claim) (hansard.Turn, error) {
				t, err := s.Acquire(c, id, claim)
				if err == nil && t.Exclusive {
					last = &t
				}
				return t, err
			}
			b.append = func(c ctx, id hansard.SessionID, batch hansard.Batch) (hansard.Receipt, error) {
				if last != nil && batch.Turn == "" && !batch.InboxOnly() {
					return hansard.Receipt{}, &hansard.HeldError{Session: id, Turn: *last}
				}
				return s.Append(c, id, batch)
			}
		})},
	}
}

// leaseMutants break what a lease stands on.
func leaseMutants() []mutant {
	type ctx = context.Context
	const short = 500 * time.Millisecond
	return []mutant{
		{name: "a theft is not seen", caught: []string{"lease/stolen"}, patience: short, plant: inner(func(b *broken, s hansard.Store) {
			var first *hansard.Turn
			b.stat = func(c ctx, id hansard.SessionID) (hansard.Info, error) {
				info, err := s.Stat(c, id)
				if first == nil {
					first = info.Turn
				}
				if info.Turn != nil {
					info.Turn = first
				}
				return info, err
			}
			b.acquire = func(c ctx, id hansard.SessionID, claim hansard.Claim) (hansard.Turn, error) {
				t, err := s.Acquire(c, id, claim)
				if first == nil && err == nil {
					first = &t
				}
				return t, err
			}
		})},
		granting("a holder is not told its MaxHold", func(_ hansard.Store, _ hansard.SessionID, t *hansard.Turn) { t.MaxHold = 0 }, "turn/granted"),
		{name: "a deletion wakes nobody", caught: []string{"lease/deleted", "wait/deleted"}, patience: short, plant: inner(func(b *broken, s hansard.Store) {
			b.wait = func(c ctx, id hansard.SessionID, after hansard.Seq) error {
				err := s.Wait(c, id, after)
				if errors.Is(err, hansard.ErrDeleted) {
					<-c.Done()
				}
				return err
			}
		})},
		{name: "closing wakes nobody", caught: []string{"lease/closed", "close/releases"}, patience: short,
			plant: perHandle(func(b *broken, _, s hansard.Store, _ int) { b.wait = s.Wait })},
	}
}
