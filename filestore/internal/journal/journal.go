// Package journal is the redo ring of a store: every batch of every process is written here
// first, one sync makes all waiting batches durable, and only then are they copied to the
// logs (docs/protocol.md, SyncBeforeApply).
//
// The package knows how the ring's bytes are laid out, written, read back and salvaged. It
// knows nothing about sessions: an entry carries bytes for a file, at an offset. Package
// filestore decides, under write.lock, when an entry may be written, trusted or freed.
//
// Read the files in this order:
//
//   - journal.go: the file, positions, opening it
//   - slot.go: the two slots, which say where the ring starts
//   - entry.go: one entry as bytes
//   - scan.go: which entries are valid, and whether the end is damage
//   - make.go: a new file; rewriting in place (rule A); laying out for another size
//   - salvage.go: what can be read of a damaged file
package journal

import (
	"fmt"

	"hansard"
	"hansard/internal/vfs"
)

// The file:
//
//	journal = slot0 (4 KiB) | slot1 (4 KiB) | ring
//
// A position counts the bytes ever put into the ring, so it only grows; its file offset is
// RingAt + position % size. An entry begins at a multiple of 8 and never straddles the end
// of the ring (PadNeverStraddles): a PAD entry fills the rest, and a rest shorter than an
// entry header is skipped without one.
//
// Invariants that the callers maintain and Scan relies on:
//
//   - start ≤ applied ≤ durable ≤ written ≤ start + size
//   - no byte of [durable start, written) is overwritten
//   - the entries of [start, written) form one chain: salt, position, prev and epoch
//     all match, so nothing left by an earlier lap or an earlier file passes for valid
//   - at least one of the two slots is valid and durable at any moment

const (
	// Name is the file's name in the store's directory. It is replaced only by rename,
	// under write.lock.
	Name = "journal"
	// A slot has a 4 KiB block of its own although it needs only 96 bytes: a torn write of
	// one slot must not reach the other.
	SlotBytes = 4096
	SlotUsed  = 96
	RingAt    = 2 * SlotBytes
	// Entries begin at multiples of EntryAlign, so searches for headers (LostBehind,
	// salvage) step by 8.
	EntryHeader = 120
	EntryAlign  = 8
	// KindData is an entry for a log. KindPad fills the ring up to its end or, with
	// length 0, is a probe: written and synced, applied to nothing.
	KindData      = 1
	KindPad       = 2
	journalFormat = 2

	// DefaultSize is the size of the ring of a busy store. With 16 MiB and a thousand busy
	// sessions, most of the work was syncing logs in checkpoints. A batch too large for it
	// gets a larger ring for as long as it is needed.
	DefaultSize = 64 << 20
	// FirstSize is the size of a new store's ring. Most stores never need more: it is
	// enough for megabytes of events between two checkpoints, half a minute apart.
	FirstSize = 4 << 20
)

var (
	SlotMagic = [8]byte{'H', 'A', 'N', 'S', 'J', 'R', 'N', '\n'}
	// EntryMagic is not valid UTF-8 (c7 needs a continuation byte after it), so no name and
	// no line can contain it: salvage relies on that to find where text ends.
	EntryMagic = [4]byte{0xc7, 'H', 'J', 'E'}
)

// RoundUp is the smallest multiple of to that is not less than n.
func RoundUp(n, to uint64) uint64 { return (n + to - 1) / to * to }

// Ring is one open journal file. It is written only under write.lock; reading takes no
// lock.
//
// Apart from SyncFailed, the fields do not change while a ring is in use, except that
// recovery raises Epoch before anyone else can see the ring. A replaced journal is a new
// Ring, so a group that still holds the old one can compare epochs (EpochInWaits).
//
// Users keeps the file open for those who use it outside write.lock: a rotation must not
// close the descriptor of a group that is about to sync (TestReplacedRingsAreClosed).
type Ring struct {
	File    vfs.File
	Inode   uint64
	StoreID uint64
	Salt    uint64
	Size    uint64
	Epoch   uint64
	// SyncFailed: a sync of this file failed. The kernel reports that once; a later sync
	// would report success for data that is gone (SyncErrorFinal, failure 38). It is
	// guarded by the mutex of the syncer, so every thread sees it (SyncErrorShared).
	SyncFailed bool
	vfs.Users
}

// LetGo undoes Hold; the last user closes the file.
func (r *Ring) LetGo() { r.Users.LetGo(r.File) }

// At is the file offset of a position.
func (r *Ring) At(pos uint64) int64 { return RingAt + int64(pos%r.Size) }

// Place is where an entry that would begin at pos really begins: if the room left before
// the end of the ring is too small for a header, it is skipped. Readers use Place and
// writers skip the same space, so they agree even though no PAD says so.
func (r *Ring) Place(pos uint64) uint64 {
	if left := r.Size - pos%r.Size; left < EntryHeader {
		return pos + left
	}
	return pos
}

// MaxEntry is the largest entry that Scan accepts. Writers stay below it because a group
// must find room for twice its size (roomFor), and gets a larger ring first if there is
// none.
func (r *Ring) MaxEntry() uint64 { return r.Size / 2 }

// Share is how much of the ring one group may take. The same amount is reserved for the
// snapshots of metadata that a group may add, and the same always stays free.
func (r *Ring) Share() uint64 { return min(r.Size/8, 2<<20) }

// Open opens the journal file and reads its slots; best is the slot that counts.
//
// fs.ErrNotExist: there is no journal. DamagedError: no valid slot, or the file is shorter
// than its slot says (a truncated copy); the bytes are left alone. ErrVersion: written by
// another version, and must not be overwritten. Anything else is a read error and says
// nothing about the content.
func Open(fsys vfs.FS, flags vfs.Flag) (r *Ring, slots [2]Slot, best int, err error) {
	f, err := fsys.Open(Name, flags)
	if err != nil {
		return nil, slots, -1, fmt.Errorf("open journal: %w", err)
	}
	var size int64
	inode, err := f.Inode()
	if err == nil {
		size, err = f.Size()
	}
	if err == nil {
		slots, _, best, err = ReadSlots(f)
	}
	switch {
	case err != nil:
	case best < 0:
		err = &DamagedError{"neither of its two slots is valid"}
	// Checked before the length, which may mean something else in a newer format.
	case slots[best].Incompat != 0:
		err = fmt.Errorf("journal: %w", hansard.ErrVersion)
	case uint64(size) < RingAt+slots[best].Size:
		err = &DamagedError{fmt.Sprintf("it has %d bytes of %d", size, RingAt+slots[best].Size)}
	}
	if err != nil {
		_ = f.Close()
		return nil, slots, -1, err
	}
	sl := slots[best]
	r = &Ring{File: f, Inode: inode, StoreID: sl.StoreID, Salt: sl.Salt, Size: sl.Size, Epoch: sl.Epoch}
	return r, slots, best, nil
}

// DamagedError refuses writes to a store whose journal has lost something durable: further
// writes would overwrite acknowledged entries that are still there. Reads still work;
// verify says more, and repair --journal makes a new journal (FORMAT.md, D1 to D5).
type DamagedError struct{ Reason string }

// Error says what was found.
func (e *DamagedError) Error() string { return "the journal is damaged: " + e.Reason }

// Is makes it an ErrDamaged for callers that do not care which file it was.
func (e *DamagedError) Is(target error) bool { return target == hansard.ErrDamaged }

// Hint is what the user can do about it.
func (e *DamagedError) Hint() string {
	return "sessions can be read; while nobody else has the store open, hansard repair --journal makes a sound journal and keeps the old one"
}
