package filestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"hansard"
	"hansard/filestore/internal/cache"
	"hansard/filestore/internal/journal"
	"hansard/filestore/internal/peers"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

func TestFailure29_TemporaryNamesCollideOrAreSwept(t *testing.T) {
	d := vfs.NewDisk(1)
	made := map[string]int{}
	d.OnOp(func(o vfs.Op) {
		if o.Kind == vfs.OpOpen && strings.HasSuffix(o.Name, ".tmp") && o.Flags&vfs.Exclusive != 0 {
			made[o.Name]++
		}
	})
	a := openSim(t, d.Process("a"), 1)
	putFile(t, d, "journal.0123.tmp", []byte("of somebody at work"))
	b := openSim(t, d.Process("b"), 2)
	if _, ok := d.CacheBytes("journal.0123.tmp"); !ok {
		t.Error("a temporary file was swept while others have the store open")
	}
	for i, s := range []*Store{a, b, a, b} {
		if err := s.writeCache(cache.Dir, "x", []byte{byte(i)}); err != nil {
			t.Fatal(err)
		}
	}
	for name, n := range made {
		if n > 1 {
			t.Errorf("temporary name %s was used %d times", name, n)
		}
	}
	if len(made) != 5 { // the journal and four caches
		t.Errorf("temporary files: %v", made)
	}
}

func TestFailure30_OldPlaceRemovedBeforeTheNewIsWritten(t *testing.T) {
	sm := makeSample(t, 3)
	w := sm.logs["small"]
	log := changed(w.log, len(w.log)-90, 'X')
	v := w.oracle(log)
	for k := 1; ; k++ { // the power is cut before its k-th change
		d := sm.disk.Clone()
		if err := putLog(d, w.id, log); err != nil {
			t.Fatal(err)
		}
		s := openSim(t, d.Process("a"), 1)
		d.CutAt(vfs.Match{Kind: vfs.OpChange, N: k}, vfs.Cut{Keep: k * 37 % 101, Seed: uint64(k)})
		_, repairErr := s.Repair(context.Background(), w.id)
		d.ClearRules()
		b := openSim(t, d.Process("b"), 2)
		var err error
		switch now, _ := d.CacheBytes(sessionlog.Path("small")); {
		case bytes.Equal(now, log):
			err = errors.Join(w.wantRead(b, v), w.wantStat(b, v))
		case bytes.Equal(now, w.log[:v.safeEnd]):
			repaired := verdict{damage: sound, safe: v.safe, safeEnd: v.safeEnd}
			err = errors.Join(w.wantRead(b, repaired), wantKept(d, log))
		default:
			t.Fatalf("before operation %d the log has %d bytes: neither the old nor the new", k, len(now))
		}
		if err != nil {
			t.Fatalf("before operation %d: %v", k, err)
		}
		if repairErr == nil {
			return
		}
	}
}

func TestFailure31_RewriteLosesWhatWasAppendedMeanwhile(t *testing.T) {
	// After a failed sync a log is replaced by a copy, while others append.
	for seed := range uint64(60) {
		d := vfs.NewDisk(seed)
		pa, pb := d.Process("a"), d.Process("b")
		a, b := openSim(t, pa, 1), openSim(t, pb, 2)
		say(t, a, "s", nil, "one")
		d.Inject(vfs.Match{Kind: vfs.OpSync, Name: sessionlog.Path("s")}, vfs.Fault{Err: syscall.EIO})
		errs := make([]error, 3)
		d.Go(pa, func() { errs[0] = a.checkpoints.checkpoint(true) })
		d.Go(pb, func() {
			for i, what := range []string{"two", "three"} {
				_, errs[i+1] = b.Append(context.Background(), "s", hansard.Batch{Events: []hansard.Event{text("%s", what)}})
			}
		})
		if err := errors.Join(d.Run(), errors.Join(errs...)); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		hears(t, a, "s", "one", "two", "three")
		d.PowerCut(vfs.Cut{Keep: int(seed % 4 * 33), Seed: seed})
		hears(t, openSim(t, d.Process("d"), 3), "s", "one", "two", "three")
	}
}

func TestFailure32_DeleteRacesAppendAndTheSessionRevives(t *testing.T) {
	// In depth: the simulation, storetest.
	for seed := range uint64(40) {
		d := vfs.NewDisk(seed)
		pa, pb := d.Process("a"), d.Process("b")
		a, b := openSim(t, pa, 1), openSim(t, pb, 2)
		say(t, a, "s", nil, "one")
		var deleted, appended error
		d.Go(pa, func() { deleted = a.Delete(context.Background(), "s", "") })
		d.Go(pb, func() {
			_, appended = b.Append(context.Background(), "s", hansard.Batch{Create: true, Events: []hansard.Event{text("two")}})
		})
		if err := errors.Join(d.Run(), deleted); err != nil || appended != nil && !errors.Is(appended, hansard.ErrDeleted) {
			t.Fatalf("seed %d: %v, append: %v", seed, err, appended)
		}
		d.PowerCut(vfs.Cut{Keep: int(seed % 4 * 33), Seed: seed})
		s := openSim(t, d.Process("c"), 3)
		say(t, s, "s", hansard.ErrDeleted, "three")
		if _, err := s.Create(context.Background(), "s", hansard.Meta{}); !errors.Is(err, hansard.ErrDeleted) {
			t.Fatalf("seed %d: create: %v, want ErrDeleted", seed, err)
		}
	}
}

