package test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// injection makes strace interfere with the k-th call of a name. strace counts per thread, and a
// Go program moves between threads: sweeping k over a name hits about every call, not each
// exactly once.
type injection struct {
	call  string
	fault string // signal=SIGKILL, error=EIO, …
	when  int
}

func (in injection) String() string { return fmt.Sprintf("%s %s %d", in.call, in.fault, in.when) }

// traced is a command under strace, and the file that strace writes to.
func (in injection) traced(t *testing.T, cmd *exec.Cmd) (traced *exec.Cmd, trace string) {
	t.Helper()
	trace = filepath.Join(t.TempDir(), "trace")
	// The call must be in trace= too. Not with --seccomp-bpf, which skips signals.
	args := []string{"-f", "-qq", "-o", trace, "-e", "trace=" + in.call,
		"-e", fmt.Sprintf("inject=%s:%s:when=%d", in.call, in.fault, in.when), "--"}
	traced = exec.Command("strace", append(args, cmd.Args...)...)
	traced.Env, traced.Stdin = cmd.Env, cmd.Stdin
	return traced, trace
}

// saw reports whether strace recorded a text.
func saw(trace, text string) bool {
	b, err := os.ReadFile(trace)
	return err == nil && strings.Contains(string(b), text)
}

// needsStrace skips the test if processes can't be traced.
func needsStrace(t *testing.T) {
	t.Helper()
	needs(t, "strace")
	if out, err := exec.Command("strace", "-f", "-qq", "-o", os.DevNull, "true").CombinedOutput(); err != nil {
		skip(t, "strace can't trace here: %s", out)
	}
}

// sweep is a series of injections: every k of every call, or every step-th of calls that are many
// and alike.
type sweep struct {
	calls []string
	step  map[string]int
}

// storeCalls are the calls with which an append changes or reads the store, and write, with which
// the command answers.
var storeCalls = sweep{
	calls: []string{"pwrite64", "fdatasync", "fsync", "flock", "openat", "renameat", "mkdirat", "ftruncate",
		"unlinkat", "statx", "pread64", "lseek", "getdents64", "fstatfs", "write"},
	step: map[string]int{"pread64": 5, "statx": 3, "getdents64": 2},
}

// thinned is the same sweep with steps f times as long.
func (s sweep) thinned(f int) sweep {
	thin := sweep{calls: s.calls, step: map[string]int{}}
	for _, call := range s.calls {
		thin.step[call] = f * max(1, s.step[call])
	}
	return thin
}

// only is a sweep over every k of a few calls.
func only(calls ...string) sweep { return sweep{calls: calls} }

// each tries the sweep's injections until a call no longer occurs that often. try reports whether
// it occurred.
func (s sweep) each(fault func(n int) string, try func(injection) bool) (hits int) {
	for _, call := range s.calls {
		step := max(1, s.step[call])
		if torture := scale(1); torture > 1 {
			step = 1
		}
		// Limited, because every dead process leaves the next one more to do.
		for k := 1; k <= scale(40); k += step {
			in := injection{call, fault(hits), k}
			// A second chance: the call may have been made on another thread.
			if !try(in) && !try(in) { //nolint:staticcheck // it is not the same again
				break
			}
			hits++
		}
	}
	return hits
}

// memDir is a directory in memory, if there is one: a sweep over system calls is about their
// order, not about the disk, and makes many stores.
func memDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "hansard-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}
