package peers

import (
	"errors"
	"slices"
	"syscall"
	"testing"
	"time"

	"hansard/internal/vfs"
)

// newLeases are the leases of another process on a disk.
func newLeases(t *testing.T, d *vfs.Disk, name string, number uint64) *Leases {
	t.Helper()
	p := d.Process(name)
	if err := p.Mkdir(InstancesDir); err != nil {
		t.Fatal(err)
	}
	l := NewLeases(p, func() time.Duration { return 0 }, true)
	if _, err := l.Register(func() uint64 { return number }); err != nil {
		t.Fatal(err)
	}
	return l
}

// TestBellHeard: each ring is heard, exactly once, even if others ring at the same time.
func TestBellHeard(t *testing.T) {
	d := vfs.NewDisk(1)
	a, b := newLeases(t, d, "a", 1), newLeases(t, d, "b", 2)
	if a.OthersHear() {
		t.Error("somebody hears, though nobody has a bell")
	}
	bell, err := b.NewBell()
	if err != nil {
		t.Fatal(err)
	}
	if !a.OthersHear() || b.OthersHear() {
		t.Errorf("a finds that others hear: %v, b: %v", a.OthersHear(), b.OthersHear())
	}
	if _, any := bell.Heard(); any {
		t.Error("heard, though nobody called")
	}
	w := Waiter{Instance: b.Instance().Base()}
	for i, name := range []string{"s", "s", "t"} {
		if err := a.Ring(w, name, uint64(i+1)); err != nil {
			t.Fatal(err)
		}
	}
	if slots, any := bell.Heard(); !any || !slots[BellSlot("s")] || !slots[BellSlot("t")] || slots[BellSlot("u")] {
		t.Errorf("heard for s: %v, t: %v, u: %v", slots[BellSlot("s")], slots[BellSlot("t")], slots[BellSlot("u")])
	}
	if _, any := bell.Heard(); any {
		t.Error("heard twice")
	}
	// A file damaged from outside does no harm.
	if err := bell.f.Truncate(0); err != nil {
		t.Fatal(err)
	}
	bell.Heard()
	if err := a.Ring(w, "s", 4); err != nil {
		t.Fatal(err)
	}
	if slots, _ := bell.Heard(); !slots[BellSlot("s")] {
		t.Error("not heard again")
	}
}

// TestBellFullDisk: on a full disk no bell is made, and nothing is left of it; an existing
// bell can be rung.
func TestBellFullDisk(t *testing.T) {
	d := vfs.NewDisk(1)
	a, b := newLeases(t, d, "a", 1), newLeases(t, d, "b", 2)
	bell, err := a.NewBell()
	if err != nil {
		t.Fatal(err)
	}
	d.Inject(vfs.Match{Kind: vfs.OpWrite, Name: BellsDir + "/" + b.Instance().Base()}, vfs.Fault{Err: syscall.ENOSPC, Always: true})
	if _, err := b.NewBell(); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a bell on a full disk: %v", err)
	}
	if slices.Contains(d.Names(), BellsDir+"/"+b.Instance().Base()) {
		t.Errorf("left: %v", d.Names())
	}
	if size, err := bell.f.Size(); err != nil || size != 8*BellSlots {
		t.Errorf("the bell has %d bytes, %v: to ring would need space", size, err)
	}
}

// TestBellsOfTheDead: bells of processes without an instance file are removed, others not.
func TestBellsOfTheDead(t *testing.T) {
	d := vfs.NewDisk(1)
	a, b := newLeases(t, d, "a", 1), newLeases(t, d, "b", 2)
	for _, l := range []*Leases{a, b} {
		if _, err := l.NewBell(); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.fs.Remove(b.Instance().Name); err != nil {
		t.Fatal(err)
	}
	removeBells(a.fs)
	bells, err := a.fs.ReadDir(BellsDir)
	if err != nil || len(bells) != 1 || bells[0].Name != a.Instance().Base() {
		t.Errorf("bells: %v, %v", bells, err)
	}
}
