package model

// eachCut calls f with every disk that a power cut can leave: each name old or
// new, any subset of the dirty ring cells, each dirty slot old, new or torn,
// and each log with any of its dirty lines. It stops when f returns false.
func (x *explorer) eachCut(d *disk, f func(*disk) bool) bool {
	n := *d
	if !x.cutRing(d, n, d.dir, f) {
		return false
	}
	return d.dirDisk == d.dir || x.cutRing(d, n, d.dirDisk, f)
}

// cutRing tries the outcomes with the given journal file.
func (x *explorer) cutRing(d *disk, n disk, dir uint8, f func(*disk) bool) bool {
	n.ring = [maxRings]ring{}
	n.dir, n.dirDisk = 0, 0
	r := &d.ring[dir]
	cells := r.dirty & (1<<maxCells - 1)
	for kept := cells; ; kept = (kept - 1) & cells {
		g := &n.ring[0]
		*g = ring{cellDisk: r.cellDisk, slotDisk: r.slotDisk}
		for i := range g.cellDisk {
			if kept&bit(uint8(i)) != 0 {
				g.cellDisk[i] = r.cell[i]
			}
		}
		if !x.cutSlot(r, d, n, 0, f) {
			return false
		}
		if kept == 0 {
			return true
		}
	}
}

func (x *explorer) cutSlot(r *ring, d *disk, n disk, i int, f func(*disk) bool) bool {
	g := &n.ring[0]
	if i == len(g.slot) {
		g.cell, g.slot = g.cellDisk, g.slotDisk
		return x.cutLog(d, n, 0, f)
	}
	if !x.cutSlot(r, d, n, i+1, f) {
		return false
	}
	if r.dirty&slotBit(i) == 0 || r.slot[i] == r.slotDisk[i] {
		return true
	}
	g.slotDisk[i] = r.slot[i]
	if !x.cutSlot(r, d, n, i+1, f) {
		return false
	}
	g.slotDisk[i] = slot{}
	return x.cutSlot(r, d, n, i+1, f)
}

// cutLog tries the outcomes for one log after the other: each file its name
// may durably refer to, and of that file any subset of lines, with the size up
// to the last of them or the full size and NUL bytes.
func (x *explorer) cutLog(d *disk, n disk, sess int, f func(*disk) bool) bool {
	if sess == maxLogs {
		return f(&n)
	}
	l := &d.log[sess]
	names := [2]uint8{l.dirDisk, l.dir}
	for i, dir := range names {
		if i == 1 && names[0] == names[1] {
			break
		}
		n.log[sess] = sessionLog{}
		if dir == 0 {
			if !x.cutLog(d, n, sess+1, f) {
				return false
			}
			continue
		}
		n.log[sess].dir, n.log[sess].dirDisk = 1, 1
		if !x.cutLines(d, n, sess, &l.file[dir-1], f) {
			return false
		}
	}
	return true
}

func (x *explorer) cutLines(d *disk, n disk, sess int, was *logFile, f func(*disk) bool) bool {
	try := func(g logFile) bool {
		g.line, g.size = g.lineDisk, g.sizeDisk
		n.log[sess].file[0] = g
		return x.cutLog(d, n, sess+1, f)
	}
	dirty := was.dirty &^ was.lost
	for kept := dirty; ; kept = (kept - 1) & dirty {
		g := logFile{lineDisk: was.lineDisk, sizeDisk: was.sizeDisk}
		for i := range g.lineDisk {
			if kept&bit(uint8(i)) != 0 {
				g.lineDisk[i] = was.line[i]
				g.sizeDisk = max(g.sizeDisk, uint8(i)+1)
			}
		}
		if !try(g) {
			return false
		}
		if g.sizeDisk < was.size {
			g.sizeDisk = was.size // the size without the data
			if !try(g) {
				return false
			}
		}
		if kept == 0 {
			return true
		}
	}
}

// powerCuts adds every cut as a step, so that what comes after it is explored
// like everything else.
func (x *explorer) powerCuts(s *State) {
	x.eachCut(&s.disk, func(d *disk) bool {
		x.env(s, "POWER CUT", func(n *State) {
			n.disk = *d
			n.cuts--
			n.lock, n.syncLock, n.fdBusy = 0, 0, 0
			n.proc = [maxProcs]proc{}
			n.marks = 0 // pages lost by a failed sync are no longer in memory
			n.spawns = max(n.spawns, 1)
		})
		if s.controlFaults > 0 {
			// control is never synced: it may be of any age, or missing
			n := x.out[len(x.out)-1].state
			x.env(&n, "and control is lost", func(n *State) { n.w, n.y = wRec{}, yRec{} })
			x.env(&n, "and control is old", func(n *State) {
				old := x.cfg.start()
				n.w, n.y = old.w, old.y
			})
		}
		return true
	})
}
