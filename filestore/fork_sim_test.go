package filestore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"hansard"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

// forkWorld is a fork on a simulated disk: process b forks session "s" as "f" and appends to the
// fork, while process a appends to "s" and looks for "f".
type forkWorld struct {
	disk  *vfs.Disk
	seed  uint64
	acked hansard.Seq // of "s", by a
	seen  bool        // somebody has seen the fork
	ended error       // the error of Fork; nil before it returned, too
	forkd bool        // Fork returned success
	own   bool        // an append to it was acknowledged
	over  bool        // b has finished
	wrong error
	id    hansard.SessionID // of the fork
}

// attachedToS is the content of the attachments of "s": the first is named before the last batch.
var attachedToS = []string{"one", "two"}

func newForkWorld(seed uint64) (*forkWorld, error) {
	d := vfs.NewDisk(seed)
	d.PageSize, d.SectorSize = 512, 128
	w := &forkWorld{disk: d, seed: seed, id: "f"}
	if seed%5 == 0 { // too long to fit in place of the header of "s": the lines are rewritten
		w.id = hansard.SessionID("f" + strings.Repeat("x", 90))
	}
	ctx := context.Background()
	s, err := openOn(d.Process("setup"), seed, simRing)
	if err != nil {
		return nil, err
	}
	_, err = s.Create(ctx, "s", hansard.Meta{Title: "born", State: []byte(`{"n":0}`)})
	for i, content := range attachedToS {
		if err != nil {
			return nil, err
		}
		a, attachErr := s.Attach(ctx, "s", strings.NewReader(content))
		e := text("with %d", i)
		e.Attachments = []hansard.Attachment{a}
		_, appendErr := s.Append(ctx, "s", hansard.Batch{Events: []hansard.Event{text("%s", strings.Repeat("x", 700)), e}, Key: fmt.Sprint("setup", i), Patch: &hansard.Patch{State: fmt.Appendf(nil, `{"n":%d}`, i+1)}})
		err = errors.Join(attachErr, appendErr)
	}
	w.acked = 4
	return w, errors.Join(err, s.Close())
}

// play runs both processes.
func (w *forkWorld) play() error {
	ctx := context.Background()
	a, b := w.disk.Process("a"), w.disk.Process("b")
	w.disk.Go(a, func() {
		s, err := openOn(a, w.seed+1, simRing)
		if err != nil {
			return
		}
		for i := range 4 {
			r, err := s.Append(ctx, "s", hansard.Batch{Events: []hansard.Event{text("a %d", i), text("b")}, Key: fmt.Sprint("a", i)})
			if err == nil {
				w.acked = max(w.acked, r.Last)
			}
			if _, err := s.Stat(ctx, w.id); err == nil {
				w.seen = true
				w.note(w.whole(s))
			} else if !errors.Is(err, hansard.ErrNotFound) && !faulty(err) && !a.Dead() {
				w.note(fmt.Errorf("a looks for the fork: %w", err))
			}
		}
		_ = s.Close()
	})
	w.disk.Go(b, func() {
		s, err := openOn(b, w.seed+2, simRing)
		if err != nil {
			return
		}
		_, err = s.Fork(ctx, "s", hansard.Fork{As: w.id, Meta: hansard.Meta{Title: "forked"}})
		w.ended, w.forkd = err, err == nil
		if err == nil {
			w.note(w.whole(s))
			_, err = s.Append(ctx, w.id, hansard.Batch{Events: []hansard.Event{text("own")}, Key: "own"})
			w.own = err == nil
		}
		_ = s.Close()
		w.over = !b.Dead()
	})
	return errors.Join(w.disk.Run(), w.wrong)
}

func (w *forkWorld) note(err error) {
	if w.wrong == nil && err != nil && !faulty(err) {
		w.wrong = err
	}
}

