package vfs

import "slices"

// inode is a file's or directory's content, in the cache and on the medium.
//
// The medium lags behind the cache in two ways: dirty pages, which reach it in
// any order, and changes of the size (meta), which reach it in order. Applying
// a shorter size also truncates the medium's pages, so a file that was
// shortened and has grown again can't show its old bytes.
type inode struct {
	num   uint64
	dir   bool
	links int // names it has
	open  int // descriptors

	size, diskSize   int64
	mtime, diskMtime int64
	slots            []slot
	dirty            int // number of dirty slots
	meta             []meta
	badFrom          int64 // where the file had started to grow when slots went bad

	// The errors of writeback, as Linux counts them: see fail.
	errSeq  int
	errSeen bool
	err     error

	locks []*simFile // open files that hold one
}

// slot is one page in its two versions; nil is zeros. Bytes past the end of the
// file are zero in both.
type slot struct {
	cache, disk *page
	dirty       bool
	bad         bool // see fail
}

// page is content that may be shared by cache, medium and clones. Only the disk
// whose generation is its owner may change it in place.
type page struct {
	own uint64
	b   []byte
}

type meta struct {
	size, mtime int64
}

// clone copies the inode without its processes.
func (i *inode) clone() *inode {
	c := *i
	c.slots = slices.Clone(i.slots)
	c.meta = slices.Clone(i.meta)
	c.open, c.locks = 0, nil
	return &c
}

// mutable returns a page with the same content that only this cache has.
func (d *Disk) mutable(p *page) *page {
	gen := d.gen.Load()
	if p == nil {
		return &page{own: gen, b: make([]byte, d.pageSize())}
	}
	if p.own == gen {
		return p
	}
	return &page{own: gen, b: slices.Clone(p.b)}
}

// share gives up the right to change a page in place.
func (d *Disk) share(p *page) *page {
	// Only the owner writes the field: a clone in another goroutine may be
	// reading it.
	if p != nil && p.own == d.gen.Load() {
		p.own = 0
	}
	return p
}

// clip is the page with index k as it looks in a file of this size.
func (d *Disk) clip(p *page, k int, size int64) *page {
	ps := int64(d.pageSize())
	keep := size - int64(k)*ps
	if p == nil || keep >= ps {
		return p
	}
	if keep <= 0 {
		return nil
	}
	for _, x := range p.b[keep:] {
		if x != 0 {
			c := &page{b: make([]byte, ps)}
			copy(c.b, p.b[:keep])
			return c
		}
	}
	return p
}

func (d *Disk) allocated(i *inode) int64 {
	var n int64
	for _, s := range i.slots {
		if s.cache != nil {
			n += int64(d.pageSize())
		}
	}
	return n
}

// grow makes room for slots up to a size.
func (d *Disk) grow(i *inode, size int64) {
	ps := int64(d.pageSize())
	if n := int((size + ps - 1) / ps); n > len(i.slots) {
		i.slots = append(i.slots, make([]slot, n-len(i.slots))...)
	}
}

func (d *Disk) readCache(i *inode, b []byte, off int64) int {
	if off >= i.size {
		return 0
	}
	b = b[:min(int64(len(b)), i.size-off)]
	ps := int64(d.pageSize())
	for n := 0; n < len(b); {
		at := off + int64(n)
		part := b[n:min(len(b), n+int(ps-at%ps))]
		if p := i.slots[at/ps].cache; p != nil {
			copy(part, p.b[at%ps:])
		} else {
			clear(part)
		}
		n += len(part)
	}
	return len(b)
}

// writeCache writes as much of b as there is room for, and returns how much.
func (d *Disk) writeCache(i *inode, b []byte, off int64) int {
	if len(b) == 0 {
		return 0
	}
	ps := int64(d.pageSize())
	room := int64(-1)
	if d.Capacity > 0 {
		room = d.free() / ps
	}
	d.grow(i, off+int64(len(b)))
	n := 0
	for n < len(b) {
		at := off + int64(n)
		s := &i.slots[at/ps]
		if s.cache == nil && room == 0 {
			break
		} else if s.cache == nil {
			room--
		}
		s.cache = d.mutable(s.cache)
		n += copy(s.cache.b[at%ps:], b[n:])
		if !s.dirty {
			s.dirty = true
			i.dirty++
		}
	}
	if n > 0 {
		i.mtime = d.tick()
		d.resize(i, max(i.size, off+int64(n)))
	}
	return n
}

func (d *Disk) truncate(i *inode, size int64) {
	if size < i.size {
		for k := range i.slots {
			s := &i.slots[k]
			c := d.clip(s.cache, k, size)
			gone := int64(k)*int64(d.pageSize()) >= size
			if gone && s.dirty {
				s.dirty = false
				i.dirty--
			}
			if gone || size <= i.badFrom {
				s.bad = false // its block is freed
			}
			if !gone && c != s.cache && !s.dirty {
				s.dirty = true
				i.dirty++
			}
			s.cache = c
		}
	}
	d.grow(i, size)
	i.mtime = d.tick()
	d.resize(i, size)
}

