package pgstore

import (
	"context"
	"errors"
	"testing"
	"time"

	"hansard"
)

// removed waits until nothing of session "s" is left but its tombstone.
func (b *blocking) removed() {
	b.t.Helper()
	const left = "SELECT (SELECT count(*) FROM hansard_events WHERE id = 's') + (SELECT count(*) FROM hansard_heads WHERE purging OR NOT deleted)"
	until(b.t, "it is removed", func() bool {
		n := -1
		if err := b.conn.QueryRow(b.t.Context(), left).Scan(&n); err != nil {
			b.t.Fatal(err)
		}
		return n == 0
	})
}

// leaves calls f while the session's row is locked, and ends its context.
func (b *blocking) leaves(f func(ctx context.Context) error) {
	b.t.Helper()
	b.lock()
	ctx, leave := context.WithCancel(b.t.Context())
	defer leave()
	answer := later(func() (struct{}, error) { return struct{}{}, f(ctx) })
	b.waiting(1)
	leave()
	if o := <-answer; !errors.Is(o.err, hansard.ErrUnknown) {
		b.t.Errorf("who left: %v", o.err)
	}
	b.exec("COMMIT")
}

// TestDeleteUnawaited: the content of a session is taken away even if the caller of Delete has
// left before it was deleted.
func TestDeleteUnawaited(t *testing.T) {
	s := newBlocking(t, "")
	if _, err := s.Append(t.Context(), "s", hansard.Batch{Events: []hansard.Event{{Data: []byte("1")}}}); err != nil {
		t.Fatal(err)
	}
	s.leaves(func(ctx context.Context) error { return s.Delete(ctx, "s", "") })
	s.removed()
}

// TestReleaseUnawaited: a turn is handed on even if the caller of Release has left before it was
// released. Others hear of it, and need not look.
func TestReleaseUnawaited(t *testing.T) {
	s := newBlocking(t, "")
	s.hub.say.Do(func() {}) // what it would announce stays in news
	turn, err := s.Acquire(t.Context(), "s", hansard.Claim{TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	clear(s.hub.news)
	s.leaves(func(ctx context.Context) error { return s.Release(ctx, "s", turn.Grant) })
	until(t, "it is announced", func() bool {
		s.hub.mu.Lock()
		defer s.hub.mu.Unlock()
		return s.hub.news["s"]
	})
}

// TestImportTombstone: a copy that brings a deletion takes the content away, as Delete does.
func TestImportTombstone(t *testing.T) {
	s := newBlocking(t, "")
	if _, err := s.Append(t.Context(), "s", hansard.Batch{Events: []hansard.Event{{Data: []byte(`"secret"`)}}}); err != nil {
		t.Fatal(err)
	}
	info, err := s.Stat(t.Context(), "s")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Import(t.Context(), hansard.Part{Origin: hansard.Origin{ID: "s", Created: info.Created, Deleted: true}}); err != nil {
		t.Fatal(err)
	}
	s.removed()
}
