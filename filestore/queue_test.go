package filestore

import (
	"context"
	"runtime"
	"testing"

	"hansard"
)

// TestQueueLoneWriter: requests that arrive while a lone writer leads get a leader, and when none
// are left nobody leads.
func TestQueueLoneWriter(t *testing.T) {
	s := openReal(t, 1)[0]
	say(t, s, "s", nil, "hello")
	batch := hansard.Batch{Events: []hansard.Event{text("one")}}
	write := func(ctx context.Context) <-chan error {
		done := make(chan error, 1)
		go func() {
			_, err := s.Append(ctx, "s", batch)
			done <- err
		}()
		return done
	}
	until := func(what func(q *queue) bool) {
		for q := &s.committer.queue; ; runtime.Gosched() {
			q.mu.Lock()
			ok := what(q)
			q.mu.Unlock()
			if ok {
				return
			}
		}
	}
	for _, ctx := range []context.Context{context.Background(), t.Context()} {
		// The previous leader must be done, or it would be taken for the next one.
		until(func(q *queue) bool { return !q.leading })
		s.syncer.syncMu.Lock() // the lone writer waits before its sync
		first := write(context.Background())
		until(func(q *queue) bool { return q.leading && len(q.waiting) == 0 })
		second, third := write(ctx), write(ctx)
		until(func(q *queue) bool { return len(q.waiting) == 2 })
		s.syncer.syncMu.Unlock()
		for i, done := range []<-chan error{first, second, third} {
			if err := <-done; err != nil {
				t.Errorf("writer %d: %v", i, err)
			}
		}
		until(func(q *queue) bool { return !q.leading && len(q.waiting) == 0 })
	}
	say(t, s, "s", nil, "and the next one leads again")
	want(t, "close", s.Close(), nil) // waits for all leaders
}

// TestQueueLetJoin: a leader does not wait for requests that never come.
func TestQueueLetJoin(t *testing.T) {
	for _, waiting := range []int{0, 1, 5} {
		q := &queue{waiting: make([]*request, waiting)}
		q.letJoin(3, false)
		q.letJoin(3, true)
	}
}
