package model

// flush writes the dirty pages of a ring to the disk.
func (f *ring) flush() {
	for i := range f.cell {
		if f.dirty&bit(uint8(i)) != 0 {
			f.cellDisk[i] = f.cell[i]
		}
	}
	for i := range f.slot {
		if f.dirty&slotBit(i) != 0 {
			f.slotDisk[i] = f.slot[i]
		}
	}
	f.dirty = 0
}

// syncRing adds the outcomes of fdatasync(ring) by process pi. The kernel
// reports a failed writeback once to every descriptor that was open when it
// happened, and to none that is opened later; the pages are clean from then on,
// still readable, and not on the disk.
func (x *explorer) syncRing(s *State, pi int, then func(n *State, p *proc, ok bool)) {
	p := &s.proc[pi]
	if s.fdBusy != 0 && x.on(OneSyncPerFD) {
		return
	}
	if p.failed == 1 {
		x.step(s, pi, "knows that the descriptor has failed", func(n *State, p *proc) { then(n, p, false) })
		return
	}
	if p.fdErr != s.journal(p).errs {
		x.step(s, pi, "fdatasync(ring) reports an earlier EIO", func(n *State, p *proc) {
			n.journal(p).flush()
			x.told(n, pi)
			then(n, p, false)
		})
		return
	}
	x.step(s, pi, "fdatasync(ring) ok", func(n *State, p *proc) {
		n.journal(p).flush()
		then(n, p, true)
	})
	if s.ringErrs > 0 && s.journal(p).dirty != 0 {
		for kept := range x.keptByEIO(s.journal(p)) {
			x.step(s, pi, "fdatasync(ring) EIO", func(n *State, p *proc) {
				n.ringErrs--
				f := n.journal(p)
				f.dirty = kept
				f.flush()
				f.errs++
				x.told(n, pi)
				then(n, p, false)
			})
		}
	}
}

// keptByEIO lists which dirty pages reach the disk although the sync fails:
// none; or, if the configuration asks, any proper subset.
func (x *explorer) keptByEIO(f *ring) func(yield func(uint8) bool) {
	return func(yield func(uint8) bool) {
		if !yield(0) || !x.cfg.PartialEIO {
			return
		}
		for m := (f.dirty - 1) & f.dirty; m != 0; m = (m - 1) & f.dirty {
			if !yield(m) {
				return
			}
		}
	}
}

// told records that the descriptor has reported all errors so far, which makes
// it useless. Threads of one process share it.
func (x *explorer) told(n *State, pi int) {
	p := &n.proc[pi]
	p.fdErr = n.journal(p).errs
	if x.cfg.Threads {
		if o := &n.proc[1-pi]; o.fd == p.fd {
			o.fdErr = p.fdErr
			if x.on(SyncErrorShared) {
				o.failed = 1
			}
		}
	}
}

// flush writes the dirty lines of a log to the disk, except those that an
// earlier failed sync lost.
func (f *logFile) flush() {
	f.lineDisk, f.sizeDisk = f.line, f.size
	for i := range f.line {
		if f.lost&bit(uint8(i)) != 0 {
			f.lineDisk[i] = 0
		}
	}
	f.dirty = 0
}

// syncLog adds the outcomes of open and fdatasync of a session's log. The
// descriptor is new, so an error already reported to another is not repeated.
func (x *explorer) syncLog(s *State, pi int, sess uint8, then func(n *State, p *proc, ok bool)) {
	x.step(s, pi, "fdatasync(log) ok", func(n *State, p *proc) {
		n.logOf(sess).flush()
		then(n, p, true)
	})
	if s.logErrs > 0 && s.logOf(sess).dirty != 0 {
		x.step(s, pi, "fdatasync(log) EIO", func(n *State, p *proc) {
			n.logErrs--
			f := n.logOf(sess)
			f.lost |= f.dirty
			f.flush()
			f.errs++
			then(n, p, false)
		})
	}
}

// syncSessions makes the names in sessions/ durable.
func (d *disk) syncSessions() {
	for i := range d.log {
		l := &d.log[i]
		if l.dirDisk != l.dir {
			if l.dirDisk != 0 {
				l.file[l.dirDisk-1] = logFile{}
			}
			l.dirDisk = l.dir
		}
	}
}

// place is the index for a new inode that will take a log's name: not the one
// that would be back after a cut.
func (l *sessionLog) place() uint8 {
	if l.dir != 0 && l.dirDisk != l.dir {
		return l.dir - 1
	}
	if l.dirDisk == 1 {
		return 1
	}
	return 0
}

// replaceLog gives the name to a new, synced file with these lines; only the
// directory is not synced yet. Before the rename nobody sees the copy, so a
// kill during it changes nothing.
func (d *disk) replaceLog(sess uint8, line [maxLines]uint8, size uint8) {
	l := &d.log[sess]
	i := l.place()
	l.file[i] = logFile{line: line, lineDisk: line, size: size, sizeDisk: size}
	l.dir = i + 1
	l.ino++
}

// copyLog replaces a log by a copy. Bytes within the log's size that the ring
// still holds come from the ring: pages of the old file may have been evicted
// and read as NUL by now. (The applied position does not help here: a reload
// sets it back.)
func (x *explorer) copyLog(d *disk, f *ring, sess uint8) {
	old := d.logOf(sess)
	line, size := old.line, old.size
	var ids [maxCells]uint8
	_, _, n := x.scan(d, &f.cell, f.slot[best(&f.slot)], &ids)
	if !x.on(CopyFromRing) {
		n = 0
	}
	for _, id := range ids[:n] {
		if e := &d.ent[id]; e.kind != kindPad && e.sess == sess && e.seq <= size {
			line[e.seq-1] = id
		}
	}
	d.replaceLog(sess, line, size)
}

// holed says that a log has a NUL run inside.
func (f *logFile) holed() bool {
	for _, v := range f.line[:f.size] {
		if v == 0 {
			return true
		}
	}
	return false
}

// evict adds the evictions of pages that failed syncs have lost.
func (x *explorer) evict(s *State) {
	if s.evictions == 0 {
		return
	}
	f := &s.ring[s.dir]
	for i := range f.cell {
		if f.dirty&bit(uint8(i)) == 0 && f.cell[i] != f.cellDisk[i] {
			x.env(s, "a lost ring page is evicted", func(n *State) {
				n.evictions--
				n.ring[n.dir].cell[i] = f.cellDisk[i]
			})
		}
	}
	for i := range f.slot {
		if f.dirty&slotBit(i) == 0 && f.slot[i] != f.slotDisk[i] {
			x.env(s, "a lost slot is evicted", func(n *State) {
				n.evictions--
				n.ring[n.dir].slot[i] = f.slotDisk[i]
			})
		}
	}
	for sess := range s.log {
		g := s.logOf(uint8(sess))
		if g == nil || g.lost&^g.dirty == 0 || g.holed() {
			continue
		}
		x.env(s, "lost pages of a log are evicted", func(n *State) {
			n.evictions--
			g := n.logOf(uint8(sess))
			for i := range g.line[:g.size] {
				if b := bit(uint8(i)); g.lost&b != 0 && g.dirty&b == 0 {
					g.line[i] = 0
				}
			}
		})
	}
}
