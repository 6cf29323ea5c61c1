package vfs

import (
	"errors"
	"io"
	"io/fs"
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
	if !st2.ModTime.After(st1.ModTime) || !st2.ModTime.Equal(d.Now()) || st2.Inode != one {
		t.Errorf("stat %+v after %+v, at %v", st2, st1, d.Now())
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
