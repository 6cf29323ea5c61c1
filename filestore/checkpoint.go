package filestore

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sort"
	"sync"
	"time"

	"hansard/internal/vfs"
)

// A checkpoint makes the logs durable and moves the start of the ring behind
// what they hold, so that its space can be used again. Any process may do it;
// check.lock keeps them from doing it all at once, and is done without when the
// ring is full, because its holder may be stopped.

const checkpointEvery = 30 * time.Second

// checkpointInBackground keeps the ring from filling up.
func (s *Store) checkpointInBackground() {
	defer s.workers.Done()
	tick := time.NewTicker(checkpointEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.closing:
			return
		case <-s.kick:
			if !s.halfFull() {
				continue // another process, or the last kick, did it already
			}
		case <-tick.C:
		}
		// An error stays: the start does not move, the ring fills up, and
		// the writer that finds no room gets it.
		_ = s.checkpoint(false)
	}
}

// halfFull tells whether the ring is worth a checkpoint.
func (s *Store) halfFull() bool {
	s.wmu.Lock()
	ctl, r := s.ctl, s.ring
	s.wmu.Unlock()
	if ctl == nil {
		return false
	}
	w, _, ok := ctl.read()
	return ok && w.applied-w.start > r.size/3
}

func (s *Store) kickCheckpoint() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// checkpoint does one, or leaves it to the process that is at it unless urgent.
func (s *Store) checkpoint(urgent bool) error {
	s.ckMu.Lock()
	defer s.ckMu.Unlock()
	lock, _, err := s.openLockFile(checkLockName)
	if err != nil {
		return err
	}
	defer lock.Close() // and so unlocks it
	if got, err := lock.TryLock(vfs.LockExclusive); (err != nil || !got) && !urgent {
		return err
	}
	c, err := s.beginCheckpoint()
	if err != nil || c == nil {
		return err
	}
	if err := s.syncLogs(c); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	if !s.planted(plantNoDirSync) {
		if err := s.fs.SyncDir(sessionsDir); err != nil {
			return fmt.Errorf("checkpoint: sync sessions: %w", err)
		}
	}
	hseq, err := s.writeStart(c)
	if err != nil || hseq == 0 {
		return err
	}
	// The slot must be durable before the space before it is used again.
	if err := s.syncRing(c.ring); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return s.publishStart(c, hseq)
}

// checkpointing is one checkpoint under way: all before upTo is in the logs.
type checkpointing struct {
	ring  *ring
	upTo  uint64
	chain uint64
	names []string
	seen  map[uint64]bool // marks that were taken care of
}

// beginCheckpoint notes what has to be made durable; nil when nothing has.
func (s *Store) beginCheckpoint() (*checkpointing, error) {
	s.wmu.Lock()
	defer s.wmu.Unlock()
	if err := s.lockCaughtUp(); err != nil {
		return nil, err
	}
	defer s.unlockW()
	if s.w.applied == s.w.start {
		return nil, nil
	}
	c := &checkpointing{ring: s.ring, upTo: s.w.applied, chain: s.w.tailChain, seen: map[uint64]bool{}}
	if c.upTo < s.w.written {
		var err error
		if c.chain, err = s.ring.chainAt(c.upTo); err != nil {
			return nil, err
		}
	}
	for name, d := range s.dirty {
		if d.end > s.w.start {
			c.names = append(c.names, name)
		} else {
			delete(s.dirty, name)
		}
	}
	sort.Strings(c.names)
	return c, nil
}

// checkpointFiles is how many logs a checkpoint has open at once.
const checkpointFiles = 128

// syncLogs makes the logs durable.
func (s *Store) syncLogs(c *checkpointing) error {
	for slot, name := range s.suspects {
		// An earlier sync failed, and the copy as well: nothing but a copy
		// may be believed, and nobody else is told.
		if err := s.copyLogLocked(name); err != nil {
			return err
		}
		delete(s.suspects, slot)
		if err := s.inst.mark(slot, 0); err != nil {
			return err
		}
	}
	for names := c.names; len(names) > 0; {
		n := min(len(names), checkpointFiles)
		if err := s.syncSome(c, names[:n]); err != nil {
			return err
		}
		names = names[n:]
	}
	return nil
}

