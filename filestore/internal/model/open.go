package model

// openSteps adds the steps of the first open: recovery by a process that is alone.
func (x *explorer) openSteps(s *State, pi int) {
	p := &s.proc[pi]
	switch p.pc {
	case atOpen:
		x.openLock(s, pi)
	case atRecoverRewrite:
		x.step(s, pi, "reads ring and slot again and writes that back", func(n *State, p *proc) { x.recoverRewrite(n, p) })
	case atRecoverSync, atRecoverSlotSync:
		x.syncRing(s, pi, func(n *State, p *proc, ok bool) {
			if !ok {
				x.exit(n, pi) // open fails; the next one tries again
				return
			}
			p.pc++
		})
	case atRecoverDir:
		// [fsync the store directory]: the ring whose entries are about to be
		// applied must be the one that is there after a cut.
		x.step(s, pi, "fsync(store directory)", func(n *State, p *proc) {
			if x.on(FirstOpenDirSync) {
				n.dirDisk = n.dir
				n.forgetRings()
			}
			p.pc = atRecoverApply
		})
	case atRecoverApply:
		switch {
		case p.suspect != 0 && (x.on(SuspectsFirst) || p.applied == p.written):
			x.recoverCopy(s, pi)
		case p.applied < p.written:
			x.applySteps(s, pi, true, func(n *State, p *proc) { x.exit(n, pi) })
		default:
			x.recoverLog(s, pi)
		}
	case atRecoverLog:
		x.recoverLog(s, pi)
	case atRecoverLogSync:
		x.recoverLogSync(s, pi)
	case atRecoverSlot:
		x.recoverSlot(s, pi)
	case atRecoverControl:
		// [control afresh], both records.
		x.step(s, pi, "writes control afresh, unlocks W", func(n *State, p *proc) {
			n.w = wRec{1, p.epoch, p.written, p.chain, p.written, p.written, p.written}
			n.y = yRec{1, p.epoch, p.written}
			n.marks = 0 // dead instances are removed
			*p = proc{pc: atIdle, open: 1, epoch: p.epoch, fd: p.fd, fdErr: p.fdErr}
			n.lock = 0
		})
	}
}

// alone is open.lock EX|NB.
func (s *State) alone(pi int) bool {
	for i := range s.proc {
		if i != pi && s.proc[i].open == 1 {
			return false
		}
	}
	return true
}

// openLock takes W and either recovers or joins.
func (x *explorer) openLock(s *State, pi int) {
	if s.lock != 0 {
		return
	}
	if !s.alone(pi) && x.on(AloneChecked) {
		x.step(s, pi, "locks W, is not alone", func(n *State, p *proc) {
			n.lock = uint8(pi + 1)
			p.open = 1
			x.reopen(n, p, atIdle)
		})
		return
	}
	x.step(s, pi, "locks W, is alone: scans, rewrites ring and slot", func(n *State, p *proc) {
		n.lock = uint8(pi + 1)
		x.recoverScan(n, p)
	})
}

// recoverScan is the beginning of the first open. [open.lock EX|NB got = I am
// alone: ignore control, pick the journal; scan from start to E]
func (x *explorer) recoverScan(n *State, p *proc) {
	p.fd = n.dir
	f := n.journal(p)
	p.fdErr = f.errs
	b := best(&f.slot)
	if b < 0 {
		x.fail("first open finds no valid slot")
		return
	}
	var ids [maxCells]uint8
	p.applied = f.slot[b].start
	p.written, p.chain, _ = x.scan(&n.disk, &f.cell, f.slot[b], &ids)
	if x.on(DurableHint) && x.alarm(&n.disk, &f.cell, p.written) {
		x.fail("first open calls a sound ring damaged")
	}
	if !x.on(ControlNotTrusted) && n.w.ok == 1 {
		p.written, p.chain, p.applied = n.w.written, n.w.chain, n.w.applied
	}
	// A log that a dead process was syncing may have lost pages that still look
	// fine, and the error was reported to that process.
	if x.on(MarkAtOpen) {
		p.suspect = n.marks
	}
	if x.on(RewriteVerified) {
		x.recoverRewrite(n, p)
	} else {
		p.pc = atRecoverRewrite
	}
}

