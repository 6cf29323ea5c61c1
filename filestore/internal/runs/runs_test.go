package runs

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"hansard/internal/vfs"
)

// putOn puts files in place as the engine does, under a temporary name first.
func putOn(fsys vfs.FS, tmp string) Put {
	return func(name string, fill func(vfs.File) error) error {
		f, err := fsys.Open(tmp, vfs.Create|vfs.Exclusive)
		if err != nil {
			return err
		}
		err = fill(f)
		if err == nil {
			err = f.Datasync()
		}
		if err = errors.Join(err, f.Close()); err == nil {
			err = fsys.Rename(tmp, name)
		}
		if err != nil {
			_ = fsys.Remove(tmp)
		}
		return err
	}
}

// fakeLog is a log as far as runs know it: names at offsets, and a crc for every end of a
// line. Line i is at 100*i.
type fakeLog struct {
	lines []Name
	crcs  []uint32 // of the lines that end at 100*i
}

func (l *fakeLog) grow(rng *rand.Rand, names int) {
	if l.crcs == nil {
		l.crcs = []uint32{0}
	}
	for range names {
		l.lines = append(l.lines, Name{'k', fmt.Sprint(rng.Uint64())})
		l.crcs = append(l.crcs, rng.Uint32())
	}
}

func (l *fakeLog) size() int64 { return int64(100 * len(l.lines)) }

func (l *fakeLog) fits(upTo int64, crc uint32) bool {
	return upTo%100 == 0 && upTo <= l.size() && l.crcs[upTo/100] == crc
}

// pairs are those of a stretch.
func (l *fakeLog) pairs(from, upTo int64) (pairs []Pair) {
	for i := from / 100; i < upTo/100; i++ {
		pairs = append(pairs, Pair{l.lines[i].Hash(), 100 * i})
	}
	return pairs
}

// look finds every name of the log that the runs cover, some that it does not have, and
// compares with the log itself. An error of a run is returned: nothing may be said then.
func (l *fakeLog) look(x Index, rs []*Run, rng *rand.Rand) (wrong, failed error) {
	upTo, _ := End(rs)
	var names []Name
	for range 20 {
		names = append(names, Name{'k', fmt.Sprint("never ", rng.Uint64())})
	}
	for range 20 {
		if len(l.lines) > 0 {
			n := l.lines[rng.IntN(len(l.lines))]
			names = append(names, n, Name{'i', n.Text})
		}
	}
	slices.SortFunc(names, func(a, b Name) int { return compare(Pair{a.Hash(), 0}, Pair{b.Hash(), 0}) })
	names = slices.Compact(names)
	var hashes []uint64
	for _, n := range names {
		hashes = append(hashes, n.Hash())
	}
	found := map[Name][]int64{}
	for _, r := range rs {
		if err := x.Find(r, hashes, func(i int, at int64) { found[names[i]] = append(found[names[i]], at) }); err != nil {
			return nil, err
		}
	}
	for _, n := range names {
		at := int64(100 * slices.Index(l.lines, n))
		want := at >= 0 && at < upTo
		if got := found[n]; want != (len(got) == 1) || want && got[0] != at {
			return fmt.Errorf("%v is at %d, runs up to %d give %v", n, at, upTo, got), nil
		}
	}
	return nil, nil
}

// proc is a process with its own idea of the log and of its runs.
type proc struct {
	x   Index
	p   *vfs.Proc
	log *fakeLog
	rs  []*Run
}

