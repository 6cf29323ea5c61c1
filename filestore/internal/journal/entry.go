package journal

import (
	"encoding/binary"

	"hansard/filestore/internal/crc32c"
)

// An entry as bytes: a header of 120 bytes, little-endian, then the payload, then
// zeros up to a multiple of 8.
//
//	  0  magic c7 'H' 'J' 'E'
//	  4  hcrc u32       of bytes 8–119
//	  8  salt u64       of the journal file
//	 16  pos u64        where it begins
//	 24  prev u64       chain of the entry before
//	 32  dhint u64      a position that was durable when it was written
//	 40  epoch u64
//	 48  uid u64        of the log
//	 56  off u64        where its lines go in the log
//	 64  last u64       seq of its last line
//	 72  meta u64       offset in the log of the newest patch, after these lines
//	 80  turned u64     the same for the newest line of kind turn
//	 88  payload u64    bytes that follow the header
//	 96  lprev u32      crc of the line before its lines
//	100  lcrc u32       crc of its last line
//	104  name length u16
//	106  kind u8        1 data, 2 padding
//	107  takes away u8  1: its last line is a tombstone; 2: it has a line that redacts others
//	108  4 zeros
//	112  pcrc u32       of the payload
//	116  4 zeros
//	120  name of the log, then its lines
//
// Why so many identifying fields: the ring is reused, and an old lap's entry that happens
// to begin where a new one ends has the right magic and the right checksums. pos, prev and
// epoch tell it from the new lap's entries, the salt from those of another journal (planted
// bug "no chain").

// Entry is one session's lines of one group commit. One entry per session and group, not
// per batch: one header, one comparison and one write to the log serve all of them.
//
// An entry from Scan shares its Lines with the buffer of the scan, and must not be
// changed.
type Entry struct {
	Pos         uint64 // where it begins
	Prev        uint64 // chain of the entry before
	DurableHint uint64 // a position that was durable when this was written
	Epoch       uint64
	UID         uint64 // of the log
	Offset      int64  // where its bytes go in the log
	Kind        byte
	Deletes     bool // the last line is a tombstone
	Redacts     bool // one of the lines records a redaction
	// LinePrev and LineCRC are the crc of the line before and of the last line, LastSeq
	// is the last seq, MetaAt and TurnAt are the offsets of the newest line with a patch
	// and of the newest line about the turn. That is enough to append after the entry
	// without reading its lines, unless the turn itself is needed. LinePrev is also what
	// apply compares before it writes to the log.
	LinePrev, LineCRC uint32
	LastSeq           uint64
	MetaAt            int64
	TurnAt            int64
	Name              string
	Lines             []byte // the lines; of a PAD, nil
	Padded            uint64 // length of a PAD's filling

	// HeaderCRC and PayloadCRC are set by AppendTo and DecodeEntry; together they are the
	// chain.
	HeaderCRC, PayloadCRC uint32
}

// The bits of byte 107: how an entry removes content.
const (
	deletes = 1 << iota
	redacts
)

// Length is how many bytes of the ring the entry takes, alignment included. A PAD has no
// alignment of its own: its length is chosen so that it ends where the ring does.
func (e *Entry) Length() uint64 {
	if e.Kind == KindPad {
		return EntryHeader + e.Padded
	}
	return RoundUp(EntryHeader+uint64(len(e.Name))+uint64(len(e.Lines)), EntryAlign)
}

// End is the position after the entry, where the next one goes unless Place skips ahead.
func (e *Entry) End() uint64 { return e.Pos + e.Length() }

// Chain identifies the entry and, because prev in its header is the chain of the entry
// before, all entries before it. A slot carries the chain at its start so that the first
// entry is checked like any other.
func (e *Entry) Chain() uint64 { return uint64(e.HeaderCRC)<<32 | uint64(e.PayloadCRC) }

