package pgstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

// TestGrantNotified: turns that another store is granted are notified, although nothing follows
// them. Polling alone, once a second, could not keep up.
func TestGrantNotified(t *testing.T) {
	s := newBlocking(t, "")
	other, err := Open(t.Context(), s.server.URL(schemaIn(t, s)), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	const enough = 10 * time.Second
	ctx, cancel := context.WithTimeout(t.Context(), enough)
	defer cancel()
	for seq := range hansard.Seq(3 * enough / pollEvery) {
		woken := s.waitListening(ctx, seq)
		if _, err := other.Acquire(ctx, "s", hansard.Claim{Steal: "the next one"}); err != nil {
			t.Fatal(err)
		}
		if got := <-woken; got.err != nil {
			t.Fatalf("seq %d: %v", seq+1, got.err)
		}
	}
}

// TestTellingGrants: that a turn was granted waits a moment, and is named together with what
// comes next: its release.
func TestTellingGrants(t *testing.T) {
	h := newHub(&Store{})
	h.say.Do(func() {}) // nothing is announced
	h.granted("s", 1)
	if len(h.tell) > 0 || len(h.mention) != 1 {
		t.Error("a grant is announced at once, or never")
	}
	if !h.linger(t.Context()) {
		t.Error("nothing follows, and that is taken for the end")
	}
	h.changed("s", 0)
	if !h.linger(t.Context()) || len(h.tell) > 0 {
		t.Error("the release is not what ends the waiting")
	}
	notified := 0
	h.flushBy(func(string) error { notified++; return nil })
	if notified != 1 {
		t.Errorf("%d notifications", notified)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if h.linger(ended) {
		t.Error("it goes on after the end")
	}
}

// TestTellingPace: a few notifications may follow one another at once. If more keep coming there
// are as many as if there were a pause after each, and after a time without any the next few
// come at once again.
func TestTellingPace(t *testing.T) {
	for _, told := range []int{1, 4, 1000} {
		var p pace
		start := time.Now()
		now := start
		at := func() { // a notification that takes a millisecond, and the pause after it
			began := now
			now = now.Add(time.Millisecond)
			now = now.Add(p.rest(began, now, told))
		}
		at()
		if now.Sub(start) != time.Millisecond {
			t.Errorf("%d sessions: after one notification it rests for %v", told, now.Sub(start))
		}
		const n = 200
		for range n - 1 {
			at()
		}
		if took, want := now.Sub(start), n*(time.Millisecond+restAfter(told))-tellAhead; took != want {
			t.Errorf("%d sessions: %d notifications take %v, want %v", told, n, took, want)
		}
		now = now.Add(time.Hour)
		start = now
		if at(); now.Sub(start) != time.Millisecond {
			t.Errorf("%d sessions: after an hour without it rests for %v", told, now.Sub(start))
		}
	}
}

// TestTellingRests: changes of many sessions are announced less often than those of one,
// within limits. A claim that may be waiting for a turn that is free, or for a session that
// is gone, is notified without the pause; readers are not.
func TestTellingRests(t *testing.T) {
	for told, want := range map[int]time.Duration{0: tellEvery, 1: tellEvery, 7: 7 * tellEvery, 1000: tellWithin} {
		if got := restAfter(told); got != want {
			t.Errorf("after news of %d sessions it rests for %v, want %v", told, got, want)
		}
	}
	h := newHub(&Store{})
	h.say.Do(func() {}) // nothing is announced
	notified := 0
	h.changed("busy", 7)
	if told := h.flushBy(func(string) error {
		if notified++; notified < 10 { // it changes again while others are notified
			h.changed("busy", hansard.Seq(7+notified))
		}
		return nil
	}); notified != 1 || told != 1 || len(h.news) != 1 {
		t.Errorf("without a pause there are %d notifications, of %d sessions; %d are left", notified, told, len(h.news))
	}
	<-h.tell
	ctx, cancel := context.WithCancel(t.Context())
	rest := func() <-chan outcome[bool] {
		return later(func() (bool, error) { return h.rest(ctx, 0, time.Hour), nil })
	}
	resting := rest()
	h.changed("s", 0)
	if o := soon(t, "a turn is free", resting); !o.value {
		t.Error("it is taken for the end")
	}
	h.changed("s", 7)
	if len(h.hurry) > 0 {
		t.Error("an event is in a hurry")
	}
	resting = rest()
	cancel()
	if o := soon(t, "the end", resting); o.value {
		t.Error("it goes on after the end")
	}
}

// waiters waits until so many wait for a session.
func (b *blocking) waiters(id hansard.SessionID, n int) {
	b.t.Helper()
	until(b.t, fmt.Sprintf("%d wait for %s", n, id), func() bool {
		b.hub.mu.Lock()
		defer b.hub.mu.Unlock()
		w := b.hub.watches[id]
		return w != nil && w.waiters == n
	})
}

// looksUntil looks at a session until a call is answered.
func (b *blocking) looksUntil(id hansard.SessionID, answered <-chan outcome[struct{}]) (o outcome[struct{}]) {
	b.t.Helper()
	until(b.t, "a waiter is answered", func() bool {
		b.looks(id)
		select {
		case o = <-answered:
			return true
		default:
			return false
		}
	})
	return o
}

func (b *blocking) looks(id hansard.SessionID) {
	b.t.Helper()
	if err := b.hub.lookAt(b.t.Context(), []string{string(id)}); err != nil {
		b.t.Fatal(err)
	}
}

// TestWaitForReused: who waits for a session, or for its turn, that has the id of a deleted one
// is not told that it is deleted, although others wait who have to be told.
func TestWaitForReused(t *testing.T) {
	s := newBlocking(t, "")
	s.hub.watch.Do(func() {}) // it looks when the test says so
	s.askAgain = hansard.Forever
	wait := func() <-chan outcome[struct{}] {
		return later(func() (struct{}, error) { return struct{}{}, s.Wait(t.Context(), "s", 5) })
	}
	before := wait()
	s.waiters("s", 1)
	s.looks("s")
	if err := s.Delete(t.Context(), "s", ""); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Create(t.Context(), "s", hansard.Meta{Reuse: true}); err != nil {
		t.Fatal(err)
	}
	holder, err := s.Acquire(t.Context(), "s", hansard.Claim{TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	after := wait()
	turn := later(func() (struct{}, error) {
		_, err := s.Acquire(t.Context(), "s", hansard.Claim{Wait: hansard.Forever, TTL: time.Hour})
		return struct{}{}, err
	})
	s.waiters("s", 3)
	s.looks("s")
	if o := soon(t, "who waited for the deleted session", before); !errors.Is(o.err, hansard.ErrDeleted) {
		t.Errorf("who waited for the deleted session: %v", o.err)
	}
	if err := s.Release(t.Context(), "s", holder.Grant); err != nil {
		t.Fatal(err)
	}
	if o := s.looksUntil("s", turn); o.err != nil {
		t.Errorf("who waits for the turn of the new session: %v", o.err)
	}
	if _, err := s.Append(t.Context(), "s", hansard.Batch{Events: slices.Repeat([]hansard.Event{{Data: []byte("1")}}, 5)}); err != nil {
		t.Fatal(err)
	}
	if o := s.looksUntil("s", after); o.err != nil {
		t.Errorf("who waits for the new session: %v", o.err)
	}
}

// TestWaitForNew: a look at a session that began before it was made is no answer to who waits for
// it since.
func TestWaitForNew(t *testing.T) {
	s := newBlocking(t, "")
	s.hub.watch.Do(func() {}) // it looks when the test says so
	wait := func() <-chan outcome[struct{}] {
		return later(func() (struct{}, error) { return struct{}{}, s.Wait(t.Context(), "new", 0) })
	}
	before := wait()
	s.waiters("new", 1)
	looks := s.hub.beginLook([]string{"new"})
	if _, err := s.Create(t.Context(), "new", hansard.Meta{}); err != nil {
		t.Fatal(err)
	}
	after := wait()
	s.waiters("new", 2)
	s.hub.endLook(looks) // it has found nothing
	if o := soon(t, "who waited for no session", before); !errors.Is(o.err, hansard.ErrNotFound) {
		t.Errorf("who waited for no session: %v", o.err)
	}
	if _, err := s.Append(t.Context(), "new", hansard.Batch{Events: []hansard.Event{{Data: []byte("1")}}}); err != nil {
		t.Fatal(err)
	}
	if o := s.looksUntil("new", after); o.err != nil {
		t.Errorf("who waits for the session that was made: %v", o.err)
	}
}

// TestWaitNotForOld: what the deleted session of an id had is no answer to who waits for the one
// that has the id now, although others still wait for the deleted one.
func TestWaitNotForOld(t *testing.T) {
	s := newBlocking(t, "")
	s.hub.watch.Do(func() {}) // it looks when the test says so
	wait := func(after hansard.Seq) <-chan outcome[struct{}] {
		return later(func() (struct{}, error) { return struct{}{}, s.Wait(t.Context(), "s", after) })
	}
	one := []hansard.Event{{Data: []byte("1")}}
	if _, err := s.Append(t.Context(), "s", hansard.Batch{Events: slices.Repeat(one, 3)}); err != nil {
		t.Fatal(err)
	}
	before := wait(3)
	s.waiters("s", 1)
	s.looks("s")
	if err := s.Delete(t.Context(), "s", ""); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Create(t.Context(), "s", hansard.Meta{Reuse: true}); err != nil {
		t.Fatal(err)
	}
	w := s.hub.join("s")
	defer w.leave()
	if now := w.state(); w.knows(&now, 0) {
		t.Error("a session without an event is said to have one")
	}
	s.looks("s")
	if o := soon(t, "who waited for the deleted session", before); !errors.Is(o.err, hansard.ErrDeleted) {
		t.Errorf("who waited for the deleted session: %v", o.err)
	}
	after := wait(0)
	s.waiters("s", 1)
	if _, err := s.Append(t.Context(), "s", hansard.Batch{Events: one}); err != nil {
		t.Fatal(err)
	}
	if o := s.looksUntil("s", after); o.err != nil {
		t.Errorf("who waits for the new session: %v", o.err)
	}
}
