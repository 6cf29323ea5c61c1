package test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// TestLargeAttachment: a file of 128 MiB is attached, got and copied, directly and through a
// server, and no process has more than a part of it in memory. The files are not on the disk: syncs
// of a gigabyte would keep the tests beside it waiting for longer than a write waits for its lock.
func TestLargeAttachment(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: it writes 1 GiB")
	}
	const size = 128 << 20
	dir := memDir(t)
	file := filepath.Join(dir, "large.bin")
	must(t, os.WriteFile(file, []byte("large"), 0o600))
	must(t, os.Truncate(file, size))
	digest := digestOfFile(t, file)
	store := filepath.Join(dir, "store")
	ok(t, store, "new", "demo")
	measured(t, store, "attach", "demo", file)
	named := filepath.Join(dir, "named.jsonl")
	must(t, os.WriteFile(named, fmt.Appendf(nil, `{"data":1,"attachments":[{"digest":%q,"size":%d}]}`+"\n", digest, size), 0o600))
	ok(t, store, "append", "demo", "--jsonl", named)

	s := startServer(t, store)
	served := "http://" + s.address
	t.Setenv("HANSARD_TOKEN", serverToken) // for the command
	measured(t, served, "attach", "demo", file)
	for _, from := range []string{store, served} {
		got := filepath.Join(dir, "got.bin")
		measured(t, from, "get", "demo", digest, "-o", got)
		if d := digestOfFile(t, got); d != digest {
			t.Errorf("from %s it is %s, and not %s", from, d, digest)
		}
		must(t, os.Remove(got))
		to := filepath.Join(dir, "copy")
		measured(t, from, "copy", from, to)
		if files := attachedFiles(t, to); len(files) != 1 || digestOfFile(t, files[0]) != digest {
			t.Errorf("the copy from %s has %q", from, files)
		}
		must(t, os.RemoveAll(to))
	}
	small(t, "serve", resident(t, s.cmd.Process.Pid))
	s.drain()
}

// small checks that a process had far less in memory than the file.
func small(t *testing.T, what string, peak int64) {
	t.Helper()
	if t.Logf("%s: %d MiB", what, peak>>10); peak > 64<<10 {
		t.Errorf("%s: %d MiB of memory", what, peak>>10)
	}
}

// measured runs the command, which must succeed in little memory.
func measured(t *testing.T, store string, args ...string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "peak")
	cmd := worker(t, "peak", file, program)
	cmd.Args = append(cmd.Args, args...)
	cmd.Env = append(cmd.Env, "HANSARD_STORE="+store)
	if r := run(t, cmd); r.code != 0 {
		t.Fatalf("hansard %s: exit code %d\n%s", strings.Join(args, " "), r.code, r.stderr)
	}
	content, err := os.ReadFile(file)
	must(t, err)
	peak, err := strconv.ParseInt(string(content), 10, 64)
	must(t, err)
	small(t, fmt.Sprint(args[0], " on ", store), peak)
}

// peakWorker: FILE PROGRAM ARGS…. It runs a program and writes its peak resident memory, in KiB,
// to a file. What Linux says of a process includes the memory of the one that started it, which
// has to be a small one, and not that of the tests.
func peakWorker(args []string) error {
	cmd := exec.Command(args[1], args[2:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return err
	}
	peak := cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss
	return os.WriteFile(args[0], fmt.Append(nil, peak), 0o600)
}

func init() { workers["peak"] = peakWorker }

// resident is the peak resident memory of a process that runs, in KiB.
func resident(t *testing.T, pid int) (peak int64) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	must(t, err)
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	if _, err := fmt.Sscanf(rest, "%d kB", &peak); err != nil {
		t.Fatalf("%v: %s", err, status)
	}
	return peak
}

func digestOfFile(t *testing.T, file string) string {
	t.Helper()
	f, err := os.Open(file)
	must(t, err)
	sum := sha256.New()
	_, err = io.Copy(sum, f)
	must(t, errors.Join(err, f.Close()))
	return fmt.Sprintf("sha256:%x", sum.Sum(nil))
}
