package filestore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"hansard"
	"hansard/filestore/internal/journal"
	"hansard/filestore/internal/peers"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

// resizeStep makes the ring larger, smaller again, or something in between.
func (k *worker) resizeStep(ctx context.Context) {
	id := simSessions[k.rng.IntN(len(simSessions))]
	switch r := k.rng.IntN(100); {
	case r < 40:
		k.append(ctx, id, "")
	case r < 60:
		k.large = true
		k.append(ctx, id, "")
		k.large = false
	case r < 85:
		k.unless("shrink", k.s.checkpoints.shrink())
	case r < 93:
		k.unless("checkpoint", k.s.checkpoints.checkpoint(true))
	default:
		k.read(ctx, id)
	}
}

// resizing is a world of rings that grow and shrink.
func resizing(seed uint64) *world {
	w := newWorld(seed)
	w.resize = true
	return w
}

// TestSimResizePowerCut: a ring that grows for a large batch and shrinks again, with
// entries in it, loses nothing to a power cut at any moment.
func TestSimResizePowerCut(t *testing.T) {
	var rotations atomic.Int64
	inWorlds(t, 4, 2_000, func(t *testing.T, seed uint64, states *atomic.Int64) {
		w := resizing(7000 + seed)
		found := w.cutEverywhere(states)
		if err := errors.Join(*found, w.play(2, 10)); err != nil {
			t.Error(err)
		}
		for _, s := range w.stores {
			rotations.Add(s.measures.rotations.Load())
		}
	})
	if n := rotations.Load(); n < 8 {
		t.Errorf("the journal was replaced only %d times", n)
	}
}

// TestSimResizeKill: nor to a process that is killed before any operation,
func TestSimResizeKill(t *testing.T) {
	inWorlds(t, 3, 300, func(t *testing.T, seed uint64, states *atomic.Int64) {
		seed += 7100
		plain := resizing(seed)
		if err := plain.play(2, 8); err != nil {
			t.Fatal(err)
		}
		for k := 1 + int(seed%3); k <= plain.disk.Ops(); k += 3 {
			err := resizing(seed).strike(2, 8, func(d *vfs.Disk) { d.KillAt(vfs.Match{N: k}, -1) })
			if states.Add(1); err != nil {
				t.Fatalf("killed before operation %d: %v", k, err)
			}
		}
	})
}

// TestSimResizeErrors: nor to any operation that fails.
func TestSimResizeErrors(t *testing.T) {
	inWorlds(t, 10, 1_000, func(t *testing.T, seed uint64, states *atomic.Int64) {
		fault := simFaults[seed%uint64(len(simFaults))]
		plain := resizing(7200)
		if err := plain.play(2, 6); err != nil {
			t.Fatal(err)
		}
		for k := 1 + int(seed%4); k <= plain.disk.Ops(); k += 4 {
			err := resizing(7200).strike(2, 6, func(d *vfs.Disk) { d.Inject(vfs.Match{N: k}, fault) })
			if states.Add(1); err != nil {
				t.Fatalf("%+v at operation %d: %v", fault, k, err)
			}
		}
	})
}

func ringBytes(t *testing.T, d *vfs.Disk) int {
	t.Helper()
	b, ok := d.CacheBytes(journal.Name)
	if !ok {
		t.Fatal("there is no journal")
	}
	return len(b) - journal.RingAt
}

func largeBatch(n int) hansard.Batch {
	return hansard.Batch{Create: true, Events: []hansard.Event{{Data: json.RawMessage(`"` + strings.Repeat("l", n) + `"`)}}}
}

