package model

// best is the slot that counts, -1 if a cut left none.
func best(slots *[2]slot) int {
	b := -1
	for i, s := range slots {
		if s.ok == 1 && (b < 0 || s.hseq > slots[b].hseq) {
			b = i
		}
	}
	return b
}

func cellOf(id, k uint8) uint8 { return id<<1 | k }

// at is the entry whose first cell is at pos and whose cells are all there
// (both checksums right), or 0. It ignores laps and chains.
func (x *explorer) at(d *disk, cells *[maxCells]uint8, pos uint8) uint8 {
	size := uint8(x.cfg.Cells)
	v := cells[pos%size]
	if v == zeros || v == garbage || v&1 != 0 {
		return 0
	}
	id := v >> 1
	n := d.ent[id].cells
	if pos%size+n > size {
		return 0 // readers read an entry in one piece [never straddles the end]
	}
	for k := uint8(1); k < n; k++ {
		if cells[(pos+k)%size] != cellOf(id, k) {
			return 0
		}
	}
	return id
}

// valid is the entry at pos if it may follow the given chain, or 0.
// [valid(e): pos, prev = chain so far, epoch >= the previous one]
func (x *explorer) valid(d *disk, cells *[maxCells]uint8, pos, chain, epoch uint8) uint8 {
	id := x.at(d, cells, pos)
	if id == 0 {
		return 0
	}
	e := &d.ent[id]
	if x.on(Position) && e.pos != pos {
		return 0
	}
	if x.on(Chain) && e.prev != chain {
		return 0
	}
	if x.on(EpochOrder) && e.epoch < epoch {
		return 0
	}
	return id
}

// scan follows the chain from a slot. It returns the end, the chain there and
// how many entries it passed; ids gets them in order.
func (x *explorer) scan(d *disk, cells *[maxCells]uint8, from slot, ids *[maxCells]uint8) (end, chain uint8, n int) {
	end, chain = from.start, from.chain
	epoch := uint8(0)
	limit := from.start + uint8(x.cfg.Cells)
	for n < maxCells {
		id := x.valid(d, cells, end, chain, epoch)
		if id == 0 || end+d.ent[id].cells > limit {
			break
		}
		ids[n] = id
		n++
		chain, epoch = id, d.ent[id].epoch
		end += d.ent[id].cells
	}
	return end, chain, n
}

// adopt moves written over the complete entries of a writer that died before
// it published them. [catchup: while valid(entry at written)]
func (x *explorer) adopt(s *State, p *proc) {
	if !x.on(Adoption) {
		return
	}
	f := s.journal(p)
	for {
		epoch := s.ent[p.chain].epoch
		id := x.valid(&s.disk, &f.cell, p.written, p.chain, epoch)
		if id == 0 || p.written+s.ent[id].cells-s.w.start > uint8(x.cfg.Cells) {
			return
		}
		p.written += s.ent[id].cells
		p.chain = id
	}
}

// whole says that the chain from slot.start reaches written. It does not if a
// page lost by a failed sync was evicted. [rule A: check the chain up to
// written, broken → rotate]
func (x *explorer) whole(s *State, p *proc, written uint8) bool {
	f := s.journal(p)
	b := x.durableSlot(s, f)
	if b < 0 {
		return false
	}
	var ids [maxCells]uint8
	end, _, _ := x.scan(&s.disk, &f.cell, f.slot[b], &ids)
	return end >= written
}

// alarm says that the ring past end holds an entry that was written when more
// than that was already durable: damage, not the end.
// [open: a later entry with this salt and dhint > E means damage]
func (x *explorer) alarm(d *disk, cells *[maxCells]uint8, end uint8) bool {
	for c := uint8(0); c < uint8(x.cfg.Cells); c++ {
		id := x.at(d, cells, c)
		if id != 0 && d.ent[id].pos >= end && d.ent[id].hint > end {
			return true
		}
	}
	return false
}
