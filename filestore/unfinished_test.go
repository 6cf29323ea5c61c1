package filestore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"hansard"
	"hansard/filestore/internal/journal"
	"hansard/filestore/internal/peers"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

// Work that a process left half done, this one or another, is not trusted.

// afterCut is the content of a session, as texts, after a power cut that loses everything
// unsynced.
func afterCut(d *vfs.Disk, id hansard.SessionID) (string, error) {
	c := d.Clone()
	c.PowerCut(vfs.Cut{})
	s, err := open(c.Process("after"), Options{}, simConfig(99, simRing))
	if err != nil {
		return "", err
	}
	defer s.Close()
	var all []string
	for e, err := range s.Read(context.Background(), id, hansard.Range{}) {
		if err != nil {
			return strings.Join(all, " "), err
		}
		all = append(all, strings.Trim(string(e.Data), `"`))
	}
	return strings.Join(all, " "), nil
}

// failedReload has a process follow the others to a ring that replaced one whose sync failed,
// with an error at its k-th operation on the way, and then write. Everything acknowledged must
// survive a power cut. tried: there was such an operation.
func failedReload(k int) (tried bool, err error) {
	ctx := context.Background()
	d := vfs.NewDisk(7)
	one, err := open(d.Process("P1"), Options{}, simConfig(1, simRing))
	if err != nil {
		return false, err
	}
	two, err := open(d.Process("P2"), Options{}, simConfig(2, simRing))
	if err != nil {
		return false, err
	}
	if _, err := one.Append(ctx, "a", hansard.Batch{Create: true, Events: []hansard.Event{text("first")}}); err != nil {
		return false, err
	}
	lost := newAppend("a", &hansard.Batch{Events: []hansard.Event{text("lost")}})
	lost.done = make(chan struct{}, 1)
	one.committer.queue.waiting = append(one.committer.queue.waiting, lost)
	g := one.committer.writeGroup()
	l, err := two.lock.lockCaughtUp() // its caches know the entry that is about to be lost
	if err != nil {
		return false, err
	}
	l.unlock()
	d.Inject(vfs.Match{Proc: "P1", Kind: vfs.OpSync, Name: journal.Name}, vfs.Fault{Err: syscall.EIO})
	d.OnOp(func(op vfs.Op) {
		if op.Kind == vfs.OpSync && op.Err != nil {
			d.Evict(journal.Name)
		}
	})
	one.committer.finishGroup(g)
	d.ClearRules()
	const kinds = vfs.OpOpen | vfs.OpRead | vfs.OpWrite | vfs.OpSync | vfs.OpSyncDir
	d.Inject(vfs.Match{Proc: "P2", Kind: kinds, N: k}, vfs.Fault{Err: syscall.EIO})
	d.OnOp(func(op vfs.Op) { tried = tried || op.Proc == "P2" && errors.Is(op.Err, syscall.EIO) })
	want := "first"
	for _, what := range []string{"second", "third"} {
		if _, err := two.Append(ctx, "a", hansard.Batch{Events: []hansard.Event{text("%s", what)}}); err == nil {
			want += " " + what
		} else if errors.Is(err, hansard.ErrUnknown) {
			return tried, nil // the outcome is unknown
		}
	}
	got, err := afterCut(d, "a")
	if err != nil || got != want {
		return tried, fmt.Errorf("operation %d of the reload fails: %q was acknowledged, %q is there: %v", k, want, got, err)
	}
	return tried, nil
}

// failedReloads fails each operation of a reload.
func failedReloads() error {
	for k := 1; k < 300; k++ {
		if tried, err := failedReload(k); err != nil || !tried {
			return err
		}
	}
	return errors.New("the reload does not end")
}

// TestFailure68_HalfAReload: a process that failed to follow the others to a new ring does not go
// on with it as if it had succeeded.
func TestFailure68_HalfAReload(t *testing.T) {
	tries := 0
	for k := 1; k < 300; k++ {
		tried, err := failedReload(k)
		if err != nil {
			t.Fatal(err)
		}
		if !tried {
			break
		}
		tries++
	}
	if tries < 10 {
		t.Errorf("%d operations failed; the reload has more", tries)
	}
}

