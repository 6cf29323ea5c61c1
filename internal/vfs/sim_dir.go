package vfs

import (
	"path"
	"slices"
)

// dirOp is a change of names that is not on the medium yet. A rename is one
// change, even between directories.
type dirOp struct {
	kind     Kind // OpOpen, OpMkdir or OpLink: a name is made; OpRemove; OpRename
	name, to string
	ino      *inode
}

// touches reports whether the change affects a directory.
func (o *dirOp) touches(dir string) bool {
	return below(dir, o.name) || o.kind == OpRename && below(dir, o.to)
}

func (o *dirOp) dirs() []string {
	if o.kind == OpRename {
		return []string{path.Dir(o.name), path.Dir(o.to)}
	}
	return []string{path.Dir(o.name)}
}

// apply writes the change to the medium.
func (o *dirOp) apply(durable map[string]*inode) {
	switch o.kind {
	case OpRemove:
		delete(durable, o.name)
	case OpRename:
		delete(durable, o.name)
		durable[o.to] = o.ino
	default:
		durable[o.name] = o.ino
	}
}

// create makes a name.
func (d *Disk) create(name string, kind Kind) *inode {
	i := &inode{num: d.newInode(), dir: kind == OpMkdir, links: 1, mtime: d.tick()}
	i.diskMtime = i.mtime
	d.names[name] = i
	d.pending = append(d.pending, dirOp{kind: kind, name: name, ino: i})
	return i
}

func (d *Disk) newInode() uint64 {
	if n := len(d.freeIno); n > 0 && d.ReuseInodes {
		num := d.freeIno[n-1]
		d.freeIno = d.freeIno[:n-1]
		return num
	}
	d.nextIno++
	return d.nextIno
}

func (d *Disk) rename(from, to string) {
	i := d.names[from]
	if old := d.names[to]; old == i {
		return
	} else if old != nil {
		d.unlinked(old)
	}
	delete(d.names, from)
	d.names[to] = i
	d.tick()
	d.pending = append(d.pending, dirOp{kind: OpRename, name: from, to: to, ino: i})
}

func (d *Disk) remove(name string) {
	d.unlinked(d.names[name])
	delete(d.names, name)
	d.tick()
	d.pending = append(d.pending, dirOp{kind: OpRemove, name: name})
}

// link gives a file a second name.
func (d *Disk) link(i *inode, to string) {
	i.links++
	d.names[to] = i
	d.tick()
	d.pending = append(d.pending, dirOp{kind: OpLink, name: to, ino: i})
}

func (d *Disk) unlinked(i *inode) {
	i.links--
	d.released(i)
}

// released frees the number of a file that has neither a name nor a user. The
// file itself may still be on the medium, if its removal is not.
func (d *Disk) released(i *inode) {
	if i.links == 0 && i.open == 0 && d.ReuseInodes {
		d.freeIno = append(d.freeIno, i.num)
	}
}

// syncDir makes the changes of one directory durable, and what they depend on:
// the earlier changes of a directory that something was renamed from or to. The
// directory's own entry in its parent is not among them.
func (d *Disk) syncDir(dir string) {
	if len(d.pending) == 0 {
		return
	}
	need := []string{dir}
	take := make([]bool, len(d.pending))
	for k, o := range slices.Backward(d.pending) {
		if slices.ContainsFunc(need, o.touches) {
			take[k] = true
			need = append(need, o.dirs()...)
		}
	}
	d.settle(func(k int, _ *dirOp) bool { return take[k] }, false)
}

// commitNames makes the first n changes durable, like the commit of a journal.
func (d *Disk) commitNames(n int) {
	d.settle(func(k int, _ *dirOp) bool { return k < n }, false)
}

// settle applies the pending changes that survive, in order, and keeps or drops
// the others.
func (d *Disk) settle(survives func(int, *dirOp) bool, drop bool) {
	rest := d.pending[:0:0]
	for k := range d.pending {
		o := &d.pending[k]
		if survives(k, o) {
			o.apply(d.durable)
		} else if !drop {
			rest = append(rest, *o)
		}
	}
	if len(rest) < len(d.pending) {
		d.version++
	}
	d.pending = rest
}

// cutNames leaves some prefix of each directory's changes. If a change is lost,
// so are all later ones of its directories.
func (d *Disk) cutNames(prefix func(n int) int) {
	counts := map[string]int{}
	var order []string
	for k := range d.pending {
		for _, dir := range slices.Compact(d.pending[k].dirs()) {
			if counts[dir] == 0 {
				order = append(order, dir)
			}
			counts[dir]++
		}
	}
	left := map[string]int{}
	for _, dir := range order {
		left[dir] = prefix(counts[dir])
	}
	d.settle(func(_ int, o *dirOp) bool {
		ok := true
		for _, dir := range slices.Compact(o.dirs()) {
			ok = ok && left[dir] > 0
			left[dir]--
		}
		if !ok {
			for _, dir := range o.dirs() {
				left[dir] = 0
			}
		}
		return ok
	}, true)
	for name := range d.durable {
		if name != "." && !reachable(d.durable, name) {
			delete(d.durable, name)
		}
	}
}
