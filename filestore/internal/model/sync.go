package model

// syncLook reads control without a lock and decides how to proceed.
// [sync(p): max(Y.durable, W.applied) >= p → done; sync.lock only coalesces]
func (x *explorer) syncLook(s *State, pi int) {
	p := &s.proc[pi]
	if !x.cfg.Solo {
		// A process that thinks it is alone reads nothing, and publishes without sync.lock. It may
		// be wrong, so in the model any process may do this at any time.
		x.step(s, pi, "takes itself to be alone", func(n *State, p *proc) {
			x.aim(n, p)
			p.publish, p.target, p.pc = 1, p.end, atSync
		})
	}
	bad := x.on(ControlCRC) && s.w.ok == 0
	if bad || x.on(EpochInWaits) && x.otherControl(s, p) {
		x.enter(s, pi, "locks W, looks again", atSyncLook, func(n *State, p *proc) { n.lock = 0 })
		return
	}
	me := uint8(pi + 1)
	switch {
	case s.w.applied >= p.end:
		x.step(s, pi, "sees its entries applied, answers", func(n *State, p *proc) { x.answer(n, p) })
	case s.durable() >= p.end:
		x.enter(s, pi, "sees its entries durable, locks W", atSyncLook, func(n *State, p *proc) {
			x.beginCatchup(n, p, atFinishCatchup)
		})
	case s.syncLock == 0:
		x.step(s, pi, "locks Y, reads written", func(n *State, p *proc) {
			n.syncLock = me
			p.publish = 1
			x.aim(n, p)
		})
	case x.on(SyncLockBypassed):
		// [wait for it a few ms at most, then sync with or without it]
		x.step(s, pi, "waits in vain for Y, reads written", func(n *State, p *proc) { x.aim(n, p) })
	}
}

// aim records how far the next sync will reach.
func (x *explorer) aim(n *State, p *proc) {
	p.target, p.oldStart = n.w.written, n.w.start
	p.pc = atSync
	if x.on(StartInW) {
		p.oldStart = 0
	}
	if !x.on(TargetSameRead) {
		p.pc = atSyncTarget
	}
}

// syncSteps adds the outcomes of the fdatasync for a request.
func (x *explorer) syncSteps(s *State, pi int) {
	if s.proc[pi].pc == atSyncTarget {
		x.step(s, pi, "reads written once more", func(n *State, p *proc) {
			p.target = n.w.written
			p.pc = atSync
		})
		return
	}
	then := func(n *State, p *proc, ok bool) {
		if ok {
			p.own = max(p.own, p.target)
			p.pc = atFinishLock
			if p.publish == 1 {
				p.pc = atSyncPublish
			}
			return
		}
		if !x.on(SyncErrorFinal) {
			p.pc = atSync
			return
		}
		// [error → rotate(), never a second fdatasync]
		x.unlockY(n, p, pi)
		p.pc, p.ret = atRotateLock, atSyncLook
		if !x.on(UnknownAfterWrite) {
			n.denied |= p.mine
			p.idle()
		}
	}
	if x.cfg.Threads {
		x.threadSync(s, pi, then)
	} else {
		x.syncRing(s, pi, then)
	}
}

func (x *explorer) unlockY(n *State, p *proc, pi int) {
	if n.syncLock == uint8(pi+1) {
		n.syncLock = 0
	}
	p.publish, p.target, p.oldStart = 0, 0, 0
}

// syncPublish tells the others. Y is written by the holder of sync.lock, or by a process that
// thinks it is alone, and not under W; without StartInW it carries the start as well, which may
// have moved since it was read.
func (x *explorer) syncPublish(s *State, pi int) {
	x.step(s, pi, "publishes durable, unlocks Y", func(n *State, p *proc) {
		n.y = yRec{1, p.epoch, p.target}
		if !x.on(StartInW) && n.w.epoch == p.epoch {
			n.w.start = p.oldStart
		}
		x.unlockY(n, p, pi)
		p.pc = atFinishLock
	})
}

