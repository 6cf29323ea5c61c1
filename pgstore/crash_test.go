package pgstore_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"hansard"
	"hansard/internal/pgtest"
	"hansard/pgstore"
	"hansard/storetest"
)

// TestManyServers: the processes of three servers, 32 clients each, on 50 sessions, contending
// for a turn: no gaps, no duplicates, stale grants refused.
func TestManyServers(t *testing.T) {
	url := pgtest.Shared(t).Schema(t)
	s := open(t, url)
	defer s.Close()
	if _, err := s.Create(t.Context(), "turns", hansard.Meta{}); err != nil {
		t.Fatal(err)
	}
	w := start(t, 3, work{URL: url, Clients: 32, Sessions: 50, Turns: true})
	w.more(int64(scale(3000)))
	// Fencing is certain only once a holder has slept past its turn.
	deadline := time.Now().Add(time.Minute)
	for w.stale() == 0 && time.Now().Before(deadline) {
		time.Sleep(10 * time.Millisecond)
	}
	w.stop()
	if err := w.check(s); err != nil {
		t.Error(err)
	}
	t.Logf("%d appends, %d grants, %d stale writes refused", w.count.Load(), len(w.granted), w.fenced)
	if w.fenced == 0 || len(w.granted) < 3 {
		t.Error("nobody was fenced: the test shows nothing about turns")
	}
}

func (w *workers) stale() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fenced
}

// TestKilled: kill -9 of the whole database server under load, repeatedly: everything
// acknowledged is there once, in its place, and the processes reconnect by themselves.
func TestKilled(t *testing.T) {
	t.Parallel() // with a server of its own
	server := pgtest.New(t)
	url := server.Schema(t)
	s := open(t, url)
	defer s.Close()
	w := start(t, 3, work{URL: url, Clients: 8, Sessions: 10})
	for range scale(20) {
		w.more(20 + rand.Int64N(60))
		server.Kill()
		if err := server.Start(); err != nil {
			t.Fatal(err)
		}
	}
	w.more(50)
	w.stop()
	if err := w.check(s); err != nil {
		t.Error(err)
	}
	t.Logf("%d appends acknowledged", w.count.Load())
}

// TestControlAsynchronousCommit is the control: with synchronous_commit off the same test loses
// acknowledged events. If it did not, TestKilled would prove nothing.
func TestControlAsynchronousCommit(t *testing.T) {
	t.Parallel() // with a server of its own
	server := pgtest.New(t, "wal_writer_delay = 10s", "wal_writer_flush_after = 1GB", "wal_buffers = 64MB")
	url := server.Schema(t)
	open(t, url).Close()
	for range 10 {
		w := start(t, 1, work{URL: url + "&synchronous_commit=off", Clients: 8, Sessions: 10})
		w.more(100)
		server.Kill()
		if err := server.Start(); err != nil {
			t.Fatal(err)
		}
		w.stop()
		s := open(t, url)
		err := w.check(s)
		s.Close()
		if err != nil {
			t.Logf("as it has to be: %v", err)
			return
		}
		url = server.Schema(t)
	}
	t.Error("nothing acknowledged was lost without synchronous commits: the test can't see a loss")
}

// pair makes a primary and a standby that its commits wait for.
func pair(t *testing.T) (primary, standby *pgtest.Server, url string) {
	t.Helper()
	primary = pgtest.New(t)
	standby = pgtest.NewStandby(t, primary)
	primary.Reload(t, "synchronous_standby_names = '"+pgtest.StandbyName+"'")
	primary.Until(t, "SELECT count(*) > 0 FROM pg_stat_replication WHERE sync_state = 'sync'")
	return primary, standby, primary.Schema(t)
}

// TestFailover: the primary is killed under load and its synchronous standby promoted: nothing
// acknowledged is lost, and the processes find the new primary.
func TestFailover(t *testing.T) {
	t.Parallel() // with a server of its own
	primary, standby, url := pair(t)
	either := pgtest.Either(url, primary, standby)
	s := open(t, either)
	defer s.Close()
	if warnings, err := s.Warnings(t.Context()); err != nil || len(warnings) != 0 {
		t.Errorf("warnings about a synchronous pair: %q, %v", warnings, err)
	}
	w := start(t, 3, work{URL: either, Clients: 8, Sessions: 10})
	w.more(300)
	primary.Kill()
	standby.Promote(t)
	w.more(100)
	w.stop()
	if err := w.check(s); err != nil {
		t.Error(err)
	}
}

// TestControlAsynchronousStandby is the control: with a standby that commits do not wait for, the
// same test loses acknowledged events. The standby is down for a moment, as happens. (If it only
// hung, what was sent to it would still arrive when it goes on.)
func TestControlAsynchronousStandby(t *testing.T) {
	t.Parallel() // with a server of its own
	primary := pgtest.New(t)
	standby := pgtest.NewStandby(t, primary)
	url := primary.Schema(t)
	either := pgtest.Either(url, primary, standby)
	s := open(t, either)
	defer s.Close()
	warnings, err := s.Warnings(t.Context())
	if err != nil || len(warnings) != 1 || !strings.Contains(warnings[0], "synchronous_standby_names is empty") {
		t.Errorf("warnings about an asynchronous standby: %q, %v", warnings, err)
	}
	w := start(t, 1, work{URL: either, Clients: 8, Sessions: 5})
	w.more(100)
	standby.Kill()
	w.more(100)
	primary.Kill()
	if err := standby.Start(); err != nil {
		t.Fatal(err)
	}
	standby.Promote(t)
	w.stop()
	if err := w.check(s); err == nil {
		t.Error("nothing acknowledged was lost with an asynchronous standby: the test can't see a loss")
	} else {
		t.Logf("as it has to be: %v", err)
	}
}

