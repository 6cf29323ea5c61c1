package storetest

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"hansard"
)

// fenceMutants break what a grant is good for, and how it ends.
func fenceMutants() []mutant {
	type ctx = context.Context
	// lenient makes a mutant that stores what was fenced after all.
	lenient := func(name string, which func(c ctx, s hansard.Store, id hansard.SessionID, b *hansard.Batch) bool, caught ...string) mutant {
		return mutant{name: name, caught: caught, plant: inner(func(b *broken, s hansard.Store) {
			b.append = func(c ctx, id hansard.SessionID, batch hansard.Batch) (hansard.Receipt, error) {
				r, err := s.Append(c, id, batch)
				if errors.Is(err, hansard.ErrFenced) && which(c, s, id, &batch) {
					batch.Turn = ""
					if t := holding(c, s, id); t != nil {
						batch.Turn = t.Grant
					}
					return s.Append(c, id, batch)
				}
				return r, err
			}
		})}
	}
	releasing := func(name string, release func(c ctx, s hansard.Store, id hansard.SessionID, g hansard.Grant, err error) error, caught ...string) mutant {
		return mutant{name: name, caught: caught, patience: 500 * time.Millisecond, plant: inner(func(b *broken, s hansard.Store) {
			b.release = func(c ctx, id hansard.SessionID, g hansard.Grant) error {
				return release(c, s, id, g, s.Release(c, id, g))
			}
		})}
	}
	sameNumber := func(c ctx, s hansard.Store, id hansard.SessionID, g hansard.Grant) bool {
		t := holding(c, s, id)
		return t != nil && t.Grant.Number() == g.Number()
	}
	return []mutant{
		lenient("appends are not fenced", func(ctx, hansard.Store, hansard.SessionID, *hansard.Batch) bool { return true },
			"turn/fenced", "turn/silent holder", "turn/sessions apart", "turn/contended with thieves", "lease/stolen", "lease/released", "model/random operations"),
		lenient("patches are not fenced", func(_ ctx, _ hansard.Store, _ hansard.SessionID, b *hansard.Batch) bool { return len(b.Events) == 0 },
			"turn/fenced", "turn/stolen", "turn/max hold"),
		lenient("the inbox is not fenced", func(_ ctx, _ hansard.Store, _ hansard.SessionID, b *hansard.Batch) bool { return b.InboxOnly() }, "turn/fenced"),
		lenient("grants are compared by number", func(c ctx, s hansard.Store, id hansard.SessionID, b *hansard.Batch) bool {
			return sameNumber(c, s, id, b.Turn)
		}, "turn/fenced", "turn/sessions apart"),
		{name: "a deletion is not fenced", caught: []string{"turn/fenced", "turn/sessions apart"}, plant: inner(func(b *broken, s hansard.Store) {
			b.delete = func(c ctx, id hansard.SessionID, g hansard.Grant) error {
				err := s.Delete(c, id, g)
				if t := holding(c, s, id); errors.Is(err, hansard.ErrFenced) && t != nil {
					return s.Delete(c, id, t.Grant)
				}
				return err
			}
		})},
		{name: "the fence is looked at outside the commit", caught: []string{"turn/contended with thieves"}, plant: inner(func(b *broken, s hansard.Store) {
			b.append = func(c ctx, id hansard.SessionID, batch hansard.Batch) (hansard.Receipt, error) {
				if t := holding(c, s, id); batch.Turn != "" && t != nil && t.Grant == batch.Turn {
					dawdle()
					if now := holding(c, s, id); now != nil {
						batch.Turn = now.Grant
					}
				}
				return s.Append(c, id, batch)
			}
		})},
		{name: "a fenced holder is not told who has the turn", caught: []string{"turn/fenced", "model/random operations"}, plant: inner(func(b *broken, s hansard.Store) {
			b.append = func(c ctx, id hansard.SessionID, batch hansard.Batch) (hansard.Receipt, error) {
				r, err := s.Append(c, id, batch)
				if errors.Is(err, hansard.ErrFenced) {
					err = &hansard.FencedError{Session: id, Grant: batch.Turn}
				}
				return r, err
			}
		})},
		{name: "the fence comes before the key", caught: []string{"turn/key before fence", "key/outlives conditions"}, plant: inner(func(b *broken, s hansard.Store) {
			b.append = func(c ctx, id hansard.SessionID, batch hansard.Batch) (hansard.Receipt, error) {
				t := holding(c, s, id)
				if batch.Turn != "" && (t == nil || t.Grant != batch.Turn) && !lacking(c, s, id) {
					return hansard.Receipt{}, &hansard.FencedError{Session: id, Grant: batch.Turn, Current: t}
				}
				return s.Append(c, id, batch)
			}
		})},
		{name: "a key that was fenced is burnt", caught: []string{"turn/key before fence"}, plant: inner(func(b *broken, s hansard.Store) {
			var burnt sync.Map
			b.append = func(c ctx, id hansard.SessionID, batch hansard.Batch) (hansard.Receipt, error) {
				if _, ok := burnt.Load(batch.Key); ok && batch.Turn == "" {
					return hansard.Receipt{Session: id, Replayed: true}, nil
				}
				r, err := s.Append(c, id, batch)
				if batch.Key != "" && errors.Is(err, hansard.ErrFenced) {
					burnt.Store(batch.Key, true)
				}
				return r, err
			}
		})},
		{name: "an expired grant is fenced by itself", caught: []string{"turn/expiry alone"}, plant: inner(func(b *broken, s hansard.Store) {
			var until sync.Map
			b.acquire = func(c ctx, id hansard.SessionID, claim hansard.Claim) (hansard.Turn, error) {
				t, err := s.Acquire(c, id, claim)
				until.Store(t.Grant, time.Now().Add(t.TTL))
				return t, err
			}
			b.append = func(c ctx, id hansard.SessionID, batch hansard.Batch) (hansard.Receipt, error) {
				if end, ok := until.Load(batch.Turn); ok && time.Now().After(end.(time.Time)) {
					return hansard.Receipt{}, &hansard.FencedError{Session: id, Grant: batch.Turn}
				}
				return s.Append(c, id, batch)
			}
		})},
		{name: "renewals do nothing", caught: []string{"turn/renewed", "lease/renews itself"}, plant: inner(func(b *broken, s hansard.Store) {
			b.renew = func(c ctx, id hansard.SessionID, g hansard.Grant) error {
				if t := holding(c, s, id); t == nil || t.Grant != g {
					return s.Renew(c, id, g)
				}
				return nil
			}
		})},
		{name: "a renewal is a line in the log", caught: []string{"lease/renews itself", "model/random operations"}, plant: inner(func(b *broken, s hansard.Store) {
			b.renew = func(c ctx, id hansard.SessionID, g hansard.Grant) error {
				err := s.Renew(c, id, g)
				if err == nil {
					s.Append(c, id, under(g, "alive"))
				}
				return err
			}
		})},
		{name: "renewing a lost turn is fine", caught: []string{"turn/fenced", "turn/stolen"}, plant: inner(func(b *broken, s hansard.Store) {
			b.renew = func(c ctx, id hansard.SessionID, g hansard.Grant) error {
				return unless(s.Renew(c, id, g), hansard.ErrFenced)
			}
		})},
		{name: "renewing past MaxHold is fine", caught: []string{"turn/max hold"}, patience: 500 * time.Millisecond, plant: inner(func(b *broken, s hansard.Store) {
			b.renew = func(c ctx, id hansard.SessionID, g hansard.Grant) error {
				err := s.Renew(c, id, g)
				if errors.Is(err, hansard.ErrFenced) && strings.Contains(err.Error(), "whole") {
					return nil
				}
				return err
			}
		})},
		releasing("a release releases whoever holds the turn", func(c ctx, s hansard.Store, id hansard.SessionID, g hansard.Grant, err error) error {
			if t := holding(c, s, id); errors.Is(err, hansard.ErrFenced) && t != nil {
				s.Release(c, id, t.Grant)
			}
			return err
		}, "turn/release once", "turn/released in a race", "turn/fenced", "turn/sessions apart", "turn/wait and theft", "lease/stolen"),
		releasing("a release compares numbers", func(c ctx, s hansard.Store, id hansard.SessionID, g hansard.Grant, err error) error {
			if errors.Is(err, hansard.ErrFenced) && sameNumber(c, s, id, g) {
				return s.Release(c, id, holding(c, s, id).Grant)
			}
			return err
		}, "turn/fenced", "turn/sessions apart"),
		releasing("a second release is fine", func(_ ctx, _ hansard.Store, _ hansard.SessionID, _ hansard.Grant, err error) error {
			return unless(err, hansard.ErrFenced)
		}, "turn/release once", "turn/released in a race", "lease/released", "turn/wait and theft"),
		releasing("a release is recorded twice", func(c ctx, s hansard.Store, id hansard.SessionID, _ hansard.Grant, err error) error {
			if t, again := s.Acquire(c, id, hansard.Claim{}); err == nil && again == nil {
				s.Release(c, id, t.Grant)
			}
			return err
		}, "turn/granted", "turn/release once", "turn/numbers"),
		{name: "a release is forgotten", caught: []string{"turn/granted", "turn/wait woken", "lease/context"}, patience: 500 * time.Millisecond,
			plant: inner(func(b *broken, s hansard.Store) {
				b.release = func(c ctx, id hansard.SessionID, g hansard.Grant) error { return s.Renew(c, id, g) }
			})},
		{name: "the take-over of a silent holder looks like a theft", caught: []string{"turn/silent holder", "turn/max hold"},
			plant: inner(func(b *broken, s hansard.Store) {
				b.acquire = func(c ctx, id hansard.SessionID, claim hansard.Claim) (hansard.Turn, error) {
					t := holding(c, s, id)
					if t == nil || claim.Wait == 0 || t.TTL > time.Minute && t.MaxHold == 0 {
						return s.Acquire(c, id, claim)
					}
					time.Sleep(min(t.TTL, max(t.MaxHold, hansard.MinTTL)))
					claim.Steal = "silent"
					return s.Acquire(c, id, claim)
				}
			})},
	}
}
