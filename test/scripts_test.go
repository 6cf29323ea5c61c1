//go:build unix

package test

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// scriptDir is a copy of scripts with fake programs in front of the real ones.
type scriptDir struct {
	t    *testing.T
	dir  string
	path string
}

func newScriptDir(t *testing.T) *scriptDir {
	t.Helper()
	s := &scriptDir{t: t, dir: t.TempDir()}
	s.path = filepath.Join(s.dir, "bin")
	must(t, os.CopyFS(filepath.Join(s.dir, "scripts"), os.DirFS("../scripts")))
	must(t, os.Mkdir(s.path, 0o700))
	return s
}

// put makes a program.
func (s *scriptDir) put(name, script string) {
	s.t.Helper()
	must(s.t, os.WriteFile(filepath.Join(s.path, name), []byte("#!/bin/sh\n"+script), 0o700))
}

func (s *scriptDir) run(path string, args ...string) (code int, said string) {
	s.t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir, cmd.Env = s.dir, []string{"PATH=" + path, "HOME=" + s.dir}
	r := run(s.t, cmd)
	return r.code, r.stdout + r.stderr
}

// TestPackagesWaits: it waits for another running apt, whichever lock that has; and if installing
// fails apt's reason is shown.
func TestPackagesWaits(t *testing.T) {
	for _, c := range []struct {
		what, apt string // a fake; $n counts its calls
		code      int
		want      []string
	}{
		{"the lists are locked", `[ "$n" -gt 2 ] || { echo "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 1 (apt-get)"; exit 100; }`,
			0, []string{"another apt is at work"}},
		{"the archives are locked", `[ "$n" -gt 4 ] || { echo "E: Unable to lock directory /var/cache/apt/archives/"; exit 100; }`,
			0, []string{"another apt is at work"}},
		{"nothing is in the way", ``, 0, []string{"installing: strace"}},
		{"it fails", `echo "E: Unable to locate package strace"; exit 100`, 1, []string{"Unable to locate package strace", "apt-get update failed"}},
		{"installing fails", `case "$*" in *install*) echo "E: no network"; exit 100;; esac`, 1, []string{"E: no network", "install"}},
		{"it is locked for ever", `echo "E: Could not get lock /var/lib/dpkg/lock-frontend"; exit 100`, 1, []string{"Could not get lock", "another apt is at work"}},
	} {
		t.Run(c.what, func(t *testing.T) {
			s := newScriptDir(t)
			count := filepath.Join(s.dir, "count")
			s.put("apt-get", fmt.Sprintf("n=$(cat %[1]s 2>/dev/null || echo 0); n=$((n + 1)); echo $n >%[1]s\n%[2]s\n", count, c.apt))
			s.put("sleep", "exit 0\n")
			s.put("id", "echo 0\n")
			code, said := s.run(s.path+":"+os.Getenv("PATH"), "scripts/packages", "strace")
			if code != c.code {
				t.Errorf("exit code %d, want %d\n%s", code, c.code, said)
			}
			for _, want := range c.want {
				if !strings.Contains(said, want) {
					t.Errorf("it does not say %q:\n%s", want, said)
				}
			}
		})
	}
}