// markedAgain has a checkpoint find a log that another process is syncing. That process finishes,
// writes to the log and syncs it again, which fails, and dies before it could copy the log, all
// before the checkpoint is over: its mark is the only trace.
func markedAgain() error {
	ctx := context.Background()
	d := vfs.NewDisk(1)
	pb := d.Process("b")
	a, err := open(d.Process("a"), Options{}, simConfig(1, simRing))
	if err != nil {
		return err
	}
	b, err := open(pb, Options{}, simConfig(2, simRing))
	if err != nil {
		return err
	}
	for _, s := range []*Store{a, b} {
		if _, err := s.Append(ctx, "s", hansard.Batch{Create: s == a, Events: []hansard.Event{text("x")}}); err != nil {
			return err
		}
	}
	if err := b.leases.Instance().Mark(0, peers.MarkOf("s")); err != nil {
		return err
	}
	var wrong error
	syncs := 0
	d.OnOp(func(op vfs.Op) {
		if op.Proc != "a" || op.Kind != vfs.OpSyncDir || op.Name != sessionlog.Dir {
			return
		}
		if syncs++; syncs != 2 { // the first sync is that of the copy, under write.lock
			return
		}
		wrong = errors.Join(wrong, b.leases.Instance().Mark(0, 0))
		_, err := b.Append(ctx, "s", hansard.Batch{Events: []hansard.Event{text("y")}})
		wrong = errors.Join(wrong, err)
		d.Inject(vfs.Match{Proc: "b", Kind: vfs.OpSync, Name: sessionlog.Path("s")}, vfs.Fault{Err: syscall.EIO})
		d.Inject(vfs.Match{Proc: "b", Kind: vfs.OpOpen, Name: "log.*.tmp"}, vfs.Fault{Err: syscall.EIO})
		_ = b.checkpoints.checkpoint(true) // its sync fails, and so does the copy
		pb.Kill()
		d.ClearRules()
	})
	if err := a.checkpoints.checkpoint(true); err != nil {
		return err
	}
	if syncs < 2 || wrong != nil {
		return fmt.Errorf("the scene was not played: %d syncs, %w", syncs, wrong)
	}
	if _, err := a.Append(ctx, "other", hansard.Batch{Create: true, Events: []hansard.Event{text("z")}}); err != nil {
		return err
	}
	if err := a.checkpoints.checkpoint(true); err != nil {
		return err
	}
	if got, err := afterCut(d, "s"); err != nil || got != "x x y" {
		return fmt.Errorf("after a power cut the session has %q: %v", got, err)
	}
	return nil
}

// TestFailure68_MarkedAgain: a mark that was dealt with while its process lived is not taken for
// done if the process has died since.
func TestFailure68_MarkedAgain(t *testing.T) {
	if err := markedAgain(); err != nil {
		t.Fatal(err)
	}
}

