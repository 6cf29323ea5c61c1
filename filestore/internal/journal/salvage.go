package journal

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"

	"hansard/filestore/internal/crc32c"
)

// What can be read of a damaged journal, for repair --journal (repairjournal.go;
// FORMAT.md, D1 to D5). The order of the steps:
//
//	ReadSalvage   slots, size
//	  fragments   every header that is valid by itself, wherever it is (D2)
//	  inOrder     sorted by position, minus entries that were never part of the ring (D3)
//	  read        the gaps between them, and what follows the last
//	  leftovers   names and lines in those gaps, under damaged headers (D4)
//	NewSlot       a slot for a new journal that holds what was found (D5)
//
// It works on the file's bytes in memory and writes nothing.

// Salvage is what can still be read of a damaged journal. Nothing is trusted beyond what it
// proves: an entry counts if it is valid by itself; the remains of an invalid one go to
// aside/, and its session is reported as damaged. Whether an intact entry belongs to its
// log is decided later, by apply, as for every other entry: a stale entry that gets this
// far is compared with the log and does no harm.
type Salvage struct {
	ring  []byte // as much of it as the file has
	slot  Slot   // the newest that is valid
	valid bool   // slot is set: it gives the salt, the size and the start
	Epoch uint64 // the highest one seen, in slots or entries
	HSeq  uint64 // the highest one seen in a valid slot
	usual uint64 // size of the ring if no slot gives it
	// isName tells whether a session may have this name. It is passed in, because this
	// package must not know about sessions.
	isName func(string) bool
	end    uint64 // end of the last entry found: the new journal begins past it

	Found []Fragment // in the order they were written, without padding
	// Unreadable is how many bytes between them can't be attributed to any log.
	Unreadable uint64
}

// pcrcAt is the offset of the payload's checksum in an entry's header.
const pcrcAt = EntryHeader - 8

// LostAt is the log offset that a repaired journal gives to incomplete lines. No log is
// that long, so apply finds the log too short and sets them aside (J3); they need no code
// path of their own.
const LostAt = 1 << 60

// Fragment is an entry, or what is left of one. What is set depends on what survived:
//
//	Header  Whole
//	true    true    a valid entry
//	true    false   a valid header, a damaged or truncated payload
//	false   false   a name and lines after a damaged header: only Name, Lines, Pos
type Fragment struct {
	*Entry
	At        int    // where it begins in the ring's bytes
	Size      uint64 // of its payload: as the header says, or as far as there is text
	LineBytes int64  // of the payload without the name
	Header    bool   // the header is valid
	Whole     bool   // the payload is, too
	Sure      bool   // without Header: it matches the checksum in the damaged header
}

// ReadSalvage looks through all bytes of a journal file. slots, valid and best come from
// ReadSlots; usual is the ring size to assume if no slot gives one.
func ReadSalvage(file []byte, slots [2]Slot, valid [2]bool, best int, usual uint64, isName func(string) bool) *Salvage {
	v := &Salvage{valid: best >= 0, usual: usual, isName: isName}
	// The file may be shorter than two slots: then nothing is found.
	if len(file) > RingAt {
		v.ring = file[RingAt:]
	}
	for i, ok := range valid {
		if ok {
			v.Epoch, v.HSeq = max(v.Epoch, slots[i].Epoch), max(v.HSeq, slots[i].HSeq)
		}
	}
	if v.valid {
		v.slot = slots[best]
	}
	v.end = v.slot.Start
	// Content cut off the end of the file can't be told from space that was never written.
	if whole := v.size(); whole > uint64(len(v.ring)) {
		v.Unreadable = whole - uint64(len(v.ring))
	}
	v.read(v.inOrder(v.fragments()))
	return v
}

