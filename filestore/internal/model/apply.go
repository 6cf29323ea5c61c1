package model

import "fmt"

// The outcomes of applying one entry.
const (
	applied    = iota
	needsCopy  // the log lost pages; it must be restored from the ring first
	noSpace    // nothing more fits
	notApplied // a violation was noted
)

// apply writes one entry to its log, by comparison. Nothing else touches the
// logs in this model, so setting bytes aside is always a violation.
// [apply(lim): for e in [applied, lim), ring order, idempotent]
func (x *explorer) apply(n *State, p *proc, id uint8, first bool) int {
	e := &n.ent[id]
	if e.kind == kindPad {
		return applied
	}
	f := x.logForApply(n, p, e)
	if f == nil {
		return x.aside(id, "its log is missing")
	}
	off := e.seq - 1
	switch {
	case f.size < off:
		return x.aside(id, "gap: the log is shorter than the entry's offset")
	case f.size == off:
		if off > 0 && f.line[off-1] != e.lprev {
			if f.line[off-1] == 0 && !first && x.on(LiveHoles) {
				return needsCopy
			}
			return x.aside(id, "the line before has another chain")
		}
		if n.full == 1 {
			return noSpace
		}
		f.size = off + 1
	case f.line[off] == id:
		return applied
	case f.line[off] == id|part: // [another process was killed in mid-write]
		if n.full == 1 {
			return noSpace
		}
	case f.line[off] == 0 && first && x.on(HolesFilled): // [NUL bytes inside a range the ring covers are filled]
	case f.line[off] == 0 && !first && x.on(LiveHoles):
		return needsCopy
	default:
		return x.aside(id, "the log has other bytes there")
	}
	f.line[off] = id
	f.dirty |= bit(off)
	return applied
}

func (x *explorer) aside(id uint8, why string) int {
	x.fail(fmt.Sprintf("entry %d set aside: %s", id, why))
	return notApplied
}

// logForApply is the file to write to. [f = log(e.name): path inode == fd
// inode; missing: e.off == 0 ? create : aside]
func (x *explorer) logForApply(n *State, p *proc, e *entry) *logFile {
	l := &n.log[e.sess]
	if l.dir == 0 {
		if e.seq != 1 {
			return nil
		}
		n.replaceLog(e.sess, [maxLines]uint8{}, 0)
	}
	if x.on(LogInode) {
		return n.logOf(e.sess)
	}
	if p.logFD[e.sess] == 0 {
		p.logFD[e.sess] = l.dir
	}
	return &l.file[p.logFD[e.sess]-1]
}

// applySteps adds the steps that apply the entry at p.applied: completely;
// killed half-way through the write; out of space, before it or half-way,
// which stop handles.
func (x *explorer) applySteps(s *State, pi int, first bool, stop func(n *State, p *proc)) {
	p := &s.proc[pi]
	id := x.at(&s.disk, &s.journal(p).cell, p.applied)
	x.step(s, pi, "apply", func(n *State, p *proc) {
		if id == 0 || n.ent[id].pos != p.applied {
			x.fail(fmt.Sprintf("the entry at %d counts as durable and is not in the ring", p.applied))
			return
		}
		e := &n.ent[id]
		switch x.apply(n, p, id, first) {
		case applied:
			p.applied += e.cells
			if e.kind != kindPad {
				p.logs |= bit(e.sess)
			}
		case needsCopy:
			x.copyLog(&n.disk, n.journal(p), e.sess)
		case noSpace:
			if x.on(ApplyStops) {
				stop(n, p)
			} else {
				p.applied += e.cells
			}
		}
	})
	if id == 0 || s.ent[id].kind == kindPad {
		return
	}
	e := &s.ent[id]
	f := s.logOf(e.sess)
	if f == nil || f.size != e.seq-1 {
		return
	}
	half := func(n *State) {
		f := n.logOf(e.sess)
		f.line[e.seq-1] = id | part
		f.size = e.seq
		f.dirty |= bit(e.seq - 1)
	}
	if s.kills > 0 && s.full == 0 {
		x.step(s, pi, "killed half-way through a log write", func(n *State, p *proc) {
			half(n)
			x.kill(n, pi)
		})
	}
	if s.full == 1 && x.on(ApplyStops) {
		x.step(s, pi, "ENOSPC half-way through a log write", func(n *State, p *proc) {
			half(n)
			stop(n, p)
		})
	}
}