// markedByMend has a process put back lines that were set aside, and die between the failed sync
// of the log and the copy. No other process is there, and the ring has nothing for that log.
func markedByMend() error {
	ctx := context.Background()
	d := vfs.NewDisk(1)
	a, err := open(d.Process("a"), Options{}, simConfig(1, simRing))
	if err != nil {
		return err
	}
	if _, err := a.Append(ctx, "s", hansard.Batch{Create: true, Events: []hansard.Event{text("one")}}); err != nil {
		return err
	}
	d.Inject(vfs.Match{Kind: vfs.OpWrite, Name: "sessions/*"}, vfs.Fault{Err: syscall.EIO, Always: true})
	for range 4 {
		_, _ = a.Append(ctx, "s", hansard.Batch{Key: "two", Events: []hansard.Event{text("two")}}) // set aside
	}
	d.ClearRules()
	if err := a.checkpoints.checkpoint(true); err != nil { // the ring forgets it
		return err
	}
	d.Inject(vfs.Match{Proc: "a", Kind: vfs.OpSync, Name: "sessions/s.jsonl"}, vfs.Fault{Err: syscall.EIO})
	d.KillAt(vfs.Match{Proc: "a", Kind: vfs.OpOpen, Name: "log.*.tmp"}, 0)
	_, _ = a.checkpoints.mend("s")
	d.ClearRules()
	b, err := open(d.Process("b"), Options{}, simConfig(2, simRing))
	if err != nil {
		return err
	}
	told := 0
	for _, err := range b.Read(ctx, "s", hansard.Range{}) {
		if err == nil {
			told++
		}
	}
	got, err := afterCut(d, "s")
	if told < 2 || err != nil || len(strings.Fields(got)) < told {
		return fmt.Errorf("a reader was given %d events; after a power cut there is %q: %v", told, got, err)
	}
	return nil
}

// TestFailure68_MarkedByMend: recovery copies every log that a dead process had marked, even one
// that the ring has nothing for.
func TestFailure68_MarkedByMend(t *testing.T) {
	if err := markedByMend(); err != nil {
		t.Fatal(err)
	}
}

