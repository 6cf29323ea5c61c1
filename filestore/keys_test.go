package filestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"hansard"
	"hansard/engine"
	"hansard/filestore/internal/cache"
	"hansard/filestore/internal/runs"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

// The index of keys is derived from the log. Whatever happens to it, used keys are known and
// unused ones are not.

func keyedEvent(i int) (hansard.Event, string) { return pad(i, 10), fmt.Sprintf("key %d", i) }

// askKeys retries some keys, with the same content and with other content, and uses some new
// ones.
func askKeys(s *Store, id hansard.SessionID, keys int, rng *rand.Rand, times int) error {
	ctx := context.Background()
	for range times {
		i := rng.IntN(keys)
		e, key := keyedEvent(i)
		r, err := s.Append(ctx, id, hansard.Batch{Key: key, Events: []hansard.Event{e}})
		if err != nil || !r.Replayed || int(r.First) != i+1 || r.Last != r.First {
			return fmt.Errorf("retry of %q: %+v, %v", key, r, err)
		}
		var reused *hansard.KeyReusedError
		_, err = s.Append(ctx, id, hansard.Batch{Key: key, Events: []hansard.Event{text("other content")}})
		if !errors.As(err, &reused) || int(reused.First) != i+1 || reused.Key != key {
			return fmt.Errorf("other content for %q: %v, want ErrKeyReused at %d", key, err, i+1)
		}
		key = fmt.Sprintf("new %d", rng.Uint64())
		b := hansard.Batch{Key: key, Events: []hansard.Event{text("a"), text("b")}}
		first, err := s.Append(ctx, id, b)
		if err != nil || first.Replayed {
			return fmt.Errorf("new key %q: %+v, %v", key, first, err)
		}
		again, err := s.Append(ctx, id, b)
		if err != nil || !again.Replayed || again.First != first.First || again.Last != first.Last {
			return fmt.Errorf("retry of new key %q: %+v, %v, want %+v", key, again, err, first)
		}
	}
	return nil
}

const manyKeys = 100_000

// TestKeysMany: a hundred thousand keys are found by the process that indexed them and by the
// next one, which reads the runs instead of the log.
func TestKeysMany(t *testing.T) {
	const seed = 21
	rng := rand.New(rand.NewPCG(seed, 0))
	log := buildLog("keyed", 5, manyKeys, keyedEvent)
	d := withLogs(t, seed, map[hansard.SessionID][]byte{"keyed": log})
	s, _ := opened(t, d, 1)
	if err := askKeys(s, "keyed", manyKeys, rng, 200); err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	files := runFiles(d, "keyed")
	bytes := 0
	for _, b := range files {
		bytes += len(b)
	}
	if bytes < 16*manyKeys || bytes > 20*manyKeys || len(files) > 10 {
		t.Fatalf("%d runs have %d bytes", len(files), bytes)
	}
	s, c := opened(t, d, 2)
	if err := askKeys(s, "keyed", manyKeys, rng, 200); err != nil {
		t.Fatalf("seed %d: reopened: %v", seed, err)
	}
	if got := c.files[sessionlog.Path("keyed")]; got > int64(len(log))/2 {
		t.Errorf("with the runs there the log is read all the same: %d bytes of %d", got, len(log))
	}
}

// runFiles are the runs of a session, by file name.
func runFiles(d *vfs.Disk, name string) map[string][]byte {
	files := map[string][]byte{}
	for _, file := range d.Names() {
		if strings.HasPrefix(file, cache.KeysDir+"/"+name+".") {
			files[file], _ = d.CacheBytes(file)
		}
	}
	return files
}

