package model

// checkpointSteps adds the steps of [checkpoint]. Several may be under way at
// once: a stopped one must not keep others from finishing theirs.
func (x *explorer) checkpointSteps(s *State, pi int) {
	p := &s.proc[pi]
	switch p.pc {
	case atCheckpointLook:
		x.checkpointLook(s, pi)
	case atCheckpointSessions:
		// [fsync(sessions/) after any create or rename]: by any process, so
		// always.
		x.step(s, pi, "fsync(sessions/)", func(n *State, p *proc) {
			if x.on(SessionsDirSync) {
				n.syncSessions()
			}
			p.pc = atCheckpointSlot
		})
	case atCheckpointSlot, atCheckpointSlotWrite:
		x.checkpointSlot(s, pi)
	case atCheckpointSlotSync:
		x.syncRing(s, pi, func(n *State, p *proc, ok bool) {
			p.pc = atCheckpointPublish
			if !ok {
				*p = p.resumed()
				p.pc = atRotateLock
			}
		})
	case atCheckpointPublish:
		x.enter(s, pi, "publishes the start", p.ret, func(n *State, p *proc) { x.checkpointPublish(n, p) })
	default:
		x.logSteps(s, pi)
	}
}

// resumed is p without the state of the checkpoint.
func (p *proc) resumed() proc {
	q := *p
	q.upto, q.chain, q.hseq, q.slotTo = 0, 0, 0, 0
	q.logs, q.suspect, q.ino, q.logErr = 0, 0, 0, 0
	return q
}

// endCheckpoint goes back to the request that wanted space, if there is one.
func (p *proc) endCheckpoint() {
	*p = p.resumed()
	p.pc, p.ret = p.ret, 0
}

// checkpointLook reads how far the logs are written and which of them.
// [A = applied; logs = names in ring [start, A)]
func (x *explorer) checkpointLook(s *State, pi int) {
	p := &s.proc[pi]
	if x.otherControl(s, p) {
		x.enter(s, pi, "locks W, looks again", p.ret, func(n *State, p *proc) { n.lock = 0 })
		return
	}
	x.step(s, pi, "reads applied and the names of the logs", func(n *State, p *proc) {
		p.upto = n.w.applied
		f := n.journal(p)
		for pos := n.w.start; pos < p.upto; {
			id := x.at(&n.disk, &f.cell, pos)
			if id == 0 || n.ent[id].pos != pos {
				p.endCheckpoint() // another process's checkpoint freed it
				return
			}
			if n.ent[id].kind != kindPad {
				p.logs |= bit(n.ent[id].sess)
			}
			p.chain = id
			pos += n.ent[id].cells
		}
		if p.chain == 0 {
			p.endCheckpoint()
			return
		}
		p.nextLog(x)
	})
}

// nextLog moves on to the next log to sync. Marks matter only if a log's sync can
// fail; other configurations save the steps.
func (p *proc) nextLog(x *explorer) {
	p.ino, p.logErr = 0, 0
	switch {
	case p.logs == 0:
		p.pc = atCheckpointSessions
	case x.cfg.LogErrors == 0:
		p.pc = atCheckpointSync
	case x.on(OpenBeforeMarks):
		p.pc = atCheckpointOpen
	default:
		p.pc = atCheckpointMarks
	}
}

// logSteps adds the steps that make one log durable: open it, see whether another
// process has marked it, mark it, sync it; replace it by a copy if the sync
// failed, or if another process's mark says that its sync may have failed; unmark
// it. A mark is in the instance file of the process that set it, so no other
// process writes it, and it outlives that process.
//
// [each: set my mark, fdatasync, clear it; error or a foreign mark → replace that
// log by a copy, under W]
func (x *explorer) logSteps(s *State, pi int) {
	p := &s.proc[pi]
	if p.pc != atCheckpointCopy && s.logOf(lowest(p.logs)) == nil {
		x.step(s, pi, "finds no log", func(n *State, p *proc) { p.endCheckpoint() })
		return
	}
	sess := lowest(p.logs)
	switch p.pc {
	case atCheckpointOpen:
		// A descriptor that is open before a sync fails gets the error; earlier
		// failures are covered by the marks.
		x.step(s, pi, "opens a log", func(n *State, p *proc) {
			p.ino, p.logErr = n.log[sess].ino, n.logOf(sess).errs
			p.pc = atCheckpointMarks
			if !x.on(OpenBeforeMarks) {
				p.pc = atCheckpointMark
			}
		})
	case atCheckpointMarks:
		x.step(s, pi, "reads the others' marks", func(n *State, p *proc) {
			if x.on(CheckpointMark) {
				p.suspect = x.othersMarks(n, pi) & bit(sess)
			}
			p.pc = atCheckpointMark
			if !x.on(OpenBeforeMarks) {
				p.pc = atCheckpointOpen
			}
		})
	case atCheckpointMark:
		x.step(s, pi, "marks the log", func(n *State, p *proc) {
			if x.on(OwnMarkCounts) {
				p.mark |= bit(sess)
			} else {
				p.mark = bit(sess)
			}
			p.pc = atCheckpointSync
		})
	case atCheckpointSync:
		x.checkpointSync(s, pi, sess)
	case atCheckpointCopyLock:
		x.enter(s, pi, "locks W to copy a log", p.ret, func(n *State, p *proc) { p.pc = atCheckpointCopy })
	case atCheckpointCopy:
		x.checkpointCopy(s, pi, sess)
	case atCheckpointUnmark:
		x.step(s, pi, "unmarks the log", func(n *State, p *proc) {
			p.mark &^= bit(sess)
			p.logs &^= bit(sess)
			p.nextLog(x)
		})
	}
}

