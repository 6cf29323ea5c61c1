package model

// evaluateSteps decides the group and begins to write it.
func (x *explorer) evaluateSteps(s *State, pi int) {
	p := &s.proc[pi]
	ops := x.cfg.Script[p.op-1 : p.op-1+p.ops]
	switch {
	case ops[0].Kind == Prune:
		x.step(s, pi, "prunes", func(n *State, p *proc) { x.prune(n, p, ops[0].Sess) })
		return
	case ops[0].Kind == Delete && !x.on(DeleteIsEntry):
		x.step(s, pi, "unlinks the log", func(n *State, p *proc) {
			n.log[ops[0].Sess] = sessionLog{}
			n.deleted |= bit(ops[0].Sess)
			p.leave(n, atIdle)
			p.idle()
		})
		return
	}
	if x.on(LiveHoles) {
		for _, op := range ops {
			if f := s.logOf(op.Sess); f != nil && f.holed() {
				x.step(s, pi, "restores a log from the ring", func(n *State, p *proc) {
					x.copyLog(&n.disk, n.journal(p), op.Sess)
				})
				return
			}
		}
	}
	n := *s
	q := &n.proc[pi]
	if !x.evaluate(&n, q, ops) {
		x.bounded++
		return
	}
	if q.pc == atAppendMore {
		x.writeSteps(&n, pi)
		return
	}
	x.step(&n, pi, "decides without writing, unlocks W", func(n *State, p *proc) {})
}

// evaluate decides each request of the group and lays its entries out in the
// ring; they are written afterwards. It reports false if the model has no
// entry ids left.
func (x *explorer) evaluate(n *State, p *proc, ops []Op) bool {
	size := uint8(x.cfg.Cells)
	first := n.lastID + 1
	end, chain := p.written, p.chain
	for i := range ops {
		v := x.decide(n, p, &ops[i], first)
		if v.answer {
			x.refuse(n, p, v)
			return true
		}
		e := v.entry
		e.cells = max(ops[i].Cells, 1)
		if left := size - end%size; left < e.cells && x.on(PadNeverStraddles) {
			if n.lastID+1 >= maxIDs {
				return false
			}
			n.lastID++
			n.ent[n.lastID] = entry{kind: kindPad, epoch: p.epoch, pos: end, cells: left, prev: chain, hint: x.limit(n, p), after: n.acked}
			end, chain = end+left, n.lastID
		}
		if n.lastID+1 >= maxIDs {
			return false
		}
		n.lastID++
		e.epoch, e.pos, e.prev, e.hint, e.after = p.epoch, end, chain, x.limit(n, p), n.acked
		n.ent[n.lastID] = e
		p.mine |= bit(n.lastID)
		end, chain = end+e.cells, n.lastID
	}
	if end-p.start > size {
		// [ring space missing → unlock, checkpoint, retry]
		for id := first; id <= n.lastID; id++ {
			n.ent[id] = entry{}
		}
		n.lastID = first - 1
		p.mine = 0
		x.makeSpace(n, p)
		return true
	}
	p.next, p.pc = first, atAppendMore
	return true
}

// makeSpace leaves the critical section because the ring is full. [unlock,
// checkpoint, retry]: but a checkpoint frees only applied entries, and the
// processes whose entries fill the ring may be stopped, so their entries are
// synced and applied first.
func (x *explorer) makeSpace(n *State, p *proc) {
	pending := p.applied < p.written && x.on(FullRingSyncs)
	end := p.written
	p.leave(n, atSyncLook)
	if pending {
		p.end, p.space = end, 1
		return
	}
	x.checkpointForSpace(n, p)
}

func (x *explorer) checkpointForSpace(n *State, p *proc) {
	p.end, p.space = 0, 0
	if n.checkpoints == 0 {
		p.idle() // the configuration's budget of checkpoints is spent
		return
	}
	n.checkpoints--
	p.pc, p.ret = atCheckpointLook, atAppendLock
}

// refuse ends a request without an entry. [answer everybody, refusals and
// replays too]: it waits for the entry it rests on, if that is pending.
func (x *explorer) refuse(n *State, p *proc, v verdict) {
	waits := x.on(RefusalWaits)
	if v.replay {
		waits = x.on(ReplayWaits)
	}
	pending := v.dep != 0 && n.ent[v.dep].pos >= p.applied
	if pending && waits {
		p.dep, p.end = v.dep, n.ent[v.dep].pos+n.ent[v.dep].cells
		p.leave(n, atSyncLook)
		return
	}
	if v.dep != 0 {
		n.relied |= bit(v.dep)
	}
	p.leave(n, atIdle)
	p.idle()
}

// writeSteps adds the outcomes of one pwrite to the ring: the entries from
// p.next up to the last one, or to the ring's end. A kill in the middle leaves
// a prefix of whole cells and perhaps half a cell.
func (x *explorer) writeSteps(s *State, pi int) {
	x.step(s, pi, "writes to the ring", func(n *State, p *proc) { x.writeRun(n, p, maxCells+1, false) })
	if s.kills == 0 || !x.cfg.Tear {
		return
	}
	q := s.proc[pi]
	m := *s
	cells := x.writeRun(&m, &q, maxCells+1, false)
	for k := range cells {
		x.step(s, pi, "killed half-way through a ring write", func(n *State, p *proc) {
			x.writeRun(n, p, k, true)
			x.kill(n, pi)
		})
		if k > 0 {
			x.step(s, pi, "killed between two pages of a ring write", func(n *State, p *proc) {
				x.writeRun(n, p, k, false)
				x.kill(n, pi)
			})
		}
	}
}

// writeRun writes up to limit cells of the run and then, if torn, half a cell
// more. It returns how many the run has.
func (x *explorer) writeRun(n *State, p *proc, limit int, torn bool) int {
	size := uint8(x.cfg.Cells)
	f := n.journal(p)
	written := 0
	put := func(c, v uint8) {
		switch {
		case written < limit:
			f.cell[c] = v
		case written == limit && torn:
			f.cell[c] = garbage
		default:
			written++
			return
		}
		f.dirty |= bit(c)
		written++
	}
	for id := p.next; id <= n.lastID; id++ {
		e := &n.ent[id]
		if id > p.next && e.pos%size == 0 {
			p.next = id // the ring's end: another pwrite
			p.pc = atAppendMore
			return written
		}
		for k := range e.cells {
			put((e.pos+k)%size, cellOf(id, k))
		}
		p.written, p.chain = e.pos+e.cells, id
	}
	p.end = p.written
	p.next = 0
	p.pc = atAppendPublish
	return written
}

// prune replaces a deleted session's log by its tombstone. [replace: only
// under W, when no entry in [start, written) names the log]
func (x *explorer) prune(n *State, p *proc, sess uint8) {
	v := x.viewOf(n, p, sess, 0, n.lastID+1)
	named := false
	f := n.journal(p)
	for pos := p.start; pos < p.written; {
		id := x.at(&n.disk, &f.cell, pos)
		if id == 0 {
			break
		}
		named = named || n.ent[id].kind != kindPad && n.ent[id].sess == sess
		pos += n.ent[id].cells
	}
	if v.tombstone != 0 && n.ent[v.tombstone].pos < p.applied && (!named || !x.on(PruneUnnamed)) {
		n.replaceLog(sess, [maxLines]uint8{v.tombstone}, 1)
		n.pruned |= bit(sess)
	}
	p.leave(n, atIdle)
	p.idle()
}
