package pgstore_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"hansard"
	"hansard/internal/pgtest"
	"hansard/pgstore"
	"hansard/storetest"
)

// TestTransactionPool: behind a PgBouncer that may give each transaction to another server
// process, a store works if it is told not to prepare statements, and otherwise says so.
func TestTransactionPool(t *testing.T) {
	t.Parallel() // with a server of its own
	server := pgtest.New(t)
	bouncer := server.Bouncer(t, 10)
	t.Run("prepared statements", func(t *testing.T) {
		address := bouncer.Store(t)
		var err error
		for range 20 { // until two connections have shared a process
			var s *pgstore.Store
			if s, err = pgstore.Open(t.Context(), address, &pgstore.Options{RetryFor: time.Second}); err == nil {
				_, err = s.Append(t.Context(), "s", hansard.Batch{Events: storetest.Marked("w", 0, 1, 0), Create: true})
				s.Close()
			}
			if err != nil {
				break
			}
		}
		if !errors.Is(err, hansard.ErrUnsupported) || !strings.Contains(hansard.Hint(err), "default_query_exec_mode=exec") {
			t.Errorf("without the setting: %v, hint %q", err, hansard.Hint(err))
		}
	})
	t.Run("a schema in the URL", func(t *testing.T) {
		_, err := pgstore.Open(t.Context(), bouncer.Store(t)+"&search_path=s", &pgstore.Options{RetryFor: time.Second})
		if err == nil || !strings.Contains(hansard.Hint(err), "ignore_startup_parameters") {
			t.Errorf("%v, hint %q", err, hansard.Hint(err))
		}
	})
	t.Run("everything", func(t *testing.T) {
		s := open(t, bouncer.Store(t)+"&default_query_exec_mode=exec")
		defer s.Close()
		pgstore.UseEverything(t, s)
	})
	t.Run("many servers", func(t *testing.T) {
		address := bouncer.Store(t) + "&default_query_exec_mode=exec"
		s := open(t, address)
		defer s.Close()
		if _, err := s.Create(t.Context(), "turns", hansard.Meta{}); err != nil {
			t.Fatal(err)
		}
		w := start(t, 3, work{URL: address, Clients: 8, Sessions: 10, Turns: true})
		w.more(int64(scale(1000)))
		w.stop()
		if err := w.check(s); err != nil {
			t.Error(err)
		}
	})
}

// TestTransactionPoolCommits: acknowledged events are durable whichever server process stored
// them, although the database's default is not to wait.
func TestTransactionPoolCommits(t *testing.T) {
	t.Parallel() // with a server of its own
	// Anything not committed durably is certain to be lost.
	server := pgtest.New(t, "synchronous_commit = off", "wal_writer_delay = 10s", "wal_writer_flush_after = 1GB", "wal_buffers = 64MB")
	bouncer := server.Bouncer(t, 5)
	address := bouncer.Store(t) + "&default_query_exec_mode=exec"
	s := open(t, address)
	defer s.Close()
	w := start(t, 2, work{URL: address, Clients: 8, Sessions: 10})
	w.more(200)
	server.Kill()
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	w.more(20)
	w.stop()
	if err := w.check(s); err != nil {
		t.Error(err)
	}
}
