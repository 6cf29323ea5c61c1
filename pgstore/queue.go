package pgstore

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"hansard"
	"hansard/engine"
	"hansard/internal/fate"
)

// lane is where the appends of this process to one session queue up: one group of them at a
// time is under way. What arrives meanwhile is the next group, so nobody waits for a timer.
// Lanes that have something to send are in a queue themselves; a sender takes as many of
// them as it finds into one commit.
type lane struct {
	id      hansard.SessionID
	waiting []*request // guarded by Store.mu
}

// request is one append on its way.
type request struct {
	rows    rows
	turn    hansard.Grant
	inbox   bool // an exclusive turn lets it in
	apart   bool // its events are batches of their own
	create  bool
	meta    hansard.Meta   // what it is created with
	names   []engine.Named // of its events; nil if none has an id
	expect  *hansard.Seq
	key     string
	hash    string
	patch   *hansard.Patch
	fate    fate.Fate
	done    chan struct{} // closed when the two below are set
	receipt hansard.Receipt
	err     error
}

// The limits of a group: enough to make a round trip worth it, little enough to
// keep its first from waiting for the data of its last.
const (
	groupRequests = 512
	groupBytes    = 4 << 20 // of one session
	groupSessions = 64      // in one commit
	togetherBytes = 512 << 10
)

const (
	// maxSenders is how many commits are under way at once, if none of them is held up. With
	// more of them each would have less in it: two took the database half as much again for
	// each event.
	maxSenders = 1
	// lockedTries is how many times a part whose row is locked goes with the next commit.
	// Nearly always the lock was that of another process's commit, which is over by then.
	// Waiting for the row takes a connection, a commit of its own, and work in the
	// database's lock manager, and those that wait in line keep the row locked for
	// everybody else's commits: with two tries a tenth of the events of eight busy
	// processes went that way and held up the others. With a third of the rows locked at
	// any time, ten tries leave one event in 60,000. After that the append waits until the
	// row is free.
	lockedTries = 10
	// senderPatience is how long a sender may be held up, by a locked row or a slow
	// network, before it no longer counts: then another one continues with what arrived
	// since.
	senderPatience = 20 * time.Millisecond
)

// Append implements [hansard.Store].
func (s *Store) Append(ctx context.Context, id hansard.SessionID, b hansard.Batch) (hansard.Receipt, error) {
	if err := s.begin(ctx, id, engine.CheckBatch(&b), s.writable()); err != nil {
		return hansard.Receipt{}, err
	}
	defer s.work.Done()
	r, err := newRequest(&b)
	if err != nil {
		return hansard.Receipt{}, err
	}
	if s.submit(id, r, ctx.Done() == nil) {
		s.leadSelf()
	}
	select {
	case <-r.done:
		return r.receipt, r.err
	case <-ctx.Done():
	}
	if r.fate.Withdraw() {
		return hansard.Receipt{}, fmt.Errorf("not stored: %w", context.Cause(ctx))
	}
	select {
	case <-r.done: // both at once: the answer is better
		return r.receipt, r.err
	default:
		return hansard.Receipt{}, fmt.Errorf("%w: %w", hansard.ErrUnknown, context.Cause(ctx))
	}
}

func newRequest(b *hansard.Batch) (*request, error) {
	events := engine.Normalize(b)
	r := &request{turn: b.Turn, inbox: b.InboxOnly(), apart: b.Apart, create: b.Create, expect: b.Expect, key: b.Key, patch: engine.ClonePatch(b.Patch),
		meta: engine.CloneMeta(b.Meta), names: engine.Names(events), done: make(chan struct{})}
	if b.Key != "" {
		r.hash = engine.ContentHash(events)
	}
	if err := r.rows.add(events, batch{b.Turn, b.Key, r.hash, b.Apart}); err != nil {
		return nil, err
	}
	for i := range r.names {
		if content := r.rows.list[i].content; content != nil { // from here on the caller may change its memory
			r.names[i] = engine.NamedAs(r.names[i].ID, *content)
		}
	}
	return r, nil
}

// submit puts a request into its lane and makes sure that it is sent. If it returns true
// the caller has to send it; it does so only if the caller offers to.
func (s *Store) submit(id hansard.SessionID, r *request, offers bool) (lead bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opt.alone {
		s.work.Go(func() {
			r.fate.Take()
			s.send(id, []*request{r})
			close(r.done)
		})
		return false
	}
	l := s.lanes[id]
	if l != nil {
		l.waiting = append(l.waiting, r)
		return false
	}
	l = &lane{id: id, waiting: []*request{r}}
	s.lanes[id] = l
	if lead = offers && s.senders < maxSenders; lead {
		s.senders++
		s.ready = append(s.ready, l)
	} else {
		s.readyLocked(l)
	}
	return lead
}

// readyLocked queues a lane that has something to send and nothing under way.
func (s *Store) readyLocked(l *lane) {
	s.ready = append(s.ready, l)
	s.startSenderLocked()
}

