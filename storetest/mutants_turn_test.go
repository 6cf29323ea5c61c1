package storetest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"hansard"
	"hansard/engine"
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
		claiming("who claims is lost", func(c *hansard.Claim) { c.By = "" }, "by/turns"),
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
		claiming("nobody is remote", func(c *hansard.Claim) { c.Remote = false }, "turn/remote"),
		{name: "a remote turn ends with the store it was had through", caught: []string{"turn/remote"}, plant: inner(func(b *broken, s hansard.Store) {
			b.acquire = func(ctx context.Context, id hansard.SessionID, claim hansard.Claim) (hansard.Turn, error) {
				t, err := s.Acquire(ctx, id, claim)
				if err == nil && claim.Remote {
					err = s.Release(ctx, id, t.Grant) // it is as good as closed
				}
				return t, err
			}
		})},
		claiming("a turn lasts a day", func(c *hansard.Claim) { c.TTL = hansard.MaxTTL }, "turn/silent holder", "turn/granted", "exclusive/ends", "processes/turn of the dead"),
		claiming("MaxHold is ignored", func(c *hansard.Claim) { c.MaxHold = 0 }, "turn/max hold", "lease/max hold"),
		granting("a turn is said to be on record a seq before it is", func(_ hansard.Store, _ hansard.SessionID, t *hansard.Turn) { t.Seq-- },
			"turn/granted", "turn/record"),
		granting("the nonce is always the same", func(_ hansard.Store, _ hansard.SessionID, t *hansard.Turn) {
			t.Grant = engine.NextGrant(hansard.Grant(fmt.Sprintf("%d-0123456789abcdef", t.Grant.Number()-1)), 7)
		}, "turn/numbers"),
		{name: "grants are counted by each handle", caught: []string{"turn/numbers"}, plant: perHandle(func(b *broken, h, _ hansard.Store, _ int) {
			given := make(map[hansard.SessionID]hansard.Grant)
			b.acquire = func(c ctx, id hansard.SessionID, claim hansard.Claim) (hansard.Turn, error) {
				t, err := h.Acquire(c, id, claim)
				if err == nil {
					given[id] = engine.NextGrant(given[id], 7)
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
						time.Sleep(5 * time.Millisecond) // the other processes look as well
						claim.Steal = "it was free a moment ago"
					}
					return s.Acquire(c, id, claim)
				}
			})},
		{name: "a turn is given before it is on record", caught: []string{"turn/granted", "turn/record", "turn/fenced"}, patience: 500 * time.Millisecond,
			plant: inner(func(b *broken, s hansard.Store) {
				// The answer is that of a grant to be, which the store has yet to make.
				b.acquire = func(c ctx, id hansard.SessionID, claim hansard.Claim) (hansard.Turn, error) {
					if err := engine.CheckClaim(&claim); err != nil || claim.Steal != "" || holding(c, s, id) != nil {
						return s.Acquire(c, id, claim)
					}
					info, err := s.Stat(c, id)
					if err != nil || c.Err() != nil {
						return s.Acquire(c, id, claim)
					}
					r := engine.NewTurnRecord(&claim, "", "")
					time.AfterFunc(time.Millisecond, func() { s.Acquire(context.WithoutCancel(c), id, claim) })
					return r.Turn(engine.NextGrant("", 7), info.LastSeq+1, engine.Now()), nil
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
		describing("Stat does not show turns", free, as, "turn/shown", "lease/stolen", "model/random operations"),
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
