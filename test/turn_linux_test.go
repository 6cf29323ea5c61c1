package test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// inNamespace is a command that runs as process 1 of its own PID namespace.
func inNamespace(cmd *exec.Cmd) *exec.Cmd {
	boxed := exec.Command("unshare", append([]string{"-p", "-f", "--mount-proc", "--"}, cmd.Args...)...)
	boxed.Env = cmd.Env
	return boxed
}

func needsNamespaces(t *testing.T) {
	t.Helper()
	needs(t, "unshare")
	if out, err := inNamespace(exec.Command("true")).CombinedOutput(); err != nil {
		skip(t, "no PID namespaces here: %v %s", err, out)
	}
}

// firstOf is the process that is number 1 in the namespace that p made.
func firstOf(t *testing.T, p *process) (pid int) {
	t.Helper()
	eventually(t, "the namespace has a process", func() bool {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", p.cmd.Process.Pid)) // empty for a moment
		pid, _ = strconv.Atoi(strings.TrimSpace(string(b)))
		return pid > 0
	})
	return pid
}

// TestTurnNamespaces: holder and waiter are both process 1, each in its own namespace, where the
// other can't be seen. A live holder keeps its turn; a killed one loses it at once.
// (Failures 4 and 6.)
func TestTurnNamespaces(t *testing.T) {
	needsNamespaces(t)
	store := newStore(t)
	ok(t, store, "new", demo)
	boxed := func(flags ...string) *agent {
		return agentOf(t, inNamespace(turnOn(store, append(flags, "--ttl", longTTL), os.Args[0], program)))
	}
	holder := boxed("--label", "first").up()
	r := run(t, inNamespace(turnOn(store, []string{"--wait", "1s"}, "true")))
	if r.code != 5 || !strings.Contains(r.stderr, "held by first pid 1 ") {
		t.Errorf("beside a living process 1: exit code %d, stderr %s", r.code, r.stderr)
	}
	next := boxed("--label", "second", "--wait", "forever").waiting()
	began := time.Now()
	must(t, syscall.Kill(firstOf(t, holder.process), syscall.SIGKILL))
	next.up()
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the take-over took %v", took)
	} else {
		t.Logf("the take-over took %v", took)
	}
	holder.exit()
	if code := next.appends("mine"); code != 0 {
		t.Errorf("the new holder's append: exit code %d", code)
	}
	next.finish()
	withoutRemains(t, store)
}

// TestTurnFirstProcess: as process 1 of a container the command reaps every process that becomes
// its child there, so that none is left.
func TestTurnFirstProcess(t *testing.T) {
	needsNamespaces(t)
	store := newStore(t)
	ok(t, store, "new", demo)
	script := `for i in 1 2 3 4 5; do (sh -c 'sleep 0.1; exit 3' &); done; sleep 0.2
		for i in $(seq 500); do grep -qs '^State:.Z' /proc/[0-9]*/status || exit 7; sleep 0.02; done`
	r := run(t, inNamespace(turnOn(store, nil, "sh", "-c", script)))
	if r.code != 7 {
		t.Errorf("exit code %d: dead processes are left; stderr %s", r.code, r.stderr)
	}
	withoutRemains(t, store)
}

// TestTurnInheritsNothing: the program of a turn has none of the store's files open, and a child
// of it that outlives everything does not keep the turn. (Failure 19.)
func TestTurnInheritsNothing(t *testing.T) {
	needs(t, "setsid")
	store := newStore(t)
	ok(t, store, "new", demo)
	p := start(t, turnOn(store, []string{"--ttl", longTTL}, "sh", "-c", "setsid sh -c 'echo $$; exec sleep 600' & wait"), nil)
	child, err := strconv.Atoi(p.line())
	must(t, err)
	t.Cleanup(func() { _ = syscall.Kill(child, syscall.SIGKILL) })
	links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", child))
	must(t, err)
	for _, link := range links {
		if target, _ := os.Readlink(link); strings.HasPrefix(target, store) {
			t.Errorf("the program has %s open", target)
		}
	}
	if len(links) == 0 {
		t.Error("no descriptors were seen: this looked at nothing")
	}
	must(t, p.cmd.Process.Kill())
	eventually(t, "the turn is free", func() bool { return run(t, turnOn(store, nil, "true")).code == 0 })
	if !alive(child) {
		t.Error("the child that made itself independent is gone: this shows nothing")
	}
	must(t, syscall.Kill(child, syscall.SIGKILL))
	withoutRemains(t, store)
}

// TestTurnErrors: an error while looking at the holder is not taken for its death: whatever call
// fails, nobody gets the turn of a live process, and its holder can still write.
// (Failures 14 and 17.)
func TestTurnErrors(t *testing.T) {
	needsStrace(t)
	store := newStore(t)
	ok(t, store, "new", demo)
	holder := startAgent(t, store, "--ttl", longTTL).up()
	tries := 0
	for _, errno := range []string{"EMFILE", "EIO", "EINTR", "EACCES", "ENOLCK"} {
		hits := sweep{calls: []string{"openat", "flock", "pread64", "statx", "getdents64"}, step: map[string]int{"pread64": 4, "statx": 2, "openat": 2}}.each(
			func(int) string { return "error=" + errno },
			func(in injection) bool {
				tries++
				traced, trace := in.traced(t, turnOn(store, []string{"--json"}, "echo", "GRANTED"))
				r := run(t, traced)
				if r.code == 0 || strings.Contains(r.stdout, "GRANTED") {
					t.Errorf("%s: the turn of a living process was given away: %s", in, r.stderr)
				}
				return saw(trace, "(INJECTED)")
			})
		if hits < 5 {
			t.Errorf("%s: %d faults: too few", errno, hits)
		}
	}
	if code := holder.appends("mine"); code != 0 {
		t.Errorf("the holder after %d faults of others: exit code %d", tries, code)
	}
	holder.finish()
	t.Logf("%d tries", tries)
	withoutRemains(t, store)
}

// TestTurnWithoutGuard: the program dies with the command even if the guard of its process group
// was killed before: the kernel kills it.
func TestTurnWithoutGuard(t *testing.T) {
	store := newStore(t)
	ok(t, store, "new", demo)
	holder := startAgent(t, store).up()
	guard, err := syscall.Getpgid(holder.pid)
	must(t, err)
	if guard == holder.pid || guard == holder.cmd.Process.Pid {
		t.Fatalf("process %d leads the program's group: that is no guard", guard)
	}
	must(t, syscall.Kill(guard, syscall.SIGKILL))
	if code := holder.appends("still at work"); code != 0 {
		t.Errorf("the program without its guard: exit code %d", code)
	}
	must(t, holder.cmd.Process.Kill())
	gone(t, holder.pid)
	withoutRemains(t, store)
}
