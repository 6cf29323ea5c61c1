package storetest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"hansard"
)

// holding gives the turn that is held, nil when none is or it can't be told.
func holding(ctx context.Context, s hansard.Store, id hansard.SessionID) *hansard.Turn {
	info, err := s.Stat(ctx, id)
	if err != nil {
		return nil
	}
	return info.Turn
}

// claiming makes a mutant that changes each claim.
func claiming(name string, change func(c *hansard.Claim), caught ...string) mutant {
	return mutant{name: name, caught: caught, patience: 500 * time.Millisecond, plant: inner(func(b *broken, s hansard.Store) {
		b.acquire = func(ctx context.Context, id hansard.SessionID, c hansard.Claim) (hansard.Turn, error) {
			change(&c)
			return s.Acquire(ctx, id, c)
		}
	})}
}

// granting makes a mutant that changes each turn it gives.
func granting(name string, change func(s hansard.Store, id hansard.SessionID, t *hansard.Turn), caught ...string) mutant {
	return mutant{name: name, caught: caught, plant: inner(func(b *broken, s hansard.Store) {
		b.acquire = func(ctx context.Context, id hansard.SessionID, c hansard.Claim) (hansard.Turn, error) {
			t, err := s.Acquire(ctx, id, c)
			if err == nil {
				change(s, id, &t)
			}
			return t, err
		}
	})}
}

// describing makes a mutant that shows turns wrongly.
func describing(name string, stat, list func(i *hansard.Info), caught ...string) mutant {
	return mutant{name: name, caught: caught, plant: inner(func(b *broken, s hansard.Store) {
		b.stat = func(ctx context.Context, id hansard.SessionID) (hansard.Info, error) {
			info, err := s.Stat(ctx, id)
			stat(&info)
			return info, err
		}
		b.list = func(ctx context.Context, q hansard.Query) iter.Seq2[hansard.Info, error] {
			infos, err := listAll(ctx, s, q)
			for i := range infos {
				list(&infos[i])
			}
			return infosOf(infos, err)
		}
	})}
}

