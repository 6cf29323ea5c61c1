package filestore

import (
	"errors"
	"fmt"
)

// reload follows the others to the ring they use now, under write.lock: on
// joining them, when somebody replaced it, or when the control file is gone.
// Whoever opens a ring first makes sure that its sync may be believed (rule A).
func (s *Store) reload() error {
	r, slots, best, err := s.openRing(0)
	if err != nil {
		return err
	}
	s.useRing(r)
	if err := s.openControl(); err != nil {
		return err
	}
	// A rename that is not durable must not be built upon.
	if err := s.fs.SyncDir("."); err != nil {
		return fmt.Errorf("sync store directory: %w", err)
	}
	s.dropCaches()
	w, durable, ok := s.ctl.read()
	known := ok && w.epoch == r.epoch
	sl := slots[best]
	if known {
		sl = slots[durableSlot(slots, best, &w)]
	} else {
		w = wRecord{epoch: r.epoch, written: sl.start, tailChain: sl.startChain, applied: sl.start, start: sl.start, base: sl.start}
		durable = sl.start
	}
	entries, end, chain, err := r.scan(sl.start, sl.startChain, 0)
	if err != nil {
		return err
	}
	s.w, s.lim = w, durable
	if known && (end < w.written || sl.start > w.start) {
		return s.rotate(r.size) // the ring is not what it was
	}
	s.w.written, s.w.tailChain = end, chain // complete entries of a dead writer are adopted
	if !s.planted(plantNoRewrite) {
		err = errors.Join(r.rewrite(max(durable, sl.start), end), r.rewriteSlot(0), r.rewriteSlot(1))
		if err != nil {
			return err
		}
		// A page that was lost between the scan and the rewriting: see recover.
		if _, again, againChain, err := r.scan(sl.start, sl.startChain, end); err != nil || again != end || againChain != chain {
			return errors.Join(err, s.rotate(r.size))
		}
	}
	if !known {
		// Nobody tells which slot and which entries are durable: make all so.
		if r.rewrite(sl.start, end) != nil || r.f.Datasync() != nil {
			return s.rotate(r.size)
		}
		s.w.base, s.lim = end, end
	}
	s.cursor, s.cursorChain, s.cold = end, chain, false
	for _, e := range entries {
		s.note(e)
	}
	return nil
}

// durableSlot is which slot is known to be on the disk: the one with the start
// that was published. The other, though newer, may not be synced yet.
func durableSlot(slots [2]slot, best int, w *wRecord) int {
	if o := slots[1-best]; slots[best].start != w.start && o.size > 0 && o.start == w.start && o.epoch == w.epoch {
		return 1 - best
	}
	return best
}

// catchup brings this process up to date under write.lock: complete entries
// that a dead writer did not publish are adopted, what others wrote reaches the
// caches, and what is durable the logs.
func (s *Store) catchup() error {
	if s.cold || s.cursor < s.w.start {
		// Lapped, or the caches were dropped: begin where the ring does.
		slots, _, best, err := readSlots(s.ring.f)
		if err != nil {
			return err
		}
		if best < 0 {
			return s.rotate(s.ring.size)
		}
		s.dropCaches()
		sl := slots[durableSlot(slots, best, &s.w)]
		s.cursor, s.cursorChain, s.cold = sl.start, sl.startChain, false
	}
	entries, end, chain, err := s.ring.scan(s.cursor, s.cursorChain, s.w.written)
	if err != nil {
		return err
	}
	if end < s.w.written {
		if err := s.rotate(s.ring.size); err != nil {
			return err
		}
		return s.catchup()
	}
	s.w.written, s.w.tailChain = end, chain
	s.cursor, s.cursorChain = end, chain
	for _, e := range entries {
		s.note(e)
		if sess := s.sessions[e.name]; sess != nil {
			if e.end() > s.w.applied {
				sess.waiting++
				sess.waitEnd = e.end()
			}
			if sess.known && sess.damage == nil {
				sess.follow(e)
				if e.end() <= s.w.applied {
					sess.inLog = sess.end
				}
			}
		}
	}
	s.dropApplied()
	return s.apply()
}

// dropApplied forgets pending entries that others have put into the logs.
func (s *Store) dropApplied() {
	n := 0
	for _, e := range s.pending {
		if e.end() > s.w.applied {
			break
		}
		n++
		s.noteApplied(e)
		if sess := s.sessions[e.name]; sess != nil {
			if sess.waiting > 0 {
				sess.waiting--
			}
			if sess.known {
				sess.inLog = max(sess.inLog, e.off+int64(len(e.bytes)))
			}
		}
		s.waiters.wake(e.name)
	}
	s.pending = s.pending[n:]
}
