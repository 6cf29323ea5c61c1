package filestore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"hansard"
	"hansard/filestore/internal/cache"
	"hansard/filestore/internal/runs"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

// The index against a plain rebuild: a map of all keys in the log. All processes write a run
// after every two names, so that runs are merged all the time.

// keysAgree retries every key that is in the log of session a, and uses one that is not. The log
// itself must not have a key twice.
func keysAgree(s *Store, d *vfs.Disk, never string) error {
	log, ok := d.CacheBytes(sessionlog.Path("a"))
	if !ok {
		return nil
	}
	if i := strings.LastIndexByte(string(log), '\n'); i >= 0 {
		log = log[:i+1]
	}
	lines := linesOf(log)
	first := map[string]hansard.Seq{}
	ids := map[string]hansard.Seq{}
	for _, b := range lines {
		l, err := sessionlog.Decode(b[:len(b)-1])
		if err != nil {
			return err
		}
		if l.ID != "" && l.Seq > 0 {
			ids[l.ID] = l.Seq
		}
		if l.Key == "" {
			continue
		}
		if at, twice := first[l.Key]; twice {
			return fmt.Errorf("%s is stored at seq %d and at %d", l.Key, at, l.Seq)
		}
		first[l.Key] = l.Seq
	}
	for id, seq := range ids {
		r, err := s.Append(context.Background(), "a", hansard.Batch{Events: []hansard.Event{{ID: id, Data: json.RawMessage(`"` + id + `"`)}}})
		if errors.Is(err, hansard.ErrHeld) || errors.Is(err, hansard.ErrNotFound) {
			return nil
		}
		if err != nil || !r.Replayed || len(r.Seqs) != 1 || r.Seqs[0] != seq {
			return fmt.Errorf("%s is at seq %d: %+v, %w", id, seq, r, err)
		}
	}
	try := func(key string) (hansard.Receipt, error) {
		return s.Append(context.Background(), "a", hansard.Batch{Key: key, Events: []hansard.Event{{Data: json.RawMessage(`"` + key + `"`)}}})
	}
	for key, seq := range first {
		r, err := try(key)
		if errors.Is(err, hansard.ErrHeld) || errors.Is(err, hansard.ErrNotFound) {
			return nil
		}
		if err != nil || !r.Replayed || r.First != seq {
			return fmt.Errorf("%s is at seq %d: %+v, %w", key, seq, r, err)
		}
	}
	if r, err := try(never); err == nil && r.Replayed {
		return fmt.Errorf("%s was never used: %+v", never, r)
	}
	return nil
}

// spoilRun damages a run as a person or a disk might; it returns true if there was a run.
func spoilRun(d *vfs.Disk, rng *rand.Rand) bool {
	var files []string
	for file := range runFiles(d, "a") {
		files = append(files, file)
	}
	if len(files) == 0 {
		return false
	}
	slices.Sort(files)
	file := files[rng.IntN(len(files))]
	b, _ := d.CacheBytes(file)
	at := rng.IntN(len(b) + 1)
	switch p := d.Observer("somebody"); rng.IntN(4) {
	case 0:
		_ = p.Remove(file)
	case 1:
		_ = p.Rename(file, files[rng.IntN(len(files))])
	case 2: // the second half was never written
		d.Poke(file, int64(at), make([]byte, len(b)-at))
	default:
		if at < len(b) {
			d.Poke(file, int64(at), []byte{b[at] ^ byte(1<<rng.IntN(8))})
		}
	}
	return true
}

// huntRuns has processes append under the same keys, some of which die, and checks what a power
// cut and other damage leave of their runs.
func huntRuns(seed uint64) error { return runsWorld(seed, new(atomic.Int64)) }