func TestFailure33_RepairDeletesValidData(t *testing.T) {
	// In depth: TestSimDamagedLogs repairs one damaged log in eight.
	sm := makeSample(t, 3)
	for id, w := range sm.logs {
		s := openSim(t, sm.disk.Process("a"), 1)
		done, err := s.Repair(context.Background(), id)
		now, _ := sm.disk.CacheBytes(sessionlog.Path(sessionlog.EncodeName(id)))
		if err != nil || done.Changed || !bytes.Equal(now, w.log) {
			t.Errorf("repair of the sound session %s: %+v, %v", id, done, err)
		}
		_ = s.Close()
	}
}

func TestFailure34_CountersInASecondFileDisagree(t *testing.T) {
	sm := makeSample(t, 3)
	d := sm.disk
	want := rebuilt(t, d)
	for _, name := range []string{peers.ControlName, journal.Name} { // everything beside the logs
		putFile(t, d, name, nil)
	}
	s := openSim(t, d.Process("a"), 1)
	got, err := listed(s, hansard.Query{})
	if err == nil {
		err = sameInfos(got, want)
	}
	if err != nil {
		t.Error(err)
	}
	if r := say(t, s, "small", nil, "more"); r.First != hansard.Seq(len(sm.logs["small"].events)+1) {
		t.Errorf("the next seq is %d", r.First)
	}
}

func TestFailure35_HalfATurnIsStored(t *testing.T) {
	// In depth: TestSimKill, TestSimPowerCut.
	for k := 1; ; k++ {
		d := vfs.NewDisk(uint64(k))
		a := openSim(t, d.Process("a"), 1)
		say(t, a, "s", nil, "one")
		d.CutAt(vfs.Match{Kind: vfs.OpChange, N: k}, vfs.Cut{Keep: k * 29 % 101, Seed: uint64(k)})
		_, err := a.Append(context.Background(), "s", hansard.Batch{Events: []hansard.Event{text("question"), text("call"), text("result")}})
		d.ClearRules()
		b := openSim(t, d.Process("b"), 2)
		if info, _ := b.Stat(context.Background(), "s"); info.LastSeq == 1 && err != nil {
			hears(t, b, "s", "one")
		} else {
			hears(t, b, "s", "one", "question", "call", "result")
		}
		if err == nil {
			return
		}
	}
}

func TestFailure36_RetryAfterUnknownOutcomeStoresTwice(t *testing.T) {
	// In depth: the simulation settles every unknown outcome of a keyed batch.
	for k, hit := 1, true; hit; k++ {
		d := vfs.NewDisk(1)
		a := openSim(t, d.Process("a"), 1)
		say(t, a, "s", nil, "one")
		hit = false
		d.OnOp(func(o vfs.Op) { hit = hit || strings.HasPrefix(o.Note, "injected") })
		d.Inject(vfs.Match{N: k}, vfs.Fault{Err: syscall.EIO, Done: k%2 == 0})
		b := hansard.Batch{Key: "k", Events: []hansard.Event{text("two")}}
		_, first := a.Append(context.Background(), "s", b)
		d.ClearRules()
		r, err := a.Append(context.Background(), "s", b)
		if err != nil || r.First != 2 {
			t.Fatalf("error at operation %d (%v): retry: %+v, %v", k, first, r, err)
		}
		hears(t, a, "s", "one", "two")
	}
}

func TestFailure37_WallClockUsedForOrder(t *testing.T) {
	d := vfs.NewDisk(1)
	clock := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	n := uint64(0)
	s, err := open(d.Process("a"), Options{LockWait: time.Hour}, config{ringSize: simRing, inline: true,
		random: func() uint64 { n++; return n },
		now:    func() time.Time { clock = clock.Add(-time.Hour); return clock }})
	if err != nil {
		t.Fatal(err)
	}
	for _, what := range []string{"one", "two", "three"} {
		say(t, s, "s", nil, "%s", what)
	}
	hears(t, s, "s", "one", "two", "three")
}

func TestFailure38_SecondFsyncBelievedAfterAFailedOne(t *testing.T) {
	// In depth: TestSimErrors cuts the power after each failed sync.
	for keep := 0; keep <= 100; keep += 50 {
		for _, name := range []string{journal.Name, sessionlog.Path("s")} {
			d := vfs.NewDisk(1)
			a, b := twoOn(t, d)
			want := []string{"one"}
			say(t, a, "s", nil, "one")
			d.Inject(vfs.Match{Kind: vfs.OpSync, Name: name}, vfs.Fault{Err: syscall.EIO, Keep: keep})
			for i, s := range []*Store{a, b, a, b} {
				if _, err := s.Append(context.Background(), "s", hansard.Batch{Events: []hansard.Event{text("%d", i)}}); err == nil {
					want = append(want, fmt.Sprint(i))
				} else if !errors.Is(err, hansard.ErrUnknown) {
					t.Fatalf("append: %v", err)
				}
				_ = s.checkpoints.checkpoint(true)
				// The page cache still shows what the disk does not have.
				d.Evict(journal.Name)
				d.Evict(sessionlog.Path("s"))
			}
			d.PowerCut(vfs.Cut{})
			hears(t, openSim(t, d.Process("c"), 3), "s", want...)
		}
	}
}
