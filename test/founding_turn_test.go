//go:build unix

package test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"hansard"
)

// Reports F2 and F3 are about who may run the agent loop: that is the turn. The naive ways are in
// founding_test.go, and here if they judge by PID or age.

// owned is a lock file that names its owner. It is free if it does not exist, and stale, to be
// taken over, if the process in it does not run.
type owned lockFile

func (l owned) acquire(pid int) bool {
	if b, err := os.ReadFile(string(l)); err == nil {
		owner, _ := strconv.Atoi(string(b)) // 0 if the file is empty: nobody
		if err := syscall.Kill(owner, 0); owner != 0 && (err == nil || err == syscall.EPERM) {
			return false
		}
		_ = os.Remove(string(l)) // stale
	}
	if !lockFile(l).create() {
		return false
	}
	return os.WriteFile(string(l), []byte(strconv.Itoa(pid)), 0o600) == nil
}

// naiveOwners shows how lock files with a PID in them fail.
func naiveOwners(t *testing.T) {
	path := func() owned { return owned(filepath.Join(t.TempDir(), "session.lock")) }
	t.Run("created empty, filled later", func(t *testing.T) {
		lock := path()
		first := lockFile(lock).create() // and before it writes its PID:
		second := lock.acquire(os.Getpid())
		if !first || !second {
			t.Errorf("the naive way did not fail: %v %v", first, second)
		}
	})
	t.Run("PID reused", func(t *testing.T) {
		lock, dead := path(), exec.Command("true")
		must(t, dead.Run())
		if !lock.acquire(dead.Process.Pid) {
			t.Fatal("it was not even free")
		}
		// Its owner is dead; the PID now belongs to another process, here to ourselves.
		must(t, os.WriteFile(string(lock), []byte(strconv.Itoa(os.Getpid())), 0o600))
		if lock.acquire(os.Getpid()) {
			t.Error("the naive way did not fail: it was taken over")
		}
	})
	t.Run("restarted in place", func(t *testing.T) {
		lock := path()
		before := lock.acquire(os.Getpid())
		after := lock.acquire(os.Getpid()) // the same process, another program: it waits for itself
		if !before || after {
			t.Errorf("the naive way did not fail: %v %v", before, after)
		}
	})
	t.Run("containers", func(t *testing.T) {
		lock := path()
		// Its owner was process 1 of a container that is long gone; the process that looks is in
		// another container, which has a process 1 as well.
		must(t, os.WriteFile(string(lock), []byte("1"), 0o600))
		if lock.acquire(1) {
			t.Error("the naive way did not fail: it was taken over")
		}
	})
	t.Run("by age", func(t *testing.T) {
		lock := path()
		first := lock.acquire(os.Getpid())
		old := time.Now().Add(-time.Hour) // it thinks for an hour
		must(t, os.Chtimes(string(lock), old, old))
		info, err := os.Stat(string(lock))
		must(t, err)
		second := false
		if time.Since(info.ModTime()) > time.Minute { // "nobody holds a lock for that long"
			must(t, os.Remove(string(lock)))
			second = lock.acquire(os.Getpid())
		}
		if !first || !second {
			t.Errorf("the naive way did not fail: %v %v", first, second)
		}
	})
}

// turnsF2: grants are released late, twice, by others and while they are taken again. The current
// holder keeps the turn.
func turnsF2(t *testing.T) {
	store := newStore(t)
	ok(t, store, "new", demo)
	s, ctx := open(t, store), t.Context()
	claim := hansard.Claim{TTL: 10 * time.Minute}
	first, err := s.Acquire(ctx, demo, claim)
	must(t, err)
	must(t, s.Release(ctx, demo, first.Grant))
	second, err := s.Acquire(ctx, demo, claim) // again, in the same process
	must(t, err)
	for range 3 { // the late clean-up of the first
		if err := s.Release(ctx, demo, first.Grant); err == nil {
			t.Error("a grant was released twice")
		}
	}
	if r := run(t, turnOn(store, nil, "true")); r.code != 5 {
		t.Errorf("another process, while the second grant is held: exit code %d, stderr %s", r.code, r.stderr)
	}
	must(t, s.Release(ctx, demo, second.Grant))

	// Under load: every grant is released three times, at once.
	witness := filepath.Join(t.TempDir(), "witness")
	other := start(t, worker(t, "contend", store, witness, "other", 2), nil)
	turns, overlaps := 0, 0
	for other.running() {
		g, err := s.Acquire(ctx, demo, hansard.Claim{TTL: 10 * time.Minute, Wait: waitMax})
		must(t, err)
		if err := witnessed(witness, s, g.Grant, "mine"); err != nil {
			overlaps++
			t.Error(err)
		}
		var wg sync.WaitGroup
		released := make(chan error, 3)
		for range 3 {
			wg.Go(func() { released <- s.Release(ctx, demo, g.Grant) })
		}
		wg.Wait()
		well := 0
		for range 3 {
			if <-released == nil {
				well++
			}
		}
		if well != 1 {
			t.Errorf("%d of three releases of %s succeeded", well, g.Grant)
		}
		turns++
	}
	if code := other.exit(); code != 0 {
		t.Errorf("the other one: exit code %d, stderr %s", code, other.stderr)
	}
	t.Logf("%d turns here, %s there", turns, other.line())
	must(t, s.Close())
	withoutRemains(t, store)
}

