package filestore

import "fmt"

// rotate replaces the journal file by a fresh one with the same valid entries,
// or by an empty one of another size. It is what follows a failed sync: the old
// file can't be believed any more. On failure writes are refused until it works.
func (s *Store) rotate(size uint64) (err error) {
	s.measures.rotations.Add(1)
	defer func() {
		if err != nil {
			s.w.flags |= wFlagFailed
		}
	}()
	slots, _, best, err := readSlots(s.ring.f)
	if err != nil {
		return err
	}
	if best < 0 {
		return &errJournalDamaged{"neither of its two slots is valid"}
	}
	sl := slots[durableSlot(slots, best, &s.w)]
	_, end, chain, err := s.ring.scan(sl.start, sl.startChain, 0)
	if err != nil {
		return err
	}
	if size != s.ring.size && end != sl.start {
		return fmt.Errorf("filestore: rotate to another size with entries in the ring")
	}
	content := make([]byte, end-sl.start)
	for done := uint64(0); done < uint64(len(content)); {
		pos := sl.start + done
		n := min(uint64(len(content))-done, s.ring.size-pos%s.ring.size)
		if _, err := s.ring.f.ReadAt(content[done:done+n], s.ring.at(pos)); err != nil {
			return fmt.Errorf("read journal: %w", err)
		}
		done += n
	}
	fresh := slot{store: sl.store, salt: sl.salt, size: size, hseq: slots[best].hseq + 1,
		epoch: max(s.w.epoch, sl.epoch) + 1, start: sl.start, startChain: sl.startChain}
	if size != s.ring.size {
		fresh.start = roundUp(sl.start, size)
	}
	if err := s.installRing(&fresh, content); err != nil {
		return err
	}
	applied := min(max(s.w.applied, fresh.start), fresh.start+uint64(len(content)))
	s.w = wRecord{epoch: fresh.epoch, written: fresh.start + uint64(len(content)), tailChain: chain,
		applied: applied, start: fresh.start, base: fresh.start + uint64(len(content))}
	if size != s.ring.size {
		s.w.applied = fresh.start
	}
	r, _, _, err := s.openRing(0)
	if err != nil {
		return err
	}
	s.useRing(r)
	s.dropCaches()
	s.lim = s.w.base
	// Whoever finds the old control record must not believe it: its epoch
	// is another one, so even an unwritten record is harmless.
	return s.ctl.writeW(&s.w)
}

// installRing makes a journal and puts it in place, durably.
func (s *Store) installRing(sl *slot, content []byte) error {
	tmp := fmt.Sprintf("journal.%016x.tmp", s.cfg.random())
	if err := makeRing(s.fs, tmp, sl, content); err != nil {
		return err
	}
	if err := s.fs.Rename(tmp, journalName); err != nil {
		return fmt.Errorf("install journal: %w", err)
	}
	if err := s.fs.SyncDir("."); err != nil {
		return fmt.Errorf("sync store directory: %w", err)
	}
	return nil
}

// newJournal makes the journal of a new store.
func (s *Store) newJournal() error {
	return s.installRing(&slot{store: s.cfg.random(), salt: s.cfg.random(), size: s.cfg.ringSize, hseq: 1, epoch: 1}, nil)
}
