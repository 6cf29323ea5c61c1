package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"hansard/internal/bench"
	"hansard/internal/pgtest"
	"hansard/pgstore"
)

// PostgreSQL in four ways: Hansard on it; the transaction one would write without
// Hansard, which locks the session, takes the next seq and inserts; single inserts
// without any order, which need less; and the same by PostgreSQL's own pgbench.
var (
	pgHansard = peer{shared: true, serve: servePostgres, read: func(j bench.Job) (reader, error) {
		s, err := openPgstore(j)
		if err != nil {
			return nil, err
		}
		return storeReader{s}, nil
	}, Candidate: bench.Candidate{Name: "pg-hansard", Setup: setupPgstore, Check: checkPgstore,
		Open: func(j bench.Job) (bench.Target, error) {
			s, err := openPgstore(j)
			if err != nil {
				return nil, err
			}
			return bench.StoreTarget(s, j), nil
		}}}
	pgNaive = peer{shared: true, serve: servePostgres, read: func(j bench.Job) (reader, error) { return openPool(j, true) },
		Candidate: bench.Candidate{Name: "pg-naive", Setup: setupTables, Open: func(j bench.Job) (bench.Target, error) { return openPool(j, true) }, Check: checkTables}}
	pgInsert = peer{shared: true, serve: servePostgres,
		Candidate: bench.Candidate{Name: "pg-insert", Setup: setupTables, Open: func(j bench.Job) (bench.Target, error) { return openPool(j, false) }, Check: checkTables}}
	pgBench = peer{shared: true, serve: servePostgres, run: runPgbench,
		Candidate: bench.Candidate{Name: "pgbench", Setup: setupTables, Check: func(context.Context, bench.Job, [][]bench.Ack) error { return nil }}}
)

// postgres is the server of all runs; each run has a schema.
var postgres struct {
	sync.Mutex
	*pgtest.Server
	err     error
	dir     string
	schemas int
}

// removePostgres stops and removes the server, if it was started.
func removePostgres() {
	postgres.Lock()
	defer postgres.Unlock()
	if postgres.Server != nil {
		postgres.Remove()
		postgres.Server = nil
	}
}

func servePostgres(ctx context.Context, _ string) (*server, error) {
	postgres.Lock()
	defer postgres.Unlock()
	if postgres.Server == nil && postgres.err == nil {
		postgres.Server, postgres.err = pgtest.Run(postgres.dir, "shared_buffers = 256MB", "max_wal_size = 8GB", "max_connections = 400")
	}
	if postgres.err != nil {
		return nil, postgres.err
	}
	postgres.schemas++
	schema := fmt.Sprint("bench", postgres.schemas)
	do := func(ctx context.Context, statement string) error {
		conn, err := pgx.Connect(ctx, postgres.URL(""))
		if err != nil {
			return err
		}
		defer conn.Close(ctx)
		_, err = conn.Exec(ctx, statement)
		return err
	}
	if err := do(ctx, "CREATE SCHEMA "+schema); err != nil {
		return nil, err
	}
	return &server{address: postgres.URL(schema), pid: postgres.PID(), stop: func() error {
		// The next run must not pay for the garbage of this one.
		ctx := context.WithoutCancel(ctx)
		return errors.Join(do(ctx, "DROP SCHEMA "+schema+" CASCADE"), do(ctx, "CHECKPOINT"))
	}}, nil
}

func openPgstore(j bench.Job) (*pgstore.Store, error) {
	return pgstore.Open(context.Background(), j.Address, nil)
}

func setupPgstore(ctx context.Context, j bench.Job) error {
	s, err := openPgstore(j)
	if err != nil {
		return err
	}
	if !j.Create {
		err = bench.CreateSessions(ctx, s, j)
	}
	return errors.Join(err, s.Close())
}

func checkPgstore(ctx context.Context, j bench.Job, acks [][]bench.Ack) error {
	s, err := openPgstore(j)
	if err != nil {
		return err
	}
	defer s.Close()
	return bench.CheckStore(ctx, s, j, acks)
}

type poolTarget struct {
	*pgxpool.Pool
	ordered bool
}

func setupTables(ctx context.Context, j bench.Job) error {
	t, err := openPool(j, true)
	if err != nil {
		return err
	}
	defer t.Close()
	_, err = t.Exec(ctx, `CREATE TABLE sessions (id int PRIMARY KEY, last bigint NOT NULL DEFAULT 0)`)
	if err == nil {
		_, err = t.Exec(ctx, `CREATE TABLE events (session int, seq bigint, time timestamptz DEFAULT now(), kind text, role text, data text, PRIMARY KEY (session, seq))`)
	}
	if err == nil {
		_, err = t.Exec(ctx, `CREATE SEQUENCE seqs CACHE 100`)
	}
	if err == nil {
		_, err = t.Exec(ctx, `INSERT INTO sessions (id) SELECT generate_series(0, $1::int - 1)`, j.Sessions)
	}
	return err
}

func openPool(j bench.Job, ordered bool) (*poolTarget, error) {
	c, err := pgxpool.ParseConfig(j.Address)
	if err != nil {
		return nil, err
	}
	c.MaxConns = int32(max(j.Goroutines, 2))
	p, err := pgxpool.NewWithConfig(context.Background(), c)
	if err != nil {
		return nil, err
	}
	return &poolTarget{p, ordered}, nil
}

func (t *poolTarget) Close() error {
	t.Pool.Close()
	return nil
}

