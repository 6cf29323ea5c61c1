// Package pgstore keeps sessions in PostgreSQL, so that servers on many machines
// share them. It is a [hansard.Store].
//
// An append is one statement on the session's row: it checks the batch's
// conditions, takes the next seqs and inserts the events, in one round trip and one
// commit. Appends that arrive while one is under way are sent together as the next
// (queue.go, append.go). What such a statement can't decide (patches, a session to
// be made, refusals that need a reason, turns) is decided in Go, while a transaction
// holds the row's lock (locked.go).
//
// What it promises rests on the server's settings: with synchronous_commit off, or
// after failing over to an asynchronous standby, acknowledged events are lost.
// [Store.Warnings] tells. docs/postgres.md is the operator's page.
package pgstore

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"hansard"
)

// Options change how a store is opened. The zero value, or nil, is right for a
// server.
type Options struct {
	// MustExist answers [ErrNoSchema] when the database has no tables of ours,
	// instead of making them.
	MustExist bool
	// ReadOnly refuses writes, and leaves an older schema as it is.
	ReadOnly bool
	// RetryFor is how long a call goes on trying while the database can't be
	// reached; 10 seconds when 0.
	RetryFor time.Duration

	// alone sends every append by itself: what combining is measured against.
	alone bool
}

// ErrNoSchema is returned by Open when it must not make the tables and they are
// not there.
var ErrNoSchema = errors.New("the database has no tables of Hansard")

// Store is a store in a PostgreSQL database. Make one with [Open].
type Store struct {
	opt     Options
	pool    *pgxpool.Pool
	channel string // for NOTIFY
	hub     *hub
	closing chan struct{}  // closed by Close
	work    sync.WaitGroup // calls and goroutines under way
	bg      sync.WaitGroup // goroutines that end when closing is closed

	mu     sync.Mutex // guards below
	closed bool
	lanes  map[hansard.SessionID]*lane   // sessions that are appended to
	claims map[hansard.SessionID]*claims // sessions whose turn is waited for

	closeOnce sync.Once
}

var _ hansard.Store = (*Store)(nil)

// Open connects to a database, given as a URL (postgres://user@host/database) or as
// keywords, and makes its tables or brings them up to date. pool_max_conns in the
// URL bounds the connections, search_path says in which schema the tables are.
func Open(ctx context.Context, url string, o *Options) (*Store, error) {
	s := &Store{
		closing: make(chan struct{}),
		lanes:   make(map[hansard.SessionID]*lane),
		claims:  make(map[hansard.SessionID]*claims),
	}
	if o != nil {
		s.opt = *o
	}
	if s.opt.RetryFor <= 0 {
		s.opt.RetryFor = 10 * time.Second
	}
	cfg, err := config(url)
	if err != nil {
		return nil, err
	}
	if s.pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	if err := s.prepare(ctx); err != nil {
		s.pool.Close()
		return nil, err
	}
	s.hub = newHub(s)
	s.sweep()
	return s, nil
}

// defaultConns is how many connections a store uses when the URL does not say.
const defaultConns = 16

// config is the pool's configuration for a URL.
func config(url string) (*pgxpool.Config, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		// The error may quote the URL, though not its password.
		return nil, &hansard.InvalidError{Field: "store", Reason: err.Error()}
	}
	own, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, &hansard.InvalidError{Field: "store", Reason: err.Error()}
	}
	if _, given := own.RuntimeParams["pool_max_conns"]; !given {
		cfg.MaxConns = defaultConns
	}
	if cfg.ConnConfig.RuntimeParams["application_name"] == "" {
		cfg.ConnConfig.RuntimeParams["application_name"] = "hansard"
	}
	cfg.ConnConfig.OnNotice = noticeDoubt
	_, chosen := cfg.ConnConfig.RuntimeParams["synchronous_commit"]
	cfg.AfterConnect = func(ctx context.Context, c *pgx.Conn) error { return settle(ctx, c, chosen) }
	return cfg, nil
}

// settle makes a connection one that keeps our promises, whatever the defaults of
// the database or the role are: each statement sees what is committed when it
// begins, and a commit is durable before it is answered. Stronger settings of
// synchronous_commit, and one that the URL asks for, are left alone.
func settle(ctx context.Context, c *pgx.Conn, chosen bool) error {
	sql := "SET default_transaction_isolation = 'read committed'"
	if !chosen {
		sql += "; SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
	}
	_, err := c.PgConn().Exec(ctx, sql).ReadAll()
	return err
}

// prepare looks whether the database is one we can live in, and makes the tables.
func (s *Store) prepare(ctx context.Context) error {
	var encoding string
	err := s.pool.QueryRow(ctx, "SELECT current_setting('server_encoding')").Scan(&encoding)
	if err != nil {
		return fmt.Errorf("postgres: %w", translate(err))
	}
	if encoding != "UTF8" {
		return fmt.Errorf("%w: the database's encoding is %s; it has to be UTF8", hansard.ErrUnsupported, encoding)
	}
	version, err := schemaVersion(ctx, s.pool)
	if err != nil {
		return err
	}
	switch {
	case version > len(migrations):
		return newerSchema(version)
	case version == 0 && (s.opt.MustExist || s.opt.ReadOnly):
		return ErrNoSchema
	case version < len(migrations) && s.opt.ReadOnly:
		return fmt.Errorf("%w: the tables are at version %d, this program reads version %d: run hansard migrate", hansard.ErrUnsupported, version, len(migrations))
	case version < len(migrations):
		if _, err := migrate(ctx, s.pool); err != nil {
			return err
		}
	}
	// One channel for each schema: stores beside each other do not wake each other.
	var where string
	err = s.pool.QueryRow(ctx, `SELECT current_database() || '.' || n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE c.oid = to_regclass('hansard_schema')`).Scan(&where)
	if err != nil {
		return fmt.Errorf("postgres: %w", translate(err))
	}
	h := fnv.New64a()
	h.Write([]byte(where))
	s.channel = fmt.Sprintf("hansard_%016x", h.Sum64())
	return nil
}

// begin is the beginning of every method: closed, then the id, then what else was
// given, and only then whether anybody still waits for the answer. When it gives
// no error the caller has to call s.work.Done.
func (s *Store) begin(ctx context.Context, id hansard.SessionID, given ...error) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return hansard.ErrClosed
	}
	s.work.Add(1)
	s.mu.Unlock()
	err := hansard.CheckID(id)
	for _, e := range given {
		if err == nil {
			err = e
		}
	}
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		s.work.Done()
	}
	return err
}

// writable is what is wrong with writing to this store at all.
func (s *Store) writable() error {
	if s.opt.ReadOnly {
		return hansard.ErrReadOnly
	}
	return nil
}

// Close implements [hansard.Store]. It waits for what is under way, and wakes
// those who wait for an event or a turn with ErrClosed.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.closeOnce.Do(func() {
		close(s.closing)
		s.work.Wait()
		s.bg.Wait()
		s.hub.flush()
		s.pool.Close()
	})
	return nil
}

// background starts a goroutine that Close waits for. The context ends when the
// store is closed.
func (s *Store) background(f func(ctx context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	s.bg.Add(1)
	go func() {
		defer s.bg.Done()
		defer cancel()
		go func() {
			select {
			case <-s.closing:
				cancel()
			case <-ctx.Done():
			}
		}()
		f(ctx)
	}()
}

// querier is what a pool, a connection and a transaction have in common.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}