// TestAnything has processes write and merge runs, in any order and each on what it knows,
// while files are damaged, removed and exchanged, processes die in the middle, the power
// fails and the log is replaced by another one, which some notice late: whatever can be
// loaded finds every name it covers, or returns an error, and finds no name that is not
// there.
func TestAnything(t *testing.T) {
	loaded, merged, damaged := 0, 0, 0
	for seed := range uint64(150) {
		rng := rand.New(rand.NewPCG(seed, 77))
		d := vfs.NewDisk(seed)
		d.PageSize, d.SectorSize = 512, 128
		d.Writeback = int(seed % 3 * 5)
		log := &fakeLog{}
		log.grow(rng, 5)
		n := 0
		start := func() *proc {
			n++
			p := d.Process(fmt.Sprint("p", n))
			_ = p.Mkdir("c")
			return &proc{x: Index{FS: p, Path: "c/x", UID: 7}, p: p, log: log}
		}
		procs := []*proc{start(), start()}
		for step := range 60 {
			who := rng.IntN(len(procs))
			p := procs[who]
			if p.p.Dead() {
				procs[who] = start()
				p = procs[who]
			}
			switch rng.IntN(14) {
			case 0, 1, 2:
				log.grow(rng, rng.IntN(400))
			case 3:
				p.log = log
				p.rs = p.x.Load(log.size(), log.fits)
			case 4: // somebody changes a byte of a run
				if file := anyRun(d, rng); file != "" {
					b, _ := d.CacheBytes(file)
					if at := rng.IntN(len(b) + 1); at < len(b) {
						d.Poke(file, int64(at), []byte{b[at] ^ byte(1<<rng.IntN(8))})
					}
				}
			case 5: // or removes it, or puts it in the place of another
				if a, b := anyRun(d, rng), anyRun(d, rng); a != b && rng.IntN(2) == 0 {
					_ = d.Observer("somebody").Rename(a, b)
				} else if a != "" {
					_ = d.Observer("somebody").Remove(a)
				}
			case 6: // or cuts it
				if file := anyRun(d, rng); file != "" {
					f, err := d.Observer("somebody").Open(file, 0)
					if err != nil {
						t.Fatal(err)
					}
					size, _ := f.Size()
					_ = f.Truncate(rng.Int64N(size + 1))
					_ = f.Close()
				}
			case 7:
				d.PowerCut(vfs.Cut{Keep: rng.IntN(101), Seed: rng.Uint64()})
			case 8: // the log is another one from some line on
				at := rng.IntN(len(log.lines) + 1)
				log = &fakeLog{slices.Clone(log.lines[:at]), slices.Clone(log.crcs[:at+1])}
				log.grow(rng, rng.IntN(300))
			default:
				// What it knows may be of files that are gone, as long as it fits the log.
				if rng.IntN(3) == 0 {
					d.KillAt(vfs.Match{Proc: p.p.Name(), Kind: vfs.OpChange, N: 1 + rng.IntN(6)}, rng.IntN(101))
				}
				from, _ := End(p.rs)
				upTo := from + 100*rng.Int64N((p.log.size()-from)/100+1)
				if upTo/1000*1000 > from {
					upTo = upTo / 1000 * 1000 // so that stretches of different logs fit together
				}
				if upTo == from {
					break
				}
				before := len(p.rs)
				rs, err := p.x.Add(p.rs, p.log.pairs(from, upTo), upTo, p.log.crcs[upTo/100], putOn(p.p, fmt.Sprint(p.p.Name(), " ", step)))
				if p.rs = rs; err == nil && len(rs) <= before {
					merged++
				}
				d.ClearRules()
			}
			fresh := start()
			rs := fresh.x.Load(log.size(), log.fits)
			wrong, failed := log.look(fresh.x, rs, rng)
			if failed == nil && len(rs) > 0 {
				loaded++
			} else if failed != nil {
				damaged++
			}
			if wrong == nil && !p.p.Dead() {
				wrong, _ = p.log.look(p.x, p.rs, rng)
			}
			if wrong != nil {
				t.Fatalf("seed %d, step %d: %v", seed, step, wrong)
			}
		}
	}
	t.Logf("%d looks, %d merges, %d damaged", loaded, merged, damaged)
	if loaded < 1000 || merged < 100 || damaged < 100 {
		t.Errorf("%d looks, %d merges, %d damaged: too few to tell", loaded, merged, damaged)
	}
}

func anyRun(d *vfs.Disk, rng *rand.Rand) string {
	var files []string
	for _, name := range d.Names() {
		if strings.HasPrefix(name, "c/x.") {
			files = append(files, name)
		}
	}
	if len(files) == 0 {
		return ""
	}
	return files[rng.IntN(len(files))]
}

// counted counts what is read and written.
type counted struct {
	vfs.FS
	read, written int64
}

func (c *counted) Open(name string, flags vfs.Flag) (vfs.File, error) {
	f, err := c.FS.Open(name, flags)
	return countedFile{f, c}, err
}

type countedFile struct {
	vfs.File
	c *counted
}

func (f countedFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(p, off)
	f.c.read += int64(n)
	return n, err
}

func (f countedFile) WriteAt(p []byte, off int64) (int, error) {
	f.c.written += int64(len(p))
	return f.File.WriteAt(p, off)
}

