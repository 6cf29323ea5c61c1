package model

// appendSteps adds the steps of a request, from the queue to the answer.
func (x *explorer) appendSteps(s *State, pi int) {
	p := &s.proc[pi]
	switch p.pc {
	case atIdle:
		x.idleSteps(s, pi)
	case atAppendLock:
		x.enter(s, pi, "locks W", atAppendLock, func(n *State, p *proc) {
			x.beginCatchup(n, p, atAppendCatchup)
		})
	case atAppendCatchup, atFinishCatchup:
		x.catchupSteps(s, pi)
	case atAppendMore:
		x.writeSteps(s, pi)
	case atAppendPublish:
		x.step(s, pi, "publishes written, unlocks W", func(n *State, p *proc) {
			n.publish(p)
			x.rememberOwn(n, p)
			p.leave(n, atSyncLook)
		})
	case atSyncLook:
		x.syncLook(s, pi)
	case atSyncTarget, atSync, atSyncReport:
		x.syncSteps(s, pi)
	case atSyncPublish:
		x.syncPublish(s, pi)
	case atFinishLock:
		// [if applied < end: lock W, catchup(), unlock]
		x.enter(s, pi, "locks W to finish", atSyncLook, func(n *State, p *proc) {
			x.beginCatchup(n, p, atFinishCatchup)
		})
	}
}

// leave releases W and forgets what was valid only under it.
func (p *proc) leave(n *State, next uint8) {
	n.lock = 0
	p.written, p.chain, p.applied, p.start, p.base = 0, 0, 0, 0, 0
	p.next, p.logs = 0, 0
	p.pc = next
}

func (x *explorer) idleSteps(s *State, pi int) {
	if int(s.script) < len(x.cfg.Script) {
		op := &x.cfg.Script[s.script]
		x.step(s, pi, "takes the next request", func(n *State, p *proc) {
			p.op, p.ops = n.script+1, 1
			for int(p.op-1+p.ops) < len(x.cfg.Script) && x.cfg.Script[p.op-1+p.ops].Joined {
				p.ops++
			}
			n.script += p.ops
			p.pc = atAppendLock
			needsToken := op.Kind == TurnAppend || op.Kind == Release
			if needsToken && n.token[op.Token] == 0 {
				p.idle() // the grant it would use was never acknowledged
				return
			}
			if needsToken && !x.on(FenceInLock) {
				v := x.viewOf(n, p, op.Sess, 0, n.lastID+1)
				if !x.fence(n, n.token[op.Token], &v) {
					p.idle()
					return
				}
				p.decided = 1
			}
		})
	}
	if s.checkpoints > 0 && s.w.applied > s.w.start {
		x.step(s, pi, "begins a checkpoint", func(n *State, p *proc) {
			n.checkpoints--
			p.pc, p.ret = atCheckpointLook, atIdle
		})
	}
}

// beginCatchup reads control and adopts. [catchup() under W, always first]
func (x *explorer) beginCatchup(n *State, p *proc, next uint8) {
	p.written, p.chain, p.applied = n.w.written, n.w.chain, n.w.applied
	p.start, p.base = n.w.start, n.w.base
	x.adopt(n, p)
	x.remember(n, p)
	p.pc = next
	if x.on(WholeAtLock) && !x.whole(n, p, p.written) {
		p.ret = atAppendLock
		if next == atFinishCatchup {
			p.ret = atSyncLook
		}
		p.pc = atRotateCopy
	}
}

// limit is how far the logs may be written. [apply(max(Y.durable, my own durable))]
func (x *explorer) limit(s *State, p *proc) uint8 {
	if !x.on(SyncBeforeApply) {
		return p.written
	}
	return min(max(s.durable(), p.own), p.written)
}

// publish writes W as this process knows it.
func (s *State) publish(p *proc) {
	s.w = wRec{1, p.epoch, p.written, p.chain, p.applied, p.start, p.base}
}

// catchupSteps adds the next step under W: apply, publish; then the group's ring
// write, or the answer.
func (x *explorer) catchupSteps(s *State, pi int) {
	p := &s.proc[pi]
	finishing := p.pc == atFinishCatchup
	switch {
	case p.applied < x.limit(s, p):
		x.applySteps(s, pi, false, func(n *State, p *proc) {
			// [ENOSPC/EDQUOT → stop here, noSpace]: a group not yet written is
			// refused; one already written waits, as ErrUnknown.
			n.publish(p)
			p.leave(n, atIdle)
			p.idle()
		})
	case s.w.applied != p.applied || s.w.written != p.written:
		what := "publishes W"
		if finishing {
			what = "publishes W, unlocks W"
		}
		x.step(s, pi, what, func(n *State, p *proc) {
			n.publish(p)
			if finishing {
				x.finish(n, p)
			}
		})
	case finishing:
		x.step(s, pi, "unlocks W", func(n *State, p *proc) { x.finish(n, p) })
	default:
		x.evaluateSteps(s, pi)
	}
}

// finish answers if the entries waited for are applied.
func (x *explorer) finish(n *State, p *proc) {
	done := n.w.applied >= p.end
	p.leave(n, atSyncLook)
	if done {
		x.answer(n, p)
	}
}

// answer replies to every request of the group: success for those that were
// written, and also refusals and replays.
func (x *explorer) answer(n *State, p *proc) {
	if p.space == 1 {
		x.checkpointForSpace(n, p)
		return
	}
	for id := uint8(1); id < maxIDs; id++ {
		if p.mine&bit(id) == 0 {
			continue
		}
		n.acked |= bit(id)
		switch e := &n.ent[id]; e.kind {
		case kindGrant:
			n.token[e.token-1] = id
		case kindTombstone:
			n.deleted |= bit(e.sess)
		}
	}
	if p.dep != 0 {
		n.relied |= bit(p.dep)
	}
	p.idle()
}
