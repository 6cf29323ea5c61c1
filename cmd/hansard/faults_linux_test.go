package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// mountTmpfs mounts a small file system, or skips the test where that is not allowed.
func mountTmpfs(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("SKIPPED, needs root to mount a file system: %v", err)
	}
	t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
	return dir
}

// refused runs a command that must fail with exit code 1 and a message, not a panic.
func refused(t *testing.T, store, words string, args ...string) {
	t.Helper()
	cmd := exec.Command("hansard", args...)
	cmd.Env = append(cmd.Environ(), "HANSARD_STORE="+store)
	out, _ := cmd.CombinedOutput()
	text := string(out)
	if code := cmd.ProcessState.ExitCode(); code != exitOther || !strings.HasPrefix(text, "hansard: ") || !strings.Contains(text, words) || strings.Contains(text, "goroutine") {
		t.Errorf("hansard %s: exit code %d, output %q, want 1 and %q", strings.Join(args, " "), code, text, words)
	}
}

// TestFullDisk: a full disk gives a clear error, nothing acknowledged is lost, and it works again
// when there is space.
func TestFullDisk(t *testing.T) {
	dir := mountTmpfs(t, "96m")
	store := filepath.Join(dir, "store")
	hansardOK(t, store, "append", "demo", "one", "--create")
	fill := filepath.Join(dir, "fill")
	f, err := os.Create(fill)
	if err != nil {
		t.Fatal(err)
	}
	block := make([]byte, 4096)
	for err == nil {
		_, err = f.Write(block)
	}
	f.Close()
	refused(t, store, "no space", "append", "demo", strings.Repeat("x", 100_000))
	if got := hansardOK(t, store, "show", "demo", "--json"); strings.Count(got, "\n") != 1 {
		t.Errorf("on a full disk: %s", got)
	}
	hansardOK(t, store, "verify")
	if err := os.Remove(fill); err != nil {
		t.Fatal(err)
	}
	if got := hansardOK(t, store, "append", "demo", "two"); !strings.Contains(got, "seq 2") {
		t.Errorf("after making space: %s", got)
	}
}

// TestFullDiskNew: a store that does not fit is refused.
func TestFullDiskNew(t *testing.T) {
	store := filepath.Join(mountTmpfs(t, "64k"), "store")
	refused(t, store, "no space", "new", "demo")
	refused(t, store, "no space", "append", "demo", "x", "--create")
}

// TestReadOnly: a store on a read-only file system can be read; writes are
// refused and change nothing.
func TestReadOnly(t *testing.T) {
	dir := mountTmpfs(t, "128m")
	store := filepath.Join(dir, "store")
	hansardOK(t, store, "append", "demo", "one", "--create")
	if err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	refused(t, store, "read-only", "append", "demo", "two")
	refused(t, store, "read-only", "new", "other")
	refused(t, store, "read-only", "set", "demo", "--title", "x")
	refused(t, store, "read-only", "rm", "demo", "--yes")
	refused(t, filepath.Join(dir, "new"), "read-only", "new", "demo")
	for _, args := range [][]string{{"show", "demo"}, {"tail", "demo"}, {"stat", "demo"}, {"ls"}, {"verify"}} {
		hansardOK(t, store, args...)
	}
}

// TestPermissions: a store of another user gives a clear error.
func TestPermissions(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("SKIPPED, root may read everything; TestReadOnly covers writes")
	}
	store := filepath.Join(t.TempDir(), "store")
	hansardOK(t, store, "append", "demo", "one", "--create")
	if err := os.Chmod(store, 0o500); err != nil {
		t.Fatal(err)
	}
	refused(t, filepath.Join(store, "deeper"), "permission", "new", "demo")
	if err := os.Chmod(store, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Chmod(store, 0o700) })
	refused(t, store, "permission", "ls")
	refused(t, store, "permission", "append", "demo", "two")
}
