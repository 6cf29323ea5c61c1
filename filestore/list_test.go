package filestore

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"hansard"
	"hansard/engine"
	"hansard/filestore/internal/cache"
	"hansard/filestore/internal/crc32c"
	"hansard/filestore/internal/runs"
	"hansard/filestore/internal/sessionlog"
	"hansard/internal/vfs"
)

func listed(s *Store, q hansard.Query) ([]hansard.Info, error) {
	var infos []hansard.Info
	for i, err := range s.List(context.Background(), q) {
		if err != nil {
			return nil, err
		}
		infos = append(infos, i)
	}
	return infos, nil
}

// rebuilt is the list as a process without any knowledge gives it, but for what knows knows of
// logs that were written to, on a copy of the disk without the cache.
func rebuilt(t testing.TB, d *vfs.Disk, knows ...*Store) []hansard.Info {
	t.Helper()
	d = d.Clone()
	for _, name := range d.Names() {
		if b, ok := d.CacheBytes(name); ok && strings.HasPrefix(name, cache.Dir+"/") && b != nil {
			putFile(t, d, name, nil)
		}
	}
	// Not opened: opening would first finish what is in the ring.
	reader := newStore(&process{fs: d.Process("reader"), opt: Options{ReadOnly: true}, cfg: simConfig(1, simRing), closing: make(chan struct{})})
	reader.logsKnown.Store(true) // the processes on the other disk have joined
	for _, s := range knows {
		reader.reader.dirty = s.reader.dirty
	}
	infos, err := listed(reader, hansard.Query{})
	if err != nil {
		t.Fatal(err)
	}
	return infos
}

func sameInfos(got, want []hansard.Info) error {
	if len(got) != len(want) {
		return fmt.Errorf("%d sessions, want %d", len(got), len(want))
	}
	for i := range got {
		if a, b := fmt.Sprintf("%+v", got[i]), fmt.Sprintf("%+v", want[i]); !reflect.DeepEqual(got[i], want[i]) {
			return fmt.Errorf("entry %d is\n%s, want\n%s", i, a, b)
		}
	}
	return nil
}

// TestListEqualsRebuild: after any operations, by several processes and by people who copy,
// restore, damage and remove files, every process lists what a rebuild lists (invariant 22),
// newest first. A log that lost what was written to it is damaged for those who know it.
func TestListEqualsRebuild(t *testing.T) {
	for seed := range uint64(6) {
		rng := rand.New(rand.NewPCG(seed, 41))
		d := vfs.NewDisk(seed)
		w := &listUser{t: t, d: d, rng: rng, backups: map[string][]byte{}}
		for i := range 3 {
			w.stores = append(w.stores, openSim(t, d.Process(fmt.Sprint("p", i)), 1000*seed+uint64(i)))
		}
		for n := range 400 {
			what := w.step(n)
			if n%10 != 0 {
				continue
			}
			for i, s := range w.stores {
				want := rebuilt(t, d, s)
				got, err := listed(s, hansard.Query{})
				if err == nil {
					err = sameInfos(got, want)
				}
				if err != nil {
					t.Fatalf("seed %d: step %d (%s): process %d: %v", seed, n, what, i, err)
				}
				for i := 1; i < len(want); i++ {
					if !engine.Newer(&want[i-1], &want[i]) {
						t.Fatalf("seed %d: %v is listed before %v", seed, want[i-1], want[i])
					}
				}
			}
		}
	}
}

// listUser does random things to a store.
type listUser struct {
	t       *testing.T
	d       *vfs.Disk
	rng     *rand.Rand
	stores  []*Store
	backups map[string][]byte
}

