package filestore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"hansard"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

// leaveFree sets the capacity of a simulated disk so that this many bytes are free.
func leaveFree(d *vfs.Disk, bytes int64) error {
	d.Capacity = 1 << 40
	free, err := d.Process("measures").Free()
	d.Capacity -= int64(free) - bytes
	return err
}

// fullOfTold is a store with the sessions of tell, and a large one, on a disk so full that
// nothing can be appended.
func fullOfTold(d *vfs.Disk, proc string) (*Store, error) {
	s, err := openOn(d.Process(proc), 1, simRing)
	if err == nil {
		err = tell(s)
	}
	for i := 0; err == nil && i < 4; i++ {
		_, err = s.Append(context.Background(), "s", hansard.Batch{Events: []hansard.Event{text("secret %s", strings.Repeat("x", 40_000))}})
	}
	if err == nil {
		err = s.checkpoints.checkpoint(true)
	}
	if err == nil {
		err = leaveFree(d, diskReserve)
	}
	return s, err
}

// TestDeleteOnFullDisk: on a disk too full for an append a delete is done, also when it waits
// together with appends, which are refused; once it is erased there is space for them.
func TestDeleteOnFullDisk(t *testing.T) {
	d := vfs.NewDisk(1)
	s, err := fullOfTold(d, "a")
	want(t, "fill", err, nil)
	say(t, s, "other", hansard.ErrNoSpace, "too much")
	first, gone, last := newAppend("other", &hansard.Batch{Events: []hansard.Event{text("one")}}), newDelete("s", ""), newAppend("new", &hansard.Batch{Create: true, Events: []hansard.Event{text("two")}})
	s.committer.submitAll(t.Context(), []*request{first, gone, last})
	want(t, "the append before", first.err, hansard.ErrNoSpace)
	want(t, "delete", gone.err, nil)
	want(t, "the append behind", last.err, hansard.ErrNoSpace)
	if errors.Is(errors.Join(first.err, last.err), hansard.ErrUnknown) {
		t.Errorf("%v, %v: want it to be certain", first.err, last.err)
	}
	want(t, "checkpoint", s.checkpoints.checkpoint(true), nil)
	if err := wantErased(d, "secret"); err != nil {
		t.Error(err)
	}
	say(t, s, "other", nil, "there is space again")
	hears(t, s, "other", "stays", "there is space again")
	want(t, "deleted", wantDeleted(s), nil)
}

// TestDeleteKeepsWhatErasingTakes: deletes leave as much space as erasing needs, and those that
// would take it are refused.
func TestDeleteKeepsWhatErasingTakes(t *testing.T) {
	d := vfs.NewDisk(1)
	s, err := fullOfTold(d, "a")
	want(t, "fill", err, nil)
	want(t, "limit", leaveFree(d, eraseReserve), nil)
	if err := s.Delete(t.Context(), "s", ""); !errors.Is(err, hansard.ErrNoSpace) || errors.Is(err, hansard.ErrUnknown) {
		t.Errorf("delete: %v, want ErrNoSpace", err)
	}
	if _, err := s.Stat(t.Context(), "s"); err != nil {
		t.Errorf("the session whose delete was refused: %v", err)
	}
	want(t, "limit", leaveFree(d, eraseReserve+2*tombstoneBlock), nil)
	want(t, "delete", s.Delete(t.Context(), "s", ""), nil)
	want(t, "checkpoint", s.checkpoints.checkpoint(true), nil)
	if err := wantErased(d, "secret"); err != nil {
		t.Error(err)
	}
}

// TestDeleteWhileTheDiskFills: somebody else takes the reserve when the tombstone is in the
// journal already. The outcome is unknown, writers are refused for certain, and when there is
// space the session is deleted.
func TestDeleteWhileTheDiskFills(t *testing.T) {
	d := vfs.NewDisk(1)
	s, err := fullOfTold(d, "a")
	want(t, "fill", err, nil)
	d.Inject(vfs.Match{Kind: vfs.OpWrite, Name: sessionlog.Dir + "/*"}, vfs.Fault{Err: syscall.ENOSPC, Always: true})
	want(t, "delete", s.Delete(t.Context(), "s", ""), hansard.ErrUnknown)
	for what, err := range map[string]error{"delete": s.Delete(t.Context(), "other", ""), "append": appendTo(s, "other")} {
		if !errors.Is(err, hansard.ErrNoSpace) || errors.Is(err, hansard.ErrUnknown) {
			t.Errorf("%s: %v, want ErrNoSpace", what, err)
		}
	}
	d.ClearRules()
	d.Capacity = 0
	say(t, s, "other", nil, "goes on")
	hears(t, s, "other", "stays", "goes on")
	want(t, "deleted", wantDeleted(s), nil)
}