// openedForSync is a log about to be made durable.
type openedForSync struct {
	name string
	f    vfs.File
}

// syncSome makes some logs durable. The order matters: a descriptor that is
// open before a failure is told of it, so open first, look for marks next.
// Whoever marked a log and is not done may have been told of a failure that
// nobody will tell us: then, and when our own sync fails, only a copy is safe.
func (s *Store) syncSome(c *checkpointing, names []string) (err error) {
	var logs []openedForSync
	defer func() {
		for _, l := range logs {
			_ = l.f.Close() // opened for this only
		}
	}()
	for _, name := range names {
		f, err := s.fs.Open(logPath(name), 0)
		if errors.Is(err, fs.ErrNotExist) || err != nil && isForeign(err) {
			continue // somebody else's doing: its entries are or will be aside
		}
		if err != nil {
			return err
		}
		logs = append(logs, openedForSync{name, f})
	}
	marks, err := s.marks(false)
	if err != nil {
		return err
	}
	for _, l := range logs {
		if m := markOf(l.name); marks[m] {
			c.seen[m] = true
		}
	}
	if s.cfg.inline {
		for _, l := range logs {
			if err := s.syncLog(0, l, marks); err != nil {
				return err
			}
		}
		return nil
	}
	// Several at once: they share the file system's own commits.
	var wg sync.WaitGroup
	work := make(chan openedForSync)
	errs := make([]error, markSlots)
	for slot := range markSlots {
		wg.Go(func() {
			for l := range work {
				if errs[slot] == nil {
					errs[slot] = s.syncLog(slot, l, marks)
				}
			}
		})
	}
	for _, l := range logs {
		work <- l
	}
	close(work)
	wg.Wait()
	return errors.Join(errs...)
}

func (s *Store) syncLog(slot int, l openedForSync, marks map[uint64]bool) error {
	mark := markOf(l.name)
	if err := s.inst.mark(slot, mark); err != nil {
		return err
	}
	if failed := l.f.Datasync() != nil || marks[mark]; failed && !s.planted(plantNoCopy) {
		if err := s.copyLogLocked(l.name); err != nil {
			s.suspect(slot, l.name)
			return err // the mark stays
		}
	}
	return s.inst.mark(slot, 0)
}

// suspect remembers a log that must be copied before anything else.
func (s *Store) suspect(slot int, name string) {
	s.suspectMu.Lock()
	defer s.suspectMu.Unlock()
	if s.suspects == nil {
		s.suspects = map[int]string{}
	}
	s.suspects[slot] = name
}

// suspicious tells whether there are such logs. Then this process's marks must
// outlive it: whoever syncs one of them next is told of nothing.
func (s *Store) suspicious() bool {
	s.suspectMu.Lock()
	defer s.suspectMu.Unlock()
	return len(s.suspects) > 0
}

func (s *Store) copyLogLocked(name string) error {
	s.wmu.Lock()
	defer s.wmu.Unlock()
	if err := s.lockCaughtUp(); err != nil {
		return err
	}
	defer s.unlockW()
	sess := s.cached(name)
	if _, err := s.openLog(sess, false); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	return s.copyLog(sess)
}

// copyLog replaces a log by a copy, under write.lock: after a failed sync the
// old file's pages can't be believed, and writing them again was not enough on
// every file system. What the ring has is taken from the ring.
func (s *Store) copyLog(sess *session) error {
	slots, _, best, err := readSlots(s.ring.f)
	if err != nil || best < 0 {
		return errors.Join(err, errors.New("copy log: the journal has no valid slot"))
	}
	sl := slots[durableSlot(slots, best, &s.w)]
	entries, _, _, err := s.ring.scan(sl.start, sl.startChain, s.w.applied)
	if err != nil {
		return err
	}
	return s.replaceByCopy(sess, entries)
}

