//go:build linux || darwin || freebsd

package vfs

import (
	"errors"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A FIFO in a file's place must be an error, not a wait for its other end.
func TestOSRefusesFIFO(t *testing.T) {
	o, dir := openTemp(t)
	if err := unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
		t.Skipf("SKIPPED: no FIFOs here: %v", err)
	}
	for _, flags := range []Flag{0, ReadOnly, Create} {
		if _, err := o.Open("fifo", flags); !errors.Is(err, errNotRegular) {
			t.Errorf("open (flags %d): %v; want a refusal", flags, err)
		}
	}
}
