package pgstore

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"hansard"
	"hansard/internal/pgtest"
)

// tickets is how many processes wait for the turn.
func (b *blocking) tickets() (n int) {
	b.t.Helper()
	if err := b.conn.QueryRow(b.t.Context(), "SELECT count(*) FROM hansard_waiting WHERE id = 's'").Scan(&n); err != nil {
		b.t.Fatal(err)
	}
	return n
}

// TestWaitersOnlyLook: waiters for a turn, in other processes, do not lock the session for each
// of the holder's events, and write nothing because of them. When the turn is released they get
// it in the order they came.
func TestWaitersOnlyLook(t *testing.T) {
	const waiters, events = 4, 200
	s := newBlocking(t, "")
	holder, err := s.Acquire(t.Context(), "s", hansard.Claim{TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	var taps []*pgtest.Tap
	var granted []<-chan outcome[hansard.Turn]
	for i := range waiters {
		tap, address := s.server.Tap(t, s.server.URL(schemaIn(t, s)))
		waiter, err := Open(t.Context(), address, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer waiter.Close()
		taps = append(taps, tap)
		granted = append(granted, later(func() (hansard.Turn, error) {
			return waiter.Acquire(t.Context(), "s", hansard.Claim{Wait: time.Minute, TTL: time.Hour, Label: fmt.Sprint(i)})
		}))
		until(t, "it waits", func() bool {
			waiter.hub.mu.Lock()
			defer waiter.hub.mu.Unlock()
			return s.tickets() == i+1 && waiter.hub.listening
		})
	}
	var before []int
	for _, tap := range taps {
		before = append(before, len(tap.Trips()))
	}
	for range events {
		if _, err := s.Append(t.Context(), "s", hansard.Batch{Events: []hansard.Event{{Data: []byte("1")}}, Turn: holder.Grant}); err != nil {
			t.Fatal(err)
		}
	}
	for i, tap := range taps {
		heard := 0
		for _, trip := range tap.Trips()[before[i]:] {
			if slices.Contains(trip, lockSession) || slices.Contains(trip, putTicket) {
				t.Errorf("waiter %d locked the session while the holder wrote: %.200q", i, trip)
			}
			if slices.Contains(trip, lookAtHeads) {
				heard++
			}
		}
		if heard == 0 {
			t.Errorf("waiter %d did not hear of the events: this shows nothing", i)
		}
	}
	turn := holder
	for i := range waiters {
		if err := s.Release(t.Context(), "s", turn.Grant); err != nil {
			t.Fatal(err)
		}
		got := <-granted[i]
		if got.err != nil || got.value.Holder.Label != fmt.Sprint(i) {
			t.Fatalf("waiter %d: %+v, %v", i, got.value, got.err)
		}
		turn = got.value
	}
}

// TestWaitersSeeEveryGrant: a waiter that found the turn free, and another waiter before it, looks
// again when that one has had the turn and released it, even if it heard of neither before the
// turn was free again. Contended turns were handed on once a second.
func TestWaitersSeeEveryGrant(t *testing.T) {
	s := newBlocking(t, "")
	holder, err := s.Acquire(t.Context(), "s", hansard.Claim{TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	tap, address := s.server.Tap(t, s.server.URL(schemaIn(t, s)))
	waiter, err := Open(t.Context(), address, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer waiter.Close()
	waiter.askAgain = hansard.Forever
	waiter.hub.watch.Do(func() {}) // it hears of what the test tells it
	told := func() {
		t.Helper()
		if err := waiter.hub.lookAt(t.Context(), []string{"s"}); err != nil {
			t.Fatal(err)
		}
	}
	looks := func() (n int) {
		for _, trip := range tap.Trips() {
			if slices.Contains(trip, lookTurn) {
				n++
			}
		}
		return n
	}
	granted := later(func() (hansard.Turn, error) {
		return waiter.Acquire(t.Context(), "s", hansard.Claim{Wait: hansard.Forever, TTL: time.Hour})
	})
	until(t, "it waits", func() bool { return s.tickets() == 1 })
	// Somebody else has waited for longer.
	s.exec("INSERT INTO hansard_waiting (id, ticket, since, seen) VALUES ('s', 'older', clock_timestamp() - interval '1 hour', clock_timestamp() + interval '1 hour')")
	if err := s.Release(t.Context(), "s", holder.Grant); err != nil {
		t.Fatal(err)
	}
	told()
	until(t, "it has looked", func() bool { return looks() == 2 }) // the statement was prepared, and executed
	older, err := s.Acquire(t.Context(), "s", hansard.Claim{TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	s.exec("DELETE FROM hansard_waiting WHERE ticket = 'older'")
	if err := s.Release(t.Context(), "s", older.Grant); err != nil {
		t.Fatal(err)
	}
	told()
	if o := soon(t, "the waiter's turn", granted); o.err != nil {
		t.Error(o.err)
	}
}

// TestGivenUp: a claim that finds the turn free, and another process's claim before it, asks again
// when that one gives up, whatever made it do so.
func TestGivenUp(t *testing.T) {
	s := newBlocking(t, "")
	other, err := Open(t.Context(), s.server.URL(schemaIn(t, s)), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	other.askAgain = hansard.Forever
	s.exec("INSERT INTO hansard_waiting (id, ticket, since, seen) VALUES ('s', 'older', clock_timestamp() - interval '1 hour', clock_timestamp() + interval '1 hour')")
	granted := later(func() (hansard.Turn, error) {
		return other.Acquire(t.Context(), "s", hansard.Claim{Wait: hansard.Forever, TTL: time.Hour})
	})
	until(t, "it waits, and listens", func() bool {
		other.hub.mu.Lock()
		defer other.hub.mu.Unlock()
		return s.tickets() == 2 && other.hub.listening && other.hub.watches["s"] != nil && len(other.hub.dirty) == 0
	})
	older := &claim{id: "s", first: make(chan struct{}), ticket: "older", listed: true}
	s.enqueue(older)
	s.dequeue(older)
	if o := soon(t, "the waiter's turn", granted); o.err != nil {
		t.Error(o.err)
	}
}