// turnMutants break how turns are granted and shown.
func turnMutants() []mutant {
	type ctx = context.Context
	as := func(*hansard.Info) {}
	free := func(i *hansard.Info) { i.Turn = nil }
	return []mutant{
		claiming("the label is lost", func(c *hansard.Claim) { c.Label = "" }, "turn/granted", "turn/claims", "turn/shown"),
		claiming("a claim is made to fit", func(c *hansard.Claim) {
			c.Wait, c.TTL, c.MaxHold = max(c.Wait, 0), min(max(c.TTL, hansard.MinTTL), hansard.MaxTTL), max(c.MaxHold, 0)
		}, "turn/claims"),
		claiming("a theft is never on record", func(c *hansard.Claim) {
			if c.Steal != "" {
				c.Steal = "?"
			}
		}, "turn/stolen", "turn/shown"),
		claiming("nothing is ever stolen", func(c *hansard.Claim) { c.Steal = "" }, "turn/stolen", "turn/numbers", "turn/wait and theft", "turn/contended with thieves"),
		claiming("every claim steals", func(c *hansard.Claim) { c.Steal = "mine" },
			"turn/held", "turn/wait bounded", "lease/refused", "turn/contended", "processes/turn", "model/random operations"),
		claiming("a turn lasts a day", func(c *hansard.Claim) { c.TTL = hansard.MaxTTL }, "turn/silent holder", "turn/granted", "exclusive/ends", "processes/turn of the dead"),
		claiming("MaxHold is ignored", func(c *hansard.Claim) { c.MaxHold = 0 }, "turn/max hold", "lease/max hold"),
		granting("a turn is said to be on record a seq before it is", func(_ hansard.Store, _ hansard.SessionID, t *hansard.Turn) { t.Seq-- },
			"turn/granted", "turn/record"),
		granting("the nonce is always the same", func(_ hansard.Store, _ hansard.SessionID, t *hansard.Turn) {
			t.Grant = hansard.NextGrant(hansard.Grant(fmt.Sprintf("%d-0123456789abcdef", t.Grant.Number()-1)), 7)
		}, "turn/numbers"),
		{name: "grants are counted by each handle", caught: []string{"turn/numbers"}, plant: perHandle(func(b *broken, h, _ hansard.Store, _ int) {
			given := make(map[hansard.SessionID]hansard.Grant)
			b.acquire = func(c ctx, id hansard.SessionID, claim hansard.Claim) (hansard.Turn, error) {
				t, err := h.Acquire(c, id, claim)
				if err == nil {
					given[id] = hansard.NextGrant(given[id], 7)
					t.Grant = given[id]
				}
				return t, err
			}
		})},
		{name: "who holds the turn may acquire it again", caught: []string{"turn/held", "model/random operations"}, plant: inner(func(b *broken, s hansard.Store) {
			b.acquire = func(c ctx, id hansard.SessionID, claim hansard.Claim) (hansard.Turn, error) {
				t, err := s.Acquire(c, id, claim)
				var held *hansard.HeldError
				if errors.As(err, &held) && held.Turn.Holder == hansard.Me(claim.Label) {
					return held.Turn, nil
				}
				return t, err
			}
		})},
		{name: "a turn is looked up outside the commit", caught: []string{"turn/contended", "processes/turn"},
			plant: inner(func(b *broken, s hansard.Store) {
				b.acquire = func(c ctx, id hansard.SessionID, claim hansard.Claim) (hansard.Turn, error) {
					if claim.Steal == "" && holding(c, s, id) == nil {
						dawdle()
						claim.Steal = "it was free a moment ago"
					}
					return s.Acquire(c, id, claim)
				}
			})},
		{name: "a turn is given before it is on record", caught: []string{"turn/granted", "turn/record", "turn/fenced"}, patience: 500 * time.Millisecond,
			plant: inner(func(b *broken, s hansard.Store) {
				// The answer is that of a grant to be, which the store has yet to make.
				b.acquire = func(c ctx, id hansard.SessionID, claim hansard.Claim) (hansard.Turn, error) {
					if err := hansard.CheckClaim(&claim); err != nil || claim.Steal != "" || holding(c, s, id) != nil {
						return s.Acquire(c, id, claim)
					}
					info, err := s.Stat(c, id)
					if err != nil || c.Err() != nil {
						return s.Acquire(c, id, claim)
					}
					r := hansard.NewTurnRecord(&claim, "", "")
					time.AfterFunc(time.Millisecond, func() { s.Acquire(context.WithoutCancel(c), id, claim) })
					return r.Turn(hansard.NextGrant("", 7), info.LastSeq+1, hansard.Now()), nil
				}
			})},
		{name: "the turn's records are not read", caught: []string{"turn/granted", "turn/record", "turn/on events"}, plant: inner(func(b *broken, s hansard.Store) {
			b.read = func(c ctx, id hansard.SessionID, r hansard.Range) iter.Seq2[hansard.Event, error] {
				events, err := readRange(c, s, id, r)
				return eventsOf(slices.DeleteFunc(events, func(e hansard.Event) bool { return e.Kind == hansard.KindTurn }), err)
			}
		})},
		{name: "anybody may write the turn's record", caught: []string{"turn/record"}, plant: inner(func(b *broken, s hansard.Store) {
			b.append = func(c ctx, id hansard.SessionID, batch hansard.Batch) (hansard.Receipt, error) {
				batch.Events = slices.Clone(batch.Events)
				for i := range batch.Events {
					if batch.Events[i].Kind == hansard.KindTurn {
						batch.Events[i].Kind = "a kind that reads like it"
					}
				}
				return s.Append(c, id, batch)
			}
		})},
		{name: "events do not carry their grant", caught: []string{"turn/on events", "exclusive/inbox", "exclusive/inbox crowd", "turn/contended"},
			plant: inner(func(b *broken, s hansard.Store) {
				b.read = func(c ctx, id hansard.SessionID, r hansard.Range) iter.Seq2[hansard.Event, error] {
					events, err := readRange(c, s, id, r)
					for i := range events {
						if events[i].Kind != hansard.KindTurn {
							events[i].Turn = ""
						}
					}
					return eventsOf(events, err)
				}
			})},
		{name: "every event carries the turn that is held", caught: []string{"turn/on events", "exclusive/inbox", "turn/others write"}, patience: 500 * time.Millisecond,
			plant: inner(func(b *broken, s hansard.Store) {
				b.append = func(c ctx, id hansard.SessionID, batch hansard.Batch) (hansard.Receipt, error) {
					if t := holding(c, s, id); t != nil && batch.Turn == "" {
						batch.Turn = t.Grant
					}
					return s.Append(c, id, batch)
				}
			})},
		{name: "a grant is good only where it was acquired", caught: []string{"turn/on events", "turn/release once", "exclusive/holder"},
			plant: perHandle(func(b *broken, h, _ hansard.Store, _ int) {
				var mine sync.Map
				b.acquire = func(c ctx, id hansard.SessionID, claim hansard.Claim) (hansard.Turn, error) {
					t, err := h.Acquire(c, id, claim)
					mine.Store(t.Grant, true)
					return t, err
				}
				foreign := func(g hansard.Grant) bool { _, ok := mine.Load(g); return g != "" && !ok }
				b.append = func(c ctx, id hansard.SessionID, batch hansard.Batch) (hansard.Receipt, error) {
					if foreign(batch.Turn) {
						return hansard.Receipt{}, &hansard.FencedError{Session: id, Grant: batch.Turn}
					}
					return h.Append(c, id, batch)
				}
				b.release = func(c ctx, id hansard.SessionID, g hansard.Grant) error {
					if foreign(g) {
						return &hansard.FencedError{Session: id, Grant: g}
					}
					return h.Release(c, id, g)
				}
			})},
		{name: "all sessions have one turn", caught: []string{"turn/sessions apart"}, plant: inner(func(b *broken, s hansard.Store) {
			b.acquire = func(c ctx, id hansard.SessionID, claim hansard.Claim) (hansard.Turn, error) {
				infos, _ := listAll(c, s, hansard.Query{})
				for _, i := range infos {
					if i.ID != id && i.Turn != nil {
						return hansard.Turn{}, &hansard.HeldError{Session: id, Turn: *i.Turn}
					}
				}
				return s.Acquire(c, id, claim)
			}
		})},
		describing("Stat does not show turns", free, as, "turn/shown", "turn/others write", "model/random operations"),
		describing("List does not show turns", as, free, "turn/shown"),
		{name: "Turn does not look", caught: []string{"turn/granted", "turn/shown", "lease/context"}, plant: inner(func(b *broken, s hansard.Store) {
			b.turn = func(c ctx, id hansard.SessionID) (*hansard.Turn, error) {
				_, err := s.Turn(c, id)
				return nil, err
			}
		})},
		{name: "Turn answers for sessions that are gone", caught: []string{"turn/deleted", "append/unknown session", "close/keeps all"},
			plant: inner(func(b *broken, s hansard.Store) {
				b.turn = func(c ctx, id hansard.SessionID) (*hansard.Turn, error) {
					t, err := s.Turn(c, id)
					if errors.Is(err, hansard.ErrDeleted) || errors.Is(err, hansard.ErrNotFound) {
						err = nil
					}
					return t, err
				}
			})},
	}
}

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