func runsWorld(seed uint64, states *atomic.Int64) error {
	w := newWorld(seed)
	w.names = 2
	w.disk.Writeback = int(seed % 3 * 5)
	rng := rand.New(rand.NewPCG(seed, 3))
	for i := range 3 {
		k := w.spawn(fmt.Sprintf("P%d", i), 12, uint64(100+i))
		k.shared, k.mirroring = i > 0, i == 0
	}
	if seed%2 == 0 {
		w.disk.KillAt(vfs.Match{Proc: "P1", Kind: vfs.OpChange, N: 20 + rng.IntN(200)}, rng.IntN(101))
	}
	var found error
	w.disk.OnOp(func(op vfs.Op) {
		// Files of cache/ are made beside it, and renamed.
		if found != nil || !strings.HasPrefix(op.Name, cache.Dir) || op.Kind&vfs.OpChange == 0 {
			return
		}
		d := w.disk.Clone()
		what := "as it is"
		if rng.IntN(4) > 0 {
			c := vfs.Cut{Keep: rng.IntN(101), Seed: rng.Uint64()}
			d.PowerCut(c)
			what = fmt.Sprintf("after a power cut %+v", c)
		}
		if rng.IntN(3) > 0 && spoilRun(d, rng) {
			what += ", with a damaged run"
		}
		if len(runFiles(d, "a")) > 0 {
			states.Add(1)
		}
		s, err := w.open(d.Process("check"))
		if err == nil {
			err = keysAgree(s, d, fmt.Sprint("never ", op.N))
		}
		if err != nil {
			found = fmt.Errorf("seed %d: operation %d, %s: %w\n%s", seed, op.N, what, err, trace(w.disk, 40))
		}
	})
	err := errors.Join(w.disk.Run(), w.wrong)
	if found == nil && err == nil {
		s, oerr := w.open(w.disk.Process("after"))
		if oerr == nil {
			oerr = keysAgree(s, w.disk, "never")
		}
		err = oerr
	}
	return errors.Join(found, err)
}

// TestSimRuns: a key is found if and only if it is in the log, whatever happened to the runs.
func TestSimRuns(t *testing.T) {
	inWorlds(t, 20, 1500, func(t *testing.T, seed uint64, states *atomic.Int64) {
		if err := runsWorld(seed, states); err != nil {
			t.Error(err)
		}
	})
}

// TestRunsOfTwoProcesses: two processes that alternate appends to one session write one set of
// runs, and each finds what the other wrote, mostly without reading the log again.
func TestRunsOfTwoProcesses(t *testing.T) {
	const keys, names = 3000, 20
	d := largeDisk(1)
	written := 0
	d.OnOp(func(op vfs.Op) {
		if op.Kind == vfs.OpRename && op.To != "" && strings.HasPrefix(op.To, cache.KeysDir) {
			written++
		}
	})
	var stores []*Store
	var counts []*countFS
	for i := range 2 {
		cfg := simConfig(uint64(i+1), growthRing)
		cfg.names = names
		c := &countFS{FS: d.Process(fmt.Sprint("p", i)), files: map[string]int64{}}
		s, err := open(c, Options{}, cfg)
		if err != nil {
			t.Fatal(err)
		}
		stores, counts = append(stores, s), append(counts, c)
	}
	ctx := context.Background()
	for i := range keys {
		b := hansard.Batch{Create: true, Key: fmt.Sprint("key ", i), Events: []hansard.Event{pad(i, 10)}}
		for n, s := range []*Store{stores[i%2], stores[(i+1)%2]} {
			if r, err := s.Append(ctx, "keyed", b); err != nil || int(r.First) != i+1 || r.Replayed != (n == 1) {
				t.Fatalf("key %d, process %d: %+v, %v", i, (i+n)%2, r, err)
			}
		}
	}
	pairs := int64(0)
	log, _ := d.CacheBytes(sessionlog.Path("keyed"))
	f, err := stores[0].fs.Open(sessionlog.Path("keyed"), vfs.ReadOnly)
	if err != nil {
		t.Fatal(err)
	}
	uid, _ := sessionlog.ReadUID(f)
	rs := stores[0].runsOf("keyed", uid).Load(int64(len(log)), func(upTo int64, crc uint32) bool {
		return sessionlog.LineCRC(log[:upTo]) == crc
	})
	for _, r := range rs {
		pairs += r.Pairs
	}
	if upTo, _ := runs.End(rs); pairs < keys-2*names || pairs > keys || upTo < int64(len(log))*9/10 || len(rs) > 10 {
		t.Errorf("%d runs have %d pairs, for %d bytes of %d", len(rs), pairs, upTo, len(log))
	}
	if files := len(runFiles(d, "keyed")); files != len(rs) {
		t.Errorf("%d files for %d runs", files, len(rs))
	}
	t.Logf("runs were written %d times", written)
	if most := keys / names * 11 / 10; written > most {
		t.Errorf("runs were written %d times, want %d", written, most)
	}
	for i, c := range counts {
		read := c.files[sessionlog.Path("keyed")]
		t.Logf("process %d read %d bytes of the log, which has %d", i, read, len(log))
		if read > 30*int64(len(log)) { // each append reads a few of the last lines
			t.Errorf("process %d read %d bytes of a log of %d", i, read, len(log))
		}
	}
}

