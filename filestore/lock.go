package filestore

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"hansard"
	"hansard/internal/vfs"
)

// What the kernel's locks are on. The files are made once and never removed;
// that they exist means nothing.
//
//	write.lock  orders what is written; held for page-cache work only
//	sync.lock   lets one sync serve all who wait; it can be done without
//	open.lock   shared by everybody who has the store open; who gets it
//	            exclusively is alone and finishes what a crash left
//
// Order: sync.lock, write.lock, open.lock.
const (
	writeLockName = "write.lock"
	syncLockName  = "sync.lock"
	openLockName  = "open.lock"
	checkLockName = "check.lock" // one checkpoint at a time; it can be done without

	readOnlyFlag = vfs.ReadOnly
)

// lockFiles are this process's descriptors of the lock files.
type lockFiles struct {
	write, open vfs.File
	writeInode  uint64
}

// openLocks opens the lock files that are not, under a name each for all time.
func (s *Store) openLocks() (err error) {
	if s.files.write == nil {
		s.files.write, s.files.writeInode, err = s.openLockFile(writeLockName)
	}
	if s.files.open == nil && err == nil {
		s.files.open, _, err = s.openLockFile(openLockName)
	}
	return err
}

func (s *Store) openLockFile(name string) (vfs.File, uint64, error) {
	f, err := s.fs.Open(name, vfs.Create)
	if err != nil {
		return nil, 0, fmt.Errorf("open %s: %w", name, err)
	}
	inode, err := f.Inode()
	if err != nil {
		_ = f.Close()
		return nil, 0, err
	}
	return f, inode, nil
}

// lockTest makes sure that the kernel's locks exclude here at all: on some
// mounts they answer yes to everybody. The caller holds write.lock, so that a
// second descriptor must not get it.
func (s *Store) lockTest() error {
	second, err := s.fs.Open(writeLockName, 0)
	if err != nil {
		return fmt.Errorf("test locks: %w", err)
	}
	defer second.Close()
	if got, err := second.TryLock(vfs.LockShared); err != nil || got {
		return errors.Join(fmt.Errorf("%w: file locks do not exclude in this directory", hansard.ErrUnsupported), err)
	}
	return nil
}

// lockW takes write.lock, blocking, and makes sure that the lock, the control
// file and the ring are still the ones the others use. The caller holds wmu.
func (s *Store) lockW() error { return s.lockAgain(false) }

// lockAgain is lockW for one who had the lock a moment ago and writes nothing
// to the ring: that nobody replaced the ring by hand meanwhile is not looked at.
func (s *Store) lockAgain(again bool) error {
	if err := s.takeWriteLock(); err != nil {
		return err
	}
	err := s.refresh(!again)
	if err != nil {
		_ = s.files.write.Unlock()
	}
	return err
}

// takeWriteLock takes the lock itself.
func (s *Store) takeWriteLock() error {
	if err := s.openLocks(); err != nil {
		return err
	}
	for {
		if s.planted(plantNoLock) && s.attached {
			break
		}
		began := time.Now()
		if err := s.files.write.Lock(vfs.LockExclusive); err != nil {
			return fmt.Errorf("lock: %w", err)
		}
		since(&s.measures.locks, &s.measures.lockNanos, began)
		if s.planted(plantLostLockFile) {
			break
		}
		// Waiters of a lock file that was replaced hold a dead inode.
		inode, _, err := s.fs.Inode(writeLockName)
		if err == nil && inode == s.files.writeInode {
			break
		}
		_ = s.files.write.Close() // and so unlocks it
		if s.files.write, s.files.writeInode, err = s.openLockFile(writeLockName); err != nil {
			s.files.write = nil
			return err
		}
	}
	return nil
}

// refresh reads what others changed since we last had write.lock.
func (s *Store) refresh(look bool) error {
	if !s.attached {
		return s.attach()
	}
	w, durable, holder, ok := s.ctl.readAll()
	if holder != string(s.holder) {
		// For people who wait; a failure to tell them is no reason to stop.
		_, _ = s.ctl.f.WriteAt(s.holder, 2*recordBytes)
	}
	if ok && w.epoch == s.ring.epoch && (!look || s.sameFile(journalName, s.ring.inode) && s.sameFile(controlName, s.ctl.inode)) {
		s.w = w
		s.lim = max(durable, min(s.own.get(w.epoch), w.written))
		if s.planted(plantLogBeforeSync) {
			s.lim = w.written
		}
		return nil
	}
	return s.reload()
}