// TestCommitThatIsNotReplicated: a commit whose wait for the standby ended early is visible but
// not replicated. Neither it nor a retry of it may be acknowledged before the standby has it.
func TestCommitThatIsNotReplicated(t *testing.T) {
	t.Parallel() // with a server of its own
	primary, standby, url := pair(t)
	s := open(t, url)
	defer s.Close()
	createAndPause(t, s, standby)
	b := hansard.Batch{Events: storetest.Marked("w", 0, 1, 0), Key: "k"}
	first := appending(t, s, b)
	// Cancel the statement: PostgreSQL then reports the commit as done.
	const waiting = "FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
	primary.Until(t, "SELECT count(*) = 1 "+waiting)
	primary.Until(t, "SELECT bool_and(pg_cancel_backend(pid)) "+waiting)
	primary.Until(t, "SELECT count(*) = 1 FROM "+schemaOf(url)+".hansard_events")
	// Now a retry finds it, also through another handle.
	other := open(t, url)
	defer other.Close()
	second := appending(t, other, b)
	primary.Until(t, "SELECT count(*) >= 1 "+waiting) // they wait again
	for _, pending := range []<-chan answer{first, second} {
		select {
		case a := <-pending:
			t.Fatalf("answered %+v, %v while the standby did not have it", a.receipt, a.err)
		default:
		}
	}
	if err := standby.Resume(); err != nil {
		t.Fatal(err)
	}
	for _, pending := range []<-chan answer{first, second} {
		a := <-pending
		if a.err != nil || a.receipt.First != 1 {
			t.Errorf("with the standby back: %+v, %v", a.receipt, a.err)
		}
	}
	primary.Kill()
	standby.Promote(t)
	promoted := open(t, pgtest.Either(url, standby))
	defer promoted.Close()
	if log := storetest.ReadAll(t, promoted, "s"); len(log) != 1 {
		t.Errorf("after failing over the log has %d events", len(log))
	}
}

// createAndPause makes session s, and then pauses the standby.
func createAndPause(t *testing.T, s hansard.Store, standby *pgtest.Server) {
	t.Helper()
	if _, err := s.Create(t.Context(), "s", hansard.Meta{}); err != nil {
		t.Fatal(err)
	}
	if err := standby.Pause(); err != nil {
		t.Fatal(err)
	}
}

type answer struct {
	receipt hansard.Receipt
	err     error
}

// appending appends in the background.
func appending(t *testing.T, s hansard.Store, b hansard.Batch) <-chan answer {
	out := make(chan answer, 1)
	go func() {
		r, err := s.Append(t.Context(), "s", b)
		out <- answer{r, err}
	}()
	return out
}

// TestUnknown: a context that ends while the outcome is open gives ErrUnknown, and the key
// settles it.
func TestUnknown(t *testing.T) {
	t.Parallel() // with a server of its own
	primary, standby, url := pair(t)
	s := open(t, url)
	defer s.Close()
	createAndPause(t, s, standby)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	b := hansard.Batch{Events: storetest.Marked("w", 0, 1, 0), Key: "k"}
	go func() {
		_, err := s.Append(ctx, "s", b)
		done <- err
	}()
	primary.Until(t, "SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
	cancel()
	if err := <-done; !errors.Is(err, hansard.ErrUnknown) || !errors.Is(err, context.Canceled) {
		t.Errorf("an append whose context ended: %v", err)
	}
	if err := standby.Resume(); err != nil {
		t.Fatal(err)
	}
	if r, err := s.Append(t.Context(), "s", b); err != nil || r.First != 1 || !r.Replayed {
		t.Errorf("the retry: %+v, %v", r, err)
	}
}

// TestDatabaseGone: while the database is down, calls say so, and afterwards everything goes on.
func TestDatabaseGone(t *testing.T) {
	t.Parallel() // with a server of its own
	server := pgtest.New(t)
	url := server.Schema(t)
	s, err := pgstore.Open(t.Context(), url, &pgstore.Options{RetryFor: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	b := hansard.Batch{Events: storetest.Marked("w", 0, 1, 0), Create: true}
	if _, err := s.Append(t.Context(), "s", b); err != nil {
		t.Fatal(err)
	}
	server.Kill()
	for range 2 {
		_, err := s.Append(t.Context(), "s", hansard.Batch{Events: storetest.Marked("w", 1, 1, 0)})
		if !errors.Is(err, hansard.ErrBusy) && !errors.Is(err, hansard.ErrUnknown) || hansard.Hint(err) == "" {
			t.Errorf("Append without the database: %v", err)
		}
		_, err = s.Stat(t.Context(), "s")
		if !errors.Is(err, hansard.ErrBusy) {
			t.Errorf("Stat without the database: %v", err)
		}
		if err := s.Wait(t.Context(), "s", 5); !errors.Is(err, hansard.ErrBusy) {
			t.Errorf("Wait without the database: %v", err)
		}
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Append(t.Context(), "s", hansard.Batch{Events: storetest.Marked("w", 2, 1, 0)}); err != nil {
		t.Errorf("Append with the database back: %v", err)
	}
}