// AppendTo appends the encoded entry to dst and fills in its checksums. Pos, Prev, Epoch
// and DurableHint must already be set: the header's checksum covers them.
func (e *Entry) AppendTo(dst []byte, salt uint64) []byte {
	begin := len(dst)
	dst = append(dst, make([]byte, EntryHeader)...)
	dst = append(dst, e.Name...)
	dst = append(dst, e.Lines...)
	h := dst[begin : begin+EntryHeader]
	le := binary.LittleEndian
	payload := uint64(len(e.Name) + len(e.Lines))
	if e.Kind == KindPad {
		// The filling is not written, so a PAD costs one header, however long it is. Nothing
		// reads the filling, and its checksum is 0.
		payload = e.Padded
		e.PayloadCRC = 0
	} else {
		e.PayloadCRC = crc32c.Sum(dst[begin+EntryHeader:])
	}
	copy(h, EntryMagic[:])
	for i, v := range []uint64{salt, e.Pos, e.Prev, e.DurableHint, e.Epoch, e.UID, uint64(e.Offset), e.LastSeq, uint64(e.MetaAt), uint64(e.TurnAt), payload} {
		le.PutUint64(h[8+8*i:], v)
	}
	le.PutUint32(h[96:], e.LinePrev)
	le.PutUint32(h[100:], e.LineCRC)
	le.PutUint16(h[104:], uint16(len(e.Name)))
	h[106] = e.Kind
	if e.Deletes {
		h[107] |= deletes
	}
	if e.Redacts {
		h[107] |= redacts
	}
	le.PutUint32(h[112:], e.PayloadCRC)
	// Last, because it covers everything after itself, pcrc included: so the chain covers
	// the payload through the header as well.
	e.HeaderCRC = crc32c.Sum(h[8:])
	le.PutUint32(h[4:], e.HeaderCRC)
	if e.Kind == KindPad {
		return dst
	}
	// The alignment is written as zeros and is not covered by a checksum.
	return append(dst, make([]byte, int(e.Length())-(len(dst)-begin))...)
}

// DecodeEntry decodes the header of an entry expected at pos in a journal with this salt;
// payload is how many bytes follow it. Not ok is the normal end of a ring: old bytes,
// zeros, or a half-written header.
//
// It proves that the header is as it was written. It does not prove that the entry belongs
// there: the caller has to check chain, epoch, length and the payload's checksum (see
// entryAt). payload may be larger than the ring.
func DecodeEntry(h []byte, salt, pos uint64) (e *Entry, payload uint64, ok bool) {
	e = &Entry{}
	payload, ok = e.decode(h, salt, pos)
	return e, payload, ok
}

// decode is DecodeEntry into existing memory. If it is not ok, e must not be used.
func (e *Entry) decode(h []byte, salt, pos uint64) (payload uint64, ok bool) {
	le := binary.LittleEndian
	if len(h) < EntryHeader || [4]byte(h[:4]) != EntryMagic || le.Uint64(h[8:]) != salt || le.Uint64(h[16:]) != pos {
		return 0, false
	}
	if crc32c.Sum(h[8:EntryHeader]) != le.Uint32(h[4:]) {
		return 0, false
	}
	payload = le.Uint64(h[88:])
	*e = Entry{
		HeaderCRC: le.Uint32(h[4:]), Pos: pos, Prev: le.Uint64(h[24:]), DurableHint: le.Uint64(h[32:]), Epoch: le.Uint64(h[40:]),
		UID: le.Uint64(h[48:]), Offset: int64(le.Uint64(h[56:])), LastSeq: le.Uint64(h[64:]),
		MetaAt: int64(le.Uint64(h[72:])), TurnAt: int64(le.Uint64(h[80:])),
		LinePrev: le.Uint32(h[96:]), LineCRC: le.Uint32(h[100:]), Kind: h[106], Deletes: h[107]&deletes != 0, Redacts: h[107]&redacts != 0,
		PayloadCRC: le.Uint32(h[112:]),
	}
	if e.Kind == KindPad {
		e.Padded = payload
	}
	// An unknown kind ends the ring, like anything else that is not an entry: a new kind
	// needs an incompat bit in the slot.
	nameLen := uint64(nameLength(h))
	return payload, (e.Kind == KindData && nameLen > 0 && nameLen <= payload) || e.Kind == KindPad
}

// nameLength is how many bytes of an entry's payload are the name of its log.
func nameLength(h []byte) int { return int(binary.LittleEndian.Uint16(h[104:])) }
