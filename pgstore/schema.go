package pgstore

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"hansard"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// migrations are the steps from an empty schema to ours; the version of a schema
// is how many of them it has. Steps are added, never changed.
var migrations = loadMigrations()

func loadMigrations() (steps []string) {
	names, err := fs.Glob(migrationFiles, "migrations/*.sql") // sorted
	if err != nil {
		panic(err) // the pattern is a constant
	}
	for _, name := range names {
		text, err := migrationFiles.ReadFile(name)
		if err != nil {
			panic(err) // it is in the program
		}
		steps = append(steps, string(text))
	}
	return steps
}

// Migration tells what Migrate did.
type Migration struct {
	From int `json:"from"` // the version that was found; 0 if there were no tables
	To   int `json:"to"`   // the version now
}

// Migrate creates the tables of a database, or brings them up to date. Any number of
// processes may call it at once: one migrates, the others find it done. If the schema
// is newer than this program it returns [hansard.ErrVersion].
func Migrate(ctx context.Context, url string) (Migration, error) {
	cfg, _, err := config(url)
	if err != nil {
		return Migration{}, err
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return Migration{}, fmt.Errorf("postgres: %w", err)
	}
	defer pool.Close()
	var m Migration
	err = whenStarted(ctx, defaultRetry, func(ctx context.Context) error {
		m, err = migrate(ctx, pool)
		return err
	})
	return m, err
}

// migrationLock is the key of the advisory lock that a migration holds.
const migrationLock = 0x48414e53_41524401 // "HANSARD" and 1

func migrate(ctx context.Context, pool *pgxpool.Pool) (m Migration, err error) {
	for range 10 {
		m, err = migrateOnce(ctx, pool)
		// A process that waited for the lock may still use what it read about the tables
		// before; a new transaction sees them as they are now.
		if c := code(err); c != tableExists && c != uniqueViolation && c != noLock {
			break
		}
	}
	switch {
	case err == nil || errors.Is(err, hansard.ErrVersion):
		return m, err
	case isRight(err):
		return m, &hinted{fmt.Errorf("the tables are not there or not up to date, and this user may not change them: %w", err),
			"run hansard migrate as the owner of the tables, then try again"}
	case code(err) == noSchema:
		if closed := closedSchema(ctx, pool); closed != nil {
			return m, closed
		}
		return m, &hinted{fmt.Errorf("there is no schema to make the tables in: %w", err), "make the one that search_path names: CREATE SCHEMA"}
	case code(err) == noLock:
		return m, &hinted{fmt.Errorf("somebody has been using the tables all the time: %w", translate(err)), "try again when no dump and no long query is running"}
	}
	return m, fmt.Errorf("migrating the database: %w", translate(err))
}

func migrateOnce(ctx context.Context, pool *pgxpool.Pool) (m Migration, err error) {
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		// Making an index of a large table takes longer than a role may be given for a statement,
		// and so does waiting for another process that makes it.
		if _, err := tx.Exec(ctx, "SELECT set_config(name, '0', true) FROM unnest(ARRAY['statement_timeout', 'lock_timeout']) AS name"); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", int64(migrationLock)); err != nil {
			return err
		}
		if m.From, err = schemaVersion(ctx, tx); err != nil {
			return err
		}
		m.To = len(migrations)
		if m.From > m.To {
			return newerSchema(m.From)
		}
		if m.From == m.To {
			return nil
		}
		if m.From == 0 {
			if _, err := tx.Exec(ctx, "CREATE TABLE hansard_schema (version integer NOT NULL)"); err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, "INSERT INTO hansard_schema VALUES (0)"); err != nil {
				return err
			}
		}
		// A step that waits for a lock, held by a dump for instance, blocks everybody who
		// asks for the table after it. So it waits briefly, gives up and is retried.
		if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '3s'"); err != nil {
			return err
		}
		for i, step := range migrations[m.From:] {
			if _, err := tx.Exec(ctx, step); err != nil {
				return fmt.Errorf("step %d: %w", m.From+i+1, err)
			}
		}
		_, err := tx.Exec(ctx, "UPDATE hansard_schema SET version = $1", m.To)
		return err
	})
	return m, err
}

// schemaVersion is the version of the tables, 0 when they do not exist.
func schemaVersion(ctx context.Context, q querier) (version int, err error) {
	var there bool
	if err := q.QueryRow(ctx, "SELECT to_regclass('hansard_schema') IS NOT NULL").Scan(&there); err != nil {
		return 0, fmt.Errorf("postgres: %w", translate(err))
	}
	if !there {
		return 0, nil
	}
	if err := q.QueryRow(ctx, "SELECT max(version) FROM hansard_schema").Scan(&version); err != nil {
		return 0, fmt.Errorf("postgres: reading the version of the tables: %w", translate(err))
	}
	return version, nil
}

// closedSchema returns an error if the tables may only seem to be missing because this user
// has no USAGE right on a schema of the search path.
func closedSchema(ctx context.Context, q querier) error {
	var schema, user string
	err := q.QueryRow(ctx, `SELECT n.nspname, current_user FROM pg_namespace n, unnest(string_to_array(current_setting('search_path'), ',')) AS p(name)
		WHERE n.nspname = trim(both ' "' from p.name) AND NOT has_schema_privilege(n.oid, 'USAGE') LIMIT 1`).Scan(&schema, &user)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("postgres: %w", translate(err))
	}
	return &hinted{fmt.Errorf("the user %s may not use the schema %s", user, schema),
		fmt.Sprintf("grant it, as its owner: GRANT USAGE ON SCHEMA %s TO %s; and grant the rights on the tables that docs/postgres.md lists",
			pgx.Identifier{schema}.Sanitize(), pgx.Identifier{user}.Sanitize())}
}

func newerSchema(version int) error {
	return fmt.Errorf("%w: the database's tables are at version %d, this program knows up to %d", hansard.ErrVersion, version, len(migrations))
}
