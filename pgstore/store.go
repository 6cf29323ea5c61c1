// Package pgstore keeps sessions in PostgreSQL, so that servers on many machines
// share them. It is a [hansard.Store].
//
// An append is one statement on the session's row: it checks the batch's
// conditions, takes the next seqs and inserts the events, in one round trip and one
// commit. Appends that arrive while a commit is under way, to any sessions, share the next
// commit (queue.go, append.go, together.go). What such a statement can't decide (patches,
// creating a session, refusals that need a reason, turns) is decided in Go, while a
// transaction holds the row's lock (locked.go).
//
// Its promises rest on the server's settings: with synchronous_commit off, or
// after failing over to an asynchronous standby, acknowledged events are lost.
// [Store.Warnings] says so. docs/postgres.md is the operator's page.
package pgstore

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"hansard"
)

// Options change how a store is opened. The zero value, or nil, is right for a
// server.
type Options struct {
	// MustExist makes Open return [ErrNoSchema] when the database has no Hansard tables,
	// instead of creating them.
	MustExist bool
	// ReadOnly refuses writes, and leaves an older schema as it is.
	ReadOnly bool
	// RetryFor is how long a call keeps retrying while the database can't be
	// reached; 10 seconds when 0.
	RetryFor time.Duration

	// alone sends every append by itself: the baseline that combining is measured against.
	alone bool
}

// defaultRetry is how long a call keeps retrying when the options do not say.
const defaultRetry = 10 * time.Second

// ErrNoSchema is returned by Open when the tables do not exist and it must not
// create them.
var ErrNoSchema = errors.New("the database has no tables of Hansard")

// Store is a store in a PostgreSQL database. Make one with [Open].
type Store struct {
	opt     Options
	pool    *pgxpool.Pool
	dialer  *dialer
	unwatch func()            // ends watchSilence
	params  map[string]string // server settings given in the URL
	channel string            // for NOTIFY
	hub     *hub
	shelves shelves
	closing chan struct{}  // closed by Close
	work    sync.WaitGroup // calls and goroutines under way
	bg      sync.WaitGroup // goroutines that end when closing is closed
	filling atomic.Bool    // fillTerms is under way
	// mayWait is a semaphore: it bounds the appends under way that wait if another transaction
	// has locked their row, so that some connections are left for other calls.
	mayWait chan struct{}
	// mayLock bounds all writes that wait for such a row: those appends, calls about turns and
	// others that are decided with the row locked, uploads, removals, and the words that searches
	// add.
	// mayCommit bounds the commits that wait for no row. Together they leave a connection for
	// reads, even if no commit is answered.
	mayLock, mayCommit chan struct{}

	mu      sync.Mutex // guards below
	closed  bool
	lanes   map[hansard.SessionID]*lane   // sessions that are appended to
	ready   []*lane                       // those of them that have something to send and nothing under way
	again   []part                        // whose rows were locked when they were sent
	senders int                           // at work
	claims  map[hansard.SessionID]*claims // sessions whose turn is waited for

	askAgain time.Duration // how soon a claim asks again if no notification comes; tests change it right after Open

	closeOnce sync.Once
}

var _ hansard.Store = (*Store)(nil)

// Open connects to a database, given as a URL (postgres://user@host/database) or as
// keywords, and creates its tables or brings them up to date. pool_max_conns in the
// URL bounds the connections, search_path says in which schema the tables are.
func Open(ctx context.Context, url string, o *Options) (*Store, error) {
	s := &Store{
		closing: make(chan struct{}),
		lanes:   make(map[hansard.SessionID]*lane),
		claims:  make(map[hansard.SessionID]*claims),

		askAgain: showTicket,
	}
	if o != nil {
		s.opt = *o
	}
	if s.opt.RetryFor <= 0 {
		s.opt.RetryFor = defaultRetry
	}
	cfg, d, err := config(url)
	if err != nil {
		return nil, err
	}
	s.dialer = d
	s.params = maps.Clone(cfg.ConnConfig.RuntimeParams)
	if s.pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	// With fewer for commits, many writers far from the database wait longer for each other.
	commits := max(1, 3*cfg.MaxConns/8)
	s.mayCommit, s.mayLock = make(chan struct{}, commits), make(chan struct{}, max(1, cfg.MaxConns-commits-1))
	s.mayWait = make(chan struct{}, max(1, cfg.MaxConns/2))
	watching, stop := context.WithCancel(context.Background())
	s.unwatch = stop
	go s.watchSilence(watching)
	if err := whenStarted(ctx, s.opt.RetryFor, s.prepare); err != nil {
		s.hangUp()
		return nil, err
	}
	s.hub = newHub(s)
	s.sweep()
	return s, nil
}

// prepare checks that we can use the database, and creates or migrates the tables.
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
	if version == 0 {
		if err := closedSchema(ctx, s.pool); err != nil {
			return err
		}
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
	// One channel per schema: stores in the same database do not wake each other.
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

// begin starts every method. It checks that the store is open, then the id, then the other
// arguments, and only then whether the context has ended. If it returns nil the caller has
// to call s.work.Done.
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

// asked tells whether the URL gives a server setting. If so, we must not override it.
func (s *Store) asked(name string) bool {
	_, given := s.params[name]
	return given
}

// writable returns ErrReadOnly if the store was opened read-only.
func (s *Store) writable() error {
	if s.opt.ReadOnly {
		return hansard.ErrReadOnly
	}
	return nil
}

// Close implements [hansard.Store]. It waits for calls under way, and wakes
// callers that wait for an event or a turn with ErrClosed.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.closeOnce.Do(func() {
		close(s.closing)
		s.work.Wait()
		s.bg.Wait()
		s.hub.flush()
		s.hangUp()
	})
	return nil
}

// hangUp closes all connections once nothing is under way any more. Silence is watched until
// then: the last calls may have been waiting for a silent host.
func (s *Store) hangUp() {
	s.unwatch()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		s.pool.Close()
	}()
	s.dialer.hangUp(closed)
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
