// Package pgtest runs PostgreSQL servers for tests: real ones, in temporary
// directories, reached through Unix sockets, that can be killed as a power cut
// kills them and started again.
//
// A server is the first process of a PID namespace of its own, so that one kill
// reaches the postmaster and every backend in the same moment, and so that none
// outlives the test. It runs as the user postgres when the test runs as root, which
// PostgreSQL refuses to do.
package pgtest

import (
	"bytes"
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Server is one PostgreSQL server.
type Server struct {
	dir string // with the data, the socket and the log
	bin string // where its programs are

	mu   sync.Mutex // guards below
	cmd  *exec.Cmd  // nil while it is down
	gone chan struct{}
}

// patience is how long a server may take to come up: replaying the journal after
// a kill on a busy machine is slow.
const patience = 60 * time.Second

// New makes a server with its settings ("name = value" each) and starts it. It is removed
// when the test ends.
func New(t testing.TB, settings ...string) *Server {
	t.Helper()
	s, err := create("", settings)
	if err != nil {
		missing(t, err)
	}
	t.Cleanup(s.Remove)
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	return s
}

// missing ends a test for which there is no server. On Linux, where the tests have to be
// complete, that is a failure unless the environment allows it.
func missing(t testing.TB, err error) {
	t.Helper()
	if runtime.GOOS == "linux" && os.Getenv("HANSARD_MAY_SKIP_POSTGRES") == "" {
		t.Fatalf("no PostgreSQL: %v\ninstall Debian's postgresql (scripts/packages does), or set HANSARD_MAY_SKIP_POSTGRES=1 to go without", err)
	}
	t.Skipf("SKIPPED: no PostgreSQL: %v", err)
}

// create makes a server that is not started, in a directory in parent, or in the
// system's temporary one.
func create(parent string, settings []string) (*Server, error) {
	s, err := directory(parent)
	if err != nil {
		return nil, err
	}
	out, err := s.run("initdb", "--pgdata="+s.data(), "--auth=trust", "--no-sync", "--username=postgres", "--encoding=UTF8", "--locale=C")
	if err != nil {
		s.Remove()
		return nil, fmt.Errorf("initdb: %w\n%s", err, out)
	}
	return s, s.Configure(append([]string{
		"listen_addresses = ''",
		"unix_socket_directories = '" + s.dir + "'",
		"max_connections = 300",
		"shared_buffers = 64MB",
		"max_wal_senders = 4",
		"log_min_messages = warning",
	}, settings...)...)
}

// directory finds the programs and makes a directory that belongs to the user they run as.
func directory(parent string) (*Server, error) {
	bin, err := programs()
	if err != nil {
		return nil, err
	}
	// Not t.TempDir: users other than root can't enter that.
	dir, err := os.MkdirTemp(parent, "hansard-pg-")
	if err != nil {
		return nil, err
	}
	s := &Server{dir: dir, bin: bin}
	if err := giveAway(dir); err != nil {
		s.Remove()
		return nil, err
	}
	return s, nil
}

// programs finds where the newest installed PostgreSQL keeps its programs: Debian
// leaves them out of PATH.
func programs() (string, error) {
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err == nil && len(found) > 0 {
		return filepath.Dir(found[len(found)-1]), nil
	}
	if path, err := exec.LookPath("initdb"); err == nil {
		return filepath.Dir(path), nil
	}
	return "", fmt.Errorf("initdb was not found")
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// run runs one of PostgreSQL's programs to its end.
func (s *Server) run(program string, args ...string) ([]byte, error) {
	cmd := exec.Command(filepath.Join(s.bin, program), args...)
	cmd.Dir = s.dir
	if err := demote(cmd, false); err != nil {
		return nil, err
	}
	return cmd.CombinedOutput()
}

// Configure adds settings. They take effect with the next start, or Reload.
func (s *Server) Configure(settings ...string) error {
	f, err := os.OpenFile(filepath.Join(s.data(), "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString("\n" + strings.Join(settings, "\n") + "\n")
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	return err
}

// Start starts a server that is down and waits until it answers.
func (s *Server) Start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd != nil {
		return nil
	}
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(filepath.Join(s.bin, "postgres"), "-D", s.data())
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.dir, log, log
	if err := demote(cmd, true); err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	s.cmd, s.gone = cmd, make(chan struct{})
	go func(gone chan struct{}) {
		defer close(gone)
		cmd.Wait() // the test decides how it ends
	}(s.gone)
	return s.answersLocked()
}

// answersLocked waits until the server accepts connections.
func (s *Server) answersLocked() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, s.URL(""))
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-s.gone:
			return fmt.Errorf("postgres ended at once: %w\n%s", err, s.Log())
		case <-ctx.Done():
			return fmt.Errorf("postgres does not answer: %w\n%s", err, s.Log())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Kill ends the server and all its backends at once, and loses what is in their memory, as
// a power cut does.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil {
		return
	}
	s.cmd.Process.Kill() // it may be gone already
	<-s.gone
	s.cmd = nil
}

