package hansard_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"hansard"
	"hansard/memstore"
)

// A lease is mostly about time, so these tests run in virtual time: an hour is
// nothing, and nothing depends on how fast the machine is.

// moody is a store that answers some calls in its own way.
type moody struct {
	hansard.Store
	renewed atomic.Int32

	mu    sync.Mutex // guards moods
	moods map[string]func(ctx context.Context) error
}

// feel sets the mood in which some calls are answered; nil is none.
func (m *moody) feel(mood func(ctx context.Context) error, calls ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, call := range calls {
		m.moods[call] = mood
	}
}

// asked returns the error of the mood for a call, if it has one.
func (m *moody) asked(ctx context.Context, call string) error {
	m.mu.Lock()
	mood := m.moods[call]
	m.mu.Unlock()
	if mood == nil {
		return nil
	}
	return mood(ctx)
}

func (m *moody) Renew(ctx context.Context, id hansard.SessionID, g hansard.Grant) error {
	if err := m.asked(ctx, "renew"); err != nil {
		return err
	}
	m.renewed.Add(1)
	return m.Store.Renew(ctx, id, g)
}

func (m *moody) Stat(ctx context.Context, id hansard.SessionID) (hansard.Info, error) {
	if err := m.asked(ctx, "stat"); err != nil {
		return hansard.Info{}, err
	}
	return m.Store.Stat(ctx, id)
}

func (m *moody) Wait(ctx context.Context, id hansard.SessionID, after hansard.Seq) error {
	if err := m.asked(ctx, "wait"); err != nil {
		return err
	}
	return m.Store.Wait(ctx, id, after)
}

func (m *moody) Release(ctx context.Context, id hansard.SessionID, g hansard.Grant) error {
	if err := m.asked(ctx, "release"); err != nil {
		return err
	}
	return m.Store.Release(ctx, id, g)
}

// hang does not answer while the context lasts.
func hang(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }

var errUnreachable = errors.New("no route to the store")

func unreachable(context.Context) error { return errUnreachable }

// inLease runs a test in virtual time, with a lease on its own session.
func inLease(t *testing.T, c hansard.Claim, f func(t *testing.T, s *moody, l *hansard.Lease)) {
	synctest.Test(t, func(t *testing.T) {
		s := &moody{Store: memstore.New(), moods: make(map[string]func(context.Context) error)}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		defer s.Close()
		if _, err := s.Create(ctx, "s", hansard.Meta{}); err != nil {
			t.Fatal(err)
		}
		l, err := hansard.Take(ctx, s, "s", c)
		if err != nil {
			t.Fatal(err)
		}
		f(t, s, l)
		cancel()
		synctest.Wait()
	})
}

// ends waits for a lease to end, and returns how long it took and why.
func ends(t *testing.T, l *hansard.Lease, within time.Duration) (after time.Duration, cause error) {
	t.Helper()
	began := time.Now()
	select {
	case <-l.Context().Done():
		return time.Since(began), context.Cause(l.Context())
	case <-time.After(within):
		t.Fatalf("the lease goes on after %v", within)
		return 0, nil
	}
}

func TestLeaseLastsWhileItIsRenewed(t *testing.T) {
	inLease(t, hansard.Claim{TTL: 30 * time.Second}, func(t *testing.T, s *moody, l *hansard.Lease) {
		_, err := s.Acquire(t.Context(), "s", hansard.Claim{Wait: time.Hour})
		if !errors.Is(err, hansard.ErrHeld) || l.Context().Err() != nil {
			t.Fatalf("an hour of TTLs of 30 s: the other got %v, the lease %v", err, context.Cause(l.Context()))
		}
		if n := s.renewed.Load(); n < 240 || n > 480 {
			t.Errorf("renewed %d times in an hour", n)
		}
		if info, err := s.Stat(t.Context(), "s"); err != nil || info.LastSeq != 1 {
			t.Errorf("an hour's turn is %d lines in the log (%v)", info.LastSeq, err)
		}
	})
}

