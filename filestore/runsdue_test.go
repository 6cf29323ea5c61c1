package filestore

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"hansard"
	"hansard/filestore/internal/cache"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

// slowCacheFS stops in the first write of each file that is to become part of the cache,
// until it is let go.
type slowCacheFS struct {
	vfs.FS
	reached, letGo chan struct{}
}

func (s *slowCacheFS) Open(name string, flags vfs.Flag) (vfs.File, error) {
	f, err := s.FS.Open(name, flags)
	if err == nil && flags&vfs.Create != 0 && strings.HasPrefix(name, "cache.") {
		f = &slowCacheFile{File: f, s: s}
	}
	return f, err
}

type slowCacheFile struct {
	vfs.File
	s       *slowCacheFS
	stopped bool
}

func (f *slowCacheFile) WriteAt(b []byte, off int64) (int, error) {
	if !f.stopped {
		f.stopped = true
		f.s.reached <- struct{}{}
		<-f.s.letGo
	}
	return f.File.WriteAt(b, off)
}

// runDueStore is a store in which a run of the session s is just being written, and names
// is what it has by then.
func runDueStore(t *testing.T) (s *Store, fsys *slowCacheFS, names int) {
	t.Helper()
	root, err := vfs.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	fsys = &slowCacheFS{FS: root, reached: make(chan struct{}, 100), letGo: make(chan struct{})}
	cfg := defaultConfig()
	cfg.names = 64
	if s, err = open(fsys, Options{LockWait: time.Minute}, cfg); err != nil {
		t.Fatal(err)
	}
	for names = 0; ; names++ {
		storeID(t, s, names)
		select {
		case <-fsys.reached:
			return s, fsys, names + 1
		default:
		}
		if names > 100*cfg.names {
			t.Fatalf("no run was begun after %d names", names)
		}
	}
}

// storeID appends the event with the i-th id; it may be known.
func storeID(t *testing.T, s *Store, i int) hansard.Receipt {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	e := hansard.Event{ID: fmt.Sprint("event ", i), Data: []byte("1")}
	r, err := s.Append(ctx, "s", hansard.Batch{Create: true, Events: []hansard.Event{e}})
	if err != nil {
		t.Fatalf("event %d: %v", i, err)
	}
	return r
}

// runsThere counts the runs of the session s, and what was left of unfinished ones.
func runsThere(t *testing.T, fsys vfs.FS) (whole, unfinished int) {
	t.Helper()
	for _, dir := range []string{".", cache.KeysDir} {
		files, err := fsys.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, f := range files {
			switch {
			case strings.HasSuffix(f.Name, ".tmp"):
				unfinished++
			case dir == cache.KeysDir:
				whole++
			}
		}
	}
	return whole, unfinished
}

// TestAppendsBesideRun: appends with ids go on while a run of their session is being
// written, each id is stored once all the same, and the run is there in the end.
func TestAppendsBesideRun(t *testing.T) {
	s, fsys, n := runDueStore(t)
	for i := range 2 * n {
		r := storeID(t, s, i)
		if known := i < n; (r.Last == 0) != known || r.Seqs[0] != hansard.Seq(i+1) {
			t.Fatalf("event %d of %d, while a run is being written: %+v", i, n, r)
		}
	}
	if whole, unfinished := runsThere(t, fsys); whole != 0 || unfinished == 0 {
		t.Fatalf("%d runs and %d unfinished ones: it is not being written", whole, unfinished)
	}
	close(fsys.letGo)
	noRunDue(t, s)
	if whole, unfinished := runsThere(t, fsys); whole == 0 || unfinished != 0 {
		t.Errorf("%d runs and %d unfinished ones", whole, unfinished)
	}
	for i := range 3 * n {
		if r := storeID(t, s, i); (r.Last == 0) != (i < 2*n) {
			t.Fatalf("event %d of %d, after the run was written: %+v", i, 2*n, r)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestCloseBesideRun: a store that is closed while a run is being written does not finish
// it, and leaves no part of it behind.
func TestCloseBesideRun(t *testing.T) {
	s, fsys, _ := runDueStore(t)
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
	if whole, unfinished := runsThere(t, fsys); whole+unfinished != 0 {
		t.Errorf("%d runs and %d unfinished ones", whole, unfinished)
	}
}

// noRunDue waits until no run is due or being written.
func noRunDue(t *testing.T, s *Store) {
	t.Helper()
	d := &s.committer.runsDue
	due := func() int {
		d.mu.Lock()
		defer d.mu.Unlock()
		return len(d.names)
	}
	for end := time.Now().Add(time.Minute); due() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d runs are still due", due())
		}
	}
}

// TestRunsSwept: runs that processes merged and did not live to remove go away with the next prune,
// and once in the background of a process; every name is still found.
func TestRunsSwept(t *testing.T) {
	ctx := context.Background()
	d := vfs.NewDisk(3)
	cfg := func(n int) config {
		c := simConfig(uint64(n), simRing)
		c.names = 2
		return c
	}
	key := func(i int) hansard.Batch {
		return hansard.Batch{Create: true, Key: fmt.Sprint("key ", i), Events: []hansard.Event{text("%d", i)}}
	}
	files := func() (l []string) {
		for _, name := range d.Names() {
			if strings.HasPrefix(name, cache.KeysDir+"/") {
				l = append(l, name)
			}
		}
		return l
	}
	const keys = 64
	for i := 0; i < keys; {
		s, err := open(d.Process("P"), Options{}, cfg(i))
		want(t, "open", err, nil)
		d.KillAt(vfs.Match{Proc: "P", Kind: vfs.OpRemove, Name: cache.KeysDir + "/*"}, 0)
		for err == nil && i < keys {
			if _, err = s.Append(ctx, "s", key(i)); err == nil {
				i++ // else it is killed, and the next process tries again
			}
		}
		d.ClearRules()
	}
	before := files()
	s, err := open(d.Process("Q"), Options{}, cfg(keys))
	want(t, "open", err, nil)
	sweep := map[string]func(){
		"prune":             func() { _, err := s.Prune(ctx, false); want(t, "prune", err, nil) },
		"in the background": func() { s.committer.tendRuns(); s.workers.Wait() },
	}
	all := d.Clone()
	for what, sweep := range sweep {
		t.Run(what, func(t *testing.T) {
			d = all.Clone()
			s, err = open(d.Process("R"), Options{}, cfg(keys+1))
			want(t, "open", err, nil)
			sweep()
			f, err := d.Observer("o").Open("sessions/s.jsonl", vfs.ReadOnly)
			want(t, "open the log", err, nil)
			size, _ := f.Size()
			uid, err := sessionlog.ReadUID(f)
			want(t, "uid", err, nil)
			reached := len(s.runsOf("s", uid).Load(size, func(int64, uint32) bool { return true }))
			if now := files(); len(now) != reached || len(before) <= reached {
				t.Errorf("%d runs are used; there were %q, and now %q", reached, before, now)
			}
			for i := range keys {
				if r, err := s.Append(ctx, "s", key(i)); err != nil || !r.Replayed {
					t.Fatalf("%s: %+v, %v", key(i).Key, r, err)
				}
			}
		})
	}
}
