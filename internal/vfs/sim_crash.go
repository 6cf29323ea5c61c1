package vfs

import (
	"bytes"
	"cmp"
	"maps"
	"math/rand/v2"
	"slices"
)

// Cut says what a power cut leaves of everything that was not synced: each
// page, each change of a file's size, each change of a directory. Sizes and
// directories keep a prefix of their changes, pages any subset.
type Cut struct {
	// Keep is the chance in percent that each survives, decided from Seed: 0
	// leaves what was synced, 100 everything. In between, one page in four is
	// torn: some of its sectors are new and some old.
	Keep int
	Seed uint64
	// Whole prevents torn pages.
	Whole bool
	// Choose, if set, decides instead: it returns one of n alternatives, 0 ≤
	// answer < n. With [Chooser.Choose] every outcome can be enumerated. Torn
	// pages are then those with a prefix of the changed sectors.
	Choose func(n int) int
}

// PowerCut ends all processes and leaves on the disk what the Cut says. New
// processes find it as after a reboot.
func (d *Disk) PowerCut(c Cut) {
	for _, p := range slices.Clone(d.procs) {
		p.Kill()
	}
	w := &wreck{d: d, cut: c, rng: rand.New(rand.NewPCG(c.Seed, 3))}
	d.cutNames(w.prefix)
	d.names = maps.Clone(d.durable)
	d.freeIno = nil
	files := slices.SortedFunc(maps.Values(d.names), func(a, b *inode) int { return cmp.Compare(a.num, b.num) })
	for _, i := range files {
		i.links = 0
	}
	seen := map[uint64]bool{}
	for _, i := range files {
		if i.links++; i.links > 1 {
			continue // a second name
		}
		if seen[i.num] {
			// A reused number, while the removal of its first file was lost.
			d.nextIno++
			i.num = d.nextIno
		}
		seen[i.num] = true
		w.file(i)
	}
	d.version++
}

// wreck is a power cut in progress.
type wreck struct {
	d   *Disk
	cut Cut
	rng *rand.Rand
}

// prefix decides how many of n changes in order survive.
func (w *wreck) prefix(n int) int {
	if n == 0 {
		return 0
	}
	if w.cut.Choose != nil {
		return w.cut.Choose(n + 1)
	}
	k := 0
	for k < n && chance(w.rng, w.cut.Keep) {
		k++
	}
	return k
}

func (w *wreck) file(i *inode) {
	d := w.d
	d.applyMeta(i, w.prefix(len(i.meta)))
	for k := range i.slots {
		s := &i.slots[k]
		if s.dirty && !s.bad {
			s.disk = w.page(s.disk, d.clip(s.cache, k, i.diskSize))
		}
		s.disk = d.share(d.clip(s.disk, k, i.diskSize))
		s.cache, s.dirty, s.bad = s.disk, false, false
	}
	ps := int64(d.pageSize())
	i.slots = i.slots[:min(len(i.slots), int((i.diskSize+ps-1)/ps))]
	d.grow(i, i.diskSize)
	i.size, i.mtime, i.dirty, i.meta = i.diskSize, i.diskMtime, 0, nil
	i.errSeq, i.errSeen, i.err = 0, false, nil
}

// page decides what is left of one dirty page.
func (w *wreck) page(old, new *page) *page {
	if w.cut.Choose == nil && (w.cut.Keep <= 0 || w.cut.Keep >= 100 || w.cut.Whole || !chance(w.rng, 25)) {
		if chance(w.rng, w.cut.Keep) {
			return new
		}
		return old
	}
	changed := w.changed(old, new)
	if len(changed) == 0 {
		return old
	}
	var survives func(k int) bool
	switch {
	case w.cut.Choose == nil:
		survives = func(int) bool { return chance(w.rng, w.cut.Keep) }
	case w.cut.Whole:
		all := w.cut.Choose(2) == 1
		survives = func(int) bool { return all }
	default:
		n := w.cut.Choose(len(changed) + 1)
		survives = func(k int) bool { return k < n }
	}
	torn := &page{b: make([]byte, w.d.pageSize())}
	if old != nil {
		copy(torn.b, old.b)
	}
	for k, off := range changed {
		if survives(k) {
			sector := torn.b[off:min(len(torn.b), off+w.d.sectorSize())]
			if new == nil {
				clear(sector)
			} else {
				copy(sector, new.b[off:])
			}
		}
	}
	return torn
}

// changed lists the offsets of the sectors in which two pages differ.
func (w *wreck) changed(old, new *page) []int {
	zero := make([]byte, w.d.sectorSize())
	part := func(p *page, from, to int) []byte {
		if p == nil {
			return zero[:to-from]
		}
		return p.b[from:to]
	}
	var offs []int
	for off := 0; off < w.d.pageSize(); off += w.d.sectorSize() {
		end := min(off+w.d.sectorSize(), w.d.pageSize())
		if !bytes.Equal(part(old, off, end), part(new, off, end)) {
			offs = append(offs, off)
		}
	}
	return offs
}
