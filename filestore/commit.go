package filestore

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"hansard"
	"hansard/filestore/internal/journal"
	"hansard/filestore/internal/peers"
	"hansard/filestore/internal/sessionlog"
)

// The commit: how the requests of one process become lines in logs and answers. One
// goroutine per process runs it at a time, the leader of queue.go, so nothing here needs
// a lock of its own. A group goes
//
//	lockWithRoom   write.lock, caught up, with room in the ring and on the disk
//	writeGroup     plan (plan.go), lay out, one write to the ring, unlock
//	syncTo         one fdatasync for the group (lock.go)
//	confirm        the logs have it (apply.go), or the answers are void
//	finishGroup    answers
//
// The first byte written to the ring divides the ways to fail. Before it an error means
// "not stored", and everything that can run out is checked before it. After it there is
// only "stored" or ErrUnknown (rule UnknownAfterWrite): the next process to take
// write.lock adopts a complete entry, and a caller that was told "not stored" would retry
// and store it twice.

// committer takes requests through the commit. Its queue has a mutex; the other fields
// belong to the leader, and the parts it points to document their own guards.
type committer struct {
	*process
	lock        *writeLock
	syncer      *syncer
	checkpoints *checkpoints
	reader      *reader
	asides      *asides
	checks      *checks
	keyring     *keyring
	attachments *attachments
	queue       queue
	runsDue     runsDue
	runsSwept   bool // only the worker uses it
	// last is the memory that holds the entries of the last group: the leader needs it
	// until the group is finished, and has to hold write.lock to release it.
	last *memory
	// company: other processes were writing too when the last group was written. It
	// belongs to the leader.
	company bool
	// released is called when the release of a session's turn is in the ring. With apart
	// it has to return at once: other requests of the group wait.
	released func(name string, apart bool)
}

// group is what one commit writes: the requests that are answered when it is durable and
// in the logs, and the entries that carry their lines. It is made under write.lock and
// finished without it, when another process may already have replaced ring and ctl: so it
// names its own, and holds them.
type group struct {
	ring     *journal.Ring
	ctl      *peers.Control
	requests []*request
	entries  []*journal.Entry
	end      uint64 // end of its last entry, or of the newest entry an answer rests on
	appended []*appended
	alone    bool // no other process was writing
}

// hold keeps the ring and the control file open while the group uses them outside
// write.lock: a rotation by another goroutine of this process would close the descriptor
// that is about to be synced.
func (g *group) hold() {
	g.ring.Hold()
	g.ctl.Hold()
}

// letGo undoes hold; the last user of a replaced file closes it.
func (g *group) letGo() {
	g.ring.LetGo()
	g.ctl.LetGo()
}

// commitGroup commits what is queued: under write.lock the checks, the seqs and one write
// to the ring; then one sync; then the logs; and only then the answers (J1, rule
// SyncBeforeApply). Any other order shows or promises what a power cut can take back; the
// planted bugs "log before sync" and "no sync" are such orders. It returns how many
// requests were answered after the sync, which tells the leader how many may come back.
func (cm *committer) commitGroup() (answered int) {
	g := cm.writeGroup()
	if g == nil {
		return 0
	}
	appends := true
	for _, r := range g.requests {
		if r.op == opRelease && r.err == nil {
			// Before the sync, so that the next waiter wakes up while the sync runs; both
			// take about as long.
			cm.released(r.name, len(g.requests) > 1)
		}
		appends = appends && r.op == opAppend
	}
	if cm.company && appends && !cm.cfg.inline {
		for range joinYields {
			yield()
		}
	}
	cm.finishGroup(g)
	return len(g.requests)
}

// joinYields is how often a group yields before its sync, so that other processes that
// wait for write.lock can write their groups and share the sync. With eight processes
// that halves the syncs. A group that hands on a turn does not yield: somebody is waiting
// for that turn.
const joinYields = 3

