package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"hansard/filestore/internal/crc32c"
	"hansard/internal/vfs"
)

// Slot says where the ring starts. There are two, each in its own block, and the valid one
// with the highest HSeq counts: while one is being written the other is untouched, so a
// power cut at any moment leaves one intact.
//
//	 0  magic "HANSJRN\n"
//	 8  format u32
//	12  incompat u32
//	16  store u64
//	24  salt u64
//	32  size u64
//	40  hseq u64
//	48  epoch u64
//	56  start u64
//	64  start chain u64
//	72  clean u8, then zeros
//	92  crc u32 of the 92 bytes before it
//
// Slots are written only under write.lock (SlotUnderLock), over the one that is not known
// to be durable (SlotChoice); the space before Start is free only once the new slot has
// been synced and published (HeaderBeforeStart). checkpoint.go has that sequence.
type Slot struct {
	Incompat   uint32 // feature bits that a reader must know to understand the ring
	StoreID    uint64 // random, chosen when the store was created
	Salt       uint64 // random, one per journal: a rotation keeps it, a repair does not
	Size       uint64 // of the ring
	HSeq       uint64 // counts slot writes: which slot is newer
	Epoch      uint64 // counts recoveries and rotations
	Start      uint64 // everything before this position is durable in the logs
	StartChain uint64 // chain of the entry that ends at Start: the first entry's prev
	Clean      bool   // written by the last process to leave: nothing follows Start
}

// Next is the slot to be written after this one. All of it stays except what the caller
// changes: the entries need the same features (Incompat) as before. Clean does not stay.
func (s *Slot) Next() Slot {
	next := *s
	next.HSeq++
	next.Clean = false
	return next
}

// Encode is the slot as bytes, with its checksum.
func (s *Slot) Encode() []byte {
	b := make([]byte, SlotUsed)
	copy(b, SlotMagic[:])
	le := binary.LittleEndian
	le.PutUint32(b[8:], journalFormat)
	le.PutUint32(b[12:], s.Incompat)
	for i, v := range []uint64{s.StoreID, s.Salt, s.Size, s.HSeq, s.Epoch, s.Start, s.StartChain} {
		le.PutUint64(b[16+8*i:], v)
	}
	if s.Clean {
		b[72] = 1
	}
	le.PutUint32(b[SlotUsed-4:], crc32c.Sum(b[:SlotUsed-4]))
	return b
}

// DecodeSlot decodes SlotUsed bytes. Not ok: the slot was never written, or was torn by a
// crash; then the other one counts.
func DecodeSlot(b []byte) (s Slot, ok bool) {
	le := binary.LittleEndian
	if [8]byte(b[:8]) != SlotMagic || le.Uint32(b[SlotUsed-4:]) != crc32c.Sum(b[:SlotUsed-4]) {
		return s, false
	}
	s.Incompat = le.Uint32(b[12:])
	if le.Uint32(b[8:]) != journalFormat {
		// Another format, which this program can't read. It is not called invalid: an older
		// slot would count instead, and its ring would be overwritten.
		s.Incompat |= 1 << 31
	}
	for i, p := range []*uint64{&s.StoreID, &s.Salt, &s.Size, &s.HSeq, &s.Epoch, &s.Start, &s.StartChain} {
		*p = le.Uint64(b[16+8*i:])
	}
	s.Clean = b[72] == 1
	// The rest of the package divides by Size and steps by EntryAlign.
	return s, s.Size >= 4*EntryHeader && s.Size%EntryAlign == 0
}

// ReadSlots reads both slots and returns which one counts, -1 if neither is valid. A slot
// that is not valid is returned as zeros. A file too short for a slot has none; any other
// read error is an error, because it may hide the newer slot, and the older one's start may
// lie in space that has been reused since.
func ReadSlots(f vfs.File) (slots [2]Slot, valid [2]bool, best int, err error) {
	best = -1
	for i := range slots {
		b := make([]byte, SlotUsed)
		if _, err := f.ReadAt(b, int64(i)*SlotBytes); err != nil {
			if errors.Is(err, io.EOF) {
				continue
			}
			return slots, valid, -1, fmt.Errorf("read journal slot: %w", err)
		}
		if slots[i], valid[i] = DecodeSlot(b); !valid[i] {
			slots[i] = Slot{}
		}
		// HSeq alone decides. The highest one may not be durable yet, which is harmless after a
		// crash: what was read can be written back and synced.
		if valid[i] && (best < 0 || slots[i].HSeq > slots[best].HSeq) {
			best = i
		}
	}
	return slots, valid, best, nil
}

// DurableSlot is the slot that live processes know to be on disk: the one whose start was
// published in W, which happens only after its sync. The other one may be newer, but
// written by a checkpoint that has not synced it yet, or was killed before it could.
// Overwriting the durable one could leave a power cut with no valid slot (SlotChoice).
// Scans begin at its start too, so that they agree with W.
//
// best comes from ReadSlots, start and epoch from W, all read under write.lock. If neither
// slot has the published start, best is the answer.
func DurableSlot(slots [2]Slot, best int, start, epoch uint64) int {
	if o := slots[1-best]; slots[best].Start != start && o.Size > 0 && o.Start == start && o.Epoch == epoch {
		return 1 - best
	}
	return best
}

// LeftClean tells whether the last process to leave recorded that the ring is empty, so
// that the next open need not read it.
//
// The other slot must be valid as well, and older. An unreadable one may be the newer,
// written by a process that has since opened the store and put entries into the ring: then
// "clean" is stale.
func LeftClean(slots [2]Slot, best int) bool {
	return slots[best].Clean && slots[1-best].HSeq > 0 && slots[1-best].HSeq < slots[best].HSeq
}