// TestRunsManyAtOnce: goroutines of two stores append under the same keys while runs are written
// all the time. Every key is stored once, and all callers get the same seq.
func TestRunsManyAtOnce(t *testing.T) {
	const keys, writers = 150, 4
	dir := t.TempDir()
	var stores []*Store
	for range 2 {
		s, err := Open(dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		s.cfg.names = 3
		stores = append(stores, s)
	}
	type told struct {
		key int
		r   hansard.Receipt
	}
	answers := make(chan told, 2*writers*keys)
	var all sync.WaitGroup
	for i := range 2 * writers {
		all.Go(func() {
			for n := range keys {
				b := hansard.Batch{Create: true, Key: fmt.Sprint("key ", n), Events: []hansard.Event{pad(n, 10)}}
				r, err := stores[i%2].Append(context.Background(), "keyed", b)
				if err != nil {
					t.Errorf("key %d: %v", n, err)
				}
				answers <- told{n, r}
			}
		})
	}
	all.Wait()
	close(answers)
	at, stored := map[int]hansard.Seq{}, map[int]int{}
	for a := range answers {
		if was, ok := at[a.key]; ok && was != a.r.First {
			t.Errorf("key %d is at seq %d and at %d", a.key, was, a.r.First)
		}
		if at[a.key] = a.r.First; !a.r.Replayed {
			stored[a.key]++
		}
	}
	for n := range keys {
		if stored[n] != 1 {
			t.Errorf("key %d was stored %d times", n, stored[n])
		}
	}
	if info, err := stores[0].Stat(context.Background(), "keyed"); err != nil || info.LastSeq != keys {
		t.Errorf("%+v, %v", info, err)
	}
}

// TestRunsCostNothing: without keys, no run is written or looked for.
func TestRunsCostNothing(t *testing.T) {
	d := largeDisk(1)
	d.OnOp(func(op vfs.Op) {
		if strings.HasPrefix(op.Name, cache.KeysDir) {
			t.Errorf("%v of %s", op.Kind, op.Name)
		}
	})
	s, _ := opened(t, d, 1)
	for i := range 60 {
		if _, err := s.Append(context.Background(), "plain", hansard.Batch{Create: true, Events: []hansard.Event{pad(i, 100_000)}}); err != nil {
			t.Fatal(err)
		}
	}
	if _, ok := s.keyring.keys.m.Peek("plain"); ok {
		t.Error("there is an index")
	}
}

// TestSimKeysMemory: a process keeps a few KB per session for its keys, plus two and a half bytes
// for each key of a run that it wrote or uses often. keyIndexBytes is the bound for all sessions,
// so that a thousand sessions of a hundred thousand keys take tens of MB.
func TestSimKeysMemory(t *testing.T) {
	const sessions = 20
	held := func(keys int) (weight, heap int64) {
		logs := map[hansard.SessionID][]byte{}
		for i := range sessions {
			id := hansard.SessionID(fmt.Sprint("s", i))
			logs[id] = buildLog(id, uint64(i+1), keys, keyedEvent)
		}
		s, _ := opened(t, withLogs(t, 1, logs), 2)
		for id := range logs {
			if r, err := s.Append(context.Background(), id, hansard.Batch{Key: "key 7", Events: []hansard.Event{pad(7, 10)}}); err != nil || !r.Replayed {
				t.Fatalf("%+v, %v", r, err)
			}
		}
		for id := range logs {
			x, _ := s.keyring.keys.m.Peek(string(id))
			weight += x.weight()
		}
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		s.keyring.keys.m = cache.LRU[*keyIndex]{}
		runtime.GC()
		runtime.ReadMemStats(&after)
		runtime.KeepAlive(s)
		return weight / sessions, (int64(before.HeapAlloc) - int64(after.HeapAlloc)) / sessions
	}
	few, _ := held(1500)
	many, heap := held(15_000)
	t.Logf("a session of 1,500 keys weighs %d bytes, one of 15,000 %d; it takes %d", few, many, heap)
	// The difference is the first hashes of 53 pages, and a filter.
	if most := int64(8<<10 + 15_000*5/2); many > most {
		t.Errorf("a session of 15,000 keys weighs %d bytes, one of 1,500 %d; want at most %d", many, few, most)
	}
	if heap > many+8<<10 {
		t.Errorf("a session of 15,000 keys takes %d bytes, and weighs %d", heap, many)
	}
}
