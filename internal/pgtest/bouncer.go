package pgtest

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"hansard/internal/syncbuf"
)

// Bouncer is a PgBouncer in front of a server, which assigns each transaction to any free
// one of a few connections.
type Bouncer struct {
	server *Server
	dir    string // of its socket
	stores atomic.Int64
	start  func() (*exec.Cmd, error)
	out    syncbuf.Buffer

	mu       sync.Mutex // guards below
	cmd      *exec.Cmd
	stopped  bool
	restarts int
}

// maxRestarts is how often a PgBouncer is restarted at most.
const maxRestarts = 5

// look restarts the program when it ends, as a service manager does on a real machine: the
// one in Debian 12 crashes now and then when a client leaves while its cancel request is
// under way ("bad client state").
func (b *Bouncer) look() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		cmd := b.cmd
		b.mu.Unlock()
		_ = cmd.Wait()
		b.mu.Lock()
		if b.stopped || b.restarts == maxRestarts {
			return
		}
		b.restarts++
		again, err := b.start()
		if err != nil {
			return
		}
		b.cmd = again
	}
}

// bouncerProgram finds PgBouncer, which Debian installs outside an ordinary PATH.
func bouncerProgram() (string, error) {
	for _, name := range []string{"pgbouncer", "/usr/sbin/pgbouncer"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("pgbouncer was not found")
}

// Bouncer starts a PgBouncer with this many connections to the server for each database. If
// the program is not installed the test is skipped.
func (s *Server) Bouncer(t testing.TB, connections int) *Bouncer {
	t.Helper()
	program, err := bouncerProgram()
	if err != nil {
		t.Skipf("SKIPPED: %v: install Debian's pgbouncer (scripts/packages does)", err)
	}
	dir, err := os.MkdirTemp("", "hansard-pb-") // short: it is the name of a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	b := &Bouncer{server: s, dir: dir}
	users := filepath.Join(dir, "users")
	ini := filepath.Join(dir, "pgbouncer.ini")
	text := fmt.Sprintf(`[databases]
* = host=%s port=5432
[pgbouncer]
unix_socket_dir = %s
listen_port = 6432
auth_type = trust
auth_file = %s
pool_mode = transaction
default_pool_size = %d
max_client_conn = 500
server_idle_timeout = 2
server_login_retry = 1
logfile = %s
`, s.dir, dir, users, connections, filepath.Join(dir, "log"))
	var roles strings.Builder
	for i := range maxBouncerStores {
		fmt.Fprintf(&roles, "\"%s\" \"\"\n", bouncerRole(i))
	}
	for name, content := range map[string]string{users: `"postgres" ""` + "\n" + roles.String(), ini: text} {
		if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := giveAway(dir); err != nil {
		t.Fatal(err)
	}
	b.start = func() (*exec.Cmd, error) {
		cmd := exec.Command(program, "-q", ini)
		cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &b.out, &b.out
		if err := demote(cmd, false); err != nil {
			return nil, err
		}
		return cmd, cmd.Start()
	}
	if b.cmd, err = b.start(); err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		b.look()
	}()
	t.Cleanup(func() {
		b.mu.Lock()
		b.stopped = true
		b.cmd.Process.Kill()
		b.mu.Unlock()
		<-over
		if t.Failed() {
			log, _ := os.ReadFile(filepath.Join(dir, "log"))
			t.Logf("pgbouncer, started again %d times:\n%s%s", b.restarts, b.out.String(), log[max(0, len(log)-4<<10):])
		}
	})
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, b.url("postgres"))
		if err == nil {
			conn.Close(ctx)
			return b
		}
		select {
		case <-ctx.Done():
			log, _ := os.ReadFile(filepath.Join(dir, "log"))
			t.Fatalf("pgbouncer does not answer: %v\n%s%s", err, b.out.String(), log)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// maxBouncerStores is the number of stores that a PgBouncer has roles for.
const maxBouncerStores = 1000

func bouncerRole(i int) string { return fmt.Sprint("b", i) }

func (b *Bouncer) url(role string) string {
	q := url.Values{"host": {b.dir}, "port": {"6432"}, "user": {role}, "database": {"postgres"}}
	return "postgres://?" + q.Encode()
}

// Store returns the URL of an empty store. Each has a role of its own: clients can't choose
// a schema through a PgBouncer.
func (b *Bouncer) Store(t testing.TB) string {
	t.Helper()
	role := bouncerRole(int(b.stores.Add(1)))
	b.server.Exec(t, fmt.Sprintf("CREATE ROLE %s LOGIN; CREATE SCHEMA %s AUTHORIZATION %s; ALTER ROLE %s SET search_path = %s", role, role, role, role, role))
	return b.url(role)
}