func TestLeaseEndsWithTheStoreAndTheSession(t *testing.T) {
	for what, c := range map[string]struct {
		end  func(s *moody) error
		want error
	}{
		"closed":  {func(s *moody) error { return s.Close() }, hansard.ErrClosed},
		"deleted": {func(s *moody) error { return s.Delete(context.Background(), "s", "") }, hansard.ErrDeleted},
		"stolen": {func(s *moody) error {
			_, err := s.Acquire(context.Background(), "s", hansard.Claim{Steal: "now"})
			return err
		}, hansard.ErrFenced},
	} {
		t.Run(what, func(t *testing.T) {
			inLease(t, hansard.Claim{TTL: 24 * time.Hour}, func(t *testing.T, s *moody, l *hansard.Lease) {
				time.Sleep(time.Minute)
				if err := c.end(s); err != nil {
					t.Fatal(err)
				}
				if after, cause := ends(t, l, time.Hour); after > time.Second || !errors.Is(cause, c.want) {
					t.Errorf("it ended after %v with %v; want %v at once", after, cause, c.want)
				}
			})
		})
	}
}

func TestLeaseEndsWithItsMaxHold(t *testing.T) {
	inLease(t, hansard.Claim{TTL: time.Minute, MaxHold: 10*time.Minute + 5*time.Second}, func(t *testing.T, s *moody, l *hansard.Lease) {
		if after, cause := ends(t, l, time.Hour); after != 10*time.Minute+5*time.Second || !errors.Is(cause, hansard.ErrFenced) {
			t.Errorf("it ended after %v with %v", after, cause)
		}
	})
}

// TestLeaseEndsWhenItCantBeRenewed: a holder that can't reach the store must not believe for
// longer than its TTL that it has the turn, whether the store refuses or does not answer.
func TestLeaseEndsWhenItCantBeRenewed(t *testing.T) {
	for what, mood := range map[string]func(context.Context) error{"refused": unreachable, "no answer": hang} {
		for _, also := range []bool{false, true} {
			t.Run(what, func(t *testing.T) {
				inLease(t, hansard.Claim{TTL: 30 * time.Second}, func(t *testing.T, s *moody, l *hansard.Lease) {
					s.feel(mood, "renew")
					if also { // everything else fails as well
						s.feel(mood, "stat", "wait")
					} else if _, err := s.Append(t.Context(), "s", hansard.Batch{Events: []hansard.Event{{Data: []byte("1")}}}); err != nil {
						t.Fatal(err)
					}
					after, cause := ends(t, l, time.Hour)
					if after > 31*time.Second || after < 30*time.Second || !errors.Is(cause, hansard.ErrFenced) {
						t.Errorf("with a TTL of 30 s it ended after %v with %v", after, cause)
					}
				})
			})
		}
	}
}

func TestLeaseOutlastsAShortOutage(t *testing.T) {
	inLease(t, hansard.Claim{TTL: 30 * time.Second}, func(t *testing.T, s *moody, l *hansard.Lease) {
		for range 20 {
			s.feel(unreachable, "renew", "stat", "wait")
			time.Sleep(12 * time.Second)
			s.feel(nil, "renew", "stat", "wait")
			time.Sleep(25 * time.Second)
		}
		if err := l.Context().Err(); err != nil {
			t.Fatalf("it ended: %v", context.Cause(l.Context()))
		}
		// A failure of the calls that only look at the session must not stop the renewals.
		s.feel(unreachable, "stat", "wait")
		time.Sleep(10 * time.Minute)
		if err := l.Context().Err(); err != nil {
			t.Errorf("it ended although it could be renewed: %v", context.Cause(l.Context()))
		}
	})
}

func TestLeaseReleaseDoesNotHang(t *testing.T) {
	inLease(t, hansard.Claim{TTL: 24 * time.Hour}, func(t *testing.T, s *moody, l *hansard.Lease) {
		s.feel(hang, "release")
		began := time.Now()
		if err := l.Release(); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > time.Minute {
			t.Errorf("Release of a store that does not answer: %v after %v", err, time.Since(began))
		}
	})
}

// TestLeaseReleaseTakesItsTime: the shortest TTL must not leave a release too little time to
// complete.
func TestLeaseReleaseTakesItsTime(t *testing.T) {
	inLease(t, hansard.Claim{TTL: hansard.MinTTL}, func(t *testing.T, s *moody, l *hansard.Lease) {
		s.feel(func(ctx context.Context) error {
			select {
			case <-time.After(5 * time.Second):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}, "release")
		if err := l.Release(); err != nil {
			t.Errorf("Release: %v", err)
		}
	})
}
