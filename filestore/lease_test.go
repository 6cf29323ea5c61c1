package filestore

import (
	"context"
	"errors"
	"syscall"
	"testing"

	"hansard"
	"hansard/filestore/internal/peers"
	"hansard/internal/vfs"
)

// tearRecords makes the next write to an instance file's table fail in the middle of a record.
func tearRecords(d *vfs.Disk, proc string) {
	d.Inject(vfs.Match{Proc: proc, Kind: vfs.OpWrite, Name: peers.InstancesDir + "/*"}, vfs.Fault{Err: syscall.EIO, Part: peers.RecordWidth / 2})
}

func mustAcquire(t *testing.T, s *Store, id hansard.SessionID) hansard.Grant {
	t.Helper()
	turn, err := s.Acquire(context.Background(), id, hansard.Claim{})
	if err != nil {
		t.Fatal(err)
	}
	return turn.Grant
}

// TestTornRecordOfAnother: a torn record of a turn that was given back does not hide the other
// turns of its process. (Found by TestSimPairs: until the process ended, anyone who wanted one of
// them got an error.)
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
	if n := a.leases.Counts(); n.Torn != 1 {
		t.Fatalf("%+v", n)
	}
	wantHeld(t, b, "kept", hansard.Claim{}, kept)
	mustAcquire(t, b, "over")
	a.leases.MendNow()
	if n := a.leases.Counts(); n.Torn > 0 || n.Slots != 1 {
		t.Errorf("after mending: %+v", n)
	}
}

// TestTornRecordIsNoDeath: while the record of a grant can't be read, its holder is not taken for
// dead; once the record is written again it counts as before.
func TestTornRecordIsNoDeath(t *testing.T) {
	d := vfs.NewDisk(1)
	a, b := openSim(t, d.Process("a"), 1), openSim(t, d.Process("b"), 2)
	say(t, a, "s", nil, "one")
	g := mustAcquire(t, a, "s")
	tearRecords(d, "a")
	if err := a.Renew(context.Background(), "s", g); !errors.Is(err, syscall.EIO) {
		t.Fatalf("renew: %v, want EIO", err)
	}
	if _, err := b.Acquire(context.Background(), "s", hansard.Claim{}); !errors.Is(err, peers.ErrTornRecord) {
		t.Fatalf("acquire: %v, want %v", err, peers.ErrTornRecord)
	}
	a.leases.MendNow()
	wantHeld(t, b, "s", hansard.Claim{}, g)
}

// TestTornRecordRefused: a claim that failed because its record could not be written leaves
// nothing behind that blocks anybody.
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
	if err := a.Renew(context.Background(), "kept", kept); err != nil { // which mends the record
		t.Fatal(err)
	}
	records, whole, err := peers.ReadTable(a.leases.Instance().File())
	if n := a.leases.Counts(); err != nil || !whole || n.Torn > 0 || n.Slots != 1 {
		t.Errorf("%+v, table whole: %v, %v", n, whole, err)
	}
	for _, r := range records {
		if r.Kind != peers.KindFree && r.Key != peers.NonceOf(kept) {
			t.Errorf("the table has %+v, of a turn that nobody was granted", r)
		}
	}
}
