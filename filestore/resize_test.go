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
	"time"

	"hansard"
	"hansard/filestore/internal/journal"
	"hansard/filestore/internal/peers"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

// resizeStep grows the ring, shrinks it, or does something in between.
func (k *worker) resizeStep(ctx context.Context) {
	id := simSessions[k.rng.IntN(len(simSessions))]
	switch r := k.rng.IntN(100); {
	case r < 40, r < 60 && k.w.seed%2 == 0: // nothing large: the ring grows by grow alone
		k.append(ctx, id, "")
	case r < 60:
		k.large = true
		k.append(ctx, id, "")
		k.large = false
	case r < 70:
		small := k.s.lock.ringIsSmall()
		k.unless("grow", k.s.checkpoints.grow())
		if small && !k.s.lock.ringIsSmall() {
			k.w.grown++ // not by a batch that needed it
		}
	case r < 85:
		k.unless("shrink", k.s.checkpoints.shrink())
	case r < 93:
		k.unless("checkpoint", k.s.checkpoints.checkpoint(true))
	default:
		k.read(ctx, id)
	}
}

// resizing is a world whose rings grow and shrink.
func resizing(seed uint64) *world {
	w := newWorld(seed)
	w.resize, w.first, w.ring = true, w.ring, 2*w.ring
	return w
}

// TestSimResizePowerCut: a ring that grows for a large batch and shrinks again, with entries in
// it, loses nothing to a power cut at any moment.
func TestSimResizePowerCut(t *testing.T) {
	var rotations, grown atomic.Int64
	inWorlds(t, 8, 2_000, func(t *testing.T, seed uint64, states *atomic.Int64) {
		w := resizing(7000 + seed)
		found := w.cutEverywhere(states)
		if err := errors.Join(*found, w.play(2, 10)); err != nil {
			t.Error(err)
		}
		for _, s := range w.stores {
			rotations.Add(s.measures.rotations.Load())
		}
		grown.Add(int64(w.grown))
	})
	if n := rotations.Load(); n < 8 {
		t.Errorf("the journal was replaced only %d times", n)
	}
	if n := grown.Load(); n == 0 {
		t.Error("no small ring was made larger by grow")
	}
}

// TestSimResizeKill: nor to a kill before any operation.
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

// TestSimResizeErrors: nor to an error of any operation.
func TestSimResizeErrors(t *testing.T) {
	inWorlds(t, 20, 1_000, func(t *testing.T, seed uint64, states *atomic.Int64) {
		fault := simFaults[seed%uint64(len(simFaults))]
		world := 7200 + seed/uint64(len(simFaults))%2
		plain := resizing(world)
		if err := plain.play(2, 6); err != nil {
			t.Fatal(err)
		}
		for k := 1 + int(seed%8); k <= plain.disk.Ops(); k += 8 {
			err := resizing(world).strike(2, 6, func(d *vfs.Disk) { d.Inject(vfs.Match{N: k}, fault) })
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

// TestRingShrinks: the room that a large batch needed in the ring is given back, with entries
// that others wrote since kept, and also when the store is closed.
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

// TestGrowingFailsAlone: a batch is refused if there is no room for a ring large enough; the old
// ring stays in use, and small batches go on.
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

// TestReplacedRingsAreClosed: a journal that was replaced, by this process or another, is closed,
// but not while it is still being synced.
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
	g := &group{ring: stores[0].lock.state.ring, ctl: stores[0].lock.state.ctl} // as if it were about to sync
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

// TestCheckpointErrorsAreTold: a failed background checkpoint is logged, once for each reason,
// and counted in the measures.
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

// TestSuspectsAreGuarded is for the race detector: logs whose sync failed are copied while others
// check whether there are any.
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
				s.checkpoints.suspects.any()
			}
		}
	})
	for range 20 {
		s.checkpoints.suspects.add(3, "s")
		s.checkpoints.ckMu.Lock()
		err := s.checkpoints.syncLogs(&checkpointing{seen: map[peers.Mark]bool{}})
		s.checkpoints.ckMu.Unlock()
		if err != nil || s.checkpoints.suspects.any() {
			t.Errorf("copy of a log whose sync had failed: %v, still suspicious: %v", err, s.checkpoints.suspects.any())
		}
	}
	close(stop)
	looking.Wait()
}

