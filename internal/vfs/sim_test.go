package vfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// The tests here ask one thing of the simulator: that it is honest. What a real
// disk may take away it must be able to take away, and nothing else.

func put(t *testing.T, f File, off int64, s string) {
	t.Helper()
	if _, err := f.WriteAt([]byte(s), off); err != nil {
		t.Fatalf("write: %v", err)
	}
}

func get(t *testing.T, f File) string {
	t.Helper()
	n, err := f.Size()
	if err != nil {
		t.Fatalf("size: %v", err)
	}
	b := make([]byte, n)
	if _, err := f.ReadAt(b, 0); err != nil && err != io.EOF {
		t.Fatalf("read: %v", err)
	}
	return string(b)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// made is a disk with a durable file of that content.
func made(t *testing.T, name, content string) (*Disk, *Proc, File) {
	t.Helper()
	d := NewDisk(1)
	d.PageSize = 512
	p := d.Process("a")
	f, err := p.Open(name, Create)
	must(t, err)
	if content != "" {
		put(t, f, 0, content)
	}
	must(t, f.Datasync())
	must(t, p.SyncDir("."))
	return d, p, f
}

// outcomes is what each possible power cut leaves under a name, each once and
// sorted; "-" where there is no file.
func outcomes(d *Disk, name string, whole bool) []string {
	seen := map[string]bool{}
	var c Chooser
	for more := true; more; more = c.Next() {
		x := d.Clone()
		x.PowerCut(Cut{Choose: c.Choose, Whole: whole})
		b, ok := x.CacheBytes(name)
		s := show(string(b))
		if !ok {
			s = "-"
		}
		if db, dok := x.DurableBytes(name); dok != ok || !bytes.Equal(db, b) {
			panic("after a cut cache and medium differ")
		}
		seen[s] = true
	}
	return slices.Sorted(maps.Keys(seen))
}

// show shortens runs: 512 times x is x512.
func show(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); {
		j := i
		for j < len(s) && s[j] == s[i] {
			j++
		}
		c := s[i : i+1]
		if c == "\x00" {
			c = "0:"
		}
		if j-i == 1 {
			b.WriteString(c)
		} else {
			fmt.Fprintf(&b, "%s%d ", c, j-i)
		}
		i = j
	}
	return strings.TrimSpace(b.String())
}

func wantOutcomes(t *testing.T, d *Disk, name string, want ...string) {
	t.Helper()
	got := outcomes(d, name, false)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("outcomes %q, want %q", got, want)
	}
}

func fill(c string) string { return strings.Repeat(c, 512) }

func TestCutKeepsWhatWasSynced(t *testing.T) {
	d, _, f := made(t, "f", "old")
	put(t, f, 0, "new")
	put(t, f, 3, fill("x"))
	for keep, want := range map[int]string{0: "old", 100: "new" + fill("x")} {
		for seed := range uint64(20) {
			c := d.Clone()
			c.PowerCut(Cut{Keep: keep, Seed: seed})
			if got, _ := c.CacheBytes("f"); string(got) != want {
				t.Fatalf("keep %d: %q, want %q", keep, show(string(got)), show(want))
			}
		}
	}
	must(t, f.Datasync())
	d.PowerCut(Cut{})
	if got, _ := d.CacheBytes("f"); string(got) != "new"+fill("x") {
		t.Errorf("synced and lost: %q", show(string(got)))
	}
}

func TestCutAnySubsetOfPages(t *testing.T) {
	d, _, f := made(t, "f", fill("a")+fill("a")+fill("a"))
	put(t, f, 0, fill("b")+fill("b")+fill("b"))
	var want []string
	for n := range 8 {
		s := ""
		for k := range 3 {
			s += fill(string("ab"[n>>k&1]))
		}
		want = append(want, show(s))
	}
	wantOutcomes(t, d, "f", want...)
}

