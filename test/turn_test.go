//go:build unix

package test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestTurnKill9: the holder is killed, and a waiter in another process gets the turn at once, not
// after the TTL. The holder's program, and everything that had started, die with it.
// (Failures 1, 4 and 19.)
func TestTurnKill9(t *testing.T) {
	store := newStore(t)
	ok(t, store, "new", demo)
	slowest := time.Duration(0)
	holder := startAgent(t, store, "--ttl", longTTL).up()
	for range scale(5) {
		next := startAgent(t, store, "--ttl", longTTL, "--wait", "forever").waiting()
		began := time.Now()
		must(t, holder.cmd.Process.Kill())
		next.up()
		slowest = max(slowest, time.Since(began))
		gone(t, holder.pid)
		if want := holder.grant.Number() + 1; next.grant.Number() != want {
			t.Errorf("the next grant is %s, behind %s", next.grant, holder.grant)
		}
		if code := next.appends("mine"); code != 0 {
			t.Errorf("the next holder's append: exit code %d", code)
		}
		holder = next
	}
	holder.finish()
	t.Logf("the slowest take-over took %v", slowest)
	if slowest > 10*time.Second {
		t.Errorf("a take-over took %v: that is no notice of a death", slowest)
	}
	withoutRemains(t, store)
}

// TestTurnKillTakesAllDown: when the command is killed its program and the program's children die
// too, even if the program is a shell that could not end them.
func TestTurnKillTakesAllDown(t *testing.T) {
	store := newStore(t)
	ok(t, store, "new", demo)
	p := start(t, turnOn(store, nil, "sh", "-c", "trap '' TERM HUP; sleep 600 & echo $$ $!; wait"), nil)
	var shell, child int
	if _, err := fmt.Sscan(p.line(), &shell, &child); err != nil {
		t.Fatal(err)
	}
	must(t, p.cmd.Process.Kill())
	gone(t, shell)
	gone(t, child)
	withoutRemains(t, store)
}

// TestTurnKillAnywhere: the command is killed at random moments, while it opens the store, takes
// the turn, runs, releases. The next one gets the turn at once, every time. (Failures 3 and 18.)
func TestTurnKillAnywhere(t *testing.T) {
	rng, store := seeded(t), newStore(t)
	ok(t, store, "new", demo)
	held := 0
	for range scale(40) {
		p := start(t, turnOn(store, []string{"--ttl", longTTL, "--exclusive"}, "true"), nil)
		time.Sleep(time.Duration(rng.IntN(40_000)) * time.Microsecond) // the random moment
		_ = p.cmd.Process.Kill()                                       // it may have ended
		p.exit()
		if _, g := proveTurns(t, store); g.Current != nil {
			held++
		}
		if r := run(t, turnOn(store, []string{"--ttl", longTTL}, "true")); r.code != 0 {
			t.Fatalf("the next turn: exit code %d, stderr %s", r.code, r.stderr)
		}
	}
	t.Logf("%d of %d were killed while they had the turn", held, scale(40))
	withoutRemains(t, store)
}

// TestTurnStopped: the holder is stopped for longer than its TTL, and another takes over. What
// the old holder's program still writes is refused, and when the holder continues the program is
// told. (Failures 7 and 20.)
func TestTurnStopped(t *testing.T) {
	store := newStore(t)
	ok(t, store, "new", demo)
	old := startAgent(t, store, "--ttl", "300ms", "--label", "sleeper").up()
	if code := old.appends("before"); code != 0 {
		t.Errorf("an append of the holder: exit code %d", code)
	}
	old.signal(syscall.SIGSTOP) // the command alone: its program goes on
	next := startAgent(t, store, "--ttl", longTTL, "--wait", "forever", "--label", "successor").up()
	if code := old.appends("stale"); code != 5 {
		t.Errorf("the old holder's append: exit code %d, want 5", code)
	}
	if code := next.appends("fresh"); code != 0 {
		t.Errorf("the new holder's append: exit code %d", code)
	}
	old.signal(syscall.SIGCONT)
	if line := old.line(); line != "told" {
		t.Errorf("the program that lost its turn: %q", line)
	}
	if code := old.exit(); code != 5 || !strings.Contains(old.stderr.String(), "successor") {
		t.Errorf("exit code %d, stderr %s", code, old.stderr)
	}
	if code := next.appends("still mine"); code != 0 {
		t.Errorf("the new holder, after the old one left: exit code %d", code)
	}
	next.finish()
	events, _ := proveTurns(t, store)
	for _, e := range events {
		if string(e.Data) == `"stale"` {
			t.Errorf("seq %d was written by a holder that had lost its turn", e.Seq)
		}
	}
	withoutRemains(t, store)
}