// Stop shuts the server down in an orderly way, cutting its connections.
func (s *Server) Stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil {
		return nil
	}
	if err := s.cmd.Process.Signal(os.Interrupt); err != nil {
		return err
	}
	select {
	case <-s.gone:
		s.cmd = nil
		return nil
	case <-time.After(patience):
		return fmt.Errorf("postgres does not stop\n%s", s.Log())
	}
}

// Remove kills the server and removes all its files.
func (s *Server) Remove() {
	s.Kill()
	os.RemoveAll(s.dir)
}

// Log is the end of the server's log.
func (s *Server) Log() []byte {
	text, err := os.ReadFile(filepath.Join(s.dir, "log"))
	if err != nil {
		return []byte(err.Error())
	}
	const enough = 4 << 10
	return bytes.TrimSpace(text[max(0, len(text)-enough):])
}

// URL is the URL to connect with. A schema that is not empty is the one in which tables
// are found and created.
func (s *Server) URL(schema string) string {
	q := url.Values{"host": {s.dir}, "user": {"postgres"}, "database": {"postgres"}}
	if schema != "" {
		q.Set("search_path", schema)
	}
	return "postgres://?" + q.Encode()
}

var schemas atomic.Int64

// Schema makes an empty schema and returns the URL of a store in it.
func (s *Server) Schema(t testing.TB) string {
	t.Helper()
	name := fmt.Sprintf("s%d_%d", os.Getpid(), schemas.Add(1))
	s.Exec(t, "CREATE SCHEMA "+name)
	return s.URL(name)
}

// Exec runs a statement as the owner of everything.
func (s *Server) Exec(t testing.TB, sql string, args ...any) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.URL(""))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// Activity says what the server's processes are doing and waiting for, to be printed when
// a test times out waiting for them.
func (s *Server) Activity() string {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.URL(""))
	if err != nil {
		return err.Error()
	}
	defer conn.Close(ctx)
	var text string
	err = conn.QueryRow(ctx, `SELECT coalesce(string_agg(format('%s %s %s/%s since %s, transaction since %s, blocked by %s: %s', pid, state, wait_event_type, wait_event,
		clock_timestamp() - state_change, clock_timestamp() - xact_start, pg_blocking_pids(pid), left(query, 60)), E'\n' ORDER BY xact_start), 'nothing')
		FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND xact_start IS NOT NULL`).Scan(&text)
	if err != nil {
		return err.Error()
	}
	return text
}

// Shared is the server that the tests of one binary share. [Main] removes it.
func Shared(t testing.TB) *Server {
	t.Helper()
	shared.once.Do(func() {
		if shared.server, shared.err = create("", nil); shared.err == nil {
			shared.err = shared.server.Start()
		}
	})
	if shared.err != nil {
		missing(t, shared.err)
	}
	return shared.server
}

var shared struct {
	once   sync.Once
	server *Server
	err    error
}

// Main runs the tests and removes the shared server.
func Main(m *testing.M) int {
	defer func() {
		if shared.server != nil {
			shared.server.Remove()
		}
	}()
	return m.Run()
}

// Pgbench runs pgbench with a script of its own language, and returns the transactions per second.
func (s *Server) Pgbench(t testing.TB, schema, script string, clients, transactions int) float64 {
	t.Helper()
	name := filepath.Join(s.dir, "script.sql")
	if err := os.WriteFile(name, []byte(script), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := s.run("pgbench", "--no-vacuum", "--protocol=prepared", "--file="+name, fmt.Sprint("--client=", clients), fmt.Sprint("--jobs=", min(clients, 2)),
		fmt.Sprint("--transactions=", max(1, transactions/clients)), "host="+s.dir+" user=postgres dbname=postgres options=--search_path="+schema)
	if err != nil {
		t.Fatalf("pgbench: %v\n%s", err, out)
	}
	_, rest, _ := strings.Cut(string(out), "tps = ")
	var tps float64
	if _, err := fmt.Sscan(rest, &tps); err != nil {
		t.Fatalf("pgbench: %v\n%s", err, out)
	}
	return tps
}