func TestCutTearsPagesBetweenSectors(t *testing.T) {
	d := NewDisk(1)
	d.PageSize = 2048
	p := d.Process("a")
	f, err := p.Open("f", Create)
	must(t, err)
	put(t, f, 0, strings.Repeat("a", 2048))
	must(t, f.Datasync())
	must(t, p.SyncDir("."))
	put(t, f, 512, strings.Repeat("b", 1024))
	wantOutcomes(t, d, "f", "a2048", "a512 b512 a1024", "a512 b1024 a512")
	// By chance also the second sector without the first.
	seen := map[string]bool{}
	for seed := range uint64(500) {
		c := d.Clone()
		c.PowerCut(Cut{Keep: 50, Seed: seed})
		b, _ := c.CacheBytes("f")
		seen[show(string(b))] = true
	}
	if got := slices.Sorted(maps.Keys(seen)); len(got) != 4 {
		t.Errorf("random outcomes %q, want all four", got)
	}
	for _, s := range outcomes(d, "f", true) {
		if s != "a2048" && s != "a512 b1024 a512" {
			t.Errorf("a page torn in spite of Whole: %s", s)
		}
	}
}

func TestCutSizeWithoutData(t *testing.T) {
	d, _, f := made(t, "f", "")
	put(t, f, 0, fill("a"))
	put(t, f, 512, fill("b"))
	wantOutcomes(t, d, "f",
		"",              // no size, whatever data
		"0:512", "a512", // the first size
		"0:1024", "a512 0:512", "0:512 b512", "a512 b512") // the second
}

func TestCutTruncate(t *testing.T) {
	d, _, f := made(t, "f", fill("a")+fill("b"))
	must(t, f.Truncate(10))
	wantOutcomes(t, d, "f", "a512 b512", "a10",
		"a10 0:502 b512") // the page's new tail without the size
	must(t, f.Truncate(1024)) // and longer again: the old bytes must not come back
	put(t, f, 512, "c")
	for _, s := range outcomes(d, "f", false) {
		if strings.HasSuffix(s, "b512") && !strings.HasPrefix(s, "a512") && !strings.HasPrefix(s, "a10 0:502 ") {
			t.Errorf("bytes from before the cut are back: %q", s)
		}
	}
	must(t, f.Datasync())
	wantOutcomes(t, d, "f", "a10 0:502 c0:511")
}

func TestCutNames(t *testing.T) {
	d := NewDisk(1)
	p := d.Process("a")
	must(t, p.Mkdir("dir"))
	must(t, p.SyncDir("."))
	f, err := p.Open("dir/f", Create)
	must(t, err)
	put(t, f, 0, "x")
	must(t, f.Datasync())
	// A sync of the file does not make its name durable.
	wantOutcomes(t, d, "dir/f", "-", "x")
	must(t, p.SyncDir("."))
	wantOutcomes(t, d, "dir/f", "-", "x")
	must(t, p.SyncDir("dir"))
	wantOutcomes(t, d, "dir/f", "x")

	// A name is durable without its data.
	g, err := p.Open("dir/g", Create)
	must(t, err)
	put(t, g, 0, "y")
	must(t, p.SyncDir("dir"))
	wantOutcomes(t, d, "dir/g", "", "0:", "y")

	// A directory whose own name is lost takes everything along.
	must(t, p.Mkdir("new"))
	h, err := p.Open("new/h", Create)
	must(t, err)
	must(t, h.Datasync())
	must(t, p.SyncDir("new"))
	wantOutcomes(t, d, "new/h", "-", "")
	if got := d.DurableNames(); slices.Contains(got, "new/h") {
		t.Errorf("durable names %q", got)
	}

	// A removal that is not synced may be undone.
	must(t, p.Remove("dir/f"))
	wantOutcomes(t, d, "dir/f", "-", "x")
	must(t, p.SyncDir("dir"))
	wantOutcomes(t, d, "dir/f", "-")
}

