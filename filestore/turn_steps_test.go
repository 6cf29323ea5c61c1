package filestore

import (
	"context"
	"errors"
	"syscall"
	"time"

	"hansard"
	"hansard/internal/vfs"
)

// The steps of the processes of a turnWorld, and how they check what they are told.

func (k *turnProc) step() {
	if k.rng.IntN(1000) < k.w.chaos.jump {
		k.jump += time.Duration(k.rng.IntN(5000)) * time.Millisecond
	}
	if k.w.chaos.fault > 0 && k.rng.IntN(1000) < k.w.chaos.fault {
		for n := range 6 { // more than one: a claim looks before the lock and under it
			if k.rng.IntN(2) == 0 {
				m := vfs.Match{Proc: k.p.Name(), Name: "instances/*", Kind: vfs.OpOpen | vfs.OpTryLock | vfs.OpRead, N: 1 + n}
				k.w.disk.Inject(m, vfs.Fault{Err: syscall.EMFILE})
			}
		}
	}
	switch r := k.rng.IntN(100); {
	case r < 45:
		k.holdTurn()
	case r < 60:
		k.plain()
	case r < 75:
		k.useOld()
	case r < 82:
		k.renewOther()
	default:
		k.s.cfg.sleep(time.Duration(k.rng.IntN(200)) * time.Millisecond)
	}
}

// holdTurn acquires the turn, works under it, and leaves it in one of several ways.
func (k *turnProc) holdTurn() {
	c := hansard.Claim{TTL: time.Duration(50+k.rng.IntN(400)) * time.Millisecond, Exclusive: k.rng.IntN(3) == 0, Remote: k.rng.IntN(3) == 0}
	c.Wait = []time.Duration{0, 100 * time.Millisecond, 3 * time.Second}[k.rng.IntN(3)]
	if k.rng.IntN(5) == 0 {
		c.MaxHold = time.Duration(50+k.rng.IntN(300)) * time.Millisecond
	}
	if k.rng.IntN(8) == 0 {
		c.Steal = "for the test"
	}
	g := k.acquire(c)
	if g == nil {
		return
	}
	for range k.rng.IntN(6) {
		if k.p.Dead() || !k.append(g.turn.Grant, false) {
			return
		}
		k.s.cfg.sleep(time.Duration(k.rng.Int64N(int64(c.TTL) * 2 / 3)))
		if k.rng.IntN(4) > 0 && !k.renew(g) {
			return
		}
	}
	if k.rng.IntN(5) > 0 { // else it abandons it
		k.release(g)
	}
}

// acquire claims the turn and checks the answer.
func (k *turnProc) acquire(c hansard.Claim) *grantSeen {
	w := k.w
	asked, newest, renewals := w.clock, w.newest, w.renewals()
	t, err := k.s.Acquire(context.Background(), turnSession, c)
	var held *hansard.HeldError
	if errors.As(err, &held) && !k.p.Dead() {
		w.counts.held.Add(1)
		k.deadHolderBlocked(held.Turn.Grant, asked, c.Wait)
		return nil
	}
	if err != nil {
		k.unexpected("acquire", err)
		return nil
	}
	w.counts.grants.Add(1)
	if w.grants[t.Grant] != nil || t.Grant.Number() <= newest {
		k.fail("grant %s was given, though %d was before", t.Grant, newest)
	}
	g := &grantSeen{turn: t, keeper: k, asked: asked, renewed: asked, answered: w.clock}
	k.tookWell(g, renewals)
	for old, seen := range w.grants {
		if old.Number() < t.Grant.Number() {
			seen.void = true
		} else {
			g.void = true // this answer came late
		}
	}
	w.grants[t.Grant], w.order = g, append(w.order, g)
	w.newest = max(w.newest, t.Grant.Number())
	return g
}

// append writes under a grant, or without one, and checks the answer.
func (k *turnProc) append(g hansard.Grant, inbox bool) bool {
	k.tag++
	e := text("%s.%d", k.p.Name(), k.tag)
	e.Inbox = inbox
	seen := k.w.grants[g]
	void, asked, renewals := seen != nil && seen.void, k.w.clock, k.w.renewals()
	r, err := k.s.Append(context.Background(), turnSession, hansard.Batch{Turn: g, Events: []hansard.Event{e}})
	var held *hansard.HeldError
	switch {
	case err == nil && void:
		k.fail("a write under %s was accepted at seq %d, though it was over", g, r.First)
	case err == nil:
		e.Turn = g
		k.w.acked[r.First] = e
		if g == "" && !inbox {
			k.endedWell(r.First-1, renewals)
		}
	case errors.Is(err, hansard.ErrFenced) && g != "":
		k.w.counts.fenced.Add(1)
		if seen != nil {
			seen.void = true
		}
	case errors.As(err, &held) && g == "" && !inbox && held.Turn.Exclusive:
		k.deadHolderBlocked(held.Turn.Grant, asked, 0)
	default:
		k.unexpected("append", err)
	}
	return err == nil
}

func (k *turnProc) plain() { k.append("", k.rng.IntN(4) == 0) }

// useOld writes under some earlier grant, or releases it.
func (k *turnProc) useOld() {
	for _, seen := range k.w.order {
		if g := seen.turn.Grant; seen.void && k.rng.IntN(3) == 0 {
			k.append(g, false)
			err := k.s.Release(context.Background(), turnSession, g)
			if err == nil {
				k.fail("%s was released, though it was over", g)
			}
			k.unexpected("release of an old grant", err, hansard.ErrFenced)
			return
		}
	}
}

// renew renews a grant and reports whether it is still held.
func (k *turnProc) renew(g *grantSeen) bool {
	void, asked, before := g.void, k.w.clock, g.keeper
	if g.keeper != k {
		g.keeper, g.moved = nil, true // until we know
	}
	if g.crowd++; g.crowd > 1 {
		g.crowd = 100
	}
	err := k.s.Renew(context.Background(), turnSession, g.turn.Grant)
	switch {
	case err == nil && void:
		k.fail("%s was renewed, though it was over", g.turn.Grant)
	case err == nil:
		if g.keeper != k {
			k.w.counts.moved.Add(1)
		}
		if g.turn.Remote && before != nil && before != k && before.gone {
			k.w.counts.continued.Add(1)
		}
		if g.keeper, g.renewed = k, asked; g.crowd > 1 {
			g.keeper = nil
		}
	default:
		k.unexpected("renew", err, hansard.ErrFenced)
	}
	if !k.p.Dead() {
		g.crowd--
	}
	return err == nil
}

// renewOther renews a grant that another process keeps alive.
func (k *turnProc) renewOther() {
	for _, g := range k.w.order {
		if !g.void && !g.givenUp && g.turn.Grant.Number() == k.w.newest {
			k.renew(g)
			return
		}
	}
}

func (k *turnProc) release(g *grantSeen) {
	void := g.void
	g.givenUp = true
	err := k.s.Release(context.Background(), turnSession, g.turn.Grant)
	switch {
	case err == nil && void:
		k.fail("%s was released, though it was over", g.turn.Grant)
	case err == nil || errors.Is(err, hansard.ErrFenced):
		g.void = true
	default:
		k.unexpected("release", err)
	}
}
