package pgstore

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"hansard"
	"hansard/internal/pgtest"
)

// TestCloseLeavesNothing: a closed store leaves no goroutine behind, whatever it was doing.
func TestCloseLeavesNothing(t *testing.T) {
	s, err := Open(t.Context(), pgtest.Shared(t).Schema(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	if _, err := s.Append(ctx, "s", hansard.Batch{Create: true, Events: []hansard.Event{{Data: []byte("1")}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Acquire(ctx, "s", hansard.Claim{}); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 3)
	go func() { ended <- s.Wait(ctx, "s", 100) }()
	for range 2 {
		go func() {
			_, err := s.Acquire(ctx, "s", hansard.Claim{Wait: hansard.Forever})
			ended <- err
		}()
	}
	waiting := func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.claims["s"] != nil && len(s.claims["s"].queue) == 2
	}
	until(t, "two wait for the turn", waiting)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := <-ended; !errors.Is(err, hansard.ErrClosed) {
			t.Errorf("who waited was told: %v", err)
		}
	}
	until(t, "its goroutines have ended", func() bool {
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		return !strings.Contains(string(stacks), "pgstore.(*Store)") && !strings.Contains(string(stacks), "pgstore.(*hub)")
	})
}

// until waits for a condition that has to become true.
func until(t testing.TB, what string, so func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for !so() {
		select {
		case <-ctx.Done():
			stacks := make([]byte, 64<<10)
			t.Fatalf("not so after 30 s: %s\n%s", what, stacks[:runtime.Stack(stacks, true)])
		case <-time.After(5 * time.Millisecond):
		}
	}
}