// finishGroup makes a written group durable, sees to it that the logs have it, and
// answers its requests. Refused and replayed requests wait here like the others (rules
// ReplayWaits, RefusalWaits): "conflict" or "replayed" rests on lines that a cut could
// still take away.
func (cm *committer) finishGroup(g *group) {
	defer g.letGo()
	covered, err := cm.syncer.syncTo(g.ring, g.ctl, g.end, g.alone)
	lookAside := false
	if err == nil {
		lookAside, err = cm.confirm(g, covered)
	}
	err = cm.explain(err)
	// Read once for the group, and only if a flag in control says that anything was set
	// aside in this epoch: otherwise every answer would cost a directory scan.
	var aside map[string]bool
	if lookAside {
		if aside, err = cm.asides.allAsides(); err != nil {
			err = cm.explain(err) // unknown which sessions' lines are not in their logs
		}
	}
	for _, a := range g.appended {
		if err == nil && !aside[a.name] && !slices.ContainsFunc(g.requests, func(r *request) bool { return r.name == a.name && r.void != nil }) {
			cm.keyring.added(a)
		}
	}
	// Also after an error: the lines may be in the logs all the same, and a wake-up is
	// only a hint to look.
	for _, e := range g.entries {
		cm.waiters.wake(e.Name)
	}
	for _, r := range g.requests {
		switch {
		case err != nil:
			r.answer(hansard.Receipt{}, fmt.Errorf("%w: %w", hansard.ErrUnknown, err))
		case r.void != nil:
			r.answer(hansard.Receipt{}, fmt.Errorf("%w: %w", hansard.ErrUnknown, r.void))
		case aside[r.name] && !errors.Is(r.err, hansard.ErrDamaged):
			// The lines it stored, or was refused or replayed for, are durable but not in
			// the log: the log was modified from outside after it was checked, or could
			// not be written. No reader of the session sees them, so neither "stored" nor
			// "conflict" would be true (TestAsideIsNotStored, TestRefusalRestsOnAside).
			r.answer(hansard.Receipt{}, fmt.Errorf("%w: %w", hansard.ErrUnknown, cm.asides.asideError(r.name, r.id)))
		default:
			r.answer(r.receipt, r.err)
		}
	}
}

// writeGroup writes the next group to the ring and answers the requests whose outcome
// does not depend on it. It returns nil if no request is left to wait for the sync. The
// caller finishes the group, which holds its ring and control file.
func (cm *committer) writeGroup() *group {
	l, limit, err := cm.lockWithRoom()
	if err != nil {
		// Nothing was written: everybody in the queue gets a definite error and may
		// retry.
		cm.queue.fail(cm.writeError("write", err))
		return nil
	}
	defer l.unlock()
	// From here on a caller whose context ends gets ErrUnknown, no longer "not stored".
	requests := cm.queue.take(limit)
	if len(requests) == 0 {
		return nil
	}
	if len(requests) >= manyLogs {
		l.logs.lookAtDir()
	}
	g := &group{ring: l.ring, ctl: l.ctl}
	cm.company, l.company = l.company > 0, max(0, l.company-1)
	g.alone = !cm.company
	g.hold()
	if cm.last != nil {
		l.logs.pending.letGo(cm.last)
	}
	cm.last = l.logs.pending.memory()
	p := plan{store: l, now: l.cfg.now(), snapBytes: int(l.ring.Share()), memory: cm.last}
	p.stamp = p.now.Format(sessionlog.TimeLayout)
	p.measure(requests)
	for _, r := range requests {
		p.add(r)
	}
	g.entries, err = l.writeEntries(p.touched, p.memory)
	if err == nil && p.probed && len(g.entries) == 0 {
		err = l.writeProbe()
	}
	if err != nil {
		// Any part of it may be in the ring. Entries that are whole are adopted by
		// whoever takes the lock next, us included; the first one that is torn ends what
		// is valid and is overwritten. The caches already count the lines of all of them:
		// they are void.
		l.dropCaches()
	}
	// The lines are in the ring, or it is unknown whether they are: either way no longer
	// a draft.
	for _, sess := range p.touched {
		if a := sess.draft.appendedTo(sess); a != nil && cm.keyring.used() {
			g.appended = append(g.appended, a)
		}
		sess.draft = nil
	}
	for _, r := range requests {
		switch {
		case r.dep == 0: // it rests on what is in the logs
			r.answer(r.receipt, r.err)
		case err != nil:
			r.answer(hansard.Receipt{}, fmt.Errorf("%w: %w", hansard.ErrUnknown, err))
		default:
			if r.dep == restsOnGroup {
				r.dep = l.w.Written
			}
			g.end = max(g.end, r.dep)
			g.requests = append(g.requests, r)
		}
	}
	if len(g.requests) == 0 {
		g.letGo()
		return nil
	}
	return g
}