// threadSync is fdatasync in two halves, for threads that share a descriptor:
// the pages are written, then the descriptor is asked for errors it has not
// reported. [never two at once on one fd]
func (x *explorer) threadSync(s *State, pi int, then func(n *State, p *proc, ok bool)) {
	p := &s.proc[pi]
	me := uint8(pi + 1)
	switch {
	case p.pc == atSyncReport:
		x.step(s, pi, "fdatasync(ring) returns", func(n *State, p *proc) {
			if n.fdBusy == me {
				n.fdBusy = 0
			}
			ok := p.fdErr == n.journal(p).errs
			if !ok {
				x.told(n, pi)
			}
			then(n, p, ok)
		})
		return
	case s.fdBusy != 0 && x.on(OneSyncPerFD):
		return
	case p.failed == 1:
		x.step(s, pi, "knows that the descriptor has failed", func(n *State, p *proc) { then(n, p, false) })
		return
	}
	x.step(s, pi, "fdatasync(ring) writes", func(n *State, p *proc) {
		n.fdBusy = me
		n.journal(p).flush()
		p.pc = atSyncReport
	})
	if s.ringErrs > 0 && s.journal(p).dirty != 0 {
		x.step(s, pi, "fdatasync(ring) fails to write", func(n *State, p *proc) {
			n.fdBusy = me
			n.ringErrs--
			n.journal(p).dirty = 0
			n.journal(p).errs++
			p.pc = atSyncReport
		})
	}
}

// rotateSteps adds the steps of [rotate()]: under W, a new file with all valid
// entries, then its name, then the name durable, then control.
func (x *explorer) rotateSteps(s *State, pi int) {
	p := &s.proc[pi]
	switch p.pc {
	case atRotateLock:
		x.enter(s, pi, "locks W to rotate", p.ret, func(n *State, p *proc) { p.pc = atRotateCopy })
	case atRotateCopy:
		free := -1
		for i := range s.ring {
			if !s.reachable(uint8(i)) {
				free = i
			}
		}
		if free < 0 {
			x.bounded++
			return
		}
		x.step(s, pi, "copies the ring to a new file, syncs and renames it", func(n *State, p *proc) {
			x.rotateCopy(n, p, uint8(free))
		})
	case atRotateDir:
		x.step(s, pi, "fsync(store directory)", func(n *State, p *proc) {
			n.dirDisk = n.dir
			p.pc = atRotateControl
			n.forgetRings()
		})
	case atRotateControl:
		// Y is left alone: it belongs to another epoch.
		x.step(s, pi, "writes W afresh, unlocks W", func(n *State, p *proc) {
			start := n.journal(p).slot[0].start
			n.w = wRec{1, p.epoch, p.written, p.chain, p.applied, start, p.written}
			x.reloaded(n, p)
		})
	}
}

// rotateCopy makes the new file; the copy and its fsync are invisible until the rename, so all of
// it is one step.
// [new file, slot{new salt, epoch+1}, all valid entries [start, written); fsync, rename]
func (x *explorer) rotateCopy(n *State, p *proc, to uint8) {
	old := n.journal(p)
	b := x.durableSlot(n, old)
	if b < 0 {
		x.fail("rotate finds no valid slot")
		return
	}
	sl := old.slot[b]
	var ids [maxCells]uint8
	end, chain, k := x.scan(&n.disk, &old.cell, sl, &ids)
	p.applied = sl.start
	if x.known(n, sl) && n.w.applied > sl.start {
		p.applied = n.w.applied
	}
	if p.applied > end {
		x.fail("rotate: applied entries are not in the ring")
		return
	}
	f := &n.ring[to]
	*f = ring{}
	for _, id := range ids[:k] {
		for c := range n.ent[id].cells {
			f.cell[(n.ent[id].pos+c)%uint8(x.cfg.Cells)] = cellOf(id, c)
		}
	}
	f.slot[0] = slot{1, 1, sl.epoch + 1, sl.start, sl.chain}
	f.cellDisk, f.slotDisk = f.cell, f.slot
	n.dir = to
	p.fd, p.fdErr, p.failed = to, 0, 0
	p.epoch = sl.epoch + 1
	x.dropMemory(p)
	p.written, p.chain = end, chain
	p.pc = atRotateDir
	n.forgetRings()
}