// TestFewPages: a look into a run of a million pairs reads 12 KB, whether it finds
// anything or not; what is kept of the run in memory is a few KB; and many looks at once
// read no page twice.
func TestFewPages(t *testing.T) {
	const n, seed = 1_000_000, 5
	rng := rand.New(rand.NewPCG(seed, 0))
	d := vfs.NewDisk(seed)
	d.PageSize = 64 << 10
	c := &counted{FS: d.Process("p")}
	x := Index{FS: c, Path: "x", UID: 7}
	pairs := make([]Pair, n)
	for i := range pairs {
		pairs[i] = Pair{rng.Uint64(), int64(100 * i)}
	}
	if _, err := x.Add(nil, pairs, 100*n, 3, putOn(c, "tmp")); err != nil {
		t.Fatal(err)
	}
	c.read = 0
	rs := x.Load(100*n, func(upTo int64, crc uint32) bool { return upTo == 100*n && crc == 3 })
	if len(rs) != 1 || c.read > 4<<10 || rs[0].Weight() > 4<<10 {
		t.Fatalf("%d runs, %d bytes read", len(rs), c.read)
	}
	heads, most, all := c.read, int64(0), int64(0)
	const looks = 2000
	for i := range looks {
		h, want := rng.Uint64(), 0
		if i%2 == 0 {
			h, want = pairs[rng.IntN(n)].Hash, 1
		}
		c.read = 0
		got := 0
		if err := x.Find(rs[0], []uint64{h}, func(int, int64) { got++ }); err != nil || got != want {
			t.Fatalf("seed %d: %x: %d found, %v", seed, h, got, err)
		}
		most, all = max(most, c.read), all+c.read
	}
	t.Logf("%d bytes to load it, %d a look, %d at most", heads, all/looks, most)
	if most > 12<<10+headSize || all/looks > 6<<10 {
		t.Errorf("a look read %d bytes, and up to %d", all/looks, most)
	}
	hashes := make([]uint64, 0, 10_000)
	for range cap(hashes) {
		hashes = append(hashes, pairs[rng.IntN(n)].Hash)
	}
	slices.Sort(hashes)
	c.read = 0
	got := 0
	if err := x.Find(rs[0], hashes, func(int, int64) { got++ }); err != nil || got != len(hashes) {
		t.Errorf("%d of %d found, %v", got, len(hashes), err)
	}
	if c.read > 3*16*n/2 {
		t.Errorf("%d looks at once read %d bytes", len(hashes), c.read)
	}
}

// TestReplaced: a run that another process merged is distinguished from a damaged one,
// which is removed by the process that finds it; and one with more pairs than its stretch
// has room for is not believed.
func TestReplaced(t *testing.T) {
	d := vfs.NewDisk(1)
	p := d.Process("p")
	x := Index{FS: p, Path: "x", UID: 7}
	rng := rand.New(rand.NewPCG(1, 0))
	log := &fakeLog{}
	log.grow(rng, 1000)
	var sets [][]*Run
	var rs []*Run
	for _, upTo := range []int64{60_000, 70_000, 100_000} { // the last takes in the second
		from, _ := End(rs)
		var err error
		if rs, err = x.Add(rs, log.pairs(from, upTo), upTo, log.crcs[upTo/100], putOn(p, "tmp")); err != nil {
			t.Fatal(err)
		}
		sets = append(sets, rs)
	}
	if len(sets[1]) != 2 || len(sets[2]) != 2 {
		t.Fatalf("%d runs, then %d", len(sets[1]), len(sets[2]))
	}
	find := func(r *Run) error { return x.Find(r, []uint64{5}, func(int, int64) {}) }
	if err := find(sets[1][1]); !errors.Is(err, ErrChanged) {
		t.Errorf("a look into one that was merged: %v", err)
	}
	x.Remove(rs[1])
	if err := find(rs[1]); !errors.Is(err, ErrChanged) {
		t.Errorf("a look into one that was removed: %v", err)
	}
	if err := find(rs[0]); err != nil {
		t.Errorf("a look into one that is there: %v", err)
	}
	d.Poke(x.File(0), pageSize+7, []byte{1, 2, 3})
	if err := find(rs[0]); !errors.Is(err, errDamaged) {
		t.Errorf("a look into a damaged one: %v", err)
	}
	if _, err := x.Add(nil, log.pairs(0, 1000), 10*minStretch-1, 3, putOn(p, "tmp")); err != nil {
		t.Fatal(err)
	}
	if rs := x.Load(1000, func(int64, uint32) bool { return true }); len(rs) != 0 {
		t.Error("ten names in less log than ten lines have are believed")
	}
}

