package filestore

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"hansard"
	"hansard/filestore/internal/journal"
	"hansard/filestore/internal/peers"
	"hansard/internal/vfs"
)

// How a process joins a store. Reading needs none of it. The lock files:
//
//	write.lock   held throughout attach: nobody writes, joins or leaves in the meantime
//	open.lock    exclusive = alone, so recover (recover.go); shared from then on, for as
//	             long as this process has the store open
//	instances/   a file of our own, locked while we live; "joined" is written to it last
//
// leave.go is the counterpart.

// join makes the store's directory usable and joins the store. If joining fails (the disk
// is full, the journal damaged, a process stopped inside write.lock) the store can still
// be read, and the first write tries again and reports why. So only two errors of joining
// are returned: the store can't be written (a read-only mount, no permission), or its
// locks can't be relied on.
func (s *Store) join() error {
	if err := s.makeDirs(); err != nil {
		return err
	}
	f, _, err := s.openLockFile(peers.SyncLock)
	if err != nil {
		return err
	}
	s.syncer.syncGate = peers.NewGate(f, s.cfg.inline)
	if s.cfg.inline {
		return s.takePartOnce()
	}
	// In a goroutine, because flock can't wait with a deadline. It may outlive join:
	// Close waits for it with the other workers.
	joined := make(chan error, 1)
	s.workers.Add(1)
	go func() {
		defer s.workers.Done()
		joined <- s.takePartOnce()
	}()
	if err := s.awaitJoin(joined); isReadOnly(err) || errors.Is(err, hansard.ErrUnsupported) {
		return err
	}
	return nil
}

// takePartOnce joins by taking write.lock once, and mends what an earlier process had to
// set aside: a restart is what people try after a disk failure.
func (s *Store) takePartOnce() error {
	l, err := s.lock.lock()
	if err != nil {
		return err
	}
	l.unlock()
	s.checkpoints.mendAll()
	return nil
}

// awaitJoin waits until this process has joined, but not for a process that is stopped
// inside write.lock when there is nothing to recover: reading takes no lock. If other
// processes live, recovery is over or theirs to do, and 50 ms are enough. If none does,
// this one is probably recovering: it gets up to 2 s, and after that readers add what the
// journal holds (backlog.go). Only because of that is it safe to return nil early
// (failure 56).
func (s *Store) awaitJoin(joined <-chan error) error {
	timer := time.NewTimer(50 * time.Millisecond)
	defer timer.Stop()
	for waited := false; ; waited = true {
		select {
		case err := <-joined:
			return err
		case <-timer.C:
			if waited || s.leases.OthersLive() {
				return nil
			}
			timer.Reset(min(s.opt.LockWait, 2*time.Second))
		}
	}
}

// attach joins the processes that have the store open, under write.lock. A process that
// is alone first finishes what the last ones left. On error this process has not joined,
// and the next lock tries again.
func (l *locked) attach() error {
	l.joining.Store(true)
	defer l.joining.Store(false)
	err := l.takePart()
	if err != nil {
		// Before write.lock is released, and by closing, which can't fail: if open.lock
		// stayed exclusive, others would think that the store is open, and nobody would
		// recover or create the journal (TestJoinFailed).
		_ = l.lock.files.open.Close()
		l.lock.files.open = nil
	}
	return err
}

// takePart does the joining. The order matters: the lock test before any lock is relied
// on, the instance file before recovery (which leaves marks in it), "joined" last.
func (l *locked) takePart() error {
	if err := l.lock.lockTest(); err != nil {
		return err
	}
	// Rule AloneChecked: only a process that is alone recovers. A second one would write
	// slots over a ring in use.
	alone, err := l.lock.files.open.TryLock(vfs.LockExclusive)
	if err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	l.dropCaches()
	if err := register(l); err != nil { // recovery leaves marks in it
		return err
	}
	// So that processes that wait while we recover can see whom they wait for.
	if err := l.openControl(); err == nil {
		l.ctl.WriteHolder(l.holder)
	}
	if alone {
		err = l.recover()
	} else {
		err = l.reload()
	}
	if err != nil {
		return err
	}
	// Between exclusive and shared there is a moment without a lock. No other process can
	// get in between: opening the store takes write.lock.
	if alone {
		_ = l.lock.files.open.Unlock()
	}
	if got, err := l.lock.files.open.TryLock(vfs.LockShared); err != nil || !got {
		return errors.Join(errors.New("lock: open.lock is held exclusively outside write.lock"), err)
	}
	// Only now: for readers it proves that recovery is over and the logs are complete
	// (J7).
	if err := l.inst.Join(); err != nil {
		return fmt.Errorf("register: %w", err)
	}
	l.attached = true
	l.logsKnown.Store(true)
	return nil
}

// register makes this process's file in instances/, unless a failed attempt did: one file per
// process. Under write.lock.
func register(l *locked) (err error) {
	if l.inst == nil {
		l.inst, err = l.leases.Register(l.cfg.random)
	}
	return err
}

// openRing opens the journal file and reads its slots, see journal.Open.
func (p *process) openRing(flags vfs.Flag) (r *journal.Ring, slots [2]journal.Slot, best int, err error) {
	return journal.Open(p.fs, flags)
}

// useRing makes an open ring the one we write to. The old one stays open for as long as a
// group or a checkpoint holds it.
func (l *locked) useRing(r *journal.Ring) {
	if l.ring != nil {
		l.ring.LetGo()
	}
	r.Hold()
	l.ring = r
}

// openControl opens the control file, creating it if it is missing, and lets go of the
// old one.
func (l *locked) openControl() error {
	ctl, err := peers.OpenControl(l.fs)
	if err != nil {
		return err
	}
	if l.ctl != nil {
		l.ctl.LetGo()
	}
	ctl.Hold()
	l.ctl = ctl
	return nil
}

// sweep removes temporary files of dead processes. Only recovery calls it, when no other
// process has the store open: otherwise it could remove a living process's file before
// its rename (failure 29). Lock files and instances are never swept (failure 18).
func (p *process) sweep() {
	entries, err := p.fs.ReadDir(".")
	if err != nil {
		return
	}
	for _, e := range entries {
		if e.Regular && strings.HasSuffix(e.Name, ".tmp") {
			_ = p.fs.Remove(e.Name)
		}
	}
}
