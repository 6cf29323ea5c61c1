package vfs

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

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
