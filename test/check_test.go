//go:build unix

package test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// through runs the command on the store of a server.
func through(t *testing.T, s *server, args ...string) result {
	t.Helper()
	cmd := command("http://"+s.address, args...)
	cmd.Env = append(cmd.Env, "HANSARD_TOKEN="+serverToken)
	return run(t, cmd)
}

// TestVerifyThroughServer: verify and repair say and do the same through a server as on the
// directory, while it is served.
func TestVerifyThroughServer(t *testing.T) {
	store := newStore(t)
	s := startServer(t, store)
	for _, args := range [][]string{{"new", "good"}, {"append", "good", "one"}, {"new", "bad"}, {"append", "bad", "first"}, {"append", "bad", "second"}} {
		if r := through(t, s, args...); r.code != 0 {
			t.Fatalf("%v: exit code %d: %s", args, r.code, r.stderr)
		}
	}
	path := filepath.Join(store, "sessions", "bad.jsonl")
	log, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, []byte(strings.Replace(string(log), "second", "SECOND", 1)), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	// In this order: a process that had the log open before trusts its last line until somebody
	// reads it.
	for _, c := range []struct {
		args string
		want int
	}{{"verify", 6}, {"verify --json", 6}, {"verify bad", 6}, {"verify good", 0}, {"verify nowhere", 3}, {"append bad more", 6}} {
		args, want := c.args, c.want
		there, here := through(t, s, strings.Fields(args)...), run(t, command(store, strings.Fields(args)...))
		if there.code != want || here.code != want || there.stdout != here.stdout || there.stdout == "" && strings.HasPrefix(args, "verify ") && want != 3 {
			t.Errorf("%s: exit codes %d and %d, want %d; through the server\n%s\nand on the directory\n%s", args, there.code, here.code, want, there.stdout, here.stdout)
		}
		if strings.Contains(there.stdout+there.stderr, store) {
			t.Errorf("%s: the path of the store is told: %s%s", args, there.stdout, there.stderr)
		}
	}
	if r := through(t, s, "repair", "bad"); r.code != 0 || !strings.Contains(r.stdout, "bad has 2 events again; the old log is kept in evidence/") {
		t.Errorf("repair: exit code %d: %s%s", r.code, r.stdout, r.stderr)
	}
	if r := through(t, s, "append", "bad", "third"); r.code != 0 {
		t.Errorf("append: exit code %d: %s", r.code, r.stderr)
	}
	if r := through(t, s, "verify"); r.code != 0 || !strings.HasPrefix(r.stdout, "2 sessions sound, 4 events") {
		t.Errorf("in the end: exit code %d: %s%s", r.code, r.stdout, r.stderr)
	}
}

// TestVerifyServerKilled: if the server dies in the middle of a report, verify does not report
// success.
func TestVerifyServerKilled(t *testing.T) {
	store := newStore(t)
	s := startServer(t, store)
	// Files that are not sessions give a line each: far more than fits into the buffers between
	// the two processes, so that the report can't be complete before it is read.
	name := strings.Repeat("x", 200)
	const notes = 40_000
	for i := range notes {
		if err := os.WriteFile(filepath.Join(store, "sessions", fmt.Sprint(name, i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := command("http://"+s.address, "verify", "--json")
	cmd.Env = append(cmd.Env, "HANSARD_TOKEN="+serverToken)
	begun, killed := make(chan struct{}), make(chan struct{})
	first, lines := sync.OnceFunc(func() { close(begun) }), 0
	p := start(t, cmd, func(string) {
		lines++
		first()
		<-killed
	})
	<-begun
	s.kill()
	close(killed)
	if code := p.exit(); code != 1 || !strings.Contains(p.stderr.String(), "the response broke off") {
		t.Errorf("exit code %d, stderr %s", code, p.stderr)
	}
	if lines >= notes {
		t.Errorf("all of %d lines came: nothing was cut", lines)
	}
}
