package filestore

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"
)

// salvage is what can still be read of a damaged journal. Nothing in it is taken
// for more than it says: an entry counts if it is valid by itself, and what is
// left of one that is not goes to aside/, where the session it belongs to is
// reported as damaged. Whether a whole entry belongs to its log is decided later,
// by apply, as for every other entry.
type salvage struct {
	ring  []byte // as much of it as there is
	slot  slot   // the newest that is valid
	valid bool   // there is one: it tells the salt, the size and the start
	epoch uint64 // the highest seen
	hseq  uint64
	usual uint64 // size of a ring that does not tell its own
	end   uint64 // of the last entry

	found []fragment // in the order they were written, without padding
	// unreadable is how many bytes between them do not tell whose they were.
	unreadable uint64
}

// pcrcAt is where an entry's header has the checksum of its payload.
const pcrcAt = entryHeader - 8

// lostAt is the offset of lines that are not whole, in a repaired journal: no log
// is that long, so that applying them sets them aside.
const lostAt = 1 << 60

// fragment is an entry, or what is left of one: a valid header and a damaged
// payload, or text behind a damaged header.
type fragment struct {
	*entry
	at     int    // in the ring's bytes
	size   uint64 // of its payload
	lines  int64  // of it without the name
	header bool   // is valid
	whole  bool   // and so is the payload
	sure   bool   // of text: it has the checksum that the damaged header says
}

// salvageFrom reads the whole file of a journal.
func salvageFrom(file []byte, slots [2]slot, valid [2]bool, best int, usual uint64) *salvage {
	v := &salvage{valid: best >= 0, usual: usual}
	if len(file) > ringAt {
		v.ring = file[ringAt:]
	}
	for i, ok := range valid {
		if ok {
			v.epoch, v.hseq = max(v.epoch, slots[i].epoch), max(v.hseq, slots[i].hseq)
		}
	}
	if v.valid {
		v.slot = slots[best]
	}
	v.end = v.slot.start
	if whole := v.size(); whole > uint64(len(v.ring)) {
		v.unreadable = whole - uint64(len(v.ring))
	}
	v.read(v.inOrder(v.fragments()))
	return v
}

// fragments finds the headers that are valid by themselves. With a slot they have
// its salt, stand where they say and are not before its start: what is, is in the
// logs. Without one the entries speak for themselves: the ring was made of zeros,
// so whatever is in it was written to it, and what went to the logs long ago is
// found there again.
func (v *salvage) fragments() (found []fragment) {
	le := binary.LittleEndian
	for at := 0; at+entryHeader <= len(v.ring); at += entryAlign {
		h := v.ring[at : at+entryHeader]
		if [4]byte(h[:4]) != entryMagic {
			continue
		}
		salt, pos := le.Uint64(h[8:]), le.Uint64(h[16:])
		if v.valid && (salt != v.slot.salt || pos < v.slot.start || pos%v.slot.size != uint64(at)) {
			continue
		}
		e, size, ok := decodeEntry(h, salt, pos)
		if !ok || size > 1<<40 {
			continue
		}
		f := fragment{entry: e, at: at, size: size, header: true, whole: e.kind == kindPad}
		if b := v.payload(&f); e.kind == kindData {
			f.whole = uint64(len(b)) == size && checksum(b) == e.pcrc
			n := nameLength(h)
			f.lines = int64(size) - int64(n)
			n = min(n, len(b))
			f.name, f.bytes = string(b[:n]), b[n:]
		}
		found = append(found, f)
	}
	return found
}

// payload is as much of a fragment's payload as there is.
func (v *salvage) payload(f *fragment) []byte {
	from := f.at + entryHeader
	return v.ring[from:min(uint64(len(v.ring)), uint64(from)+f.size)]
}

// endOf is where a fragment ended when it was whole.
func (f *fragment) endOf() uint64 { return f.pos + roundUp(entryHeader+f.size, entryAlign) }

// inOrder sorts what was found and drops what was never part of the ring's story:
// left by a writer that died, and not overwritten since. It does not follow the
// entry it stands behind, or its epoch is older than that of one before it.
func (v *salvage) inOrder(found []fragment) (kept []fragment) {
	slices.SortFunc(found, func(a, b fragment) int { return cmp.Compare(a.pos, b.pos) })
	if v.valid && len(found) > 0 {
		// What padding covers may be older than a lap.
		last := found[len(found)-1].endOf()
		found = slices.DeleteFunc(found, func(f fragment) bool { return f.pos+v.slot.size < last })
	}
	never := map[uint64]bool{} // chains of what was dropped
	epoch, end, chain := uint64(0), v.slot.start, v.slot.startChain
	for _, f := range found {
		behind := (v.valid || len(kept) > 0) && f.pos == v.place(end)
		if f.pos < end || f.epoch < epoch || never[f.prev] || behind && f.prev != chain {
			never[f.chain()] = true
			continue
		}
		epoch, end, chain = f.epoch, f.endOf(), f.chain()
		kept = append(kept, f)
	}
	v.epoch = max(v.epoch, epoch)
	return kept
}