// lockWithRoom takes write.lock, finishes what others left, and makes sure that whatever
// can fail for lack of room fails now: after the first byte in the ring "not stored" is
// no longer a possible answer. limit is the size of the next group in bytes. On error
// write.lock is not held.
//
// Room is made outside the lock, so by the time the lock is taken again others may have
// used it: hence the loop, and BusyError when they always win.
func (cm *committer) lockWithRoom() (l *locked, limit int, err error) {
	began := cm.cfg.mono()
	var unpublished error
	for try := 0; try <= 20 || !cm.cfg.inline && cm.cfg.mono()-began < cm.opt.LockWait; try++ {
		l, err := cm.lock.lockCaughtUp()
		if err != nil {
			return nil, 0, err
		}
		unpublished = l.unpublished
		limit, full, err := cm.roomFor(l)
		if err == nil && full == nil && limit > 0 {
			return l, limit, nil
		}
		l.unlock()
		if err == nil && full != nil {
			err = cm.makeRoom(full)
		}
		if err != nil {
			return nil, 0, err
		}
	}
	if unpublished != nil {
		return nil, 0, cm.writeError("make room in the journal", unpublished)
	}
	return nil, 0, &hansard.BusyError{Own: "others fill the journal faster than it can be emptied"}
}

// roomFor returns the size of the next group, under write.lock. A limit of 0 without full
// means that the ring was just made larger: call it again. full is what has to leave the
// ring first; it is held, and makeRoom lets it go.
func (cm *committer) roomFor(l *locked) (limit int, full *group, err error) {
	if l.w.Flags&peers.FlagFailed != 0 {
		// An earlier rotation failed. The next writer tries again, so that a store
		// recovers from a disk that was full or ill for a while without a restart
		// (invariant 18).
		if err := l.rotate(l.ring.Size); err != nil {
			return 0, nil, fmt.Errorf("%w: %w", hansard.ErrFailed, err)
		}
		// The rotation dropped the caches, and what was in the ring is pending again.
		// Without catching up, the seqs of those entries would be assigned a second time
		// (planted bug "late rotation not caught up with", TestRotateCatchesUp).
		if err := l.catchup(); err != nil {
			return 0, nil, err
		}
	}
	if err := syncReplaced(l); err != nil {
		return 0, nil, fmt.Errorf("%w: sync sessions: %w", hansard.ErrFailed, err)
	}
	limit = int(l.ring.Share())
	need := uint64(cm.queue.need(limit))
	err = l.checkDisk(need + diskReserve)
	if errors.Is(err, hansard.ErrNoSpace) {
		// A delete is what frees space: it may use the reserve. The others are refused
		// before the ring is touched, and what is left of the queue fits into limit.
		cm.queue.failAllBut(opDelete, err)
		if need = uint64(cm.queue.need(limit)); need > 0 {
			err = l.checkDisk(need + uint64(cm.queue.length())*tombstoneBlock + eraseReserve)
		}
	}
	if err != nil {
		return 0, nil, err
	}
	// What the requests need, and a share for snapshots, which are not in their sizes.
	// Twice, because an entry that does not fit before the end of the ring leaves up to
	// its own length unused there. And a share always stays free.
	worst := 2*(need+l.ring.Share()) + l.ring.Share()
	inUse := l.w.Written - l.w.Start
	switch {
	case inUse+worst <= l.ring.Size:
		// Before it is full: of a small ring not even 5/8 can be used, and making a larger
		// one takes a while.
		if inUse > l.ring.Size*5/8 || growsTo(l) > 0 && inUse > l.ring.Size/8 {
			cm.checkpoints.kickCheckpoint()
		}
		// No more than was counted: a request that queues up from now on may not fit.
		return max(1, int(need)), nil, nil
	case worst <= growsTo(l):
		// Full before the background was done with a larger one (grow): this takes a
		// fraction of a second, once or twice in the life of a store. A checkpoint would
		// take as long, and there would be one after the other.
		err := l.rotate(growsTo(l))
		if err == nil || l.w.Flags&peers.FlagFailed != 0 {
			return 0, nil, err
		}
		l.growFails.Store(true) // the old ring is as good as before
		return 0, nil, nil
	case inUse == 0:
		// The ring is empty and still too small: one batch needs more than a ring has. It
		// gets a larger one; shrink (rotate.go) goes back to the usual size later.
		larger := l.ring.Size
		for worst > larger {
			larger *= 2
		}
		if err := l.rotate(larger); err != nil {
			return 0, nil, cm.writeError("make a larger journal", err)
		}
		return 0, nil, nil
	}
	// A full ring is synced and applied before the checkpoint (rule FullRingSyncs): a
	// checkpoint frees only what was applied, and what is not durable is never applied.
	full = &group{ring: l.ring, ctl: l.ctl, end: l.w.Written}
	full.hold()
	return 0, full, nil
}

