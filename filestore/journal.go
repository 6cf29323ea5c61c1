package filestore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"hansard/internal/vfs"
)

// The journal is a redo ring: every batch of every process goes here first, one
// sync makes all that wait durable, and only then it is copied to the logs.
//
//	journal = slot0 (4 KiB) | slot1 (4 KiB) | ring
//
// Positions in the ring are bytes ever written: they only grow, and a position
// stands at position % size. An entry begins at a multiple of 8 and never
// straddles the end of the ring: a PAD entry fills what is left, and less than
// an entry header is skipped without one.

const (
	journalName   = "journal"
	slotBytes     = 4096
	slotUsed      = 96
	ringAt        = 2 * slotBytes
	entryHeader   = 120
	entryAlign    = 8
	kindData      = 1
	kindPad       = 2
	journalFormat = 1

	// defaultRing is the size of the ring; a batch too large for it makes a
	// larger one for as long as it is needed.
	defaultRing = 64 << 20
)

var (
	slotMagic  = [8]byte{'H', 'A', 'N', 'S', 'J', 'R', 'N', '\n'}
	entryMagic = [4]byte{0xc7, 'H', 'J', 'E'}
)

func roundUp(n, to uint64) uint64 { return (n + to - 1) / to * to }

// ring is one open journal file. Its bytes are written only under write.lock.
type ring struct {
	f     vfs.File
	inode uint64
	store uint64
	salt  uint64
	size  uint64
	epoch uint64
	lax   bool // plantNoChain
	bad   bool // a sync failed: no later one may be believed; guarded by Store.syncMu
}

// at is the offset in the file of a position.
func (r *ring) at(pos uint64) int64 { return ringAt + int64(pos%r.size) }

// place is the position an entry that would begin at pos really begins at: too
// little room for a header before the end is skipped.
func (r *ring) place(pos uint64) uint64 {
	if left := r.size - pos%r.size; left < entryHeader {
		return pos + left
	}
	return pos
}

// maxEntry is the largest entry this ring takes.
func (r *ring) maxEntry() uint64 { return r.size / 2 }

// share is what a group may take of the ring, what snapshots may add to it, and
// what always stays free.
func (r *ring) share() uint64 { return min(r.size/8, 2<<20) }

// readSlots reads both slots and tells which counts, -1 when none is valid.
func readSlots(f vfs.File) (slots [2]slot, valid [2]bool, best int, err error) {
	best = -1
	for i := range slots {
		b := make([]byte, slotUsed)
		if _, err := f.ReadAt(b, int64(i)*slotBytes); err != nil {
			if errors.Is(err, io.EOF) {
				continue
			}
			return slots, valid, -1, fmt.Errorf("read journal slot: %w", err)
		}
		if slots[i], valid[i] = decodeSlot(b); !valid[i] {
			slots[i] = slot{}
		}
		if valid[i] && (best < 0 || slots[i].hseq > slots[best].hseq) {
			best = i
		}
	}
	return slots, valid, best, nil
}

// window is a piece of the ring in memory, so that a scan does not read entry by
// entry. The bytes of entries are parts of it.
type window struct {
	r   *ring
	pos uint64 // of buf[0]
	buf []byte
}

// bytes gives n bytes at pos, which do not straddle the end of the ring. ahead
// is how far the caller expects to go.
func (w *window) bytes(pos, n, ahead uint64) ([]byte, error) {
	if pos < w.pos || pos+n > w.pos+uint64(len(w.buf)) {
		size := min(max(n, ahead), w.r.size-pos%w.r.size, max(n, 1<<20))
		w.pos, w.buf = pos, make([]byte, size)
		if _, err := w.r.f.ReadAt(w.buf, w.r.at(pos)); err != nil {
			w.buf = nil
			if err == io.EOF {
				return nil, &errJournalDamaged{"it is cut off"}
			}
			return nil, fmt.Errorf("read journal: %w", err)
		}
	}
	return w.buf[pos-w.pos:][:n:n], nil
}

// entryAt reads and checks the entry at pos, whose predecessor has this chain.
// A nil entry is the end of what is valid. Entries of another lap, another ring
// file, an older epoch or behind another entry are not valid.
func (w *window) entryAt(pos, chain, minEpoch, ahead uint64) (*entry, error) {
	h, err := w.bytes(pos, entryHeader, ahead)
	if err != nil {
		return nil, err
	}
	want := pos
	if w.r.lax && len(h) >= 24 && (binary.LittleEndian.Uint64(h[16:])-pos)%w.r.size == 0 {
		want = binary.LittleEndian.Uint64(h[16:])
	}
	e, payload, ok := decodeEntry(h, w.r.salt, want)
	if ok {
		e.pos = pos
	}
	if !ok || payload > w.r.size || !w.r.lax && (e.prev != chain || e.epoch < minEpoch) || entryHeader+payload > w.r.size-pos%w.r.size {
		return nil, nil
	}
	if e.kind == kindPad {
		return e, nil
	}
	if entryHeader+payload > w.r.maxEntry() {
		return nil, nil
	}
	b, err := w.bytes(pos+entryHeader, payload, ahead)
	if err != nil {
		return nil, err
	}
	if checksum(b) != e.pcrc {
		return nil, nil
	}
	nameLen := nameLength(h)
	e.name, e.bytes = string(b[:nameLen]), b[nameLen:]
	return e, nil
}

