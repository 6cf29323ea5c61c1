package pgstore_test

import (
	"context"
	"testing"
	"time"

	"hansard"
	"hansard/internal/pgtest"
	"hansard/pgstore"
	"hansard/storetest"
)

// TestDoubtedCommitIsFoundAgain: a commit whose wait for the standby was cancelled is
// there, though nobody believes it. What had no key of its caller is found again by its
// mark: it is not stored twice, and not refused because of itself.
func TestDoubtedCommitIsFoundAgain(t *testing.T) {
	t.Parallel() // with a server of its own
	primary, standby, url := pair(t)
	s := open(t, url)
	defer s.Close()
	title := "patched"
	one := storetest.Marked("w", 0, 1, 0)
	add := func(b hansard.Batch) func(context.Context, *pgstore.Store) error {
		return func(ctx context.Context, s *pgstore.Store) error {
			r, err := s.Append(ctx, "s", b)
			if err == nil && (r.Replayed || r.First != r.Last) {
				t.Errorf("%+v of %+v", r, b)
			}
			return err
		}
	}
	var turn hansard.Turn
	events := 0 // that the log has to have
	for _, call := range []struct {
		name   string
		events int
		do     func(ctx context.Context, s *pgstore.Store) error
	}{
		{"create", 0, func(ctx context.Context, s *pgstore.Store) error {
			_, err := s.Create(ctx, "s", hansard.Meta{})
			return err
		}},
		{"append", 1, add(hansard.Batch{Events: one})},
		{"append with an expectation", 1, add(hansard.Batch{Events: one, Expect: hansard.At(1)})},
		{"append with a patch", 1, add(hansard.Batch{Events: one, Patch: &hansard.Patch{Title: &title}})},
		{"acquire", 1, func(ctx context.Context, s *pgstore.Store) (err error) {
			turn, err = s.Acquire(ctx, "s", hansard.Claim{Exclusive: true})
			return err
		}},
		{"append under a grant", 1, func(ctx context.Context, s *pgstore.Store) error {
			_, err := s.Append(ctx, "s", hansard.Batch{Events: one, Turn: turn.Grant})
			return err
		}},
		{"renew", 0, func(ctx context.Context, s *pgstore.Store) error { return s.Renew(ctx, "s", turn.Grant) }},
		{"release", 1, func(ctx context.Context, s *pgstore.Store) error { return s.Release(ctx, "s", turn.Grant) }},
		{"delete", 0, func(ctx context.Context, s *pgstore.Store) error { return s.Delete(ctx, "s", "") }},
	} {
		t.Run(call.name, func(t *testing.T) {
			doubted(t, primary, standby, func() error { return call.do(t.Context(), s) })
		})
		if t.Failed() || call.name == "delete" {
			return
		}
		events += call.events
		if log := storetest.ReadAll(t, s, "s"); len(log) != events {
			t.Fatalf("%s: the log has %d events, want %d: %+v", call.name, len(log), events, log)
		}
	}
}

// doubted makes a call whose commit is cancelled while it waits for the standby, and
// lets the standby come back when it waits again.
func doubted(t *testing.T, primary, standby *pgtest.Server, call func() error) {
	t.Helper()
	if err := standby.Pause(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- call() }()
	const waiting = "FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query NOT LIKE '%pg_notify%'"
	primary.Until(t, "SELECT count(*) = 1 "+waiting)
	cancelled := time.Now().UTC().Format(time.RFC3339Nano) // of the same machine
	primary.Until(t, "SELECT count(pg_cancel_backend(pid)) >= 1 "+waiting)
	primary.Until(t, "SELECT count(*) = 1 "+waiting+" AND query_start > '"+cancelled+"'")
	select {
	case err := <-done:
		t.Errorf("answered (%v) while the standby did not have it", err)
	default:
	}
	if err := standby.Resume(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}