// TestAllTestsRun: whatever fails, all parts of make test run, the last line has the counts, and
// the exit status is not zero if anything failed.
func TestAllTestsRun(t *testing.T) {
	pass := func(n int) string {
		return strings.Repeat("echo '--- PASS: TestSomething (0.00s)'; ", n) + "echo 'ok  	hansard	1.0s'"
	}
	const fail = `echo '--- PASS: TestA (0.00s)'; echo '    --- FAIL: TestB/part (0.00s)'; echo '--- FAIL: TestB (0.00s)'; echo 'FAIL	hansard	1.0s'; exit 1`
	const skip = `echo '--- SKIP: TestC (0.00s)'; echo '    SKIPPED: no strace here'; echo 'ok  	hansard	1.0s'`
	const broken = `echo '# hansard'; echo 'x.go:1: syntax error'; echo 'FAIL	hansard [build failed]'; exit 2`
	for _, c := range []struct {
		what                                              string
		unit, race, browser, clients, adapters, benchtest string
		code                                              int
		last                                              string
		says                                              []string
		lint, cross                                       string // true if empty
	}{
		{"all pass", pass(3), pass(2), pass(1), pass(4), pass(1), pass(1), 0, "12 passed, 0 failed, 0 skipped", nil, "", ""},
		{"a unit test fails", fail, pass(2), pass(1), pass(1), pass(1), pass(1), 1, "7 passed, 2 failed, 0 skipped", []string{"--- FAIL: TestB", "browser: 1 passed", "clients: 1 passed"}, "", ""},
		{"it does not build", broken, pass(2), pass(1), pass(1), pass(1), pass(1), 1, "6 passed, 1 failed, 0 skipped", []string{"syntax error", "browser: 1 passed"}, "", ""},
		{"a race", pass(1), fail, pass(1), pass(1), pass(1), pass(1), 1, "6 passed, 2 failed, 0 skipped", []string{"race: 1 passed, 2 failed"}, "", ""},
		{"the browser fails", pass(1), pass(1), fail, pass(1), pass(1), pass(1), 1, "6 passed, 2 failed, 0 skipped", []string{"clients: 1 passed"}, "", ""},
		{"a client fails", pass(1), pass(1), pass(1), fail, pass(1), pass(1), 1, "6 passed, 2 failed, 0 skipped", nil, "", ""},
		{"an adapter fails", pass(1), pass(1), pass(1), pass(1), fail, pass(1), 1, "6 passed, 2 failed, 0 skipped", []string{"adapters: 1 passed, 2 failed"}, "", ""},
		{"the benchmark is broken", pass(1), pass(1), pass(1), pass(1), pass(1), fail, 1, "6 passed, 2 failed, 0 skipped", []string{"benchtest: 1 passed, 2 failed"}, "", ""},
		{"lint fails", pass(1), pass(1), pass(1), pass(1), pass(1), pass(1), 1, "6 passed, 1 failed, 0 skipped", []string{"lint: 0 passed, 1 failed", "x.go:1: unused"}, "echo x.go:1: unused; exit 1", ""},
		{"another system", pass(1), pass(1), pass(1), pass(1), pass(1), pass(1), 1, "6 passed, 1 failed, 0 skipped", []string{"cross: 0 passed, 1 failed", "x.go:1: undefined"}, "", "echo x.go:1: undefined; exit 1"},
		{"a skip", skip, pass(1), pass(1), pass(1), pass(1), pass(1), 0, "5 passed, 0 failed, 1 skipped", []string{"SKIPPED: no strace here"}, "", ""},
		{"nothing ran", pass(1), pass(1), "true", pass(1), pass(1), pass(1), 1, "5 passed, 1 failed, 0 skipped", []string{"browser: nothing was run"}, "", ""},
	} {
		t.Run(c.what, func(t *testing.T) {
			s := newScriptDir(t)
			makefile := "lint:\n\t@" + cmp.Or(c.lint, "true") + "\ncross:\n\t@" + cmp.Or(c.cross, "true") + "\n"
			for name, script := range map[string]string{"unit": c.unit, "race": c.race, "browser": c.browser, "clients": c.clients, "adapters": c.adapters, "benchtest": c.benchtest} {
				s.put(name+"-test", script+"\n")
				makefile += fmt.Sprintf("%s:\n\t@scripts/gotest %[1]s bin/%[1]s-test\n", name)
			}
			must(t, os.WriteFile(filepath.Join(s.dir, "Makefile"), []byte(makefile), 0o600))
			for range 2 { // the second time nothing is left of the first
				code, said := s.run(os.Getenv("PATH"), "scripts/all")
				lines := strings.Split(strings.TrimSpace(said), "\n")
				last := ""
				for _, l := range lines { // make reports a failed target on stderr, which comes after
					if strings.HasSuffix(l, "skipped") {
						last = l
					}
				}
				if (code != 0) != (c.code != 0) || last != c.last {
					t.Errorf("exit code %d, want %d; the last line is %q, want %q\n%s", code, c.code, last, c.last, said)
				}
				for _, want := range c.says {
					if !strings.Contains(said, want) {
						t.Errorf("it does not say %q:\n%s", want, said)
					}
				}
			}
		})
	}
}
