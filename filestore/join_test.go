package filestore

import (
	"errors"
	"syscall"
	"testing"
	"time"

	"hansard/filestore/internal/peers"
	"hansard/internal/vfs"
)

// TestJoinFailed: a process that failed to join a new store, and goes on, does not look to others
// as if it had joined. They make the journal that it could not make, and then it joins too.
// (Found by TestSimErrors and TestSimPairs.)
func TestJoinFailed(t *testing.T) {
	for name, fail := range map[string]func(*vfs.Disk){
		"locked, and told that it is not": func(d *vfs.Disk) {
			d.Inject(vfs.Match{Proc: "a", Kind: vfs.OpTryLock, Name: peers.OpenLock}, vfs.Fault{Err: syscall.EIO, Done: true})
		},
		"no journal, and not unlocked": func(d *vfs.Disk) {
			d.Inject(vfs.Match{Proc: "a", Kind: vfs.OpWrite, Name: "journal.*"}, vfs.Fault{Err: syscall.ENOSPC})
			d.Inject(vfs.Match{Proc: "a", Kind: vfs.OpUnlock, Name: peers.OpenLock}, vfs.Fault{Err: syscall.EIO})
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := vfs.NewDisk(1)
			fail(d)
			cfg := simConfig(1, simRing)
			cfg.anyway = true
			a, err := open(d.Process("a"), Options{LockWait: time.Hour}, cfg)
			if err != nil || a.lock.state.attached {
				t.Fatalf("open: %v, takes part: %v", err, a.lock.state.attached)
			}
			b := openSim(t, d.Process("b"), 2)
			say(t, b, "s", nil, "one")
			say(t, a, "s", nil, "two")
			hears(t, b, "s", "one", "two")
			if err := errors.Join(a.Close(), b.Close()); err != nil {
				t.Fatal(err)
			}
		})
	}
}
