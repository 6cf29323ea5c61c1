package filestore

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hansard"
	"hansard/engine"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

// The cost of a call must not grow with the session or with the store. Time is a poor measure of
// that on a shared machine; bytes read are a good one.

// countFS counts what is read through it.
type countFS struct {
	vfs.FS
	reads, bytes int64
	files        map[string]int64 // bytes by name
}

func (c *countFS) reset() { c.reads, c.bytes, c.files = 0, 0, map[string]int64{} }

func (c *countFS) Open(name string, flags vfs.Flag) (vfs.File, error) {
	f, err := c.FS.Open(name, flags)
	if err != nil {
		return nil, err
	}
	return &countFile{f, name, c}, nil
}

type countFile struct {
	vfs.File
	name string
	c    *countFS
}

func (f *countFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(p, off)
	f.c.reads++
	f.c.bytes += int64(n)
	if f.c.files != nil {
		f.c.files[f.name] += int64(n)
	}
	return n, err
}

// buildLog makes the log of a session as the engine would, one event a batch.
func buildLog(id hansard.SessionID, uid uint64, n int, event func(i int) (e hansard.Event, key string)) []byte {
	now := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	log := sessionlog.AppendHeader(nil, id, uid, now, 0, hansard.Meta{})
	metaAt, turnAt := int64(0), int64(0)
	for i := range n {
		e, key := event(i)
		b := hansard.Batch{Events: []hansard.Event{e}, Patch: e.Patch}
		b.Events[0].Patch = nil
		events := engine.Normalize(&b)
		hash := ""
		if key != "" {
			hash = engine.ContentHash(events)
		}
		st := sessionlog.Stamp{Seq: hansard.Seq(i + 1), Time: now.Add(time.Duration(i) * time.Millisecond).Format(sessionlog.TimeLayout), MetaAt: metaAt, TurnAt: turnAt, Prev: sessionlog.LineCRC(log)}
		if b.Patch != nil {
			metaAt = int64(len(log))
		}
		if e.Kind == hansard.KindTurn {
			turnAt, st.Turn = int64(len(log)), "1-00000000000000aa"
		}
		log = sessionlog.AppendEvent(log, &st, sessionlog.EncodeBody(nil, &events[0], key, hash))
	}
	return log
}

// largeDisk is a simulated disk for large files.
func largeDisk(seed uint64) *vfs.Disk {
	d := vfs.NewDisk(seed)
	d.PageSize, d.SectorSize = 64<<10, 4096
	return d
}

