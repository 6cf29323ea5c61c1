package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"hansard/internal/bench"
)

// SQLite, with a write-ahead log that is synced at every commit, and one goroutine per
// process that commits for all: as fast as it gets without losing data.
func sqlitePeers() []peer {
	all := []peer{sqlitePeer("sqlite-modernc", "sqlite", "_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(60000)&_txlock=immediate")}
	for _, driver := range sql.Drivers() {
		if driver == "sqlite3" { // compiled in with cgo
			all = append(all, sqlitePeer("sqlite-mattn", driver, "_journal_mode=WAL&_synchronous=FULL&_busy_timeout=60000&_txlock=immediate"))
		}
	}
	return all
}

type sqliteTarget struct {
	db     *sql.DB
	insert *sql.Stmt
	*combiner
}

func sqlitePeer(name, driver, options string) peer {
	open := func(j bench.Job) (*sqliteTarget, error) { return openSQLite(j, driver, options) }
	return peer{shared: true,
		read: func(j bench.Job) (reader, error) { return open(j) },
		Candidate: bench.Candidate{Name: name,
			Setup: func(_ context.Context, j bench.Job) error { return setupSQLite(j, driver, options) },
			Open:  func(j bench.Job) (bench.Target, error) { return open(j) },
			Check: func(ctx context.Context, j bench.Job, acks [][]bench.Ack) error {
				t, err := open(j)
				if err != nil {
					return err
				}
				defer t.Close()
				return t.check(ctx, acks)
			},
		}}
}

func dialSQLite(j bench.Job, driver, options string) (*sql.DB, error) {
	return sql.Open(driver, "file:"+filepath.Join(j.Dir, "events.db")+"?"+options)
}

func setupSQLite(j bench.Job, driver, options string) error {
	db, err := dialSQLite(j, driver, options)
	if err != nil {
		return err
	}
	_, err = db.Exec(`CREATE TABLE events (session INTEGER, seq INTEGER, time TEXT, kind TEXT, role TEXT, data TEXT, PRIMARY KEY (session, seq)) WITHOUT ROWID`)
	return errors.Join(err, db.Close())
}

func openSQLite(j bench.Job, driver, options string) (*sqliteTarget, error) {
	db, err := dialSQLite(j, driver, options)
	if err != nil {
		return nil, err
	}
	db.SetMaxIdleConns(4)
	t := &sqliteTarget{db: db}
	// Other processes write too: only the database knows the next seq.
	t.insert, err = db.Prepare(`INSERT INTO events SELECT ?1, coalesce(max(seq), 0) + 1, strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), 'message', 'user', ?2 FROM events WHERE session = ?1 RETURNING seq`)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	t.combiner = newCombiner(t.commit)
	return t, nil
}

func (t *sqliteTarget) commit(group []*request) error {
	tx, err := t.db.Begin()
	if err != nil {
		return err
	}
	insert := tx.Stmt(t.insert)
	for _, r := range group {
		if err := insert.QueryRow(r.session, dataWithTag(r.tag)).Scan(&r.seq); err != nil {
			return errors.Join(err, tx.Rollback())
		}
	}
	return tx.Commit()
}

func (t *sqliteTarget) Append(_ context.Context, _, session int, tag uint64) (uint64, error) {
	return t.append(session, tag)
}

func (t *sqliteTarget) Close() error {
	t.close()
	return errors.Join(t.insert.Close(), t.db.Close())
}

func (t *sqliteTarget) events(ctx context.Context, last int, each func(uint64)) error {
	const all = `SELECT seq, time, kind, role, data FROM events WHERE session = 0 AND seq > (SELECT iif(?1 = 0, 0, max(seq) - ?1) FROM events WHERE session = 0) ORDER BY seq`
	return eachRow(ctx, t.db, all, each, last)
}

// eachRow decodes the rows of a query into events.
func eachRow(ctx context.Context, db *sql.DB, query string, each func(uint64), args ...any) error {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var d struct {
			seq              uint64
			time, kind, role string
			data             []byte
		}
		if err := rows.Scan(&d.seq, &d.time, &d.kind, &d.role, &d.data); err != nil {
			return err
		}
		each(d.seq)
	}
	return rows.Err()
}

func (t *sqliteTarget) check(ctx context.Context, acks [][]bench.Ack) error {
	for i := range acks {
		rows, err := t.db.QueryContext(ctx, `SELECT seq, substr(data, 1, 16) FROM events WHERE session = ? ORDER BY seq`, i)
		if err != nil {
			return err
		}
		err = checkSeqs(acks[i], func(yield func(seq, tag uint64) error) error {
			for rows.Next() {
				var seq uint64
				var data string
				if err := rows.Scan(&seq, &data); err != nil {
					return err
				}
				tag, err := bench.GetTag([]byte(data))
				if err != nil {
					return err
				}
				if err := yield(seq, tag); err != nil {
					return err
				}
			}
			return rows.Err()
		})
		if err = errors.Join(err, rows.Close()); err != nil {
			return fmt.Errorf("session %d: %w", i, err)
		}
	}
	return nil
}

// isSQLite reports whether a peer is one of the two.
func isSQLite(name string) bool { return strings.HasPrefix(name, "sqlite-") }
