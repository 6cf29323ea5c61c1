package filestore

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"hansard"
	"hansard/filestore/internal/journal"
	"hansard/filestore/internal/peers"
	"hansard/internal/vfs"
)

// Locks and syncs: who may write the ring, and who makes it durable.
//
//	write.lock   exclusively: the ring, control's W, the logs. Held for work in the page
//	             cache, and blocked for in flock by one goroutine per process
//	open.lock    shared, as long as a process takes part; exclusively by one that is alone
//	sync.lock    saves syncs between processes (peers.Gate). Nothing depends on it
//	check.lock   saves checkpoints (checkpoint.go). Nothing depends on it
//
// They are kernel locks (flock) on files that are made once and never removed: they end
// with their process, so there are no stale ones, and a file that exists means nothing.
// Order, also of this process's mutexes:
//
//	ckMu, check.lock, eraser.mu, syncMu, sync.lock, writeLock.mu, write.lock, open.lock
//
// The mutexes of caches (dirtyLogs, suspects, checked, keyIndex.mu, waiters, leases,
// ownDurable) come last, and nobody waits for a disk while holding one.

// lockFiles are this process's descriptors of the lock files, guarded by writeLock.mu. A
// flock belongs to the open file: closing a descriptor gives its lock up.
type lockFiles struct {
	write, open vfs.File // nil: not open, or closed after an error
	writeInode  uint64   // to notice that the file was replaced
}

// openLocks opens the lock files that are not open yet. The caller holds wl.mu.
func (wl *writeLock) openLocks() (err error) {
	if wl.files.write == nil {
		wl.files.write, wl.files.writeInode, err = wl.openLockFile(peers.WriteLock)
	}
	if wl.files.open == nil && err == nil {
		wl.files.open, _, err = wl.openLockFile(peers.OpenLock)
	}
	return err
}

// openLockFile opens a lock file, and makes it where it is missing: once for all time.
// Without O_EXCL, because two processes that make it at once must get the same inode.
func (p *process) openLockFile(name string) (vfs.File, uint64, error) {
	f, err := p.fs.Open(name, vfs.Create)
	if err != nil {
		return nil, 0, err // it names the file
	}
	inode, err := f.Inode()
	if err != nil {
		_ = f.Close()
		return nil, 0, err
	}
	return f, inode, nil
}

// lockTest makes sure that the kernel's locks exclude here at all: on some mounts they
// answer yes to everybody, and then two processes would assign the same seqs. The caller
// holds write.lock, so a second descriptor must not get it. That is as good a test as a
// second process: flock belongs to the open file, not to the process.
func (wl *writeLock) lockTest() error {
	second, err := wl.fs.Open(peers.WriteLock, 0)
	if err != nil {
		return fmt.Errorf("test locks: %w", err)
	}
	defer second.Close()
	if got, err := second.TryLock(vfs.LockShared); err != nil || got {
		return errors.Join(fmt.Errorf("%w: file locks do not exclude in this directory", hansard.ErrUnsupported), err)
	}
	return nil
}

// writeLock is write.lock, and the mutex of the one goroutine of this process that has it
// or waits for it. The mutex comes first: flock does not exclude the goroutines of one
// process that share a descriptor.
type writeLock struct {
	*process
	mu    sync.Mutex // guards all below
	files lockFiles
	// ahead: write.lock was taken and nobody uses it yet (lockIsFree).
	ahead bool
	// seen is the store's directory as it was when the names of write.lock, the journal and
	// control last led to the files that are open; zero: not known. now is the same
	// directory in this hold of the lock.
	seen, now vfs.DirStamp
	// state is what lock gives out. Outside this file nothing names it but newStore
	// (TestLockIsTheOnlyWay). In it, isAttached, inUse, ringIsSmall and glance look at it
	// under mu alone, without write.lock, and what they see may be out of date; close takes
	// it apart.
	state *locked

	// With a mutex of its own: it is set by syncs, which do not hold write.lock.
	own ownDurable
}

