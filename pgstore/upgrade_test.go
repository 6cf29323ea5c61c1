package pgstore

import (
	"errors"
	"slices"
	"sync"
	"testing"

	"hansard"
	"hansard/internal/pgtest"
)

// withSteps adds steps to the migrations, as releases to come will.
func withSteps(t *testing.T, steps ...string) {
	t.Helper()
	known := migrations
	migrations = append(slices.Clip(known), steps...)
	t.Cleanup(func() { migrations = known })
}

// TestUpgrade: a store of an older release is brought up to date step by step, by one
// of however many try at once; its sessions stay, and who runs goes on.
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
	// The columns are there, and only once, or this would fail.
	if _, err := running.pool.Exec(t.Context(), "UPDATE hansard_sessions SET first_new = 1, second_new = 2"); err != nil {
		t.Error(err)
	}
}

// TestUpgradeFails: a step that fails takes those before it back.
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
