package pgstore

import (
	"context"
	"testing"
	"time"

	"hansard"
	"hansard/internal/pgtest"
)

// TestWaitWithoutNotification: a notification can be lost with a connection, or with the process
// that was to send it. Waiters are woken all the same.
func TestWaitWithoutNotification(t *testing.T) {
	s := newBlocking(t, "")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for seq := range hansard.Seq(2) {
		woken := s.waitListening(ctx, seq)
		s.exec(`UPDATE hansard_heads SET last = $1 WHERE id = 's'`, int64(seq+1)) // without a notification
		if got := <-woken; got.err != nil {
			t.Errorf("who waited for what nobody told: %v", got.err)
		}
	}
}

// waitListening starts a waiter that is listening for notifications.
func (b *blocking) waitListening(ctx context.Context, after hansard.Seq) <-chan outcome[struct{}] {
	b.t.Helper()
	woken := later(func() (struct{}, error) { return struct{}{}, b.Wait(ctx, "s", after) })
	until(b.t, "it waits, and listens", func() bool {
		b.hub.mu.Lock()
		defer b.hub.mu.Unlock()
		return b.hub.listening && b.hub.watches["s"] != nil && len(b.hub.dirty) == 0
	})
	return woken
}

// TestNotified: commits of another store are notified and received. Polling alone, once a second,
// could not keep up: it would take three times as long as is allowed.
func TestNotified(t *testing.T) {
	s := newBlocking(t, "")
	other, err := Open(t.Context(), s.server.URL(schemaIn(t, s)), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	const enough = 30 * time.Second
	ctx, cancel := context.WithTimeout(t.Context(), enough)
	defer cancel()
	for seq := range hansard.Seq(3 * enough / pollEvery) {
		woken := s.waitListening(ctx, seq)
		if _, err := other.Append(ctx, "s", hansard.Batch{Events: []hansard.Event{{Data: []byte("1")}}}); err != nil {
			t.Fatal(err)
		}
		if got := <-woken; got.err != nil {
			t.Fatalf("seq %d: %v", seq+1, got.err)
		}
	}
}

// TestListenAgain: a notification connection whose other end has gone silent is noticed, and
// replaced by a new one.
func TestListenAgain(t *testing.T) {
	t.Parallel() // it only waits
	server := pgtest.Shared(t)
	proxy, address := server.Proxy(t, server.Schema(t))
	s, err := Open(t.Context(), address, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	busy(t, s, 1)
	waits := later(func() (struct{}, error) { return struct{}{}, s.Wait(t.Context(), "s0", 1) })
	listening := func() bool {
		s.hub.mu.Lock()
		defer s.hub.mu.Unlock()
		return s.hub.listening
	}
	until(t, "it listens", listening)
	proxy.Freeze()
	// The old connection is still there: nothing has told the server.
	server.Until(t, "SELECT count(*) = 2 FROM pg_stat_activity WHERE query = 'LISTEN "+s.channel+"'")
	until(t, "it listens again", listening)
	if _, err := s.Append(within(t), "s0", hansard.Batch{Events: []hansard.Event{{Data: []byte("1")}}}); err != nil {
		t.Error(err)
	}
	select {
	case got := <-waits:
		if got.err != nil {
			t.Error(got.err)
		}
	case <-time.After(mostSilence):
		t.Error("who waits is not woken")
	}
}
