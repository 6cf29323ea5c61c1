package filestore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"hansard"
	"hansard/filestore/internal/journal"
	"hansard/filestore/internal/peers"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

// TestProbe: a probe writes to the journal and syncs it, leaves nothing visible, and wakes
// nobody.
func TestProbe(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	say(t, s, "s", nil, "one")
	p := s.waiters.join(sessionlog.EncodeName("s"))
	defer s.waiters.leave(sessionlog.EncodeName("s"), p, true)
	woken := s.waiters.channel(p)
	log, err := os.ReadFile(filepath.Join(dir, sessionlog.Path("s")))
	if err != nil {
		t.Fatal(err)
	}
	files := namesIn(t, dir)
	before := s.Measures()
	for range 3 {
		if err := s.Probe(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	after := s.Measures()
	for _, name := range []string{"journal_syncs_total", "write_locks_total"} {
		if after[name] < before[name]+3 {
			t.Errorf("three probes: %s grew by %v", name, after[name]-before[name])
		}
	}
	select {
	case <-woken:
		t.Error("a probe woke those who wait for the session")
	default:
	}
	if now, err := os.ReadFile(filepath.Join(dir, sessionlog.Path("s"))); err != nil || string(now) != string(log) {
		t.Errorf("the log was changed, or %v", err)
	}
	if now := namesIn(t, dir); !slices.Equal(now, files) {
		t.Errorf("files %q, before %q", now, files)
	}
	hears(t, s, "s", "one")
	for info := range s.List(t.Context(), hansard.Query{}) {
		if info.ID != "s" {
			t.Errorf("the probe left session %s", info.ID)
		}
	}
	if all, err := findings(s, ""); err != nil || slices.ContainsFunc(all, func(f hansard.Finding) bool { return f.Level != hansard.LevelOK }) {
		t.Errorf("verify: %+v, %v", all, err)
	}
	reader, err := Open(dir, &Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if err := reader.Probe(t.Context()); !errors.Is(err, hansard.ErrReadOnly) {
		t.Errorf("a store that can only be read: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Probe(t.Context()); !errors.Is(err, hansard.ErrClosed) {
		t.Errorf("a closed store: %v", err)
	}
}

func namesIn(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// TestProbeFails: a probe fails where an append would, and succeeds again once the fault is gone.
func TestProbeFails(t *testing.T) {
	sync, write := vfs.Match{Kind: vfs.OpSync}, vfs.Match{Kind: vfs.OpWrite, Name: journal.Name}
	for _, c := range []struct {
		what  string
		match vfs.Match
		err   error
		want  error
	}{
		{"syncs fail", sync, syscall.EIO, hansard.ErrFailed},
		{"syncs find no space", sync, syscall.ENOSPC, hansard.ErrNoSpace},
		{"the journal can't be written", write, syscall.EIO, hansard.ErrFailed},
		{"the journal finds no space", write, syscall.ENOSPC, hansard.ErrNoSpace},
		{"the lock can't be had", vfs.Match{Kind: vfs.OpLock}, syscall.EIO, syscall.EIO},
	} {
		d := vfs.NewDisk(1)
		s := openSim(t, d.Process("a"), 1)
		say(t, s, "s", nil, "one")
		d.Inject(c.match, vfs.Fault{Err: c.err, Always: true})
		if err := s.Probe(t.Context()); !errors.Is(err, c.want) || errors.Is(err, hansard.ErrUnknown) {
			t.Errorf("%s: %v, want %v", c.what, err, c.want)
		}
		d.ClearRules()
		if err := s.Probe(t.Context()); err != nil {
			t.Errorf("%s no longer: %v", c.what, err)
		}
		say(t, s, "s", nil, "two")
		hears(t, s, "s", "one", "two")
	}
	d := vfs.NewDisk(1)
	s := openSim(t, d.Process("a"), 1)
	d.Capacity = 1
	if err := s.Probe(t.Context()); !errors.Is(err, hansard.ErrNoSpace) {
		t.Errorf("a full disk: %v", err)
	}
	d.Capacity = 0
	if err := s.Probe(t.Context()); err != nil {
		t.Errorf("a disk with room again: %v", err)
	}
}

// TestProbeDamaged: a journal that takes no writes fails the probe.
func TestProbeDamaged(t *testing.T) {
	j := killed(t, 1, 12)
	j.disk.Poke(journal.Name, 0, make([]byte, journal.RingAt))
	s, err := joined(j.disk.Process("server"), 5)
	if !errors.Is(err, hansard.ErrDamaged) {
		t.Fatalf("join: %v", err)
	}
	if err := s.Probe(t.Context()); !errors.Is(err, hansard.ErrDamaged) {
		t.Errorf("probe: %v", err)
	}
}

// TestProbeBounded: while another process is stopped inside write.lock, a probe fails when its
// time is up.
func TestProbeBounded(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	say(t, s, "s", nil, "one")
	s.lock.mu.Lock() // so nobody in this process has the lock, either
	other, err := s.fs.Open(peers.WriteLock, 0)
	if err == nil {
		err = other.Lock(vfs.LockExclusive)
	}
	s.lock.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := s.Probe(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("probe: %v", err)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Probe(t.Context()); err != nil {
		t.Errorf("then: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestProbeForEver: however often several processes probe the store, it does not grow, and
// appends in between are safe.
func TestProbeForEver(t *testing.T) {
	const probes = 20_000 // the ring has room for 68
	d := vfs.NewDisk(1)
	a, b := twoOn(t, d)
	var want, names []string
	size := 0
	for i := range probes {
		s := []*Store{a, b}[i%2]
		if err := s.Probe(t.Context()); err != nil {
			t.Fatalf("probe %d: %v", i, err)
		}
		if i%500 != 0 {
			continue
		}
		say(t, s, "s", nil, "after %d", i)
		want = append(want, fmt.Sprintf("after %d", i))
		file, _ := d.CacheBytes(journal.Name)
		if i == 500 { // by now the checkpoints have created the files they need
			names, size = d.Names(), len(file)
		} else if i > 500 && (len(file) != size || !slices.Equal(d.Names(), names)) {
			t.Fatalf("after %d probes: %d bytes of journal, files %q; after 500: %d, %q", i, len(file), d.Names(), size, names)
		}
	}
	if n := a.Measures()["journal_syncs_total"]; n < probes/2 {
		t.Errorf("half of %d probes synced the journal %v times", probes, n)
	}
	d.PowerCut(vfs.Cut{})
	hears(t, openSim(t, d.Process("c"), 3), "s", want...)
}

// TestProbeNotDurable: a probe whose process died before its sync is not taken for durable by
// those who find it (invariant 7).
func TestProbeNotDurable(t *testing.T) {
	d := vfs.NewDisk(1)
	a, b := twoOn(t, d)
	say(t, a, "s", nil, "one")
	d.KillAt(vfs.Match{Proc: "a", Kind: vfs.OpSync, Name: journal.Name}, 0)
	if err := a.Probe(t.Context()); err == nil {
		t.Fatal("a probe without its sync succeeded")
	}
	d.ClearRules()
	l, err := b.lock.lockCaughtUp()
	if err != nil {
		t.Fatal(err)
	}
	defer l.unlock()
	if l.w.Applied >= l.w.Written || l.w.Applied != l.lim {
		t.Errorf("written %d, applied %d, durable %d", l.w.Written, l.w.Applied, l.lim)
	}
}

// TestProbeAtTheEndOfTheRing: probes and entries cross the end of the ring at every possible
// alignment, and any later reader of the ring, a concurrent process or one after a crash, finds
// the same.
func TestProbeAtTheEndOfTheRing(t *testing.T) {
	for extra := range journal.EntryHeader / journal.EntryAlign {
		d := vfs.NewDisk(1)
		p := d.Process("a")
		a, b := openSim(t, p, 1), openSim(t, d.Process("b"), 2)
		var heard []string
		tell := func(s *Store, what string) {
			say(t, s, "s", nil, "%s", what)
			heard = append(heard, what)
		}
		tell(a, strings.Repeat("x", 1+extra*journal.EntryAlign))
		for i := 0; a.lock.state.w.Written < 8*a.lock.state.ring.Size; i++ {
			if err := a.Probe(t.Context()); err != nil {
				t.Fatal(err)
			}
			if i%2 == 0 {
				tell(b, fmt.Sprint("after ", i))
			}
		}
		d.KillAt(vfs.Match{Proc: "a", Kind: vfs.OpSync, Name: journal.Name}, 0)
		_ = a.Probe(t.Context()) // and dies before its sync
		d.ClearRules()
		tell(b, "behind a dead prober")
		hears(t, b, "s", heard...)
		if n := a.measures.rotations.Load() + b.measures.rotations.Load(); n > 0 {
			t.Errorf("the ring was not what it should be, and was replaced %d times", n)
		}
		d.PowerCut(vfs.Cut{})
		hears(t, openSim(t, d.Process("after"), 3), "s", heard...)
	}
}

// TestProbeLeavesItClean: a store that was only probed needs no second checkpoint, and is left
// clean.
func TestProbeLeavesItClean(t *testing.T) {
	d := vfs.NewDisk(1)
	s := openSim(t, d.Process("a"), 1)
	say(t, s, "s", nil, "one")
	want(t, "checkpoint", s.checkpoints.checkpoint(true), nil)
	for range 3 {
		want(t, "probe", s.Probe(t.Context()), nil)
	}
	want(t, "checkpoint", s.checkpoints.checkpoint(true), nil)
	if s.lock.state.w.Start != s.lock.state.w.Written || len(s.lock.state.logs.dirty.m) != 0 || len(s.lock.state.logs.pending.all) != 0 {
		t.Errorf("start %d, written %d, %d logs dirty, %d entries pending", s.lock.state.w.Start, s.lock.state.w.Written, len(s.lock.state.logs.dirty.m), len(s.lock.state.logs.pending.all))
	}
	before := s.Measures()["journal_syncs_total"]
	want(t, "checkpoint of nothing", s.checkpoints.checkpoint(true), nil)
	if now := s.Measures()["journal_syncs_total"]; now != before {
		t.Errorf("a checkpoint of nothing synced the journal")
	}
	want(t, "probe", s.Probe(t.Context()), nil)
	want(t, "close", s.Close(), nil)
	f, err := d.Process("b").Open(journal.Name, vfs.ReadOnly)
	if err != nil {
		t.Fatal(err)
	}
	if slots, _, best, err := journal.ReadSlots(f); err != nil || !journal.LeftClean(slots, best) {
		t.Errorf("it is not left clean: %+v, %v", slots, err)
	}
}
