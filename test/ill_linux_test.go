package test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// makeIll makes a process's calls on some files fail with EIO, until well is called.
func makeIll(t *testing.T, p *process, calls string, files ...string) (well func()) {
	t.Helper()
	args := []string{"-f", "-o", "/dev/null", "-p", fmt.Sprint(p.cmd.Process.Pid), "-e", "trace=" + calls, "-e", "inject=" + calls + ":error=EIO"}
	for _, f := range files {
		args = append(args, "-P", f)
	}
	s := start(t, exec.Command("strace", args...), nil)
	eventually(t, "strace is attached", func() bool { return strings.Contains(s.stderr.String(), "attached") })
	return func() {
		s.signal(syscall.SIGINT)
		s.exit()
	}
}

// TestFailure58_RealIllDisk: the logs of two sessions, one of them new, can't be written by a
// process for a while. It says why, other sessions go on, and as soon as writes work again
// everything is in place: in the same process, or for the next.
func TestFailure58_RealIllDisk(t *testing.T) {
	needsStrace(t)
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprintf("restart %v", restart), func(t *testing.T) {
			store := filepath.Join(memDir(t), "store")
			l := newLedger()
			w := serve(t, store, waitMax)
			for _, id := range []string{"demo", "other"} {
				if line := w.ask("append " + id + " first-" + id + " 2 100"); !l.answer(line) {
					t.Fatal(line)
				}
			}
			well := makeIll(t, w, "pwrite64", logOf(store, "demo"), logOf(store, "new"))
			answers := map[string]int{}
			for i := range 12 {
				for _, id := range []string{"demo", "new"} {
					line := w.ask(fmt.Sprintf("append %s ill-%s-%d 2 300", id, id, i))
					if l.answer(line) {
						t.Errorf("the log can't be written, and: %s", line)
					}
					answers[strings.Fields(line)[2]]++
				}
			}
			if answers["unknown"] < 2 || answers["damaged"] < 10 {
				t.Errorf("answers: %v", answers)
			}
			if line := w.ask("append other goes-on 1 10"); !l.answer(line) {
				t.Errorf("another session: %s", line)
			}
			r := run(t, command(store, "stat", "demo"))
			if told := r.stdout + r.stderr; !strings.Contains(told, "input/output error") || strings.Contains(told, "somebody") {
				t.Errorf("stat says %q", told)
			}
			well()
			if restart {
				w.kill()
				w = serve(t, store, waitMax)
			}
			for _, id := range []string{"demo", "new"} {
				if line := w.ask("append " + id + " well-" + id + " 1 10"); !l.answer(line) {
					t.Errorf("the disk is well, and: %s", line)
				}
			}
			w.finish()
			ok(t, store, "verify")
			l.check(t, store)
			t.Logf("while it was ill: %v", answers)
		})
	}
}
