package filestore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"hansard"
	"hansard/internal/vfs"
)

// One test for each way in which agents' sessions were lost, stuck or mixed up
// elsewhere. Each shows the core of why it can't happen here; the suites named
// in the comments try to break the same in depth.

var errAny = errors.New("any error")

// say appends one event and wants an outcome.
func say(t testing.TB, s *Store, id hansard.SessionID, want error, what string, args ...any) hansard.Receipt {
	t.Helper()
	r, err := s.Append(context.Background(), id, hansard.Batch{Create: true, Events: []hansard.Event{text(what, args...)}})
	if want == nil && err != nil || want == errAny && err == nil || want != nil && want != errAny && !errors.Is(err, want) {
		t.Fatalf("append %q to %s: %v, want %v", what, id, err, want)
	}
	return r
}

// hears wants exactly these events, in a sound log.
func hears(t testing.TB, s *Store, id hansard.SessionID, want ...string) {
	t.Helper()
	var got []string
	for e, err := range s.Read(context.Background(), id, hansard.Range{}) {
		if err != nil {
			t.Fatalf("read %s: %v", id, err)
		}
		if got = append(got, strings.Trim(string(e.Data), `"`)); int(e.Seq) != len(got) {
			t.Fatalf("seq %d is event %d", e.Seq, len(got))
		}
	}
	if strings.Join(got, "|") != strings.Join(want, "|") {
		t.Fatalf("session %s has %q, want %q", id, got, want)
	}
	if err := wantSound(s, id); err != nil {
		t.Fatal(err)
	}
}

// twoOn opens a store in two processes.
func twoOn(t testing.TB, d *vfs.Disk) (a, b *Store) {
	t.Helper()
	return openSim(t, d.Process("a"), 1), openSim(t, d.Process("b"), 2)
}

func TestFailure14_TransientErrorTakenForNoOwner(t *testing.T) {
	// In depth: TestSimErrors.
	for _, errno := range []error{syscall.EINTR, syscall.EMFILE, syscall.EIO} {
		for _, name := range []string{openLockName, writeLockName, "instances/*"} {
			d := vfs.NewDisk(1)
			a := openSim(t, d.Process("a"), 1)
			say(t, a, "s", nil, "one")
			d.Inject(vfs.Match{Proc: "b", Kind: vfs.OpLock | vfs.OpTryLock | vfs.OpOpen, Name: name}, vfs.Fault{Err: errno})
			b, err := openOn(d.Process("b"), 2, simRing)
			if err != nil {
				b = openSim(t, d.Process("c"), 3)
			}
			// Whoever believed to be alone would have begun a new epoch under a.
			say(t, a, "s", nil, "two")
			say(t, b, "s", nil, "three")
			hears(t, a, "s", "one", "two", "three")
		}
	}
}

func TestFailure15_TwoSpellingsOfOnePath(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	link := filepath.Join(t.TempDir(), "link")
	if err := errors.Join(os.Mkdir(dir, 0o700), os.Symlink(dir, link)); err != nil {
		t.Fatal(err)
	}
	var want []string
	var last *Store
	for i, path := range []string{dir, dir + "/../store", link, dir + "/./"} {
		s, err := Open(path, nil)
		if err != nil {
			t.Fatalf("open %d: %v", i, err)
		}
		defer s.Close()
		want = append(want, fmt.Sprint(i))
		say(t, s, "s", nil, "%d", i)
		last = s
	}
	hears(t, last, "s", want...)
}

func TestFailure16_LockFileReplacedUnderWaiters(t *testing.T) {
	d := vfs.NewDisk(1)
	a, b := twoOn(t, d)
	say(t, a, "s", nil, "one")
	putFile(t, d, writeLockName, nil)
	say(t, b, "s", nil, "two")
	say(t, a, "s", nil, "three")
	putFile(t, d, writeLockName, nil)
	putFile(t, d, writeLockName, []byte("somebody's"))
	say(t, a, "s", nil, "four")
	say(t, b, "s", nil, "five")
	hears(t, a, "s", "one", "two", "three", "four", "five")
}

