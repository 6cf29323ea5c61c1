package filestore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"hansard"
	"hansard/engine"
	"hansard/filestore/internal/peers"
)

// These functions judge what the callers of a turnWorld were told: at once if it is wrong
// whatever comes later, otherwise by the log that is left.

// deadHolderBlocked reports a claim that a dead holder kept waiting.
func (k *turnProc) deadHolderBlocked(g hansard.Grant, asked, wait time.Duration) {
	seen := k.w.grants[g]
	if seen == nil || seen.keeper == nil || !seen.keeper.gone {
		return
	}
	if seen.turn.Remote {
		k.w.counts.outlived.Add(1)
		return
	}
	dead := seen.keeper.died
	if wait == 0 && dead < asked || k.w.clock-dead > 300*time.Millisecond && wait > 300*time.Millisecond && k.resume < dead {
		k.fail("the turn is held by %s, whose process is dead since %v (asked at %v)", g, dead, asked)
	}
}

// renewals is when each grant was last renewed, counting only completed renewals: anyone who
// looks from now on must see them.
func (w *turnWorld) renewals() map[hansard.Grant]time.Duration {
	at := make(map[hansard.Grant]time.Duration, len(w.grants))
	for g, seen := range w.grants {
		at[g] = seen.renewed
	}
	return at
}

// recordAt reads the turn record at a seq, if the event there is one.
func (k *turnProc) recordAt(seq hansard.Seq) (g hansard.Grant, r hansard.TurnRecord) {
	for e, err := range k.s.Read(context.Background(), turnSession, hansard.Range{After: seq - 1, Limit: 1}) {
		if err != nil {
			k.unexpected("read", err, hansard.ErrDamaged)
		} else if e.Kind == hansard.KindTurn && json.Unmarshal(e.Data, &r) == nil {
			g = e.Turn
		}
	}
	return g, r
}

// tookWell checks why a turn was taken from its holder. renewals is from the time of the claim.
func (k *turnProc) tookWell(g *grantSeen, renewals map[hansard.Grant]time.Duration) {
	at, r := k.recordAt(g.turn.Seq)
	if !k.p.Dead() && (at != g.turn.Grant || !r.Grants()) {
		k.fail("seq %d does not record grant %s but %s: %+v", g.turn.Seq, g.turn.Grant, at, r)
	}
	if r.Why != "" {
		k.w.counts.taken.Add(1)
	}
	if r.Why == hansard.TurnStolen {
		k.w.counts.stolen.Add(1)
	}
	k.judge(r.From, r.Why, renewals)
}

// endedWell checks why a writer that came after a turn ended it.
func (k *turnProc) endedWell(seq hansard.Seq, renewals map[hansard.Grant]time.Duration) {
	if seq == 0 {
		return
	}
	if g, r := k.recordAt(seq); r.Change == hansard.TurnEnded {
		k.judge(g, r.Why, renewals)
	}
}

// judge checks what a process concluded about the holder of a turn against what is known outside
// of the store.
func (k *turnProc) judge(g hansard.Grant, why string, renewals map[hansard.Grant]time.Duration) {
	w := k.w
	from := w.grants[g]
	if from == nil || w.chaos.jump > 0 {
		return
	}
	before, known := renewals[g]
	if !known {
		before = from.asked
	}
	switch why {
	case peers.HolderDead:
		if from.keeper != nil && !from.keeper.gone && !from.givenUp {
			k.fail("%s was ended under a holder that lives and was called dead", g)
		}
		if from.turn.Remote && !from.givenUp && w.clock-before < from.turn.TTL {
			k.fail("%s was ended because a process died that its holder was not, %v after its renewal", g, w.clock-before)
		}
	case peers.HolderSilent:
		// A later renewal may have crossed the look that found the holder silent.
		if w.clock-before < from.turn.TTL {
			k.fail("%s was called silent %v after its renewal, its TTL is %v", g, w.clock-before, from.turn.TTL)
		}
	case peers.HolderOverdue:
		if w.clock-from.asked < from.turn.MaxHold {
			k.fail("%s was called overdue after %v of %v", g, w.clock-from.asked, from.turn.MaxHold)
		}
	}
}

