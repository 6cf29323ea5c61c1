package pgstore

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"hansard"
	"hansard/internal/pgtest"
)

// contender is one way to store events, measured side by side with others.
type contender struct {
	name    string
	run     func(n int) // stores n events
	perTurn int         // events in one turn of the comparison

	rates    []float64 // events a second, of each turn
	n        int
	cpu      time.Duration // of the database
	commits  int64         // writing transactions
	calls    int64         // statements
	walBytes int64
}

// BenchmarkAppends compares appends with what PostgreSQL does without a store, in one run and
// taking turns, so that a busy machine affects all of them alike:
//
//	naive      BEGIN, lock the session's row, INSERT, UPDATE of the row, COMMIT: one writer
//	insert     pgbench with one-row inserts, 1 and 64 connections
//	lone       a store, one writer to one session
//	many       a store, 64 goroutines on 1,000 sessions
//	stores     8 stores, as 8 processes have them, 8 goroutines each, on 100 sessions, but all in this process
//
// HANSARD_BENCH_TURNS is the number of turns each has; the default is 5.
func BenchmarkAppends(b *testing.B) {
	server := pgtest.New(b, "shared_preload_libraries = 'pg_stat_statements'", "pg_stat_statements.track_utility = on", "max_wal_size = 4GB")
	server.Exec(b, "CREATE EXTENSION pg_stat_statements")
	bench := &appendBench{B: b, server: server, data: fmt.Appendf(nil, `{"text":"%01000d"}`, 0)}
	contenders := []*contender{
		bench.naive(),
		bench.insert("insert/1", 1, 1500),
		bench.lone(),
		bench.insert("insert/64", 64, 15000),
		bench.store("many", 1, 64, 1000),
		bench.store("stores", 8, 8, 100),
	}
	turns, _ := strconv.Atoi(os.Getenv("HANSARD_BENCH_TURNS"))
	if turns == 0 {
		turns = 5
	}
	for turn := range turns + 1 {
		for _, c := range contenders {
			bench.measure(c, turn > 0) // the first is a warm-up
		}
	}
	rate := map[string]float64{}
	for _, c := range contenders {
		rate[c.name] = median(c.rates)
		b.Logf("%-10s %8.0f events/s, %4.0f us of the database's CPU, %5.3f commits, %5.2f statements, %5.0f bytes of WAL an event", c.name, median(c.rates),
			float64(c.cpu.Microseconds())/float64(c.n), float64(c.commits)/float64(c.n), float64(c.calls)/float64(c.n), float64(c.walBytes)/float64(c.n))
	}
	for _, r := range [][2]string{{"lone", "naive"}, {"lone", "insert/1"}, {"many", "insert/64"}, {"stores", "insert/64"}} {
		b.Logf("%s / %s: %.2f", r[0], r[1], rate[r[0]]/rate[r[1]])
		b.ReportMetric(rate[r[0]]/rate[r[1]], r[0]+":"+r[1])
	}
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}

type appendBench struct {
	*testing.B
	server *pgtest.Server
	data   []byte
}

func (b *appendBench) must(err error) {
	if err != nil {
		b.Helper()
		b.Fatal(err)
	}
}

// measure gives a contender one turn.
func (b *appendBench) measure(c *contender, counts bool) {
	b.Helper()
	conn, err := pgx.Connect(b.Context(), b.server.URL(""))
	b.must(err)
	defer conn.Close(b.Context())
	look := func() (cpu time.Duration, commits, calls, wal int64) {
		cpu, err := b.server.CPU()
		b.must(err)
		b.must(conn.QueryRow(b.Context(), `SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint, (SELECT sum(calls)::bigint FROM pg_stat_statements),
			(pg_current_wal_insert_lsn() - '0/0')::bigint`).Scan(&commits, &calls, &wal))
		return cpu, commits, calls, wal
	}
	cpu, commits, calls, wal := look()
	began := time.Now()
	c.run(c.perTurn)
	took := time.Since(began)
	cpu2, commits2, calls2, wal2 := look()
	if !counts {
		c.rates = nil
		return
	}
	if !strings.HasPrefix(c.name, "insert") { // pgbench excludes its start-up from its measurement
		c.rates = append(c.rates, float64(c.perTurn)/took.Seconds())
	}
	c.n += c.perTurn
	c.cpu += cpu2 - cpu
	c.commits += commits2 - commits
	c.calls += calls2 - calls
	c.walBytes += wal2 - wal
}

