//go:build unix

package test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"hansard"
	"hansard/engine"
	"hansard/filestore"
)

// The session all of these tests are about.
const demo = "demo"

// longTTL is a TTL longer than any test: a process that gets a turn sooner did not wait for it.
const longTTL = "10m"

// turnOn is hansard turn on the demo session.
func turnOn(store string, flags []string, program ...string) *exec.Cmd {
	args := append([]string{"turn", demo}, flags...)
	return command(store, append(append(args, "--"), program...)...)
}

// agent is hansard turn with a program that does what it is told.
type agent struct {
	*process
	grant hansard.Grant
	pid   int // of the program
}

// startAgent starts one; it may have to wait for the turn. See up.
func startAgent(t *testing.T, store string, flags ...string) *agent {
	t.Helper()
	return agentOf(t, turnOn(store, flags, os.Args[0], program))
}

// agentOf starts a command that runs the agent worker.
func agentOf(t *testing.T, cmd *exec.Cmd) *agent {
	t.Helper()
	cmd.Env = append(cmd.Env, workerEnv+"=agent")
	return &agent{process: start(t, cmd, nil)}
}

// up waits until the program runs, and so has the turn.
func (a *agent) up() *agent {
	a.t.Helper()
	line := a.line()
	if n, err := fmt.Sscanf(line, "up %s %d", &a.grant, &a.pid); n != 2 {
		a.t.Fatalf("agent: %q, %v", line, err)
	}
	return a
}

// waiting waits until the command says that it waits for the turn.
func (a *agent) waiting() *agent {
	a.t.Helper()
	eventually(a.t, "it says that it waits", func() bool { return strings.Contains(a.stderr.String(), "waiting") })
	return a
}

// appends has the program append with the command, and returns the exit code.
func (a *agent) appends(text string) (code int) {
	a.t.Helper()
	line := a.ask("append " + text)
	if n, err := fmt.Sscanf(line, "exit %d", &code); n != 1 {
		a.t.Fatalf("agent: %q, %v", line, err)
	}
	return code
}

// agentWorker: COMMAND. The program that runs in a turn. It answers its input:
//
//	append TEXT   appends with the command, in its environment: exit CODE
//
// and says "told" when it is asked to end.
func agentWorker(args []string) error {
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGTERM)
	go func() {
		<-told
		fmt.Println("told")
		os.Exit(0)
	}()
	fmt.Println("up", os.Getenv("HANSARD_TURN"), os.Getpid())
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		text, _ := strings.CutPrefix(in.Text(), "append ")
		cmd := exec.Command(args[0], "append", os.Getenv("HANSARD_SESSION"), text, "--json")
		cmd.Stderr = os.Stderr
		_ = cmd.Run() // ProcessState says it all
		fmt.Println("exit", cmd.ProcessState.ExitCode())
	}
	return nil
}

// contendWorker: STORE WITNESS LABEL SECONDS. It takes the turn repeatedly, writes under it, and
// releases it; it prints how often. While it has the turn it holds the witness, a kernel lock
// that knows nothing of turns: if it finds that taken, there were two holders.
func contendWorker(args []string) error {
	var seconds float64
	if _, err := fmt.Sscan(args[3], &seconds); err != nil {
		return err
	}
	s, err := filestore.Open(args[0], nil)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(seconds*float64(time.Second)))
	defer cancel()
	turns := 0
	for ctx.Err() == nil {
		err := withTurn(ctx, s, args[2], func(g hansard.Grant) error { return witnessed(args[1], s, g, args[2]) })
		if errors.Is(err, context.DeadlineExceeded) {
			break
		}
		if err != nil {
			return err
		}
		turns++
	}
	if err := s.Close(); err != nil {
		return err
	}
	fmt.Println("turns", turns)
	return nil
}

func withTurn(ctx context.Context, s hansard.Store, label string, fn func(hansard.Grant) error) error {
	lease, err := hansard.Take(ctx, s, demo, hansard.Claim{Wait: hansard.Forever, TTL: time.Minute, Label: label})
	if err != nil {
		return err
	}
	if err := fn(lease.Grant()); err != nil {
		return err
	}
	return lease.Release()
}

