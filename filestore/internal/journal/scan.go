package journal

import (
	"bytes"
	"fmt"
	"io"

	"hansard/filestore/internal/crc32c"
)

// Reading the ring back: which entries are valid, and where they end. Everything here only
// reads and needs no lock, but without write.lock the bytes may be overwritten while they
// are read, and the caller has to detect that (backlog.go).
//
// The end of the valid entries is the end of the ring's content, with one exception: see
// LostBehind.

// window is a piece of the ring in memory, so that a scan does not issue two reads per
// entry. The Lines of entries point into its buffer, so the buffer is never reused for
// another piece; a new one is made instead.
type window struct {
	r   *Ring
	pos uint64 // of buf[0]
	buf []byte
	// spare is memory for the first piece that fits into it.
	spare []byte
	// name gives the name of a log as a string; nil: a new one each time.
	name func([]byte) string
}

// bytes gives n bytes at pos, which must not straddle the end of the ring. ahead is how far
// the caller expects to go: one that catches up with a single new entry under write.lock
// should read that entry, not a megabyte.
//
// A file that ends too early was truncated from outside, which is damage; other errors are
// returned unchanged.
func (w *window) bytes(pos, n, ahead uint64) ([]byte, error) {
	if pos < w.pos || pos+n > w.pos+uint64(len(w.buf)) {
		size := min(max(n, ahead), w.r.Size-pos%w.r.Size, max(n, 1<<20))
		w.pos, w.buf = pos, w.memory(size)
		if _, err := w.r.File.ReadAt(w.buf, w.r.At(pos)); err != nil {
			w.buf = nil
			// The ring was made with its full size, and Open compared that.
			if err == io.EOF {
				return nil, &DamagedError{"it is cut off"}
			}
			return nil, fmt.Errorf("read journal: %w", err)
		}
	}
	return w.buf[pos-w.pos:][:n:n], nil
}

// memory is a buffer for a piece of the ring.
func (w *window) memory(size uint64) []byte {
	if spare := w.spare; uint64(cap(spare)) >= size {
		w.spare = nil
		return spare[:size]
	}
	return make([]byte, size)
}

// entryAt reads and checks the entry at pos, whose predecessor has this chain and epoch,
// into e. It is rule E1 of FORMAT.md. Not ok without an error is the end of the valid
// entries: the bytes there belong to another lap, another ring file or an older epoch,
// follow another entry, or are half a write. All of these mean the same to the caller: the
// next entry goes there.
func (w *window) entryAt(e *Entry, pos, chain, minEpoch, ahead uint64) (ok bool, err error) {
	h, err := w.bytes(pos, EntryHeader, ahead)
	if err != nil {
		return false, err
	}
	payload, ok := e.decode(h, w.r.Salt, pos)
	if !ok || payload > w.r.Size || e.Prev != chain || e.Epoch < minEpoch || EntryHeader+payload > w.r.Size-pos%w.r.Size {
		return false, nil
	}
	// A PAD has no payload to check.
	if e.Kind == KindPad {
		return true, nil
	}
	if EntryHeader+payload > w.r.MaxEntry() {
		return false, nil
	}
	b, err := w.bytes(pos+EntryHeader, payload, ahead)
	if err != nil {
		return false, err
	}
	// The header reached the disk and the payload did not, or not all of it: the kernel
	// writes pages back in any order. The entry was never acknowledged: that takes a sync.
	if crc32c.Sum(b) != e.PayloadCRC {
		return false, nil
	}
	name := b[:nameLength(h)]
	e.Lines = b[len(name):]
	if w.name != nil {
		e.Name = w.name(name)
	} else {
		e.Name = string(name)
	}
	return true, nil
}

// Scan reads the valid entries from pos on, where chain is the chain of the entry that ends
// there. It returns those with data, the position after the last valid one (padding
// included) and its chain. An error is a failed read, never the end of the entries.
//
// expect is where the entries are known to end, or 0. It only saves reads: valid entries
// beyond it count too, because a writer may have died between writing to the ring and
// publishing (Adoption).
func (r *Ring) Scan(pos, chain, expect uint64) (entries []*Entry, end, endChain uint64, err error) {
	end, endChain, err = r.Walk(pos, chain, expect, func(e *Entry) {
		if e.Kind == KindData {
			entries = append(entries, e)
		}
	})
	if err != nil {
		return nil, 0, 0, err
	}
	return entries, end, endChain, nil
}

// Walk is Scan one entry at a time, padding included: what the caller does not keep takes
// no memory.
func (r *Ring) Walk(pos, chain, expect uint64, each func(*Entry)) (end, endChain uint64, err error) {
	return r.walk(&window{r: r}, pos, chain, expect, func() *Entry { return new(Entry) }, each)
}

// Scanned is reusable memory for entries read from the ring again and again, by
// [Ring.ScanInto]. The zero value holds none yet.
type Scanned struct {
	Entries []*Entry // those with data, as of the last scan
	memory  []Entry
	buf     []byte
}

// scannedMax is how much memory a Scanned keeps: far more than others usually write between
// two scans.
const scannedMax = 1 << 20

// ScanInto is Scan into reused memory: it overwrites the entries of the previous scan, and
// their lines. name turns the name of a log into a string.
func (r *Ring) ScanInto(s *Scanned, pos, chain, expect uint64, name func([]byte) string) (end, endChain uint64, err error) {
	s.Release()
	w := window{r: r, spare: s.buf, name: name}
	next := func() *Entry {
		s.memory = append(s.memory, Entry{})
		return &s.memory[len(s.memory)-1]
	}
	end, endChain, err = r.walk(&w, pos, chain, expect, next, func(e *Entry) {
		if e.Kind == KindData {
			s.Entries = append(s.Entries, e)
		}
	})
	if cap(w.buf) > cap(s.buf) && cap(w.buf) <= scannedMax {
		s.buf = w.buf[:0]
	}
	if err != nil {
		s.Release()
		return 0, 0, err
	}
	return end, endChain, nil
}

