package vfs

import (
	"errors"
	"maps"
	"slices"
	"syscall"
	"testing"
)

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
