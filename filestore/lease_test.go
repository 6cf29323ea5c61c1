package filestore

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"hansard"
	"hansard/internal/vfs"
)

// tearRecords has the next write to an instance file's table fail in the middle of a
// record.
func tearRecords(d *vfs.Disk, proc string) {
	d.Inject(vfs.Match{Proc: proc, Kind: vfs.OpWrite, Name: instancesDir + "/*"}, vfs.Fault{Err: syscall.EIO, Part: recordWidth / 2})
}

func mustAcquire(t *testing.T, s *Store, id hansard.SessionID) hansard.Grant {
	t.Helper()
	turn, err := s.Acquire(context.Background(), id, hansard.Claim{})
	if err != nil {
		t.Fatal(err)
	}
	return turn.Grant
}

// TestTornRecordOfAnother: a record that could not be written whole, of a turn that was
// given back, keeps nobody from seeing the other turns of its process. (Found by
// TestSimPairs: until the process ended, whoever wanted one got an error.)
func TestTornRecordOfAnother(t *testing.T) {
	d := vfs.NewDisk(1)
	a, b := openSim(t, d.Process("a"), 1), openSim(t, d.Process("b"), 2)
	say(t, a, "kept", nil, "one")
	say(t, a, "over", nil, "one")
	kept, over := mustAcquire(t, a, "kept"), mustAcquire(t, a, "over")
	tearRecords(d, "a")
	if err := a.Release(context.Background(), "over", over); err != nil {
		t.Fatal(err)
	}
	if len(a.leases.torn) != 1 {
		t.Fatalf("torn: %v", a.leases.torn)
	}
	wantHeld(t, b, "kept", hansard.Claim{}, kept)
	mustAcquire(t, b, "over")
	a.leases.mendNow()
	if slot := len(a.leases.used) - 1; len(a.leases.torn) > 0 || a.leases.used[slot] {
		t.Errorf("after mending: torn %v, used %v", a.leases.torn, a.leases.used)
	}
}

// TestTornRecordIsNoDeath: while the record of a grant itself can't be read nobody takes
// its holder for dead; once it is written again it counts as before.
func TestTornRecordIsNoDeath(t *testing.T) {
	d := vfs.NewDisk(1)
	a, b := openSim(t, d.Process("a"), 1), openSim(t, d.Process("b"), 2)
	say(t, a, "s", nil, "one")
	g := mustAcquire(t, a, "s")
	tearRecords(d, "a")
	if err := a.Renew(context.Background(), "s", g); !errors.Is(err, syscall.EIO) {
		t.Fatalf("renew: %v, want EIO", err)
	}
	if _, err := b.Acquire(context.Background(), "s", hansard.Claim{}); !errors.Is(err, errTornRecord) {
		t.Fatalf("acquire: %v, want %v", err, errTornRecord)
	}
	a.leases.mendNow()
	wantHeld(t, b, "s", hansard.Claim{}, g)
}

// TestTornRecordRefused: a turn that could not be taken because its record could not be
// written leaves nothing behind that is in somebody's way.
func TestTornRecordRefused(t *testing.T) {
	d := vfs.NewDisk(1)
	a, b := openSim(t, d.Process("a"), 1), openSim(t, d.Process("b"), 2)
	say(t, a, "kept", nil, "one")
	say(t, a, "s", nil, "one")
	kept := mustAcquire(t, a, "kept")
	tearRecords(d, "a")
	if _, err := a.Acquire(context.Background(), "s", hansard.Claim{}); !errors.Is(err, syscall.EIO) {
		t.Fatalf("acquire: %v, want EIO", err)
	}
	wantHeld(t, b, "kept", hansard.Claim{}, kept)
	mustAcquire(t, b, "s")
	if err := a.Renew(context.Background(), "kept", kept); err != nil { // and mends
		t.Fatal(err)
	}
	records, whole, err := readTable(a.leases.inst.f)
	if err != nil || !whole || len(a.leases.torn) > 0 || a.leases.used[1] {
		t.Errorf("torn %v, used %v, table whole: %v, %v", a.leases.torn, a.leases.used, whole, err)
	}
	for _, r := range records {
		if r.kind != kindFree && r.key != nonceOf(kept) {
			t.Errorf("the table has %+v, of a turn that nobody was granted", r)
		}
	}
}

// TestMender: a record that could not be written is, as soon as it can be, whether or
// not anything else happens.
func TestMender(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := vfs.NewDisk(1)
		p := d.Process("a")
		if err := p.Mkdir(instancesDir); err != nil {
			t.Fatal(err)
		}
		inst := &instance{name: instancesDir + "/x"}
		if err := inst.register(p, make([]byte, tableAt+tableStart*recordWidth)); err != nil {
			t.Fatal(err)
		}
		l := &leases{inst: inst, timers: true}
		d.Inject(vfs.Match{Kind: vfs.OpWrite, Name: instancesDir + "/*"}, vfs.Fault{Err: syscall.EIO, Part: recordWidth - 6, Always: true})
		l.mu.Lock()
		_, err := l.put(&tableRecord{kind: kindLease, key: 7, value: 1})
		l.mu.Unlock()
		if !errors.Is(err, syscall.EIO) {
			t.Fatalf("put: %v", err)
		}
		// The mender has the lock while it uses the disk, which is no place for two.
		time.Sleep(3 * mendEvery)
		synctest.Wait()
		l.mu.Lock()
		if len(l.torn) != 1 {
			t.Error("it counts as written, though that fails")
		}
		d.ClearRules()
		l.mu.Unlock()
		time.Sleep(mendEvery)
		synctest.Wait()
		l.mu.Lock()
		if _, whole, err := readTable(inst.f); len(l.torn) != 0 || !whole || err != nil {
			t.Errorf("torn %v, table whole: %v, %v", l.torn, whole, err)
		}
		l.mu.Unlock()
		l.stopAll()
	})
}