func appendTo(s *Store, id hansard.SessionID) error {
	_, err := s.Append(context.Background(), id, hansard.Batch{Events: []hansard.Event{text("more")}})
	return err
}

// TestSimDeleteOnFullDisk: whichever operation of a delete on a full disk, and of erasing,
// finds no space or is the last before a power cut, the other session keeps what was stored, the
// deleted one is whole or deleted, and when there is space everything works.
func TestSimDeleteOnFullDisk(t *testing.T) {
	for name, disaster := range map[string]func(d *vfs.Disk, n int){
		"no space":  func(d *vfs.Disk, n int) { d.Inject(vfs.Match{N: n}, vfs.Fault{Err: syscall.ENOSPC, Part: -1}) },
		"from then": fullFrom,
		"power cut": func(d *vfs.Disk, n int) { d.CutAt(vfs.Match{N: n}, vfs.Cut{}) },
	} {
		t.Run(name, func(t *testing.T) {
			for k := 1; ; k++ {
				d := vfs.NewDisk(1)
				s, err := fullOfTold(d, "a")
				want(t, "fill", err, nil)
				begin := d.Ops()
				disaster(d, k)
				deleted := s.Delete(t.Context(), "s", "")
				_ = s.checkpoints.checkpoint(true)
				over := d.Ops() < begin+k
				d.ClearRules()
				d.Capacity = 0
				if err := judgeDeleteOnFullDisk(d, deleted); err != nil {
					t.Fatalf("operation %d, delete: %v: %v\n%s", k, deleted, err, trace(d, 60))
				}
				if over {
					t.Logf("%d operations", k)
					return
				}
			}
		})
	}
}

// fullFrom makes every write fail that would need space, from the n-th operation on.
func fullFrom(d *vfs.Disk, n int) {
	begin, done := d.Ops(), false
	d.OnOp(func(vfs.Op) {
		if !done && d.Capacity > 0 && d.Ops() >= begin+n {
			done = true
			d.Inject(vfs.Match{Kind: vfs.OpWrite, Name: "*.tmp"}, vfs.Fault{Err: syscall.ENOSPC, Always: true})
			d.Inject(vfs.Match{Kind: vfs.OpWrite, Name: sessionlog.Dir + "/*"}, vfs.Fault{Err: syscall.ENOSPC, Always: true})
		}
	})
}

func judgeDeleteOnFullDisk(d *vfs.Disk, deleted error) error {
	d.PowerCut(vfs.Cut{})
	s, err := openOn(d.Process("next"), 3, simRing)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := appendTo(s, "other"); err != nil {
		return fmt.Errorf("append: %w", err)
	}
	if info, err := s.Stat(context.Background(), "other"); err != nil || info.LastSeq != 2 {
		return fmt.Errorf("the other session: %+v, %w", info, err)
	}
	if err := errors.Join(wantSound(s, "other"), wantSound(s, "s")); err != nil {
		return err
	}
	info, err := s.Stat(context.Background(), "s")
	switch {
	case err == nil && deleted == nil:
		return errors.New("a delete that was acknowledged is lost")
	case err == nil && info.LastSeq != 10:
		return fmt.Errorf("the session has %d events", info.LastSeq)
	case err == nil:
		if err := s.Delete(context.Background(), "s", ""); err != nil {
			return fmt.Errorf("delete: %w", err)
		}
	case !errors.Is(err, hansard.ErrDeleted):
		return err
	}
	if err := s.checkpoints.checkpoint(true); err != nil {
		return err
	}
	return errors.Join(wantErased(d, "secret"), wantDeleted(s))
}