// locked is what only the holder of write.lock may touch: the ring, the control file and
// what this process knows of the sessions. Only lock gives it out, and it is good until
// unlock. What needs write.lock is a method of it, takes it as an argument, or belongs to
// something it leads to (logs, a session, asides); where other code needs the lock, such
// as dirtyLogs.change, its comment says so.
//
// What it remembers from the last time is a cache of the ring and belongs to an epoch
// (rule CacheEpoch): refresh compares, and dropCaches voids it.
type locked struct {
	*process
	lock   *writeLock
	asides *asides
	checks *checks
	logs   *logs
	// suspects are logs of which no sync by this process may be believed.
	suspects *suspects

	inst     *peers.Instance // this process's file in instances/; nil: not registered yet
	attached bool            // this process takes part in writing
	ctl      *peers.Control
	ring     *journal.Ring
	// stale: a reload failed, so that ring and caches may not be of one time.
	stale bool
	w     peers.Progress // as it was when write.lock was taken, plus our changes
	// unpublished is why control could not be written when write.lock was given back last.
	// Then no space of the ring is freed: others would not know.
	unpublished error
	// lim is how far the ring is known to be durable: what apply may copy to the logs.
	lim uint64
	// cursor is how far the caches know the ring, and cursorChain the chain there:
	// catchup goes on from it. cold: nothing is known, begin at the ring's start.
	cold        bool
	cursor      uint64
	cursorChain uint64
	// company is for how many more groups other processes are taken to be writing too.
	company int

	ringBuf   []byte         // memory that the next group's entries are encoded into,
	lineSizes map[string]int // and that its plan counts in (measure)

	free   uint64 // bytes left on the disk when it was asked last, at freeAt: see checkDisk
	freeAt time.Time
}

// lock takes write.lock, blocking, and makes sure that the lock, the control file and the
// ring are still the ones that the others use. The first time this process joins the
// others, which may mean recovery (attach). The caller unlocks; on error nothing is held.
func (wl *writeLock) lock() (*locked, error) { return wl.lockLooking(true) }

// lockLooking is lock. A caller that had the lock a moment ago and writes nothing to the
// ring need not look whether somebody replaced the ring's file; the epoch is compared in
// any case.
func (wl *writeLock) lockLooking(look bool) (*locked, error) {
	l, err := wl.lockOnly()
	if err != nil {
		return nil, err
	}
	if err := l.refresh(look); err != nil {
		l.giveBack()
		return nil, err
	}
	return l, nil
}

// lockOnly takes write.lock and looks at nothing. For the repair of a journal that can't
// be joined: everybody else goes through lock.
func (wl *writeLock) lockOnly() (*locked, error) {
	wl.mu.Lock()
	if err := wl.takeWriteLock(); err != nil {
		wl.mu.Unlock()
		return nil, err
	}
	wl.state.logs.dir = vfs.DirStamp{} // of the last hold
	return wl.state, nil
}

// takeWriteLock takes the lock itself, by a flock that blocks. Polling would starve some
// processes; and because only the leader of a process waits here, no caller's context is
// tied to a thread that can't be interrupted. The caller holds wl.mu.
func (wl *writeLock) takeWriteLock() error {
	if err := wl.openLocks(); err != nil {
		wl.dropAhead() // or every other process would wait for our next write
		return err
	}
	for {
		began := time.Now()
		if !wl.ahead {
			if err := wl.files.write.Lock(vfs.LockExclusive); err != nil {
				return fmt.Errorf("lock: %w", err)
			}
		}
		wl.ahead = false
		since(&wl.measures.locks, &wl.measures.lockNanos, began)
		if wl.lookAtStore(); wl.unmoved() {
			break
		}
		// Waiters of a lock file that was replaced hold a dead inode.
		// Somebody removed the file, or restored a copy of the store over it: others
		// already lock the new one, and holding the old excludes nobody (failure 16).
		inode, _, err := wl.fs.Inode(peers.WriteLock)
		if err == nil && inode == wl.files.writeInode {
			break
		}
		_ = wl.files.write.Close() // and so unlocks it
		if wl.files.write, wl.files.writeInode, err = wl.openLockFile(peers.WriteLock); err != nil {
			wl.files.write = nil
			return err
		}
	}
	return nil
}

// refresh reads what others changed since this process last had write.lock. Normally that
// is one read of control; anything unexpected (a bad checksum, another epoch, another
// inode) leads to reload, which believes the ring only (rules ControlCRC, JournalInode).
func (l *locked) refresh(look bool) error {
	if !l.attached {
		return l.attach()
	}
	w, durable, holder, ok := l.ctl.ReadAll()
	// For the error message of those who wait too long; nothing is decided by it.
	if holder != string(l.holder) {
		l.ctl.WriteHolder(l.holder)
	}
	if ok && !l.stale && w.Epoch == l.ring.Epoch && (!look || l.lock.sameFiles(l)) {
		l.w = w
		// What this process knows counts too, see ownDurable. But never beyond what is
		// written, should control be an old copy (invariant 7).
		l.lim = max(durable, min(l.lock.own.get(w.Epoch), w.Written))
		return nil
	}
	return l.reload()
}

// sameFiles tells whether the names of the journal and of control still lead to the files
// that we have open.
func (wl *writeLock) sameFiles(l *locked) bool {
	if wl.unmoved() {
		return true
	}
	if !wl.sameFile(journal.Name, l.ring.Inode) || !l.ctl.IsCurrent(wl.fs) {
		return false
	}
	wl.seen = wl.now // write.lock was compared when it was taken
	return true
}