// TestSimKeysRuns: the answers are the same if a run is deleted, damaged in any way, or belongs
// to another session.
func TestSimKeysRuns(t *testing.T) {
	const seed, keys = 22, 1600
	rng := rand.New(rand.NewPCG(seed, 0))
	log := buildLog("keyed", 5, keys, keyedEvent)
	other := buildLog("other", 6, keys, func(i int) (hansard.Event, string) { return pad(i, 11), fmt.Sprintf("other key %d", i) })
	base := withLogs(t, seed, map[hansard.SessionID][]byte{"keyed": log, "other": other})
	s, _ := opened(t, base, 1)
	for _, id := range []hansard.SessionID{"keyed", "other"} { // so that there are runs
		if _, err := s.Append(context.Background(), id, hansard.Batch{Key: "x", Events: []hansard.Event{text("x")}}); err != nil {
			t.Fatal(err)
		}
	}
	_ = s.Close()
	file := runs.Index{Path: cache.KeysDir + "/keyed"}.File(0)
	run, foreign := runFiles(base, "keyed")[file], runFiles(base, "other")[runs.Index{Path: cache.KeysDir + "/other"}.File(0)]
	old := runFiles(indexed(t, seed, buildLog("keyed", 5, 1500, keyedEvent)), "keyed")[file]
	const page = 4096
	if len(run) != 8*page || len(foreign) != len(run) || len(old) != 7*page {
		t.Fatalf("runs of %d, %d and %d bytes", len(run), len(foreign), len(old))
	}
	swapped := slices.Concat(run[:page], run[2*page:3*page], run[page:2*page], run[3*page:])
	files := map[string][]byte{
		"deleted": nil, "empty": {}, "as it was": run, "of another session": foreign, "old": old,
		"without its last page": run[:len(run)-page], "cut in a page": run[:len(run)-5], "only a head": run[:page],
		"NULs": make([]byte, len(run)), "with a page more": append(bytes.Clone(run), make([]byte, page)...),
		"its head on another's pages": append(bytes.Clone(run[:page]), foreign[page:]...),
		"NULs behind its head":        append(bytes.Clone(run[:page]), make([]byte, len(run)-page)...),
		"two pages swapped":           swapped,
	}
	for i := range 56 + 7*8 {
		files[fmt.Sprintf("head byte %d", i)] = changed(run, i, run[i]^0x10)
	}
	for range 40 {
		i := page + rng.IntN(len(run)-page)
		files[fmt.Sprintf("byte %d", i)] = changed(run, i, run[i]^byte(1<<rng.IntN(8)))
	}
	for what, b := range files {
		for _, when := range []string{"before it is loaded", "after"} {
			d := base.Clone()
			s, _ := opened(t, d, seed)
			if when == "after" {
				if _, err := s.Append(context.Background(), "keyed", hansard.Batch{Key: "y", Events: []hansard.Event{text("y")}}); err != nil {
					t.Fatal(err)
				}
			}
			putFile(t, d, file, b)
			if err := askKeys(s, "keyed", keys, rand.New(rand.NewPCG(seed, 1)), 5); err != nil {
				t.Errorf("seed %d: run %s, %s: %v", seed, what, when, err)
			}
			if now, _ := d.CacheBytes(file); bytes.Equal(now, b) && slices.Contains([]string{"NULs behind its head", "two pages swapped", "deleted"}, what) {
				t.Errorf("run %s, %s: it is still there", what, when)
			}
		}
	}
}