func TestCutDirectoryKeepsPrefix(t *testing.T) {
	d := NewDisk(1)
	p := d.Process("a")
	for _, dir := range []string{"x", "y"} {
		must(t, p.Mkdir(dir))
	}
	must(t, p.SyncDir("."))
	for _, n := range []string{"x/1", "y/1", "x/2", "y/2"} {
		_, err := p.Open(n, Create)
		must(t, err)
	}
	seen := map[string]bool{}
	var c Chooser
	for more := true; more; more = c.Next() {
		k := d.Clone()
		k.PowerCut(Cut{Choose: c.Choose})
		seen[strings.Join(k.Names(), " ")] = true
	}
	if len(seen) != 9 {
		t.Errorf("%d outcomes, want 3 × 3: %q", len(seen), slices.Sorted(maps.Keys(seen)))
	}
	for s := range seen {
		if strings.Contains(s, "x/2") && !strings.Contains(s, "x/1") || strings.Contains(s, "y/2") && !strings.Contains(s, "y/1") {
			t.Errorf("a later change without an earlier one: %q", s)
		}
	}
	// Between directories a rename is one change.
	must(t, p.SyncDir("x"))
	must(t, p.SyncDir("y"))
	must(t, p.Rename("x/1", "y/3"))
	for more, c := true, new(Chooser); more; more = c.Next() {
		k := d.Clone()
		k.PowerCut(Cut{Choose: c.Choose})
		_, from := k.CacheBytes("x/1")
		_, to := k.CacheBytes("y/3")
		if from == to {
			t.Errorf("half a rename: %q", k.Names())
		}
	}
	// What came after it in either directory can't be there without it.
	f, err := p.Open("x/1", Create)
	must(t, err)
	put(t, f, 0, "new")
	must(t, f.Datasync())
	for more, c := true, new(Chooser); more; more = c.Next() {
		k := d.Clone()
		k.PowerCut(Cut{Choose: c.Choose})
		from, _ := k.CacheBytes("x/1")
		if _, to := k.CacheBytes("y/3"); !to && string(from) == "new" {
			t.Errorf("a file took the place of one whose rename is lost: %q", k.Names())
		}
	}
	must(t, p.SyncDir("x"))
	wantOutcomes(t, d, "y/3", "")
}

// replace writes a new file over f the usual way, leaving steps out.
func replace(t *testing.T, p *Proc, syncFile bool) {
	t.Helper()
	g, err := p.Open("tmp", Create)
	must(t, err)
	put(t, g, 0, "new")
	if syncFile {
		must(t, g.Datasync())
	}
	must(t, p.Rename("tmp", "f"))
}

func TestCutRenameWithoutSync(t *testing.T) {
	d, p, _ := made(t, "f", "old")
	replace(t, p, false)
	wantOutcomes(t, d, "f", "old", "new", "", "0:3")
	must(t, p.SyncDir("."))
	wantOutcomes(t, d, "f", "new", "", "0:3")

	d, p, _ = made(t, "f", "old")
	replace(t, p, true)
	wantOutcomes(t, d, "f", "old", "new")
	must(t, p.SyncDir("."))
	wantOutcomes(t, d, "f", "new")
}

func TestSyncErrorIsReportedOnce(t *testing.T) {
	d, p, f := made(t, "f", fill("a"))
	other, err := d.Process("b").Open("f", 0)
	must(t, err)
	put(t, f, 0, fill("b"))
	d.Inject(Match{Kind: OpSync}, Fault{Err: syscall.EIO})
	if err := f.Datasync(); !errors.Is(err, syscall.EIO) {
		t.Fatalf("first sync: %v; want EIO", err)
	}
	late, err := p.Open("f", 0)
	must(t, err)
	for name, g := range map[string]File{"same": f, "later": late} {
		if err := g.Datasync(); err != nil {
			t.Errorf("%s file's sync: %v; want the lie", name, err)
		}
	}
	if err := other.Datasync(); !errors.Is(err, syscall.EIO) {
		t.Errorf("the other open file's sync: %v; want EIO", err)
	}
	if err := other.Datasync(); err != nil {
		t.Errorf("its second sync: %v", err)
	}
	if got := show(get(t, f)); got != "b512" {
		t.Errorf("the page is not readable any more: %s", got)
	}
	wantOutcomes(t, d, "f", "a512")
	if n := d.Evict("f"); n != 1 {
		t.Errorf("%d pages evicted, want 1", n)
	}
	if got := show(get(t, f)); got != "a512" {
		t.Errorf("after eviction %s, want the medium's", got)
	}
}

func TestSyncErrorNobodySaw(t *testing.T) {
	d, p, f := made(t, "f", fill("a"))
	put(t, f, 0, "b")
	must(t, f.Close())
	if !d.FailWriteback("f", syscall.EIO) {
		t.Fatal("no such file")
	}
	c := d.Clone()
	if !c.Forget("f") {
		t.Fatal("could not be forgotten")
	}
	g, err := p.Open("f", 0)
	must(t, err)
	h, err := p.Open("f", 0)
	must(t, err)
	if err := g.Datasync(); !errors.Is(err, syscall.EIO) {
		t.Errorf("the next opener's sync: %v; want EIO", err)
	}
	if err := h.Datasync(); !errors.Is(err, syscall.EIO) {
		t.Errorf("sync of one opened before anybody saw it: %v; want EIO", err)
	}
	i, err := p.Open("f", 0)
	must(t, err)
	if err := i.Datasync(); err != nil {
		t.Errorf("sync of one opened after: %v", err)
	}
	// A power cut ends what the kernel remembers.
	put(t, i, 0, "c")
	d.FailWriteback("f", syscall.EIO)
	d.PowerCut(Cut{Keep: 100})
	g, err = d.Process("c").Open("f", 0)
	must(t, err)
	if err := g.Datasync(); err != nil {
		t.Errorf("sync after a reboot: %v", err)
	}
	// The kernel may forget an inode with its error.
	g, err = c.Process("b").Open("f", 0)
	must(t, err)
	if err := g.Datasync(); err != nil {
		t.Errorf("forgotten error: %v", err)
	}
	if got := show(get(t, g)); got != "a512" {
		t.Errorf("forgotten page: %s", got)
	}
}