// sameFile tells whether a name still leads to the inode that we have open.
func (p *process) sameFile(name string, inode uint64) bool {
	now, _, err := p.fs.Inode(name)
	return err == nil && now == inode
}

// unlock publishes what we did and gives write.lock back.
func (l *locked) unlock() {
	// The record is a hint: if it can't be written the next holder finds the same by
	// looking at the ring, except for a new start.
	l.unpublished = l.ctl.WriteProgress(&l.w)
	l.giveBack()
}

// giveBack is unlock without publishing, for a holder that did nothing or whose state
// can't be relied on.
func (l *locked) giveBack() {
	_ = l.lock.files.write.Unlock()
	l.lock.mu.Unlock()
}

// lockCaughtUp takes write.lock and finishes what others left: the state of every session
// is known as far as the ring goes, and what is durable is in the logs.
func (wl *writeLock) lockCaughtUp() (*locked, error) { return wl.lockToCatchUp(true) }

// lockToCatchUp is lockCaughtUp with a choice of how closely to look, see lockLooking.
func (wl *writeLock) lockToCatchUp(look bool) (*locked, error) {
	l, err := wl.lockLooking(look)
	if err != nil {
		return nil, err
	}
	if !look && !l.cold && l.cursor == l.w.Written {
		// The caches know all that was published, and nothing is written to the ring: what a
		// dead writer may have left behind its end is adopted by the next one who writes.
		l.dropApplied()
		err = l.apply()
	} else {
		err = l.catchup()
	}
	if err != nil {
		// What was done up to the error counts and is published: entries that were
		// applied stay applied.
		l.unlock()
		return nil, err
	}
	return l, nil
}

// isAttached tells whether this process takes part in writing: not before its first lock
// worked.
func (wl *writeLock) isAttached() bool {
	wl.mu.Lock()
	defer wl.mu.Unlock()
	return wl.state.attached
}

// inUse is the control file and the size of the ring, without write.lock: a look that may
// be out of date. The caller lets go of the file; nil: there is none yet.
func (wl *writeLock) inUse() (ctl *peers.Control, ringSize uint64) {
	wl.mu.Lock()
	defer wl.mu.Unlock()
	l := wl.state
	if l.ctl == nil || l.ring == nil {
		return nil, 0
	}
	l.ctl.Hold()
	return l.ctl, l.ring.Size
}

// ringIsSmall tells whether the ring is that of a new store: a look that may be out of
// date.
func (wl *writeLock) ringIsSmall() bool {
	wl.mu.Lock()
	defer wl.mu.Unlock()
	return wl.state.ring != nil && wl.state.ring.Size < wl.cfg.ringSize
}

// glance is what the control file says, if nobody of this process has write.lock or waits
// for it: a look that may be out of date.
func (wl *writeLock) glance() (w peers.Progress, ok bool) {
	if !wl.mu.TryLock() {
		return w, false
	}
	defer wl.mu.Unlock()
	if wl.state.ctl == nil {
		return w, false
	}
	w, _, ok = wl.state.ctl.Read()
	return w, ok
}

// pause runs fn while this process is outside write.lock, and keeps it there: a process
// that is stopped in fn, by Ctrl-Z, holds up nobody (invariant 19).
func (wl *writeLock) pause(fn func()) {
	wl.mu.Lock()
	defer wl.mu.Unlock()
	wl.dropAhead()
	fn()
}

// dropAhead gives back a lock that lockIsFree has taken. The caller holds wl.mu.
func (wl *writeLock) dropAhead() {
	if wl.ahead {
		wl.ahead = false
		_ = wl.files.write.Unlock()
	}
}

// close closes all files that are used under the lock, and with them gives up all locks.
// After Close gave up waiting it is not called: the leader may still be using them.
func (wl *writeLock) close() {
	wl.mu.Lock()
	defer wl.mu.Unlock()
	l := wl.state
	for _, sess := range l.logs.sessions {
		sess.closeLog()
	}
	files := []vfs.File{wl.files.write, wl.files.open}
	if l.inst != nil {
		files = append(files, l.inst.File())
	}
	if l.ring != nil {
		files = append(files, l.ring.File)
	}
	if l.ctl != nil {
		files = append(files, l.ctl.File())
	}
	for _, f := range files {
		if f != nil {
			_ = f.Close() // nothing is buffered: what was promised is synced
		}
	}
}

// syncer makes the ring durable: one fdatasync for all groups that wait, of all
// processes.
type syncer struct {
	*process
	lock *writeLock
	// syncMu admits one fdatasync at a time on this process's ring (rule OneSyncPerFD):
	// the kernel reports a failed write-back once per open file, and of two at once one
	// could take the other's report. It also guards Ring.SyncFailed. Order: at the top of
	// this file.
	syncMu   sync.Mutex
	syncGate *peers.Gate // sync.lock; nil before join
}