// startSenderLocked starts a sender, if there may be another one. The caller is counted in
// s.work.
func (s *Store) startSenderLocked() {
	if len(s.ready)+len(s.again) > 0 && s.senders < maxSenders {
		s.senders++
		s.work.Go(s.lead)
	}
}

// part is one session's share of a commit.
type part struct {
	*lane
	group []*request
	tries int // how often its row was found locked
}

// lead sends what is ready until nothing is left.
func (s *Store) lead() {
	for s.leadOnce(false) {
	}
}

// leadSelf sends one commit in its caller's goroutine, which saves a lone writer two
// switches between goroutines. It is not for a caller whose context can end: nothing could
// call it back from a slow database.
func (s *Store) leadSelf() {
	if s.leadOnce(true) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.senders--
		s.startSenderLocked()
	}
}

// leadOnce sends one commit, in the goroutine of a caller (self) or in one of its own. It
// returns whether this is still a sender.
func (s *Store) leadOnce(self bool) bool {
	// A caller that was just answered may have more to send: together it is one commit.
	runtime.Gosched()
	parts := s.take(self)
	if parts == nil {
		return false
	}
	var over, replaced bool // guarded by s.mu
	patience := time.AfterFunc(senderPatience, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !over {
			replaced = true
			s.senders--
			s.startSenderLocked()
		}
	})
	s.sendParts(parts)
	patience.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	over = true
	return !replaced // replaced: another sender has taken this one's place
}

// take returns what goes into the next commit: the next group of each of the lanes that are
// ready, FIFO. If there is none the sender ends. A caller (self) also leaves parts whose
// rows were locked to another sender: a commit may wait for such a row, which has nothing
// to do with the caller's own session.
func (s *Store) take(self bool) (parts []part) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if self && len(s.again) > 0 {
		s.senders--
		s.startSenderLocked()
		return nil
	}
	most := groupSessions
	if len(s.ready) > 0 {
		most /= 2 // what was locked leaves room for the others
	}
	requests, bytes := 0, int64(0)
	for len(s.again) > 0 && len(parts) < most {
		p, size := s.again[0], int64(0)
		for _, r := range s.again[0].group {
			size += r.rows.bytes
		}
		if len(parts) > 0 && bytes+size > togetherBytes {
			return parts
		}
		s.again = withoutFirst(s.again)
		parts = append(parts, p)
		requests, bytes = requests+len(p.group), bytes+size
	}
	for len(s.ready) > 0 && len(parts) < groupSessions && requests < groupRequests {
		l := s.ready[0]
		group, size, full := l.takeLocked(len(parts) > 0, togetherBytes-bytes)
		if full {
			break
		}
		s.ready = withoutFirst(s.ready)
		if group == nil {
			delete(s.lanes, l.id) // everybody has given up
			continue
		}
		parts = append(parts, part{l, group, 0})
		requests, bytes = requests+len(group), bytes+size
	}
	if parts == nil {
		s.senders--
	}
	return parts
}

// withoutFirst is a queue without its first element, which it no longer keeps in memory.
func withoutFirst[T any](queue []T) []T {
	clear(queue[:1])
	return queue[1:]
}

// takeLocked returns the next group of a lane. If it goes behind others in a commit it has
// to fit; full means that it does not. No group means that nobody waits.
func (l *lane) takeLocked(behind bool, room int64) (group []*request, bytes int64, full bool) {
	if !behind {
		room = groupBytes
	}
	for len(l.waiting) > 0 && len(group) < groupRequests {
		r := l.waiting[0]
		if (behind || len(group) > 0) && bytes+r.rows.bytes > room {
			return group, bytes, len(group) == 0
		}
		l.waiting = withoutFirst(l.waiting)
		if r.fate.Take() {
			bytes += r.rows.bytes
			group = append(group, r)
		}
	}
	return group, bytes, false
}

// sendParts stores the parts of one commit. A part that can't be in it is sent by itself,
// and nobody else waits for it.
func (s *Store) sendParts(parts []part) {
	if len(parts) == 1 {
		p := parts[0]
		combined, ok := newPlain(p.id, p.group)
		if !ok {
			s.decideGroup(&job{id: p.id}, p.group, nil)
			s.finish(p)
			return
		}
		if s.tryReserve() {
			s.sendReserved(combined)
			s.finish(p)
			return
		}
		// Too many wait already: sendTogether never waits, even with one part.
	}
	s.sendTogether(parts)
}

// apart sends a part by itself, in a goroutine of its own, while the sender goes on.
func (s *Store) apart(p part, send func()) {
	s.work.Go(func() {
		send()
		s.finish(p)
	})
}

// tryAgain puts a part whose row was locked into the next commit.
func (s *Store) tryAgain(p part) {
	p.tries++
	s.mu.Lock()
	defer s.mu.Unlock()
	s.again = append(s.again, p)
	s.startSenderLocked()
}

// finish answers the requests of a part, and lets the lane go on.
func (s *Store) finish(p part) {
	for _, r := range p.group {
		close(r.done)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(p.waiting) > 0 {
		s.readyLocked(p.lane)
	} else {
		delete(s.lanes, p.id)
	}
}
