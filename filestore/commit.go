package filestore

import (
	"errors"
	"fmt"
	"time"

	"hansard"
)

// group is what one commit writes.
type group struct {
	ring     *ring
	ctl      *control
	requests []*request
	entries  []*entry
	end      uint64 // of its last entry, or of the newest entry an answer rests on
}

// commitGroup takes what waits through the commit: under write.lock the checks,
// the seqs and one write to the ring; then one sync; then the logs; and only
// then the answers. Every other order shows or promises what a power cut can
// take back.
func (s *Store) commitGroup() (answered int) {
	g := s.writeGroup()
	if g == nil {
		return 0
	}
	covered, err := s.syncTo(g.ring, g.ctl, g.end)
	lookAside := false
	if err == nil {
		lookAside, err = s.confirm(g, covered)
	}
	var aside map[string]bool
	if lookAside {
		aside = s.allAsides()
	}
	for _, e := range g.entries {
		s.waiters.wake(e.name)
	}
	for _, r := range g.requests {
		switch {
		case err != nil:
			r.answer(hansard.Receipt{}, fmt.Errorf("%w: %w", hansard.ErrUnknown, err))
		case r.err == nil && aside[r.name]:
			// Its log was changed by somebody else after it was looked at: it is
			// durable, but nobody who reads the session gets to see it.
			d := damagedAt(r.id, 0, "somebody else changed the log at that moment; what was to be written to it is in %s", asideDir)
			r.answer(hansard.Receipt{}, fmt.Errorf("%w: %w", hansard.ErrUnknown, d))
		default:
			r.answer(r.receipt, r.err)
		}
	}
	return len(g.requests)
}

// writeGroup writes the next group to the ring and answers those whose outcome
// does not depend on it. It returns nil when nobody is left to wait.
func (s *Store) writeGroup() *group {
	s.wmu.Lock()
	defer s.wmu.Unlock()
	limit, err := s.lockWithRoom()
	if err != nil {
		s.queue.fail(s.writeError("write", err))
		return nil
	}
	defer s.unlockW()
	requests := s.queue.take(limit)
	if len(requests) == 0 {
		return nil
	}
	g := &group{ring: s.ring, ctl: s.ctl}
	p := plan{store: s, now: s.cfg.now(), snapBytes: int(s.ring.share())}
	p.stamp = p.now.Format(timeLayout)
	p.measure(requests)
	for _, r := range requests {
		p.add(r)
	}
	g.entries, err = s.writeEntries(p.touched)
	if err == nil && p.probed && len(g.entries) == 0 {
		err = s.writeProbe()
	}
	if err != nil {
		// Part of it may be in the ring, and the next to look may find it
		// whole. The caches expected it: they are void.
		s.dropCaches()
	}
	for _, sess := range p.touched {
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
				r.dep = s.w.written
			}
			g.end = max(g.end, r.dep)
			g.requests = append(g.requests, r)
		}
	}
	if len(g.requests) == 0 {
		return nil
	}
	return g
}

// lockWithRoom takes write.lock, finishes what others left, and makes sure that
// whatever can fail for lack of room fails now: after the first byte in the
// ring there is no "not stored". limit is the size of the next group.
func (s *Store) lockWithRoom() (limit int, err error) {
	for try := 0; ; try++ {
		if err := s.lockCaughtUp(); err != nil {
			return 0, err
		}
		if s.w.flags&wFlagFailed != 0 {
			// Whatever was wrong may be over.
			if err := s.rotate(s.ring.size); err != nil {
				s.unlockW()
				return 0, fmt.Errorf("%w: %w", hansard.ErrFailed, err)
			}
			// The caches went with the old ring: without this its entries
			// would not be seen, and their seqs given again.
			if !s.planted(plantNoCatchup) {
				err = s.catchup()
			}
			if err != nil {
				s.unlockW()
				return 0, err
			}
		}
		limit = int(s.ring.share())
		need := uint64(s.queue.need(limit))
		if err := s.checkDisk(need); err != nil {
			s.unlockW()
			return 0, err
		}
		// Twice, because an entry that does not fit before the end of the
		// ring leaves as much unused; snapshots; and a share stays free.
		worst := 2*(need+s.ring.share()) + s.ring.share()
		switch {
		case s.w.written-s.w.start+worst <= s.ring.size:
			if s.w.written-s.w.start > s.ring.size*5/8 {
				s.kickCheckpoint()
			}
			return limit, nil
		case s.w.written == s.w.start:
			larger := s.ring.size
			for worst > larger {
				larger *= 2
			}
			err := s.rotate(larger)
			s.unlockW()
			if err != nil {
				return 0, s.writeError("make a larger journal", err)
			}
		case try > 20:
			s.unlockW()
			return 0, &hansard.BusyError{}
		default:
			end, r, ctl := s.w.written, s.ring, s.ctl
			s.unlockW()
			s.wmu.Unlock()
			err := s.makeRoom(r, ctl, end)
			s.wmu.Lock()
			if err != nil {
				return 0, err
			}
		}
	}
}