func TestSyncErrorAndRewriting(t *testing.T) {
	// In place, writing the same bytes again makes the next sync true.
	d, _, f := made(t, "f", fill("a"))
	put(t, f, 0, "bb")
	d.Inject(Match{Kind: OpSync}, Fault{Err: syscall.EIO})
	_ = f.Datasync()
	put(t, f, 0, "b")
	must(t, f.Datasync())
	wantOutcomes(t, d, "f", "b2 a510")

	// Where the file grew it does not help …
	d, _, f = made(t, "f", "a")
	put(t, f, 1, "bb")
	d.Inject(Match{Kind: OpSync}, Fault{Err: syscall.EIO})
	_ = f.Datasync()
	wantOutcomes(t, d, "f", "a", "a0:2") // the size may survive alone
	put(t, f, 1, "bb")
	wantOutcomes(t, d, "f", "a", "a0:2")
	must(t, f.Datasync())
	wantOutcomes(t, d, "f", "a0:2")
	// … until it is cut back.
	must(t, f.Truncate(1))
	must(t, f.Datasync())
	put(t, f, 1, "bb")
	must(t, f.Datasync())
	wantOutcomes(t, d, "f", "ab2")
}

func TestSyncErrorPartly(t *testing.T) {
	seen := map[string]bool{}
	for seed := range uint64(50) {
		d, _, f := made(t, "f", fill("a")+fill("a"))
		d.Reseed(seed)
		put(t, f, 0, fill("b")+fill("b"))
		d.Inject(Match{Kind: OpSync}, Fault{Err: syscall.EIO, Keep: 50})
		if err := f.Datasync(); !errors.Is(err, syscall.EIO) {
			t.Fatal(err)
		}
		d.PowerCut(Cut{Keep: 100})
		b, _ := d.CacheBytes("f")
		seen[show(string(b))] = true
	}
	if len(seen) != 4 {
		t.Errorf("outcomes %q, want four", slices.Sorted(maps.Keys(seen)))
	}
}

func TestWritebackOfItsOwn(t *testing.T) {
	// A page can be on the medium in a version between two syncs, although a
	// later write is lost.
	seen := map[string]bool{}
	for seed := range uint64(200) {
		d, p, f := made(t, "f", fill("a"))
		d.Reseed(seed)
		d.Writeback = 30
		put(t, f, 0, fill("b"))
		put(t, f, 0, fill("c"))
		_, err := p.Free()
		must(t, err)
		d.PowerCut(Cut{})
		b, _ := d.CacheBytes("f")
		seen[show(string(b))] = true
	}
	if got, want := slices.Sorted(maps.Keys(seen)), []string{"a512", "b512", "c512"}; !slices.Equal(got, want) {
		t.Errorf("outcomes %q, want %q", got, want)
	}
}

func TestFaultAtK(t *testing.T) {
	for _, always := range []bool{false, true} {
		d, p, f := made(t, "f", "")
		d.Inject(Match{Proc: "a", Kind: OpWrite, Name: "f*", N: 3}, Fault{Err: syscall.EIO, Always: always})
		var got []bool
		for k := range 5 {
			_, err := f.WriteAt([]byte{byte(k)}, int64(k))
			if err != nil && !errors.Is(err, syscall.EIO) {
				t.Fatal(err)
			}
			got = append(got, err != nil)
			_, err = p.Stat("f") // does not count
			must(t, err)
		}
		if want := []bool{false, false, true, always, always}; !slices.Equal(got, want) {
			t.Errorf("always %v: failed %v, want %v", always, got, want)
		}
		d.ClearRules()
		put(t, f, 0, "x")
	}
}

