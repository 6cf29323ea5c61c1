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

// watchSilence looks into connections that wait for an answer for long. The server may
// be at work for them, waiting for a row or a standby. Or there is nobody any more: a
// host that hangs, or a network or a proxy that has forgotten the connection, says
// nothing, and TCP has nothing to report as long as some kernel acknowledges. Who
// waited would wait for ever.
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

// lookInto asks the server about lines to it, over a connection of its own, and closes
// those at whose other end nobody is at work. Callers that wait on them get an error, make a
// new connection and settle what is open.
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
		// The others to the same host are likely to be no better. Waiting callers get none of
		// those: they are given up before the callers get their error.
		s.pool.Reset()
	}
	for _, l := range dead {
		l.Close()
	}
}

// noAnswer tells of an error of ask whether there is nobody at the other end. A server
// that refuses to take one connection more, or this one, is there.
func noAnswer(err error) bool {
	c := code(err)
	return c == "" || strings.HasPrefix(c, shutDown)
}

const (
	// findAtWork gives those of some processes of the server that are at work: not
	// those that wait for the next statement, nor for the rest of one.
	findAtWork = `SELECT pid FROM pg_stat_activity WHERE pid = ANY($1::integer[]) AND (state IN ('active', 'disabled') OR state IS NULL)
	AND wait_event_type IS DISTINCT FROM 'Client'`

	// endStuck ends processes of the server that have a session's row locked and wait
	// for the rest of what a process of ours was about to say: it was cut off in the
	// middle. PostgreSQL itself has a timeout only for a transaction that waits for the
	// next statement, not for one that waits inside of several that came together.
	endStuck = `SELECT pg_terminate_backend(a.pid) FROM pg_stat_activity a
	WHERE a.usename = current_user AND a.state = 'active' AND a.wait_event = 'ClientRead' AND a.state_change < clock_timestamp() - make_interval(secs => $1)
		AND EXISTS (SELECT 1 FROM pg_locks l WHERE l.pid = a.pid AND l.granted AND l.relation = to_regclass('hansard_heads')
			AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND l.mode IN ('RowShareLock', 'RowExclusiveLock'))`
)

// ask asks the server at the other end of lines which of them it is at work for. While
// it is at it, it frees rows that processes which were cut off have locked: who waits
// for long may be waiting for one.
func (s *Store) ask(ctx context.Context, lines []*line) (atWork map[uint32]bool, err error) {
	cfg := s.pool.Config().ConnConfig
	// The same host, and no other that the URL may name.
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
		_, _ = conn.Exec(ctx, endStuck, pgx.QueryExecModeExec, stuckAfter.Seconds()) // or it is done when it is asked again
	}
	return atWork, nil
}