func TestFailure17_UnreadableLockTakenForUnlocked(t *testing.T) {
	d := vfs.NewDisk(1)
	a, b := twoOn(t, d)
	say(t, a, "s", nil, "one")
	d.Inject(vfs.Match{Kind: vfs.OpLock, Name: writeLockName}, vfs.Fault{Err: syscall.EIO})
	say(t, b, "s", errAny, "not stored")
	say(t, b, "s", nil, "two")
	hears(t, a, "s", "one", "two")
}

func TestFailure21_HalfALineFusesWithTheNext(t *testing.T) {
	// In depth: TestSimKill, test/ with real kills.
	for _, name := range []string{logPath("s"), journalName} {
		for part := 0; part < 200; part += 7 {
			d := vfs.NewDisk(1)
			a := openSim(t, d.Process("a"), 1)
			say(t, a, "s", nil, "one")
			d.KillAt(vfs.Match{Kind: vfs.OpWrite, Name: name}, part)
			say(t, a, "s", errAny, "two")
			d.ClearRules()
			b := openSim(t, d.Process("b"), 2)
			r := say(t, b, "s", nil, "three")
			if r.First == 2 { // two was not finished
				hears(t, b, "s", "one", "three")
			} else {
				hears(t, b, "s", "one", "two", "three")
			}
		}
	}
}

func TestFailure22_OneFailedWriteEndsAllOrStays(t *testing.T) {
	// In depth: TestSimErrors, with the disk filling up too.
	for _, errno := range []error{syscall.EIO, syscall.ENOSPC} {
		for _, name := range []string{logPath("s"), journalName, controlName} {
			d := vfs.NewDisk(1)
			a := openSim(t, d.Process("a"), 1)
			say(t, a, "s", nil, "one")
			d.Inject(vfs.Match{Kind: vfs.OpWrite, Name: name}, vfs.Fault{Err: errno, Part: 40})
			b := hansard.Batch{Key: "k", Events: []hansard.Event{text("two")}}
			_, err := a.Append(context.Background(), "s", b)
			if err != nil { // the caller is told, and a retry settles it
				if _, err := a.Append(context.Background(), "s", b); err != nil {
					t.Fatalf("%v of %s: retry: %v", errno, name, err)
				}
			}
			say(t, a, "s", nil, "three")
			hears(t, a, "s", "one", "two", "three")
		}
	}
}

func TestFailure23_NULsAndEmptyFilesAfterPowerLoss(t *testing.T) {
	// In depth: TestSimPowerCut; damage that is there already: TestDamagedLogs.
	for keep := 0; keep <= 100; keep += 10 {
		for seed := range uint64(20) {
			d := vfs.NewDisk(seed)
			d.PageSize, d.SectorSize = 256, 64
			a := openSim(t, d.Process("a"), 1)
			say(t, a, "s", nil, "one")
			if err := a.checkpoint(true); err != nil {
				t.Fatal(err)
			}
			say(t, a, "s", nil, "two")
			say(t, a, "t", nil, "new")
			d.PowerCut(vfs.Cut{Keep: keep, Seed: seed})
			b := openSim(t, d.Process("b"), 2)
			hears(t, b, "s", "one", "two")
			hears(t, b, "t", "new")
		}
	}
}

func TestFailure24_BadLineEndsHidesOrOverwritesTheSession(t *testing.T) {
	sm := makeSample(t, 3)
	w := sm.logs["small"]
	log := changed(w.log, len(w.log)-90, '\n')
	d := sm.disk.Clone()
	if err := putLog(d, w.id, log); err != nil {
		t.Fatal(err)
	}
	if err := w.judge(d, log, w.oracle(log), 1, true); err != nil {
		t.Error(err)
	}
	d = sm.disk.Clone()
	if err := putLog(d, w.id, log); err != nil {
		t.Fatal(err)
	}
	s := openSim(t, d.Process("a"), 1)
	say(t, s, w.id, hansard.ErrDamaged, "with Create set")
	if _, err := s.Create(context.Background(), w.id, hansard.Meta{}); !errors.Is(err, hansard.ErrExists) && !errors.Is(err, hansard.ErrDamaged) {
		t.Errorf("create: %v", err)
	}
	if now, _ := d.CacheBytes(logPath("small")); !bytes.Equal(now, log) {
		t.Error("the damaged log was changed")
	}
}