func (w *listUser) step(n int) string {
	ctx := context.Background()
	s := w.stores[w.rng.IntN(len(w.stores))]
	id := hansard.SessionID(fmt.Sprintf("S%d", w.rng.IntN(90)))
	path := sessionlog.Path(sessionlog.EncodeName(id))
	log, _ := w.d.CacheBytes(path)
	switch r := w.rng.IntN(20); {
	case r < 9:
		title := fmt.Sprint("title ", n)
		b := hansard.Batch{Create: true, Events: []hansard.Event{text("event %d", n)}}
		if n%3 == 0 {
			b.Patch = &hansard.Patch{Title: &title, State: json.RawMessage(fmt.Sprintf(`{"n":%d}`, n))}
		}
		_, _ = s.Append(ctx, id, b) // it may be deleted or damaged
		return "append to " + string(id)
	case r < 11:
		_, _ = s.Create(ctx, id, hansard.Meta{Labels: map[string]string{"made": fmt.Sprint(n)}})
		return "create " + string(id)
	case r < 12:
		_ = s.Delete(ctx, id, "")
		return "delete " + string(id)
	case r < 13 && log != nil:
		w.backups[path] = log
	case r < 15 && w.backups[path] != nil:
		putFile(w.t, w.d, path, w.backups[path])
		return "restore " + path
	case r < 16 && log != nil:
		putFile(w.t, w.d, path, nil)
		return "remove " + path
	case r < 17 && len(log) > 0:
		log[w.rng.IntN(len(log))] ^= 4
		putFile(w.t, w.d, "edited", log) // as an editor saves: a new file renamed over the old one
		if err := w.d.Observer("somebody").Rename("edited", path); err != nil {
			w.t.Fatal(err)
		}
		return "damage " + path
	case r < 18:
		_, _ = s.Repair(ctx, id)
		return "repair " + string(id)
	case r < 19:
		i := w.rng.IntN(len(w.stores))
		_ = w.stores[i].Close()
		w.stores[i] = openSim(w.t, w.d.Process(fmt.Sprint("p", i)), w.rng.Uint64())
		return "reopen"
	}
	return "nothing"
}

// TestListCache: the list is the same if the catalog is deleted, damaged or from another store.
// And the catalog is used: with it only the directory is read.
func TestListCache(t *testing.T) {
	const seed, sessions = 42, 150
	base := sessionsOn(t, seed, sessions)
	want := rebuilt(t, base)
	s := openSim(t, base.Process("first"), 1)
	if got, err := listed(s, hansard.Query{}); err != nil || sameInfos(got, want) != nil {
		t.Fatalf("first list: %v, %v", err, sameInfos(got, want))
	}
	_ = s.Close()
	cached, ok := base.CacheBytes(cache.Dir + "/" + cache.CatalogName)
	if !ok {
		t.Fatal("there is no catalog after a list of many sessions")
	}
	ro, c := readOnly(t, base)
	got, err := listed(ro, hansard.Query{})
	if err == nil {
		err = sameInfos(got, want)
	}
	if err != nil {
		t.Errorf("from the catalog: %v", err)
	}
	if c.reads > 10 {
		t.Errorf("with the catalog there list makes %d reads", c.reads)
	}
	foreignDisk := sessionsOn(t, seed+1, sessions+3)
	fs := openSim(t, foreignDisk.Process("first"), 1)
	if _, err := listed(fs, hansard.Query{}); err != nil {
		t.Fatal(err)
	}
	foreign, _ := foreignDisk.CacheBytes(cache.Dir + "/" + cache.CatalogName)
	caches := map[string][]byte{"deleted": nil, "empty": {}, "of another store": foreign, "cut": cached[:len(cached)/2], "NULs": make([]byte, len(cached)),
		"text": []byte("HANSCAT1 not a catalog")}
	rng := rand.New(rand.NewPCG(seed, 1))
	for i := range 60 {
		at := i
		if i >= 20 {
			at = rng.IntN(len(cached))
		}
		caches[fmt.Sprintf("byte %d", at)] = changed(cached, at, cached[at]^byte(1<<rng.IntN(8)))
	}
	for what, b := range caches {
		d := base.Clone()
		putFile(t, d, cache.Dir+"/"+cache.CatalogName, b)
		ro, _ := readOnly(t, d)
		got, err := listed(ro, hansard.Query{})
		if err == nil {
			err = sameInfos(got, want)
		}
		if err != nil {
			t.Errorf("catalog %s: %v", what, err)
		}
	}
}

