package pgstore

import (
	"errors"
	"slices"
	"testing"
	"time"

	"hansard"
)

// The clock that counts is the database's, read once the session's row is locked. An earlier
// reading, such as now(), stands still while a statement waits for the row.

// TestClockOfEvents: an append that waited for the row is stored after what was stored meanwhile,
// and so gets a later time.
func TestClockOfEvents(t *testing.T) {
	title := "patched"
	for name, b := range map[string]hansard.Batch{
		"one statement": {Events: []hansard.Event{{Data: []byte("1")}}},
		"decided":       {Events: []hansard.Event{{Data: []byte("1")}}, Patch: &hansard.Patch{Title: &title}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newBlocking(t, "")
			s.lock()
			stored := later(func() (hansard.Receipt, error) { return s.Append(t.Context(), "s", b) })
			then := s.waiting(1)
			// Another client changes the row at a later time, as every append does.
			s.exec("UPDATE hansard_heads SET updated = clock_timestamp() WHERE id = 's'")
			s.exec("COMMIT")
			if r := <-stored; r.err != nil {
				t.Fatal(r.err)
			}
			for e, err := range s.Read(t.Context(), "s", hansard.Range{}) {
				if err != nil || e.Time.Before(then) {
					t.Errorf("an event that was stored after %v says %v (%v)", then, e.Time, err)
				}
			}
		})
	}
}

// during waits for the row's lock from before a deadline until after it, and returns the result
// of f. The deadline comes from the turn that acquire gets; if the machine is too slow to begin
// before it, acquire is asked again with more and more time.
func during[T any](t *testing.T, s *blocking, acquire func(d time.Duration) (deadline time.Time), f func() (T, error)) outcome[T] {
	t.Helper()
	for d := time.Second; d <= time.Minute; d *= 4 {
		deadline := acquire(d)
		s.lock()
		out := later(f)
		if before := s.waiting(1); before.Before(deadline) {
			s.pass(deadline)
			s.exec("COMMIT")
			return <-out
		}
		s.exec("COMMIT")
		<-out
	}
	t.Fatal("the machine is too slow to be in time for anything")
	panic("unreachable")
}

// stolen gives the turn of session s to a claim, whoever has it.
func stolen(t *testing.T, s *blocking, c hansard.Claim) hansard.Turn {
	t.Helper()
	c.Steal = "for the test"
	turn, err := s.Acquire(t.Context(), "s", c)
	if err != nil {
		t.Fatal(err)
	}
	return turn
}

// TestClockOfTTL: a turn whose TTL ended while a claim waited for the row can be taken, and its
// holder is fenced from then on.
func TestClockOfTTL(t *testing.T) {
	s := newBlocking(t, "")
	var old hansard.Turn
	got := during(t, s, func(d time.Duration) time.Time {
		old = stolen(t, s, hansard.Claim{TTL: d})
		return old.Renewed.Add(d)
	}, func() (hansard.Turn, error) { return s.Acquire(t.Context(), "s", hansard.Claim{Label: "next"}) })
	if got.err != nil {
		t.Fatalf("the turn of a holder that was silent for its TTL: %v", got.err)
	}
	_, err := s.Append(t.Context(), "s", hansard.Batch{Events: []hansard.Event{{Data: []byte("1")}}, Turn: old.Grant})
	if !errors.Is(err, hansard.ErrFenced) {
		t.Errorf("a write of the holder before: %v, want fenced", err)
	}
}

// TestClockOfMaxHold: a turn whose MaxHold ended while its renewal waited for the row is not
// renewed.
func TestClockOfMaxHold(t *testing.T) {
	s := newBlocking(t, "")
	var turn hansard.Turn
	got := during(t, s, func(d time.Duration) time.Time {
		turn = stolen(t, s, hansard.Claim{TTL: time.Hour, MaxHold: d})
		return turn.Since.Add(d)
	}, func() (struct{}, error) { return struct{}{}, s.Renew(t.Context(), "s", turn.Grant) })
	if !errors.Is(got.err, hansard.ErrFenced) {
		t.Errorf("a renewal that came to the row after its MaxHold: %v, want fenced", got.err)
	}
}

// TestClockOfRenewal: a holder that waited for the row gets a full TTL from the moment it got the
// row.
func TestClockOfRenewal(t *testing.T) {
	s := newBlocking(t, "")
	turn := stolen(t, s, hansard.Claim{TTL: time.Hour})
	s.lock()
	renewed := later(func() (struct{}, error) { return struct{}{}, s.Renew(t.Context(), "s", turn.Grant) })
	then := s.waiting(1)
	s.exec("COMMIT")
	if r := <-renewed; r.err != nil {
		t.Fatal(r.err)
	}
	if now, err := s.Turn(t.Context(), "s"); err != nil || now.Renewed.Before(then) {
		t.Errorf("renewed after %v: %+v, %v", then, now, err)
	}
}

// TestClockOfTickets: an earlier waiter for the turn that gave no sign of life while another
// claim waited for the row is passed over at once.
func TestClockOfTickets(t *testing.T) {
	tap, s := tapStore(t)
	before := 0
	got := during(t, s, func(time.Duration) (stale time.Time) {
		if err := s.Release(t.Context(), "s", stolen(t, s, hansard.Claim{}).Grant); err != nil {
			t.Fatal(err)
		}
		seen := s.clock()
		s.exec(putTicket, "s", "somebody who died", seen)
		before = len(tap.Trips())
		return seen.Add(staleTicket)
	}, func() (hansard.Turn, error) { return s.Acquire(t.Context(), "s", hansard.Claim{Wait: time.Minute}) })
	if got.err != nil {
		t.Fatal(got.err)
	}
	asked := 0
	for _, trip := range tap.Trips()[before:] {
		if len(trip) > 2 && slices.Contains(trip, lockSession) && !slices.Contains(trip, dropTicket) {
			asked++
		}
	}
	if asked != 1 {
		t.Errorf("it was granted when it asked for the turn the %d. time, want the first: %q", asked, tap.Trips()[before:])
	}
}