func TestFailure25_FlushErrorLoggedSuccessReturned(t *testing.T) {
	d := vfs.NewDisk(1)
	a := openSim(t, d.Process("a"), 1)
	say(t, a, "s", nil, "one")
	d.Inject(vfs.Match{Kind: vfs.OpSync}, vfs.Fault{Err: syscall.EIO, Always: true})
	say(t, a, "s", errAny, "two")
	d.ClearRules()
	say(t, a, "s", nil, "three") // and when the disk is well again so is the store
}

func TestFailure26_ReaderSeesHalfALine(t *testing.T) {
	// In depth: TestDamagedLogs/truncated, storetest's readers against writers.
	sm := makeSample(t, 3)
	w := sm.logs["small"]
	for n := int(w.ends[0].at); n < len(w.log); n += 3 {
		d := sm.disk.Clone()
		if err := putLog(d, w.id, w.log[:n]); err != nil {
			t.Fatal(err)
		}
		ro, _ := readOnly(t, d)
		if err := w.wantRead(ro, w.oracle(w.log[:n])); err != nil {
			t.Errorf("a reader at byte %d: %v", n, err)
		}
	}
}

func TestFailure27_TwoWritesForOneRecordInterleave(t *testing.T) {
	d := vfs.NewDisk(1)
	a := openSim(t, d.Process("a"), 1)
	say(t, a, "s", nil, "one")
	writes := map[string]int{}
	d.OnOp(func(o vfs.Op) {
		if o.Kind == vfs.OpWrite {
			writes[o.Name]++
		}
	})
	b := hansard.Batch{Events: []hansard.Event{text("two"), text("three"), text("four")}}
	if _, err := a.Append(context.Background(), "s", b); err != nil {
		t.Fatal(err)
	}
	if writes[journalName] != 1 || writes[logPath("s")] != 1 {
		t.Errorf("a batch took these writes: %v", writes)
	}
}