// sessionsOn makes a closed store with sessions of different kinds.
func sessionsOn(t testing.TB, seed uint64, n int) *vfs.Disk {
	t.Helper()
	ctx := context.Background()
	d := vfs.NewDisk(seed)
	s := openSim(t, d.Process("maker"), seed)
	for i := range n {
		id := hansard.SessionID(fmt.Sprintf("s%d", i))
		m := hansard.Meta{}
		if i%3 == 0 {
			m = hansard.Meta{Title: fmt.Sprint("title ", i), Labels: map[string]string{"third": "yes"}, State: json.RawMessage(`{"i":1}`)}
		}
		_, err := s.Create(ctx, id, m)
		if err == nil && i%2 == 0 {
			_, err = s.Append(ctx, id, hansard.Batch{Events: []hansard.Event{text("hello %d", i)}})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return d
}

// TestListSaysWhatStatSays: list and stat agree, also for a session that has lines set aside,
// with or without a log.
func TestListSaysWhatStatSays(t *testing.T) {
	for _, what := range []string{"shorter", "removed"} {
		for _, listFirst := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/%v", what, listFirst), func(t *testing.T) {
				d := sessionsOn(t, 1, 4)
				s, lives := openSim(t, d.Process("p"), 1), openSim(t, d.Process("q"), 2)
				old, _ := d.CacheBytes(sessionlog.Path("s0"))
				// The entry is in the ring, and the process dies before the log is written.
				d.KillAt(vfs.Match{Kind: vfs.OpWrite, Name: sessionlog.Path("s0")}, 0)
				_, _ = s.Append(context.Background(), "s0", hansard.Batch{Events: []hansard.Event{text("in the ring")}})
				d.ClearRules()
				if what == "shorter" {
					old = old[:len(old)-len(linesOf(old)[1])]
					putFile(t, d, sessionlog.Path("s0"), old)
				} else {
					putFile(t, d, sessionlog.Path("s0"), nil)
				}
				if listFirst {
					if _, err := listed(lives, hansard.Query{}); err != nil {
						t.Fatal(err)
					}
				}
				if err := lives.checkpoints.checkpoint(true); err != nil { // completes what the dead process left
					t.Fatal(err)
				}
				info, err := lives.Stat(context.Background(), "s0")
				if err != nil || info.Damage == nil {
					t.Fatalf("stat: %+v, %v, want damage", info, err)
				}
				infos, err := listed(lives, hansard.Query{})
				if err != nil || len(infos) != 4 {
					t.Errorf("list: %d sessions, %v; want the damaged one too", len(infos), err)
				}
				for _, i := range infos {
					if i.Damaged() != (i.ID == "s0") {
						t.Errorf("list says of %s: %v", i.ID, i.Damage)
					}
				}
			})
		}
	}
}

// TestListRotsInPlace: a bit that flips in a log long after a process has checked it is found by
// the next read. Until then stat and list may not know of it, but whatever they report as safe is
// safe.
func TestListRotsInPlace(t *testing.T) {
	const seed = 43
	base := makeSample(t, seed)
	w := base.logs["other"]
	for at := 0; at < len(w.log); at += 5 {
		d := base.disk.Clone()
		s := openSim(t, d.Process("long-lived"), seed)
		if info, err := s.Stat(context.Background(), w.id); err != nil || info.Damaged() {
			t.Fatalf("stat: %+v, %v", info, err)
		}
		rotten := changed(w.log, at, w.log[at]^2)
		d.Poke(sessionlog.Path(sessionlog.EncodeName(w.id)), int64(at), rotten[at:at+1])
		v := w.oracle(rotten)
		info, err := s.Stat(context.Background(), w.id)
		if err == nil && info.Damage != nil {
			err = info.Damage
		}
		if err != nil {
			if err := v.check("stat", w.id, err); err != nil {
				t.Fatalf("seed %d: byte %d: %v", seed, at, err)
			}
		}
		if err := w.wantRead(s, v); err != nil {
			t.Fatalf("seed %d: byte %d: %v", seed, at, err)
		}
	}
}

