package pgstore

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"hansard"
	"hansard/internal/pgtest"
)

// withSteps adds steps to the migrations, as future releases will.
func withSteps(t *testing.T, steps ...string) {
	t.Helper()
	known := migrations
	migrations = append(slices.Clip(known), steps...)
	t.Cleanup(func() { migrations = known })
}

// TestUpgrade: a store of an older release is upgraded step by step, by one of however many
// processes try at once; its sessions stay, and running processes go on.
func TestUpgrade(t *testing.T) {
	address := pgtest.Shared(t).Schema(t)
	running, err := Open(t.Context(), address, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer running.Close()
	one := hansard.Batch{Events: []hansard.Event{{Data: []byte("1")}}, Create: true}
	if _, err := running.Append(t.Context(), "s", one); err != nil {
		t.Fatal(err)
	}
	old := len(migrations)
	withSteps(t, "ALTER TABLE hansard_sessions ADD COLUMN first_new integer", "ALTER TABLE hansard_sessions ADD COLUMN second_new integer")
	if _, err := Open(t.Context(), address, &Options{ReadOnly: true}); !errors.Is(err, hansard.ErrUnsupported) {
		t.Errorf("reading tables that are too old: %v", err)
	}
	const n = 6
	made, errs := make([]Migration, n), make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { made[i], errs[i] = Migrate(t.Context(), address) })
	}
	all.Wait()
	did := 0
	for i, m := range made {
		if errs[i] != nil || m.To != old+2 || m.From != old && m.From != m.To {
			t.Errorf("a migration: %+v, %v", m, errs[i])
		}
		if m.From == old {
			did++
		}
	}
	if did != 1 {
		t.Errorf("%d of them did it", did)
	}
	if _, err := running.Append(t.Context(), "s", one); err != nil {
		t.Errorf("a store that runs while others migrate: %v", err)
	}
	soundLog(t, running, 2)
	// The columns exist, and were added only once, or this would fail.
	if _, err := running.pool.Exec(t.Context(), "UPDATE hansard_sessions SET first_new = 1, second_new = 2"); err != nil {
		t.Error(err)
	}
}

// TestUpgradeFails: a failing step undoes those before it.
func TestUpgradeFails(t *testing.T) {
	address := pgtest.Shared(t).Schema(t)
	s, err := Open(t.Context(), address, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	old := len(migrations)
	withSteps(t, "ALTER TABLE hansard_sessions ADD COLUMN first_new integer", "ALTER TABLE no_such_table ADD COLUMN x integer")
	if m, err := Migrate(t.Context(), address); err == nil {
		t.Errorf("a step that can't be done was: %+v", m)
	}
	if version, err := schemaVersion(t.Context(), s.pool); err != nil || version != old {
		t.Errorf("version %d, %v; want %d", version, err, old)
	}
	if _, err := s.pool.Exec(t.Context(), "ALTER TABLE hansard_sessions ADD COLUMN first_new integer"); err != nil {
		t.Errorf("the step before is still there: %v", err)
	}
}

// atVersion makes tables as an older release did, and fills them as it did: sessions whose rows
// lack everything that came later. Not in parallel with other tests, which use the same
// migrations.
func atVersion(t *testing.T, server *pgtest.Server, version int) (address string) {
	t.Helper()
	address = server.Schema(t)
	known := migrations
	migrations = migrations[:version]
	m, err := Migrate(t.Context(), address)
	migrations = known
	if err != nil || m.To != version {
		t.Fatalf("%+v, %v", m, err)
	}
	conn, err := pgx.Connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	for _, sql := range []string{
		`INSERT INTO hansard_heads (id, last, bytes, created, updated, mark) SELECT 's' || g, 1, 1, now(), now() - make_interval(secs => g), '' FROM generate_series(1, 5) g`,
		`INSERT INTO hansard_sessions SELECT id, '', '{"team":"red"}', '', '{"labels":{"team":"red"}}' FROM hansard_heads`,
		`INSERT INTO hansard_listing SELECT h.id, l, h.updated - interval '50 milliseconds' FROM hansard_heads h, unnest(ARRAY['', 'team=red']) l`,
		`INSERT INTO hansard_events (id, seq, "time", inbox, kind, role, author, turn, data) SELECT id, 1, updated, false, 'message', '', '', '', '1' FROM hansard_heads`,
	} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	return address
}

// TestUpgradeFromFirst: the tables of the first release are upgraded with their sessions, which
// are sound before and after they are appended to, and in order.
func TestUpgradeFromFirst(t *testing.T) {
	address := atVersion(t, pgtest.Shared(t), 1)
	s, err := Open(t.Context(), address, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	check := func(want string) {
		t.Helper()
		for f, err := range s.Verify(t.Context(), "") {
			if err != nil || f.Level != hansard.LevelOK {
				t.Errorf("%+v, %v", f, err)
			}
		}
		if got := fmt.Sprint(listed(t, s, "red")); got != want {
			t.Errorf("the list is %s, want %s", got, want)
		}
	}
	check("[s1 s2 s3 s4 s5]")
	for _, id := range []hansard.SessionID{"s3", "s5"} {
		if _, err := s.Append(t.Context(), id, hansard.Batch{Events: []hansard.Event{{Data: []byte("1")}}}); err != nil {
			t.Fatal(err)
		}
	}
	check("[s5 s3 s1 s2 s4]")
}

// TestLogicalReplication: where every table is published, which requires a key for each table
// that is updated or deleted from, a store can be made, upgraded and used.
func TestLogicalReplication(t *testing.T) {
	server := pgtest.New(t, "wal_level = logical")
	for version := 0; version < len(migrations); version++ {
		address := server.Schema(t)
		if version > 0 {
			address = atVersion(t, server, version)
		}
		server.Exec(t, "CREATE PUBLICATION everything FOR ALL TABLES")
		s, err := Open(t.Context(), address, nil)
		if err != nil {
			t.Fatalf("from version %d: %v", version, err)
		}
		UseEverything(t, s)
		s.Close()
		server.Exec(t, "DROP PUBLICATION everything")
	}
}

// TestUpgradeBesideDump: migrating while another client reads the tables for long, as a dump
// does, does not block writers for that long.
func TestUpgradeBesideDump(t *testing.T) {
	s := newBlocking(t, "")
	withSteps(t, "ALTER TABLE hansard_heads ADD COLUMN first_new integer")
	s.exec("BEGIN")
	s.exec("LOCK TABLE hansard_heads IN ACCESS SHARE MODE")
	migrated := later(func() (Migration, error) { return Migrate(t.Context(), s.server.URL(schemaIn(t, s))) })
	s.server.Until(t, "SELECT count(*) > 0 FROM pg_stat_activity WHERE query LIKE 'ALTER TABLE hansard_heads ADD COLUMN first_new%' AND wait_event_type = 'Lock'")
	if _, err := s.Append(within(t), "s", hansard.Batch{Events: []hansard.Event{{Data: []byte("1")}}}); err != nil {
		t.Errorf("an append beside the two: %v", err)
	}
	s.exec("COMMIT")
	if got := <-migrated; got.err != nil {
		t.Errorf("%+v, %v", got.value, got.err)
	}
}

// TestUpgradeLimited: a step may take longer than the role's other statements are given.
func TestUpgradeLimited(t *testing.T) {
	server := pgtest.Shared(t)
	address := server.Schema(t)
	s, err := Open(t.Context(), address, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	withSteps(t, "SELECT pg_sleep(2)")
	if m, err := Migrate(t.Context(), address+"&statement_timeout=1s"); err != nil || m.From == m.To {
		t.Errorf("%+v, %v", m, err)
	}
}
