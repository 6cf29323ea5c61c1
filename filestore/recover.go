package filestore

import (
	"errors"
	"fmt"
	"io/fs"

	"hansard"
)

// recover is the first open: nobody else has the store open, and whatever the
// page cache and the control file say may be older than the disk, or newer.
func (s *Store) recover() error {
	s.sweep()
	r, slots, best, err := s.openRing(0)
	if errors.Is(err, fs.ErrNotExist) {
		if err := s.newJournal(); err != nil {
			return err
		}
		r, slots, best, err = s.openRing(0)
	}
	if err != nil {
		return err
	}
	s.useRing(r)
	sl := slots[best]
	var entries []*entry
	end, chain := sl.start, sl.startChain
	for clean, settled := leftClean(slots, best), false; !settled; {
		if !clean {
			if entries, end, chain, err = r.scan(sl.start, sl.startChain, 0); err != nil {
				return err
			}
			if err := r.lostBehind(end, sl.start); err != nil {
				return err
			}
		}
		// A sync that failed while nobody looked would be reported to nobody:
		// write what counts once more, so that this sync speaks for it.
		if err := errors.Join(r.rewrite(sl.start, end), r.rewriteSlot(best)); err != nil {
			return err
		}
		if err := r.f.Datasync(); err != nil {
			return fmt.Errorf("sync journal: %w", err)
		}
		// A page that was lost between the scan and the rewriting was written
		// back as it is on the disk: then that is what counts.
		settled = true
		if !clean {
			_, again, againChain, err := r.scan(sl.start, sl.startChain, 0)
			if err != nil {
				return err
			}
			settled = again == end && againChain == chain
		}
	}
	if end > sl.start {
		s.measures.recoveries.Add(1) // the last to leave did not empty it
	}
	// The journal may have been renamed into place by a process that died.
	if err := s.fs.SyncDir("."); err != nil {
		return fmt.Errorf("sync store directory: %w", err)
	}
	suspects, err := s.deadMarks()
	if err != nil {
		return err
	}
	s.w = wRecord{epoch: sl.epoch, written: end, tailChain: chain, applied: sl.start, start: sl.start, base: end}
	s.lim, s.cursor, s.cursorChain, s.cold = end, end, chain, false
	if s.planted(plantTrustControl) && s.openControl() == nil {
		if w, _, ok := s.ctl.read(); ok && w.applied <= end && w.applied >= sl.start {
			s.w.applied = w.applied
		}
	}
	for _, e := range entries {
		s.note(e)
	}
	if err := s.apply(); err != nil {
		return err
	}
	if s.w.applied < end {
		return fmt.Errorf("%w: what the journal holds does not fit on the disk", hansard.ErrNoSpace)
	}
	if err := s.settle(entries, suspects); err != nil {
		return err
	}
	s.w.epoch++
	s.ring.epoch = s.w.epoch
	s.w.start = end
	fresh := slot{store: sl.store, salt: sl.salt, size: sl.size, hseq: sl.hseq + 1, epoch: s.w.epoch, start: end, startChain: chain}
	if err := r.writeSlot(1-best, &fresh); err != nil {
		return err
	}
	if err := r.f.Datasync(); err != nil {
		return fmt.Errorf("sync journal: %w", err)
	}
	s.dirty = map[string]dirtyLog{}
	if err := s.openControl(); err != nil {
		return err
	}
	if err := s.removeDead(nil); err != nil {
		return err
	}
	return errors.Join(s.ctl.writeW(&s.w), s.ctl.writeY(s.w.epoch, end))
}

// lostBehind tells whether the ring has an entry behind the end of what is
// valid that was written when more than that was durable: then the end is not
// an end but damage.
func (r *ring) lostBehind(end, start uint64) error {
	limit := start + r.size
	buf := make([]byte, min(1<<20, r.size))
	for pos := r.place(end); pos < limit; {
		n := min(uint64(len(buf)), limit-pos, r.size-pos%r.size)
		buf := buf[:n]
		if _, err := r.f.ReadAt(buf, r.at(pos)); err != nil {
			return fmt.Errorf("read journal: %w", err)
		}
		for at := 0; at+4 <= len(buf); at += entryAlign {
			if [4]byte(buf[at:at+4]) != entryMagic {
				continue
			}
			var h [entryHeader]byte
			if _, err := r.f.ReadAt(h[:], r.at(pos+uint64(at))); err != nil {
				continue // too near to the end of the ring for an entry
			}
			if e, _, ok := decodeEntry(h[:], r.salt, pos+uint64(at)); ok && e.dhint > end && e.pos > end {
				return &errJournalDamaged{fmt.Sprintf("the entry at position %d was durable and is not valid any more", end)}
			}
		}
		pos += n
	}
	return nil
}

// settle makes the logs that recovery wrote to durable.
func (s *Store) settle(entries []*entry, suspects map[uint64]bool) error {
	byName := map[string][]*entry{}
	var names []string
	for _, e := range entries {
		if byName[e.name] == nil {
			names = append(names, e.name)
		}
		byName[e.name] = append(byName[e.name], e)
	}
	for _, name := range names {
		sess := s.cached(name)
		if _, err := s.openLog(sess, false); err != nil {
			continue // removed by somebody else; its entries were set aside
		}
		// If this process dies between a failed sync and the copy, its mark
		// tells the next one.
		if err := s.inst.mark(0, markOf(name)); err != nil {
			return err
		}
		if suspects[markOf(name)] || s.rewriteAndSync(sess, byName[name]) != nil {
			if err := s.copyLog(sess); err != nil {
				return err
			}
		}
		if err := s.inst.mark(0, 0); err != nil {
			return err
		}
	}
	if err := s.fs.SyncDir(sessionsDir); err != nil {
		return fmt.Errorf("sync sessions: %w", err)
	}
	return nil
}

func (s *Store) rewriteAndSync(sess *session, entries []*entry) error {
	for _, e := range entries {
		if s.inLog(e) {
			if err := writeLog(sess.f, e.bytes, e.off); err != nil {
				return err
			}
		}
	}
	return sess.f.Datasync()
}