// witnessed writes under a grant for a moment, and fails if another process does so at the same
// time.
func witnessed(witness string, s hansard.Store, g hansard.Grant, text string) error {
	f, err := os.OpenFile(witness, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return fmt.Errorf("OVERLAP: two hold the turn, one of them under %s: %w", g, err)
	}
	_, err = s.Append(context.Background(), demo, hansard.Batch{Turn: g, Events: []hansard.Event{{Data: fmt.Appendf(nil, "%q", text)}}})
	time.Sleep(time.Duration(rand.IntN(2000)) * time.Microsecond) // the work
	return err
}

// witnessWorker: STORE WITNESS. The program of a turn that fails if it is not alone.
func witnessWorker(args []string) error {
	s, err := filestore.Open(args[0], nil)
	if err != nil {
		return err
	}
	return errors.Join(witnessed(args[1], s, hansard.Grant(os.Getenv("HANSARD_TURN")), "witness"), s.Close())
}

// restartWorker: STORE TURNS. It takes the turn TURNS times without ever releasing it: each time
// it re-executes itself in place, with the same PID.
func restartWorker(args []string) error {
	var left int
	if _, err := fmt.Sscan(args[1], &left); err != nil {
		return err
	}
	s, err := filestore.Open(args[0], nil)
	if err != nil {
		return err
	}
	t, err := s.Acquire(context.Background(), demo, hansard.Claim{TTL: 10 * time.Minute})
	if err != nil {
		return err
	}
	fmt.Println("turn", t.Grant, os.Getpid())
	if left > 1 {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		return syscall.Exec(self, []string{self, args[0], fmt.Sprint(left - 1)}, os.Environ())
	}
	return errors.Join(s.Release(context.Background(), demo, t.Grant), s.Close())
}

// proveTurns reads the session and proves from it alone that nobody ever wrote under a turn
// without holding it. It returns the events.
func proveTurns(t *testing.T, store string) (events []hansard.Event, g engine.Grants) {
	t.Helper()
	s, err := filestore.Open(store, &filestore.Options{ReadOnly: true})
	must(t, err)
	defer s.Close()
	for e, err := range s.Read(t.Context(), demo, hansard.Range{}) {
		must(t, err)
		if err := g.Next(&e); err != nil {
			t.Error(err)
		}
		events = append(events, e)
	}
	return events, g
}

// withoutRemains checks that a store is as if nothing had ever gone wrong in it: the turn is
// free, verify finds nothing, and there is nothing to clean up.
func withoutRemains(t *testing.T, store string) {
	t.Helper()
	proveTurns(t, store)
	ok(t, store, "turn", demo, "--", "true")  // at once, whatever happened
	ok(t, store, "append", demo, "last word") // and nobody is kept out
	if out := ok(t, store, "turn", demo, "--show", "--json"); !strings.Contains(out, `"turn":null`) {
		t.Errorf("the turn is not free: %s", out)
	}
	ok(t, store, "verify")
	want := newStore(t)
	ok(t, want, "append", demo, "hello", "--create")
	if got, want := names(t, store), names(t, want); got != want {
		t.Errorf("left behind: %s\na new store has: %s", got, want)
	}
}

// names are the files of a store, except for derived ones.
func names(t *testing.T, store string) string {
	t.Helper()
	var found []string
	must(t, fs.WalkDir(os.DirFS(store), ".", func(path string, d fs.DirEntry, err error) error {
		if path == "cache" {
			return fs.SkipDir
		}
		found = append(found, path) // in the order of their names
		return err
	}))
	return strings.Join(found, " ")
}

// gone waits until a process no longer runs.
func gone(t *testing.T, pid int) {
	t.Helper()
	eventually(t, fmt.Sprintf("process %d is gone", pid), func() bool { return !alive(pid) })
}

// alive reports whether a process runs: a zombie does not.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	out, err := exec.Command("ps", "-o", "stat=", "-p", fmt.Sprint(pid)).Output()
	return err == nil && !strings.HasPrefix(string(out), "Z")
}