// othersMarks are the marks of all other processes, alive or dead, and those that
// this process left because a copy failed.
func (x *explorer) othersMarks(n *State, pi int) uint8 {
	marks := n.marks
	for i := range n.proc {
		if i != pi || x.on(OwnMarkCounts) {
			marks |= n.proc[i].mark
		}
	}
	return marks
}

func (x *explorer) checkpointSync(s *State, pi int, sess uint8) {
	p := &s.proc[pi]
	done := func(p *proc) {
		if x.cfg.LogErrors > 0 {
			p.pc = atCheckpointUnmark
			return
		}
		p.logs &^= bit(sess)
		p.nextLog(x)
	}
	failed := func(n *State, p *proc) {
		if x.on(LogCopyAfterEIO) {
			p.suspect |= bit(sess)
			p.pc = atCheckpointCopyLock
			return
		}
		p.mark = 0 // the checkpoint stops; the next one tries again
		p.endCheckpoint()
	}
	switch {
	case x.cfg.LogErrors > 0 && p.ino != s.log[sess].ino:
		// The process that replaced it has synced the new file as far as we need.
		x.step(s, pi, "fdatasync of a log that was replaced", func(n *State, p *proc) { done(p) })
	case x.cfg.LogErrors > 0 && p.logErr != s.logOf(sess).errs:
		x.step(s, pi, "fdatasync(log) reports an earlier EIO", failed)
	default:
		x.syncLog(s, pi, sess, func(n *State, p *proc, ok bool) {
			switch {
			case !ok:
				failed(n, p)
			case p.suspect != 0:
				p.pc = atCheckpointCopyLock
			default:
				done(p)
			}
		})
	}
}

// checkpointCopy replaces a suspect log, W held. It may fail for lack of space;
// then the mark must stay.
func (x *explorer) checkpointCopy(s *State, pi int, sess uint8) {
	x.step(s, pi, "replaces a suspect log by a copy", func(n *State, p *proc) {
		n.lock = 0
		p.suspect = 0
		p.pc = atCheckpointUnmark
		if n.logOf(sess) != nil {
			x.copyLog(&n.disk, n.journal(p), sess)
		}
	})
	if s.noCopy > 0 {
		x.step(s, pi, "fails to copy a suspect log", func(n *State, p *proc) {
			n.noCopy--
			n.lock = 0
			p.endCheckpoint()
		})
	}
}

// checkpointSlot writes the new start. [upTo <= start or another epoch →
// nothing to do; write the slot that is not the durable one]
func (x *explorer) checkpointSlot(s *State, pi int) {
	p := &s.proc[pi]
	write := func(n *State, p *proc) int {
		if x.on(CheckpointNeverBack) && p.upto <= n.w.start {
			p.endCheckpoint()
			return -1
		}
		f := n.journal(p)
		b := best(&f.slot)
		if b < 0 {
			x.fail("checkpoint finds no valid slot")
			return -1
		}
		to := 1 - b
		if x.on(SlotChoice) {
			to = 1 - x.durableSlot(n, f)
		}
		switch {
		case p.slotTo != 0: // chosen earlier
			to, p.slotTo = int(p.slotTo)-1, 0
		case !x.on(SlotUnderLock):
			p.slotTo = uint8(to) + 1
			p.pc = atCheckpointSlotWrite
			return -1
		}
		p.hseq = f.slot[b].hseq + 1
		f.slot[to] = slot{1, p.hseq, p.epoch, p.upto, p.chain}
		f.dirty |= slotBit(to)
		p.pc = atCheckpointSlotSync
		if !x.on(HeaderBeforeStart) {
			n.w.start = p.upto
		}
		return to
	}
	if p.pc == atCheckpointSlotWrite {
		x.step(s, pi, "writes the slot chosen before", func(n *State, p *proc) { write(n, p) })
		return
	}
	x.enter(s, pi, "writes a slot", p.ret, func(n *State, p *proc) {
		n.lock = 0
		write(n, p)
	})
	if s.kills > 0 && x.cfg.Tear && s.lock == 0 && !x.stale(s, p) {
		x.step(s, pi, "killed half-way through a slot", func(n *State, p *proc) {
			f := n.journal(p)
			if to := write(n, p); to >= 0 {
				f.slot[to] = slot{}
			}
			x.kill(n, pi)
		})
	}
}

// checkpointPublish frees the space. [publish start; only now is the space
// reusable]: unless the slot is no longer the one I synced, because another
// checkpoint, perhaps with a start before mine, overwrote it.
func (x *explorer) checkpointPublish(n *State, p *proc) {
	n.lock = 0
	f := n.journal(p)
	b := best(&f.slot)
	if b >= 0 && f.slot[b].hseq == p.hseq || !x.on(SlotStillMine) {
		n.w.start = p.upto
	}
	p.endCheckpoint()
}
