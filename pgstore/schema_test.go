package pgstore_test

import (
	"errors"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"hansard"
	"hansard/internal/pgtest"
	"hansard/pgstore"
)

// TestMigrateAtOnce: if many processes find the database empty at once, one makes the tables.
func TestMigrateAtOnce(t *testing.T) {
	address := pgtest.Shared(t).Schema(t)
	const n = 8
	made := make([]pgstore.Migration, n)
	errs := make([]error, 2*n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { made[i], errs[i] = pgstore.Migrate(t.Context(), address) })
		all.Go(func() {
			s, err := pgstore.Open(t.Context(), address, nil)
			if errs[n+i] = err; err == nil {
				s.Close()
			}
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	for _, m := range made {
		if m.To < 1 || m.From != 0 && m.From != m.To {
			t.Errorf("a migration from %d to %d", m.From, m.To)
		}
	}
}

// TestNewerSchema: a schema of a newer program is refused by every call that could harm it.
func TestNewerSchema(t *testing.T) {
	server := pgtest.Shared(t)
	address := server.Schema(t)
	open(t, address).Close()
	server.Exec(t, "UPDATE "+schemaOf(address)+".hansard_schema SET version = version + 1")
	_, err := pgstore.Migrate(t.Context(), address)
	if !errors.Is(err, hansard.ErrVersion) || hansard.Hint(err) == "" {
		t.Errorf("Migrate: %v", err)
	}
	for _, o := range []*pgstore.Options{nil, {ReadOnly: true}, {MustExist: true}} {
		if _, err := pgstore.Open(t.Context(), address, o); !errors.Is(err, hansard.ErrVersion) {
			t.Errorf("Open with %+v: %v", o, err)
		}
	}
}

func TestNoSchema(t *testing.T) {
	address := pgtest.Shared(t).Schema(t)
	for _, o := range []*pgstore.Options{{ReadOnly: true}, {MustExist: true}} {
		if _, err := pgstore.Open(t.Context(), address, o); !errors.Is(err, pgstore.ErrNoSchema) {
			t.Errorf("Open with %+v: %v", o, err)
		}
	}
	for _, bad := range []string{"postgres://host:port/x", "postgres://?nonsense", "nonsense"} {
		if _, err := pgstore.Open(t.Context(), bad, nil); err == nil {
			t.Errorf("Open(%q) worked", bad)
		}
	}
}

// leastRights are the grants that docs/postgres.md says a server needs, for a role and a schema
// of the test. Events may be updated only for redactions: the log only grows.
func leastRights(t *testing.T, schema, role string) string {
	t.Helper()
	page, err := os.ReadFile("../docs/postgres.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rights, found := strings.Cut(string(page), "```sql\n")
	rights, _, ended := strings.Cut(rights, "```")
	if !found || !ended || strings.Contains(rights, "UPDATE ON hansard_events") {
		t.Fatalf("docs/postgres.md grants %q", rights)
	}
	return strings.NewReplacer("SCHEMA hansard", "SCHEMA "+schema, "search_path = hansard", "search_path = "+schema, "TO app", "TO "+role).Replace(rights)
}

// as is a URL for another role.
func as(t *testing.T, address, role string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set("user", role)
	return "postgres://?" + q.Encode()
}

// TestLeastRights: a server whose role has exactly the documented rights can do everything.
func TestLeastRights(t *testing.T) {
	server := pgtest.Shared(t)
	address := server.Schema(t)
	open(t, address).Close()
	role := "app_" + schemaOf(address)
	server.Exec(t, "CREATE ROLE "+role+" LOGIN")
	server.Exec(t, leastRights(t, schemaOf(address), role))
	s := open(t, as(t, address, role))
	defer s.Close()
	pgstore.UseEverything(t, s)
	server.Until(t, "SELECT count(*) = 0 FROM "+schemaOf(address)+".hansard_events WHERE id = 's'")
}

// TestNoRights: without rights the error says which role lacks them.
func TestNoRights(t *testing.T) {
	server := pgtest.Shared(t)
	address := server.Schema(t)
	role := "none_" + schemaOf(address)
	server.Exec(t, "CREATE ROLE "+role+" LOGIN; GRANT USAGE ON SCHEMA "+schemaOf(address)+" TO "+role)
	_, err := pgstore.Open(t.Context(), as(t, address, role), nil)
	if err == nil || !strings.Contains(hansard.Hint(err), "hansard migrate") {
		t.Errorf("Open where the tables can't be made: %v, hint %q", err, hansard.Hint(err))
	}
	owner := open(t, address)
	defer owner.Close()
	if _, err := owner.Create(t.Context(), "s", hansard.Meta{}); err != nil {
		t.Fatal(err)
	}
	server.Exec(t, "GRANT SELECT ON ALL TABLES IN SCHEMA "+schemaOf(address)+" TO "+role)
	s := open(t, as(t, address, role))
	defer s.Close()
	if _, err := s.Stat(t.Context(), "s"); err != nil {
		t.Errorf("Stat with the right to read: %v", err)
	}
	_, err = s.Append(t.Context(), "s", hansard.Batch{Events: []hansard.Event{{Data: []byte("1")}}})
	if !errors.Is(err, hansard.ErrReadOnly) || !strings.Contains(hansard.Hint(err), "grant") {
		t.Errorf("Append without the right to write: %v, hint %q", err, hansard.Hint(err))
	}
}

// TestWrongAddress: if the connection fails, the error says what to check, and never shows the
// password.
func TestWrongAddress(t *testing.T) {
	server := pgtest.Shared(t)
	address := server.Schema(t)
	with := func(name, value string) string {
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		q := u.Query()
		q.Set(name, value)
		q.Set("password", "secret")
		return "postgres://?" + q.Encode()
	}
	for _, c := range []struct{ address, hint string }{
		{with("user", "nobody_at_all"), "the user and the password"},
		{with("database", "no such one"), "createdb"},
		{with("host", t.TempDir()), "the host and the port"},
		{with("search_path", "no_such_schema"), "CREATE SCHEMA"},
	} {
		_, err := pgstore.Open(t.Context(), c.address, nil)
		if err == nil || !strings.Contains(hansard.Hint(err), c.hint) || strings.Contains(err.Error(), "secret") {
			t.Errorf("Open(%q): %v, hint %q", c.address, err, hansard.Hint(err))
		}
	}
	open(t, address).Close()
	reading, err := pgstore.Open(t.Context(), with("default_transaction_read_only", "on"), &pgstore.Options{RetryFor: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer reading.Close()
	if _, err := reading.Create(t.Context(), "s", hansard.Meta{}); !errors.Is(err, hansard.ErrBusy) || !strings.Contains(hansard.Hint(err), "standby") {
		t.Errorf("Create on a server that only reads: %v, hint %q", err, hansard.Hint(err))
	}
}

// TestWarnings: settings that break the durability promise are warned about, and a database
// default that does is not followed.
func TestWarnings(t *testing.T) {
	server := pgtest.New(t, "fsync = off", "full_page_writes = off", "synchronous_commit = off")
	address := server.Schema(t)
	for suffix, want := range map[string][]string{
		"":                          {"fsync is off", "full_page_writes is off"},
		"&synchronous_commit=off":   {"fsync is off", "full_page_writes is off", "synchronous_commit is off"},
		"&synchronous_commit=local": {"fsync is off", "full_page_writes is off"},
	} {
		s := open(t, address+suffix)
		got, err := s.Warnings(t.Context())
		s.Close()
		if err != nil || len(got) != len(want) {
			t.Errorf("with %q: %q, %v; want %q", suffix, got, err, want)
			continue
		}
		for i := range want {
			if !strings.HasPrefix(got[i], want[i]) {
				t.Errorf("with %q: %q; want %q", suffix, got[i], want[i])
			}
		}
	}
	sound := open(t, pgtest.Shared(t).Schema(t))
	defer sound.Close()
	if got, err := sound.Warnings(t.Context()); err != nil || len(got) != 0 {
		t.Errorf("a sound server: %q, %v", got, err)
	}
}

// TestWarningsOfStandbys: standby settings that lose data in a failover are warned about.
func TestWarningsOfStandbys(t *testing.T) {
	t.Parallel() // with servers of its own
	primary, _, address := pair(t)
	const waits, written = "commits do not wait for the synchronous standbys", "synchronous_commit is remote_write"
	check := func(when string, wanted map[string]string) {
		t.Helper()
		for setting, want := range wanted {
			s := open(t, address+"&synchronous_commit="+setting)
			got, err := s.Warnings(t.Context())
			s.Close()
			if err != nil || want == "" && len(got) > 0 || want != "" && (len(got) == 0 || !strings.Contains(got[len(got)-1], want)) {
				t.Errorf("%s, with %s: %q, %v; want %q", when, setting, got, err, want)
			}
		}
	}
	check("a synchronous pair", map[string]string{"on": "", "remote_apply": "", "remote_write": written, "local": waits, "off": waits})
	pgtest.NewStandby(t, primary) // of the same name: commits wait for only one of them
	primary.Until(t, "SELECT count(*) = 2 FROM pg_stat_replication WHERE state = 'streaming'")
	check("one standby more", map[string]string{"on": "1 of 2 standbys are not synchronous", "local": waits})
	for names, want := range map[string]string{"any 1": "any 1 of 2 standbys", "ANY 2": ""} {
		primary.Reload(t, "synchronous_standby_names = '"+names+" ("+pgtest.StandbyName+")'")
		primary.Until(t, "SELECT count(*) = 2 FROM pg_stat_replication WHERE sync_state = 'quorum'")
		primary.Until(t, "SELECT current_setting('synchronous_standby_names') LIKE '"+names+"%'")
		check(names, map[string]string{"on": want})
	}
	// The setting may exist before the standby does, or outlive it.
	primary.Reload(t, "synchronous_standby_names = 'elsewhere'")
	primary.Until(t, "SELECT count(*) = 2 FROM pg_stat_replication WHERE sync_state = 'async'")
	const absent = "no synchronous standby is connected"
	check("none of that name", map[string]string{"on": absent, "remote_write": absent, "local": waits})
}