func TestFailure28_NewlinesAndOtherBytesInContent(t *testing.T) {
	// In depth: TestLinesKeepData, storetest.
	d := vfs.NewDisk(1)
	s := openSim(t, d.Process("a"), 1)
	var b hansard.Batch
	for _, data := range oddData {
		b.Events = append(b.Events, hansard.Event{Data: json.RawMessage(data)})
	}
	b.Create = true
	if _, err := s.Append(context.Background(), "s", b); err != nil {
		t.Fatal(err)
	}
	i := 0
	for e, err := range s.Read(context.Background(), "s", hansard.Range{}) {
		if err != nil || string(e.Data) != oddData[i] {
			t.Fatalf("%q came back as %q, %v", oddData[i], e.Data, err)
		}
		i++
	}
	for _, data := range []string{"\xef\xbb\xbf1", "\"\xff\"", "\"\x00\"", "", "{", "1 2"} {
		_, err := s.Append(context.Background(), "s", hansard.Batch{Events: []hansard.Event{{Data: json.RawMessage(data)}}})
		if !errors.Is(err, hansard.ErrInvalid) {
			t.Errorf("data %q: %v, want ErrInvalid", data, err)
		}
	}
}

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
		if err := s.writeCache(cacheDir, "x", []byte{byte(i)}); err != nil {
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
	for k := 1; ; k++ { // the power fails before its k-th change
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
		switch now, _ := d.CacheBytes(logPath("small")); {
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
		d.Inject(vfs.Match{Kind: vfs.OpSync, Name: logPath("s")}, vfs.Fault{Err: syscall.EIO})
		errs := make([]error, 3)
		d.Go(pa, func() { errs[0] = a.checkpoint(true) })
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
	// In depth: TestDamagedLogs repairs one damaged log in eight.
	sm := makeSample(t, 3)
	for id, w := range sm.logs {
		s := openSim(t, sm.disk.Process("a"), 1)
		done, err := s.Repair(context.Background(), id)
		now, _ := sm.disk.CacheBytes(logPath(encodeName(id)))
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
	for _, name := range []string{controlName, journalName} { // all that is beside the logs
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
	// In depth: the simulation settles every unknown outcome that has a key.
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
		for _, name := range []string{journalName, logPath("s")} {
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
				_ = s.checkpoint(true)
				// The page cache still shows what the disk does not have.
				d.Evict(journalName)
				d.Evict(logPath("s"))
			}
			d.PowerCut(vfs.Cut{})
			hears(t, openSim(t, d.Process("c"), 3), "s", want...)
		}
	}
}

func TestFailure40_WholeIndexRewrittenPerUpdate(t *testing.T) {
	d := sessionsOn(t, 1, 200)
	s := openSim(t, d.Process("a"), 1)
	if _, err := listed(s, hansard.Query{}); err != nil {
		t.Fatal(err)
	}
	written := map[string]int{}
	d.OnOp(func(o vfs.Op) {
		if o.Kind == vfs.OpWrite {
			written[o.Name] += o.Len
		}
	})
	say(t, s, "s7", nil, "more")
	delete(written, controlName)
	if len(written) != 2 || written[journalName] > 1000 || written[logPath("s7")] > 500 {
		t.Errorf("an append among 200 sessions wrote %v", written)
	}
}

func TestFailure41_LostUpdateOfTheIndex(t *testing.T) {
	// In depth: storetest, test/ with 64 processes. Here: goroutines on two handles.
	dir := t.TempDir()
	const n = 40
	var wg sync.WaitGroup
	for h := range 2 {
		s, err := Open(dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		for i := range n {
			wg.Go(func() {
				if _, err := s.Create(context.Background(), hansard.SessionID(fmt.Sprintf("s%d-%d", h, i)), hansard.Meta{}); err != nil {
					t.Error(err)
				}
				if i%8 == 0 {
					_, _ = listed(s, hansard.Query{})
				}
			})
		}
	}
	wg.Wait()
	s, err := Open(dir, &Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if infos, err := listed(s, hansard.Query{}); err != nil || len(infos) != 2*n {
		t.Errorf("%d sessions are listed, %d were made: %v", len(infos), 2*n, err)
	}
}

func TestFailure42_CorruptIndexTakenForTheTruth(t *testing.T) {
	// In depth: TestListCache.
	d := sessionsOn(t, 1, 100)
	for _, catalog := range []string{"", "{}", "garbage", "HANSCAT1\x00\x00\x00\x00"} {
		s := openSim(t, d.Process("a"), 1)
		if err := s.writeCache(cacheDir, catalogName, []byte(catalog)); err != nil {
			t.Fatal(err)
		}
		if infos, err := listed(s, hansard.Query{}); err != nil || len(infos) != 100 {
			t.Errorf("catalog %q: %d sessions of 100, %v", catalog, len(infos), err)
		}
		_ = s.Close()
	}
}

func TestFailure43_RestoredOrCopiedSessionsStayInvisible(t *testing.T) {
	d := sessionsOn(t, 1, 3)
	s := openSim(t, d.Process("a"), 1)
	if infos, err := listed(s, hansard.Query{}); err != nil || len(infos) != 3 {
		t.Fatalf("%d sessions, %v", len(infos), err)
	}
	if err := putLog(d, "copied", buildLog("copied", 77, 5, keyedEvent)); err != nil {
		t.Fatal(err)
	}
	infos, err := listed(s, hansard.Query{Text: "copied"})
	if err != nil || len(infos) != 1 || infos[0].LastSeq != 5 {
		t.Errorf("list gives %+v, %v", infos, err)
	}
	if r := say(t, s, "copied", nil, "goes on"); r.First != 6 {
		t.Errorf("append got seq %d", r.First)
	}
}

func TestFailure44_AbsolutePathsBreakAfterAMove(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "before")
	s, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	say(t, s, "s", nil, "one")
	if _, err := listed(s, hansard.Query{}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	moved := filepath.Join(t.TempDir(), "after")
	if err := os.Rename(dir, moved); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(moved, nil); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	say(t, s, "s", nil, "two")
	hears(t, s, "s", "one", "two")
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Error("something was made in the old place")
	}
}

func TestFailure45_OneUnreadableFileAbortsTheList(t *testing.T) {
	// In depth: TestListOddFiles.
	d := sessionsOn(t, 1, 100)
	if err := putLog(d, "s5", bytes.Repeat([]byte("garbage\n"), 50)); err != nil {
		t.Fatal(err)
	}
	s, c := opened(t, d, 1)
	d.Inject(vfs.Match{Kind: vfs.OpRead, Name: logPath("s9")}, vfs.Fault{Err: syscall.EIO, Always: true})
	for range 2 {
		c.reset()
		infos, err := listed(s, hansard.Query{})
		if err != nil || len(infos) != 100 {
			t.Fatalf("%d sessions of 100, %v", len(infos), err)
		}
		for _, i := range infos {
			if i.Damaged() != (i.ID == "s5" || i.ID == "s9") {
				t.Errorf("%s: damage %v", i.ID, i.Damage)
			}
		}
	}
	if c.reads > 30 { // the second time only what is not well is looked at
		t.Errorf("an unchanged store is listed with %d reads", c.reads)
	}
}

func TestFailure46_CleanUpByPrefixTakesTheWrongSession(t *testing.T) {
	s := openSim(t, vfs.NewDisk(1).Process("a"), 1)
	for _, id := range []hansard.SessionID{"ab", "abc", "AB", "ab.1"} {
		say(t, s, id, nil, "one")
	}
	ctx := context.Background()
	for _, id := range []hansard.SessionID{"a", "abcd", "Ab", "ab."} {
		if err := s.Delete(ctx, id, ""); !errors.Is(err, hansard.ErrNotFound) {
			t.Errorf("delete %q: %v, want ErrNotFound", id, err)
		}
	}
	if err := s.Delete(ctx, "ab", ""); err != nil {
		t.Fatal(err)
	}
	for _, id := range []hansard.SessionID{"abc", "AB", "ab.1"} {
		hears(t, s, id, "one")
	}
}

func TestFailure51_TheIDIsAPath(t *testing.T) {
	// In depth: TestNames…, FuzzName.
	outside := t.TempDir()
	dir := filepath.Join(outside, "store")
	s, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, id := range []hansard.SessionID{"../x", "..", ".", "", "a/b", "/etc/x", "a\x00b", "%2e%2e", "a\\b", "a b", "é", "-x", ".x", "a\nb",
		hansard.SessionID(strings.Repeat("a", 300))} {
		say(t, s, id, hansard.ErrInvalid, "x")
		if _, err := s.Stat(context.Background(), id); !errors.Is(err, hansard.ErrInvalid) {
			t.Errorf("stat %q: %v, want ErrInvalid", id, err)
		}
	}
	for _, id := range []hansard.SessionID{"con", "NUL", "twin", "Twin", "TWIN", "a:b", "a..b", "lpt1.txt"} {
		say(t, s, id, nil, "%s", id)
	}
	for _, id := range []hansard.SessionID{"con", "NUL", "twin", "Twin", "TWIN", "a:b", "a..b", "lpt1.txt"} {
		hears(t, s, id, string(id))
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) != 1 {
		t.Errorf("outside of the store there is %v, %v", entries, err)
	}
}

func TestFailure55_LargeSessionReadWholeForEveryRequest(t *testing.T) {
	// In depth: TestGrowth….
	log := buildLog("big", 5, 300, func(i int) (hansard.Event, string) { return pad(i, 100_000), "" })
	d := withLogs(t, 1, map[hansard.SessionID][]byte{"big": log})
	s, c := opened(t, d, 2)
	ctx := context.Background()
	c.reset()
	if info, err := s.Stat(ctx, "big"); err != nil || info.LastSeq != 300 {
		t.Fatalf("stat: %+v, %v", info, err)
	}
	for e, err := range s.Read(ctx, "big", hansard.Range{Last: 1}) {
		if err != nil || e.Seq != 300 {
			t.Fatalf("read: %+v, %v", e, err)
		}
	}
	say(t, s, "big", nil, "more")
	if c.bytes > int64(len(log))/4 {
		t.Errorf("stat, read and append of a session of %d bytes read %d", len(log), c.bytes)
	}
}
