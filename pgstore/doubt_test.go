package pgstore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"hansard"
	"hansard/internal/pgtest"
	"hansard/pgstore"
	"hansard/storetest"
)

// TestDoubtedCommitIsFoundAgain: a commit whose wait for the standby was cancelled is there,
// though it is not trusted. A request without a key of its caller is found again by its mark: it
// is not stored twice, and not refused because of itself.
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
	events := 0 // that the log must have
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
		{"probe", 0, func(ctx context.Context, s *pgstore.Store) error { return s.Probe(ctx) }},
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

// doubted makes a call whose commit is cancelled while it waits for the standby, and resumes the
// standby when the call waits again.
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

// TestAnswersWaitForStandby: an answer, be it a receipt or a refusal, that rests on events of
// others that the standby does not have yet waits for the standby.
func TestAnswersWaitForStandby(t *testing.T) {
	t.Parallel() // with a server of its own
	primary, standby, url := pair(t)
	s := open(t, url)
	defer s.Close()
	hasty := open(t, url+"&synchronous_commit=local") // its commits are visible but not replicated
	defer hasty.Close()
	ctx := t.Context()
	one := storetest.Marked("w", 0, 1, 0)
	add := func(s *pgstore.Store, b hansard.Batch) error {
		_, err := s.Append(ctx, "s", b)
		return err
	}
	acquire := func(s *pgstore.Store) error {
		_, err := s.Acquire(ctx, "s", hansard.Claim{TTL: time.Hour})
		return err
	}
	create := func(s *pgstore.Store) error {
		_, err := s.Create(ctx, "s", hansard.Meta{})
		return err
	}
	for _, c := range []struct {
		name        string
		first, then func(s *pgstore.Store) error
		want        error
	}{
		{"a session that exists", create, create, hansard.ErrExists},
		{"a known key", func(s *pgstore.Store) error { return add(s, hansard.Batch{Events: one, Key: "k"}) },
			func(s *pgstore.Store) error { return add(s, hansard.Batch{Events: one, Key: "k"}) }, nil},
		{"another last seq", func(s *pgstore.Store) error { return add(s, hansard.Batch{Events: one}) },
			func(s *pgstore.Store) error { return add(s, hansard.Batch{Events: one, Expect: hansard.At(1)}) }, hansard.ErrConflict},
		{"a turn that is held", acquire, acquire, hansard.ErrHeld},
		{"a session that is deleted", func(s *pgstore.Store) error { return s.Delete(ctx, "s", "") },
			func(s *pgstore.Store) error { return add(s, hansard.Batch{Events: one}) }, hansard.ErrDeleted},
	} {
		if err := standby.Pause(); err != nil {
			t.Fatal(err)
		}
		if err := c.first(hasty); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		done := make(chan error, 1)
		go func() { done <- c.then(s) }()
		primary.Until(t, "SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
		select {
		case err := <-done:
			t.Errorf("%s: answered (%v) while the standby did not have it", c.name, err)
		default:
		}
		if err := standby.Resume(); err != nil {
			t.Fatal(err)
		}
		if err := <-done; !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}
