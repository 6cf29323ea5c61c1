package pgtest

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

func TestMain(m *testing.M) { os.Exit(Main(m)) }

func TestKillAndStart(t *testing.T) {
	s := New(t)
	s.Exec(t, "CREATE TABLE kept (n int)")
	conn, err := pgx.Connect(t.Context(), s.URL(""))
	if err != nil {
		t.Fatal(err)
	}
	s.Kill()
	if err := conn.Ping(t.Context()); err == nil {
		t.Error("a backend outlived the kill")
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	s.Exec(t, "INSERT INTO kept VALUES (1)")
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
}

// TestBouncerStartsAgain: a PgBouncer that dies is started again.
func TestBouncerStartsAgain(t *testing.T) {
	b := New(t).Bouncer(t, 2)
	for range 2 {
		b.mu.Lock()
		b.cmd.Process.Kill()
		was := b.cmd
		b.mu.Unlock()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for {
			b.mu.Lock()
			again := b.cmd != was
			b.mu.Unlock()
			conn, err := pgx.Connect(ctx, b.url("postgres"))
			if err == nil {
				conn.Close(ctx)
			}
			if err == nil && again {
				break
			}
			select {
			case <-ctx.Done():
				t.Fatalf("it does not answer: %v", err)
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
	if b.mu.Lock(); b.restarts != 2 {
		t.Errorf("it was started again %d times", b.restarts)
	}
	b.mu.Unlock()
}
