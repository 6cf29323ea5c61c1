package journal

import (
	"errors"
	"fmt"

	"hansard/internal/vfs"
)

// Writing the journal file as a whole: making one, rewriting its content in place, and
// laying out entries for a new one. The entries of a group are written by commit.go.

// Make makes a journal file under a temporary name: zeros, then the entries from s.Start
// on, then s as slot 0, and syncs it. The caller renames it into place and syncs the
// directory; until then the old journal counts.
//
// On an error the file is removed. If that fails too, it stays as *.tmp, and the next
// first open sweeps it.
func Make(fsys vfs.FS, tmp string, s *Slot, entries []byte) error {
	return inNewFile(fsys, tmp, vfs.Create|vfs.Exclusive, func(f vfs.File) error {
		noCOW(f)
		if err := writeZeros(f, RingAt+s.Size, nil); err != nil {
			return err
		}
		return fill(f, s, entries)
	})
}

// Prepare writes the part of Make that takes long, the zeros, and syncs them; Fill does
// the rest. So a ring that is to become larger keeps nobody waiting for write.lock
// meanwhile. It syncs piece by piece: other syncs of the disk would wait for a large one.
// goOn is asked before each piece; its error ends it.
func Prepare(fsys vfs.FS, tmp string, size uint64, goOn func() error) error {
	return inNewFile(fsys, tmp, vfs.Create|vfs.Exclusive, func(f vfs.File) error {
		noCOW(f)
		return writeZeros(f, RingAt+size, func() error { return errors.Join(f.Datasync(), goOn()) })
	})
}

// Fill makes a journal of a prepared file of the right size.
func Fill(fsys vfs.FS, tmp string, s *Slot, entries []byte) error {
	return inNewFile(fsys, tmp, 0, func(f vfs.File) error { return fill(f, s, entries) })
}

// inNewFile opens a temporary file and writes to it; on an error it removes the file.
// Exclusive: two processes must never write one temporary file (failure 29); the name has
// 64 random bits.
func inNewFile(fsys vfs.FS, tmp string, flags vfs.Flag, write func(vfs.File) error) error {
	f, err := fsys.Open(tmp, flags)
	if err == nil {
		err = errors.Join(write(f), f.Close())
		if err != nil {
			_ = fsys.Remove(tmp)
		}
	}
	if err != nil {
		return fmt.Errorf("make journal: %w", err)
	}
	return nil
}

// noCOW is for btrfs, and only while a file is empty. It only saves time: a failure means
// that syncs write more.
func noCOW(f vfs.File) {
	if c, ok := f.(interface{ NoCOW() error }); ok {
		_ = c.NoCOW()
	}
}

// fill writes entries and slot 0 to an empty journal and syncs it.
func fill(f vfs.File, s *Slot, entries []byte) error {
	// In pieces where the entries go around the end of the ring.
	for done := uint64(0); done < uint64(len(entries)); {
		pos := s.Start + done
		n := min(uint64(len(entries))-done, s.Size-pos%s.Size)
		if _, err := f.WriteAt(entries[done:done+n], RingAt+int64(pos%s.Size)); err != nil {
			return err
		}
		done += n
	}
	// Slot 1 stays zeros, which is not a valid slot: s counts, whatever its HSeq.
	if _, err := f.WriteAt(s.Encode(), 0); err != nil {
		return err
	}
	// One sync covers all of it. If it fails, that is final: the file is dropped.
	if err := f.Datasync(); err != nil {
		return fmt.Errorf("sync: %w", err)
	}
	return nil
}

// writeZeros writes the first size bytes of a file, and calls each after every 4 MiB. The
// space is not allocated or left as a hole: otherwise the first sync of each block would
// write metadata too. And what is all zeros is not taken for an entry, nor for a slot.
func writeZeros(f vfs.File, size uint64, each func() error) error {
	zeros := make([]byte, min(4<<20, size))
	for at := uint64(0); at < size; at += uint64(len(zeros)) {
		if _, err := f.WriteAt(zeros[:min(uint64(len(zeros)), size-at)], int64(at)); err != nil {
			return err
		}
		if each == nil {
			continue
		}
		if err := each(); err != nil {
			return err
		}
	}
	return nil
}

// Overwrite durably zeroes a journal that has been replaced: its file has no name any more,
// and its content must not be found on the disk either. Only for a file that nobody reads
// or writes, once the rename of the new one is durable.
func Overwrite(old vfs.File) error {
	size, err := old.Size()
	if err == nil {
		err = writeZeros(old, uint64(size), nil)
	}
	if err != nil {
		return err
	}
	return old.Datasync()
}

