package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"hansard"
)

// What the cases about turns share: claims, calls that must succeed, and checks.

// hold is a claim that does not expire while a case runs.
func hold(label string) hansard.Claim { return hansard.Claim{TTL: time.Hour, Label: label} }

// brief is a claim of a holder that may soon be considered gone.
func brief(label string) hansard.Claim {
	return hansard.Claim{TTL: 30 * time.Millisecond, Label: label}
}

// waiting is a claim that waits as long as the case runs.
func waiting(c hansard.Claim) hansard.Claim {
	c.Wait = hansard.Forever
	return c
}

// under is a batch that is written under a grant.
func under(g hansard.Grant, list ...string) hansard.Batch {
	b := texts(list...)
	b.Turn = g
	return b
}

// acquire takes a turn, which must succeed.
func (x *env) acquire(s hansard.Store, id hansard.SessionID, c hansard.Claim) hansard.Turn {
	x.Helper()
	t, err := s.Acquire(x.ctx, id, c)
	if err != nil {
		x.Fatalf("Acquire(%q, %+v): %v", id, c, err)
	}
	return t
}

func (x *env) release(s hansard.Store, id hansard.SessionID, g hansard.Grant) {
	x.Helper()
	if err := s.Release(x.ctx, id, g); err != nil {
		x.Fatalf("Release(%q, %s): %v", id, g, err)
	}
}

// wantHeld checks that an error names the holder of a turn.
func (x *env) wantHeld(what string, err error, by hansard.Turn) {
	x.Helper()
	var held *hansard.HeldError
	if x.engine.By != "" {
		by.Grant = ""
	}
	switch {
	case !errors.Is(err, hansard.ErrHeld) || !errors.As(err, &held):
		x.Errorf("%s: %v; want that the turn is held", what, err)
	case diffTurn(held.Turn, by) != "":
		x.Errorf("%s: held by another than it should: %s", what, diffTurn(held.Turn, by))
	}
}

// wantFenced checks that an error says that a grant is not the current one, and
// which one is, if any.
func (x *env) wantFenced(what string, err error, now *hansard.Turn) {
	x.Helper()
	var fenced *hansard.FencedError
	if now != nil && x.engine.By != "" && errors.As(err, &fenced) && fenced.Current != nil && fenced.Current.Grant == "" {
		told := *now // a refusal hides the grant; a lease may have read it itself
		told.Grant = ""
		now = &told
	}
	switch {
	case !errors.Is(err, hansard.ErrFenced) || !errors.As(err, &fenced):
		x.Errorf("%s: %v; want that it is fenced", what, err)
	case (fenced.Current == nil) != (now == nil):
		x.Errorf("%s: says the turn is held by %+v, want %+v", what, fenced.Current, now)
	case now != nil && diffTurn(*fenced.Current, *now) != "":
		x.Errorf("%s: says who holds it wrongly: %s", what, diffTurn(*fenced.Current, *now))
	}
}

// wantTurn checks who holds a turn: nobody when want is nil.
func (x *env) wantTurn(when string, s hansard.Store, id hansard.SessionID, want *hansard.Turn) {
	x.Helper()
	got, err := s.Turn(x.ctx, id)
	switch {
	case err != nil:
		x.Errorf("%s: Turn(%q): %v", when, id, err)
	case (got == nil) != (want == nil):
		x.Errorf("%s: Turn(%q) is %+v, want %+v", when, id, got, want)
	case want != nil && diffTurn(*got, *want) != "":
		x.Errorf("%s: Turn(%q): %s", when, id, diffTurn(*got, *want))
	}
}

// diffTurn returns the first difference between two descriptions of a turn, ignoring
// its last renewal.
func diffTurn(got, want hansard.Turn) string {
	if !got.Since.Equal(want.Since) {
		return fmt.Sprintf("%s since %v, want %v", got.Grant, got.Since, want.Since)
	}
	got.Since, got.Renewed, want.Since, want.Renewed = time.Time{}, time.Time{}, time.Time{}, time.Time{}
	if got != want {
		return fmt.Sprintf("it is %+v, want %+v", got, want)
	}
	return ""
}

// recordOf reads the record of a turn.
func recordOf(e hansard.Event) (r hansard.TurnRecord, err error) {
	if e.Kind != hansard.KindTurn {
		return r, fmt.Errorf("seq %d is a %q, want the record of a turn", e.Seq, e.Kind)
	}
	err = json.Unmarshal(e.Data, &r)
	return r, err
}

// record returns the event at a seq, which must be the record of a turn.
func (x *env) record(id hansard.SessionID, at hansard.Seq) (hansard.Event, hansard.TurnRecord) {
	x.Helper()
	events := x.read(id, hansard.Range{After: at - 1, Limit: 1})
	if len(events) != 1 || events[0].Seq != at {
		x.Fatalf("there is no event at seq %d of %q", at, id)
	}
	r, err := recordOf(events[0])
	if err != nil {
		x.Fatal(err)
	}
	return events[0], r
}