// checkDisk refuses a group that the logs may have no room for.
func (s *Store) checkDisk(need uint64) error {
	if now := time.Now(); s.cfg.inline || s.w.flags&wFlagNoSpace != 0 || now.Sub(s.freeAt) > freeFor || s.free < plentyFree {
		free, err := s.fs.Free()
		if err != nil {
			return nil // unknown; the entry would wait in the ring
		}
		s.free, s.freeAt = free, now
	}
	free := s.free
	for _, e := range s.pending {
		need += uint64(len(e.bytes))
	}
	if s.w.flags&wFlagNoSpace != 0 || free < need+64<<10 {
		return fmt.Errorf("%w: the disk of the store is full", hansard.ErrNoSpace)
	}
	return nil
}

// A disk with plenty of room is not asked again for a moment: if it fills up
// that quickly, entries wait in the ring.
const (
	plentyFree = 1 << 30
	freeFor    = 50 * time.Millisecond
)

const (
	confirmTries = 8
	confirmPause = 60 * time.Microsecond
)

// makeRoom gets the ring's entries into the logs, durably, so that their space
// can be used again.
func (s *Store) makeRoom(r *ring, ctl *control, end uint64) error {
	if _, err := s.syncTo(r, ctl, end); err != nil {
		return s.writeError("make room in the journal", err)
	}
	s.wmu.Lock()
	err := s.lockCaughtUp()
	if err == nil {
		s.unlockW()
	}
	s.wmu.Unlock()
	if err == nil {
		err = s.checkpoint(true)
	}
	if err != nil {
		return s.writeError("make room in the journal", err)
	}
	return nil
}

// writeError types an error for a caller of whom nothing was stored.
func (s *Store) writeError(doing string, err error) error {
	switch {
	case errors.Is(err, hansard.ErrClosed), errors.Is(err, hansard.ErrBusy), errors.Is(err, hansard.ErrNoSpace):
		return err
	case isNoSpace(err):
		return fmt.Errorf("%w: %s: %w", hansard.ErrNoSpace, doing, err)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// writeEntries lays the drafts of the touched sessions out in the ring, one
// entry each, and writes them.
func (s *Store) writeEntries(touched []*session) (entries []*entry, err error) {
	pos, chain := s.w.written, s.w.tailChain
	begin := pos
	buf := s.ringBuf[:0]
	defer func() {
		if cap(buf) <= 4<<20 {
			s.ringBuf = buf // the next group writes into the same memory
		}
	}()
	flush := func() error { // what is before the end of the ring
		if len(buf) == 0 {
			return nil
		}
		if _, err := s.ring.f.WriteAt(buf, s.ring.at(begin)); err != nil {
			return fmt.Errorf("write journal: %w", err)
		}
		return nil
	}
	put := func(e *entry) {
		e.pos, e.prev, e.epoch, e.dhint = pos, chain, s.ring.epoch, s.lim
		buf = e.appendTo(buf, s.ring.salt)
		pos, chain = e.end(), e.chain()
	}
	for _, sess := range touched {
		d := sess.draft
		e := &entry{kind: kindData, uid: sess.uid, off: d.off, lprev: d.lprev, lcrc: sess.crc,
			last: uint64(sess.seq), metaAt: sess.metaAt, turnAt: sess.turnAt, del: sess.deleted, name: sess.name, bytes: d.bytes}
		left := s.ring.size - pos%s.ring.size
		padded := left < e.length()
		if padded {
			if left >= entryHeader {
				put(&entry{kind: kindPad, padded: left - entryHeader})
			}
			pos = roundUp(pos, s.ring.size)
		}
		// From the end of the ring on, also when an entry just fills it, what
		// comes goes to its beginning: one write does not go around.
		if pos%s.ring.size == 0 && (padded || !s.planted(plantPastEnd)) {
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
	s.w.written, s.w.tailChain = pos, chain
	s.cursor, s.cursorChain = pos, chain
	for i, e := range entries {
		s.note(e)
		touched[i].waiting++
		touched[i].waitEnd = e.end()
	}
	return entries, nil
}

// confirm makes sure that a synced group is in the logs. If another process's
// sync covered it, that one is about to see to it: all of them queueing up for
// the lock to find it done would cost more than a moment's patience. lookAside:
// some of it may not be in its log, but set aside.
func (s *Store) confirm(g *group, covered bool) (lookAside bool, err error) {
	for try := 0; ; try++ {
		if w, _, ok := g.ctl.read(); ok && w.epoch == g.ring.epoch && w.applied >= g.end {
			return w.flags&wFlagAside != 0, nil // another process did it for us
		}
		if !covered || s.cfg.inline || try == confirmTries {
			break
		}
		time.Sleep(confirmPause)
	}
	s.wmu.Lock()
	defer s.wmu.Unlock()
	if err := s.lockCaughtUpAgain(true); err != nil {
		return false, err
	}
	defer s.unlockW()
	if s.ring.epoch == g.ring.epoch && s.w.applied >= g.end {
		return s.w.flags&wFlagAside != 0, nil
	}
	if s.w.flags&wFlagNoSpace != 0 {
		return false, errors.New("it is durable, but there is no space to show it in its log; it appears when there is")
	}
	// The ring was replaced on the way. What was in it is in the new one
	// and in the logs, unless it was damaged: look.
	for _, e := range g.entries {
		if !s.inLog(e) {
			return false, errors.New("the journal was replaced after an error of the disk")
		}
	}
	return false, nil
}