func (t *poolTarget) Append(ctx context.Context, _, session int, tag uint64) (seq uint64, err error) {
	if !t.ordered {
		_, err := t.Exec(ctx, `INSERT INTO events (session, seq, kind, role, data) VALUES ($1, nextval('seqs'), 'message', 'user', $2)`, session, dataWithTag(tag))
		return 0, err
	}
	err = pgx.BeginFunc(ctx, t.Pool, func(tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, `SELECT last + 1 FROM sessions WHERE id = $1 FOR UPDATE`, session).Scan(&seq); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `INSERT INTO events (session, seq, kind, role, data) VALUES ($1, $2, 'message', 'user', $3)`, session, seq, dataWithTag(tag)); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `UPDATE sessions SET last = $2 WHERE id = $1`, session, seq)
		return err
	})
	return seq, err
}

func (t *poolTarget) events(ctx context.Context, last int, each func(uint64)) error {
	rows, err := t.Query(ctx, `SELECT seq, time, kind, role, data FROM events WHERE session = 0 AND seq > (SELECT CASE $1::bigint WHEN 0 THEN 0 ELSE last - $1 END FROM sessions WHERE id = 0) ORDER BY seq`, last)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var d struct {
			seq        uint64
			time       time.Time
			kind, role string
			data       string
		}
		if err := rows.Scan(&d.seq, &d.time, &d.kind, &d.role, &d.data); err != nil {
			return err
		}
		each(d.seq)
	}
	return rows.Err()
}

// checkTables looks for every acknowledged event: each once, at its seq if it was given
// one, and no others.
func checkTables(ctx context.Context, j bench.Job, acks [][]bench.Ack) error {
	t, err := openPool(j, true)
	if err != nil {
		return err
	}
	defer t.Close()
	rows, err := t.Query(ctx, `SELECT session, seq, left(data, 16) FROM events`)
	if err != nil {
		return err
	}
	defer rows.Close()
	missing := map[uint64]bench.Ack{}
	for _, session := range acks {
		for _, a := range session {
			missing[a.Tag] = a
		}
	}
	for rows.Next() {
		var session int32
		var seq uint64
		var data string
		if err := rows.Scan(&session, &seq, &data); err != nil {
			return err
		}
		tag, err := bench.GetTag([]byte(data))
		a, ok := missing[tag]
		if err != nil || !ok || a.Session != session || a.Seq != 0 && a.Seq != seq {
			return fmt.Errorf("the event %d of session %d was not acknowledged there, or is there twice", seq, session)
		}
		delete(missing, tag)
	}
	if len(missing) > 0 {
		return fmt.Errorf("lost: %d acknowledged events are not there", len(missing))
	}
	return rows.Err()
}

var (
	pgbenchDone = regexp.MustCompile(`number of transactions actually processed: (\d+)`)
	pgbenchRate = regexp.MustCompile(`tps = ([0-9.]+)`)
)

// runPgbench lets PostgreSQL's own program insert single rows, from as many connections
// as the others have goroutines.
func runPgbench(ctx context.Context, j bench.Job) ([]bench.Sample, error) {
	program, err := pgbenchProgram()
	if err != nil {
		return nil, err
	}
	script := filepath.Join(j.Dir, "insert.sql")
	statement := fmt.Sprintf("\\set session random(0, %d)\nINSERT INTO events (session, seq, kind, role, data) VALUES (:session, nextval('seqs'), 'message', 'user', '%s');\n", j.Sessions-1, text)
	if err := os.WriteFile(script, []byte(statement), 0o644); err != nil {
		return nil, err
	}
	u, err := url.Parse(j.Address)
	if err != nil {
		return nil, err
	}
	q := u.Query()
	// Its seconds are whole, and it counts the time in which it connects.
	seconds := max(1, int((j.Run + time.Second/2).Seconds()))
	if j.Processes*j.Goroutines > 8 {
		seconds++
	}
	cmd := exec.CommandContext(ctx, program, "-n", "-M", "prepared", "-f", script, "-c", fmt.Sprint(j.Processes*j.Goroutines), "-j", "2", "-T", fmt.Sprint(seconds),
		"-h", q.Get("host"), "-U", q.Get("user"), q.Get("database"))
	cmd.Env = append(os.Environ(), "PGOPTIONS=-c search_path="+q.Get("search_path"))
	said, err := cmd.CombinedOutput()
	done, rate := pgbenchDone.FindSubmatch(said), pgbenchRate.FindSubmatch(said)
	if err != nil || done == nil {
		return nil, fmt.Errorf("pgbench: %w\n%s", err, said)
	}
	n, err := strconv.Atoi(string(done[1]))
	if err != nil {
		return nil, err
	}
	perSecond := 1.0
	if n > 0 { // a busy machine may not finish one in a second; then it reports no rate
		if rate == nil {
			return nil, fmt.Errorf("pgbench told no rate\n%s", said)
		}
		if perSecond, err = strconv.ParseFloat(string(rate[1]), 64); err != nil {
			return nil, err
		}
	}
	t, err := openPool(j, false)
	if err != nil {
		return nil, err
	}
	defer t.Close()
	stored := 0
	if err := t.QueryRow(ctx, `SELECT count(*) FROM events`).Scan(&stored); err != nil {
		return nil, err
	}
	if stored != n {
		return nil, fmt.Errorf("pgbench inserted %d rows, %d are there", n, stored)
	}
	state := cmd.ProcessState
	return []bench.Sample{{Nanos: make([]int64, n), Elapsed: time.Duration(float64(max(n, 1)) / perSecond * 1e9),
		Cost: bench.Cost{CPU: state.UserTime() + state.SystemTime()}}}, nil
}

func pgbenchProgram() (string, error) {
	if found, err := filepath.Glob("/usr/lib/postgresql/*/bin/pgbench"); err == nil && len(found) > 0 {
		return found[len(found)-1], nil
	}
	return exec.LookPath("pgbench")
}