// TestListOddFiles: stray files that people and systems leave in a directory do no harm, and
// verify reports them.
func TestListOddFiles(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx := context.Background()
	if _, err := s.Append(ctx, "fine", hansard.Batch{Create: true, Events: []hansard.Event{text("x")}}); err != nil {
		t.Fatal(err)
	}
	sessions := filepath.Join(dir, sessionlog.Dir)
	target := filepath.Join(t.TempDir(), "outside.jsonl")
	err = errors.Join(
		os.Mkdir(filepath.Join(sessions, "dir.jsonl"), 0o700),
		os.WriteFile(target, buildLog("link", 1, 3, keyedEvent), 0o600),
		os.Symlink(target, filepath.Join(sessions, "link.jsonl")),
		os.Symlink("nowhere", filepath.Join(sessions, "dangling.jsonl")),
		os.WriteFile(filepath.Join(sessions, "empty.jsonl"), nil, 0o600),
		os.WriteFile(filepath.Join(sessions, "Upper.jsonl"), []byte("x"), 0o600),
		os.WriteFile(filepath.Join(sessions, "fine.jsonl~"), []byte("x"), 0o600),
		os.WriteFile(filepath.Join(sessions, "notes.txt"), []byte("x"), 0o600),
		os.WriteFile(filepath.Join(sessions, "bad=name=.jsonl"), []byte("x"), 0o600),
		exec.Command("mkfifo", filepath.Join(sessions, "fifo.jsonl")).Run(), // not in package syscall on every system
	)
	if err != nil {
		t.Fatal(err)
	}
	infos, err := listed(s, hansard.Query{})
	if err != nil {
		t.Fatalf("list: %v", err)
	}
	for _, i := range infos {
		if st, err := s.Stat(ctx, i.ID); err != nil || st.Damaged() != i.Damaged() || i.Damaged() == (i.ID == "fine") {
			t.Errorf("list says %+v, stat says %+v, %v", i, st, err)
		}
	}
	all, err := findings(s, "")
	if err != nil {
		t.Fatalf("verify: %v", err)
	}
	told := map[string]hansard.Level{}
	for _, f := range all {
		told[f.File] = f.Level
	}
	for _, odd := range []string{"dir.jsonl", "link.jsonl", "dangling.jsonl", "fifo.jsonl", "Upper.jsonl", "fine.jsonl~", "notes.txt", "bad=name=.jsonl"} {
		if level, ok := told[sessionlog.Dir+"/"+odd]; !ok || level == hansard.LevelOK {
			t.Errorf("verify says %q of %s", level, odd)
		}
	}
	for _, id := range []hansard.SessionID{"dir", "link", "dangling", "fifo"} {
		if _, err := s.Append(ctx, id, hansard.Batch{Create: true, Events: []hansard.Event{text("x")}}); !errors.Is(err, hansard.ErrDamaged) {
			t.Errorf("append to %s: %v, want ErrDamaged", id, err)
		}
	}
	if b, _ := os.ReadFile(target); len(linesOf(b)) != 4 {
		t.Error("a link was followed")
	}
	if _, err := s.Append(ctx, "empty", hansard.Batch{Create: true, Events: []hansard.Event{text("x")}}); !errors.Is(err, hansard.ErrDamaged) {
		t.Errorf("append to a session whose file is empty: %v, want ErrDamaged: corrupt never means new", err)
	}
}