func TestFaultsOfEachKind(t *testing.T) {
	for _, e := range []syscall.Errno{syscall.EIO, syscall.ENOSPC, syscall.EDQUOT, syscall.EINTR, syscall.EMFILE} {
		for k := range kindNames {
			kind := Kind(1) << k
			d, p, f := made(t, "f", "x")
			before := d.Clone()
			d.Inject(Match{Kind: kind}, Fault{Err: e})
			err := exercise(p, f, kind)
			if !errors.Is(err, e) {
				t.Errorf("%s: %v, want %v", kind, err, e)
			}
			if err != nil && kind != OpClose && !strings.Contains(err.Error(), kind.String()) {
				t.Errorf("%s: error does not say what failed: %v", kind, err)
			}
			if got, want := d.Names(), before.Names(); kind != OpSync && !slices.Equal(got, want) {
				t.Errorf("%s failed and left %q, want %q", kind, got, want)
			}
			if kind == OpClose {
				if _, err := f.Size(); !errors.Is(err, fs.ErrClosed) {
					t.Errorf("a close that failed has not closed: %v", err)
				}
			} else if err := exercise(p, f, kind); err != nil {
				t.Errorf("%s after the fault: %v", kind, err)
			}
		}
	}
	d, p, _ := made(t, "f", "x")
	d.Inject(Match{Kind: OpRename}, Fault{Err: syscall.EIO, Done: true})
	if err := p.Rename("f", "g"); !errors.Is(err, syscall.EIO) {
		t.Errorf("rename: %v", err)
	}
	if got := d.Names(); !slices.Equal(got, []string{"g"}) {
		t.Errorf("names %q, want the rename done", got)
	}
}

// exercise does one operation of a kind.
func exercise(p *Proc, f File, kind Kind) error {
	var err error
	switch kind {
	case OpOpen:
		_, err = p.Open("new", Create)
	case OpRead:
		_, err = f.ReadAt(make([]byte, 1), 0)
	case OpWrite:
		_, err = f.WriteAt([]byte("y"), 0)
	case OpTruncate:
		err = f.Truncate(1)
	case OpSize:
		_, err = f.Size()
	case OpSync:
		err = f.Datasync()
	case OpLock:
		err = f.Lock(LockExclusive)
	case OpTryLock:
		_, err = f.TryLock(LockShared)
	case OpUnlock:
		err = f.Unlock()
	case OpClose:
		err = f.Close()
	case OpMkdir:
		err = p.Mkdir("dir")
	case OpRename:
		err = p.Rename("f", "f2")
	case OpRemove:
		err = p.Remove("f")
	case OpReadDir:
		_, err = p.ReadDir(".")
	case OpStat:
		_, err = p.Stat("f")
	case OpInode:
		_, _, err = p.Inode("f")
	case OpSyncDir:
		err = p.SyncDir(".")
	case OpFree:
		_, err = p.Free()
	}
	return err
}

func TestShortWrite(t *testing.T) {
	d, _, f := made(t, "f", "")
	d.Inject(Match{Kind: OpWrite}, Fault{Err: syscall.EIO, Part: 3})
	if n, err := f.WriteAt([]byte("hello"), 0); n != 0 || !errors.Is(err, syscall.EIO) {
		t.Errorf("%d, %v; want 0, EIO", n, err)
	}
	if got := get(t, f); got != "hel" {
		t.Errorf("content %q, want the part", got)
	}
}

func TestCapacity(t *testing.T) {
	d, p, f := made(t, "f", "")
	d.Capacity = 3 * 512
	put(t, f, 0, fill("a"))
	if n, err := p.Free(); err != nil || n != 1024 {
		t.Errorf("free %d, %v; want 1024", n, err)
	}
	if _, err := f.WriteAt(bytes.Repeat([]byte("b"), 2000), 512); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("write: %v; want ENOSPC", err)
	}
	if got := show(get(t, f)); got != "a512 b1024" {
		t.Errorf("content %s, want what there was room for", got)
	}
	put(t, f, 0, fill("c")) // in place there is always room
	// Removed, but still open: the space is not free yet.
	must(t, p.Remove("f"))
	if n, _ := p.Free(); n != 0 {
		t.Errorf("free %d, want 0", n)
	}
	must(t, f.Close())
	if n, _ := p.Free(); n != 3*512 {
		t.Errorf("free %d, want all", n)
	}
}