// indexed is a disk with a log whose keys are in runs.
func indexed(t testing.TB, seed uint64, log []byte) *vfs.Disk {
	t.Helper()
	d := withLogs(t, seed, map[hansard.SessionID][]byte{"keyed": log})
	s, _ := opened(t, d, 1)
	if _, err := s.Append(context.Background(), "keyed", hansard.Batch{Key: "key 1", Events: []hansard.Event{pad(1, 10)}}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return d
}

// putFile replaces a file without any process knowing; nil removes it.
func putFile(t testing.TB, d *vfs.Disk, name string, b []byte) {
	t.Helper()
	p := d.Observer("somebody")
	if b == nil {
		if err := p.Remove(name); err != nil {
			t.Fatal(err)
		}
		return
	}
	f, err := p.Open(name, vfs.Create)
	if err == nil {
		_, werr := f.WriteAt(b, 0)
		err = errors.Join(f.Truncate(int64(len(b))), werr, f.Datasync(), f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestKeysCollide: keys with equal hashes are told apart by the line. Real collisions of 64 bits
// are hard to find, so the run gets pairs that claim some: every hash leads to three wrong lines
// and the right one.
func TestKeysCollide(t *testing.T) {
	const seed, keys = 23, 1200
	log := buildLog("keyed", 5, keys, keyedEvent)
	d := withLogs(t, seed, map[hansard.SessionID][]byte{"keyed": log})
	var offs []int64
	at := 0
	for _, l := range linesOf(log) {
		offs = append(offs, int64(at))
		at += len(l)
	}
	var pairs []runs.Pair
	pair := func(key string, line int) {
		pairs = append(pairs, runs.Pair{Hash: runs.Name{Kind: 'k', Text: key}.Hash(), At: offs[line]})
	}
	for i := range keys {
		_, key := keyedEvent(i)
		for _, line := range []int{1 + i, 1 + (i+1)%keys, 1 + (i+keys/2)%keys, 1 + (i+keys-1)%keys} {
			pair(key, line)
		}
	}
	pair("never used", 7)
	s, c := opened(t, d, 1)
	if _, err := s.runsOf("keyed", 5).Add(nil, pairs, int64(len(log)), sessionlog.LineCRC(log), s.putRun); err != nil {
		t.Fatal(err)
	}
	if err := askKeys(s, "keyed", keys, rand.New(rand.NewPCG(seed, 0)), 50); err != nil {
		t.Error(err)
	}
	r, err := s.Append(context.Background(), "keyed", hansard.Batch{Key: "never used", Events: []hansard.Event{text("x")}})
	if err != nil || r.Replayed {
		t.Errorf("a new key that collides: %+v, %v", r, err)
	}
	if len(c.files) == 0 || c.files[s.runsOf("keyed", 5).File(0)] == 0 {
		t.Errorf("the run was not looked into: %v", c.files)
	}
}

// TestKeysLeadNowhere: a run with correct checksums and wrong offsets is not believed, neither
// about its names nor as evidence of damage in the log.
func TestKeysLeadNowhere(t *testing.T) {
	const seed, keys = 24, 1200
	log := buildLog("keyed", 5, keys, keyedEvent)
	for _, at := range []int64{5, int64(len(log)) - 3, int64(len(log)), 1 << 40, math.MaxInt64, -1, math.MinInt64} {
		d := withLogs(t, seed, map[hansard.SessionID][]byte{"keyed": log})
		s, _ := opened(t, d, 1)
		var pairs []runs.Pair
		for i := range keys {
			_, key := keyedEvent(i)
			pairs = append(pairs, runs.Pair{Hash: runs.Name{Kind: 'k', Text: key}.Hash(), At: at})
		}
		if _, err := s.runsOf("keyed", 5).Add(nil, pairs, int64(len(log)), sessionlog.LineCRC(log), s.putRun); err != nil {
			t.Fatal(err)
		}
		if err := askKeys(s, "keyed", keys, rand.New(rand.NewPCG(seed, 0)), 5); err != nil {
			t.Errorf("offset %d: %v", at, err)
		}
	}
}

// brokenRuns is a file system on which runs can't be renamed into place, or can't be read.
type brokenRuns struct {
	vfs.FS
	unwritable, unreadable bool
	tried                  int // attempts to put one in place
}

func (b *brokenRuns) Rename(from, to string) error {
	if strings.HasPrefix(to, cache.KeysDir) {
		if b.tried++; b.unwritable {
			return syscall.EACCES
		}
	}
	return b.FS.Rename(from, to)
}

func (b *brokenRuns) Remove(name string) error {
	if strings.HasPrefix(name, cache.KeysDir) {
		return syscall.EACCES
	}
	return b.FS.Remove(name)
}

func (b *brokenRuns) Open(name string, flags vfs.Flag) (vfs.File, error) {
	f, err := b.FS.Open(name, flags)
	if err == nil && b.unreadable && strings.HasPrefix(name, cache.KeysDir) {
		return unreadablePages{f}, nil
	}
	return f, err
}

type unreadablePages struct{ vfs.File }

func (f unreadablePages) ReadAt(p []byte, off int64) (int, error) {
	if off >= 4096 {
		return 0, syscall.EIO
	}
	return f.File.ReadAt(p, off)
}

// TestKeysWithoutRuns: where runs can't be written, removed or read, keys are still found, and
// the failed operations are not retried with every append.
func TestKeysWithoutRuns(t *testing.T) {
	for _, b := range []*brokenRuns{{unwritable: true}, {unreadable: true}, {unwritable: true, unreadable: true}} {
		log := buildLog("keyed", 5, 1500, keyedEvent)
		b.FS = withLogs(t, 1, map[hansard.SessionID][]byte{"keyed": log}).Process("p")
		s, err := openOn(b, 1, growthRing)
		if err != nil {
			t.Fatal(err)
		}
		if err := askKeys(s, "keyed", 1500, rand.New(rand.NewPCG(1, 0)), 20); err != nil {
			t.Errorf("unwritable %v, unreadable %v: %v", b.unwritable, b.unreadable, err)
		}
		if b.unwritable && b.tried != 1 {
			t.Errorf("a run was written in vain %d times", b.tried)
		}
	}
}

// failsLater is a log that can be read a few times, after which reads fail.
type failsLater struct {
	vfs.File
	left int
}

func (f *failsLater) ReadAt(p []byte, off int64) (int, error) {
	if f.left--; f.left < 0 {
		return 0, context.Canceled
	}
	return f.File.ReadAt(p, off)
}

// TestKeysLoadFails: if the log can't be read because the caller's time is up, its runs are not
// discarded: they stay in use.
func TestKeysLoadFails(t *testing.T) {
	s, _ := opened(t, indexed(t, 1, buildLog("keyed", 5, 1500, keyedEvent)), 2)
	f, err := s.fs.Open(sessionlog.Path("keyed"), vfs.ReadOnly)
	if err != nil {
		t.Fatal(err)
	}
	k := &keyIndex{}
	if err := k.catchUp(s.checks, "keyed", f, true); err != nil || len(k.runs) != 1 {
		t.Fatalf("%d runs, %v", len(k.runs), err)
	}
	round := k.round
	for left := 0; ; left++ {
		err := k.load(s.checks, "keyed", &failsLater{f, left}, true, true)
		if len(k.runs) != 1 || k.round != round {
			t.Fatalf("after %d reads: %d runs, round %d, %v", left, len(k.runs), k.round, err)
		}
		if err == nil {
			if left < 2 {
				t.Errorf("%d reads are enough", left)
			}
			return
		}
	}
}

// TestKeysBeforeTheHeader: an index that was started while the log was being made, and so has no
// uid yet, writes no runs until it has one.
func TestKeysBeforeTheHeader(t *testing.T) {
	log := buildLog("keyed", 5, 1500, keyedEvent)
	d := withLogs(t, 1, map[hansard.SessionID][]byte{"keyed": log[:20]})
	s, _ := opened(t, d, 1)
	f, err := s.fs.Open(sessionlog.Path("keyed"), vfs.ReadOnly)
	if err != nil {
		t.Fatal(err)
	}
	k := &keyIndex{}
	for i, part := range [][]byte{log[:20], log, log} {
		if err := putLog(d, "keyed", part); err != nil { // in place: the same inode
			t.Fatal(err)
		}
		if err := k.catchUp(s.checks, "keyed", f, true); err != nil {
			t.Fatal(err)
		}
		if i == 1 && len(runFiles(d, "keyed")) > 0 {
			t.Errorf("runs of a log without a uid: %d", len(k.runs))
		}
	}
	if k.uid != 5 || len(k.runs) != 1 || k.runs[0].Pairs != 1500 {
		t.Errorf("uid %d, %d runs", k.uid, len(k.runs))
	}
	// Even if the uid stayed wrong, a lookup would terminate.
	k.uid = 7
	for _, r := range k.runs {
		s.runsOf("keyed", 5).Remove(r)
	}
	p, err := k.find(s.checks, "keyed", f, []sought{seek(keyName("key 9")), seek(keyName("never"))})
	if err != nil || len(p.seen) != 1 || k.uid != 5 {
		t.Errorf("%+v, %v", p, err)
	}
}

// TestKeysBehindDamage: a key that was used after a damaged line of a long log must not be taken
// for a new one.
func TestKeysBehindDamage(t *testing.T) {
	const keys = 12_000
	log := buildLog("keyed", 5, keys, func(i int) (hansard.Event, string) { return pad(i, 400), fmt.Sprintf("key %d", i) })
	if len(log) <= checkWhole {
		t.Fatalf("a log of %d bytes is checked whole", len(log))
	}
	log[len(log)/2] ^= 1
	d := withLogs(t, 1, map[hansard.SessionID][]byte{"keyed": log})
	s, _ := opened(t, d, 1)
	r, err := s.Append(context.Background(), "keyed", hansard.Batch{Key: "key 11000", Events: []hansard.Event{pad(11_000, 400)}})
	if err == nil && !r.Replayed {
		t.Errorf("the retry was stored again: %+v", r)
	}
	if err != nil && !errors.Is(err, hansard.ErrDamaged) {
		t.Errorf("append: %v, want ErrDamaged", err)
	}
	if now, _ := d.CacheBytes(sessionlog.Path("keyed")); !bytes.Equal(now, log) {
		t.Error("the damaged log was written to")
	}
}

// TestKeysAfterReplace: after a log is restored from a backup, the keys of events after the
// backup are free and earlier ones are taken, although the index of the process remembers both.
func TestKeysAfterReplace(t *testing.T) {
	ctx := context.Background()
	log := buildLog("keyed", 5, 100, keyedEvent)
	d := withLogs(t, 1, map[hansard.SessionID][]byte{"keyed": log})
	s, _ := opened(t, d, 1)
	late := hansard.Batch{Key: "late", Events: []hansard.Event{text("late")}}
	if _, err := s.Append(ctx, "keyed", late); err != nil {
		t.Fatal(err)
	}
	if err := s.checkpoints.checkpoint(true); err != nil {
		t.Fatal(err)
	}
	if err := putLog(d, "keyed", log); err != nil { // in place: the same inode
		t.Fatal(err)
	}
	r, err := s.Append(ctx, "keyed", late)
	if err != nil || r.Replayed || r.First != 101 {
		t.Errorf("a key the restored log does not have: %+v, %v", r, err)
	}
	if err := askKeys(s, "keyed", 100, rand.New(rand.NewPCG(1, 1)), 20); err != nil {
		t.Error(err)
	}
}

// TestKeysOfAnotherLog: a lookup through a descriptor of a log that has just been replaced is not
// believed: the key may be in the new log.
func TestKeysOfAnotherLog(t *testing.T) {
	const keys = 1500
	log := buildLog("keyed", 5, keys, keyedEvent)
	s, _ := opened(t, withLogs(t, 1, map[hansard.SessionID][]byte{"keyed": log, "other": buildLog("other", 6, 10, keyedEvent)}), 1)
	open := func(name string) vfs.File {
		t.Helper()
		f, err := s.fs.Open(sessionlog.Path(name), vfs.ReadOnly)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	old, now := open("other"), open("keyed")
	k := &keyIndex{}
	if err := k.catchUp(s.checks, "keyed", now, true); err != nil {
		t.Fatal(err)
	}
	if len(k.runs) != 1 || k.tail.len() != 0 {
		t.Fatalf("%d runs, %d names in memory", len(k.runs), k.tail.len())
	}
	round, upTo := k.round, k.upTo
	if err := k.load(s.checks, "keyed", old, true, true); err != nil || k.round != round || k.upTo != upTo || len(k.runs) != 1 {
		t.Errorf("one who has the old log open changed the index: round %d, up to %d, %d runs, %v", k.round, k.upTo, len(k.runs), err)
	}
	for _, key := range []string{"key 700", "key 3", "never"} {
		names := []sought{seek(keyName(key))}
		p, err := k.lookUp(s.checks, "keyed", old, names) // by a caller that opened the log before it was replaced
		if err != nil || p.round == k.round {
			t.Errorf("%s: %+v, %v: it is believed", key, p, err)
		}
		if p, err = k.lookUp(s.checks, "keyed", now, names); err != nil || p.round != k.round || (len(p.seen) == 0) != (key == "never") {
			t.Errorf("%s: %+v, %v", key, p, err)
		}
	}
}

// TestNamesOfImports: names that an import brings are added to the index of a log that this
// process has used before.
func TestNamesOfImports(t *testing.T) {
	s, err := Open(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx := t.Context()
	made := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	part := func(seq hansard.Seq) hansard.Part {
		e := hansard.Event{Seq: seq, Time: made, Kind: "message", ID: fmt.Sprint("imported ", seq), Data: []byte("1")}
		key := hansard.KeyUse{Key: fmt.Sprint("key ", seq), Hash: engine.ContentHash([]hansard.Event{e}), First: seq, Last: seq}
		return hansard.Part{Origin: hansard.Origin{ID: "s", Created: made}, Events: []hansard.Event{e}, Keys: []hansard.KeyUse{key}}
	}
	for seq := hansard.Seq(1); seq < 12; seq += 2 {
		p := part(seq)
		if err := s.Import(ctx, p); err != nil {
			t.Fatal(err)
		}
		if r, err := s.Append(ctx, "s", hansard.Batch{Events: []hansard.Event{{ID: fmt.Sprint("own ", seq), Data: []byte("1")}}}); err != nil || r.First != seq+1 {
			t.Fatalf("%+v, %v", r, err)
		}
		given := hansard.Event{ID: p.Events[0].ID, Kind: "message", Data: []byte("1")}
		if r, err := s.Append(ctx, "s", hansard.Batch{Events: []hansard.Event{given}}); err != nil || !r.Replayed || r.Seqs[0] != seq {
			t.Errorf("the imported event %d again: %+v, %v", seq, r, err)
		}
		if r, err := s.Append(ctx, "s", hansard.Batch{Events: []hansard.Event{given}, Key: p.Keys[0].Key}); err != nil || !r.Replayed || r.First != seq {
			t.Errorf("under its key: %+v, %v", r, err)
		}
	}
}

// TestTailCollides: in the tail after the runs, a name whose hash equals that of another is
// reported as absent. A line that no longer has a name with the indexed hash is damage, not a
// free name.
func TestTailCollides(t *testing.T) {
	log := buildLog("keyed", 5, 20, keyedEvent)
	d := withLogs(t, 1, map[hansard.SessionID][]byte{"keyed": log})
	s, _ := opened(t, d, 1)
	f, err := s.fs.Open(sessionlog.Path("keyed"), vfs.ReadOnly)
	if err != nil {
		t.Fatal(err)
	}
	k := &keyIndex{}
	if err := k.catchUp(s.checks, "keyed", f, true); err != nil || len(k.runs) > 0 {
		t.Fatalf("%d runs, %v", len(k.runs), err)
	}
	there := seek(keyName("key 7"))
	twin := sought{keyName("never"), there.hash}
	p, err := k.lookUp(s.checks, "keyed", f, []sought{twin, there})
	if _, ok := p.seen[there.Name]; err != nil || len(p.seen) != 1 || !ok {
		t.Errorf("found %+v, %v", p.seen, err)
	}
	line := k.tail.find(there.hash, 0)[0]
	k.put(runs.Pair{Hash: 99, At: line})
	if p, err := k.lookUp(s.checks, "keyed", f, []sought{{keyName("other"), 99}}); !errors.Is(err, hansard.ErrDamaged) {
		t.Errorf("a line that has lost its name: %+v, %v", p, err)
	}
}

// TestNamesReadOnce: a new process that has to read much of the log after the runs writes a run,
// so that the next one reads little. A process that reads little writes none.
func TestNamesReadOnce(t *testing.T) {
	for _, c := range []struct {
		events, size int
		writes       bool
	}{{150, 1000, false}, {2500, 1000, true}, {namesAtOnce + 500, 10, true}} {
		log := buildLog("keyed", 5, c.events, func(i int) (hansard.Event, string) { return pad(i, c.size), fmt.Sprint("key ", i) })
		if len(log) >= namesBehind || len(log) >= namesRead != c.writes {
			t.Fatalf("%d bytes", len(log))
		}
		d := withLogs(t, 1, map[hansard.SessionID][]byte{"keyed": log})
		read := func(seed uint64, b hansard.Batch) int64 {
			t.Helper()
			s, c := opened(t, d, seed)
			c.reset()
			if _, err := s.Append(context.Background(), "keyed", b); err != nil {
				t.Fatal(err)
			}
			return c.files[sessionlog.Path("keyed")]
		}
		keyed := func(i uint64) int64 {
			return read(i, hansard.Batch{Key: fmt.Sprint("new ", i), Events: []hansard.Event{text("x")}})
		}
		plain, first := read(1, hansard.Batch{Events: []hansard.Event{text("x")}}), keyed(2)
		if written := len(runFiles(d, "keyed")) > 0; written != c.writes {
			t.Errorf("%d events: a run was written: %v", c.events, written)
		}
		if first < plain+int64(len(log)) {
			t.Errorf("%d events: the first process read %d bytes: it can't know", c.events, first)
		}
		most := int64(64 << 10)
		if !c.writes {
			most += namesRead
		}
		if next := keyed(3); next-plain > most {
			t.Errorf("%d events: the next process read %d bytes, %d without a key", c.events, next, plain)
		}
	}
}

// TestAbsentByRuns: for a session whose runs have no filters in this process, the runs alone tell
// that a name is new, without a read of the log.
func TestAbsentByRuns(t *testing.T) {
	s, c := opened(t, indexed(t, 1, buildLog("keyed", 5, 1500, keyedEvent)), 2)
	if _, err := s.Append(context.Background(), "keyed", hansard.Batch{Key: "new", Events: []hansard.Event{text("x")}}); err != nil {
		t.Fatal(err)
	}
	c.reset()
	for _, key := range []string{"key 3", "new", "never", "key 1499", "not yet"} {
		_, absent, _ := s.keyring.absent("keyed", []sought{seek(keyName("a new one")), seek(keyName(key))})
		if want := key == "never" || key == "not yet"; absent != want {
			t.Errorf("%q is absent: %v", key, absent)
		}
	}
	if read := c.files[sessionlog.Path("keyed")]; read > 0 || len(c.files) == 0 {
		t.Errorf("%d bytes of the log were read: %v", read, c.files)
	}
}

// TestIndexIsWeighed: names that the process itself appends count towards the memory limit of
// indexes before any run is written.
func TestIndexIsWeighed(t *testing.T) {
	s, _ := opened(t, largeDisk(1), 1)
	for i := range 30 {
		b := hansard.Batch{Create: true}
		for j := range 100 {
			b.Events = append(b.Events, hansard.Event{ID: fmt.Sprint(i, "/", j), Data: []byte("1")})
		}
		if _, err := s.Append(context.Background(), "s", b); err != nil {
			t.Fatal(err)
		}
		k, _ := s.keyring.keys.m.Peek("s")
		if i > 0 && (k.tail.len() < 100*i || k.weighed != k.weight()) {
			t.Fatalf("%d names in memory: the index was weighed at %d, and weighs %d", k.tail.len(), k.weighed, k.weight())
		}
	}
}

// TestIndexesAreBounded: the indexes of all sessions together take no more memory than
// they may. The least recently used ones are given up.
func TestIndexesAreBounded(t *testing.T) {
	var all keyIndexes
	kept := map[string]*keyIndex{}
	const names = 16 << 10 // in memory, of each session
	weight := int64(0)
	for i := 0; weight < 2*keyIndexBytes; i++ {
		name := fmt.Sprint("session", i)
		k := all.get(name)
		k.tail, k.filter = &tailNames{}, newNameFilter(0, fewNames)
		for i := range names {
			k.put(runs.Pair{Hash: uint64(i)})
		}
		all.weigh(name, k)
		kept[name] = k
		weight += k.weight()
	}
	sum, left := int64(0), 0
	for name, k := range kept {
		if now, ok := all.m.Peek(name); ok && now == k {
			sum += k.weight()
			left++
		}
	}
	if sum > keyIndexBytes || left == 0 || left == len(kept) {
		t.Errorf("%d of %d indexes are kept, with %d bytes, of at most %d", left, len(kept), sum, keyIndexBytes)
	}
	if last := fmt.Sprint("session", len(kept)-1); all.get(last) != kept[last] {
		t.Error("the index that was used last was given up")
	}
}