// TestListLargeStates: however large the states of the sessions are, the catalog keeps little of
// them, and a list still has them all.
func TestListLargeStates(t *testing.T) {
	s, err := Open(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const sessions = 30
	state := func(i int) json.RawMessage {
		return json.RawMessage(fmt.Sprintf("%q", strings.Repeat(fmt.Sprint(i%10), i*2<<10)))
	}
	for i := range sessions {
		if _, err := s.Create(t.Context(), hansard.SessionID(fmt.Sprint("s", i)), hansard.Meta{State: state(i)}); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // described, and remembered
		infos, err := listed(s, hansard.Query{})
		if err != nil || len(infos) != sessions {
			t.Fatalf("%d sessions, %v", len(infos), err)
		}
		for _, info := range infos {
			var i int
			fmt.Sscanf(string(info.ID), "s%d", &i)
			if string(info.State) != string(state(i)) {
				t.Errorf("%s has a state of %d bytes, want %d", info.ID, len(info.State), len(state(i)))
			}
		}
		kept := 0
		for _, entry := range s.lister.catalog.m {
			kept += len(entry.Info.State)
		}
		if kept > sessions*cache.MaxListedState {
			t.Errorf("%d bytes of states are kept", kept)
		}
	}
}

// readingFS counts the bytes read from files in cache/.
type readingFS struct {
	vfs.FS
	bytes *int64
}

func (r readingFS) Open(name string, flags vfs.Flag) (vfs.File, error) {
	f, err := r.FS.Open(name, flags)
	if err == nil && strings.HasPrefix(name, cache.Dir+"/") {
		f = readingFile{f, r.bytes}
	}
	return f, err
}

type readingFile struct {
	vfs.File
	bytes *int64
}

func (r readingFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := r.File.ReadAt(p, off)
	*r.bytes += int64(len(p)) // requested: a buffer of that size was allocated
	return n, err
}

// TestCraftedCaches: a crafted file in cache/ costs no more than a look at it: a sparse catalog
// or run of 20 GB is not read, and the store works without it.
func TestCraftedCaches(t *testing.T) {
	dir := t.TempDir()
	open := func() (*Store, *int64) {
		t.Helper()
		s, err := Open(dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		read := new(int64)
		s.fs = readingFS{s.fs, read}
		return s, read
	}
	s, _ := open()
	for i := range 5 {
		if _, err := s.Append(t.Context(), "s", hansard.Batch{Events: []hansard.Event{{Data: []byte("1")}}, Key: fmt.Sprint(i), Create: true}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	log, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(sessionlog.Path("s"))))
	if err != nil {
		t.Fatal(err)
	}
	const large = 20 << 30
	// An attacker can compute the checksum, too.
	uid, ok := sessionlog.ParseUID(string(log[20:36]))
	if !ok {
		t.Fatalf("no uid in %q", log[:40])
	}
	run := []byte(runs.Magic)
	for _, v := range []uint64{uid, 0, uint64(len(log)), uint64(sessionlog.LineCRC(log)) << 32, large / 4096 * 255} {
		run = binary.LittleEndian.AppendUint64(run, v)
	}
	run = append(run, 0, 0, 0, 0)
	run = binary.LittleEndian.AppendUint32(run, crc32c.Sum(run))
	for name, head := range map[string][]byte{
		cache.Dir + "/" + cache.CatalogName:              cache.CatalogMagic,
		(runs.Index{Path: cache.KeysDir + "/s"}).File(0): run,
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, head, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, large+4096); err != nil {
			t.Fatal(err)
		}
	}
	s, read := open()
	defer s.Close()
	infos, err := listed(s, hansard.Query{})
	if err != nil || len(infos) != 1 || infos[0].LastSeq != 5 {
		t.Errorf("the list is %+v, %v", infos, err)
	}
	if r, err := s.Append(t.Context(), "s", hansard.Batch{Events: []hansard.Event{{Data: []byte("1")}}, Key: "3"}); err != nil || !r.Replayed {
		t.Errorf("a known key: %+v, %v", r, err)
	}
	if *read > 1<<20 {
		t.Errorf("%d bytes of the caches were read", *read)
	}
}