func TestKillLeavesAnyPrefix(t *testing.T) {
	for part := range 6 {
		d, p, f := made(t, "f", "")
		d.KillAt(Match{Kind: OpWrite}, part)
		if _, err := f.WriteAt([]byte("hello"), 0); err != ErrCrashed {
			t.Fatalf("write: %v; want ErrCrashed", err)
		}
		if got, _ := d.CacheBytes("f"); string(got) != "hello"[:part] {
			t.Errorf("left %q, want %q", got, "hello"[:part])
		}
		if !p.Dead() {
			t.Error("not dead")
		}
		for k := range kindNames {
			if err := exercise(p, f, Kind(1)<<k); err != ErrCrashed {
				t.Errorf("%s of the dead: %v", Kind(1)<<k, err)
			}
		}
		if _, err := f.Inode(); err != ErrCrashed {
			t.Errorf("inode of the dead: %v", err)
		}
		if got, _ := d.CacheBytes("f"); string(got) != "hello"[:part] {
			t.Errorf("the dead changed it to %q", got)
		}
	}
}

func TestCutAtK(t *testing.T) {
	d, _, f := made(t, "f", "old")
	q := d.Process("b")
	d.CutAt(Match{N: 2}, Cut{})
	put(t, f, 0, "new")
	if err := f.Datasync(); err != ErrCrashed {
		t.Fatalf("sync: %v; want ErrCrashed", err)
	}
	if _, err := q.Stat("f"); err != ErrCrashed {
		t.Errorf("the other process lives: %v", err)
	}
	if got, _ := d.CacheBytes("f"); string(got) != "old" {
		t.Errorf("left %q", got)
	}
	g, err := d.Process("c").Open("f", 0)
	must(t, err)
	if got := get(t, g); got != "old" {
		t.Errorf("after the reboot %q", got)
	}
}

func TestLocksDieWithTheProcess(t *testing.T) {
	d, p, f := made(t, "lock", "")
	must(t, f.Lock(LockExclusive))
	g, err := d.Process("b").Open("lock", 0)
	must(t, err)
	if ok, err := g.TryLock(LockShared); err != nil || ok {
		t.Fatalf("try: %v, %v; want false", ok, err)
	}
	var de *DeadlockError
	if err := g.Lock(LockShared); !errors.As(err, &de) || !strings.Contains(err.Error(), "held by a") {
		t.Fatalf("a wait in vain: %v; want a DeadlockError that names the holder", err)
	}
	p.Kill()
	if ok, err := g.TryLock(LockShared); err != nil || !ok {
		t.Fatalf("try after the kill: %v, %v; want true", ok, err)
	}
	// A failed upgrade loses the shared lock.
	h, err := d.Process("c").Open("lock", 0)
	must(t, err)
	must(t, h.Lock(LockShared))
	if ok, _ := g.TryLock(LockExclusive); ok {
		t.Fatal("upgraded past a shared lock")
	}
	if ok, _ := h.TryLock(LockExclusive); !ok {
		t.Fatal("the failed upgrade kept its shared lock")
	}
	must(t, h.Close())
	if ok, _ := g.TryLock(LockExclusive); !ok {
		t.Fatal("the lock outlived its file")
	}
}

func TestCloneIsApart(t *testing.T) {
	d, _, f := made(t, "f", fill("a")+fill("a"))
	put(t, f, 0, "b")
	c := d.Clone()
	put(t, f, 1, "b")
	g, err := c.Process("x").Open("f", 0)
	must(t, err)
	put(t, g, 600, "c")
	must(t, g.Datasync())
	must(t, g.Truncate(700))
	if got := show(get(t, f)); got != "b2 a1022" {
		t.Errorf("original %s", got)
	}
	if got := show(get(t, g)); got != "ba599 ca99" {
		t.Errorf("clone %s", got)
	}
	wantOutcomes(t, d, "f", "a1024", "b2 a1022")
	if _, ok := c.CacheBytes("g"); ok {
		t.Error("clone has a file of the original")
	}
	if n := len(c.Trace()); n <= len(d.Trace())-1 {
		t.Errorf("the clone's trace has %d operations, the original's %d: it forgot what was before", n, len(d.Trace()))
	}
}

