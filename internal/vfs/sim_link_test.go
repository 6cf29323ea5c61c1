package vfs

import (
	"testing"
)

// TestLinkedFile: a file with two names is one file, until the last is gone; after a power
// cut it has the names that were synced, and its content whatever name it is under.
func TestLinkedFile(t *testing.T) {
	d, p, f := made(t, "f", "content")
	d.Capacity = 1 << 20
	must(t, p.Mkdir("dir"))
	must(t, f.Datasync())
	must(t, p.SyncDir("."))
	before, _ := p.Free()
	must(t, p.Link("f", "dir/g"))
	if after, _ := p.Free(); after != before {
		t.Errorf("the second name takes %d bytes", before-after)
	}
	if err := p.Link("f", "dir/g"); err == nil {
		t.Error("a name was given twice")
	}
	a, _, _ := p.Inode("f")
	b, _, _ := p.Inode("dir/g")
	if a != b {
		t.Errorf("two names lead to the files %d and %d", a, b)
	}
	cut := d.Clone()
	cut.PowerCut(Cut{})
	if _, ok := cut.CacheBytes("dir/g"); ok {
		t.Error("a name that was not synced has survived")
	}
	must(t, p.SyncDir("dir"))
	must(t, p.Remove("f"))
	must(t, p.SyncDir("."))
	d.PowerCut(Cut{})
	if got, ok := d.CacheBytes("dir/g"); !ok || string(got) != "content" {
		t.Errorf("under its second name it is %q, %v", got, ok)
	}
	if _, ok := d.CacheBytes("f"); ok {
		t.Error("the first name is back")
	}
}

// TestCloneFrom: a clone is what the file was, whatever is written to either, and is as
// durable as what is written.
func TestCloneFrom(t *testing.T) {
	d, p, f := made(t, "f", fill("a")+fill("b")+"rest")
	must(t, f.Datasync())
	g, err := p.Open("g", Create)
	must(t, err)
	n, err := g.CloneFrom(f, 1<<20)
	if must(t, err); n != 1024 {
		t.Fatalf("%d bytes were cloned", n)
	}
	put(t, f, 0, "xx")
	put(t, g, 512, "yy")
	if got := get(t, g); got != fill("a")+"yy"+fill("b")[2:] {
		t.Errorf("the clone is %q", got)
	}
	if got := get(t, f); got != "xx"+fill("a")[2:]+fill("b")+"rest" {
		t.Errorf("the file is %q", got)
	}
	must(t, p.SyncDir("."))
	d.PowerCut(Cut{})
	if got, _ := d.CacheBytes("g"); len(got) != 0 {
		t.Errorf("a clone that was not synced has survived: %q", got)
	}
}