// replaceByCopy does the copying.
func (s *Store) replaceByCopy(sess *session, entries []*entry) (err error) {
	size, err := sess.f.Size()
	if err != nil {
		return err
	}
	tmp := fmt.Sprintf("log.%016x.tmp", s.cfg.random())
	f, err := s.fs.Open(tmp, vfs.Create|vfs.Exclusive)
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, f.Close())
		if err != nil {
			_ = s.fs.Remove(tmp)
		}
	}()
	if err := copyBytes(f, sess.f, size); err != nil {
		return err
	}
	for _, e := range entries {
		if e.name == sess.name && e.end() <= s.w.applied && e.off+int64(len(e.bytes)) <= size && s.lostPages(sess.f, e) {
			if err := writeLog(f, e.bytes, e.off); err != nil {
				return err
			}
		}
	}
	if err := f.Datasync(); err != nil {
		return err
	}
	if err := s.fs.Rename(tmp, logPath(sess.name)); err != nil {
		return err
	}
	sess.closeLog()
	return s.fs.SyncDir(sessionsDir)
}

// lostPages tells whether a log has, where an entry was written, its bytes with
// runs of NUL in them: pages that the disk lost. Other content is somebody's.
func (s *Store) lostPages(f vfs.File, e *entry) bool {
	there := make([]byte, len(e.bytes))
	if _, err := f.ReadAt(there, e.off); err != nil && err != io.EOF {
		return true // unreadable: the ring knows better
	}
	return onlyNULsDiffer(there, e.bytes)
}

func copyBytes(dst, src vfs.File, size int64) error {
	buf := make([]byte, min(size, 1<<20))
	for at := int64(0); at < size; {
		n := min(int64(len(buf)), size-at)
		if _, err := src.ReadAt(buf[:n], at); err != nil && err != io.EOF {
			return err
		}
		if _, err := dst.WriteAt(buf[:n], at); err != nil {
			return err
		}
		at += n
	}
	return nil
}

// writeStart writes the slot with the new start, into the place of the one that
// is not known to be durable. 0 is nothing to do.
func (s *Store) writeStart(c *checkpointing) (hseq uint64, err error) {
	s.wmu.Lock()
	defer s.wmu.Unlock()
	if err := s.lockCaughtUp(); err != nil {
		return 0, err
	}
	defer s.unlockW()
	if s.ring != c.ring || s.w.start >= c.upTo {
		return 0, nil // the ring was replaced, or somebody was quicker
	}
	slots, _, best, err := readSlots(s.ring.f)
	if err != nil {
		return 0, err
	}
	if best < 0 {
		return 0, s.rotate(s.ring.size)
	}
	keep := durableSlot(slots, best, &s.w)
	sl := slots[keep]
	sl.epoch, sl.hseq = s.w.epoch, slots[best].hseq+1
	sl.start, sl.startChain = c.upTo, c.chain
	return sl.hseq, s.ring.writeSlot(1-keep, &sl)
}

func (s *Store) syncRing(r *ring) error {
	s.syncMu.Lock()
	defer s.syncMu.Unlock()
	if err := s.datasync(r); err != nil {
		// With a new ring nothing is wrong, and nothing is freed yet.
		return s.replaceRing(r, err)
	}
	return nil
}

// publishStart frees the space, if the slot we synced is still there.
func (s *Store) publishStart(c *checkpointing, hseq uint64) error {
	s.wmu.Lock()
	defer s.wmu.Unlock()
	if err := s.lockW(); err != nil {
		return err
	}
	defer s.unlockW()
	if s.ring != c.ring {
		return nil
	}
	slots, _, best, err := readSlots(s.ring.f)
	if err != nil || best < 0 || slots[best].hseq != hseq {
		return err // a later checkpoint overwrote it and will publish its own
	}
	s.w.start = max(s.w.start, c.upTo)
	return s.removeDead(c.seen)
}