func (s *Store) sameFile(name string, inode uint64) bool {
	now, _, err := s.fs.Inode(name)
	return err == nil && now == inode
}

// unlockW publishes what we did and gives write.lock back.
func (s *Store) unlockW() {
	// The record is a hint: if it can't be written the next holder finds
	// the same by looking at the ring.
	_ = s.ctl.writeW(&s.w)
	if s.planted(plantLostLockFile) {
		_ = s.fs.Remove(writeLockName)
	}
	_ = s.files.write.Unlock()
}

// lockCaughtUp takes write.lock and finishes what others left undone.
func (s *Store) lockCaughtUp() error { return s.lockCaughtUpAgain(false) }

func (s *Store) lockCaughtUpAgain(again bool) error {
	if err := s.lockAgain(again); err != nil {
		return err
	}
	if err := s.catchup(); err != nil {
		s.unlockW()
		return err
	}
	return nil
}

// gate is sync.lock, waited for in a goroutine of its own so that the wait can
// be given up: a stopped holder must not hold up anybody.
type gate struct {
	f      vfs.File
	inline bool

	mu      sync.Mutex
	blocked bool       // a goroutine waits in flock
	wanted  chan error // where it tells; nil: nobody waits for it any more
}

// lock tells whether it got the lock within the time. One caller at a time.
func (g *gate) lock(patience time.Duration) bool {
	g.mu.Lock()
	if !g.blocked {
		if got, err := g.f.TryLock(vfs.LockExclusive); err != nil || got || g.inline {
			g.mu.Unlock()
			return got && err == nil
		}
		g.blocked = true
		go g.block()
	}
	told := make(chan error, 1)
	g.wanted = told
	g.mu.Unlock()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case err := <-told:
		return err == nil
	case <-timer.C:
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.wanted = nil // who gets the lock now gives it back at once
	select {
	case err := <-told:
		return err == nil
	default:
		return false
	}
}

// block waits for the lock on behalf of whoever wants it when it comes.
func (g *gate) block() {
	err := g.f.Lock(vfs.LockExclusive)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.blocked = false
	switch {
	case g.wanted != nil:
		g.wanted <- err
		g.wanted = nil
	case err == nil:
		_ = g.f.Unlock()
	}
}

func (g *gate) unlock() {
	g.mu.Lock()
	defer g.mu.Unlock()
	_ = g.f.Unlock()
}

// syncPatience is how long a sync waits for another process's: a few syncs.
const syncPatience = 5 * time.Millisecond

// syncTo makes the ring durable up to end. Nil means that it is, or that the
// ring was replaced meanwhile, which confirm looks into. covered: another
// process did it, and is about to write the logs as well.
func (s *Store) syncTo(r *ring, ctl *control, end uint64) (covered bool, err error) {
	s.syncMu.Lock()
	defer s.syncMu.Unlock()
	gate := s.syncGate
	locked := gate.lock(syncPatience)
	if locked {
		defer gate.unlock()
	}
	upTo := end
	if w, durable, ok := ctl.read(); ok {
		if w.epoch != r.epoch || durable >= end {
			return true, nil // somebody else's sync was for us as well
		}
		upTo = max(end, w.written)
	}
	if err := s.datasync(r); err != nil {
		// Final for this file: asking again would say OK of data that is gone.
		return false, s.replaceRing(r, err)
	}
	s.own.set(r.epoch, upTo)
	if locked {
		_ = ctl.writeY(r.epoch, upTo) // a hint
	}
	return false, nil
}

// datasync is the sync that everything rests on.
func (s *Store) datasync(r *ring) error {
	if s.planted(plantNoSync) {
		return nil
	}
	if r.bad {
		// Somebody's sync failed before the ring could be replaced.
		return fmt.Errorf("%w: an earlier sync of the journal failed", hansard.ErrFailed)
	}
	began := time.Now()
	err := r.f.Datasync()
	since(&s.measures.syncs, &s.measures.syncNanos, began)
	if err != nil && s.planted(plantRetrySync) {
		return r.f.Datasync()
	}
	r.bad = err != nil
	return err
}

// replaceRing puts a new journal in place of one whose sync failed.
func (s *Store) replaceRing(r *ring, cause error) error {
	s.wmu.Lock()
	defer s.wmu.Unlock()
	if err := s.lockW(); err != nil {
		return errors.Join(cause, err)
	}
	defer s.unlockW()
	if s.ring.epoch != r.epoch {
		return nil // somebody else did
	}
	if err := s.rotate(s.ring.size); err != nil {
		return errors.Join(cause, err)
	}
	return nil
}
