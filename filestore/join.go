package filestore

import (
	"errors"
	"fmt"
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
	err := s.takePart()
	if err != nil {
		// Before write.lock is given back, and by what can't fail: who finds it
		// held takes the store for one that is open.
		_ = s.files.open.Close()
		s.files.open = nil
	}
	return err
}

func (s *Store) takePart() error {
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
