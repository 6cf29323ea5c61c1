package peers

import (
	"encoding/binary"
	"fmt"
	"os"

	"hansard/filestore/internal/crc32c"
	"hansard/internal/vfs"
)

// The control file has four records of 64 bytes, each with a checksum:
//
//	W @0    how far the ring is written and applied; written only under write.lock
//	Y @64   how far it is durable;                   usually under sync.lock: see WriteDurable
//	H @128  who holds write.lock, for people;        written only under write.lock
//	D @192  the directory of the logs, see Custody;  written only under write.lock
//
// It is a hint between processes that are alive at the same time: never synced, not trusted
// by the first process to open the store (ControlNotTrusted), rebuilt from the journal when
// it is missing, has a bad checksum or belongs to another epoch (ControlCRC). If it is
// zeroed, random, older or newer, that must be no worse than if it were deleted (invariant
// 11).
//
// Records are read and written with pread and pwrite, not mapped: a store into a mapped
// page of a file on a full disk is SIGBUS, which would kill the agent. A reader without the
// record's lock may see half a write; then the checksum is wrong and the record is ignored.
//
// W and Y are two records because they have two writers: a process that syncs must not wait
// for write.lock to publish that. start is in W nevertheless: in the syncers' record, a
// syncer could overwrite a checkpoint's start with an older one (StartInW).
//
//	W   magic u32 | flags u32 | epoch | written | chain | applied | start | base | 0 | crc
//	Y   magic u32 | 4 zeros | epoch | durable | zeros | crc
//	H   pid u32 | host name, 56 bytes, NUL-padded | crc
//
// Positions, chain and epoch are u64, the crc is the last u32 of the 64 bytes.

const (
	// ControlName is the file's name in the store's directory.
	ControlName = "control"
	RecordBytes = 64
	// A record of zeros, as in a new file, has no magic and counts as missing.
	wMagic = 0x57534e48
	yMagic = 0x59534e48
	// Flags of W. The first three belong to an epoch: a new W begins without them.
	//
	// FlagFailed: the ring's sync failed and it could not be replaced; writes are refused
	// until a writer manages to replace it. FlagNoSpace: a log could not be extended, and
	// durable entries wait in the ring (ApplyStops). FlagAside: lines were set aside in
	// this epoch, so anyone waiting for an entry has to check whether it was theirs.
	//
	// FlagReplaced does not belong to an epoch: a log was replaced by one with other
	// checksums, and a power cut may bring the old one back. Nothing is written to the ring
	// until sessions/ is synced.
	FlagFailed   = 1
	FlagNoSpace  = 2
	FlagAside    = 4
	FlagReplaced = 8
)

// Progress is W: how far the ring is, in positions (see package journal). Only the holder
// of write.lock may change it; it is published at the unlock. If publishing fails, the next
// holder finds the same by scanning the ring past the old Written (Adoption), and applies
// by comparison.
type Progress struct {
	Epoch     uint64
	Written   uint64 // end of the last entry; a dead writer may have left more
	TailChain uint64 // its chain
	Applied   uint64 // entries before this are in the logs
	Start     uint64 // entries before this are durable in the logs; their space is free
	Base      uint64 // durable when this epoch began: Y may not be written yet
	Flags     uint32
}

// encode is the record as bytes, with its checksum.
func (w *Progress) encode() []byte {
	b := make([]byte, RecordBytes)
	le := binary.LittleEndian
	le.PutUint32(b, wMagic)
	le.PutUint32(b[4:], w.Flags)
	for i, v := range []uint64{w.Epoch, w.Written, w.TailChain, w.Applied, w.Start, w.Base} {
		le.PutUint64(b[8+8*i:], v)
	}
	le.PutUint32(b[60:], crc32c.Sum(b[:60]))
	return b
}

// decode reads the record. False: it was torn, never written, or is inconsistent; the
// caller treats it as missing and reloads from the journal.
func (w *Progress) decode(b []byte) bool {
	le := binary.LittleEndian
	if le.Uint32(b) != wMagic || le.Uint32(b[60:]) != crc32c.Sum(b[:60]) {
		return false
	}
	w.Flags = le.Uint32(b[4:])
	for i, p := range []*uint64{&w.Epoch, &w.Written, &w.TailChain, &w.Applied, &w.Start, &w.Base} {
		*p = le.Uint64(b[8+8*i:])
	}
	return w.Start <= w.Applied && w.Applied <= w.Written
}

// Control is the open control file. Users keeps it open for those who use it outside
// write.lock, as with journal.Ring. Its methods need no lock within this process; each says
// which lock file its record needs.
type Control struct {
	f     vfs.File
	inode uint64 // of f, to notice that the file was replaced
	vfs.Users
}

// OpenControl opens the control file, and makes it if it is missing, under write.lock. It
// does not look at the content.
func OpenControl(fsys vfs.FS) (*Control, error) {
	f, err := fsys.Open(ControlName, vfs.Create)
	if err != nil {
		return nil, fmt.Errorf("open control: %w", err)
	}
	if size, err := f.Size(); err == nil && size < 4*RecordBytes {
		// Full size from the start: later writes need no disk space, so a full disk does not
		// make processes lose sight of each other. Zeros are not a valid record.
		if _, err := f.WriteAt(make([]byte, 4*RecordBytes-size), size); err != nil {
			_ = f.Close()
			return nil, fmt.Errorf("write control: %w", err)
		}
	}
	inode, err := f.Inode()
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return &Control{f: f, inode: inode}, nil
}