// fragments finds the headers that are valid by themselves, in steps of 8.
//
// With a slot, they must have its salt, be at the position they name, and not lie before
// its start: earlier entries are durable in the logs, and old laps are full of them.
// Without a slot the entries speak for themselves: the ring was made of zeros, so whatever
// is in it was written to it, and apply recognises entries that reached the logs long ago.
func (v *Salvage) fragments() (found []Fragment) {
	le := binary.LittleEndian
	for at := nextMagic(v.ring, 0); at >= 0 && at+EntryHeader <= len(v.ring); at = nextMagic(v.ring, at+EntryAlign) {
		h := v.ring[at : at+EntryHeader]
		salt, pos := le.Uint64(h[8:]), le.Uint64(h[16:])
		if v.valid && (salt != v.slot.Salt || pos < v.slot.Start || pos%v.slot.Size != uint64(at)) {
			continue
		}
		e, size, ok := DecodeEntry(h, salt, pos)
		// The bound keeps the sums below from overflowing; no entry is that long.
		if !ok || size > 1<<40 {
			continue
		}
		f := Fragment{Entry: e, At: at, Size: size, Header: true, Whole: e.Kind == KindPad}
		if b := v.payload(&f); e.Kind == KindData {
			f.Whole = uint64(len(b)) == size && crc32c.Sum(b) == e.PayloadCRC
			n := nameLength(h)
			f.LineBytes = int64(size) - int64(n)
			// The payload may be truncated within the name.
			n = min(n, len(b))
			f.Name, f.Lines = string(b[:n]), b[n:]
		}
		found = append(found, f)
	}
	return found
}

// payload is as much of a fragment's payload as the file has.
func (v *Salvage) payload(f *Fragment) []byte {
	from := f.At + EntryHeader
	return v.ring[from:min(uint64(len(v.ring)), uint64(from)+f.Size)]
}

// endOf is where a fragment ended when it was intact. Not Entry.End, which would count only
// the Lines that are left.
func (f *Fragment) endOf() uint64 { return f.Pos + RoundUp(EntryHeader+f.Size, EntryAlign) }

// inOrder sorts what was found by position and drops entries that were never part of the
// ring's content: left by a writer that died, never adopted, and not overwritten since.
// Such an entry is valid by itself, but it does not chain to the entry before it, or
// follows one that was dropped, or has an older epoch than one before it (D3,
// TestSalvageNever). Its seqs have since been given to another batch, so apply would set it
// aside and a sound session would be called damaged.
//
// Whatever comes after a gap is kept: what it followed can't be known.
func (v *Salvage) inOrder(found []Fragment) (kept []Fragment) {
	slices.SortFunc(found, func(a, b Fragment) int { return cmp.Compare(a.Pos, b.Pos) })
	if v.valid && len(found) > 0 {
		// Padding does not overwrite what it covers: a header found inside it may be more
		// than a lap old.
		last := found[len(found)-1].endOf()
		found = slices.DeleteFunc(found, func(f Fragment) bool { return f.Pos+v.slot.Size < last })
	}
	// The chains of what was dropped, so that what follows it goes too.
	never := map[uint64]bool{}
	epoch, end, chain := uint64(0), v.slot.Start, v.slot.StartChain
	for _, f := range found {
		// The expected chain is known only directly after a kept entry, or at the start that a
		// slot names.
		behind := (v.valid || len(kept) > 0) && f.Pos == v.place(end)
		if f.Pos < end || f.Epoch < epoch || never[f.Prev] || behind && f.Prev != chain {
			never[f.Chain()] = true
			continue
		}
		epoch, end, chain = f.Epoch, f.endOf(), f.Chain()
		kept = append(kept, f)
	}
	v.Epoch = max(v.Epoch, epoch)
	return kept
}

// size is the size of the ring; without a slot, it is guessed from the file's length. A
// truncated ring is assumed to have had the usual size.
func (v *Salvage) size() uint64 {
	if v.valid {
		return v.slot.Size
	}
	return max(uint64(len(v.ring))/EntryAlign*EntryAlign, v.usual)
}

// place is where an entry that would begin at pos really begins, see Ring.Place.
func (v *Salvage) place(pos uint64) uint64 { return (&Ring{Size: v.size()}).Place(pos) }

// read fills v.Found: the fragments with data, in order, and between them what leftovers
// finds in the gaps. The rest of the gaps is counted in v.Unreadable, so that the user
// learns how much is gone.
func (v *Salvage) read(kept []Fragment) {
	end, chain := v.slot.Start, v.slot.StartChain
	if !v.valid && len(kept) > 0 {
		end = kept[0].Pos
	}
	for _, f := range kept {
		for from := v.place(end); from < f.Pos; {
			// An entry does not straddle the end of the ring: the parts before and after it are
			// searched separately.
			to := min(f.Pos, RoundUp(from+1, v.size()))
			v.Unreadable += to - from - v.leftovers(from, to, true)
			from = to
		}
		if f.Kind == KindData {
			v.Found = append(v.Found, f)
		}
		end, chain = f.endOf(), f.Chain()
		v.end = max(v.end, end)
	}
	// After the last one there may be one more with a damaged header, or whatever an
	// earlier lap left there. Lines of an old lap must not be reported as lost, so this
	// needs some evidence.
	if from := v.place(end); v.valid && v.looksWritten(from, chain) {
		v.leftovers(from, RoundUp(from+1, v.size()), false)
	}
}

