//go:build linux || darwin || freebsd

package vfs

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestOSKeepsTheOwner: what root makes in another's directory is given to him; what was
// there, under whatever name somebody put it there, is not.
func TestOSKeepsTheOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: only root can give files away")
	}
	const user = 65534
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret") // root's, in a directory of the user's
	for _, name := range []string{secret, filepath.Join(dir, "found")} {
		if err := os.WriteFile(name, []byte("root's"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Link(secret, filepath.Join(dir, "linked")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(dir, user, user); err != nil {
		t.Fatal(err)
	}
	o, err := OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	owner := func(name string) uint32 {
		t.Helper()
		info, err := os.Lstat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return info.Sys().(*syscall.Stat_t).Uid
	}
	if err := o.Mkdir("made"); err != nil {
		t.Fatal(err)
	}
	for name, flags := range map[string]Flag{"new": Create, "made/new": Create | Exclusive, "found": Create, "linked": Create} {
		f, err := o.Open(name, flags)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		f.Close()
	}
	f, err := OpenKept(filepath.Join(dir, "kept"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if f, err = OpenKept(secret, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
		t.Fatal(err)
	}
	f.Close()
	for name, want := range map[string]uint32{"made": user, "new": user, "made/new": user, "kept": user, "found": 0, "linked": 0, "secret": 0} {
		if got := owner(name); got != want {
			t.Errorf("%s belongs to %d, want %d", name, got, want)
		}
	}
	if who, err := o.Owner("found"); err != nil || who.UID != 0 || who.Mode != 0o600 || who.SelfUID != 0 {
		t.Errorf("found: %+v, %v", who, err)
	}
}
