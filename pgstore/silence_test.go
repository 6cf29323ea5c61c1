package pgstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"hansard"
	"hansard/internal/pgtest"
)

// mostSilence is the promise of docs/postgres.md: no call is delayed longer than this because a
// peer has fallen silent.
const mostSilence = 15 * time.Second

// within is a context with that limit.
func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), mostSilence)
	t.Cleanup(cancel)
	return ctx
}

// TestSilentWriter: a process that is cut off while it has a session's row locked, without the
// server being told, does not block the session for others, wherever in its transaction it was.
// If it goes on elsewhere, its write is stored once. (Failure 59.)
func TestSilentWriter(t *testing.T) {
	title := "patched"
	one := []hansard.Event{{Data: []byte("1")}}
	patched := hansard.Batch{Events: one, Patch: &hansard.Patch{Title: &title}}
	for name, c := range map[string]struct {
		batch hansard.Batch
		loss  pgtest.Loss
	}{
		"between lock and commit":       {patched, pgtest.Loss{SQL: insertAt}},
		"before the commit":             {patched, pgtest.Loss{SQL: "COMMIT"}},
		"after the lock, before asking": {patched, pgtest.Loss{SQL: lockSession, Begun: true}},
		"in the middle of an append":    {hansard.Batch{Events: one}, pgtest.Loss{SQL: appendOne, Begun: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it only waits
			tap, s := tapStore(t)
			other, err := Open(t.Context(), s.server.URL(schemaIn(t, s)), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer other.Close()
			silent := make(chan struct{})
			c.loss.Silent, c.loss.Then = true, func() { close(silent) }
			tap.Lose(c.loss)
			cutOff := later(func() (hansard.Receipt, error) { return s.Append(t.Context(), "s", c.batch) })
			<-silent
			s.server.Until(t, fmt.Sprintf("SELECT count(*) > 0 FROM pg_locks WHERE relation = '%s.hansard_heads'::regclass AND mode IN ('RowShareLock', 'RowExclusiveLock')", schemaIn(t, s)))
			if _, err := other.Append(within(t), "s", hansard.Batch{Events: one}); err != nil {
				t.Errorf("an append by somebody else: %v", err)
			}
			if r := <-cutOff; r.err != nil || r.value.First == 0 {
				t.Errorf("the one that was cut off, on a new connection: %+v, %v", r.value, r.err)
			}
			soundLog(t, other, 2)
		})
	}
}

// busy makes sessions and fills the pool with connections.
func busy(t *testing.T, s *Store, n int) {
	t.Helper()
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			b := hansard.Batch{Events: []hansard.Event{{Data: []byte("1")}}, Create: true}
			if _, err := s.Append(t.Context(), hansard.SessionID(fmt.Sprint("s", i)), b); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// everything calls all methods of a store at once, and each must be answered in time.
func everything(t *testing.T, s *Store, n int) {
	t.Helper()
	ctx := within(t)
	var all sync.WaitGroup
	check := func(what string, f func() error) {
		all.Go(func() {
			began := time.Now()
			if err := f(); err != nil {
				t.Errorf("%s: %v after %v", what, err, time.Since(began))
			}
		})
	}
	for i := range n {
		id := hansard.SessionID(fmt.Sprint("s", i))
		check("append", func() error {
			r, err := s.Append(ctx, id, hansard.Batch{Events: []hansard.Event{{Data: []byte("2")}}})
			if err == nil && r.First != 2 {
				err = fmt.Errorf("it is at seq %d", r.First)
			}
			return err
		})
	}
	check("stat", func() error {
		_, err := s.Stat(ctx, "s0")
		return err
	})
	check("read", func() error {
		for _, err := range s.Read(ctx, "s1", hansard.Range{}) {
			if err != nil {
				return err
			}
		}
		return nil
	})
	check("list", func() error {
		for _, err := range s.List(ctx, hansard.Query{}) {
			if err != nil {
				return err
			}
		}
		return nil
	})
	check("wait", func() error { return s.Wait(ctx, "s2", 1) })
	check("probe", func() error { return s.Probe(ctx) })
	all.Wait()
}

// TestSilentHost: if one of several hosts accepts connections but does not answer, it costs
// seconds, whether from the start or after it filled a pool with connections. Single dead
// connections to a host that answers cost as much.
func TestSilentHost(t *testing.T) {
	const n = 40 // sessions: more than connections
	for name, c := range map[string]struct {
		before, then func(first *pgtest.Proxy)
	}{
		"from the start":         {(*pgtest.Proxy).Silence, func(*pgtest.Proxy) {}},
		"with connections to it": {func(*pgtest.Proxy) {}, (*pgtest.Proxy).Silence},
		"connections forgotten":  {func(*pgtest.Proxy) {}, (*pgtest.Proxy).Freeze},
		"connections half open":  {func(*pgtest.Proxy) {}, (*pgtest.Proxy).HalfOpen},
		"connections cut":        {func(*pgtest.Proxy) {}, (*pgtest.Proxy).Cut},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it only waits
			server := pgtest.Shared(t)
			address := server.Schema(t)
			first, one := server.Proxy(t, address)
			_, two := server.Proxy(t, address)
			c.before(first)
			s, err := Open(within(t), pgtest.Proxied(one, two), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			busy(t, s, n)
			c.then(first)
			everything(t, s, n)
			for f, err := range s.Verify(t.Context(), "") {
				if err != nil || f.Level != hansard.LevelOK {
					t.Errorf("%+v, %v", f, err)
				}
			}
		})
	}
}

// TestSilentOnlyHost: if there is no other host, a call to a host that falls silent ends with an
// error that says so, and calls work again when it answers.
func TestSilentOnlyHost(t *testing.T) {
	t.Parallel() // it only waits
	server := pgtest.Shared(t)
	proxy, address := server.Proxy(t, server.Schema(t))
	s, err := Open(t.Context(), address, &Options{RetryFor: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	busy(t, s, 2)
	proxy.Silence()
	if _, err := s.Stat(within(t), "s0"); !errors.Is(err, hansard.ErrBusy) {
		t.Errorf("stat of a silent host: %v", err)
	}
	b := hansard.Batch{Events: []hansard.Event{{Data: []byte("2")}}, Key: "k"}
	if _, err := s.Append(within(t), "s0", b); !errors.Is(err, hansard.ErrBusy) && !errors.Is(err, hansard.ErrUnknown) {
		t.Errorf("append to a silent host: %v", err)
	}
	proxy.Heal()
	if r, err := s.Append(within(t), "s0", b); err != nil || r.First != 2 {
		t.Errorf("append when it answers again: %+v, %v", r, err)
	}
}

// TestSlowIsNotSilent: a statement that the server is working on is left alone, however long it
// takes.
func TestSlowIsNotSilent(t *testing.T) {
	t.Parallel() // it only waits
	s := newBlocking(t, "&pool_max_conns=1")
	s.lock()
	out := later(func() (hansard.Receipt, error) {
		return s.Append(t.Context(), "s", hansard.Batch{Events: []hansard.Event{{Data: []byte("1")}}})
	})
	s.waiting(1)
	var began, now time.Time
	const statement = "SELECT query_start FROM pg_stat_activity WHERE application_name = $1 AND wait_event_type = 'Lock'"
	if err := s.conn.QueryRow(t.Context(), statement, s.name).Scan(&began); err != nil {
		t.Fatal(err)
	}
	s.pass(s.clock().Add(silentAfter + askPatience + 2*time.Second))
	if err := s.conn.QueryRow(t.Context(), statement, s.name).Scan(&now); err != nil || !now.Equal(began) {
		t.Errorf("the statement that began at %v waits since %v (%v)", began, now, err)
	}
	s.exec("COMMIT")
	if r := <-out; r.err != nil || r.value.First != 1 {
		t.Errorf("%+v, %v", r.value, r.err)
	}
}

// TestSilentGroup: the same where the commit has several sessions. None of them is blocked for
// others.
func TestSilentGroup(t *testing.T) {
	t.Parallel() // it only waits
	tap, s := tapStore(t)
	s.makeSessions("a")
	other := s.besides()
	silent := make(chan struct{})
	tap.Lose(pgtest.Loss{SQL: appendTogether, Begun: true, Silent: true, Then: func() { close(silent) }})
	var cutOff []<-chan outcome[hansard.Receipt]
	gather(t, s.Store, 2, func() { cutOff = append(cutOff, s.appendLater("a"), s.appendLater("s")) })
	<-silent
	s.server.Until(t, fmt.Sprintf("SELECT count(*) > 0 FROM pg_locks WHERE relation = '%s.hansard_heads'::regclass AND mode = 'RowExclusiveLock'", schemaIn(t, s)))
	var others []<-chan outcome[hansard.Receipt]
	for _, id := range []hansard.SessionID{"a", "s"} {
		others = append(others, later(func() (hansard.Receipt, error) {
			return other.Append(within(t), id, hansard.Batch{Events: []hansard.Event{{Data: []byte("1")}}})
		}))
	}
	for _, out := range append(others, cutOff...) {
		if o := <-out; o.err != nil || o.value.First == 0 {
			t.Errorf("%+v, %v", o.value, o.err)
		}
	}
	soundLogs(t, other.Store, map[hansard.SessionID]int{"a": 2, "s": 2})
}
