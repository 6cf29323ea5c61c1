package pgstore

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// watchSilence checks connections that have waited long for an answer. The server may be
// busy with their statement, or waiting for a row or a standby. Or the other end is gone: a
// host that hangs, or a network or proxy that has forgotten the connection, sends nothing,
// and TCP reports nothing as long as some kernel acknowledges. The caller would wait forever.
func (s *Store) watchSilence(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		var asking sync.WaitGroup
		for _, lines := range s.dialer.waiting() {
			asking.Go(func() { s.lookInto(ctx, lines) })
		}
		asking.Wait()
	}
}

// lookInto asks the server about lines to it, over a separate connection, and closes those
// that no server process is working for. Callers that wait on them get an error, open a new
// connection and find out what became of their writes.
func (s *Store) lookInto(ctx context.Context, lines []*line) {
	bounded, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	asked := make([]int64, len(lines))
	for i, l := range lines {
		asked[i] = l.now()
	}
	atWork, err := s.ask(bounded, lines)
	if ctx.Err() != nil {
		return
	}
	gone := err != nil && noAnswer(err)
	if gone {
		s.dialer.leaveAlone(lines[0].address)
	}
	var dead []*line
	for i, l := range lines {
		switch {
		case l.since.Load() > asked[i]: // something moved
		case err == nil && (l.pid.Load() == 0 || atWork[l.pid.Load()]), err != nil && !gone:
			l.checked.Store(l.now())
		default:
			dead = append(dead, l)
		}
	}
	if slices.ContainsFunc(dead, func(l *line) bool { return l.owed.Load() }) {
		// Other connections to the same host are likely dead too. They are dropped before the
		// waiting callers get their error, so that no retry is given one of them.
		s.pool.Reset()
	}
	for _, l := range dead {
		l.Close()
	}
}

// noAnswer tells whether an error of ask means that nobody is at the other end. A server
// that refuses this connection, or any more connections, is there.
func noAnswer(err error) bool {
	c := code(err)
	return c == "" || strings.HasPrefix(c, shutDown)
}

const (
	// findAtWork selects, from a list of server processes, those that are working: not the
	// ones that wait for the next statement, nor for the rest of one.
	findAtWork = `SELECT pid FROM pg_stat_activity WHERE pid = ANY($1::integer[]) AND (state IN ('active', 'disabled') OR state IS NULL)
	AND wait_event_type IS DISTINCT FROM 'Client'`

	// endStuck ends server processes that hold a lock on a session's row and wait for the
	// rest of a message from a client that was cut off in the middle. PostgreSQL itself has a
	// timeout only for a transaction that waits for its next statement, not for one that
	// waits inside a batch of statements.
	endStuck = `SELECT pg_terminate_backend(a.pid) FROM pg_stat_activity a
	WHERE a.usename = current_user AND a.state = 'active' AND a.wait_event = 'ClientRead' AND a.state_change < clock_timestamp() - make_interval(secs => $1)
		AND EXISTS (SELECT 1 FROM pg_locks l WHERE l.pid = a.pid AND l.granted AND l.relation = to_regclass('hansard_heads')
			AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND l.mode IN ('RowShareLock', 'RowExclusiveLock'))`
)

// ask asks the server at the other end of lines which of them it is working for. It also
// frees rows locked by processes whose client was cut off: a long wait may be for one of
// those.
func (s *Store) ask(ctx context.Context, lines []*line) (atWork map[uint32]bool, err error) {
	cfg := s.pool.Config().ConnConfig
	// Only this host, none of the others that the URL may name.
	cfg.LookupFunc = func(context.Context, string) ([]string, error) { return []string{"0.0.0.0"}, nil }
	cfg.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return s.dialer.DialContext(ctx, lines[0].network, lines[0].address)
	}
	cfg.ValidateConnect = nil // a standby answers too
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer conn.Close(ctx)
	var pids []int32
	for _, l := range lines {
		pids = append(pids, int32(l.pid.Load()))
	}
	rows, err := conn.Query(ctx, findAtWork, pgx.QueryExecModeExec, pids)
	if err != nil {
		return nil, err
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[int32])
	if err != nil {
		return nil, err
	}
	atWork = make(map[uint32]bool)
	for _, pid := range found {
		atWork[uint32(pid)] = true
	}
	if !s.opt.ReadOnly {
		_, _ = conn.Exec(ctx, endStuck, pgx.QueryExecModeExec, stuckAfter.Seconds()) // if it fails, the next ask retries it
	}
	return atWork, nil
}
