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
	"syscall"
	"testing"

	"hansard"
	"hansard/filestore/internal/journal"
	"hansard/filestore/internal/peers"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

// One test for each way in which agents' sessions were lost, stuck or mixed up elsewhere. Each
// shows the core of why it can't happen here; the suites named in the comments attack the same
// points in depth.

var errAny = errors.New("any error")

// say appends one event and expects an outcome.
func say(t testing.TB, s *Store, id hansard.SessionID, want error, what string, args ...any) hansard.Receipt {
	t.Helper()
	r, err := s.Append(context.Background(), id, hansard.Batch{Create: true, Events: []hansard.Event{text(what, args...)}})
	if want == nil && err != nil || want == errAny && err == nil || want != nil && want != errAny && !errors.Is(err, want) {
		t.Fatalf("append %q to %s: %v, want %v", what, id, err, want)
	}
	return r
}

// hears expects exactly these events, in a sound log.
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
		for _, name := range []string{peers.OpenLock, peers.WriteLock, "instances/*"} {
			d := vfs.NewDisk(1)
			a := openSim(t, d.Process("a"), 1)
			say(t, a, "s", nil, "one")
			d.Inject(vfs.Match{Proc: "b", Kind: vfs.OpLock | vfs.OpTryLock | vfs.OpOpen, Name: name}, vfs.Fault{Err: errno})
			b, err := openOn(d.Process("b"), 2, simRing)
			if err != nil {
				b = openSim(t, d.Process("c"), 3)
			}
			// A process that believed it was alone would have begun a new epoch under a.
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
	putFile(t, d, peers.WriteLock, nil)
	say(t, b, "s", nil, "two")
	say(t, a, "s", nil, "three")
	putFile(t, d, peers.WriteLock, nil)
	putFile(t, d, peers.WriteLock, []byte("somebody's"))
	say(t, a, "s", nil, "four")
	say(t, b, "s", nil, "five")
	hears(t, a, "s", "one", "two", "three", "four", "five")
}

func TestFailure17_UnreadableLockTakenForUnlocked(t *testing.T) {
	d := vfs.NewDisk(1)
	a, b := twoOn(t, d)
	say(t, a, "s", nil, "one")
	d.Inject(vfs.Match{Kind: vfs.OpLock, Name: peers.WriteLock}, vfs.Fault{Err: syscall.EIO})
	say(t, b, "s", errAny, "not stored")
	say(t, b, "s", nil, "two")
	hears(t, a, "s", "one", "two")
}

func TestFailure21_HalfALineFusesWithTheNext(t *testing.T) {
	// In depth: TestSimKill, test/ with real kills.
	for _, name := range []string{sessionlog.Path("s"), journal.Name} {
		for part := 0; part < 200; part += 7 {
			d := vfs.NewDisk(1)
			a := openSim(t, d.Process("a"), 1)
			say(t, a, "s", nil, "one")
			d.KillAt(vfs.Match{Kind: vfs.OpWrite, Name: name}, part)
			say(t, a, "s", errAny, "two")
			d.ClearRules()
			b := openSim(t, d.Process("b"), 2)
			r := say(t, b, "s", nil, "three")
			if r.First == 2 { // two was not completed
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
		for _, name := range []string{sessionlog.Path("s"), journal.Name, peers.ControlName} {
			d := vfs.NewDisk(1)
			a := openSim(t, d.Process("a"), 1)
			say(t, a, "s", nil, "one")
			d.Inject(vfs.Match{Kind: vfs.OpWrite, Name: name}, vfs.Fault{Err: errno, Part: 40})
			b := hansard.Batch{Key: "k", Events: []hansard.Event{text("two")}}
			_, err := a.Append(context.Background(), "s", b)
			if err != nil { // the caller gets the error, and a retry settles it
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
	// In depth: TestSimPowerCut; for existing damage: TestSimDamagedLogs.
	for keep := 0; keep <= 100; keep += 10 {
		for seed := range uint64(20) {
			d := vfs.NewDisk(seed)
			d.PageSize, d.SectorSize = 256, 64
			a := openSim(t, d.Process("a"), 1)
			say(t, a, "s", nil, "one")
			if err := a.checkpoints.checkpoint(true); err != nil {
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
	if now, _ := d.CacheBytes(sessionlog.Path("small")); !bytes.Equal(now, log) {
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
	say(t, a, "s", nil, "three") // once the disk works again, so does the store
}

func TestFailure26_ReaderSeesHalfALine(t *testing.T) {
	// In depth: TestSimDamagedLogs/truncated, and storetest's readers against writers.
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
	if writes[journal.Name] != 1 || writes[sessionlog.Path("s")] != 1 {
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
