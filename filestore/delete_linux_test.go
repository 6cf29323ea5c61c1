package filestore

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hansard"
	"hansard/filestore/internal/sessionlog"
)

// TestDeletedIsClosedForReal: once a process has heard that a session was deleted, the kernel
// shows no descriptor of its log in it, so removing the file frees its space.
func TestDeletedIsClosedForReal(t *testing.T) {
	ctx := context.Background()
	stores := openReal(t, 3)
	for _, s := range stores {
		say(t, s, "gone", nil, "secret")
		say(t, s, "stays", nil, "hello")
	}
	if n := len(descriptors(t, "gone")); n != len(stores) {
		t.Fatalf("%d descriptors before, want %d", n, len(stores))
	}
	want(t, "delete", stores[0].Delete(ctx, "gone", ""), nil)
	for _, s := range stores[1:] {
		want(t, "checkpoint", s.checkpoints.checkpoint(true), nil) // as the background does
	}
	if open := descriptors(t, "gone"); len(open) > 0 {
		t.Errorf("open are %q", open)
	}
	for _, s := range stores {
		say(t, s, "gone", hansard.ErrDeleted, "again")
	}
	if open := descriptors(t, "gone"); len(open) > 0 {
		t.Errorf("open again are %q", open)
	}
	if n := len(descriptors(t, "stays")); n == 0 {
		t.Error("nobody has the other session open")
	}
}

// descriptors are the open descriptors of this process for a session's log.
func descriptors(t *testing.T, name string) (open []string) {
	t.Helper()
	const fds = "/proc/self/fd"
	entries, err := os.ReadDir(fds)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if to, err := os.Readlink(filepath.Join(fds, e.Name())); err == nil && strings.Contains(to, sessionlog.Path(name)) {
			open = append(open, to)
		}
	}
	return open
}
