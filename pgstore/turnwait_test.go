package pgstore

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"hansard"
	"hansard/internal/pgtest"
)

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
			var waiting int
			if err := s.conn.QueryRow(t.Context(), "SELECT count(*) FROM hansard_waiting WHERE id = 's'").Scan(&waiting); err != nil {
				t.Fatal(err)
			}
			waiter.hub.mu.Lock()
			defer waiter.hub.mu.Unlock()
			return waiting == i+1 && waiter.hub.listening
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
