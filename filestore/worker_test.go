package filestore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
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
	"hansard/internal/syncbuf"
	"hansard/internal/vfs"
)

// What the background worker does on its own: nobody in these tests calls a checkpoint, writes
// again or closes the store before it is done.

// workedFS is a real file system that fails on demand, and tells when the worker is at it.
type workedFS struct {
	vfs.FS
	illLogs, illDir atomic.Bool   // writes to the logs fail; so do syncs of their directory
	ticked          chan struct{} // the worker began a checkpoint since this was last received

	mu    sync.Mutex
	rings []int64 // the sizes of all rings that were installed; guarded by mu
}

func (f *workedFS) Open(name string, flags vfs.Flag) (vfs.File, error) {
	if name == peers.CheckLock {
		select {
		case f.ticked <- struct{}{}:
		default:
		}
	}
	file, err := f.FS.Open(name, flags)
	if err == nil && strings.HasPrefix(name, sessionlog.Dir+"/") {
		file = &workedFile{file, f}
	}
	return file, err
}

func (f *workedFS) SyncDir(name string) error {
	if name == sessionlog.Dir && f.illDir.Load() {
		return syscall.EIO
	}
	return f.FS.SyncDir(name)
}

func (f *workedFS) Rename(from, to string) error {
	if st, err := f.FS.Stat(from); err == nil && to == journal.Name {
		f.mu.Lock()
		f.rings = append(f.rings, st.Size-journal.RingAt)
		f.mu.Unlock()
	}
	return f.FS.Rename(from, to)
}

func (f *workedFS) largestRing() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Max(f.rings)
}

type workedFile struct {
	vfs.File
	f *workedFS
}

func (w *workedFile) WriteAt(p []byte, off int64) (int, error) {
	if w.f.illLogs.Load() {
		return 0, syscall.EIO
	}
	return w.File.WriteAt(p, off)
}

// until waits until something is so; it looks again with every checkpoint of the worker.
func (f *workedFS) until(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	for !is() {
		select {
		case <-f.ticked:
		case <-deadline:
			t.Fatalf("in a minute the worker has not: %s", what)
		}
	}
}

// worked is a store on a real disk with a small ring, whose worker is always busy, and its log.
func worked(t *testing.T) (*Store, *workedFS, *syncbuf.Buffer) {
	t.Helper()
	root, err := vfs.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	fsys, log := &workedFS{FS: root, ticked: make(chan struct{}, 1)}, new(syncbuf.Buffer)
	cfg := defaultConfig()
	cfg.ringSize, cfg.firstRing, cfg.checkpointEvery = 256<<10, 0, 5*time.Millisecond
	s, err := open(fsys, Options{LockWait: time.Minute, Log: slog.New(slog.NewTextHandler(log, nil))}, cfg)
	if err != nil {
		t.Fatal(errors.Join(err, root.Close()))
	}
	t.Cleanup(func() {
		if err := errors.Join(s.Close(), root.Close()); err != nil {
			t.Error(err)
		}
	})
	return s, fsys, log
}

// TestWorkerTells: the worker logs that checkpoints fail, once, and that they work again.
func TestWorkerTells(t *testing.T) {
	s, fsys, log := worked(t)
	say(t, s, "s", nil, "one")
	fsys.illDir.Store(true)
	say(t, s, "s", nil, "two")
	logged := func(what string) func() bool {
		return func() bool { return strings.Contains(log.String(), what) }
	}
	failed := s.measures.failedCheckpoints.Load()
	fsys.until(t, "logged that checkpoints fail", logged("checkpoint failed"))
	fsys.until(t, "tried again", func() bool { return s.measures.failedCheckpoints.Load() >= failed+3 })
	if logged("work again")() {
		t.Errorf("the disk is still ill:\n%s", log)
	}
	fsys.illDir.Store(false)
	fsys.until(t, "logged that checkpoints work again", logged("checkpoints work again"))
	if n := strings.Count(log.String(), "checkpoint failed"); n != 1 {
		t.Errorf("one reason is told %d times:\n%s", n, log)
	}
}

// TestWorkerShrinks: the worker gives back the room that a large batch needed in the ring, while
// the store stays open.
func TestWorkerShrinks(t *testing.T) {
	s, fsys, _ := worked(t)
	if _, err := s.Append(t.Context(), "s", largeBatch(int(s.cfg.ringSize))); err != nil {
		t.Fatal(err)
	}
	if n := fsys.largestRing(); n <= int64(s.cfg.ringSize) {
		t.Fatalf("no ring had more than %d bytes: the batch was not large", n)
	}
	fsys.until(t, "made the ring small again", func() bool { return journalSize(t, fsys) == s.cfg.ringSize })
	if r := say(t, s, "s", nil, "more"); r.First != 2 {
		t.Errorf("the next event got seq %d", r.First)
	}
	if err := wantSound(s, "s"); err != nil {
		t.Error(err)
	}
}

// TestWorkerMends: the worker puts lines that were set aside after an I/O error into their log,
// without another write to the session.
func TestWorkerMends(t *testing.T) {
	s, fsys, _ := worked(t)
	say(t, s, "s", nil, "one")
	fsys.illLogs.Store(true)
	say(t, s, "s", hansard.ErrUnknown, "two")
	fsys.until(t, "set the lines aside", func() bool { return len(setAsideOf(s, "s")) > 0 })
	damaged := func() bool {
		info, err := s.Stat(context.Background(), "s")
		return err != nil || info.Damage != nil
	}
	if !damaged() {
		t.Error("a session that lacks lines is not damaged")
	}
	fsys.illLogs.Store(false)
	fsys.until(t, "mended the session", func() bool { return len(setAsideOf(s, "s")) == 0 && !damaged() })
	hears(t, s, "s", "one", "two")
	if err := wantSound(s, "s"); err != nil {
		t.Error(err)
	}
}

// TestWorkerErases: the worker removes the content of a deleted session from its log, while the
// store stays open.
func TestWorkerErases(t *testing.T) {
	s, fsys, _ := worked(t)
	say(t, s, "s", nil, "a secret")
	if err := s.Delete(t.Context(), "s", ""); err != nil {
		t.Fatal(err)
	}
	fsys.until(t, "erased the session", func() bool {
		b, err := s.asides.readAll(sessionlog.Path("s"))
		return err == nil && !strings.Contains(string(b), "secret")
	})
}

// TestWorkerWritesRuns: the worker writes the index of a session that has many names, though too
// few for an append to write it, so that a fresh process reads little of the log.
func TestWorkerWritesRuns(t *testing.T) {
	s, fsys, _ := worked(t)
	batch := func(n int) hansard.Batch {
		b := hansard.Batch{Create: true}
		for i := range 50 {
			b.Events = append(b.Events, hansard.Event{ID: fmt.Sprint("event ", n, "/", i), Data: []byte(`"` + strings.Repeat("x", 1<<10) + `"`)})
		}
		return b
	}
	for n := range 10 {
		if _, err := s.Append(t.Context(), "s", batch(n)); err != nil {
			t.Fatal(err)
		}
	}
	fsys.until(t, "written a run", func() bool { whole, _ := runsThere(t, fsys); return whole > 0 })
	for n := range 10 {
		if r, err := s.Append(t.Context(), "s", batch(n)); err != nil || !r.Replayed || len(r.Seqs) != 50 {
			t.Errorf("batch %d once more: %+v, %v", n, r, err)
		}
	}
}
