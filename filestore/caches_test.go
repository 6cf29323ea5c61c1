package filestore

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"hansard"
	"hansard/filestore/internal/journal"
	"hansard/filestore/internal/peers"
)

// TestFailure60_KeyedAppendsToManySessions: keyed appends that cycle through more sessions than
// fit in the caches cost little more than with fewer: caches evict piece by piece, not all at
// once.
func TestFailure60_KeyedAppendsToManySessions(t *testing.T) {
	ctx := context.Background()
	cost := func(sessions int) float64 {
		d := largeDisk(1)
		d.PageSize = 4096
		s, c := opened(t, d, 2)
		round := func(n int) {
			for i := range sessions {
				b := hansard.Batch{Create: true, Key: fmt.Sprint("key ", n), Events: []hansard.Event{pad(n, 200)}}
				if r, err := s.Append(ctx, hansard.SessionID(fmt.Sprint("s", i)), b); err != nil || r.Replayed || int(r.First) != n+1 {
					t.Fatalf("%d sessions, round %d: %+v, %v", sessions, n, r, err)
				}
			}
		}
		const before, counted = 3, 2
		for n := range before {
			round(n)
		}
		c.reset()
		for n := range counted {
			round(before + n)
		}
		logs := int64(0)
		for name, bytes := range c.files {
			if name != journal.Name && name != peers.ControlName {
				logs += bytes
			}
		}
		return float64(logs) / float64(counted*sessions)
	}
	few, more := cost(maxSessions-24), cost(maxSessions+76)
	t.Logf("%.0f bytes an append to one of %d sessions, %.0f to one of %d", few, maxSessions-24, more, maxSessions+76)
	// The end of a log that was evicted, but not its keys.
	if more > few+1000 {
		t.Errorf("with a few sessions more an append reads %.0f bytes instead of %.0f", more, few)
	}
}

// TestKeysWhileARunIsWritten: writing a run of a session's keys, which takes a sync, does not
// hold up appends.
func TestKeysWhileARunIsWritten(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	keyed := func(i int) hansard.Batch {
		return hansard.Batch{Create: true, Key: fmt.Sprint("key ", i), Events: []hansard.Event{pad(i, 100)}}
	}
	for i := range 10 {
		if _, err := s.Append(ctx, "keyed", keyed(i)); err != nil {
			t.Fatal(err)
		}
	}
	k := s.keyring.keys.get("keyed")
	k.reading.Lock() // held as while a run is written
	for i := range 15 {
		r, err := s.Append(ctx, "keyed", keyed(i))
		if err != nil || r.Replayed != (i < 10) || int(r.First) != i+1 {
			t.Fatalf("append %d: %+v, %v", i, r, err)
		}
	}
	// A process that is far behind, because another one has written much, waits no longer than
	// its context.
	other, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	for i := range 40 {
		if _, err := other.Append(ctx, "keyed", hansard.Batch{Events: []hansard.Event{pad(i, 10_000)}}); err != nil {
			t.Fatal(err)
		}
	}
	late, end := context.WithTimeout(ctx, 2*time.Second)
	defer end()
	if _, err := s.Append(late, "keyed", keyed(100)); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, hansard.ErrUnknown) {
		t.Errorf("an append that was given up before its turn: %v", err)
	}
	k.reading.Unlock()
	if r, err := s.Append(ctx, "keyed", keyed(3)); err != nil || !r.Replayed || r.First != 4 {
		t.Errorf("append: %+v, %v", r, err)
	}
}