// TestTurnStolen: a live holder is told within moments, and the reason is on record. MaxHold ends
// a turn whose program is stuck. (Failure 8.)
func TestTurnStolen(t *testing.T) {
	store := newStore(t)
	ok(t, store, "new", demo)
	old := startAgent(t, store, "--ttl", longTTL).up()
	ok(t, store, "turn", demo, "--steal", "--reason", "it hangs")
	if line := old.line(); line != "told" {
		t.Errorf("the program that was robbed: %q", line)
	}
	if code := old.exit(); code != 5 {
		t.Errorf("exit code %d, stderr %s", code, old.stderr)
	}
	if out := ok(t, store, "show", demo); !strings.Contains(out, "stolen from turn 1") || !strings.Contains(out, "it hangs") {
		t.Errorf("the record: %s", out)
	}
	stuck := startAgent(t, store, "--ttl", longTTL, "--max-hold", "2s").up()
	next := startAgent(t, store, "--wait", "forever").up()
	if code := stuck.exit(); code != 5 {
		t.Errorf("exit code %d, stderr %s", code, stuck.stderr)
	}
	next.finish()
	withoutRemains(t, store)
}

// TestTurnContention: 16 processes want one turn for 20 s. There are never two holders, according
// to a witness that knows nothing of turns and to the log; and nobody gets less than a quarter of
// its share.
func TestTurnContention(t *testing.T) {
	const processes, seconds = 16, 20
	store, witness := newStore(t), filepath.Join(t.TempDir(), "witness")
	ok(t, store, "new", demo)
	var contenders []*process
	for i := range processes {
		contenders = append(contenders, start(t, worker(t, "contend", store, witness, fmt.Sprint("c", i), scale(seconds)), nil))
	}
	counts, total := make([]int, processes), 0
	for i, p := range contenders {
		if code := p.exit(); code != 0 {
			t.Fatalf("contender %d: exit code %d, stderr %s", i, code, p.stderr)
		}
		if _, err := fmt.Sscanf(p.line(), "turns %d", &counts[i]); err != nil {
			t.Fatal(err)
		}
		total += counts[i]
	}
	share := float64(total) / processes
	for i, n := range counts {
		if float64(n) < share/4 {
			t.Errorf("contender %d had %d turns, a fair share is %.0f", i, n, share)
		}
	}
	events, g := proveTurns(t, store)
	if got := int(g.Last.Number()); got < total || total < 10*processes {
		t.Errorf("%d grants in the log, %d turns were had: too few", got, total)
	}
	t.Logf("%d turns in %d s, each process %v; %d events", total, scale(seconds), counts, len(events))
	withoutRemains(t, store)
}

// TestTurnCommands: the same with the command, whose program is the witness.
func TestTurnCommands(t *testing.T) {
	const processes = 16
	store, witness := newStore(t), filepath.Join(t.TempDir(), "witness")
	ok(t, store, "new", demo)
	var all []*process
	for range processes {
		cmd := turnOn(store, []string{"--wait", "forever", "--ttl", longTTL}, os.Args[0], store, witness)
		cmd.Env = append(cmd.Env, workerEnv+"=witness")
		all = append(all, start(t, cmd, nil))
	}
	for _, p := range all {
		if code := p.exit(); code != 0 {
			t.Errorf("exit code %d, stderr %s", code, p.stderr)
		}
	}
	if _, g := proveTurns(t, store); g.Last.Number() != processes {
		t.Errorf("the last grant is %s, want number %d", g.Last, processes)
	}
	withoutRemains(t, store)
}
