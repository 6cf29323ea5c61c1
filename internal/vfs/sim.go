package vfs

import (
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// Disk is a simulated disk with the page cache above it, shared by any number
// of simulated processes ([Disk.Process]). It exists to break the engine, so
// where file systems differ it behaves like the worst:
//
//   - A write is in the cache, visible to everybody, and on the medium only
//     after a successful Datasync of that file. Of the rest, a power cut leaves
//     any subset of pages, some torn between sectors, with any of the sizes the
//     file has had since: even a size without its data, which reads as NULs
//     ([Cut]).
//   - Names are durable only after SyncDir of their directory, whatever was
//     synced in the file. Until then a power cut leaves some prefix of each
//     directory's changes, independently of other directories and of the files'
//     data: a rename may survive and name an empty file.
//   - A failed sync leaves pages that are readable, clean and not on the
//     medium; the error is reported once to each open file; see inode.fail.
//   - A lock belongs to an open file and ends with it. A failed upgrade loses
//     the lock.
//
// Operations are counted, and the n-th of a kind can fail, kill its process, stop
// it or cut the power (see [Match]). The seed determines everything; there is no
// wall clock. A Disk is used by one goroutine at a time, which [Disk.Run] takes
// care of for its processes.
type Disk struct {
	// Settings, to be changed before the first use. Zero is the default.

	// PageSize is the unit of the cache (4096), SectorSize what the medium
	// writes in one piece (512).
	PageSize, SectorSize int
	// Capacity in bytes, 0 for no limit.
	Capacity int64
	// ReuseInodes gives the number of a removed file to the next new one, as
	// real file systems do.
	ReuseInodes bool
	// TickEvery is how many changes share one time stamp (1).
	TickEvery int
	// Writeback is the chance in percent, at each operation, that the kernel
	// writes some dirty pages of some file on its own: so that versions of a page
	// between two syncs reach the medium too.
	Writeback int
	// Switch is the chance in percent that another process runs next, at
	// each operation under Run without a Chooser (50).
	Switch int
	// Split is the chance in percent that under Run a read or write happens
	// in two steps, others running in between (25; with a Chooser 0). Set
	// it below zero for never.
	Split int
	// MaxOps is after how many operations a Run is aborted (1,000,000).
	MaxOps int

	gen atomic.Uint64 // pages with this owner may be changed in place, see page

	// The names as everybody sees them, as they are on the medium, and the
	// changes between the two.
	names, durable map[string]*inode
	pending        []dirOp

	pcg     [2]*rand.PCG // the states of rng and sched, to be copied by Clone
	rng     *rand.Rand   // splits, writeback, faults
	sched   *rand.Rand   // who runs next
	nextIno uint64
	freeIno []uint64
	clock   int64
	version uint64

	procs []*Proc // the living
	rules []*rule
	hooks []func(Op)
	trace trace
	ops   int
	kinds [19]int // ops by kind

	run scheduler
}

// NewDisk makes an empty disk.
func NewDisk(seed uint64) *Disk {
	d := &Disk{nextIno: 100}
	d.gen.Store(generations.Add(1))
	root := &inode{num: 2, dir: true}
	d.names = map[string]*inode{".": root}
	d.durable = map[string]*inode{".": root}
	d.Reseed(seed)
	return d
}

// generations numbers the disks and their clones; no outcome depends on it.
var generations atomic.Uint64

// Reseed restarts the random choices, for example on a clone.
func (d *Disk) Reseed(seed uint64) {
	d.setRandom(*rand.NewPCG(seed, 1), *rand.NewPCG(seed, 2))
}

func (d *Disk) setRandom(a, b rand.PCG) {
	d.pcg = [2]*rand.PCG{&a, &b}
	d.rng, d.sched = rand.New(d.pcg[0]), rand.New(d.pcg[1])
}

// Clone copies the disk as it is: cache, medium, names, errors not yet
// reported. Processes with their descriptors and locks, rules and hooks are not
// copied, so the clone is what is left when all processes are killed; a
// PowerCut on it gives what a power cut would leave. It is cheap: pages are
// shared until one side writes. Several goroutines may clone one disk that
// nobody changes.
func (d *Disk) Clone() *Disk {
	c := &Disk{
		PageSize: d.PageSize, SectorSize: d.SectorSize, Capacity: d.Capacity, ReuseInodes: d.ReuseInodes,
		TickEvery: d.TickEvery, Writeback: d.Writeback, Switch: d.Switch, Split: d.Split, MaxOps: d.MaxOps,
		names:   make(map[string]*inode, len(d.names)),
		durable: make(map[string]*inode, len(d.durable)),
		nextIno: d.nextIno, freeIno: slices.Clone(d.freeIno), clock: d.clock, version: d.version,
		trace: d.trace.clone(), ops: d.ops, kinds: d.kinds,
	}
	// From now on both sides copy a page before they change it.
	d.gen.Store(generations.Add(1))
	c.gen.Store(generations.Add(1))
	c.setRandom(*d.pcg[0], *d.pcg[1])

	twins := make(map[*inode]*inode, len(d.names)+4)
	twin := func(i *inode) *inode {
		if i == nil {
			return nil
		}
		t := twins[i]
		if t == nil {
			t = i.clone()
			twins[i] = t
		}
		return t
	}
	for n, i := range d.names {
		c.names[n] = twin(i)
	}
	for n, i := range d.durable {
		c.durable[n] = twin(i)
	}
	c.pending = slices.Clone(d.pending)
	for k := range c.pending {
		c.pending[k].ino = twin(c.pending[k].ino)
	}
	return c
}

// Process starts a process. Names may be reused, as after a restart.
func (d *Disk) Process(name string) *Proc {
	p := &Proc{d: d, name: name}
	d.procs = append(d.procs, p)
	return p
}

// Observer returns a process whose calls are not counted, recorded or scheduled
// and meet no fault: for hooks that read the files with the engine's own
// reader, and for changes from outside. A power cut ends it too.
func (d *Disk) Observer(name string) *Proc {
	p := d.Process(name)
	p.observer = true
	return p
}

// OnOp makes the disk call fn after each operation, before its caller learns
// the outcome; fn may clone, read, kill or cut the power.
func (d *Disk) OnOp(fn func(Op)) { d.hooks = append(d.hooks, fn) }

// Ops is the number of operations so far.
func (d *Disk) Ops() int { return d.ops }

// Count is the number of operations of some kinds: syncs, for example, are a
// steadier measure of cost than time.
func (d *Disk) Count(kinds Kind) int {
	n := 0
	for k, c := range d.kinds {
		if kinds&(1<<k) != 0 {
			n += c
		}
	}
	return n
}

// Now is the time stamp of the newest change: the clock of the files' times, which only
// changes move on.
func (d *Disk) Now() time.Time { return stamped(d.clock / int64(or(d.TickEvery, 1))) }

// stamped is a time stamp as Stat returns it.
func stamped(tick int64) time.Time { return time.Unix(1_000_000_000, tick*int64(time.Millisecond)) }

// Version changes with everything that could make a difference after a crash:
// explore the outcomes only if it differs from the last time.
func (d *Disk) Version() uint64 { return d.version }

// CacheBytes is the content that processes see under a name now.
func (d *Disk) CacheBytes(name string) ([]byte, bool) {
	i, ok := d.names[name]
	if !ok || i.dir {
		return nil, false
	}
	b := make([]byte, i.size)
	d.readCache(i, b, 0)
	return b, true
}

// DurableBytes is what a power cut that keeps nothing unsynced leaves under a
// name.
func (d *Disk) DurableBytes(name string) ([]byte, bool) {
	i, ok := d.durable[name]
	if !ok || i.dir || !reachable(d.durable, name) {
		return nil, false
	}
	b := make([]byte, i.diskSize)
	for k, s := range i.slots {
		if off := k * d.pageSize(); s.disk != nil && off < len(b) {
			copy(b[off:], s.disk.b)
		}
	}
	return b, true
}

// Names lists the files and directories as processes see them.
func (d *Disk) Names() []string { return listed(d.names) }

// DurableNames lists what a power cut that keeps nothing unsynced leaves.
func (d *Disk) DurableNames() []string { return listed(d.durable) }

func listed(m map[string]*inode) []string {
	l := slices.Sorted(maps.Keys(m))
	return slices.DeleteFunc(l, func(n string) bool { return n == "." || !reachable(m, n) })
}

// reachable reports whether all directories above a name exist.
func reachable(m map[string]*inode, name string) bool {
	for name != "." {
		name = path.Dir(name)
		if i := m[name]; i == nil || !i.dir {
			return false
		}
	}
	return true
}

// Poke silently changes bytes of a file, in the cache and on the medium: a
// flipped bit. It reports whether the file has such bytes.
func (d *Disk) Poke(name string, off int64, b []byte) bool {
	i := d.names[name]
	if i == nil || i.dir || off < 0 || off+int64(len(b)) > i.size {
		return false
	}
	ps := int64(d.pageSize())
	for k, x := range b {
		at := off + int64(k)
		s := &i.slots[at/ps]
		c := d.mutable(s.cache)
		c.b[at%ps] = x
		s.cache = c
		if at < i.diskSize {
			m := d.mutable(s.disk)
			m.b[at%ps] = x
			m.own = 0
			s.disk = m
		}
	}
	d.version++
	return true
}

// Unsynced reports whether a power cut could change what is under a name.
func (d *Disk) Unsynced(name string) bool {
	i := d.names[name]
	return i != d.durable[name] || i != nil && (i.dirty > 0 || len(i.meta) > 0)
}

func (d *Disk) pageSize() int   { return or(d.PageSize, 4096) }
func (d *Disk) sectorSize() int { return min(or(d.SectorSize, 512), d.pageSize()) }

func or(n, def int) int {
	if n == 0 {
		return def
	}
	return n
}

// tick is the time stamp of a change.
func (d *Disk) tick() int64 {
	d.clock++
	d.version++
	return d.clock / int64(or(d.TickEvery, 1))
}

// used is how many bytes of the capacity are taken.
func (d *Disk) used() int64 {
	var n int64
	seen := map[*inode]bool{}
	for _, i := range d.names {
		if !seen[i] { // it may have two names
			seen[i] = true
			n += d.allocated(i)
		}
	}
	for _, p := range d.procs {
		for _, f := range p.files { // removed, but still open
			if !seen[f.ino] {
				seen[f.ino] = true
				n += d.allocated(f.ino)
			}
		}
	}
	return n
}

func (d *Disk) free() int64 {
	if d.Capacity == 0 {
		return 1 << 40
	}
	return max(0, d.Capacity-d.used())
}

// chance is true with a probability in percent; it draws a number only if it
// matters, so that a setting of 0 does not change a run.
func chance(r *rand.Rand, percent int) bool {
	return percent >= 100 || percent > 0 && r.IntN(100) < percent
}

// below reports whether a name is directly in a directory.
func below(dir, name string) bool { return name != "." && path.Dir(name) == dir }

// matches compares a name with a pattern as in path.Match; an empty pattern
// matches any name.
func matches(pattern, name string) bool {
	if pattern == "" || pattern == name {
		return true
	}
	if !strings.ContainsAny(pattern, "*?[") {
		return false
	}
	ok, err := path.Match(pattern, name)
	return err == nil && ok
}
