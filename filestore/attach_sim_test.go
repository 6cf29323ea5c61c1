package filestore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"hansard"
	"hansard/internal/vfs"
)

// attachWorld is a session with attachments on a simulated disk: process b attaches content,
// appends events that name it and prunes, while process a does the same.
type attachWorld struct {
	disk  *vfs.Disk
	seed  uint64
	named map[hansard.Seq]hansard.Attachment // by acknowledged events
	b     *vfs.Proc
	calm  bool // no operation fails: b is killed, or nothing happens
	k     int  // the operation of b at which it happens
	// told is the world at the first acknowledgement after that: what was not made durable
	// before may be durable in the end, thanks to somebody else.
	told  *attachWorld
	wrong error
}

// attachedOn opens a store that prunes after a few changes of the disk. Its clock may be ahead.
func attachedOn(d *vfs.Disk, who string, seed uint64, ahead time.Duration) (*Store, error) {
	return attachedAs(d, d.Process(who), seed, ahead)
}

func attachedAs(d *vfs.Disk, p *vfs.Proc, seed uint64, ahead time.Duration) (*Store, error) {
	cfg := simConfig(seed, simRing)
	cfg.now, cfg.pruneAge = func() time.Time { return d.Now().Add(ahead) }, 6*time.Millisecond
	return open(p, Options{LockWait: time.Hour}, cfg)
}

func newAttachWorld(seed uint64) (*attachWorld, error) {
	d := vfs.NewDisk(seed)
	d.PageSize, d.SectorSize = 512, 128
	w := &attachWorld{disk: d, seed: seed, named: map[hansard.Seq]hansard.Attachment{}}
	ctx := context.Background()
	s, err := attachedOn(d, "setup", seed, 0)
	if err != nil {
		return nil, err
	}
	_, err = s.Create(ctx, "s", hansard.Meta{})
	if err == nil {
		err = errors.Join(w.attach(s, "named", true), w.attach(s, "unnamed", false), w.attach(s, "one", false))
	}
	return w, errors.Join(err, s.Close())
}

// attach attaches content, and appends an event that names it, if wanted.
func (w *attachWorld) attach(s *Store, content string, named bool) error {
	ctx := context.Background()
	a, err := s.Attach(ctx, "s", strings.NewReader(content+strings.Repeat(" ", 600)))
	if err != nil || !named {
		return err
	}
	r, err := s.Append(ctx, "s", hansard.Batch{Events: []hansard.Event{{Data: []byte(`"` + content + `"`), Attachments: []hansard.Attachment{a}}}})
	if err == nil {
		w.named[r.First] = a
		if w.told == nil && w.b != nil && w.b.Ops() >= w.k {
			w.told = w.clone()
		}
	}
	return err
}

// clone is what there is, and what was acknowledged.
func (w *attachWorld) clone() *attachWorld {
	return &attachWorld{disk: w.disk.Clone(), seed: w.seed, named: maps.Clone(w.named)}
}

// run is the work of one process.
func (w *attachWorld) run(p *vfs.Proc, seed uint64, contents ...string) {
	s, err := attachedAs(w.disk, p, seed, 0)
	if err != nil {
		w.note(p, err)
		return
	}
	for i, content := range contents {
		if i%2 == 1 {
			_, err := s.attachments.prune(context.Background())
			w.note(p, err)
		}
		w.note(p, w.attach(s, content, i != 2))
	}
	w.note(p, s.Close())
}

// note keeps the first error that nothing explains.
func (w *attachWorld) note(p *vfs.Proc, err error) {
	pruned := errors.Is(err, hansard.ErrNoAttachment) || errors.Is(err, fs.ErrNotExist) // before it was named, or had its name
	if err != nil && w.wrong == nil && w.calm && !pruned && !p.Dead() {
		w.wrong = fmt.Errorf("%s: %w", p.Name(), err)
	}
}

// play runs both processes.
func (w *attachWorld) play() error {
	a, b := w.disk.Process("a"), w.disk.Process("b")
	w.b = b
	w.disk.Go(a, func() { w.run(a, w.seed+1, "one", "unnamed", "two") })
	w.disk.Go(b, func() { w.run(b, w.seed+2, "one", "two", "unnamed", "named") })
	return errors.Join(w.disk.Run(), w.wrong)
}

