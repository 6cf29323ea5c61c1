package filestore

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"hansard"
	"hansard/internal/vfs"
)

// errJournalDamaged refuses writes to a store whose journal lost something that
// was durable. Reading goes on; verify says more.
type errJournalDamaged struct{ reason string }

func (e *errJournalDamaged) Error() string { return "the journal is damaged: " + e.reason }

func (e *errJournalDamaged) Is(target error) bool { return target == hansard.ErrDamaged }

func (e *errJournalDamaged) Hint() string {
	return "sessions can be read; with nobody else at the store, hansard repair --journal makes a sound journal and keeps the old one"
}

// join makes the store's directory usable and takes part in it. Where taking
// part fails (the disk is full, the journal damaged, somebody stopped inside
// write.lock) the store can still be read, and the first write says why.
func (s *Store) join() error {
	for _, dir := range []string{sessionsDir, instancesDir} {
		if err := s.fs.Mkdir(dir); err != nil {
			return err
		}
	}
	f, _, err := s.openLockFile(syncLockName)
	if err != nil {
		return err
	}
	s.syncGate = &gate{f: f, inline: s.cfg.inline}
	if s.cfg.inline {
		return s.joinLocked()
	}
	joined := make(chan error, 1)
	s.workers.Add(1)
	go func() {
		defer s.workers.Done()
		joined <- s.joinLocked()
	}()
	if err := s.awaitJoin(joined); isReadOnly(err) || errors.Is(err, hansard.ErrUnsupported) {
		return err
	}
	return nil
}

func (s *Store) joinLocked() error {
	s.wmu.Lock()
	defer s.wmu.Unlock()
	if err := s.lockW(); err != nil {
		return err
	}
	s.unlockW()
	return nil
}

// awaitJoin waits until this process has joined, but not for a process that is
// stopped inside write.lock when there is nothing to recover: reading takes no
// lock, and needs none of what joining does once somebody has joined.
func (s *Store) awaitJoin(joined <-chan error) error {
	timer := time.NewTimer(50 * time.Millisecond)
	defer timer.Stop()
	for waited := false; ; waited = true {
		select {
		case err := <-joined:
			return err
		case <-timer.C:
			if waited || s.othersLive() {
				return nil
			}
			timer.Reset(min(s.opt.LockWait, 2*time.Second))
		}
	}
}

// attach joins the processes that have the store open, under write.lock. Who
// finds himself alone first finishes what the last ones left.
func (s *Store) attach() error {
	if err := s.lockTest(); err != nil {
		return err
	}
	alone, err := s.files.open.TryLock(vfs.LockExclusive)
	if err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	s.dropCaches()
	if s.inst == nil {
		inst, err := s.newInstance() // recovery leaves marks in it
		if err != nil {
			_ = s.files.open.Unlock()
			return err
		}
		s.inst = inst
	}
	if err := s.openControl(); err == nil {
		_, _ = s.ctl.f.WriteAt(s.holder, 2*recordBytes) // for people who wait
	}
	if alone {
		err = s.recover()
	} else {
		err = s.reload()
	}
	if err != nil {
		_ = s.files.open.Unlock()
		return err
	}
	// Nobody can get in between: whoever opens the store holds write.lock.
	if alone {
		_ = s.files.open.Unlock()
	}
	if got, err := s.files.open.TryLock(vfs.LockShared); err != nil || !got {
		return errors.Join(errors.New("lock: open.lock is held exclusively outside write.lock"), err)
	}
	s.attached = true
	return nil
}

// openRing opens the journal file and reads its slots.
func (s *Store) openRing(flags vfs.Flag) (r *ring, slots [2]slot, best int, err error) {
	f, err := s.fs.Open(journalName, flags)
	if err != nil {
		return nil, slots, -1, fmt.Errorf("open journal: %w", err)
	}
	var size int64
	inode, err := f.Inode()
	if err == nil {
		size, err = f.Size()
	}
	if err == nil {
		slots, _, best, err = readSlots(f)
	}
	switch {
	case err != nil:
	case best < 0:
		err = &errJournalDamaged{"neither of its two slots is valid"}
	case slots[best].incompat != 0:
		err = fmt.Errorf("journal: %w", hansard.ErrVersion)
	case uint64(size) < ringAt+slots[best].size:
		err = &errJournalDamaged{fmt.Sprintf("it has %d bytes of %d", size, ringAt+slots[best].size)}
	}
	if err != nil {
		_ = f.Close()
		return nil, slots, -1, err
	}
	sl := slots[best]
	r = &ring{f: f, inode: inode, store: sl.store, salt: sl.salt, size: sl.size, epoch: sl.epoch, lax: s.planted(plantNoChain)}
	return r, slots, best, nil
}

// leftClean tells whether the last to leave said that the ring is empty. The
// other slot must be valid: else this one may not be the newest.
func leftClean(slots [2]slot, best int) bool {
	return slots[best].clean && slots[1-best].hseq > 0 && slots[1-best].hseq < slots[best].hseq
}

// useRing makes an open ring the one we write to.
func (s *Store) useRing(r *ring) {
	if s.ring != nil {
		s.retired = append(s.retired, s.ring.f)
	}
	s.ring = r
}

// openControl opens the control file, and makes it where it is missing.
func (s *Store) openControl() error {
	f, err := s.fs.Open(controlName, vfs.Create)
	if err != nil {
		return fmt.Errorf("open control: %w", err)
	}
	if size, err := f.Size(); err == nil && size < 3*recordBytes {
		// Full size from the start: later writes need no room on the disk.
		if _, err := f.WriteAt(make([]byte, 3*recordBytes), 0); err != nil {
			_ = f.Close()
			return fmt.Errorf("write control: %w", err)
		}
	}
	if s.ctl != nil {
		s.retired = append(s.retired, s.ctl.f)
	}
	s.ctl = &control{f: f}
	s.ctl.inode, err = f.Inode()
	return err
}

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

// sweep removes temporary files of processes that died: nobody else is here.
func (s *Store) sweep() {
	entries, err := s.fs.ReadDir(".")
	if err != nil {
		return
	}
	for _, e := range entries {
		if e.Regular && strings.HasSuffix(e.Name, ".tmp") {
			_ = s.fs.Remove(e.Name)
		}
	}
}
