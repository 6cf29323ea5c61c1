//go:build linux

package peers

import (
	"testing"
	"time"

	"hansard/internal/vfs"
)

// someProcesses are n processes on a directory that last changed long ago. changed updates
// a directory's timestamps: files made within one tick of the clock do not.
func someProcesses(t *testing.T, n int) (all []*Leases, dir *vfs.OS, changed func(name string)) {
	t.Helper()
	dir, err := vfs.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = dir.Close() })
	if err := dir.Mkdir(InstancesDir); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		l := NewLeases(dir, func() time.Duration { return 0 }, false)
		l.roster.now = func() time.Time { return time.Now().Add(time.Hour) }
		t.Cleanup(l.CloseRoster)
		if _, err := l.Register(func() uint64 { return uint64(i + 1) }); err != nil {
			t.Fatal(err)
		}
		all = append(all, l)
	}
	mark := time.Now().Add(-time.Hour)
	return all, dir, func(name string) {
		t.Helper()
		mark = mark.Add(time.Second)
		if err := dir.MarkDir(name, mark); err != nil {
			t.Fatal(err)
		}
	}
}

// tickets are the tickets of the waiters for session s, as a process sees them.
func tickets(l *Leases) (all []uint64) {
	next, _ := l.Waiters("s")
	for _, w := range next {
		all = append(all, w.Ticket)
	}
	return all
}

// TestRosterKept: the files of other processes stay open as long as none comes, goes or has
// its file replaced, and their announcements are still seen.
func TestRosterKept(t *testing.T) {
	all, dir, changed := someProcesses(t, 2)
	a, b := all[0], all[1]
	see := func(what string, want ...uint64) {
		t.Helper()
		got := tickets(a)
		if len(got) != len(want) {
			t.Fatalf("%s: %v, want %v", what, got, want)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Fatalf("%s: %v, want %v", what, got, want)
			}
		}
	}
	see("nobody waits")
	open := a.roster.members[b.Instance().Base()]
	if open == nil {
		t.Fatal("nothing is kept open")
	}
	a.roster.opened = time.Time{} // long ago
	b.Announce("s", 5)
	see("one waits", 5)
	if a.roster.members[b.Instance().Base()] != open {
		t.Error("its file was opened again")
	}

	c := NewLeases(dir, func() time.Duration { return 0 }, false)
	if _, err := c.Register(func() uint64 { return 9 }); err != nil {
		t.Fatal(err)
	}
	changed(InstancesDir)
	c.Announce("s", 4)
	a.roster.opened = time.Time{}
	see("another one came", 4, 5)

	// The file of a process is removed by hand, and the process makes it again under the
	// same name.
	if err := dir.Remove(b.Instance().Name); err != nil {
		t.Fatal(err)
	}
	if err := b.Instance().Renew(dir); err != nil {
		t.Fatal(err)
	}
	changed(InstancesDir)
	b.Withdraw("s")
	b.Announce("s", 6)
	a.roster.opened = time.Time{}
	see("its file was made anew", 4, 6)

	_ = c.Instance().File().Close() // it died
	see("one is dead", 6)

	a.roster.used = time.Now().Add(-2 * rosterKept)
	a.roster.expire()
	if a.roster.members != nil {
		t.Error("files stay open that nobody uses")
	}
	see("it is opened again", 6)
}

// TestRosterBells: a bell is kept open, and if it is removed and made again, the new one is
// rung.
func TestRosterBells(t *testing.T) {
	all, dir, changed := someProcesses(t, 2)
	a, b := all[0], all[1]
	w := Waiter{Instance: b.Instance().Base()}
	if a.OthersHear() {
		t.Fatal("there is no bell")
	}
	bell, err := b.NewBell()
	if err != nil {
		t.Fatal(err)
	}
	number := uint64(0)
	heard := func(what string) {
		t.Helper()
		if first, second := a.OthersHear(), a.OthersHear(); !first || !second { // read, then remembered
			t.Fatalf("%s: nobody hears", what)
		}
		for range 3 {
			number++
			if err := a.Ring(w, "s", number); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if slots, _ := bell.Heard(); !slots[BellSlot("s")] {
				t.Fatalf("%s: not heard", what)
			}
		}
	}
	heard("before the others are known")
	b.Announce("s", 1)
	tickets(a)
	changed(BellsDir)
	heard("a bell")
	if a.roster.members[w.Instance].bell == nil {
		t.Error("it is opened each time")
	}
	if err := dir.Remove(bell.Name); err != nil {
		t.Fatal(err)
	}
	changed(BellsDir)
	if err := a.Ring(w, "s", 99); err == nil {
		t.Error("a bell that is gone was rung")
	}
	if a.OthersHear() {
		t.Error("the bell is gone")
	}
	if bell, err = b.NewBell(); err != nil {
		t.Fatal(err)
	}
	changed(BellsDir)
	heard("the bell made anew")
	bell.Close(dir)
	changed(BellsDir)
	if a.OthersHear() {
		t.Error("a process that left has a bell")
	}
}
