package vfs

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"path"
	"slices"
	"syscall"
	"testing"
)

// contents describes what is on a disk, as processes see it or durably.
func contents(names []string, read func(string) ([]byte, bool)) string {
	var b bytes.Buffer
	for _, n := range names {
		c, ok := read(n)
		fmt.Fprintf(&b, "%s %v %d %x\n", n, ok, len(c), crc32.ChecksumIEEE(c))
	}
	return b.String()
}

func seen(d *Disk) string    { return contents(d.Names(), d.CacheBytes) }
func durable(d *Disk) string { return contents(d.DurableNames(), d.DurableBytes) }

// sound checks what the simulator takes for granted about itself.
func sound(d *Disk) error {
	files := map[*inode]string{}
	for _, m := range []map[string]*inode{d.names, d.durable} {
		for n, i := range m {
			files[i] = n
		}
	}
	for i, n := range files {
		dirty := 0
		for k, s := range i.slots {
			if s.dirty {
				dirty++
			}
			if d.clip(s.cache, k, i.size) != s.cache {
				return fmt.Errorf("%s: bytes in the cache past the end", n)
			}
			if d.clip(s.disk, k, i.diskSize) != s.disk {
				return fmt.Errorf("%s: bytes on the medium past the end", n)
			}
			if s.disk != nil && s.disk.own == d.gen.Load() {
				return fmt.Errorf("%s: a page of the medium could be changed in place", n)
			}
		}
		if dirty != i.dirty {
			return fmt.Errorf("%s: %d dirty pages, counted %d", n, dirty, i.dirty)
		}
		if end := int64(len(i.slots) * d.pageSize()); i.size > end || i.diskSize > end {
			return fmt.Errorf("%s: sizes %d and %d with %d slots", n, i.size, i.diskSize, len(i.slots))
		}
		if len(i.meta) == 0 && i.size != i.diskSize || len(i.meta) > 0 && i.meta[len(i.meta)-1].size != i.size {
			return fmt.Errorf("%s: size %d, on the medium %d, changes %v", n, i.size, i.diskSize, i.meta)
		}
	}
	return nil
}

// step does one random thing that a process could do.
func step(d *Disk, p *Proc, r *rand.Rand, faults bool) (err error) {
	names := []string{"x", "y", "d/x", "d/y", "e/x"}
	name := names[r.IntN(len(names))]
	f, oerr := p.Open(name, Create)
	if oerr == nil {
		defer f.Close()
	}
	switch k := r.IntN(12); {
	case k == 0:
		return p.Mkdir([]string{"d", "e"}[r.IntN(2)])
	case k == 1:
		return p.Rename(name, names[r.IntN(len(names))])
	case k == 2:
		return p.Remove(name)
	case k == 3:
		return p.SyncDir(path.Dir(name))
	case k == 4 && faults:
		d.Inject(Match{Kind: OpSync | OpWrite | OpSyncDir}, Fault{Err: syscall.EIO, Part: -1, Keep: r.IntN(100)})
	case k == 5 && faults:
		d.Evict(name)
	case k == 6 && faults:
		d.FailWriteback(name, syscall.EIO)
	case f == nil:
	case k == 7:
		return f.Truncate(int64(r.IntN(3000)))
	case k == 8:
		return f.Datasync()
	default:
		_, err = f.WriteAt(bytes.Repeat([]byte{byte(1 + r.IntN(255))}, 1+r.IntN(1500)), int64(r.IntN(2000)))
	}
	return err
}

func TestSimProperties(t *testing.T) {
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 4))
		faults := seed%2 == 1
		d := NewDisk(seed)
		d.PageSize = 1024
		d.ReuseInodes = seed%3 == 0
		d.Writeback = int(seed % 5 * 5)
		p := d.Process("a")
		for n := range 150 {
			_ = step(d, p, r, faults)
			fail := func(format string, args ...any) {
				t.Helper()
				t.Fatalf("seed %d, step %d: %s\n%q", seed, n, fmt.Sprintf(format, args...), d.Trace()[max(0, len(d.Trace())-20):])
			}
			if err := sound(d); err != nil {
				fail("%v", err)
			}
			before := seen(d) + durable(d)
			// Nothing kept is what was durable.
			c := d.Clone()
			c.PowerCut(Cut{})
			if got, want := seen(c), durable(d); got != want {
				fail("a cut that keeps nothing left\n%s, durable was\n%s", got, want)
			}
			// Everything kept is what was seen, and eviction shows
			// nothing else, unless a sync failed.
			c = d.Clone()
			for _, name := range c.Names() {
				c.Evict(name)
			}
			if got, want := seen(c), seen(d); !faults && got != want {
				fail("eviction left\n%s, seen was\n%s", got, want)
			}
			c = d.Clone()
			c.PowerCut(Cut{Keep: 100})
			if got, want := seen(c), seen(d); !faults && got != want {
				fail("a cut that keeps all left\n%s, seen was\n%s", got, want)
			}
			// Whatever is kept is sound, and can be worked with without
			// the original's noticing.
			c = d.Clone()
			c.PowerCut(Cut{Keep: 50, Seed: seed + uint64(n)})
			if got, want := durable(c), seen(c); got != want {
				fail("after a cut the medium has\n%s, seen is\n%s", got, want)
			}
			q := c.Process("b")
			for range 5 {
				_ = step(c, q, r, faults)
			}
			if err := sound(c); err != nil {
				fail("after a cut: %v", err)
			}
			c = d.Clone()
			q = c.Process("b")
			for range 5 {
				_ = step(c, q, r, faults)
			}
			if got := seen(d) + durable(d); got != before {
				fail("work on a clone changed the original from\n%s to\n%s", before, got)
			}
			before = seen(c) + durable(c)
			_ = step(d, p, r, faults)
			if got := seen(c) + durable(c); got != before {
				fail("work on the original changed a clone from\n%s to\n%s", before, got)
			}
		}
		if faults {
			continue
		}
		// All synced: no cut can change anything.
		for _, n := range d.Names() {
			if f, err := p.Open(n, 0); err == nil {
				must(t, f.Datasync())
			} else {
				must(t, p.SyncDir(n))
			}
		}
		must(t, p.SyncDir("."))
		want := seen(d)
		for keep := range 5 {
			c := d.Clone()
			c.PowerCut(Cut{Keep: 25 * keep, Seed: seed})
			if got := seen(c); got != want {
				t.Fatalf("seed %d: all was synced, and a cut left\n%s, want\n%s", seed, got, want)
			}
		}
		if i := slices.IndexFunc(d.Names(), d.Unsynced); i >= 0 {
			t.Errorf("seed %d: %s is unsynced", seed, d.Names()[i])
		}
	}
}
