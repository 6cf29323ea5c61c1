package filestore

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"

	"hansard"
	"hansard/internal/vfs"
)

// replacedBefore has process b replace the log of a session by one with other checksums, and be
// killed at its k-th change, or fail to sync a directory for the k-th time. Another process
// writes to the session, and the power is cut. What was acknowledged is there, and the session
// is not damaged by it. tried: b was struck.
func replacedBefore(d *vfs.Disk, replace func(b *Store) error, strike func(d *vfs.Disk)) (tried bool, err error) {
	ctx := context.Background()
	a, err := openOn(d.Process("a"), 11, simRing)
	if err != nil {
		return false, err
	}
	pb := d.Process("b")
	b, err := openOn(pb, 12, simRing)
	if err != nil {
		return false, err
	}
	d.OnOp(func(op vfs.Op) { tried = tried || op.Proc == "b" && errors.Is(op.Err, syscall.EIO) })
	strike(d)
	_ = replace(b)
	tried = tried || pb.Dead()
	d.ClearRules()
	r, err := a.Append(ctx, "s", hansard.Batch{Events: []hansard.Event{text("after")}})
	if err != nil {
		return tried, nil // still damaged, or still deleted
	}
	d.PowerCut(vfs.Cut{})
	c, err := openOn(d.Process("c"), 13, simRing)
	if err != nil {
		return tried, err
	}
	last := ""
	for e, err := range c.Read(ctx, "s", hansard.Range{After: r.Last - 1}) {
		if err != nil {
			return tried, err
		}
		last = string(e.Data)
	}
	if last != `"after"` {
		return tried, fmt.Errorf("event %d was acknowledged, and is %q", r.Last, last)
	}
	return tried, c.Close()
}

// redactedAndKilled is replacedBefore for a redaction, killed at each of its changes.
func redactedAndKilled() error {
	for k := 1; ; k++ {
		d := vfs.NewDisk(1)
		s, err := openOn(d.Process("setup"), 1, simRing)
		if err == nil {
			err = errors.Join(tell(s), s.Close())
		}
		if err != nil {
			return err
		}
		tried, err := replacedBefore(d, redactTold, func(d *vfs.Disk) {
			d.KillAt(vfs.Match{Proc: "b", Kind: vfs.OpChange, N: k}, -1)
		})
		if err != nil || !tried {
			return err
		}
	}
}

// TestReplacedIsDurable: nothing is written after the lines of a log that replaced another one
// until a power cut can no longer bring the other one back, also if the process that replaced it
// died before that, or its sync failed.
func TestReplacedIsDurable(t *testing.T) {
	ctx := context.Background()
	told := func(t testing.TB, deleted bool) *vfs.Disk {
		d := vfs.NewDisk(1)
		s := openSim(t, d.Process("setup"), 1)
		want(t, "prepare", tell(s), nil)
		if deleted {
			want(t, "prepare", s.Delete(ctx, "s", ""), nil)
		}
		want(t, "prepare", s.Close(), nil)
		return d
	}
	for _, of := range []struct {
		name    string
		made    func(t testing.TB) *vfs.Disk
		replace func(b *Store) error
	}{
		{"repair", func(t testing.TB) *vfs.Disk {
			d, _ := damagedSession(t, broken(3))
			return d
		}, func(b *Store) error {
			_, err := b.Repair(ctx, "s")
			return err
		}},
		{"redaction", func(t testing.TB) *vfs.Disk { return told(t, false) }, redactTold},
		{"reuse", func(t testing.TB) *vfs.Disk { return told(t, true) }, func(b *Store) error {
			_, err := b.Create(ctx, "s", hansard.Meta{Reuse: true})
			return err
		}},
	} {
		for what, strike := range map[string]func(d *vfs.Disk, k int){
			"killed": func(d *vfs.Disk, k int) {
				d.KillAt(vfs.Match{Proc: "b", Kind: vfs.OpChange, N: k}, -1)
			},
			"sync fails": func(d *vfs.Disk, k int) {
				d.Inject(vfs.Match{Proc: "b", Kind: vfs.OpSyncDir, N: k}, vfs.Fault{Err: syscall.EIO})
			},
		} {
			t.Run(of.name+" "+what, func(t *testing.T) {
				for k := 1; ; k++ {
					tried, err := replacedBefore(of.made(t), of.replace, func(d *vfs.Disk) { strike(d, k) })
					if err != nil {
						t.Fatalf("operation %d: %v", k, err)
					}
					if !tried {
						return
					}
				}
			})
		}
	}
}