// Rewrite writes the bytes of [from, to) back in place, unchanged (rule A, OpenerRewrites;
// FirstOpenRewrites). A page whose write-back failed is clean in the cache, and the failure
// was reported to another process that may be dead: this process's fdatasync would report
// success for data that is not on the disk. Rewriting makes the pages dirty, so that a
// failure from now on is reported to this descriptor. The planted bug "opener without rule
// A" leaves this out.
//
// The caller holds write.lock and syncs, or has a sync ahead that covers it. It also scans
// again, because a page may have been evicted before it was read here, and come back from
// the disk with its old content (RewriteVerified).
func (r *Ring) Rewrite(from, to uint64) error {
	if from >= to {
		return nil
	}
	buf := make([]byte, min(256<<10, to-from))
	for from < to {
		n := min(uint64(len(buf)), to-from, r.Size-from%r.Size)
		if _, err := r.File.ReadAt(buf[:n], r.At(from)); err != nil {
			return fmt.Errorf("read journal: %w", err)
		}
		if _, err := r.File.WriteAt(buf[:n], r.At(from)); err != nil {
			return fmt.Errorf("rewrite journal: %w", err)
		}
		from += n
	}
	return nil
}

// RewriteSlot writes a slot back in place, for the same reason (OpenerSlots,
// FirstOpenSlot). Under write.lock: otherwise it could undo another process's new slot.
func (r *Ring) RewriteSlot(i int) error {
	b := make([]byte, SlotUsed)
	if _, err := r.File.ReadAt(b, int64(i)*SlotBytes); err != nil {
		return fmt.Errorf("read journal slot: %w", err)
	}
	if _, err := r.File.WriteAt(b, int64(i)*SlotBytes); err != nil {
		return fmt.Errorf("rewrite journal slot: %w", err)
	}
	return nil
}

// WriteSlot writes slot i, under write.lock. The caller has made sure that i is not the
// durable one (DurableSlot), and syncs before it uses the space this frees. After an error
// the slot may be torn, so its checksum fails and the other one counts.
func (r *Ring) WriteSlot(i int, s *Slot) error {
	if _, err := r.File.WriteAt(s.Encode(), int64(i)*SlotBytes); err != nil {
		return fmt.Errorf("write journal slot: %w", err)
	}
	return nil
}

// LayOut encodes entries for a ring of another size. It sets fresh.Start, and returns the
// bytes, the chain of the last entry, and the applied position in the new ring: everything
// before it is in the logs.
//
// Entries get new positions, from the new ring's beginning on and past all positions of the
// old one: their old positions do not work modulo another size, and a position must never
// mean two things (EpochInWaits). So they also get the new epoch, and the start of the new
// ring as their durable hint: Make syncs all of it.
//
// entries are in ring order, and those that end at or before wasApplied are a prefix of
// them. If they would take more than half of the new ring, or one of them more than a
// quarter, it is an error and nothing is lost: the old ring stays.
func LayOut(entries []*Entry, fresh *Slot, end, wasApplied uint64) (b []byte, chain, applied uint64, err error) {
	fresh.Start = RoundUp(end, fresh.Size)
	applied = fresh.Start
	pos, chain := fresh.Start, fresh.StartChain
	for _, e := range entries {
		// A copy: the caller's entry still describes the old ring.
		c := *e
		c.Pos, c.Prev, c.Epoch, c.DurableHint = pos, chain, fresh.Epoch, fresh.Start
		b = c.AppendTo(b, fresh.Salt)
		pos, chain = c.End(), c.Chain()
		if e.End() <= wasApplied {
			applied = pos
		}
		if c.Length() > fresh.Size/4 || uint64(len(b)) > fresh.Size/2 {
			return nil, 0, 0, fmt.Errorf("what is in the journal does not fit into one of %d bytes", fresh.Size)
		}
	}
	return b, chain, applied, nil
}

// Content is the ring content of a repaired journal: these entries, one after the other,
// from sl.Start on. Positions, chain, epoch and hint are new, because the old ones have
// gaps where entries were lost. The entries fit: NewSlot chose the size for them.
func Content(entries []*Entry, sl *Slot) []byte {
	var b []byte
	pos, chain := sl.Start, sl.StartChain
	for _, e := range entries {
		c := *e
		c.Pos, c.Prev, c.Epoch, c.DurableHint = pos, chain, sl.Epoch, sl.Start
		b = c.AppendTo(b, sl.Salt)
		pos, chain = c.End(), c.Chain()
	}
	return b
}
