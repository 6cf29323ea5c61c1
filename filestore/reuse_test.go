package filestore

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"hansard"
	"hansard/filestore/internal/journal"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

// reuseInterrupted kills the process that reuses an id, or cuts the power, at each of its
// operations. The session is then either the deleted one or the new one, whole, with everything
// acknowledged.
func reuseInterrupted() (states int, err error) {
	ctx := context.Background()
	for _, cut := range []*vfs.Cut{nil, {Keep: 0, Seed: 1}, {Keep: 50, Seed: 2}, {Keep: 50, Seed: 3}, {Keep: 100, Seed: 4}} {
		for k, done := 1, false; !done; k++ {
			d := vfs.NewDisk(1)
			d.PageSize, d.SectorSize = 512, 128
			a, err := openOn(d.Process("a"), 1, simRing)
			if err == nil {
				err = errors.Join(tell(a), a.Delete(ctx, "s", ""))
			}
			if err != nil {
				return states, err
			}
			b, err := openOn(d.Process("b"), 2, simRing)
			if err != nil {
				return states, err
			}
			at := vfs.Match{Proc: "b", Kind: vfs.OpChange, N: k}
			if cut == nil {
				d.KillAt(at, -1)
			} else {
				d.CutAt(at, *cut)
			}
			_, err = b.Create(ctx, "s", hansard.Meta{Title: "new", Reuse: true})
			made := err == nil
			said := false
			if err == nil {
				_, err = b.Append(ctx, "s", hansard.Batch{Events: []hansard.Event{text("first")}})
				said = err == nil
			}
			if err == nil {
				err = b.Close()
			}
			if done = err == nil && notKilled(d); err != nil && !errors.Is(err, vfs.ErrCrashed) && !errors.Is(err, hansard.ErrUnknown) {
				return states, fmt.Errorf("operation %d: %w", k, err)
			}
			d.ClearRules()
			if err := reusedOrDeleted(d, made, said); err != nil {
				return states, fmt.Errorf("%+v before operation %d: %w\n%s", cut, k, err, trace(d, 60))
			}
			states++
		}
	}
	return states, nil
}

// reusedOrDeleted checks a disk on which the reuse of an id was interrupted.
func reusedOrDeleted(d *vfs.Disk, made, said bool) error {
	ctx := context.Background()
	for i, who := range []string{"c", "d"} {
		s, err := openOn(d.Process(who), uint64(3+i), simRing)
		if err != nil {
			return err
		}
		info, err := s.Stat(ctx, "s")
		switch {
		case errors.Is(err, hansard.ErrDeleted) && !made:
		case err != nil:
			return fmt.Errorf("%s: %w", who, err)
		case info.Title != "new" || said && info.LastSeq != 1 || info.LastSeq > 1:
			return fmt.Errorf("%s finds %+v", who, info)
		}
		if err := errors.Join(s.checkpoints.checkpoint(true), wantSound(s, "s"), s.Close(), wantErased(d, "secret")); err != nil {
			return fmt.Errorf("%s: %w", who, err)
		}
		d.PowerCut(vfs.Cut{})
	}
	return nil
}

// TestSimReuseInterrupted: after a kill or a power cut at any step, an id is either deleted or
// reused.
func TestSimReuseInterrupted(t *testing.T) {
	states, err := reuseInterrupted()
	if err != nil {
		t.Fatal(err)
	}
	if t.Logf("%d states", states); states < 100 {
		t.Errorf("only %d states", states)
	}
}

// TestReuseOlderJournal: a journal older than the logs has entries of the previous session with
// the id. They do not go to the new one, and do not make it damaged.
func TestReuseOlderJournal(t *testing.T) {
	ctx := context.Background()
	d := vfs.NewDisk(1)
	a := openSim(t, d.Process("a"), 1)
	want(t, "tell", tell(a), nil)
	older, _ := d.CacheBytes(journal.Name)
	want(t, "delete", a.Delete(ctx, "s", ""), nil)
	_, err := a.Create(ctx, "s", hansard.Meta{Title: "new", Reuse: true})
	want(t, "reuse", err, nil)
	say(t, a, "s", nil, "first")
	want(t, "checkpoint", a.checkpoints.checkpoint(true), nil)
	d.PowerCut(vfs.Cut{})
	putFile(t, d, journal.Name, nil)
	putFile(t, d, journal.Name, older)
	mayOnlyRead(d, "r")
	r, err := open(d.Process("r"), Options{ReadOnly: true}, simConfig(5, simRing))
	want(t, "open to read", err, nil)
	hears(t, r, "s", "first")
	d.ClearRules()
	b := openSim(t, d.Process("b"), 2)
	hears(t, b, "s", "first")
	if err := errors.Join(wantSound(b, "s"), wantErased(d, "secret")); err != nil {
		t.Error(err)
	}
	say(t, b, "s", nil, "second")
}

// TestReuseKnownToOthers: a process that knows the session as deleted finds the new one, even if
// its log is exactly as long as the tombstone was.
func TestReuseKnownToOthers(t *testing.T) {
	ctx := context.Background()
	d := vfs.NewDisk(1)
	a, b := openSim(t, d.Process("a"), 1), openSim(t, d.Process("b"), 2)
	say(t, a, "s", nil, "old")
	say(t, b, "s", nil, "old")
	want(t, "delete", a.Delete(ctx, "s", ""), nil)
	want(t, "checkpoint", a.checkpoints.checkpoint(true), nil)
	say(t, b, "s", hansard.ErrDeleted, "no")
	erased, _ := d.CacheBytes(sessionlog.Path("s"))
	// A title that makes the new log equally long.
	title := ""
	for range 400 {
		h := sessionlog.AppendReused(nil, "s", 1, 2, b.cfg.now(), hansard.Meta{Title: title})
		if len(h) >= len(erased) {
			break
		}
		title += "x"
	}
	_, err := a.Create(ctx, "s", hansard.Meta{Title: title, Reuse: true})
	want(t, "reuse", err, nil)
	if now, _ := d.CacheBytes(sessionlog.Path("s")); len(now) != len(erased) {
		t.Fatalf("the logs have %d and %d bytes: the test is void", len(now), len(erased))
	}
	say(t, b, "s", nil, "new")
	hears(t, a, "s", "new")
	hears(t, b, "s", "new")
}