// diskReserve is what a group leaves free on the disk: logs grow in blocks, so they take
// more than the group's bytes. A group of deletes may use it, except for eraseReserve: what
// erasing takes before it frees anything, a note and the log that replaces the old one.
// Each tombstone may need a block of its own.
const (
	diskReserve    = 64 << 10
	eraseReserve   = 16 << 10
	tombstoneBlock = 4 << 10
)

// checkDisk refuses a group that the logs may have no room for, under write.lock; need
// includes what has to stay free. The ring has its space already: without this check a full disk would be noticed only after
// the entries are durable, when it is too late to say "not stored". Pending entries count
// as well: they go to the logs before this group.
func (l *locked) checkDisk(need uint64) error {
	if now := time.Now(); l.cfg.inline || l.w.Flags&peers.FlagNoSpace != 0 || now.Sub(l.freeAt) > freeFor || l.free < plentyFree {
		free, err := l.fs.Free()
		if err != nil {
			return nil // unknown how much is free; at worst entries wait in the ring
		}
		l.free, l.freeAt = free, now
	}
	free := l.free
	need += l.logs.pending.bytes()
	if l.w.Flags&peers.FlagNoSpace != 0 || free < need {
		return fmt.Errorf("%w: the disk of the store is full", hansard.ErrNoSpace)
	}
	return nil
}

// plentyFree and freeFor keep statfs out of most commits: a disk with this much room is
// not asked again for a moment. If it fills up faster than that nothing is lost; entries
// wait in the ring, with FlagNoSpace.
const (
	plentyFree = 1 << 30
	freeFor    = 50 * time.Millisecond
)

// confirmTries and confirmPause bound how long confirm waits for another process to apply
// the group: about half a millisecond, then it takes write.lock itself.
const (
	confirmTries = 8
	confirmPause = 60 * time.Microsecond
)

// makeRoom gets the ring's entries into the logs, durably, so that their space can be
// used again: sync, apply (which lockCaughtUp does), checkpoint. The caller does not hold
// write.lock. The checkpoint is urgent: the holder of check.lock may be stopped, and a
// full ring must not wait for it.
func (cm *committer) makeRoom(full *group) error {
	defer full.letGo()
	if _, err := cm.syncer.syncTo(full.ring, full.ctl, full.end, false); err != nil {
		return cm.writeError("make room in the journal", err)
	}
	l, err := cm.lock.lockCaughtUp()
	if err == nil {
		l.unlock()
		err = cm.checkpoints.freePiece()
	}
	if err != nil {
		return cm.writeError("make room in the journal", err)
	}
	return nil
}

