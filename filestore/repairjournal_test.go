package filestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
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

// TestRepairJournalCut cuts the power before every operation of the repair, and repairs again.
func TestRepairJournalCut(t *testing.T) {
	states := 0
	j := killed(t, 3, 10)
	base := j.disk.Clone()
	base.PowerCut(vfs.Cut{})
	file, _ := base.CacheBytes(journal.Name)
	found := entriesOf(t, file)
	rng := rand.New(rand.NewPCG(3, 8))
	all := harms(found, len(file), rng)
	for range 12 {
		h := all[rng.IntN(len(all))]
		broken := h.do(bytes.Clone(file))
		for n := 1; ; n++ {
			d := base.Clone()
			putFile(t, d, journal.Name, broken)
			s, damage := joined(d.Process("first"), 84)
			if damage == nil {
				break // the damage had no effect
			}
			c := vfs.Cut{Keep: n * 37 % 101, Seed: uint64(n)}
			d.CutAt(vfs.Match{Kind: vfs.OpChange, N: n}, c)
			first, err := s.RepairJournal(context.Background())
			if err == nil {
				break // past the last operation
			}
			states++
			d.ClearRules()
			if err := j.again(d, first, broken); err != nil {
				t.Fatalf("%s, power cut before operation %d, %+v: %v\n%s", h.what, n, c, err, trace(d, 40))
			}
		}
	}
	if t.Logf("%d states", states); states < 300 {
		t.Errorf("only %d states", states)
	}
}

// again repairs what a power cut in the middle of a repair left.
func (j *journaled) again(d *vfs.Disk, first hansard.JournalRepaired, broken []byte) error {
	now, _ := d.CacheBytes(journal.Name)
	if bytes.Equal(now, broken) { // the cut was before the rename
		done, err := j.repairedOn(d, true, broken)
		if err == nil && !done.Changed {
			err = errors.New("a damaged journal was left alone")
		}
		if err != nil {
			err = fmt.Errorf("%w\n%+v", err, done)
		}
		return err
	}
	// The findings of the first repair are on the disk: they are the damaged sessions.
	s, err := openOn(d.Process("second"), 85, simRing)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	done, err := s.RepairJournal(context.Background())
	if err != nil || done.Changed {
		return fmt.Errorf("second repair: %+v, %v", done, err)
	}
	for id := range j.acked {
		info, err := s.Stat(context.Background(), id)
		if errors.Is(err, hansard.ErrDamaged) || err == nil && info.Damaged() {
			first.Sessions = append(first.Sessions, hansard.SalvagedSession{Session: id, Events: info.LastSeq, Aside: []string{"some"}})
		}
	}
	return j.told(s, first, true)
}

// TestRepairJournalAlone: the journal is not repaired while other processes use it.
func TestRepairJournalAlone(t *testing.T) {
	ctx := context.Background()
	d := vfs.NewDisk(1)
	a, b := openSim(t, d.Process("a"), 1), openSim(t, d.Process("b"), 2)
	say(t, a, "s", nil, "one")
	if _, err := a.RepairJournal(ctx); !errors.Is(err, hansard.ErrBusy) || !strings.Contains(hansard.Hint(err), "end every program") {
		t.Errorf("with somebody else there: %v (%s), want ErrBusy", err, hansard.Hint(err))
	}
	say(t, a, "s", nil, "two") // it is still attached
	say(t, b, "s", nil, "three")
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	// A process that is about to leave: it no longer has an instance, but still has the lock.
	f, err := d.Process("leaving").Open(peers.OpenLock, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := f.TryLock(vfs.LockShared); !got || err != nil {
		t.Fatalf("shared lock: %v, %v", got, err)
	}
	if _, err := a.RepairJournal(ctx); !errors.Is(err, hansard.ErrBusy) {
		t.Errorf("with open.lock held: %v, want ErrBusy", err)
	}
	_ = f.Close()
	if done, err := a.RepairJournal(ctx); err != nil || done.Changed {
		t.Errorf("of a sound journal: %+v, %v", done, err)
	}
	say(t, a, "s", nil, "four")
	// Damaged while one process has it open, which repairs it itself.
	d.Poke(journal.Name, 0, make([]byte, journal.RingAt))
	if done, err := a.RepairJournal(ctx); err != nil || !done.Changed {
		t.Errorf("of a journal without slots: %+v, %v", done, err)
	}
	say(t, a, "s", nil, "five")
	d.PowerCut(vfs.Cut{})
	hears(t, openSim(t, d.Process("c"), 3), "s", "one", "two", "three", "four", "five")
}

// TestRepairJournalOnDisk: the same on a real file system, with a journal of normal size.
func TestRepairJournalOnDisk(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	s, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	say(t, s, "s", nil, "one")
	say(t, s, "other", nil, "two")
	say(t, s, "s", nil, "three")
	if err := s.checkpoints.checkpoint(true); err != nil {
		t.Fatal(err)
	}
	say(t, s, "s", nil, "four")
	path := filepath.Join(dir, journal.Name)
	live, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(dir, filepath.FromSlash(sessionlog.Path("s")))
	b, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	// As after a power cut: "four" is only in the journal, whose slots are gone.
	lines := linesOf(b)
	clear(live[:journal.RingAt])
	if err := errors.Join(os.WriteFile(log, bytes.Join(lines[:3], nil), 0o600), os.WriteFile(path, live, 0o600)); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(dir, nil); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	say(t, s, "s", hansard.ErrDamaged, "refused")
	done, err := s.RepairJournal(ctx)
	if err != nil || !done.Changed || len(done.Sessions) != 1 || done.Sessions[0].Restored != 1 || done.Sessions[0].Aside != nil {
		t.Fatalf("repair: %+v, %v", done, err)
	}
	hears(t, s, "s", "one", "three", "four")
	hears(t, s, "other", "two")
	say(t, s, "s", nil, "five")
}

// TestRepairJournalUnderWriters: a process that is alone in the store may repair the journal
// while it writes, as a server does: everything it acknowledged before, during and after is there
// once.
func TestRepairJournalUnderWriters(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	const writers, rounds = 4, 3
	var wg sync.WaitGroup
	var acks atomic.Int64
	stop := make(chan struct{})
	acked := make([][]string, writers)
	for i := range writers {
		id := hansard.SessionID(fmt.Sprint("s", i))
		say(t, s, id, nil, "first")
		wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				e := text("%d", n)
				switch _, err := s.Append(context.Background(), id, hansard.Batch{Events: []hansard.Event{e}}); {
				case err == nil:
					acked[i] = append(acked[i], string(e.Data))
					acks.Add(1)
				case !errors.Is(err, hansard.ErrDamaged) && !errors.Is(err, hansard.ErrFailed) && !errors.Is(err, hansard.ErrUnknown):
					t.Errorf("append to %s: %v", id, err)
					return
				}
			}
		})
	}
	more := func() {
		t.Helper()
		for before, deadline := acks.Load(), time.Now().Add(time.Minute); acks.Load() < before+50; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("nothing is acknowledged any more")
			}
		}
	}
	for range rounds {
		more()
		f, err := os.OpenFile(filepath.Join(dir, journal.Name), os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.WriteAt(make([]byte, journal.RingAt), 0)
		if err = errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		if done, err := s.RepairJournal(t.Context()); err != nil || !done.Changed {
			t.Fatalf("repair: %+v, %v", done, err)
		}
	}
	more()
	close(stop)
	wg.Wait()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(dir, nil); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for i := range writers {
		id, there := hansard.SessionID(fmt.Sprint("s", i)), map[string]int{}
		for e, err := range s.Read(t.Context(), id, hansard.Range{}) {
			if err != nil {
				t.Fatal(err)
			}
			there[string(e.Data)]++
		}
		for _, data := range acked[i] {
			if there[data] != 1 {
				t.Errorf("%s has %s %d times", id, data, there[data])
			}
		}
		if err := wantSound(s, id); err != nil {
			t.Error(err)
		}
	}
	t.Logf("%d acknowledged", acks.Load())
}