// naive is what a program without a store does: a transaction, one statement at a time.
func (b *appendBench) naive() *contender {
	url := b.server.Schema(b.B)
	conn, err := pgx.Connect(b.Context(), url)
	b.must(err)
	b.Cleanup(func() { conn.Close(context.Background()) })
	_, err = conn.Exec(b.Context(), `CREATE TABLE heads (id text PRIMARY KEY, last bigint NOT NULL);
		CREATE TABLE events (id text, seq bigint, "time" timestamptz NOT NULL, data text NOT NULL, PRIMARY KEY (id, seq)); INSERT INTO heads VALUES ('s', 0)`)
	b.must(err)
	return &contender{name: "naive", perTurn: 1500, run: func(n int) {
		for range n {
			tx, err := conn.Begin(b.Context())
			b.must(err)
			var last int64
			b.must(tx.QueryRow(b.Context(), "SELECT last FROM heads WHERE id = $1 FOR UPDATE", "s").Scan(&last))
			_, err = tx.Exec(b.Context(), `INSERT INTO events VALUES ($1, $2, now(), $3)`, "s", last+1, string(b.data))
			b.must(err)
			_, err = tx.Exec(b.Context(), "UPDATE heads SET last = $2 WHERE id = $1", "s", last+1)
			b.must(err)
			b.must(tx.Commit(b.Context()))
		}
	}}
}

// insert is pgbench.
func (b *appendBench) insert(name string, clients, n int) *contender {
	url := b.server.Schema(b.B)
	conn, err := pgx.Connect(b.Context(), url)
	b.must(err)
	defer conn.Close(b.Context())
	_, err = conn.Exec(b.Context(), `CREATE TABLE events (id text, seq bigserial, "time" timestamptz NOT NULL, data text NOT NULL, PRIMARY KEY (id, seq))`)
	b.must(err)
	var schema string
	b.must(conn.QueryRow(b.Context(), "SELECT current_schema()").Scan(&schema))
	script := "\\set id random(1, 1000)\nINSERT INTO events (id, \"time\", data) VALUES (:id, now(), '" + string(b.data) + "');\n"
	c := &contender{name: name, perTurn: n}
	c.run = func(n int) { c.rates = append(c.rates, b.server.Pgbench(b.B, schema, script, clients, n)) }
	return c
}

func (b *appendBench) open(url string) *Store {
	s, err := Open(b.Context(), url, nil)
	b.must(err)
	b.Cleanup(func() { s.Close() })
	return s
}

func (b *appendBench) append(s *Store, id hansard.SessionID) {
	if _, err := s.Append(context.Background(), id, hansard.Batch{Events: []hansard.Event{{Data: b.data}}}); err != nil {
		b.Error(err)
	}
}

// lone is one writer.
func (b *appendBench) lone() *contender {
	s := b.open(b.server.Schema(b.B))
	_, err := s.Create(b.Context(), "s", hansard.Meta{})
	b.must(err)
	return &contender{name: "lone", perTurn: 1500, run: func(n int) {
		for range n {
			b.append(s, "s")
		}
	}}
}

// store is many writers to many sessions; each writes to one session after another.
func (b *appendBench) store(name string, stores, writers, sessions int) *contender {
	url := b.server.Schema(b.B)
	var all []*Store
	for range stores {
		all = append(all, b.open(url))
	}
	id := func(i int) hansard.SessionID { return hansard.SessionID(fmt.Sprintf("session-%04d", i%sessions)) }
	for i := range sessions {
		_, err := all[0].Create(b.Context(), id(i), hansard.Meta{})
		b.must(err)
	}
	return &contender{name: name, perTurn: 15000, run: func(n int) {
		var running sync.WaitGroup
		each := n / stores / writers
		for i, s := range all {
			for w := range writers {
				running.Go(func() {
					at := (i*writers + w) * 7919
					for range each {
						at += 101
						b.append(s, id(at))
					}
				})
			}
		}
		running.Wait()
	}}
}
