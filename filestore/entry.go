package filestore

import "encoding/binary"

// What the journal is made of, as bytes: slots and entries.

// slot says where the ring begins. The valid slot with the highest hseq counts,
// so that one is always whole while the other is written.
type slot struct {
	incompat   uint32 // bits of features without which the ring can't be understood
	store      uint64 // random, given to the store when it was made
	salt       uint64 // random, given to the ring file
	size       uint64 // of the ring
	hseq       uint64 // counts slot writes
	epoch      uint64 // counts recoveries and rotations
	start      uint64 // what is before this position is in the logs, durably
	startChain uint64 // chain of the entry that ends at start
	clean      bool   // the last to leave wrote this: nothing is behind start
}

func (s *slot) encode() []byte {
	b := make([]byte, slotUsed)
	copy(b, slotMagic[:])
	le := binary.LittleEndian
	le.PutUint32(b[8:], journalFormat)
	le.PutUint32(b[12:], s.incompat)
	for i, v := range []uint64{s.store, s.salt, s.size, s.hseq, s.epoch, s.start, s.startChain} {
		le.PutUint64(b[16+8*i:], v)
	}
	if s.clean {
		b[72] = 1
	}
	le.PutUint32(b[slotUsed-4:], checksum(b[:slotUsed-4]))
	return b
}

func decodeSlot(b []byte) (s slot, ok bool) {
	le := binary.LittleEndian
	if [8]byte(b[:8]) != slotMagic || le.Uint32(b[slotUsed-4:]) != checksum(b[:slotUsed-4]) {
		return s, false
	}
	s.incompat = le.Uint32(b[12:])
	if le.Uint32(b[8:]) != journalFormat {
		s.incompat |= 1 << 31 // another format: nothing in it is understood
	}
	for i, p := range []*uint64{&s.store, &s.salt, &s.size, &s.hseq, &s.epoch, &s.start, &s.startChain} {
		*p = le.Uint64(b[16+8*i:])
	}
	s.clean = b[72] == 1
	return s, s.size >= 4*entryHeader && s.size%entryAlign == 0
}

// entry is one session's lines of one group commit.
type entry struct {
	pos   uint64 // where it begins
	prev  uint64 // chain of the entry before
	dhint uint64 // a position that was durable when this was written
	epoch uint64
	uid   uint64 // of the log
	off   int64  // where its bytes go in the log
	kind  byte
	del   bool // the last line is a tombstone
	// lprev and lcrc are the crc of the line before and of the last line,
	// last is the last seq, metaAt the line with the newest metadata, turnAt
	// the newest about the turn: enough to append behind it without reading
	// a line, but for the turn's own.
	lprev, lcrc uint32
	last        uint64
	metaAt      int64
	turnAt      int64
	name        string
	bytes       []byte // the lines; of a PAD, nil
	padded      uint64 // length of a PAD's filling

	hcrc, pcrc uint32
	keys       map[string]keySeen // in its lines; nil: not looked at yet
	failed     int                // attempts to write it to its log
	written    bool               // its bytes were just written there
}

// length is what the entry takes of the ring.
func (e *entry) length() uint64 {
	if e.kind == kindPad {
		return entryHeader + e.padded
	}
	return roundUp(entryHeader+uint64(len(e.name))+uint64(len(e.bytes)), entryAlign)
}

func (e *entry) end() uint64 { return e.pos + e.length() }

// chain identifies the entry and, through prev, all before it.
func (e *entry) chain() uint64 { return uint64(e.hcrc)<<32 | uint64(e.pcrc) }

// appendTo encodes the entry and fills in its checksums.
func (e *entry) appendTo(dst []byte, salt uint64) []byte {
	begin := len(dst)
	dst = append(dst, make([]byte, entryHeader)...)
	dst = append(dst, e.name...)
	dst = append(dst, e.bytes...)
	h := dst[begin : begin+entryHeader]
	le := binary.LittleEndian
	payload := uint64(len(e.name) + len(e.bytes))
	if e.kind == kindPad {
		payload = e.padded // not written: whatever was there stays
		e.pcrc = 0
	} else {
		e.pcrc = checksum(dst[begin+entryHeader:])
	}
	copy(h, entryMagic[:])
	for i, v := range []uint64{salt, e.pos, e.prev, e.dhint, e.epoch, e.uid, uint64(e.off), e.last, uint64(e.metaAt), uint64(e.turnAt), payload} {
		le.PutUint64(h[8+8*i:], v)
	}
	le.PutUint32(h[96:], e.lprev)
	le.PutUint32(h[100:], e.lcrc)
	le.PutUint16(h[104:], uint16(len(e.name)))
	h[106] = e.kind
	if e.del {
		h[107] = 1
	}
	le.PutUint32(h[112:], e.pcrc)
	e.hcrc = checksum(h[8:])
	le.PutUint32(h[4:], e.hcrc)
	if e.kind == kindPad {
		return dst
	}
	return append(dst, make([]byte, int(e.length())-(len(dst)-begin))...)
}

// decodeEntry decodes the header of an entry that should stand at pos; payload
// is how many bytes follow it.
func decodeEntry(h []byte, salt, pos uint64) (e *entry, payload uint64, ok bool) {
	le := binary.LittleEndian
	if len(h) < entryHeader || [4]byte(h[:4]) != entryMagic || le.Uint64(h[8:]) != salt || le.Uint64(h[16:]) != pos {
		return nil, 0, false
	}
	e = &entry{hcrc: le.Uint32(h[4:])}
	if checksum(h[8:entryHeader]) != e.hcrc {
		return nil, 0, false
	}
	var off, metaAt, turnAt uint64
	for i, p := range []*uint64{&e.pos, &e.prev, &e.dhint, &e.epoch, &e.uid, &off, &e.last, &metaAt, &turnAt, &payload} {
		*p = le.Uint64(h[16+8*i:])
	}
	e.off, e.metaAt, e.turnAt = int64(off), int64(metaAt), int64(turnAt)
	e.lprev, e.lcrc = le.Uint32(h[96:]), le.Uint32(h[100:])
	e.kind, e.del = h[106], h[107] == 1
	e.pcrc = le.Uint32(h[112:])
	if e.kind == kindPad {
		e.padded = payload
	}
	nameLen := uint64(nameLength(h))
	return e, payload, (e.kind == kindData && nameLen > 0 && nameLen <= payload) || e.kind == kindPad
}

// nameLength is how many bytes of an entry's payload are its session's name.
func nameLength(h []byte) int { return int(binary.LittleEndian.Uint16(h[104:])) }
