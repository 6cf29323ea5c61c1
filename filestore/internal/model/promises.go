package model

import "fmt"

// positions checks what control claims while nobody is changing it: the ring
// holds no more than its size, and what is called durable is on the disk.
func (x *explorer) positions(s *State) string {
	if s.lock != 0 || s.w.ok == 0 || s.alone(-1) {
		return ""
	}
	f := &s.ring[s.dir]
	if b := best(&f.slot); b < 0 || f.slot[b].epoch != s.w.epoch {
		return "" // an unfinished rotation
	}
	if s.w.written > s.w.start+uint8(x.cfg.Cells) {
		return "the ring holds more than it can"
	}
	for pos := s.w.start; pos < s.durable(); pos++ {
		if c := pos % uint8(x.cfg.Cells); f.cell[c] != f.cellDisk[c] {
			return fmt.Sprintf("position %d counts as durable and is not on the disk", pos)
		}
	}
	return ""
}

// promises checks everything the store has promised against every power cut,
// by a recovery that is a function of the disk.
func (x *explorer) promises(d *disk) string {
	var broken string
	x.eachCut(d, func(n *disk) bool {
		if x.cfg.Flips {
			broken = x.flips(n)
		}
		if broken == "" {
			broken = x.recovered(d, n)
		}
		return broken == ""
	})
	return broken
}

// recovered is the first open, undisturbed, and what must be true after it.
func (x *explorer) recovered(d, n *disk) string {
	f := &n.ring[n.dir]
	b := best(&f.slot)
	if b < 0 {
		return "after a cut there is no valid slot"
	}
	var ids [maxCells]uint8
	end, _, k := x.scan(n, &f.cell, f.slot[b], &ids)
	if x.on(DurableHint) && x.alarm(n, &f.cell, end) {
		return "after a cut the ring looks damaged: past its end is an entry that knew of more"
	}
	for _, id := range ids[:k] {
		if why := n.restore(id); why != "" {
			return "after a cut " + why
		}
	}
	var have uint8
	for sess := range n.log {
		l := n.logOf(uint8(sess))
		if l == nil {
			continue
		}
		mask, why := n.proofread(uint8(sess), l)
		if why != "" {
			return "after a cut " + why
		}
		have |= mask
	}
	for sess := range n.log {
		l := n.logOf(uint8(sess))
		if d.deleted&bit(uint8(sess)) != 0 && (l == nil || l.size == 0 || n.ent[l.line[l.size-1]].kind != kindTombstone) {
			return fmt.Sprintf("after a cut deleted session %d is not deleted", sess)
		}
	}
	if stored := have & d.denied; stored != 0 {
		return fmt.Sprintf("after a cut entry %d, which was answered as not stored, is there", lowest(stored))
	}
	have |= d.excused()
	for _, owed := range []struct {
		mask uint8
		what string
	}{{d.acked, "acknowledged"}, {d.relied, "relied on by an answer"}, {d.seen, "seen by a reader"}} {
		if lost := owed.mask &^ have; lost != 0 {
			return fmt.Sprintf("after a cut entry %d, %s, is gone", lowest(lost), owed.what)
		}
	}
	return ""
}

// excused are the entries whose lines a prune may have removed.
func (d *disk) excused() uint8 {
	var mask uint8
	for id := uint8(1); id <= d.lastID; id++ {
		if e := &d.ent[id]; e.kind == kindData && d.pruned&bit(e.sess) != 0 {
			mask |= bit(id)
		}
	}
	return mask
}

// restore applies one entry after a cut.
func (n *disk) restore(id uint8) string {
	e := &n.ent[id]
	if e.kind == kindPad {
		return ""
	}
	l := n.logOf(e.sess)
	if l == nil {
		n.log[e.sess] = sessionLog{dir: 1}
		l = n.logOf(e.sess)
	}
	off := e.seq - 1
	switch {
	case l.size < off:
		return fmt.Sprintf("there is a gap in log %d before entry %d", e.sess, id)
	case l.size == off:
		l.size++
	case l.line[off] != id && l.line[off] != 0 && l.line[off] != id|part:
		return fmt.Sprintf("log %d has %d where the ring has entry %d", e.sess, l.line[off], id)
	}
	l.line[off] = id
	return ""
}

// proofread checks one log from the first line to the last and returns the
// entries in it.
func (n *disk) proofread(sess uint8, l *logFile) (mask uint8, why string) {
	var grant, keys uint8
	if l.size == 1 && n.pruned&bit(sess) != 0 && n.ent[l.line[0]&^part].kind == kindTombstone {
		return bit(l.line[0]), ""
	}
	for i, id := range l.line[:l.size] {
		if id == 0 || id&part != 0 {
			return mask, fmt.Sprintf("line %d of log %d is torn or NUL for good", i+1, sess)
		}
		e := &n.ent[id]
		var prev uint8
		if i > 0 {
			prev = l.line[i-1]
		}
		switch {
		case mask&bit(id) != 0:
			why = "is there twice"
		case e.sess != sess || int(e.seq) != i+1 || e.lprev != prev:
			why = "does not belong there"
		case e.key != 0 && keys&bit(e.key) != 0:
			why = "has a key that was stored before"
		case prev != 0 && n.ent[prev].kind == kindTombstone:
			why = "stands behind a tombstone"
		case e.grant != 0 && e.grant != grant:
			why = "was written under a grant that is not the current one"
		}
		if why != "" {
			return mask, fmt.Sprintf("line %d of log %d, entry %d, %s", i+1, sess, id, why)
		}
		switch e.kind {
		case kindGrant:
			grant = id
		case kindRelease:
			grant = 0
		}
		mask |= bit(id)
		if e.key != 0 {
			keys |= bit(e.key)
		}
	}
	return mask, ""
}

// flips damages each entry of the ring in turn. If a later entry in the ring
// was written after that entry had been acknowledged, the damage must not pass
// for the end of the ring.
func (x *explorer) flips(n *disk) string {
	f := &n.ring[n.dir]
	b := best(&f.slot)
	if b < 0 {
		return ""
	}
	var ids [maxCells]uint8
	_, _, k := x.scan(n, &f.cell, f.slot[b], &ids)
	for i, id := range ids[:k] {
		witness := false
		for _, later := range ids[i+1 : k] {
			witness = witness || n.ent[later].after&bit(id) != 0
		}
		if !witness {
			continue
		}
		cells := f.cell
		cells[n.ent[id].pos%uint8(x.cfg.Cells)] = garbage
		end, _, _ := x.scan(n, &cells, f.slot[b], &ids)
		if !x.on(DurableHint) || !x.alarm(n, &cells, end) {
			return fmt.Sprintf("a flipped bit in acknowledged entry %d passes for the end of the log", id)
		}
	}
	return ""
}