// withLogs makes a disk with a store of these logs.
func withLogs(t testing.TB, seed uint64, logs map[hansard.SessionID][]byte) *vfs.Disk {
	t.Helper()
	d := largeDisk(seed)
	s, err := openOn(d.Process("maker"), seed, growthRing)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for id, log := range logs {
		if err := putLog(d, id, log); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

// growthRing is small, because the first process to open a store reads all of it.
const growthRing = 256 << 10

// opened opens a store as a new process whose reads are counted.
func opened(t testing.TB, d *vfs.Disk, seed uint64) (*Store, *countFS) {
	t.Helper()
	c := &countFS{FS: d.Process("fresh"), files: map[string]int64{}}
	s, err := openOn(c, seed, growthRing)
	if err != nil {
		t.Fatal(err)
	}
	return s, c
}

func pad(i, n int) hansard.Event {
	return hansard.Event{Data: json.RawMessage(fmt.Sprintf(`"%06d %s"`, i, strings.Repeat("x", n)))}
}

// lengths are logs from a few lines to far more than is checked whole.
var lengths = []struct{ events, size int }{{10, 100}, {1000, 100}, {20_000, 300}, {900, 64 << 10}}

// TestGrowthFirstAppend: the first append of a new process reads the end of the log. A short log
// is also checked whole, a long one is not.
func TestGrowthFirstAppend(t *testing.T) {
	ctx := context.Background()
	for _, l := range lengths {
		log := buildLog("long", 5, l.events, func(i int) (hansard.Event, string) { return pad(i, l.size), "" })
		d := withLogs(t, 1, map[hansard.SessionID][]byte{"long": log})
		s, c := opened(t, d, 2)
		r, err := s.Append(ctx, "long", hansard.Batch{Events: []hansard.Event{text("more")}})
		if err != nil || int(r.First) != l.events+1 {
			t.Fatalf("%d events: append: %+v, %v", l.events, r, err)
		}
		limit := int64(1 << 20)
		if len(log) <= checkWhole {
			limit += int64(len(log))
		}
		t.Logf("%d events, %d bytes: %d bytes in %d reads", l.events, len(log), c.bytes, c.reads)
		if c.bytes > limit {
			t.Errorf("%d events: the first append read %d bytes %v, want at most %d", l.events, c.bytes, c.files, limit)
		}
		c.reset()
		for range 10 {
			if _, err := s.Append(ctx, "long", hansard.Batch{Events: []hansard.Event{text("more")}}); err != nil {
				t.Fatal(err)
			}
		}
		if c.bytes > 64<<10 {
			t.Errorf("%d events: ten more appends read %d bytes %v", l.events, c.bytes, c.files)
		}
	}
}

// TestGrowthTurn: a new process finds the turn in a long log from two lines: the last one, and
// the record of the turn that it points to.
func TestGrowthTurn(t *testing.T) {
	ctx := context.Background()
	for _, l := range lengths {
		var record hansard.TurnRecord
		record.Change, record.Exclusive, record.TTL, record.Instance = hansard.TurnGranted, true, 1000, strings.Repeat("0", 32)
		log := buildLog("long", 5, l.events, func(i int) (hansard.Event, string) {
			if i == 2 {
				return record.Event(), ""
			}
			return pad(i, l.size), ""
		})
		d := withLogs(t, 1, map[hansard.SessionID][]byte{"long": log})
		ro, c := readOnly(t, d)
		info, err := ro.Stat(ctx, "long")
		if err != nil || info.Turn == nil || info.Turn.Seq != 3 {
			t.Fatalf("%d events: stat: %+v, %v", l.events, info, err)
		}
		limit := int64(64<<10 + 8*l.size)
		if len(log) <= checkWhole {
			limit += int64(len(log))
		}
		t.Logf("%d events, %d bytes: %d bytes in %d reads", l.events, len(log), c.bytes, c.reads)
		if c.bytes > limit {
			t.Errorf("%d events: finding the turn read %d bytes %v, want at most %d", l.events, c.bytes, c.files, limit)
		}
		// A process that writes: the holder is dead, and the next grant is number 2.
		s, _ := opened(t, d, 2)
		if turn := take(t, s, "long", hansard.Claim{}); turn.Grant.Number() != 2 || int(turn.Seq) != l.events+1 {
			t.Errorf("%d events: granted %+v", l.events, turn)
		}
	}
}

// TestGrowthReadLast: the last 50 events of a long session cost as much as those of a short one.
func TestGrowthReadLast(t *testing.T) {
	for _, l := range lengths {
		log := buildLog("long", 5, l.events, func(i int) (hansard.Event, string) { return pad(i, l.size), "" })
		d := withLogs(t, 1, map[hansard.SessionID][]byte{"long": log})
		s, c := opened(t, d, 2)
		n := 0
		for e, err := range s.Read(context.Background(), "long", hansard.Range{Last: 50}) {
			if n++; err != nil || int(e.Seq) != max(0, l.events-50)+n {
				t.Fatalf("%d events: read: %+v, %v", l.events, e, err)
			}
		}
		if n != min(50, l.events) {
			t.Errorf("%d events: %d read", l.events, n)
		}
		limit := int64(1<<20 + 3*50*l.size)
		if len(log) <= checkWhole {
			limit += int64(len(log))
		}
		t.Logf("%d events, %d bytes: %d bytes in %d reads", l.events, len(log), c.bytes, c.reads)
		if c.bytes > limit {
			t.Errorf("%d events: the last 50 cost %d bytes %v, want at most %d", l.events, c.bytes, c.files, limit)
		}
	}
}

// TestGrowthFollow: the newest event, or the newest few, cost a follower a handful of reads,
// however long the session is.
func TestGrowthFollow(t *testing.T) {
	for _, l := range lengths {
		log := buildLog("long", 5, l.events, func(i int) (hansard.Event, string) { return pad(i, l.size), "" })
		s, c := opened(t, withLogs(t, 1, map[hansard.SessionID][]byte{"long": log}), 2)
		read := func(newest int) (reads int64) {
			before := c.reads
			n := 0
			for e, err := range s.Read(t.Context(), "long", hansard.Range{After: hansard.Seq(l.events - newest)}) {
				if n++; err != nil || int(e.Seq) != l.events-newest+n {
					t.Fatalf("%d events: read: %+v, %v", l.events, e, err)
				}
			}
			if n != newest {
				t.Errorf("%d events: %d read, want %d", l.events, n, newest)
			}
			return c.reads - before
		}
		read(1) // checks a short log whole
		one, few := read(1), read(5)
		t.Logf("%d events of %d bytes: %d reads for one, %d for five", l.events, l.size, one, few)
		if one > 6 && l.size < 4096 || few > 9 && 6*l.size < nearEnd {
			t.Errorf("%d events of %d bytes: %d reads for one, %d for five", l.events, l.size, one, few)
		}
	}
}

// TestGrowthRelease: releasing a turn that nobody waits for does not look at the other processes.
func TestGrowthRelease(t *testing.T) {
	d := vfs.NewDisk(1)
	s, c := opened(t, d, 1)
	for i := range 20 {
		if _, err := openOn(d.Process(fmt.Sprint(i)), uint64(i+2), growthRing); err != nil {
			t.Fatal(err)
		}
	}
	c.reset()
	s.turns.callNext("s")
	if c.reads > 0 {
		t.Errorf("%d reads: %v", c.reads, c.files)
	}
}

// TestGrowthSessions: neither opening a store nor the first append reads more with 2,000 sessions
// than with 10.
func TestGrowthSessions(t *testing.T) {
	for _, n := range []int{10, 2000} {
		logs := map[hansard.SessionID][]byte{}
		for i := range n {
			id := hansard.SessionID(fmt.Sprintf("s%d", i))
			logs[id] = buildLog(id, uint64(i+1), 20, func(i int) (hansard.Event, string) { return pad(i, 50), "" })
		}
		d := withLogs(t, 1, logs)
		s, c := opened(t, d, 2)
		if _, err := s.Append(context.Background(), "s7", hansard.Batch{Events: []hansard.Event{text("more")}}); err != nil {
			t.Fatal(err)
		}
		t.Logf("%d sessions: %d bytes in %d reads", n, c.bytes, c.reads)
		if c.bytes > 1<<20 || c.reads > 200 {
			t.Errorf("%d sessions: open and append read %d bytes in %d reads: %v", n, c.bytes, c.reads, c.files)
		}
	}
}

// TestGrowthKeys: once there are runs, a keyed append by a new process reads only a few pages of
// them more than one without a key, however many keys there are.
func TestGrowthKeys(t *testing.T) {
	ctx := context.Background()
	const events = 200_000
	log := buildLog("keyed", 5, events, func(i int) (hansard.Event, string) { return pad(i, 10), fmt.Sprintf("key %d", i) })
	d := withLogs(t, 1, map[hansard.SessionID][]byte{"keyed": log})
	s, c := opened(t, d, 2)
	written := 0
	d.OnOp(func(op vfs.Op) {
		if op.Kind == vfs.OpRename {
			written++
		}
	})
	if _, err := s.Append(ctx, "keyed", hansard.Batch{Key: "new", Events: []hansard.Event{text("more")}}); err != nil {
		t.Fatal(err)
	}
	if c.bytes < int64(len(log)) {
		t.Errorf("the first keyed append read %d bytes of %d: it can't know", c.bytes, len(log))
	}
	// While reading it keeps at most namesAtOnce in memory.
	if least := events / namesAtOnce; written < least || written > 2*least {
		t.Errorf("runs were written %d times, want %d", written, least)
	}
	first := func(seed uint64, b hansard.Batch, replayed bool) int64 {
		t.Helper()
		s, c := opened(t, d, seed)
		c.reset()
		if r, err := s.Append(ctx, "keyed", b); err != nil || r.Replayed != replayed {
			t.Fatalf("append: %+v, %v", r, err)
		}
		t.Logf("key %q: %d bytes in %d reads: %v", b.Key, c.bytes, c.reads, c.files)
		return c.bytes
	}
	plain := first(10, hansard.Batch{Events: []hansard.Event{text("plain")}}, false)
	for i, b := range []hansard.Batch{
		{Key: "key 777", Events: []hansard.Event{pad(777, 10)}},
		{Key: "key 199999", Events: []hansard.Event{pad(199_999, 10)}},
		{Key: "never", Events: []hansard.Event{text("more")}},
	} {
		if keyed := first(uint64(20+i), b, i < 2); keyed-plain > 64<<10 {
			t.Errorf("key %q: a keyed append read %d bytes, one without a key %d", b.Key, keyed, plain)
		}
	}
}

// BenchmarkFirstKeyed measures the first keyed append of a process, by the number of keys in the
// session.
func BenchmarkFirstKeyed(b *testing.B) {
	for _, events := range []int{1000, 100_000, 1_000_000} {
		b.Run(fmt.Sprint(events), func(b *testing.B) {
			dir := b.TempDir()
			if err := os.Mkdir(filepath.Join(dir, sessionlog.Dir), 0o700); err != nil {
				b.Fatal(err)
			}
			log := buildLog("s0", 1, events, func(i int) (hansard.Event, string) { return pad(i, 10), fmt.Sprintf("key %d", i) })
			if err := os.WriteFile(filepath.Join(dir, filepath.FromSlash(sessionlog.Path("s0"))), log, 0o600); err != nil {
				b.Fatal(err)
			}
			n := 0
			one := func() {
				s, err := Open(dir, nil)
				if err != nil {
					b.Fatal(err)
				}
				c := &countFS{FS: s.fs}
				s.fs = c
				n++
				if _, err := s.Append(context.Background(), "s0", hansard.Batch{Key: fmt.Sprint("new ", n), Events: []hansard.Event{pad(0, 10)}}); err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(c.bytes), "B-read")
				if err := s.Close(); err != nil {
					b.Fatal(err)
				}
			}
			one() // writes the runs
			for b.Loop() {
				one()
			}
		})
	}
}

// TestGrowthStat: thousands of patches do not make Stat slow: snapshots bound the walk back.
func TestGrowthStat(t *testing.T) {
	ctx := context.Background()
	d := largeDisk(1)
	s, _ := opened(t, d, 2)
	if _, err := s.Create(ctx, "p", hansard.Meta{State: json.RawMessage(`{"big":"` + strings.Repeat("x", 20_000) + `"}`)}); err != nil {
		t.Fatal(err)
	}
	worst := int64(0)
	for i := range 1500 {
		b := hansard.Batch{Patch: &hansard.Patch{State: json.RawMessage(fmt.Sprintf(`{"n":%d}`, i))}}
		if _, err := s.Append(ctx, "p", b); err != nil {
			t.Fatal(err)
		}
		if i%100 == 99 {
			ro, c := readOnly(t, d)
			if info, err := ro.Stat(ctx, "p"); err != nil || !strings.HasSuffix(string(info.State), fmt.Sprintf(`"n":%d}`, i)) {
				t.Fatalf("stat: %+v, %v", info, err)
			}
			worst = max(worst, c.reads)
		}
	}
	t.Logf("at most %d reads", worst)
	if limit := int64(2 * sessionlog.SnapshotEvery); worst > limit {
		t.Errorf("stat took %d reads, want at most %d", worst, limit)
	}
}

// readOnly opens a store for reading and counts its reads from then on.
func readOnly(t testing.TB, d *vfs.Disk) (*Store, *countFS) {
	t.Helper()
	c := &countFS{FS: d.Process("reader")}
	s, err := open(c, Options{ReadOnly: true, LockWait: time.Hour}, simConfig(uint64(d.Ops())+12345, growthRing))
	if err != nil {
		t.Fatal(err)
	}
	c.reset()
	return s, c
}

// benchAppend measures appends to a session of a store on the disk.
func benchAppend(b *testing.B, dir string, id hansard.SessionID) {
	s, err := Open(dir, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	batch := hansard.Batch{Events: []hansard.Event{pad(0, 1000)}}
	if _, err := s.Append(context.Background(), id, batch); err != nil { // opens the log
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := s.Append(context.Background(), id, batch); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
}

// putLogs makes a store directory with n logs in it.
func putLogs(b *testing.B, n, events int) string {
	b.Helper()
	dir := b.TempDir()
	if err := os.Mkdir(filepath.Join(dir, sessionlog.Dir), 0o700); err != nil {
		b.Fatal(err)
	}
	for i := range n {
		id := hansard.SessionID(fmt.Sprintf("s%d", i))
		log := buildLog(id, uint64(i+1), events, func(i int) (hansard.Event, string) { return pad(i, 10), "" })
		if err := os.WriteFile(filepath.Join(dir, filepath.FromSlash(sessionlog.Path(sessionlog.EncodeName(id)))), log, 0o600); err != nil {
			b.Fatal(err)
		}
	}
	return dir
}

// BenchmarkAppendByLength: the cost does not depend on the length of the session.
func BenchmarkAppendByLength(b *testing.B) {
	for _, events := range []int{10, 10_000, 1_000_000} {
		b.Run(fmt.Sprint(events), func(b *testing.B) { benchAppend(b, putLogs(b, 1, events), "s0") })
	}
}

// BenchmarkAppendBySessions: the cost does not depend on the number of sessions.
func BenchmarkAppendBySessions(b *testing.B) {
	for _, n := range []int{10, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) { benchAppend(b, putLogs(b, n, 1), "s7") })
	}
}