// TestStaleWriter: a process that has read a log before it was replaced writes its run
// late, in the place of one of the new log. The runs behind it do not follow it, although
// the last of them fits the log.
func TestStaleWriter(t *testing.T) {
	p := vfs.NewDisk(1).Process("p")
	x := Index{FS: p, Path: "x", UID: 7}
	rng := rand.New(rand.NewPCG(1, 0))
	var logs [2]fakeLog
	for i := range logs {
		logs[i].grow(rng, 1000)
	}
	old, log := &logs[0], &logs[1]
	add := func(l *fakeLog, rs []*Run, upTo int64) []*Run {
		from, _ := End(rs)
		rs, err := x.Add(rs, l.pairs(from, upTo), upTo, l.crcs[upTo/100], putOn(p, "tmp"))
		if err != nil {
			t.Fatal(err)
		}
		return rs
	}
	if rs := add(log, add(log, nil, 90_000), 100_000); len(rs) != 2 || len(x.Load(log.size(), log.fits)) != 2 {
		t.Fatalf("%d runs", len(rs))
	}
	add(old, nil, 90_000)
	if rs := x.Load(log.size(), log.fits); len(rs) != 0 {
		t.Errorf("%d runs are believed, the first is that of another log", len(rs))
	}
}

// TestDoubling: however many times a few names are added, there are few runs, and what is
// written for them grows little faster than they do. Ever fewer names at a time is what a
// bad rule would take for "smaller than the one before" for ever.
func TestDoubling(t *testing.T) {
	for what, size := range map[string]func(i int) int{
		"the same": func(int) int { return 300 }, "fewer": func(i int) int { return 600 - i }, "none now and then": func(i int) int { return 400 * (i % 2) },
	} {
		d := vfs.NewDisk(1)
		d.PageSize = 64 << 10
		c := &counted{FS: d.Process("p")}
		x := Index{FS: c, Path: "x", UID: 7}
		rng := rand.New(rand.NewPCG(1, 0))
		log := &fakeLog{}
		var rs []*Run
		const times = 600
		for i := range times {
			log.grow(rng, size(i))
			log.lines, log.crcs = append(log.lines, Name{}), append(log.crcs, rng.Uint32()) // one without a name
			from, _ := End(rs)
			pairs := log.pairs(from, log.size()-100)
			var err error
			if rs, err = x.Add(rs, pairs, log.size(), log.crcs[len(log.crcs)-1], putOn(c, "tmp")); err != nil {
				t.Fatal(err)
			}
			if len(rs) > 11 {
				t.Fatalf("%s: %d runs after %d times", what, len(rs), i)
			}
		}
		total := int64(0)
		for _, r := range rs {
			total += r.Pairs
		}
		t.Logf("%s: %d pairs in %d runs, %d bytes written", what, total, len(rs), c.written)
		if limit := total*16*12 + times*2*pageSize; c.written > limit {
			t.Errorf("%s: %d bytes written for %d pairs, want %d at most", what, c.written, total, limit)
		}
		if now := x.Load(log.size(), log.fits); len(now) != len(rs) {
			t.Errorf("%s: %d runs are loaded, %d were written", what, len(now), len(rs))
		}
		if files := len(d.Names()); files != len(rs) {
			t.Errorf("%s: %d files for %d runs", what, files, len(rs))
		}
	}
}

// The hash of a name is part of the format: FORMAT.md says how it is made, and these were
// made by another program.
func TestHash(t *testing.T) {
	for name, want := range map[Name]uint64{
		{Kind: 'i', Text: "msg-17"}:                         0x326dc408ed981ddd,
		{Kind: 'k', Text: "msg-17"}:                         0x4b85741e9ff710ed,
		{Kind: 'i', Text: strings.Repeat("0123456789", 30)}: 0xcb468279474dbd95,
	} {
		if got := name.Hash(); got != want {
			t.Errorf("%c %q: %#x, want %#x", name.Kind, name.Text, got, want)
		}
	}
}