// TestRepairJournalTriedAgain: a repair of the journal that could neither sync a log nor copy it
// does not believe a sync of it when it is tried again: the kernel says OK of pages that are gone.
func TestRepairJournalTriedAgain(t *testing.T) {
	ctx := context.Background()
	for _, second := range []vfs.Match{
		{Proc: "P2", Kind: vfs.OpOpen, Name: "log.*.tmp"},
		{Proc: "P2", Kind: vfs.OpRename, Name: sessionlog.Path("a")},
	} {
		d := journalGone(t)
		s := openAnyway(t, d.Process("P2"), 2)
		d.Inject(vfs.Match{Proc: "P2", Kind: vfs.OpSync, Name: sessionlog.Path("a")}, vfs.Fault{Err: syscall.EIO})
		d.Inject(second, vfs.Fault{Err: syscall.EIO})
		_, err := s.RepairJournal(ctx)
		want(t, "repair", err, syscall.EIO)
		_, err = s.RepairJournal(ctx)
		want(t, "repair again", err, nil)
		if got, err := afterCut(d, "a"); got != "one two" || err != nil {
			t.Errorf("%+v: a has %q, %v", second, got, err)
		}
	}
}

// TestRepairJournalBesideABadLog: one log that can be neither synced nor read does not keep the
// journal from being repaired, and so the store from being written to.
func TestRepairJournalBesideABadLog(t *testing.T) {
	d := journalGone(t)
	s := openAnyway(t, d.Process("P2"), 2)
	d.Inject(vfs.Match{Proc: "P2", Kind: vfs.OpSync | vfs.OpRead, Name: sessionlog.Path("a")}, vfs.Fault{Err: syscall.EIO, Always: true})
	_, err := s.RepairJournal(context.Background())
	want(t, "repair", err, nil)
	say(t, s, "b", nil, "three")
	if got, err := afterCut(d, "b"); got != "one two three" || err != nil {
		t.Errorf("b has %q, %v", got, err)
	}
}

// journalGone is a disk whose process was killed before the logs were durable, and whose journal has
// lost everything.
func journalGone(t *testing.T) *vfs.Disk {
	t.Helper()
	d := vfs.NewDisk(7)
	p := d.Process("P1")
	s := openSim(t, p, 1)
	for _, what := range []string{"one", "two"} {
		say(t, s, "a", nil, "%s", what)
		say(t, s, "b", nil, "%s", what)
	}
	p.Kill()
	file, _ := d.CacheBytes(journal.Name)
	d.Poke(journal.Name, 0, make([]byte, len(file)))
	return d
}

// openAnyway opens a store that can't be joined.
func openAnyway(t *testing.T, fsys vfs.FS, seed uint64) *Store {
	t.Helper()
	cfg := simConfig(seed, simRing)
	cfg.anyway = true
	s, err := open(fsys, Options{}, cfg)
	want(t, "open", err, nil)
	return s
}