// size is that of the ring; of one without a slot, as far as can be told.
func (v *salvage) size() uint64 {
	if v.valid {
		return v.slot.size
	}
	return max(uint64(len(v.ring))/entryAlign*entryAlign, v.usual)
}

// place is where an entry that would begin at pos really begins.
func (v *salvage) place(pos uint64) uint64 { return (&ring{size: v.size()}).place(pos) }

// read goes through the fragments and what is between them.
func (v *salvage) read(kept []fragment) {
	end, chain := v.slot.start, v.slot.startChain
	if !v.valid && len(kept) > 0 {
		end = kept[0].pos
	}
	for _, f := range kept {
		for from := v.place(end); from < f.pos; {
			// An entry does not straddle the end of the ring.
			to := min(f.pos, roundUp(from+1, v.size()))
			v.unreadable += to - from - v.leftovers(from, to, true)
			from = to
		}
		if f.kind == kindData {
			v.found = append(v.found, f)
		}
		end, chain = f.endOf(), f.chain()
		v.end = max(v.end, end)
	}
	// Behind the last one there may be one more that was damaged, or whatever an
	// earlier lap left there.
	if from := v.place(end); v.valid && v.looksWritten(from, chain) {
		v.leftovers(from, roundUp(from+1, v.size()), false)
	}
}

// leftovers looks for entries without a valid header in [from, to): the first
// stands at its beginning, or behind probes, which are headers and nothing else; or
// none does. It tells how many bytes are accounted for.
func (v *salvage) leftovers(from, to uint64, probes bool) (known uint64) {
	at := from % v.size()
	stop := min(at+to-from, uint64(len(v.ring)))
	for begin := at; at+entryHeader < stop; {
		name, lines := textOf(v.ring[at+entryHeader : stop])
		if name == "" {
			if !probes {
				break
			}
			at += entryHeader
			continue
		}
		e := &entry{kind: kindData, pos: from + at - begin, name: name, bytes: lines}
		f := fragment{entry: e, at: int(at), size: uint64(len(name) + len(lines))}
		f.sure = checksum(v.payload(&f)) == binary.LittleEndian.Uint32(v.ring[at+pcrcAt:])
		v.found = append(v.found, f)
		at += e.length()
		known += min(at, stop) - uint64(f.at)
		v.end = max(v.end, from+at-begin)
	}
	return known
}

// textOf reads a payload whose length is not known: a log's name and lines. Neither
// has a NUL, nor the magic of an entry, which is no UTF-8.
func textOf(b []byte) (name string, lines []byte) {
	if i := bytes.Index(b, entryMagic[:]); i >= 0 {
		b = b[:i]
	}
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	i := bytes.IndexByte(b, '{')
	if i < 0 || !bytes.HasPrefix(b[i:], []byte(`{"seq":`)) && !bytes.HasPrefix(b[i:], []byte(`{"hansard":`)) {
		return "", nil
	}
	if _, ok := decodeName(string(b[:i])); !ok {
		return "", nil
	}
	return string(b[:i]), b[i:]
}

// looksWritten tells whether a header that is not valid was one of an entry here:
// most of what is known of it beforehand is right.
func (v *salvage) looksWritten(pos, chain uint64) bool {
	at, le := pos%v.size(), binary.LittleEndian
	if at+entryHeader > uint64(len(v.ring)) {
		return false
	}
	h, right := v.ring[at:at+entryHeader], 0
	for _, ok := range []bool{[4]byte(h[:4]) == entryMagic, le.Uint64(h[8:]) == v.slot.salt, le.Uint64(h[16:]) == pos, le.Uint64(h[24:]) == chain} {
		if ok {
			right++
		}
	}
	return right >= 3
}

// content is the ring of a new journal with these entries.
func content(entries []*entry, sl *slot) []byte {
	var b []byte
	pos, chain := sl.start, sl.startChain
	for _, e := range entries {
		c := *e
		c.pos, c.prev, c.epoch, c.dhint = pos, chain, sl.epoch, sl.start
		b = c.appendTo(b, sl.salt)
		pos, chain = c.end(), c.chain()
	}
	return b
}

// newSlot begins a journal of its own: a new salt, an epoch and positions higher
// than all that were seen, and room for the entries.
func (v *salvage) newSlot(entries []*entry, random uint64) *slot {
	sl := &slot{store: v.slot.store, salt: random, size: v.size(), hseq: v.hseq + 1, epoch: v.epoch + 1}
	if !v.valid {
		sl.store = random
	}
	total := uint64(0)
	for _, e := range entries {
		total += e.length()
		for e.length() > sl.size/2 {
			sl.size *= 2
		}
	}
	for total > sl.size {
		sl.size *= 2
	}
	sl.start = roundUp(v.end, sl.size)
	return sl
}