// turnsF3: a holder dies, and eight processes want its turn: one gets it, dies, and so on. Each
// take-over has one winner.
func turnsF3(t *testing.T) {
	const waiters = 8
	store := newStore(t)
	ok(t, store, "new", demo)
	up := make(chan int, 2*waiters)
	started := make([]*process, 0, waiters+1)
	for i := range waiters + 1 {
		cmd := turnOn(store, []string{"--ttl", longTTL, "--wait", "forever"}, os.Args[0], program)
		cmd.Env = append(cmd.Env, workerEnv+"=agent")
		started = append(started, start(t, cmd, func(line string) {
			if strings.HasPrefix(line, "up ") {
				up <- i
			}
		}))
	}
	for n := range waiters + 1 {
		var winner int
		select {
		case winner = <-up:
		case <-time.After(waitMax):
			t.Fatalf("take-over %d: nobody got the turn", n)
		}
		_, g := proveTurns(t, store)
		if got := g.Last.Number(); got != uint64(n+1) || g.Current == nil {
			t.Errorf("take-over %d: the log has %d grants, the last is held: %v", n, got, g.Current != nil)
		}
		if len(up) > 0 {
			t.Errorf("take-over %d: more than one believes to have the turn", n)
		}
		must(t, started[winner].cmd.Process.Kill())
		started[winner].exit() // a killed process is not dead yet
	}
	withoutRemains(t, store)
}

// turnsInPlace: a program that holds the turn re-executes itself with the same PID: it is no
// longer the holder, and gets the turn like anybody else, at once.
func turnsInPlace(t *testing.T) {
	const restarts = 5
	store := newStore(t)
	ok(t, store, "new", demo)
	p := start(t, worker(t, "restart", store, restarts), nil)
	pids := map[int]bool{}
	for n := range restarts {
		var g hansard.Grant
		var pid int
		if _, err := fmt.Sscanf(p.line(), "turn %s %d", &g, &pid); err != nil || g.Number() != uint64(n+1) {
			t.Fatalf("grant %q, %v; stderr %s", g, err, p.stderr)
		}
		pids[pid] = true
	}
	if code := p.exit(); code != 0 || len(pids) != 1 {
		t.Errorf("exit code %d, PIDs %v, stderr %s", code, pids, p.stderr)
	}
	withoutRemains(t, store)
}

// turnsSlow: a holder that is merely slow keeps its turn, however long it takes.
func turnsSlow(t *testing.T) {
	store := newStore(t)
	ok(t, store, "new", demo)
	// The command renews the turn within its TTL. That has to be long enough for a busy machine.
	slow := startAgent(t, store, "--ttl", "5s").up()
	if r := run(t, turnOn(store, []string{"--wait", "12s"}, "true")); r.code != 5 {
		t.Errorf("more than twice the TTL of a holder that lives: exit code %d, stderr %s", r.code, r.stderr)
	}
	if code := slow.appends("slow, but mine"); code != 0 {
		t.Errorf("the slow one's append: exit code %d", code)
	}
	slow.finish()
	withoutRemains(t, store)
}

// turnsAmongRubbish: foreign lock files, and instance files without a process, block nobody.
func turnsAmongRubbish(t *testing.T) {
	store := newStore(t)
	ok(t, store, "new", demo)
	for name, content := range map[string]string{"demo.lock": strconv.Itoa(os.Getpid()), "sessions/demo.lock": "1@elsewhere",
		"instances/0123456789abcdef0123456789abcdef": strings.Repeat("\xff", 200), "instances/fedcba9876543210fedcba9876543210": ""} {
		must(t, os.WriteFile(filepath.Join(store, name), []byte(content), 0o600))
	}
	for range 2 {
		if r := run(t, turnOn(store, []string{"--exclusive"}, program, "append", demo, "x")); r.code != 0 {
			t.Errorf("exit code %d, stderr %s", r.code, r.stderr)
		}
	}
	proveTurns(t, store)
	ok(t, store, "verify")
}