// writeError types an error for a caller whose request was not stored. It must never be
// used after the first byte in the ring.
func (p *process) writeError(doing string, err error) error {
	switch err = ifClosed(p, err); {
	case errors.Is(err, hansard.ErrClosed), errors.Is(err, hansard.ErrBusy), errors.Is(err, hansard.ErrNoSpace):
		return err
	case isNoSpace(err):
		return fmt.Errorf("%w: %s: %w", hansard.ErrNoSpace, doing, err)
	}
	return fmt.Errorf("%s: %w", doing, p.explain(err))
}

// writeEntries lays the drafts of the touched sessions out in the ring, one entry each,
// and writes them: with one write, or two where the group goes around the end of the
// ring. The caller holds write.lock and has made sure of the room.
//
// On success the published end and this process's cursor stand behind the entries, and
// they are pending. On error neither moved, and the caller has to drop the caches. The
// drafts are in m.
func (l *locked) writeEntries(touched []*session, m *memory) (entries []*journal.Entry, err error) {
	pos, chain := l.w.Written, l.w.TailChain
	begin := pos
	buf := l.ringBuf[:0]
	defer func() {
		if cap(buf) <= 4<<20 {
			l.ringBuf = buf // the next group writes into the same memory
		}
	}()
	// flush writes what was laid out so far, which does not go around the end of the
	// ring.
	flush := func() error {
		if len(buf) == 0 {
			return nil
		}
		if _, err := l.ring.File.WriteAt(buf, l.ring.At(begin)); err != nil {
			return fmt.Errorf("write journal: %w", err)
		}
		return nil
	}
	// put gives an entry its place in the chain (rule Chain) and what was durable when it
	// was written (rule DurableHint): if an entry beyond the end that a scan found says
	// that more was durable than was found, recovery reports damage instead of taking
	// that for the end of the ring (E4).
	put := func(e *journal.Entry) {
		e.Pos, e.Prev, e.Epoch, e.DurableHint = pos, chain, l.ring.Epoch, l.lim
		buf = e.AppendTo(buf, l.ring.Salt)
		pos, chain = e.End(), e.Chain()
	}
	for _, sess := range touched {
		d := sess.draft
		e := &journal.Entry{Kind: journal.KindData, UID: sess.uid, Offset: d.off, LinePrev: d.lprev, LineCRC: sess.crc,
			LastSeq: uint64(sess.seq), MetaAt: sess.metaAt, TurnAt: sess.turnAt, Deletes: sess.deleted, Redacts: d.redacts, Name: sess.name, Lines: d.bytes}
		left := l.ring.Size - pos%l.ring.Size
		// E2: an entry never straddles the end of the ring; padding fills the rest. Less
		// room than a header takes is skipped without padding: a scan does the same
		// (Ring.Place).
		padded := left < e.Length()
		if padded {
			if left >= journal.EntryHeader {
				put(&journal.Entry{Kind: journal.KindPad, Padded: left - journal.EntryHeader})
			}
			pos = journal.RoundUp(pos, l.ring.Size)
		}
		// At the end of the ring the next entry goes to its beginning, also when the last
		// one filled it exactly. One write does not go around: it would extend the file
		// behind the ring (planted bug "written past the end of the ring",
		// TestGroupReachesRingEnd).
		if pos%l.ring.Size == 0 {
			if err := flush(); err != nil {
				return nil, err
			}
			begin, buf = pos, buf[:0]
		}
		put(e)
		entries = append(entries, e)
	}
	if err := flush(); err != nil {
		return nil, err
	}
	// Published by unlock. If we die before that, the next holder of write.lock finds the
	// entries behind the old end and adopts them (J2).
	l.w.Written, l.w.TailChain = pos, chain
	l.cursor, l.cursorChain = pos, chain
	for _, e := range entries {
		l.note(e, m)
	}
	return entries, nil
}