// whole compares the fork with its parent.
func (w *forkWorld) whole(s *Store) error {
	ctx := context.Background()
	own := w.own // before it is read
	info, err := s.Stat(ctx, w.id)
	if err != nil {
		return err
	}
	if info.Damage != nil || info.Parent == nil || info.Parent.ID != "s" || info.Title != "forked" || info.Parent.At < 4 || info.Parent.At%2 != 0 {
		return fmt.Errorf("the fork is described as %+v", info)
	}
	var events [2][]hansard.Event
	for i, id := range []hansard.SessionID{"s", w.id} {
		for e, err := range s.Read(ctx, id, hansard.Range{}) {
			if err != nil {
				return fmt.Errorf("read %s: %w", id, err)
			}
			events[i] = append(events[i], e)
		}
	}
	at := int(info.Parent.At)
	if len(events[0]) < at || len(events[1]) <= at || len(events[1]) > at+2 {
		return fmt.Errorf("%d events of the parent, %d of the fork at %d", len(events[0]), len(events[1]), at)
	}
	for i := range at {
		if !hansard.SameEvent(&events[0][i], &events[1][i]) {
			return fmt.Errorf("event %d is another", i+1)
		}
	}
	if f := events[1][at].Fork; f == nil || *f != *info.Parent {
		return fmt.Errorf("event %d begins the fork %+v", at+1, f)
	}
	if own && len(events[1]) != at+2 {
		return errors.New("its own event is lost")
	}
	for i, content := range attachedToS {
		r, err := s.OpenAttachment(ctx, w.id, events[1][2*i+1].Attachments[0].Digest)
		if err != nil {
			return err
		}
		got, err := io.ReadAll(r)
		if _ = r.Close(); err != nil || string(got) != content {
			return fmt.Errorf("attachment %d is %q, %w", i, got, err)
		}
	}
	return nil
}

// check opens the remains: the fork must be there whole or not at all. Then it must be possible
// to make and use it, and it must survive a power cut.
func (w *forkWorld) check(d *vfs.Disk) error {
	ctx := context.Background()
	s, err := openOn(d.Process("check"), w.seed+3, simRing)
	if err != nil {
		return err
	}
	if err := soundStore(s); err != nil {
		return err
	}
	if info, err := s.Stat(ctx, "s"); err != nil || info.LastSeq < w.acked {
		return fmt.Errorf("the parent has %d events, %d were acknowledged: %w", info.LastSeq, w.acked, err)
	}
	_, err = s.Stat(ctx, w.id)
	switch {
	case err == nil:
		if err := w.whole(s); err != nil {
			return err
		}
		if w.over && w.ended != nil && !errors.Is(w.ended, hansard.ErrUnknown) {
			return fmt.Errorf("the fork is there, and was refused: %w", w.ended)
		}
	case !errors.Is(err, hansard.ErrNotFound):
		return fmt.Errorf("the fork: %w", err)
	case w.forkd || w.seen:
		return fmt.Errorf("the fork is gone; acknowledged %v, seen %v", w.forkd, w.seen)
	}
	return w.checkAfter(d, s, err == nil)
}

// checkAfter is the second half of check: a later process makes the fork if it is not there.
func (w *forkWorld) checkAfter(d *vfs.Disk, s *Store, there bool) error {
	ctx := context.Background()
	name := string(w.id)
	for _, file := range d.Names() {
		left := strings.HasSuffix(file, ".tmp") || strings.HasPrefix(file, forkingDir+"/")
		if !there {
			left = left || strings.HasPrefix(file, attachmentDir(name)+"/") || file == "sessions/"+name+".jsonl"
		}
		if left {
			return fmt.Errorf("%s is left; the fork is there: %v", file, there)
		}
	}
	later := *w
	if !there {
		if _, err := s.Fork(ctx, "s", hansard.Fork{As: w.id, Meta: hansard.Meta{Title: "forked"}}); err != nil {
			return fmt.Errorf("forking again: %w", err)
		}
	} else if _, err := s.Fork(ctx, "s", hansard.Fork{As: w.id}); !errors.Is(err, hansard.ErrExists) {
		return fmt.Errorf("forking again: %w", err)
	}
	if _, err := s.Append(ctx, w.id, hansard.Batch{Events: []hansard.Event{text("own")}, Key: "own"}); err != nil {
		return fmt.Errorf("appending to the fork: %w", err)
	}
	later.own = true
	d.PowerCut(vfs.Cut{})
	s, err := openOn(d.Process("later"), w.seed+4, simRing)
	if err != nil {
		return err
	}
	if err := errors.Join(later.whole(s), soundStore(s)); err != nil {
		return fmt.Errorf("after a second power cut: %w", err)
	}
	return s.Close()
}

