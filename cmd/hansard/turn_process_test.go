//go:build unix

package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestTurnForwards: signals sent to the command are forwarded to the program, each once, and the
// program's exit is the command's.
func TestTurnForwards(t *testing.T) {
	store := filepath.Join(t.TempDir(), "store")
	hansardOK(t, store, "new", "demo")
	const script = `for s in INT HUP QUIT USR1 USR2; do trap "echo $s" $s; done; trap 'echo TERM; exit 4' TERM; echo up; while :; do sleep 0.02; done`
	p := start(t, store, "turn", "demo", "--", "sh", "-c", script)
	p.line()
	for _, sig := range []syscall.Signal{syscall.SIGUSR1, syscall.SIGINT, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR2, syscall.SIGTERM} {
		p.cmd.Process.Signal(sig)
		want := map[syscall.Signal]string{syscall.SIGUSR1: "USR1", syscall.SIGUSR2: "USR2", syscall.SIGINT: "INT",
			syscall.SIGHUP: "HUP", syscall.SIGQUIT: "QUIT", syscall.SIGTERM: "TERM"}[sig]
		if got := p.line(); got != want {
			t.Fatalf("the program got %q, want %s", got, want)
		}
	}
	if code := p.exit(); code != 4 || strings.Contains(p.stderr.String(), "hansard") || strings.Contains(p.stderr.String(), "User defined") {
		t.Errorf("exit code %d, want 4; stderr %s", code, p.stderr) // shells report how sleep ended
	}
	p = start(t, store, "turn", "demo", "--", "sh", "-c", "echo up; exec sleep 60")
	p.line()
	p.cmd.Process.Signal(syscall.SIGTERM)
	if code := p.exit(); code != 143 || p.stderr.String() != "" {
		t.Errorf("exit code %d, want 143; stderr %s", code, p.stderr)
	}
}

// TestTurnIgnoresWhatItShould: nohup applies to the program too.
func TestTurnIgnoresWhatItShould(t *testing.T) {
	store := filepath.Join(t.TempDir(), "store")
	hansardOK(t, store, "new", "demo")
	p := startAs(t, store, "sh", "-c", `trap '' HUP; exec hansard turn demo -- sh -c 'echo up; kill -HUP $$; echo still up; read x'`)
	p.line()
	p.cmd.Process.Signal(syscall.SIGHUP)
	if got := p.line(); got != "still up" {
		t.Errorf("the program said %q", got)
	}
	p.stdin.Close()
	p.exit()
}

// TestTurnInterruptedWaiting: a signal ends the wait, and nothing is run.
func TestTurnInterruptedWaiting(t *testing.T) {
	store := filepath.Join(t.TempDir(), "store")
	hansardOK(t, store, "new", "demo")
	holder := start(t, store, "turn", "demo", "--label", "holder", "--", "sh", "-c", "echo up; read x")
	holder.line()
	p := start(t, store, "turn", "demo", "--wait", "forever", "--", "echo", "never")
	for deadline := time.Now().Add(waitMax); !strings.Contains(p.stderr.String(), "waiting: the turn of demo is held by holder pid "); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it does not say that it waits: %s", p.stderr)
		}
	}
	p.cmd.Process.Signal(syscall.SIGINT)
	if code := p.exit(); code != 130 || !strings.Contains(p.stderr.String(), "interrupted; the turn was not taken") {
		t.Errorf("exit code %d, stderr %s", code, p.stderr)
	}
	holder.stdin.Close()
	if code := holder.exit(); code != 1 { // that of read at the end of its input
		t.Errorf("the holder: exit code %d, stderr %s", code, holder.stderr)
	}
}

// TestTurnStopsTogether: SIGTSTP to the command stops the program, outside the write lock, and
// SIGCONT continues both.
func TestTurnStopsTogether(t *testing.T) {
	store := filepath.Join(t.TempDir(), "store")
	hansardOK(t, store, "new", "demo")
	p := start(t, store, "turn", "demo", "--ttl", "10m", "--", "sh", "-c", `echo $$; while read x; do echo "$x"; done`)
	pid := p.line()
	state := func() string {
		out, _ := exec.Command("ps", "-o", "stat=", "-p", pid).Output()
		return strings.TrimSpace(string(out))
	}
	p.cmd.Process.Signal(syscall.SIGTSTP)
	waitStopped(t, p.cmd.Process.Pid)
	for deadline := time.Now().Add(waitMax); !strings.HasPrefix(state(), "T"); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the program is not stopped but %s", state())
		}
	}
	hansardOK(t, store, "append", "demo", "beside it")
	p.cmd.Process.Signal(syscall.SIGCONT)
	p.send("on\n")
	if got := p.line(); got != "on" {
		t.Errorf("the program said %q", got)
	}
	p.stdin.Close()
	if code := p.exit(); code != 0 {
		t.Errorf("exit code %d, stderr %s", code, p.stderr)
	}
}
