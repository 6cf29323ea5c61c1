package filestore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"hansard"
)

// What was told to the callers of a turnWorld is judged here: at once, where it is
// known to be wrong whatever comes, and by the log that is left.

// corpseHolds tells of a claim that was kept waiting by the dead.
func (k *turnProc) corpseHolds(g hansard.Grant, asked, wait time.Duration) {
	seen := k.w.grants[g]
	if seen == nil || seen.keeper == nil || !seen.keeper.gone || seen.turn.Remote {
		return
	}
	dead := seen.keeper.died
	if wait == 0 && dead < asked || k.w.clock-dead > 300*time.Millisecond && wait > 300*time.Millisecond && k.resume < dead {
		k.fail("the turn is held by %s, whose process is dead since %v (asked at %v)", g, dead, asked)
	}
}

// tookWell checks, against what is known outside of the store, why a turn was
// taken from its holder.
func (k *turnProc) tookWell(g *grantSeen, c hansard.Claim) {
	var r hansard.TurnRecord
	for e, err := range k.s.Read(context.Background(), turnSession, hansard.Range{After: g.turn.Seq - 1, Limit: 1}) {
		if err != nil {
			k.unexpected("read", err, hansard.ErrDamaged)
			return
		}
		if e.Turn != g.turn.Grant || json.Unmarshal(e.Data, &r) != nil || !r.Grants() {
			k.fail("seq %d does not record grant %s: %s", g.turn.Seq, g.turn.Grant, e.Data)
		}
	}
	from, w := k.w.grants[r.From], k.w
	if r.Why != "" {
		w.counts.taken.Add(1)
	}
	if r.Why == hansard.TurnStolen {
		w.counts.stolen.Add(1)
	}
	if from == nil || w.chaos.jump > 0 {
		return
	}
	switch r.Why {
	case holderDead:
		if from.keeper != nil && !from.keeper.gone && !from.givenUp {
			k.fail("%s was taken from a holder that lives and was called dead", r.From)
		}
		if from.turn.Remote && !from.givenUp && w.clock-from.renewed < from.turn.TTL {
			k.fail("%s was taken because a process died that its holder was not, %v after its renewal", r.From, w.clock-from.renewed)
		}
	case holderSilent:
		// A renewal may have crossed the look that found silence.
		crossed := w.chaos.stop > 0 || from.renewed == w.clock
		if w.clock-from.renewed < from.turn.TTL && !crossed {
			k.fail("%s was called silent %v after its renewal, its TTL is %v", r.From, w.clock-from.renewed, from.turn.TTL)
		}
	case holderOverdue:
		if w.clock-from.asked < from.turn.MaxHold {
			k.fail("%s was called overdue after %v of %v", r.From, w.clock-from.asked, from.turn.MaxHold)
		}
	}
}

// examine compares the log with what callers were told, and takes the turn, which
// nobody can hold any more.
func (w *turnWorld) examine() error {
	ctx := context.Background()
	s, err := openOn(w.disk.Process("after"), w.seed+77, simRing)
	if err != nil {
		return err
	}
	var grants hansard.Grants
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
	var claim hansard.Claim
	if grants.Current != nil && grants.Current.Remote {
		claim.Steal = "its holder is not known to be gone"
	}
	t, err := s.Acquire(ctx, turnSession, claim)
	if err != nil {
		return fmt.Errorf("acquire after it all: %w", err)
	}
	if t.Grant.Number() != grants.Last.Number()+1 {
		return fmt.Errorf("grant %s follows %s", t.Grant, grants.Last)
	}
	return s.Close()
}

// diedBefore checks that a holder that was called dead was so, when the one who
// said it was answered at the latest.
func (w *turnWorld) diedBefore(e *hansard.Event) error {
	var r hansard.TurnRecord
	if e.Kind != hansard.KindTurn || json.Unmarshal(e.Data, &r) != nil || r.Why != holderDead {
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