func TestInodesAndTimes(t *testing.T) {
	d, p, f := made(t, "f", "x")
	one, err := f.Inode()
	must(t, err)
	st1, err := p.Stat("f")
	must(t, err)
	put(t, f, 0, "y")
	st2, err := p.Stat("f")
	must(t, err)
	if !st2.ModTime.After(st1.ModTime) || st2.Inode != one {
		t.Errorf("stat %+v after %+v", st2, st1)
	}
	must(t, f.Close())
	must(t, p.Remove("f"))
	g, err := p.Open("f", Create)
	must(t, err)
	if two, _ := g.Inode(); two == one {
		t.Error("inode number reused")
	}
	d.ReuseInodes = true
	three, _ := g.Inode()
	must(t, g.Close())
	must(t, p.Remove("f"))
	g, err = p.Open("g", Create)
	must(t, err)
	if got, _ := g.Inode(); got != three {
		t.Errorf("inode %d, want %d again", got, three)
	}
	d.TickEvery = 1000
	put(t, g, 0, "1")
	st2, err = p.Stat("g")
	must(t, err)
	put(t, g, 0, "2")
	if st3, _ := p.Stat("g"); !st3.ModTime.Equal(st2.ModTime) {
		t.Error("two changes within a tick have different times")
	}
}

func TestPokeAndObserver(t *testing.T) {
	d, p, _ := made(t, "f", fill("a"))
	ops, trace := d.Ops(), len(d.Trace())
	if !d.Poke("f", 5, []byte("!")) || d.Poke("f", 512, []byte("!")) {
		t.Error("poke")
	}
	o := d.Observer("o")
	d.Inject(Match{}, Fault{Err: syscall.EIO})
	g, err := o.Open("f", ReadOnly)
	must(t, err)
	if got := show(get(t, g)); got != "a5 !a506" {
		t.Errorf("observer sees %s", got)
	}
	if d.Ops() != ops || len(d.Trace()) != trace {
		t.Error("an observer's operations are counted")
	}
	if _, err := p.Stat("f"); !errors.Is(err, syscall.EIO) {
		t.Errorf("the observer used the fault up: %v", err)
	}
	wantOutcomes(t, d, "f", "a5 !a506")
	if got := p.OpenFiles(); !slices.Equal(got, []string{"f"}) {
		t.Errorf("open files %q", got)
	}
}

func TestOnOpAndVersion(t *testing.T) {
	d, p, f := made(t, "f", "x")
	var ops []string
	d.OnOp(func(o Op) { ops = append(ops, o.String()) })
	v := d.Version()
	get(t, f)
	_, _, err := p.Inode("none")
	if !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if d.Version() != v {
		t.Error("reading changed the version")
	}
	put(t, f, 0, "y")
	if d.Version() == v {
		t.Error("writing did not change the version")
	}
	if !d.Unsynced("f") {
		t.Error("a dirty file is not unsynced")
	}
	must(t, f.Datasync())
	if d.Unsynced("f") {
		t.Error("a synced file is unsynced")
	}
	if got := d.Count(OpWrite | OpSync); got != 4 {
		t.Errorf("%d writes and syncs, want 4", got)
	}
	want := []string{"#5 a.5 size f", "#6 a.6 read f [0+1]", "#7 a.7 inode none = no such file or directory", "#8 a.8 write f [0+1]", "#9 a.9 sync f"}
	if !slices.Equal(ops, want) {
		t.Errorf("operations\n%q, want\n%q", ops, want)
	}
	if got := d.Trace(); !slices.Equal(got[len(got)-5:], want) {
		t.Errorf("trace %q", got)
	}
	// A hook that kills: the operation is done, its caller never learns it.
	d.OnOp(func(o Op) {
		if o.Kind == OpWrite {
			p.Kill()
		}
	})
	if _, err := f.WriteAt([]byte("z"), 0); err != ErrCrashed {
		t.Errorf("write: %v; want ErrCrashed", err)
	}
	if got, _ := d.CacheBytes("f"); string(got) != "z" {
		t.Errorf("content %q; want the write done", got)
	}
}

func TestTraceIsBounded(t *testing.T) {
	d, p, _ := made(t, "f", "")
	for range 3 * traceMax {
		_, err := p.Free()
		must(t, err)
	}
	l := d.Trace()
	if len(l) < traceMax || len(l) > 2*traceMax {
		t.Errorf("%d operations remembered, want %d to %d", len(l), traceMax, 2*traceMax)
	}
	if got, want := l[len(l)-1], d.trace.ops[len(d.trace.ops)-1].String(); got != want {
		t.Errorf("the last is %q, want %q", got, want)
	}
}