// TestRingShrinks: the room that a large batch needed in the ring is given back, with
// what others wrote meanwhile, and when the store is closed.
func TestRingShrinks(t *testing.T) {
	ctx := context.Background()
	d := vfs.NewDisk(1)
	s, err := openOn(d.Process("p"), 1, simRing)
	if err != nil {
		t.Fatal(err)
	}
	other, err := openOn(d.Process("other"), 2, simRing)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Append(ctx, "s", largeBatch(6000)); err != nil {
		t.Fatal(err)
	}
	if n := ringBytes(t, d); n <= simRing {
		t.Fatalf("the ring has %d bytes, no more than before", n)
	}
	if err := s.checkpoints.shrink(); err != nil {
		t.Fatal(err)
	}
	if n := ringBytes(t, d); n <= simRing {
		t.Fatalf("the ring has %d bytes, though the large batch is still in it", n)
	}
	if err := s.checkpoints.checkpoint(true); err != nil {
		t.Fatal(err)
	}
	if _, err := other.Append(ctx, "s", hansard.Batch{Events: []hansard.Event{text("small")}}); err != nil {
		t.Fatal(err)
	}
	if err := s.checkpoints.shrink(); err != nil {
		t.Fatal(err)
	}
	if n := ringBytes(t, d); n != simRing {
		t.Errorf("the ring has %d bytes, want %d", n, simRing)
	}
	for i, p := range []*Store{s, other, s} {
		r, err := p.Append(ctx, "s", hansard.Batch{Events: []hansard.Event{text("more")}})
		if err != nil || int(r.First) != 3+i {
			t.Errorf("append %d: %+v, %v", i, r, err)
		}
	}
	if _, err := s.Append(ctx, "s", largeBatch(6000)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(other.Close(), s.Close()); err != nil {
		t.Fatal(err)
	}
	if n := ringBytes(t, d); n != simRing {
		t.Errorf("after the last has left the ring has %d bytes, want %d", n, simRing)
	}
	d.PowerCut(vfs.Cut{})
	s, err = openOn(d.Process("after"), 3, simRing)
	if err != nil {
		t.Fatal(err)
	}
	if err := wantSound(s, "s"); err != nil {
		t.Error(err)
	}
	if info, err := s.Stat(ctx, "s"); err != nil || info.LastSeq != 6 {
		t.Errorf("stat: %+v, %v", info, err)
	}
}

// TestGrowingFailsAlone: a batch for which there is no room to make a larger ring is
// refused; the old ring is as good as before, and small ones go on.
func TestGrowingFailsAlone(t *testing.T) {
	ctx := context.Background()
	d := vfs.NewDisk(1)
	s, err := openOn(d.Process("p"), 1, simRing)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Create(ctx, "s", hansard.Meta{}); err != nil {
		t.Fatal(err)
	}
	d.Inject(vfs.Match{Kind: vfs.OpWrite, Name: "journal.*.tmp"}, vfs.Fault{Err: syscall.ENOSPC, Always: true})
	if _, err := s.Append(ctx, "s", largeBatch(6000)); !errors.Is(err, hansard.ErrNoSpace) {
		t.Errorf("the large one: %v, want ErrNoSpace", err)
	}
	if r, err := s.Append(ctx, "s", hansard.Batch{Events: []hansard.Event{text("small")}}); err != nil || r.First != 1 {
		t.Errorf("a small one: %+v, %v", r, err)
	}
}

// openFS counts the open files of each name.
type openFS struct {
	vfs.FS
	mu   sync.Mutex
	open map[string]int
}

func (o *openFS) add(name string, n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.open[name] += n
}

func (o *openFS) count(name string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.open[name]
}

func (o *openFS) Open(name string, flags vfs.Flag) (vfs.File, error) {
	f, err := o.FS.Open(name, flags)
	if err != nil {
		return nil, err
	}
	o.add(name, 1)
	return &openFile{File: f, name: name, o: o}, nil
}

type openFile struct {
	vfs.File
	name   string
	o      *openFS
	closed sync.Once
}

func (f *openFile) Close() error {
	f.closed.Do(func() { f.o.add(f.name, -1) })
	return f.File.Close()
}

// TestReplacedRingsAreClosed: a journal that was replaced is closed, by this process or
// by another, but not while somebody is still syncing it.
func TestReplacedRingsAreClosed(t *testing.T) {
	ctx := context.Background()
	d := vfs.NewDisk(1)
	var counts [2]*openFS
	var stores [2]*Store
	for i := range stores {
		counts[i] = &openFS{FS: d.Process(fmt.Sprint("p", i)), open: map[string]int{}}
		var err error
		if stores[i], err = openOn(counts[i], uint64(i), simRing); err != nil {
			t.Fatal(err)
		}
	}
	rotate := func(s *Store) {
		l, err := s.lock.lockCaughtUp()
		if err != nil {
			t.Fatal(err)
		}
		defer l.unlock()
		if err := l.rotate(l.ring.Size); err != nil {
			t.Fatal(err)
		}
	}
	b := hansard.Batch{Create: true, Events: []hansard.Event{text("x")}}
	for i := range 20 {
		if _, err := stores[i%2].Append(ctx, "s", b); err != nil {
			t.Fatal(err)
		}
		rotate(stores[i/2%2])
	}
	for i, s := range stores {
		if _, err := s.Append(ctx, "s", b); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{journal.Name, peers.ControlName} {
			if n := counts[i].count(name); n != 1 {
				t.Errorf("process %d has %s open %d times", i, name, n)
			}
		}
	}
	g := &group{ring: stores[0].lock.state.ring, ctl: stores[0].lock.state.ctl} // as one that is on its way to the sync
	g.hold()
	rotate(stores[0])
	if n := counts[0].count(journal.Name); n != 2 {
		t.Errorf("%d journals are open, want the new one and the one that is to be synced", n)
	}
	if err := g.ring.File.Datasync(); err != nil {
		t.Errorf("sync of the old one: %v", err)
	}
	g.letGo()
	if n := counts[0].count(journal.Name); n != 1 {
		t.Errorf("%d journals are open after the last had let go of the old one", n)
	}
}

// TestCheckpointErrorsAreTold: a background checkpoint that fails is in the log, once for
// each reason, and in the measures.
func TestCheckpointErrorsAreTold(t *testing.T) {
	ctx := context.Background()
	var log bytes.Buffer
	d := vfs.NewDisk(1)
	s, err := open(d.Process("p"), Options{Log: slog.New(slog.NewTextHandler(&log, nil))}, simConfig(1, simRing))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Append(ctx, "s", hansard.Batch{Create: true, Events: []hansard.Event{text("x")}}); err != nil {
		t.Fatal(err)
	}
	d.Inject(vfs.Match{Kind: vfs.OpSyncDir, Name: sessionlog.Dir}, vfs.Fault{Err: syscall.EIO, Always: true})
	for range 3 {
		s.checkpoints.tellCheckpoint(s.checkpoints.checkpoint(false))
	}
	if n := strings.Count(log.String(), "checkpoint failed"); n != 1 || !strings.Contains(log.String(), "input/output error") {
		t.Errorf("three failures for one reason are told %d times:\n%s", n, log.String())
	}
	d.ClearRules()
	s.checkpoints.tellCheckpoint(s.checkpoints.checkpoint(false))
	if !strings.Contains(log.String(), "work again") {
		t.Errorf("the log does not say that it is over:\n%s", log.String())
	}
	m := s.Measures()
	if m["checkpoint_failures_total"] != 3 || m["checkpoints_total"] != 1 {
		t.Errorf("the measures are %v", m)
	}
}

// TestSuspectsAreGuarded is for the race detector: logs whose sync failed are copied
// while others look whether there are any.
func TestSuspectsAreGuarded(t *testing.T) {
	s, err := Open(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Append(context.Background(), "s", hansard.Batch{Create: true, Events: []hansard.Event{text("x")}}); err != nil {
		t.Fatal(err)
	}
	var looking sync.WaitGroup
	stop := make(chan struct{})
	looking.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				s.checkpoints.suspicious()
			}
		}
	})
	for range 20 {
		s.checkpoints.suspect(3, "s")
		s.checkpoints.ckMu.Lock()
		err := s.checkpoints.syncLogs(&checkpointing{seen: map[peers.Mark]bool{}})
		s.checkpoints.ckMu.Unlock()
		if err != nil || s.checkpoints.suspicious() {
			t.Errorf("copy of a log whose sync had failed: %v, still suspicious: %v", err, s.checkpoints.suspicious())
		}
	}
	close(stop)
	looking.Wait()
}