// confirm makes sure that a synced group is in the logs, and marks the requests whose
// answers rest on lines that are not there. lookAside: something was set aside in this
// epoch, perhaps lines of this group. After an error every outcome of the group is
// unknown.
//
// If another process's sync covered the group, that process is about to apply it too: a
// moment's patience costs less than everybody queueing for write.lock only to find it
// done.
func (cm *committer) confirm(g *group, covered bool) (lookAside bool, err error) {
	for try := 0; !g.alone; try++ {
		// Position and epoch from one read (rule EpochInWaits): after a rotation another
		// entry may stand at this position.
		if w, _, ok := g.ctl.Read(); ok && w.Epoch == g.ring.Epoch && w.Applied >= g.end {
			return w.Flags&peers.FlagAside != 0, nil // another process did it for us
		}
		if !covered || cm.cfg.inline || try == confirmTries {
			break
		}
		nap(confirmPause)
	}
	// Without looking at the journal's inode: nothing is written to the ring here, and
	// the epoch tells whether it was replaced (rule InodeAtFinish).
	l, err := cm.lock.lockToCatchUp(false)
	if err != nil {
		return false, err
	}
	defer l.unlock()
	if l.ring.Epoch == g.ring.Epoch && l.w.Applied >= g.end {
		return l.w.Flags&peers.FlagAside != 0, nil
	}
	if l.w.Flags&peers.FlagNoSpace != 0 {
		return false, errors.New("it is durable, but there is no space to show it in its log; it appears when there is")
	}
	// The ring was replaced meanwhile. What was in it is in the new one and in the logs,
	// unless a failed sync took it away: then an answer that rests on it is void, whoever
	// wrote the line (J8, failure 57). Nor can it be told from a log that was redacted or
	// erased since: its checksums are others.
	lost := map[string]bool{}
	for _, e := range g.entries {
		lost[e.Name] = lost[e.Name] || !l.logs.inLog(e)
	}
	for _, r := range g.requests {
		if (lost[r.name] || !l.stands(r.name, r.rest)) && !l.deletedFor(r) {
			r.void = errReplaced
		}
		// A descriptor left open would keep alive the bytes of a file that is erased or
		// redacted (W6), and without one the inode no longer proves that a log is the one
		// we know (closeTaken).
		sess := l.logs.cached(r.name)
		sess.closeLog()
		sess.forget()
	}
	return false, nil
}

// errReplaced is why an outcome is unknown after a rotation, if the log does not have what
// the answer rests on. The reason is not known here: another process may have rotated.
var errReplaced = errors.New("the journal was replaced meanwhile, and the log does not have what this was decided from: " +
	"an error of the disk took it, or the session was redacted or deleted since")

// stands tells whether a line is in its log, under write.lock. Lines are chained, so if
// it is there all lines before it are. Offset and uid are compared as well as the
// checksum: 32 bits alone would match another line sooner or later. An error counts as
// "not there": the outcome is unknown then, which is always a safe answer.
func (l *locked) stands(name string, ref lineRef) bool {
	if ref.end == 0 {
		return true
	}
	sess := l.logs.cached(name)
	if size, err := l.logs.openLog(sess, false); err != nil || size < ref.end {
		return false
	}
	uid, err := sessionlog.ReadUID(sess.f)
	if err != nil || uid != ref.uid {
		return false
	}
	crc, err := sessionlog.CRCBefore(sess.f, ref.end)
	return err == nil && crc == ref.crc
}

// deletedFor tells whether an answer says that the session is deleted, and it is, although
// the line that the answer rests on is gone: erased since (erase.go).
func (l *locked) deletedFor(r *request) bool {
	if !errors.Is(r.err, hansard.ErrDeleted) && (r.op != opDelete || r.err != nil) {
		return false
	}
	sess := l.logs.cached(r.name)
	if _, err := l.logs.openLog(sess, false); err != nil {
		return false
	}
	uid, erased, err := sessionlog.ReadErased(sess.f, r.id)
	return err == nil && erased && uid == r.rest.uid
}