func soundStore(s *Store) error {
	for f, err := range s.Verify(context.Background(), "") {
		if err != nil || f.Level == hansard.LevelDamage {
			return fmt.Errorf("verify says %+v, %w", f, err)
		}
	}
	return nil
}

// forkCut cuts the power after every operation.
func forkCut(seed uint64, states *atomic.Int64) error {
	w, err := newForkWorld(seed)
	if err != nil {
		return err
	}
	var found error
	version := uint64(0)
	w.disk.OnOp(func(op vfs.Op) {
		if found != nil || w.disk.Version() == version {
			return
		}
		version = w.disk.Version()
		for i, keep := range []int{0, 40, 70, 100} {
			d := w.disk.Clone()
			d.PowerCut(vfs.Cut{Keep: keep, Seed: uint64(op.N*4 + i)})
			was := *w
			if states.Add(1); op.N%9 == 0 { // a second cut, inside recovery
				d.CutAt(vfs.Match{Kind: vfs.OpChange, N: 1 + op.N%40}, vfs.Cut{Keep: 50, Seed: uint64(op.N)})
				if s, err := openOn(d.Process("first"), 77, simRing); err == nil {
					_ = s.Close()
				}
				d.ClearRules()
			}
			if err := was.check(d); err != nil {
				found = fmt.Errorf("seed %d: power cut after operation %d, keep %d: %w\n%s", seed, op.N, keep, err, trace(w.disk, 60))
				return
			}
		}
	})
	return errors.Join(w.play(), found)
}

// forkStruck injects a fault at the k-th operation of the forking process, for every k; then the
// others go on, and the power is cut.
func forkStruck(seed uint64, states *atomic.Int64, what func(d *vfs.Disk, at vfs.Match)) error {
	for k := 1; ; k++ {
		w, err := newForkWorld(seed)
		if err != nil {
			return err
		}
		what(w.disk, vfs.Match{Proc: "b", N: k})
		if err := w.play(); err != nil {
			return fmt.Errorf("seed %d, operation %d: %w\n%s", seed, k, err, trace(w.disk, 60))
		}
		done := w.own && w.over && !strings.Contains(strings.Join(w.disk.Trace(), "\n"), "injected")
		w.disk.ClearRules()
		for _, cut := range []*vfs.Cut{nil, {}, {Keep: 60, Seed: uint64(k)}} {
			d := w.disk.Clone()
			if cut != nil {
				d.PowerCut(*cut)
			}
			was := *w
			if err := was.check(d); err != nil {
				return fmt.Errorf("seed %d, operation %d, then %+v: %w\n%s", seed, k, cut, err, trace(w.disk, 60))
			}
			states.Add(1)
		}
		if done {
			return nil
		}
	}
}

func forkKilled(seed uint64, states *atomic.Int64) error {
	return forkStruck(seed, states, func(d *vfs.Disk, at vfs.Match) { d.KillAt(at, -1) })
}