// syncPatience is how long a sync waits for another process's: a few syncs. After that
// everybody syncs without sync.lock (rule SyncLockBypassed): under load some process
// holds it most of the time, and if that one is stopped nobody may depend on it.
const syncPatience = 5 * time.Millisecond

// syncTo makes the ring durable up to end. Nil means that it is, or that the ring was
// replaced meanwhile, which confirm looks into. covered: another process did it, and is
// about to write the logs as well. The caller holds r and ctl, and not write.lock: this
// is the one place where a commit waits for the disk.
//
// alone: no other process writes, so there is nobody to save a sync for, nor one whose sync
// might have covered ours.
func (sy *syncer) syncTo(r *journal.Ring, ctl *peers.Control, end uint64, alone bool) (covered bool, err error) {
	sy.syncMu.Lock()
	defer sy.syncMu.Unlock()
	if alone {
		return false, sy.syncAndPublish(r, ctl, end, true)
	}
	gate := sy.syncGate
	locked := gate.Lock(syncPatience)
	if locked {
		defer gate.Unlock()
	}
	// Position and epoch from one read of W (rule TargetSameRead), and before the sync:
	// what is written while it runs may or may not be covered by it.
	upTo := end
	if w, durable, ok := ctl.Read(); ok {
		if w.Epoch != r.Epoch {
			return true, nil // the ring was replaced
		}
		if durable >= end {
			// Another process's sync covered ours. Remembered, because the next look at
			// control may say less: the record may be half written by then, or a process
			// that thought it was alone may have published an older position
			// (TestCoveredStaysCovered). Up to end only: this answer rests on that anyway.
			sy.lock.own.set(r.Epoch, end)
			return true, nil
		}
		upTo = max(end, w.Written)
	}
	return false, sy.syncAndPublish(r, ctl, upTo, locked)
}

// syncAndPublish syncs the ring, remembers that it is durable up to upTo, and publishes
// that, if it is to: so that others apply the entries if we die before we do. It is not
// published without sync.lock when others write, because they could bring back an older
// position with theirs. That would be no more than a lost hint: what was durable still is.
// The caller holds syncMu.
func (sy *syncer) syncAndPublish(r *journal.Ring, ctl *peers.Control, upTo uint64, publish bool) error {
	if err := sy.datasync(r); err != nil {
		// Final for this file: asking again would say OK of data that is gone.
		return sy.replaceRing(r, err)
	}
	sy.lock.own.set(r.Epoch, upTo)
	if publish {
		_ = ctl.WriteDurable(r.Epoch, upTo) // a hint
	}
	return nil
}

// datasync is the sync that everything rests on. After the first error it fails for ever
// on this file (rules SyncErrorFinal, SyncErrorShared): the kernel drops the pages that
// it could not write and reports that once, so asking again says OK of data that is gone
// (failure 38, planted bug "sync retried"). The caller holds syncMu.
func (sy *syncer) datasync(r *journal.Ring) error {
	if r.SyncFailed {
		// Another goroutine got the error and has not replaced the ring yet, or could
		// not.
		return fmt.Errorf("%w: an earlier sync of the journal failed", hansard.ErrFailed)
	}
	began := time.Now()
	err := r.File.Datasync()
	since(&sy.measures.syncs, &sy.measures.syncNanos, began)
	r.SyncFailed = err != nil
	return err
}

// replaceRing puts a new journal in place of one whose sync failed. Nil means that there
// is one, made here or by another process; whether the caller's entries are in it is
// found out by confirm. The caller holds syncMu.
func (sy *syncer) replaceRing(r *journal.Ring, cause error) error {
	l, err := sy.lock.lock()
	if err != nil {
		return errors.Join(cause, err)
	}
	defer l.unlock()
	if l.ring.Epoch != r.Epoch {
		return nil // another process replaced it already
	}
	if err := l.rotate(l.ring.Size); err != nil {
		return errors.Join(cause, err)
	}
	return nil
}

// ownDurable is how far this process knows the ring to be durable: it synced it, or saw
// that another process did. It matters where control does not say so: the position was
// not published, because sync.lock was not available, or a lower one was published later.
type ownDurable struct {
	mu         sync.Mutex // guards both
	epoch, pos uint64
}

// get is the position synced in an epoch; 0 in any other (rule OwnDurableDropped):
// another ring has other entries at these positions.
func (o *ownDurable) get(epoch uint64) uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.epoch != epoch {
		return 0
	}
	return o.pos
}

// set notes a sync. Positions only grow within an epoch: a slower sync that began earlier
// must not take back what a later one made durable.
func (o *ownDurable) set(epoch, pos uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.epoch != epoch {
		o.epoch, o.pos = epoch, 0
	}
	o.pos = max(o.pos, pos)
}
