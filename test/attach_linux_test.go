package test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// attachedFiles is the attachment files of a store, including unfinished uploads.
func attachedFiles(t *testing.T, store string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(store, "attachments", "*", "*"))
	must(t, err)
	return files
}

// picture is a file to attach, and its digest.
func picture(t *testing.T, size int) (file, digest string, content []byte) {
	t.Helper()
	content = bytes.Repeat([]byte("0123456789abcde\n"), size/16)
	file = filepath.Join(t.TempDir(), "picture.png")
	must(t, os.WriteFile(file, content, 0o644))
	return file, fmt.Sprintf("sha256:%x", sha256.Sum256(content)), content
}

// TestAttachFullDisk: an upload that finds the disk full says so and leaves nothing behind; the
// session goes on, and the upload succeeds once there is space.
func TestAttachFullDisk(t *testing.T) {
	dir := newTmpfs(t, "120m")
	store := filepath.Join(dir, "store")
	ok(t, store, "append", "demo", "one", "--create")
	file, digest, content := picture(t, 24<<20)
	// Less space is left than the file takes, so that it fails halfway.
	free := filepath.Join(dir, "free")
	must(t, os.WriteFile(free, make([]byte, 8<<20), 0o644))
	filler := fill(t, dir)
	must(t, os.Remove(free))
	for _, args := range [][]string{{"attach", "demo", file, "--json"}, {"append", "demo", "look", "--attach", file, "--json"}} {
		r := run(t, command(store, args...))
		if _, message := r.failure(); r.code != 1 || !strings.Contains(message, "no space left") {
			t.Errorf("%s on a full disk: exit code %d, %s%s", args[0], r.code, r.stdout, r.stderr)
		}
		if left := attachedFiles(t, store); len(left) > 0 {
			t.Errorf("%s left %q", args[0], left)
		}
	}
	if events := ok(t, store, "show", "demo", "--json"); strings.Count(events, "\n") != 1 {
		t.Errorf("the session has:\n%s", events)
	}
	must(t, os.Remove(filler))
	ok(t, store, "append", "demo", "look", "--attach", file)
	if got := run(t, command(store, "get", "demo", digest, "-o", "-")); got.code != 0 || got.stdout != string(content) {
		t.Errorf("get: exit code %d, %d bytes\n%s", got.code, len(got.stdout), got.stderr)
	}
	ok(t, store, "verify")
}

// TestAttachedReadOnly: attachments can be read from a file system that is mounted read-only.
// Attaching there gives a clear error.
func TestAttachedReadOnly(t *testing.T) {
	dir := newTmpfs(t, "120m")
	store := filepath.Join(dir, "store")
	file, digest, content := picture(t, 1<<20)
	ok(t, store, "append", "demo", "look", "--create", "--attach", file)
	if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		skip(t, "it can't be mounted read-only: %v", err)
	}
	if got := run(t, command(store, "get", "demo", digest, "-o", "-")); got.code != 0 || got.stdout != string(content) {
		t.Errorf("get: exit code %d, %d bytes\n%s", got.code, len(got.stdout), got.stderr)
	}
	ok(t, store, "show", "demo")
	r := run(t, command(store, "attach", "demo", file, "--json"))
	if _, message := r.failure(); r.code != 1 || !strings.Contains(message, "read-only") {
		t.Errorf("attach: exit code %d, %s%s", r.code, r.stdout, r.stderr)
	}
	must(t, syscall.Mount("", dir, "", syscall.MS_REMOUNT, ""))
	ok(t, store, "attach", "demo", file)
}

// TestAttachedOfOthers: an attachment that a user has no right to is named, with its owner and
// what to do; it is not called damaged, and the session goes on.
func TestAttachedOfOthers(t *testing.T) {
	u := newUsersStore(t)
	file, digest, content := picture(t, 1<<16)
	must(t, os.Chmod(filepath.Dir(file), 0o755))
	must(t, os.Chmod(filepath.Dir(filepath.Dir(file)), 0o755))
	u.ok(nobody, "new", "demo")
	u.ok(0, "append", "demo", "look", "--attach", file) // owned by root, in a user's store
	if got := u.ok(nobody, "get", "demo", digest, "-o", "-"); got != string(content) {
		t.Errorf("what root attached: %d bytes", len(got))
	}
	attached := attachedFiles(t, u.dir)
	if len(attached) != 1 {
		t.Fatalf("the store has %q", attached)
	}
	must(t, os.Chown(attached[0], 0, 0))
	r := u.as(nobody, "get", "demo", digest, "-o", "-")
	said := r.stdout + r.stderr
	if r.code != 1 || !strings.Contains(said, "belongs to root") || !strings.Contains(said, "attachments/demo/") || strings.Contains(said, "damage") {
		t.Errorf("get: exit code %d\n%s", r.code, said)
	}
	u.ok(nobody, "append", "demo", "goes on")
	if r := u.as(nobody, "verify"); r.code == 0 || strings.Contains(r.stdout+r.stderr, "damage") {
		t.Errorf("verify: exit code %d\n%s%s", r.code, r.stdout, r.stderr)
	}
}