// compare checks that every acknowledged event is there, and every attachment that an event
// names, to the byte. It returns the files that they are in.
func (w *attachWorld) compare(s *Store) (files map[string]bool, err error) {
	ctx := context.Background()
	files = map[string]bool{}
	there := map[hansard.Seq]bool{}
	for e, err := range s.Read(ctx, "s", hansard.Range{}) {
		if err != nil {
			return nil, err
		}
		if a, ok := w.named[e.Seq]; ok && (len(e.Attachments) != 1 || e.Attachments[0] != a) {
			return nil, fmt.Errorf("event %d names %+v, want %+v", e.Seq, e.Attachments, a)
		}
		for _, a := range e.Attachments {
			if err := attachedWell(ctx, s, "s", a); err != nil {
				return nil, fmt.Errorf("event %d: %w", e.Seq, err)
			}
			files[attachmentPath("s", a.Digest)] = true
		}
		there[e.Seq] = true
	}
	for seq := range w.named {
		if !there[seq] {
			return nil, fmt.Errorf("event %d was acknowledged and is not there", seq)
		}
	}
	return files, soundStore(s)
}

// check looks at the remains. Then it must be possible to attach the same content, and to prune
// whatever no event names; what is named survives that, and a power cut.
func (w *attachWorld) check() error {
	d := w.disk
	s, err := attachedOn(d, "check", w.seed+3, time.Hour)
	if err != nil {
		return err
	}
	if _, err := w.compare(s); err != nil {
		return err
	}
	if err := errors.Join(w.attach(s, "two", true), w.attach(s, "three", false)); err != nil {
		return fmt.Errorf("attaching again: %w", err)
	}
	if _, err := s.attachments.prune(context.Background()); err != nil {
		return err
	}
	d.PowerCut(vfs.Cut{})
	s, err = attachedOn(d, "later", w.seed+4, time.Hour)
	if err != nil {
		return err
	}
	if _, err := s.attachments.prune(context.Background()); err != nil { // a removal may be undone
		return err
	}
	files, err := w.compare(s)
	if err != nil {
		return fmt.Errorf("after prune and a power cut: %w", err)
	}
	left, err := attachedFiles(s.fs, "s")
	for _, file := range left {
		if !files[file] {
			return fmt.Errorf("%s is left", file)
		}
	}
	return errors.Join(err, s.Close())
}

// attachStruck makes something happen at the k-th operation of b, for every k; then a goes on,
// and the power is cut.
func attachStruck(seed uint64, states *atomic.Int64, calm bool, what func(d *vfs.Disk, at vfs.Match)) error {
	for k := 1; ; k++ {
		w, err := newAttachWorld(seed)
		if err != nil {
			return err
		}
		w.calm, w.k = calm, k
		what(w.disk, vfs.Match{Proc: "b", N: k})
		if err := w.play(); err != nil {
			return fmt.Errorf("seed %d, operation %d: %w\n%s", seed, k, err, trace(w.disk, 60))
		}
		cuts := []*vfs.Cut{nil, {}, {Keep: 60, Seed: uint64(k)}}
		if !calm { // there are many faults
			cuts = cuts[k%3 : k%3+1]
		}
		for _, cut := range cuts {
			later := w.clone()
			if cut != nil {
				later.disk.PowerCut(*cut)
			}
			if err := later.check(); err != nil {
				return fmt.Errorf("seed %d, operation %d, then %+v: %w\n%s", seed, k, cut, err, trace(w.disk, 80))
			}
			states.Add(1)
		}
		if told := w.told; told != nil {
			told.disk.PowerCut(vfs.Cut{})
			if err := told.check(); err != nil {
				return fmt.Errorf("seed %d, operation %d, then a power cut at the next acknowledgement: %w\n%s", seed, k, err, trace(told.disk, 80))
			}
			states.Add(1)
		}
		if k > w.b.Ops() {
			return nil
		}
	}
}

// attachKilled kills b.
func attachKilled(seed uint64, states *atomic.Int64) error {
	return attachStruck(seed, states, true, func(d *vfs.Disk, at vfs.Match) { d.KillAt(at, -1) })
}

// TestSimAttachKilled: after a kill or an error at any operation of a process that attaches,
// appends events with attachments and prunes, no event names an attachment that is missing, and
// no file is left that prune does not remove.
func TestSimAttachKilled(t *testing.T) {
	t.Run("kill", func(t *testing.T) {
		inWorlds(t, 1, 900, func(t *testing.T, seed uint64, states *atomic.Int64) {
			if err := attachKilled(3300+seed, states); err != nil {
				t.Error(err)
			}
		})
	})
	for i, fault := range simFaults {
		t.Run(fmt.Sprintf("%+v", fault), func(t *testing.T) {
			inWorlds(t, 1, 500, func(t *testing.T, seed uint64, states *atomic.Int64) {
				err := attachStruck(3400+10*uint64(i)+seed, states, false, func(d *vfs.Disk, at vfs.Match) { d.Inject(at, fault) })
				if err != nil {
					t.Error(err)
				}
			})
		})
	}
}