// growingStore is a new store with a small ring, on a real disk, and the configuration it
// has.
func growingStore(t *testing.T, fsys vfs.FS) (*Store, config) {
	t.Helper()
	cfg := defaultConfig()
	cfg.firstRing, cfg.ringSize = 2<<20, 32<<20
	s, err := open(fsys, Options{LockWait: time.Minute}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s, cfg
}

func journalSize(t *testing.T, fsys vfs.FS) uint64 {
	t.Helper()
	st, err := fsys.Stat(journal.Name)
	if err != nil {
		t.Fatal(err)
	}
	return uint64(st.Size) - journal.RingAt
}

// TestRingStartsSmall: the ring of a new store is small, and grows when the store is busy,
// beside writers in two processes: none of them is told an outcome that is not so.
func TestRingStartsSmall(t *testing.T) {
	root, err := vfs.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	s, cfg := growingStore(t, root)
	other, _ := growingStore(t, root)
	if size := journalSize(t, root); size != cfg.firstRing {
		t.Fatalf("the ring of a new store has %d bytes, want %d", size, cfg.firstRing)
	}
	stored := map[*Store]int{}
	var mu sync.Mutex
	var work sync.WaitGroup
	deadline := time.Now().Add(time.Minute)
	for i, p := range []*Store{s, other, s, other} {
		work.Go(func() {
			for n := 0; journalSize(t, root) != cfg.ringSize || n < 20; n++ {
				if time.Now().After(deadline) {
					t.Errorf("the ring did not grow: %d bytes", journalSize(t, root))
					return
				}
				r, err := p.Append(t.Context(), hansard.SessionID(fmt.Sprint("s", i)), hansard.Batch{Create: true, Events: []hansard.Event{pad(n, 4000)}})
				if err != nil || int(r.First) != n+1 {
					t.Errorf("append %d: %+v, %v", n, r, err)
					return
				}
				mu.Lock()
				stored[p]++
				mu.Unlock()
			}
		})
	}
	work.Wait()
	if stored[s] == 0 || stored[other] == 0 {
		t.Errorf("%d and %d appends", stored[s], stored[other])
	}
	if n := s.Measures()["journal_rotations_total"] + other.Measures()["journal_rotations_total"]; n != 0 {
		t.Errorf("%v rotations are counted: they are worth an alarm", n)
	}
	if err := errors.Join(other.Close(), s.Close()); err != nil {
		t.Fatal(err)
	}
	if size := journalSize(t, root); size != cfg.ringSize {
		t.Errorf("after the store was closed its ring has %d bytes, want %d", size, cfg.ringSize)
	}
	s, _ = growingStore(t, root)
	defer s.Close()
	all := 0
	for i := range 4 {
		id := hansard.SessionID(fmt.Sprint("s", i))
		if err := wantSound(s, id); err != nil {
			t.Error(err)
		}
		info, err := s.Stat(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		all += int(info.LastSeq)
	}
	var want int
	for _, n := range stored {
		want += n
	}
	if all != want {
		t.Errorf("%d events, %d were stored", all, want)
	}
}

// tightFS is nearly full, or stops in the zeros of a new journal.
type tightFS struct {
	vfs.FS
	free    uint64
	reached chan struct{} // nil: it does not stop
	letGo   chan struct{}
	zeroed  atomic.Int64
}

func (f *tightFS) Free() (uint64, error) { return f.free, nil }

func (f *tightFS) Open(name string, flags vfs.Flag) (vfs.File, error) {
	file, err := f.FS.Open(name, flags)
	if err == nil && strings.HasPrefix(name, "journal.") {
		file = &tightFile{file, f}
	}
	return file, err
}

type tightFile struct {
	vfs.File
	f *tightFS
}

func (t *tightFile) Datasync() error {
	if t.f.zeroed.Add(1) == 2 && t.f.reached != nil { // the first is that of the small one
		close(t.f.reached)
		<-t.f.letGo
	}
	return t.File.Datasync()
}

// TestRingStaysSmall: on a disk that is nearly full the ring does not grow, and appends
// go on.
func TestRingStaysSmall(t *testing.T) {
	root, err := vfs.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	fsys := &tightFS{FS: root, free: 4*32<<20 - 1}
	s, cfg := growingStore(t, fsys)
	for n := range 1500 { // several laps of the small ring
		if _, err := s.Append(t.Context(), "s", hansard.Batch{Create: true, Events: []hansard.Event{pad(n, 4000)}}); err != nil {
			t.Fatalf("append %d: %v", n, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if size, synced := journalSize(t, root), fsys.zeroed.Load(); size != cfg.firstRing || synced != 1 {
		t.Errorf("the ring has %d bytes, and files for it were synced %d times", size, synced)
	}
}

// TestGrowingFails: a writer that can't make the full ring larger goes on with the small
// one, and does not try again.
func TestGrowingFails(t *testing.T) {
	d := vfs.NewDisk(1)
	cfg := simConfig(1, 4*simRing)
	cfg.firstRing = simRing
	s, err := open(d.Process("p"), Options{LockWait: time.Hour}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	d.Inject(vfs.Match{Kind: vfs.OpSync, Name: "journal.*.tmp"}, vfs.Fault{Err: syscall.EIO})
	for n := range 100 { // several laps
		if r, err := s.Append(t.Context(), "s", hansard.Batch{Create: true, Events: []hansard.Event{pad(n, simRing/32)}}); err != nil || int(r.First) != n+1 {
			t.Fatalf("append %d: %+v, %v", n, r, err)
		}
	}
	if n := ringBytes(t, d); n != simRing || !s.growFails.Load() {
		t.Errorf("the ring has %d bytes, want %d; failed to grow: %v", n, simRing, s.growFails.Load())
	}
	if err := wantSound(s, "s"); err != nil {
		t.Error(err)
	}
}

// TestCloseBesideGrowing: a store that is closed while its ring grows does not wait for a
// slow disk: the small ring stays, and nothing of the new one.
func TestCloseBesideGrowing(t *testing.T) {
	root, err := vfs.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	fsys := &tightFS{FS: root, free: 1 << 40, reached: make(chan struct{}), letGo: make(chan struct{})}
	s, cfg := growingStore(t, fsys)
	for n := range 100 { // more than an eighth of the small ring, less than half
		if _, err := s.Append(t.Context(), "s", hansard.Batch{Create: true, Events: []hansard.Event{pad(n, 4000)}}); err != nil {
			t.Fatalf("append %d: %v", n, err)
		}
	}
	select {
	case <-fsys.reached:
	case <-time.After(time.Minute):
		t.Fatal("the ring does not grow")
	}
	closed := make(chan error)
	go func() { closed <- s.Close() }()
	<-s.closing
	close(fsys.letGo)
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("Close does not return")
	}
	files, err := root.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if strings.HasSuffix(f.Name, ".tmp") {
			t.Errorf("%s is left", f.Name)
		}
	}
	if size, synced := journalSize(t, root), fsys.zeroed.Load(); size != cfg.firstRing || synced > 2 {
		t.Errorf("the ring has %d bytes, and the new one was synced %d times", size, synced-1)
	}
}