// LookAtControl reads W without any lock, for readers, tickets and messages. Not ok: there
// is nothing to trust, because the file is missing or the record was just being written.
// Callers must be able to do without it.
func LookAtControl(fsys vfs.FS) (w Progress, ok bool) {
	f, err := fsys.Open(ControlName, vfs.ReadOnly)
	if err != nil {
		return w, false
	}
	defer f.Close()
	w, _, ok = (&Control{f: f}).Read()
	return w, ok
}

// LastHolder is the process that took write.lock last, to name it in an error; nothing
// depends on it, because the process may have released the lock long ago. own is the
// caller's own record (HolderRecord); itself: it was the caller. Empty: not known.
func LastHolder(fsys vfs.FS, own []byte) (holder string, itself bool) {
	f, err := fsys.Open(ControlName, vfs.ReadOnly)
	if err != nil {
		return "", false
	}
	defer f.Close()
	c := &Control{f: f}
	if _, _, record, _ := c.ReadAll(); record == string(own) {
		return "", true
	}
	return c.holder(), false
}

// File is the open file, for callers that close or watch it.
func (c *Control) File() vfs.File { return c.f }

// IsCurrent tells whether this is still the file at its path. If it was removed by hand,
// other processes have made another one, and this one is stale. An error counts as no:
// reopening is always safe.
func (c *Control) IsCurrent(fsys vfs.FS) bool {
	inode, _, err := fsys.Inode(ControlName)
	return err == nil && inode == c.inode
}

// LetGo undoes Hold; the last user closes the file.
func (c *Control) LetGo() { c.Users.LetGo(c.f) }

// Read reads W, and from Y the durable position, in one pread: position and epoch must
// come from the same W (TargetSameRead). Not ok: W can't be trusted. It may be called
// without a lock.
func (c *Control) Read() (w Progress, durable uint64, ok bool) {
	var b [2 * RecordBytes]byte
	if _, err := c.f.ReadAt(b[:], 0); err != nil {
		return w, 0, false
	}
	return decodeControl(b[:])
}

// ReadAll is Read plus the raw record of the last holder, so that a process that takes
// write.lock rewrites that record only if it was another process's.
func (c *Control) ReadAll() (w Progress, durable uint64, holder string, ok bool) {
	var b [3 * RecordBytes]byte
	if _, err := c.f.ReadAt(b[:], 0); err != nil {
		return w, 0, "", false
	}
	w, durable, ok = decodeControl(b[:])
	return w, durable, string(b[2*RecordBytes:]), ok
}

// decodeControl decodes W and Y. A Y that is invalid, or belongs to another epoch, says
// nothing; then what was durable when the epoch began (Base), or is in the logs already
// (Applied), still is. Never more than Written: the Y of a ring that was rolled back must
// not declare entries durable that are yet to be written.
func decodeControl(b []byte) (w Progress, durable uint64, ok bool) {
	if !w.decode(b[:RecordBytes]) {
		return w, 0, false
	}
	le := binary.LittleEndian
	y := b[RecordBytes:]
	if le.Uint32(y) == yMagic && le.Uint32(y[60:]) == crc32c.Sum(y[:60]) && le.Uint64(y[8:]) == w.Epoch {
		durable = le.Uint64(y[16:])
	}
	return w, min(max(durable, w.Base, w.Applied), w.Written), true
}

// WriteProgress publishes W, under write.lock. An error is not a failure of the commit:
// see Progress.
func (c *Control) WriteProgress(w *Progress) error {
	if _, err := c.f.WriteAt(w.encode(), 0); err != nil {
		return fmt.Errorf("write control: %w", err)
	}
	return nil
}

// WriteDurable publishes Y after a successful sync that began when the ring was written up
// to durable. The caller holds sync.lock, or saw no other process writing, or is recovering
// the store alone. A process that synced without the lock while others write keeps its
// position to itself: two writers could put the lower position last.
func (c *Control) WriteDurable(epoch, durable uint64) error {
	b := make([]byte, RecordBytes)
	le := binary.LittleEndian
	le.PutUint32(b, yMagic)
	le.PutUint64(b[8:], epoch)
	le.PutUint64(b[16:], durable)
	le.PutUint32(b[60:], crc32c.Sum(b[:60]))
	if _, err := c.f.WriteAt(b, RecordBytes); err != nil {
		return fmt.Errorf("write control: %w", err)
	}
	return nil
}

// WriteHolder records who has write.lock now, under that lock, for people who wait for it.
// An error is ignored.
func (c *Control) WriteHolder(record []byte) { _, _ = c.f.WriteAt(record, 2*RecordBytes) }

// HolderRecord describes this process to people who wait for its lock. The PID helps them
// find it; no code checks whether it is alive (failures 4 to 6).
func HolderRecord() []byte {
	b := make([]byte, RecordBytes)
	binary.LittleEndian.PutUint32(b, uint32(os.Getpid()))
	host, _ := os.Hostname()
	// A longer host name is cut: the record has a fixed width.
	copy(b[4:60], host)
	binary.LittleEndian.PutUint32(b[60:], crc32c.Sum(b[:60]))
	return b
}

// holder reads H as "process 4711 on host"; empty: it was never written, or is being
// written.
func (c *Control) holder() string {
	b := make([]byte, RecordBytes)
	if _, err := c.f.ReadAt(b, 2*RecordBytes); err != nil {
		return ""
	}
	pid := binary.LittleEndian.Uint32(b)
	if pid == 0 || binary.LittleEndian.Uint32(b[60:]) != crc32c.Sum(b[:60]) {
		return ""
	}
	host := string(b[4:60])
	for i := range host {
		if host[i] == 0 {
			host = host[:i]
			break
		}
	}
	return fmt.Sprintf("process %d on %s", pid, host)
}
