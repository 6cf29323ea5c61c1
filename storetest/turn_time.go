package storetest

import (
	"context"
	"fmt"
	"time"

	"hansard"
)

// Time decides who loses a turn, never whether a case passes: a turn that must not
// expire lasts an hour, and for one that must, the case waits.

var turnTimeCases = []Case{
	{Name: "turn/silent holder", run: turnSilent,
		Defends: "a holder that gave no sign of life for its TTL loses the turn to the next claimant, and is fenced from then on", Answers: "4 20"},
	{Name: "turn/expiry alone", run: turnExpiryAlone,
		Defends: "a holder that is late still holds the turn if nobody has taken it", Answers: "7 12"},
	{Name: "turn/renewed", run: turnRenewed,
		Defends: "a holder that renews its turn keeps it past its TTL, through whichever handle", Answers: "7"},
	{Name: "turn/max hold", run: turnMaxHold,
		Defends: "a holder that lives but is stuck loses the turn when it was held for its MaxHold", Answers: "8"},
}

func turnSilent(x *env) {
	handles := x.handles(2)
	x.create("s")
	for i := range 4 {
		old := x.acquire(handles[i%2], "s", brief("silent"))
		if _, err := handles[i%2].Append(x.ctx, "s", hansard.Batch{Events: texts("one").Events}); err != nil {
			x.Fatal(err)
		}
		var turn hansard.Turn
		x.start("Acquire after a silent holder", func() (err error) {
			turn, err = handles[i/2].Acquire(x.ctx, "s", waiting(hold("next")))
			return err
		}).finish()
		_, r := x.record("s", turn.Seq)
		if r.Change != hansard.TurnTaken || r.From != old.Grant || r.Why != "silent" || turn.Grant.Number() != old.Grant.Number()+1 {
			x.Errorf("the record of the take-over of %s by %s is %+v", old.Grant, turn.Grant, r)
		}
		x.wantFencedOff("after its turn was taken", "s", old.Grant, &turn)
		x.release(handles[i%2], "s", turn.Grant)
	}
	// The same without waiting, by asking repeatedly.
	old := x.acquire(x.store, "s", brief("silent"))
	x.start("Acquire again and again", func() error {
		for {
			turn, err := x.store.Acquire(x.ctx, "s", hold("asks"))
			if err == nil {
				return x.store.Release(x.ctx, "s", turn.Grant)
			}
			if err := unless(err, hansard.ErrHeld); err != nil {
				return err
			}
			if err := pause(x.ctx); err != nil {
				return err
			}
		}
	}).finish()
	x.wantFencedOff("after its turn was taken", "s", old.Grant, nil)
}

func turnExpiryAlone(x *env) {
	x.create("late")
	x.create("clock")
	late := x.acquire(x.store, "late", brief("late"))
	// It has expired once another that began later, with the same TTL, has.
	x.acquire(x.store, "clock", brief("clock"))
	x.start("Acquire after a silent holder", func() error {
		_, err := x.store.Acquire(x.ctx, "clock", waiting(hold("next")))
		return err
	}).finish()
	x.append("late", under(late.Grant, "late, but nobody else came"))
	x.append("late", hansard.Batch{Turn: late.Grant, Patch: &hansard.Patch{Title: ptr("mine")}})
	if err := x.store.Renew(x.ctx, "late", late.Grant); err != nil {
		x.Errorf("Renew: %v", err)
	}
	x.release(x.store, "late", late.Grant)
}

// turnRenewed renews a turn for several times its TTL while another waits for
// it. If the machine is so slow that renewals were a TTL apart, losing the turn is
// correct: then it tries again with a longer TTL.
func turnRenewed(x *env) {
	handles := x.handles(2)
	for i, ttl := 0, 400*time.Millisecond; ; i, ttl = i+1, 2*ttl {
		id := hansard.SessionID(fmt.Sprint("s", i))
		x.create(id)
		turn := x.acquire(x.store, id, hansard.Claim{TTL: ttl, Label: "alive"})
		var life signsOfLife
		life.note(time.Now(), time.Now())
		lost := x.whileWanted(handles[1], id, func() error {
			for n, began := 0, time.Now(); time.Since(began) < 3*ttl; n++ {
				asked := time.Now()
				if err := handles[n%2].Renew(x.ctx, id, turn.Grant); err != nil {
					return err
				}
				life.note(asked, time.Now())
				if err := pause(x.ctx); err != nil {
					return err
				}
			}
			return nil
		})
		switch {
		case lost == nil:
			x.wantTurn("after renewals", x.store, id, &turn)
			x.release(x.store, id, turn.Grant)
			return
		case life.longest() < ttl || ttl > x.patience:
			x.Fatalf("renewed every %v at most, with a TTL of %v: %v", life.longest(), ttl, lost)
		}
	}
}

// whileWanted runs f while another process waits for the turn.
func (x *env) whileWanted(s hansard.Store, id hansard.SessionID, f func() error) error {
	ctx, cancel := context.WithCancel(x.ctx)
	got := make(chan hansard.Turn, 1)
	rival := x.start("a rival", func() error {
		turn, err := s.Acquire(ctx, id, waiting(hold("rival")))
		if err == nil {
			got <- turn
		}
		return nil
	})
	err := f()
	cancel()
	rival.finish()
	select {
	case turn := <-got:
		return fmt.Errorf("the rival got %s (%v)", turn.Grant, err)
	default:
		return err
	}
}

// signsOfLife records when renewals were made, as seen by their caller.
type signsOfLife struct {
	asked time.Time
	gap   time.Duration
}

func (l *signsOfLife) note(asked, answered time.Time) {
	if !l.asked.IsZero() {
		l.gap = max(l.gap, answered.Sub(l.asked))
	}
	l.asked = asked
}

// longest is the longest time during which the store may not have received a
// renewal.
func (l *signsOfLife) longest() time.Duration { return max(l.gap, time.Since(l.asked)) }

func turnMaxHold(x *env) {
	handles := x.handles(2)
	x.create("s")
	c := hold("stuck")
	c.MaxHold = 40 * time.Millisecond
	old := x.acquire(x.store, "s", c)
	renewing := x.start("a holder that goes on renewing", func() error {
		for {
			if err := x.store.Renew(x.ctx, "s", old.Grant); err != nil {
				return err
			}
			if err := pause(x.ctx); err != nil {
				return err
			}
		}
	})
	var turn hansard.Turn
	x.start("Acquire after a stuck holder", func() (err error) {
		turn, err = handles[1].Acquire(x.ctx, "s", waiting(hold("next")))
		return err
	}).finish()
	x.wantErr("Renew past MaxHold", renewing.result(), hansard.ErrFenced)
	if _, r := x.record("s", turn.Seq); r.Change != hansard.TurnTaken || r.From != old.Grant || r.Why != "overdue" {
		x.Errorf("the record of the take-over is %+v", r)
	}
	x.wantFencedOff("after its turn was taken", "s", old.Grant, &turn)
	x.release(x.store, "s", turn.Grant)

	// Even if nobody waits the holder learns of it, and may finish.
	alone := x.acquire(x.store, "s", c)
	x.start("a holder past its MaxHold, alone", func() error {
		for {
			if err := x.store.Renew(x.ctx, "s", alone.Grant); err != nil {
				return unless(err, hansard.ErrFenced)
			}
			if err := pause(x.ctx); err != nil {
				return err
			}
		}
	}).finish()
	x.append("s", under(alone.Grant, "the last word"))
	x.release(x.store, "s", alone.Grant)
}
