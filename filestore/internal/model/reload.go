package model

// reopen opens the file that the name journal refers to now; W is held. A
// process that opens a store already in use also comes here.
func (x *explorer) reopen(n *State, p *proc, ret uint8) {
	*p = p.resumed() // a checkpoint under way is abandoned
	p.fd = n.dir
	p.fdErr, p.failed = n.journal(p).errs, 0
	p.ret = ret
	p.pc = atReloadDir
	x.dropMemory(p)
	n.forgetRings()
}

// dropMemory forgets what was known about the previous journal file.
// [drop caches and one's own durable position]
func (x *explorer) dropMemory(p *proc) {
	if x.on(OwnDurableDropped) {
		p.own = 0
	}
	if x.on(CacheEpoch) {
		p.forget()
	}
}

// reloadSteps adds the steps of [reload()], W held all along.
func (x *explorer) reloadSteps(s *State, pi int) {
	p := &s.proc[pi]
	switch p.pc {
	case atReloadDir:
		// [fsync the store directory]: the process that renamed the journal may
		// have died before it did.
		x.step(s, pi, "fsync(store directory)", func(n *State, p *proc) {
			if x.on(DirectorySync) {
				n.dirDisk = n.dir
				n.forgetRings()
			}
			p.pc = atReloadScan
		})
	case atReloadScan:
		x.step(s, pi, "scans the ring, rewrites it and the slots", func(n *State, p *proc) { x.reloadScan(n, p) })
	case atReloadRewrite:
		x.step(s, pi, "reads the ring again and writes that back", func(n *State, p *proc) { x.reloadRewrite(n, p) })
	case atReloadSync:
		x.syncRing(s, pi, func(n *State, p *proc, ok bool) {
			p.pc = atReloadControl
			if !ok {
				p.pc = atRotateCopy
			}
		})
	case atReloadControl:
		x.step(s, pi, "writes W, unlocks W", func(n *State, p *proc) {
			start := n.journal(p).slot[best(&n.journal(p).slot)].start
			n.w = wRec{1, p.epoch, p.written, p.chain, p.applied, start, p.written}
			x.reloaded(n, p)
		})
	}
}

// known says that W is about the ring with this slot.
func (x *explorer) known(s *State, sl slot) bool {
	return s.w.epoch == sl.epoch && (s.w.ok == 1 || !x.on(ControlCRC))
}

// durableSlot is the slot whose start was published; another with a higher hseq
// may not be on the disk.
func (x *explorer) durableSlot(s *State, f *ring) int {
	b := best(&f.slot)
	if b < 0 || !x.known(s, f.slot[b]) {
		return b
	}
	if o := &f.slot[1-b]; f.slot[b].start != s.w.start && o.ok == 1 && o.start == s.w.start && o.epoch == s.w.epoch {
		return 1 - b
	}
	return b
}

// reloadScan finds the end of the ring. [rule A: adopt complete entries; check
// the chain up to written (broken → rotate); or, if control is useless: scan
// from slot.start: written = end of scan, applied = start]
func (x *explorer) reloadScan(n *State, p *proc) {
	f := n.journal(p)
	b := x.durableSlot(n, f)
	if b < 0 {
		x.fail("reload finds no valid slot")
		return
	}
	sl := f.slot[b]
	p.epoch = sl.epoch
	if x.known(n, sl) {
		p.written, p.chain = n.w.written, n.w.chain
		x.adopt(n, p)
		if x.on(WholeAtOpen) && !x.whole(n, p, p.written) {
			p.pc = atRotateCopy
			return
		}
	} else {
		var ids [maxCells]uint8
		p.written, p.chain, _ = x.scan(&n.disk, &f.cell, sl, &ids)
		p.applied = sl.start
	}
	if x.on(RewriteVerified) {
		x.reloadRewrite(n, p)
	} else {
		p.pc = atReloadRewrite
	}
}

// reloadRewrite is rule A. [whoever opens the ring, under W and before using
// it: pwrite [durable, written) and both slots back in place. From then on a
// failed writeback is reported to this fd, so its fdatasync may be believed]
func (x *explorer) reloadRewrite(n *State, p *proc) {
	f := n.journal(p)
	b := best(&f.slot)
	if b < 0 {
		x.fail("reload finds no valid slot")
		return
	}
	if x.known(n, f.slot[b]) {
		if x.on(OpenerRewrites) {
			x.redirty(f, n.durable(), p.written)
		}
		if x.on(OpenerSlots) {
			f.dirty |= slotBit(0) | slotBit(1)
		}
		x.reloaded(n, p)
		return
	}
	// Nothing says which slot and which entries are durable: make all of them
	// durable.
	// [synced before it is trusted]
	if x.on(RebuildRewrites) {
		x.redirty(f, f.slot[b].start, p.written)
		f.dirty |= slotBit(0) | slotBit(1)
	}
	p.pc = atReloadSync
	if !x.on(ReloadSyncs) {
		p.pc = atReloadControl
	}
}

// reloaded releases W and returns to what was being done.
// [p is (epoch, pos, chain): in another epoch look for my chain in ring or
// log, else ErrUnknown]
func (x *explorer) reloaded(n *State, p *proc) {
	n.lock = 0
	p.pc, p.ret = p.ret, 0
	p.written, p.chain, p.applied, p.start, p.base = 0, 0, 0, 0, 0
	if p.pc != atSyncLook || !x.on(EpochInWaits) {
		return
	}
	for id := uint8(1); id < maxIDs; id++ {
		if p.mine&bit(id) != 0 && !x.stored(n, p, id) {
			p.idle() // ErrUnknown
			return
		}
	}
	if p.dep != 0 && !x.stored(n, p, p.dep) && x.on(VoidReevaluated) {
		// [a dep that became void: evaluate again]
		p.dep, p.end = 0, 0
		p.pc = atAppendLock
	}
}

// stored says that an entry is in the ring or in its log.
func (x *explorer) stored(n *State, p *proc, id uint8) bool {
	f := n.journal(p)
	var ids [maxCells]uint8
	_, _, k := x.scan(&n.disk, &f.cell, f.slot[x.durableSlot(n, f)], &ids)
	for _, have := range ids[:k] {
		if have == id {
			return true
		}
	}
	e := &n.ent[id]
	l := n.logOf(e.sess)
	return l != nil && l.size >= e.seq && l.line[e.seq-1] == id
}

// idle ends the request in hand.
func (p *proc) idle() {
	*p = proc{pc: atIdle, open: 1, epoch: p.epoch, fd: p.fd, fdErr: p.fdErr, failed: p.failed,
		own: p.own, mark: p.mark, logFD: p.logFD,
		cached: p.cached, cursor: p.cursor, cacheSeq: p.cacheSeq, cacheLast: p.cacheLast}
}