// leftovers looks in [from, to) for entries without a valid header: a name and lines
// where a payload would be. The first one is at the beginning of the range or, if probes is
// set, after any number of probes, which are headers without text
// (TestSalvageBehindProbes). What it finds goes to v.Found; known is how many bytes that
// accounts for.
//
// A header of unknown length is assumed to be followed by text that ends at the first
// NUL: the alignment, or the zeros the ring was made of.
func (v *Salvage) leftovers(from, to uint64, probes bool) (known uint64) {
	at := from % v.size()
	stop := min(at+to-from, uint64(len(v.ring)))
	for begin := at; at+EntryHeader < stop; {
		name, lines := v.textOf(v.ring[at+EntryHeader : stop])
		if name == "" {
			if !probes {
				break
			}
			at += EntryHeader
			continue
		}
		e := &Entry{Kind: KindData, Pos: from + at - begin, Name: name, Lines: lines}
		f := Fragment{Entry: e, At: int(at), Size: uint64(len(name) + len(lines))}
		// The checksum of the payload may have survived in the damaged header. It then
		// proves name and lines, and the length guessed from them.
		f.Sure = crc32c.Sum(v.payload(&f)) == binary.LittleEndian.Uint32(v.ring[at+pcrcAt:])
		v.Found = append(v.Found, f)
		at += e.Length()
		known += min(at, stop) - uint64(f.At)
		v.end = max(v.end, from+at-begin)
	}
	return known
}

// textOf reads a payload whose length is not known: a log's name, then lines. Neither
// contains a NUL or the magic of an entry, which is not UTF-8: the text ends at the first
// of them. Empty: there is no such text. It must begin with a possible name followed by
// what looks like a line, because old bytes are everywhere in a ring.
func (v *Salvage) textOf(b []byte) (name string, lines []byte) {
	if i := bytes.Index(b, EntryMagic[:]); i >= 0 {
		b = b[:i]
	}
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	i := bytes.IndexByte(b, '{')
	if i < 0 || !bytes.HasPrefix(b[i:], []byte(`{"seq":`)) && !bytes.HasPrefix(b[i:], []byte(`{"hansard":`)) {
		return "", nil
	}
	if !v.isName(string(b[:i])) {
		return "", nil
	}
	return string(b[:i]), b[i:]
}

// looksWritten tells whether an invalid header at pos was that of the entry after the one
// with this chain: of the four values known beforehand (magic, salt, position, prev) at
// least three are right. An old lap's header has another position and another prev, so it
// gets two at most.
func (v *Salvage) looksWritten(pos, chain uint64) bool {
	at, le := pos%v.size(), binary.LittleEndian
	if at+EntryHeader > uint64(len(v.ring)) {
		return false
	}
	h, right := v.ring[at:at+EntryHeader], 0
	for _, ok := range []bool{[4]byte(h[:4]) == EntryMagic, le.Uint64(h[8:]) == v.slot.Salt, le.Uint64(h[16:]) == pos, le.Uint64(h[24:]) == chain} {
		if ok {
			right++
		}
	}
	return right >= 3
}

// NewSlot begins a new journal for these entries. It has a new salt, so nothing in the old
// file can pass for one of its entries, and an epoch and positions above all that were
// seen, so no control record or cache of the old ring is trusted. Start is a multiple of
// the size, so that the entries lie in one piece from the ring's beginning on and none
// needs padding.
//
// random also becomes the store's id if the old one can't be read.
func (v *Salvage) NewSlot(entries []*Entry, random uint64) *Slot {
	next := v.slot.Next() // zeros, if there is none
	sl := &next
	sl.Salt, sl.Size, sl.HSeq, sl.Epoch, sl.StartChain = random, v.size(), v.HSeq+1, v.Epoch+1, 0
	if !v.valid {
		sl.StoreID = random
	}
	total := uint64(0)
	for _, e := range entries {
		total += e.Length()
		// Stay within MaxEntry, or the new journal's Scan would not accept it.
		for e.Length() > sl.Size/2 {
			sl.Size *= 2
		}
	}
	for total > sl.Size {
		sl.Size *= 2
	}
	sl.Start = RoundUp(v.end, sl.Size)
	return sl
}
