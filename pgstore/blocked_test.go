package pgstore

import (
	"context"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"hansard"
	"hansard/internal/pgtest"
)

// blocking is another client's transaction that keeps the row of session "s" locked. Calls made
// meanwhile wait for the row, so the test knows their order, and go on when the test lets them.
type blocking struct {
	t      testing.TB
	server *pgtest.Server
	name   string // the name of the store's connections in the database
	conn   *pgx.Conn
	*Store
}

// newBlocking opens a store with session "s" in it, at a URL that ends with these settings.
func newBlocking(t testing.TB, settings string) *blocking {
	t.Helper()
	server := pgtest.Shared(t)
	return newBlockingAt(t, server, server.Schema(t)+settings)
}

func newBlockingAt(t testing.TB, server *pgtest.Server, address string) *blocking {
	t.Helper()
	return newBlockingWith(t, server, address, nil)
}

func newBlockingWith(t testing.TB, server *pgtest.Server, address string, o *Options) *blocking {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	b := &blocking{t: t, server: server, name: "store-in-" + u.Query().Get("search_path")}
	if b.Store, err = Open(t.Context(), address+"&application_name="+b.name, o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Store.Close() })
	if _, err := b.Create(t.Context(), "s", hansard.Meta{}); err != nil {
		t.Fatal(err)
	}
	if b.conn, err = pgx.Connect(t.Context(), server.URL(u.Query().Get("search_path"))); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.conn.Close(context.Background()) })
	return b
}

// exec runs a statement in the other transaction, or outside of it.
func (b *blocking) exec(sql string, args ...any) {
	b.t.Helper()
	if _, err := b.conn.Exec(b.t.Context(), sql, args...); err != nil {
		b.t.Fatalf("%s: %v", sql, err)
	}
}

// lock begins the transaction that locks the row.
func (b *blocking) lock() {
	b.t.Helper()
	b.exec("BEGIN")
	b.exec("SELECT 1 FROM hansard_heads WHERE id = 's' FOR UPDATE")
}

// waiting waits until n statements of the store wait for a lock, and returns the database's time
// then.
func (b *blocking) waiting(n int) time.Time {
	b.t.Helper()
	b.server.Until(b.t, fmt.Sprintf("SELECT count(*) = %d FROM pg_stat_activity WHERE application_name = '%s' AND wait_event_type = 'Lock'", n, b.name))
	return b.clock()
}

// clock is the database's time.
func (b *blocking) clock() (now time.Time) {
	b.t.Helper()
	if err := b.conn.QueryRow(b.t.Context(), "SELECT clock_timestamp()").Scan(&now); err != nil {
		b.t.Fatal(err)
	}
	return now
}

// pass waits until the database's clock is past a time.
func (b *blocking) pass(when time.Time) {
	b.t.Helper()
	for !b.clock().After(when) {
		time.Sleep(5 * time.Millisecond) // so as not to poll without a pause
	}
}

// later runs f in the background and delivers its outcome.
func later[T any](f func() (T, error)) <-chan outcome[T] {
	out := make(chan outcome[T], 1)
	go func() {
		v, err := f()
		out <- outcome[T]{v, err}
	}()
	return out
}

type outcome[T any] struct {
	value T
	err   error
}
