package vfs

import (
	"bytes"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"testing"
)

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
	case OpLink:
		err = p.Link("f", "f2")
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
