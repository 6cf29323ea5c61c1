package model

// What a process remembers about the sessions between two critical sections.
// Most configurations read log and ring again each time instead.

// forget drops the caches.
func (p *proc) forget() {
	p.cached, p.cursor = 0, 0
	p.cacheSeq, p.cacheLast = [maxLogs]uint8{}, [maxLogs]uint8{}
}

// remember brings the caches up to written. [read entry headers [my cursor,
// written) → caches and pending; cursor < start or other epoch → drop all
// caches first]
func (x *explorer) remember(n *State, p *proc) {
	if !x.cfg.Caches {
		return
	}
	if x.on(CacheStart) && p.cursor < n.w.start {
		p.forget()
	}
	if p.cached == 0 {
		for sess := range uint8(maxLogs) {
			v := x.viewOf(n, p, sess, 0, n.lastID+1)
			p.cacheSeq[sess], p.cacheLast[sess] = v.seq, v.last
		}
		p.cached, p.cursor = 1, p.written
		return
	}
	f := n.journal(p)
	for p.cursor < p.written {
		id := x.at(&n.disk, &f.cell, p.cursor)
		if id == 0 || n.ent[id].pos != p.cursor {
			p.cursor++ // freed and reused: the entry that was here is missed
			continue
		}
		p.note(n, id)
	}
}

// rememberOwn adds the group just written.
func (x *explorer) rememberOwn(n *State, p *proc) {
	if !x.cfg.Caches {
		return
	}
	for id := uint8(1); id < maxIDs; id++ {
		if p.mine&bit(id) != 0 {
			p.note(n, id)
		}
	}
	p.cursor = p.written
}

func (p *proc) note(n *State, id uint8) {
	e := &n.ent[id]
	if e.kind != kindPad {
		p.cacheSeq[e.sess], p.cacheLast[e.sess] = e.seq, id
	}
	p.cursor += e.cells
}