// recoverRewrite is [pwrite [start, E) and the chosen slot back in place, then
// fdatasync(ring)]: otherwise a sync that failed while no process was running
// would be reported to nobody.
func (x *explorer) recoverRewrite(n *State, p *proc) {
	f := n.journal(p)
	b := best(&f.slot)
	if b < 0 {
		x.exit(n, int(n.lock)-1) // the slot has been evicted since: open fails
		return
	}
	if x.on(FirstOpenRewrites) {
		x.redirty(f, f.slot[b].start, p.written)
	}
	if x.on(FirstOpenSlot) {
		f.dirty |= slotBit(b)
	}
	p.pc = atRecoverSync
}

// redirty writes ring cells back unchanged: from now on a failed writeback is
// reported to this descriptor.
func (x *explorer) redirty(f *ring, from, to uint8) {
	for pos := from; pos < to; pos++ {
		f.dirty |= bit(pos % uint8(x.cfg.Cells))
	}
}

// recoverLog makes the next touched log durable, by copying it if it is suspect.
// [rewrite and fdatasync the logs touched, fsync directories]
func (x *explorer) recoverLog(s *State, pi int) {
	p := &s.proc[pi]
	switch {
	case p.suspect != 0:
		x.recoverCopy(s, pi)
	case p.logs == 0:
		x.step(s, pi, "fsync(sessions/)", func(n *State, p *proc) {
			n.syncSessions()
			p.pc = atRecoverSlot
		})
	case x.cfg.LogErrors > 0 && x.on(RecoveryMarks):
		x.step(s, pi, "marks a log", func(n *State, p *proc) {
			p.mark |= bit(lowest(p.logs))
			p.pc = atRecoverLogSync
		})
	default:
		x.recoverLogSync(s, pi)
	}
}

// recoverCopy replaces a suspect log. It comes before anything is applied to
// it: its lost pages may vanish at any moment.
func (x *explorer) recoverCopy(s *State, pi int) {
	sess := lowest(s.proc[pi].suspect)
	x.step(s, pi, "replaces a suspect log by a copy", func(n *State, p *proc) {
		if n.logOf(sess) != nil {
			x.copyLog(&n.disk, n.journal(p), sess)
		}
		p.suspect &^= bit(sess)
		p.logs &^= bit(sess)
	})
}

func (x *explorer) recoverLogSync(s *State, pi int) {
	sess := lowest(s.proc[pi].logs)
	x.syncLog(s, pi, sess, func(n *State, p *proc, ok bool) {
		p.pc = atRecoverLog
		if ok {
			p.logs &^= bit(sess)
		} else {
			p.suspect |= bit(sess)
		}
	})
}

func lowest(mask uint8) uint8 {
	i := uint8(0)
	for mask&1 == 0 {
		mask >>= 1
		i++
	}
	return i
}

// recoverSlot moves the start to the end of what was recovered, into a new
// epoch. [slot{epoch+1, start = E}]
func (x *explorer) recoverSlot(s *State, pi int) {
	write := func(n *State, p *proc) (*ring, int) {
		f := n.journal(p)
		b := best(&f.slot)
		p.epoch = f.slot[b].epoch + 1
		f.slot[1-b] = slot{1, f.slot[b].hseq + 1, p.epoch, p.written, p.chain}
		f.dirty |= slotBit(1 - b)
		p.pc = atRecoverSlotSync
		return f, 1 - b
	}
	x.step(s, pi, "writes a slot with start = E", func(n *State, p *proc) { write(n, p) })
	if s.kills > 0 && x.cfg.Tear {
		x.step(s, pi, "killed half-way through a slot", func(n *State, p *proc) {
			f, i := write(n, p)
			f.slot[i] = slot{}
			x.kill(n, pi)
		})
	}
}
