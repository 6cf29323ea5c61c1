package pgtest

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// StandbyName is what a standby calls itself, for synchronous_standby_names.
const StandbyName = "standby"

// NewStandby makes a copy of a running server that follows it, and waits until it
// does. Whether commits wait for it is a setting of the primary.
func NewStandby(t testing.TB, primary *Server) *Server {
	t.Helper()
	s, err := directory("")
	if err != nil {
		missing(t, err)
	}
	t.Cleanup(s.Remove)
	out, err := s.run("pg_basebackup", "--pgdata="+s.data(), "--host="+primary.dir, "--username=postgres", "--checkpoint=fast", "--no-sync", "--wal-method=stream")
	if err != nil {
		t.Fatalf("pg_basebackup: %v\n%s", err, out)
	}
	conninfo := fmt.Sprintf("host=%s user=postgres application_name=%s", primary.dir, StandbyName)
	err = s.Configure("unix_socket_directories = '"+s.dir+"'", "primary_conninfo = '"+conninfo+"'", "synchronous_standby_names = ''", "hot_standby = on")
	if err == nil {
		err = os.WriteFile(filepath.Join(s.data(), "standby.signal"), nil, 0o600)
	}
	if err == nil {
		err = giveAway(filepath.Join(s.data(), "standby.signal"))
	}
	if err == nil {
		err = s.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	primary.Until(t, "SELECT count(*) > 0 FROM pg_stat_replication WHERE state = 'streaming'")
	return s
}

// Until waits until a query returns true.
func (s *Server) Until(t testing.TB, question string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		var yes bool
		conn, err := pgx.Connect(ctx, s.URL(""))
		if err == nil {
			err = conn.QueryRow(ctx, question).Scan(&yes)
			conn.Close(ctx)
		}
		if err == nil && yes {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s is not so after %v (%v)\n%s", question, patience, err, s.Log())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Reload makes the server read its settings again.
func (s *Server) Reload(t testing.TB, settings ...string) {
	t.Helper()
	if err := s.Configure(settings...); err != nil {
		t.Fatal(err)
	}
	s.Exec(t, "SELECT pg_reload_conf()")
}

// Promote makes a standby a primary.
func (s *Server) Promote(t testing.TB) {
	t.Helper()
	// Without waiting in the query: what a standby replays may cancel the queries on it.
	s.Exec(t, "SELECT pg_promote(false)")
	s.Until(t, "SELECT NOT pg_is_in_recovery()")
}

// Either is a URL of several servers: clients choose the one that accepts writes. The schema
// is that of a URL that Schema returned.
func Either(schemaURL string, servers ...*Server) string {
	u, err := url.Parse(schemaURL)
	if err != nil {
		panic(err) // it was made here
	}
	var dirs []string
	for _, s := range servers {
		dirs = append(dirs, s.dir)
	}
	q := u.Query()
	q.Set("host", strings.Join(dirs, ","))
	q.Set("target_session_attrs", "read-write")
	return "postgres://?" + q.Encode()
}