// examine compares the log with what callers were told, and takes the turn, which nobody can hold
// any more.
func (w *turnWorld) examine() error {
	ctx := context.Background()
	cfg := simConfig(w.seed+77, simRing)
	cfg.mono = func() time.Duration { return w.clock }
	s, err := open(w.disk.Process("after"), Options{LockWait: time.Hour}, cfg)
	if err != nil {
		return err
	}
	var grants engine.Grants
	records := map[hansard.Seq]hansard.Grant{}
	for e, err := range s.Read(ctx, turnSession, hansard.Range{}) {
		if errors.Is(err, hansard.ErrNotFound) && len(w.grants) == 0 {
			return nil
		}
		if err != nil {
			return err
		}
		if err := grants.Next(&e); err != nil {
			return err
		}
		if told, ok := w.acked[e.Seq]; ok && (string(told.Data) != string(e.Data) || told.Turn != e.Turn) {
			return fmt.Errorf("seq %d is %s under %q, %s under %q was acknowledged", e.Seq, e.Data, e.Turn, told.Data, told.Turn)
		}
		delete(w.acked, e.Seq)
		records[e.Seq] = e.Turn
		if err := w.diedBefore(&e); err != nil {
			return err
		}
		if err := w.endedBy(&e); err != nil {
			return err
		}
	}
	for seq := range w.acked {
		return fmt.Errorf("seq %d was acknowledged and is not there", seq)
	}
	for g, seen := range w.grants {
		if records[seen.turn.Seq] != g {
			return fmt.Errorf("grant %s was answered and is not at seq %d", g, seen.turn.Seq)
		}
	}
	for f, err := range s.Verify(ctx, turnSession) {
		if err != nil || f.Level == hansard.LevelDamage {
			return fmt.Errorf("verify: %+v, %v", f, err)
		}
	}
	if held := grants.Current; held != nil && held.Remote {
		// Its holder may still be alive until nobody has renewed it for its TTL.
		for range 3 {
			if _, err := s.Acquire(ctx, turnSession, hansard.Claim{}); !errors.Is(err, hansard.ErrHeld) {
				return fmt.Errorf("acquire of a turn whose client may live: %v", err)
			}
			w.clock += held.TTL / 3
		}
		w.clock += held.TTL / 3
		w.counts.watched.Add(1)
	}
	t, err := s.Acquire(ctx, turnSession, hansard.Claim{})
	if err != nil {
		return fmt.Errorf("acquire after it all: %w", err)
	}
	if t.Grant.Number() != grants.Last.Number()+1 {
		return fmt.Errorf("grant %s follows %s", t.Grant, grants.Last)
	}
	return s.Close()
}

// endedBy counts the turns that a writer ended, and reports one that was released although its
// holder kept it alive.
func (w *turnWorld) endedBy(e *hansard.Event) error {
	var r hansard.TurnRecord
	if e.Kind != hansard.KindTurn || json.Unmarshal(e.Data, &r) != nil || !r.Ends() {
		return nil
	}
	seen := w.grants[e.Turn]
	switch {
	case r.Change == hansard.TurnReleased && seen != nil && seen.keeper != nil && !seen.givenUp:
		return fmt.Errorf("seq %d: %s was released, though %s kept it alive", e.Seq, e.Turn, seen.keeper.p.Name())
	case r.Change == hansard.TurnReleased:
	case r.Why == peers.HolderDead:
		w.counts.endedDead.Add(1)
	default:
		w.counts.endedSilent.Add(1)
	}
	return nil
}

// diedBefore checks that a holder reported as dead was dead, at the latest when the process that
// reported it got its answer.
func (w *turnWorld) diedBefore(e *hansard.Event) error {
	var r hansard.TurnRecord
	if e.Kind != hansard.KindTurn || json.Unmarshal(e.Data, &r) != nil || r.Why != peers.HolderDead {
		return nil
	}
	from, next := w.grants[r.From], w.grants[e.Turn]
	if from == nil || next == nil || from.keeper == nil || from.givenUp || from.moved {
		return nil
	}
	if !from.keeper.gone || from.keeper.died > next.answered {
		return fmt.Errorf("%s was taken from a holder that lived and was called dead", r.From)
	}
	return nil
}