// TestSimFork: after a power cut or a kill at any operation, and after any error, a fork is there
// whole or not at all. If a caller was told of it or has seen it, it is there.
func TestSimFork(t *testing.T) {
	t.Run("cut", func(t *testing.T) {
		inWorlds(t, 10, 3_000, func(t *testing.T, seed uint64, states *atomic.Int64) {
			if err := forkCut(3000+seed, states); err != nil {
				t.Error(err)
			}
		})
	})
	t.Run("kill", func(t *testing.T) {
		inWorlds(t, 5, 1_000, func(t *testing.T, seed uint64, states *atomic.Int64) {
			if err := forkKilled(3100+seed, states); err != nil {
				t.Error(err)
			}
		})
	})
	for _, e := range []syscall.Errno{syscall.EIO, syscall.ENOSPC, syscall.EMFILE} {
		t.Run(e.Error(), func(t *testing.T) {
			inWorlds(t, 2, 500, func(t *testing.T, seed uint64, states *atomic.Int64) {
				err := forkStruck(3200+seed, states, func(d *vfs.Disk, at vfs.Match) { d.Inject(at, vfs.Fault{Err: e}) })
				if err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestForkKilledThenTaken: a session that takes the name of a fork whose maker was killed, at any
// step, has none of the parent's attachments.
func TestForkKilledThenTaken(t *testing.T) {
	ctx := context.Background()
	for k, dead := 1, true; dead; k++ {
		d := vfs.NewDisk(1)
		a := openSim(t, d.Process("a"), 1)
		want(t, "prepare", tell(a), nil)
		pb := d.Process("b")
		b := openSim(t, pb, 2)
		d.KillAt(vfs.Match{Proc: "b", Kind: vfs.OpChange, N: k}, -1)
		_, _ = b.Fork(ctx, "s", hansard.Fork{As: "f"})
		dead = pb.Dead()
		d.ClearRules()
		if _, err := a.Create(ctx, "f", hansard.Meta{}); err != nil {
			want(t, "create", err, hansard.ErrExists) // the fork was finished
			continue
		}
		for at, err := range a.Attachments(ctx, "f") {
			t.Errorf("operation %d: the session has attachment %+v of another one: %v", k, at, err)
		}
	}
}

// TestForkAfterKilled: a fork gets the name of a fork whose maker was killed, at any step, with all
// of its own attachments.
func TestForkAfterKilled(t *testing.T) {
	ctx := context.Background()
	for k, dead := 1, true; dead; k++ {
		d := vfs.NewDisk(1)
		a := openSim(t, d.Process("a"), 1)
		want(t, "prepare", tell(a), nil)
		pb := d.Process("b")
		b := openSim(t, pb, 2)
		d.KillAt(vfs.Match{Proc: "b", Kind: vfs.OpChange, N: k}, -1)
		_, _ = b.Fork(ctx, "s", hansard.Fork{As: "f"})
		dead = pb.Dead()
		d.ClearRules()
		if _, err := a.Fork(ctx, "s", hansard.Fork{As: "f"}); err != nil && !errors.Is(err, hansard.ErrExists) {
			t.Errorf("operation %d: %v", k, err)
		}
		count := map[hansard.SessionID]int{}
		for _, id := range []hansard.SessionID{"s", "f"} {
			for _, err := range a.Attachments(ctx, id) {
				want(t, "attachments", err, nil)
				count[id]++
			}
		}
		if count["s"] == 0 || count["f"] != count["s"] {
			t.Errorf("operation %d: attachments: %v", k, count)
		}
	}
}

// linkingFS calls a function once, when a fork has linked an attachment and is about to be placed.
type linkingFS struct {
	vfs.FS
	linked func()
}

func (l *linkingFS) Link(from, to string) error {
	err := l.FS.Link(from, to)
	if linked := l.linked; linked != nil {
		l.linked = nil
		linked()
	}
	return err
}

// TestForkBesideOneThatFails: a fork that fails after it was placed takes away nothing of another
// one that is being made under the same name.
func TestForkBesideOneThatFails(t *testing.T) {
	ctx := context.Background()
	d := vfs.NewDisk(1)
	a := openSim(t, d.Process("a"), 1)
	want(t, "prepare", tell(a), nil)
	b := openSim(t, &linkingFS{d.Process("b"), func() {
		d.Inject(vfs.Match{Proc: "a", Kind: vfs.OpSyncDir, Name: sessionlog.Dir}, vfs.Fault{Err: syscall.EIO})
		_, err := a.Fork(ctx, "s", hansard.Fork{As: "f"})
		want(t, "a fork that can't be made durable", err, syscall.EIO)
		d.ClearRules()
	}}, 2)
	_, err := b.Fork(ctx, "s", hansard.Fork{As: "f"})
	want(t, "the other fork", err, nil)
	count := 0
	for _, err := range b.Attachments(ctx, "f") {
		want(t, "attachments", err, nil)
		count++
	}
	if count == 0 {
		t.Error("the fork has no attachments")
	}
}
