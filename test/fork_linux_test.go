package test

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"hansard"
	"hansard/filestore"
)

// TestForkSharesBlocks: on a file system that can share blocks a fork takes no space for the
// history of its parent, and neither of the two is affected by changes to the other.
func TestForkSharesBlocks(t *testing.T) {
	for _, kind := range []string{"xfs", "btrfs"} {
		t.Run(kind, func(t *testing.T) {
			d := newDisk(t, kind, 500)
			dir := filepath.Join(d.dir, "store")
			s, err := filestore.Open(dir, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { s.Close() }()
			const events, each = 60, 1 << 20
			for i := range events {
				data := fmt.Appendf(nil, `"%d %s"`, i, strings.Repeat("x", each))
				if _, err := s.Append(t.Context(), "s", hansard.Batch{Events: []hansard.Event{{Data: data}}, Create: true}); err != nil {
					t.Fatal(err)
				}
			}
			syscall.Sync()
			before := used(t, d.dir)
			const forks = 4
			for i := range forks {
				if _, err := s.Fork(t.Context(), "s", hansard.Fork{As: hansard.SessionID(fmt.Sprint("f", i))}); err != nil {
					t.Fatal(err)
				}
			}
			syscall.Sync()
			if more := used(t, d.dir) - before; more > events*each/4 {
				t.Errorf("%d forks of %d MiB take %d MiB", forks, events*each>>20, more>>20)
			} else {
				t.Logf("%d forks of %d MiB take %d KiB", forks, events*each>>20, more>>10)
			}
			if err := s.Delete(t.Context(), "s", ""); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Prune(t.Context(), false); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Append(t.Context(), "f0", hansard.Batch{Events: []hansard.Event{{Data: []byte(`"own"`)}}}); err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			d.unmount()
			d.mount()
			if s, err = filestore.Open(dir, nil); err != nil {
				t.Fatal(err)
			}
			for i := range forks {
				for f, err := range s.Verify(t.Context(), hansard.SessionID(fmt.Sprint("f", i))) {
					if err != nil || f.Level == hansard.LevelDamage || f.Events < events+1 {
						t.Errorf("fork %d: %+v, %v", i, f, err)
					}
				}
			}
		})
	}
}

// used is the number of bytes in use on a file system.
func used(t *testing.T, dir string) int64 {
	t.Helper()
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	return int64(st.Blocks-st.Bfree) * st.Bsize
}