// resize records a change of the size for the medium. A long series of growths
// is thinned out: the sizes in between are like those kept.
func (d *Disk) resize(i *inode, size int64) {
	if size == i.size {
		return
	}
	m := meta{size: size, mtime: i.mtime}
	if n := len(i.meta); n >= 32 && size > i.meta[n-1].size && i.meta[n-1].size > i.meta[n-2].size {
		i.meta[n-1] = m
	} else {
		i.meta = append(i.meta, m)
	}
	i.size = size
}

// applyMeta writes the first n changes of the size to the medium.
func (d *Disk) applyMeta(i *inode, n int) {
	for _, m := range i.meta[:n] {
		if m.size < i.diskSize {
			for k := range i.slots {
				i.slots[k].disk = d.clip(i.slots[k].disk, k, m.size)
			}
		}
		i.diskSize, i.diskMtime = m.size, m.mtime
	}
	i.meta = i.meta[n:]
	if len(i.meta) == 0 {
		i.meta = nil
	}
}

// flushPage writes one dirty page to the medium, unless its slot is bad.
func (d *Disk) flushPage(i *inode, s *slot) {
	if !s.bad {
		s.disk = d.share(s.cache)
	}
	s.dirty = false
	i.dirty--
}

// flush is a sync that succeeds.
func (d *Disk) flush(i *inode) {
	if i.dirty == 0 && len(i.meta) == 0 {
		return
	}
	d.version++
	d.applyMeta(i, len(i.meta))
	for k := range i.slots {
		if i.slots[k].dirty {
			d.flushPage(i, &i.slots[k])
		}
	}
}

// fail is a writeback that fails after keep percent of the dirty pages, as
// measured on Linux: the others become clean without being on the medium; they
// stay readable until they are evicted. A page that is written again is dirty
// again, and a later sync may get it onto the medium; but where the file was
// growing not even that helps (ext4): a later sync reports success and the page
// is still not there, until the file is truncated below it. The size is
// journalled elsewhere and may survive alone.
//
// The error is reported once to each open file: to those open now, and, as long
// as nobody has seen it, to the next one opened.
func (d *Disk) fail(i *inode, err error, keep int) {
	d.version++
	grownFrom := i.diskSize
	if keep > 0 {
		d.applyMeta(i, len(i.meta))
	}
	ps := int64(d.pageSize())
	for k := range i.slots {
		s := &i.slots[k]
		switch {
		case !s.dirty:
		case chance(d.rng, keep):
			d.flushPage(i, s)
		default:
			s.dirty = false
			i.dirty--
			if !s.bad && int64(k+1)*ps > grownFrom && i.size > grownFrom {
				s.bad = true
				i.badFrom = grownFrom
			}
		}
	}
	if i.errSeq == 0 || i.errSeen {
		i.errSeq++
		i.errSeen = false
	}
	i.err = err
}

// errSince is the error count that a descriptor opened now starts from.
func (i *inode) errSince() int {
	if i.errSeen {
		return i.errSeq
	}
	return 0
}

// FailWriteback makes the kernel's own writeback of a file fail now: nobody
// called sync, and the error waits for the next sync.
func (d *Disk) FailWriteback(name string, err error) bool {
	i := d.names[name]
	if i == nil || i.dir {
		return false
	}
	d.fail(i, err, 0)
	return true
}

// Evict drops the clean pages of a file from the cache, as memory pressure
// does: where a sync failed, the medium's content reappears. It returns how
// many pages changed.
func (d *Disk) Evict(name string) int {
	i := d.names[name]
	if i == nil {
		return 0
	}
	// Sizes that are not on the medium yet also count: what they cut off must
	// not come back.
	size := i.size
	for _, m := range i.meta {
		size = min(size, m.size)
	}
	n := 0
	for k := range i.slots {
		s := &i.slots[k]
		if s.dirty || s.cache == s.disk {
			continue
		}
		if c := d.clip(s.disk, k, size); c != s.cache {
			s.cache = c
			n++
		}
	}
	if n > 0 {
		d.version++
	}
	return n
}

// Forget is Evict, and the kernel also drops the inode: an error that nobody
// has seen yet is lost with it. Nothing happens to a file that is open.
func (d *Disk) Forget(name string) bool {
	i := d.names[name]
	if i == nil || i.open > 0 || i.dirty > 0 {
		return false
	}
	d.Evict(name)
	i.errSeq, i.errSeen, i.err = 0, false, nil
	return true
}

// background is the kernel's own writeback.
func (d *Disk) background() {
	var dirty []*inode
	for _, n := range listed(d.names) {
		if i := d.names[n]; i.dirty > 0 {
			dirty = append(dirty, i)
		}
	}
	if len(dirty) > 0 {
		i := dirty[d.rng.IntN(len(dirty))]
		// The size first: a page past the medium's end would be removed again
		// by a pending shorter size.
		d.applyMeta(i, len(i.meta))
		for k := range i.slots {
			if s := &i.slots[k]; s.dirty && chance(d.rng, 50) {
				d.flushPage(i, s)
			}
		}
		d.version++
	}
	if len(d.pending) > 0 && chance(d.rng, 50) {
		d.commitNames(d.rng.IntN(len(d.pending) + 1))
	}
}