// scan reads the valid entries from pos on. expect is where they are known to
// end, or 0; what is valid behind it counts too. It returns them, the position
// behind them and its chain.
func (r *ring) scan(pos, chain, expect uint64) (entries []*entry, end, endChain uint64, err error) {
	minEpoch := uint64(0)
	begin := pos
	w := window{r: r}
	for {
		at := r.place(pos)
		ahead := uint64(64 << 10)
		if expect > 0 {
			ahead = entryHeader
			if expect > at {
				ahead += expect - at
			}
		}
		e, err := w.entryAt(at, chain, minEpoch, ahead)
		if err != nil {
			return nil, 0, 0, err
		}
		if e == nil || e.end()-begin > r.size {
			break
		}
		pos, chain, minEpoch = e.end(), e.chain(), e.epoch
		if e.kind == kindData {
			entries = append(entries, e)
		}
	}
	return entries, pos, chain, nil
}

// chainAt is the chain of the entry that ends at pos, told by the one behind it:
// a slot with another chain would lead nowhere.
func (r *ring) chainAt(pos uint64) (uint64, error) {
	at := r.place(pos)
	w := window{r: r}
	h, err := w.bytes(at, entryHeader, 0)
	if err != nil {
		return 0, err
	}
	e, _, ok := decodeEntry(h, r.salt, at)
	if !ok {
		return 0, &errJournalDamaged{fmt.Sprintf("there is no entry at position %d", at)}
	}
	return e.prev, nil
}

// rewrite writes the bytes of [from, to) back to where they stand. They do not
// change; but pages whose writing failed behind somebody else's back are dirty
// again, and a failure from now on is reported to this descriptor.
func (r *ring) rewrite(from, to uint64) error {
	if from >= to {
		return nil
	}
	buf := make([]byte, min(256<<10, to-from))
	for from < to {
		n := min(uint64(len(buf)), to-from, r.size-from%r.size)
		if _, err := r.f.ReadAt(buf[:n], r.at(from)); err != nil {
			return fmt.Errorf("read journal: %w", err)
		}
		if _, err := r.f.WriteAt(buf[:n], r.at(from)); err != nil {
			return fmt.Errorf("rewrite journal: %w", err)
		}
		from += n
	}
	return nil
}

// rewriteSlot writes a slot back to where it stands.
func (r *ring) rewriteSlot(i int) error {
	b := make([]byte, slotUsed)
	if _, err := r.f.ReadAt(b, int64(i)*slotBytes); err != nil {
		return fmt.Errorf("read journal slot: %w", err)
	}
	if _, err := r.f.WriteAt(b, int64(i)*slotBytes); err != nil {
		return fmt.Errorf("rewrite journal slot: %w", err)
	}
	return nil
}

// writeSlot writes a slot, under write.lock. The caller syncs.
func (r *ring) writeSlot(i int, s *slot) error {
	if _, err := r.f.WriteAt(s.encode(), int64(i)*slotBytes); err != nil {
		return fmt.Errorf("write journal slot: %w", err)
	}
	return nil
}

// makeRing makes a journal file under a temporary name: zeros, not holes, so
// that later syncs change nothing but content; then the slot and the entries.
func makeRing(fsys vfs.FS, tmp string, s *slot, entries []byte) (err error) {
	f, err := fsys.Open(tmp, vfs.Create|vfs.Exclusive)
	if err != nil {
		return fmt.Errorf("make journal: %w", err)
	}
	defer func() {
		err = errors.Join(err, f.Close())
		if err != nil {
			_ = fsys.Remove(tmp) // a leftover is harmless: the next first open sweeps it
		}
	}()
	if c, ok := f.(interface{ NoCOW() error }); ok {
		_ = c.NoCOW() // only makes copy-on-write file systems faster
	}
	zeros := make([]byte, min(1<<20, ringAt+s.size))
	for at := uint64(0); at < ringAt+s.size; at += uint64(len(zeros)) {
		n := min(uint64(len(zeros)), ringAt+s.size-at)
		if _, err := f.WriteAt(zeros[:n], int64(at)); err != nil {
			return fmt.Errorf("make journal: %w", err)
		}
	}
	for done := uint64(0); done < uint64(len(entries)); {
		pos := s.start + done
		n := min(uint64(len(entries))-done, s.size-pos%s.size)
		if _, err := f.WriteAt(entries[done:done+n], ringAt+int64(pos%s.size)); err != nil {
			return fmt.Errorf("make journal: %w", err)
		}
		done += n
	}
	if _, err := f.WriteAt(s.encode(), 0); err != nil {
		return fmt.Errorf("make journal: %w", err)
	}
	if err := f.Datasync(); err != nil {
		return fmt.Errorf("sync new journal: %w", err)
	}
	return nil
}