// Release forgets the entries. Anyone still holding one finds it empty, not filled with the
// lines of another.
func (s *Scanned) Release() {
	for _, e := range s.Entries {
		*e = Entry{}
	}
	clear(s.Entries)
	s.Entries, s.memory = s.Entries[:0], s.memory[:0]
	if cap(s.memory) > scannedMax/256 {
		s.Entries, s.memory = nil, nil // one long scan must not pin the memory
	}
}

// Buffer is the memory that the next scan reads into.
func (s *Scanned) Buffer() []byte { return s.buf[:cap(s.buf)] }

// walk reads entries into what next gives, and calls each with those that are valid.
func (r *Ring) walk(w *window, pos, chain, expect uint64, next func() *Entry, each func(*Entry)) (end, endChain uint64, err error) {
	minEpoch := uint64(0)
	begin := pos
	for {
		at := r.Place(pos)
		// Exactly to the known end, and one header more to look past it.
		ahead := uint64(64 << 10)
		if expect > 0 {
			ahead = EntryHeader
			if expect > at {
				ahead += expect - at
			}
		}
		e := next()
		ok, err := w.entryAt(e, at, chain, minEpoch, ahead)
		if err != nil {
			return 0, 0, err
		}
		// More than one lap can't be valid: the last entry would overlap the first.
		if !ok || e.End()-begin > r.Size {
			break
		}
		// Epochs never fall along the chain (EpochOrder).
		pos, chain, minEpoch = e.End(), e.Chain(), e.Epoch
		each(e)
	}
	return pos, chain, nil
}

// ChainAt is the chain of the entry that ends at pos, as the next entry says in prev. A
// checkpoint needs it for the slot that starts at pos: with a wrong chain the next scan
// would find nothing valid there.
//
// There must be an entry after pos, so the caller has pos < written. If there is none,
// pages of the ring were dropped after a failed sync: DamagedError, and the caller rotates.
func (r *Ring) ChainAt(pos uint64) (uint64, error) {
	at := r.Place(pos)
	w := window{r: r}
	h, err := w.bytes(at, EntryHeader, 0)
	if err != nil {
		return 0, err
	}
	e, _, ok := DecodeEntry(h, r.Salt, at)
	if !ok {
		return 0, &DamagedError{fmt.Sprintf("there is no entry at position %d", at)}
	}
	return e.Prev, nil
}

// LostBehind returns a DamagedError if the end of the valid entries is damage rather than
// the end. Without it, a flipped bit in an acknowledged entry would look like the end of
// the ring, and the next group would overwrite the entries after it (DurableHint, invariant
// 12).
//
// Every entry carries a position that was durable when it was written. If an entry past the
// end names a position beyond the end, the entry at the end had been durable. Entries that
// a dead writer left past the end prove nothing: the positions they name are not beyond it.
//
// The ring is searched in steps of 8 from end on, up to where it would meet start again.
// This may read the whole ring, so only recovery, verify and readers during a recovery do
// it, never a writer.
func (r *Ring) LostBehind(end, start uint64) error {
	limit := start + r.Size
	buf := make([]byte, min(1<<20, r.Size))
	for pos := r.Place(end); pos < limit; {
		n := min(uint64(len(buf)), limit-pos, r.Size-pos%r.Size)
		buf := buf[:n]
		if _, err := r.File.ReadAt(buf, r.At(pos)); err != nil {
			return fmt.Errorf("read journal: %w", err)
		}
		// pos is a multiple of 8 and so is every entry's position. Index finds the magic many
		// times faster than a loop would: most of the ring is free space.
		for at := nextMagic(buf, 0); at >= 0; at = nextMagic(buf, at+EntryAlign) {
			// Read again, because the header may continue past this piece.
			var h [EntryHeader]byte
			if _, err := r.File.ReadAt(h[:], r.At(pos+uint64(at))); err == io.EOF {
				continue // too close to the end of the ring for an entry
			} else if err != nil {
				return fmt.Errorf("read journal: %w", err)
			}
			// The payload does not matter: the header alone proves what was durable.
			if e, _, ok := DecodeEntry(h[:], r.Salt, pos+uint64(at)); ok && e.DurableHint > end && e.Pos > end {
				return &DamagedError{fmt.Sprintf("the entry at position %d was durable and is not valid any more", end)}
			}
		}
		pos += n
	}
	return nil
}

// nextMagic is the index of the next aligned entry magic in buf, at from or after it; -1 if
// there is none. from is aligned, and may be the length of buf.
func nextMagic(buf []byte, from int) int {
	for from < len(buf) {
		n := bytes.Index(buf[from:], EntryMagic[:])
		if n < 0 {
			return -1
		}
		if n%EntryAlign == 0 {
			return from + n
		}
		from += (n/EntryAlign + 1) * EntryAlign
	}
	return -1
}

// Bytes are the raw bytes of the ring from one position to another, at most one lap apart:
// a rotation to the same size copies them without decoding, so that the chain stays valid.
func (r *Ring) Bytes(from, to uint64) ([]byte, error) {
	b := make([]byte, to-from)
	for done := uint64(0); done < uint64(len(b)); {
		pos := from + done
		n := min(uint64(len(b))-done, r.Size-pos%r.Size)
		if _, err := r.File.ReadAt(b[done:done+n], r.At(pos)); err != nil {
			return nil, fmt.Errorf("read journal: %w", err)
		}
		done += n
	}
	return b, nil
}