// TestEvictKeepsTheOpened: when too many files are open, the session being opened is not among
// those that are evicted.
func TestEvictKeepsTheOpened(t *testing.T) {
	for seed := range uint64(10) {
		d := vfs.NewDisk(seed + 1)
		s, err := openOn(d.Process("a"), seed+1, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range []hansard.SessionID{"s", "t", "u", "v", "w", "x"} {
			say(t, s, id, nil, "one")
		}
		l, err := s.lock.lockCaughtUp()
		if err != nil {
			t.Fatal(err)
		}
		l.logs.sessions["s"].closeLog()
		delete(l.logs.sessions, "s")
		l.unlock()
		d.Inject(vfs.Match{Proc: "a", Kind: vfs.OpOpen, Name: sessionlog.Path("s"), N: 1}, vfs.Fault{Err: syscall.EMFILE})
		var all []*request
		for _, what := range []string{"two", "three"} {
			all = append(all, newAppend("s", &hansard.Batch{Events: []hansard.Event{text("%s", what)}}))
		}
		s.committer.submitAll(context.Background(), all)
		for _, r := range all {
			if r.err != nil {
				t.Errorf("seed %d: %v %v", seed, r.receipt, r.err)
			}
		}
		if err := wantSound(s, "s"); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
}

// setAsideOf are the files set aside for a session, for tests in which they can be listed.
func setAsideOf(s *Store, name string) []string {
	files, err := s.asides.asides(name)
	if err != nil {
		panic(err)
	}
	return files
}

// TestAsidesUnknown: while it is not known what was set aside, nothing counts as stored, and no
// seq is assigned again.
func TestAsidesUnknown(t *testing.T) {
	ctx := context.Background()
	cantTell := func(d *vfs.Disk) {
		d.Inject(vfs.Match{Proc: "a", Kind: vfs.OpReadDir, Name: asideDir}, vfs.Fault{Err: syscall.EMFILE, Always: true})
	}
	t.Run("answer", func(t *testing.T) {
		d := vfs.NewDisk(1)
		a := openSim(t, d.Process("a"), 1)
		say(t, a, "s", nil, "one")
		edited := false
		d.OnOp(func(op vfs.Op) { // once the entry is durable, before it is applied
			if op.Proc != "a" || op.Kind != vfs.OpWrite || op.Name != peers.ControlName || op.Off != peers.RecordBytes || edited {
				return
			}
			edited = true
			hand, err := d.Process("editor").Open(sessionlog.Path("s"), 0)
			var size int64
			if err == nil {
				size, err = hand.Size()
			}
			if err == nil {
				_, err = hand.WriteAt([]byte("and this\n"), size)
			}
			if err != nil {
				t.Error(err)
			}
			cantTell(d)
		})
		if r, err := a.Append(ctx, "s", hansard.Batch{Events: []hansard.Event{text("two")}}); !errors.Is(err, hansard.ErrUnknown) || !edited {
			t.Errorf("%+v, %v, want that it is unknown", r, err)
		}
	})
	t.Run("next write", func(t *testing.T) {
		d := vfs.NewDisk(1)
		a := openSim(t, d.Process("a"), 1)
		say(t, a, "s", nil, "one")
		d.Inject(vfs.Match{Proc: "a", Kind: vfs.OpWrite, Name: sessionlog.Path("s")}, vfs.Fault{Err: syscall.EIO, Always: true})
		for range 4 {
			_, _ = a.Append(ctx, "s", hansard.Batch{Key: "two", Events: []hansard.Event{text("two")}})
		}
		d.ClearRules()
		if len(setAsideOf(a, "s")) == 0 {
			t.Fatal("nothing was set aside")
		}
		cantTell(d)
		if r, err := a.Append(ctx, "s", hansard.Batch{Events: []hansard.Event{text("three")}}); err == nil {
			t.Errorf("%+v: stored, though lines wait in aside/", r)
		}
		d.ClearRules()
		say(t, a, "s", nil, "four")
		if err := wantSound(a, "s"); err != nil {
			t.Error(err)
		}
	})
}

// badSector has a log whose sync fails and on which other operations fail, too, while another
// session is written to for several laps of the ring; then the log works again.
func badSector(bad vfs.Kind) error {
	ctx := context.Background()
	d := vfs.NewDisk(1)
	a, err := open(d.Process("a"), Options{LockWait: 1}, simConfig(1, simRing))
	if err != nil {
		return err
	}
	for _, what := range []string{"one", "two"} {
		if _, err := a.Append(ctx, "s", hansard.Batch{Create: true, Events: []hansard.Event{text("%s", what)}}); err != nil {
			return err
		}
	}
	d.Inject(vfs.Match{Kind: vfs.OpSync, Name: sessionlog.Path("s")}, vfs.Fault{Err: syscall.EIO})
	d.Inject(vfs.Match{Kind: bad, Name: sessionlog.Path("s")}, vfs.Fault{Err: syscall.EIO, Always: true})
	for i := range 200 {
		if _, err := a.Append(ctx, "t", hansard.Batch{Create: true, Events: []hansard.Event{text("%d", i)}}); err != nil {
			return fmt.Errorf("append %d to another session: %w", i, err)
		}
	}
	d.ClearRules()
	if _, err := a.Append(ctx, "s", hansard.Batch{Events: []hansard.Event{text("three")}}); err != nil {
		return fmt.Errorf("the log can be read again: %w", err)
	}
	if err := a.checkpoints.checkpoint(true); err != nil {
		return err
	}
	if got, err := afterCut(d, "s"); err != nil || got != "one two three" {
		return fmt.Errorf("after a power cut the session has %q: %v", got, err)
	}
	return nil
}

// TestFailure69_BadLogStopsNobody: a log that can be neither synced nor read, or not even opened,
// does not block writes to other sessions, and loses nothing.
func TestFailure69_BadLogStopsNobody(t *testing.T) {
	for _, bad := range []vfs.Kind{vfs.OpRead, vfs.OpInode, vfs.OpOpen, vfs.OpOpen | vfs.OpInode | vfs.OpRead | vfs.OpWrite | vfs.OpSize | vfs.OpSync} {
		if err := badSector(bad); err != nil {
			t.Errorf("%v: %v", bad, err)
		}
	}
}

// TestCoveredStaysCovered: a group that another process's sync covered is stored, whatever the
// control file says of that sync a moment later: a process that thought it was alone, and began
// its own sync earlier, publishes a lower position, or somebody is just writing the record.
func TestCoveredStaysCovered(t *testing.T) {
	ctx := context.Background()
	for what, late := range map[string]func(ctl *peers.Control, epoch, lower uint64) error{
		"a lower position": func(ctl *peers.Control, epoch, lower uint64) error { return ctl.WriteDurable(epoch, lower) },
		"half a record": func(ctl *peers.Control, _, _ uint64) error {
			_, err := ctl.File().WriteAt([]byte("half"), peers.RecordBytes+32)
			return err
		},
	} {
		t.Run(what, func(t *testing.T) {
			d := vfs.NewDisk(7)
			one, err := open(d.Process("P1"), Options{}, simConfig(1, simRing))
			want(t, "prepare", err, nil)
			defer one.Close()
			two, err := open(d.Process("P2"), Options{}, simConfig(2, simRing))
			want(t, "prepare", err, nil)
			defer two.Close()
			for _, s := range []*Store{one, two} {
				_, err = s.Append(ctx, "a", hansard.Batch{Create: true, Events: []hansard.Event{text("first")}})
				want(t, "prepare", err, nil)
			}
			covered := newAppend("a", &hansard.Batch{Events: []hansard.Event{text("covered")}})
			covered.done = make(chan struct{}, 1)
			one.committer.queue.waiting = append(one.committer.queue.waiting, covered)
			g := one.committer.writeGroup()
			before := g.entries[0].Pos
			between := 0
			d.OnOp(func(op vfs.Op) {
				if between < 1 && op.Proc == "P1" && op.Kind == vfs.OpLock && op.Name == peers.WriteLock {
					between++
					want(t, "write control", late(g.ctl, g.ring.Epoch, before), nil) // between the two looks at control
				}
			})
			_, err = two.syncer.syncTo(g.ring, g.ctl, g.end, false)
			want(t, "prepare", err, nil)
			one.committer.finishGroup(g)
			if between != 1 {
				t.Error("it did not take write.lock")
			}
			if covered.err != nil || covered.receipt.Last != 3 {
				t.Errorf("%+v, %v; want it stored", covered.receipt, covered.err)
			}
		})
	}
}

// wentDown is a disk after a power cut: two sessions have an event in their logs, and another one
// in the journal only.
func wentDown(t *testing.T) *vfs.Disk {
	d := vfs.NewDisk(7)
	s, err := open(d.Process("P1"), Options{}, simConfig(1, simRing))
	want(t, "prepare", err, nil)
	for _, what := range []string{"one", "two"} {
		for _, id := range []hansard.SessionID{"a", "b"} {
			_, err = s.Append(context.Background(), id, hansard.Batch{Create: true, Events: []hansard.Event{text("%s", what)}})
			want(t, "prepare", err, nil)
		}
		if what == "one" {
			want(t, "prepare", s.checkpoints.checkpoint(true), nil)
		}
	}
	d.PowerCut(vfs.Cut{})
	return d
}

// TestRecoverySyncsEveryLog: whatever operation of a recovery fails once, what was acknowledged
// before survives a second power cut. (A log that could not be opened to be synced was skipped.)
func TestRecoverySyncsEveryLog(t *testing.T) {
	for _, errno := range []error{syscall.EIO, syscall.EMFILE} {
		for k, tried := 1, true; tried; k++ {
			d, at := wentDown(t), ""
			d.Inject(vfs.Match{Proc: "P2", N: k}, vfs.Fault{Err: errno})
			tried = false
			d.OnOp(func(op vfs.Op) {
				if op.Proc == "P2" && errors.Is(op.Err, errno) {
					tried, at = true, op.String()
				}
			})
			two, err := open(d.Process("P2"), Options{}, simConfig(2, simRing))
			for _, id := range []hansard.SessionID{"a", "b"} {
				if got, cutErr := afterCut(d, id); got != "one two" || cutErr != nil {
					t.Errorf("%s, open: %v; after the second cut %s has %q, %v", at, err, id, got, cutErr)
				}
			}
			if err == nil {
				_ = two.Close()
			}
		}
	}
}

// TestCheckpointSyncsEveryLog: whatever operation of a checkpoint fails once, what was acknowledged
// before survives a power cut. (A log that somebody moved away for a moment was not synced, nor
// noticed to be missing.)
func TestCheckpointSyncsEveryLog(t *testing.T) {
	empty := func(s *Store) error {
		s.checkpoints.ckMu.Lock()
		defer s.checkpoints.ckMu.Unlock()
		return s.checkpoints.inEmptyRing(func(*locked) error { return nil })
	}
	for what, checkpoint := range map[string]func(*Store) error{"checkpoint": func(s *Store) error { return s.checkpoints.checkpoint(true) }, "in an empty ring": empty} {
		for _, errno := range []error{syscall.EIO, syscall.EMFILE, syscall.ENOENT, syscall.EACCES} {
			for k, tried := 1, true; tried; k++ {
				d := wentDown(t)
				s, err := open(d.Process("P2"), Options{}, simConfig(2, simRing))
				want(t, "open", err, nil)
				say(t, s, "a", nil, "three")
				say(t, s, "b", nil, "three")
				d.Inject(vfs.Match{Proc: "P2", N: k}, vfs.Fault{Err: errno})
				tried = false
				at := ""
				d.OnOp(func(op vfs.Op) {
					if op.Proc == "P2" && strings.Contains(op.Note, "injected") {
						tried, at = true, op.String()
					}
				})
				err = checkpoint(s)
				for _, id := range []hansard.SessionID{"a", "b"} {
					if got, cutErr := afterCut(d, id); got != "one two three" || cutErr != nil {
						t.Errorf("%s: %s: %v; after the cut %s has %q, %v", what, at, err, id, got, cutErr)
					}
				}
				d.ClearRules()
				_ = s.Close()
			}
		}
	}
}

// TestMendSyncsTheLog: whatever operation fails once while lines that were set aside are put in
// place, they are durable there or still set aside.
func TestMendSyncsTheLog(t *testing.T) {
	for _, errno := range []error{syscall.EIO, syscall.EMFILE, syscall.ENOENT, syscall.EACCES} {
		for k, tried := 1, true; tried; k++ {
			d := wentDown(t)
			s, err := open(d.Process("P2"), Options{}, simConfig(2, simRing))
			want(t, "open", err, nil)
			d.Inject(vfs.Match{Kind: vfs.OpWrite, Name: sessionlog.Path("a")}, vfs.Fault{Err: syscall.EIO, Always: true})
			for range 4 {
				_, _ = s.Append(context.Background(), "a", hansard.Batch{Key: "three", Events: []hansard.Event{text("three")}})
			}
			d.ClearRules()
			if len(setAsideOf(s, "a")) == 0 {
				t.Fatal("nothing was set aside")
			}
			want(t, "checkpoint", s.checkpoints.checkpoint(true), nil)
			d.Inject(vfs.Match{Proc: "P2", N: k}, vfs.Fault{Err: errno})
			tried = false
			at := ""
			d.OnOp(func(op vfs.Op) {
				if op.Proc == "P2" && strings.Contains(op.Note, "injected") {
					tried, at = true, op.String()
				}
			})
			_, err = s.checkpoints.mend("a")
			if got, cutErr := afterCut(d, "a"); got != "one two three" || cutErr != nil {
				t.Errorf("%s: %v; after the cut it has %q, %v", at, err, got, cutErr)
			}
			d.ClearRules()
			_ = s.Close()
		}
	}
}

// TestFailure69_BadLogAtRecovery: a log on a bad spot of the disk does not keep the store from
// being recovered, and so from being written to; when the disk works again nothing is missing.
func TestFailure69_BadLogAtRecovery(t *testing.T) {
	for _, kind := range []vfs.Kind{vfs.OpOpen, vfs.OpRead, vfs.OpWrite, vfs.OpInode, vfs.OpSync, vfs.OpSync | vfs.OpRead} {
		t.Run(kind.String(), func(t *testing.T) {
			d := wentDown(t)
			d.Inject(vfs.Match{Kind: kind, Name: sessionlog.Path("a")}, vfs.Fault{Err: syscall.EIO, Always: true})
			s, err := open(d.Process("P2"), Options{}, simConfig(2, simRing))
			want(t, "open", err, nil)
			say(t, s, "b", nil, "three")
			if got, err := afterCut(d, "b"); got != "one two three" || err != nil {
				t.Errorf("b has %q, %v", got, err)
			}
			d.ClearRules()
			say(t, s, "a", nil, "three")
			want(t, "close", s.Close(), nil)
			if got, err := afterCut(d, "a"); got != "one two three" || err != nil {
				t.Errorf("a has %q, %v", got, err)
			}
		})
	}
}

// TestRecoveryTriedAgain: a recovery that could neither sync a log nor copy it does not believe a
// sync of it when it is tried again: the kernel says OK of pages that are gone.
func TestRecoveryTriedAgain(t *testing.T) {
	log := vfs.Match{Proc: "P2", Kind: vfs.OpSync, Name: sessionlog.Path("a")}
	for what, second := range map[string]vfs.Match{
		"no file for the copy": {Proc: "P2", Kind: vfs.OpOpen, Name: "log.*.tmp"},
		"the copy not synced":  {Proc: "P2", Kind: vfs.OpSync, Name: "log.*.tmp"},
		"no rename":            {Proc: "P2", Kind: vfs.OpRename, Name: sessionlog.Path("a")},
	} {
		t.Run(what, func(t *testing.T) {
			d := wentDown(t)
			d.Inject(log, vfs.Fault{Err: syscall.EIO})
			d.Inject(second, vfs.Fault{Err: syscall.EIO})
			cfg := simConfig(2, simRing)
			cfg.anyway = true
			s, err := open(d.Process("P2"), Options{}, cfg)
			want(t, "open", err, nil)
			say(t, s, "b", nil, "three")
			if got, err := afterCut(d, "a"); got != "one two" || err != nil {
				t.Errorf("a has %q, %v", got, err)
			}
			want(t, "close", s.Close(), nil)
			if got, err := afterCut(d, "a"); got != "one two" || err != nil {
				t.Errorf("after it was closed a has %q, %v", got, err)
			}
		})
	}
}

// TestRecoveryMeetsABadSuspect: a log that a dead process was syncing, and that can't be read just
// then, is not made durable by a sync of it.
func TestRecoveryMeetsABadSuspect(t *testing.T) {
	d := wentDown(t)
	d.Inject(vfs.Match{Proc: "P2", Kind: vfs.OpSync, Name: sessionlog.Path("a")}, vfs.Fault{Err: syscall.EIO})
	d.OnOp(func(op vfs.Op) {
		if op.Proc == "P2" && op.Kind == vfs.OpSync && op.Err != nil {
			d.KillAt(vfs.Match{Proc: "P2"}, 0)
		}
	})
	_, err := open(d.Process("P2"), Options{}, simConfig(2, simRing))
	want(t, "open", err, vfs.ErrCrashed)
	d.Inject(vfs.Match{Proc: "P3", Kind: vfs.OpRead, Name: sessionlog.Path("a")}, vfs.Fault{Err: syscall.EIO})
	s := openSim(t, d.Process("P3"), 3)
	say(t, s, "b", nil, "three")
	if got, err := afterCut(d, "a"); got != "one two" || err != nil {
		t.Errorf("a has %q, %v", got, err)
	}
}

// TestLockTakenAheadIsGivenBack: a lone writer that took write.lock to see whether it is free, and
// then can't go on, gives it back. Otherwise every other process would wait for its next write.
func TestLockTakenAheadIsGivenBack(t *testing.T) {
	d := vfs.NewDisk(7)
	d.Inject(vfs.Match{Kind: vfs.OpOpen, Name: journal.Name}, vfs.Fault{Err: syscall.EMFILE, Always: true})
	d.Inject(vfs.Match{Kind: vfs.OpOpen, Name: peers.OpenLock, N: 2}, vfs.Fault{Err: syscall.EMFILE, Always: true})
	cfg := simConfig(1, simRing)
	cfg.anyway = true
	s, err := open(d.Process("P1"), Options{}, cfg)
	want(t, "open", err, nil)
	defer s.Close()
	if !s.lock.lockIsFree() {
		t.Fatal("write.lock is not free")
	}
	_, err = s.lock.lock()
	want(t, "lock", err, syscall.EMFILE)
	f, err := d.Process("P2").Open(peers.WriteLock, 0)
	want(t, "open", err, nil)
	defer f.Close()
	if got, err := f.TryLock(vfs.LockExclusive); err != nil || !got {
		t.Errorf("write.lock: %v, %v; want that another process gets it", got, err)
	}
}

// TestControlNotWritten: while the control file can be read and not written, what is synced goes to
// the logs and is answered; when the journal is full the error is that of the disk.
func TestControlNotWritten(t *testing.T) {
	d := vfs.NewDisk(7)
	a, b := openSim(t, d.Process("a"), 1), openSim(t, d.Process("b"), 2)
	say(t, b, "s", nil, "one")
	say(t, a, "s", nil, "two")
	d.Inject(vfs.Match{Kind: vfs.OpWrite, Name: peers.ControlName}, vfs.Fault{Err: syscall.EIO, Always: true})
	said := "one two"
	for i, s := range []*Store{a, b, a} {
		say(t, s, "s", nil, "%d", i)
		said += fmt.Sprint(" ", i)
	}
	var err error
	for i := 0; i < 40 && err == nil; i++ {
		_, err = a.Append(context.Background(), "other", hansard.Batch{Create: true, Events: []hansard.Event{text("%s", strings.Repeat("x", 200))}})
	}
	want(t, "append to a full journal", err, syscall.EIO)
	d.ClearRules()
	if got, err := afterCut(d, "s"); got != said || err != nil {
		t.Errorf("after a power cut there is %q, %v; want %q", got, err, said)
	}
	say(t, b, "s", nil, "on")
}

// TestUnknownAfterRedaction: an append whose process was stopped before it looked at the log is not
// said to be lost to an error of the disk if the session was redacted, and the journal scrubbed,
// meanwhile.
func TestUnknownAfterRedaction(t *testing.T) {
	ctx := context.Background()
	d := vfs.NewDisk(7)
	a, err := openOn(d.Process("a"), 1, 64<<10) // both in one group
	want(t, "open", err, nil)
	b, err := openOn(d.Process("b"), 2, 64<<10)
	want(t, "open", err, nil)
	say(t, a, "s", nil, "secret")
	say(t, a, "other", nil, "one")
	var requests []*request
	for _, id := range []hansard.SessionID{"s", "other"} {
		r := newAppend(id, &hansard.Batch{Events: []hansard.Event{text("two")}})
		r.done = make(chan struct{}, 1)
		requests = append(requests, r)
	}
	a.committer.queue.waiting = append(a.committer.queue.waiting, requests...)
	g := a.committer.writeGroup()
	if g == nil || len(g.requests) != 2 {
		t.Fatalf("not all was written: %+v", g)
	}
	want(t, "sync", b.checkpoints.syncAll(), nil)
	_, err = b.Redact(ctx, "s", hansard.Redaction{Seqs: []hansard.Seq{1}})
	want(t, "redact", err, nil)
	_, err = b.Prune(ctx, true)
	want(t, "scrub", err, nil)
	a.committer.finishGroup(g)
	want(t, "append to the redacted session", requests[0].err, hansard.ErrUnknown)
	if told := requests[0].err.Error(); !strings.Contains(told, "redacted or deleted since") {
		t.Errorf("the reason is said to be: %s", told)
	}
	want(t, "append to the other session", requests[1].err, nil)
	hears(t, b, "other", "one", "two")
}
