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
// Lanes that have something to send queue up in their turn; one sender takes as many of them
// as it finds, for one commit.
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
	// lockedTries is how often what is found locked goes with the next commit. Nearly always it
	// was another process's commit that had it, which is over by then. To wait for a row takes a
	// connection, a commit for itself, and the lock manager of the database, and what waits in
	// line keeps the row locked for everybody else's commits: with two tries a tenth of the
	// events of eight busy processes went like that, and the others were held up by them. With
	// a third of the rows locked at any time, ten tries leave one event in 60,000. Whoever
	// keeps a row locked for longer is waited for.
	lockedTries = 10
	// senderPatience is when a sender that is held up, by a locked row or a slow network, no
	// longer counts: another one goes on with what came after.
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
		if content := r.rows.list[i].content; content != nil { // from now on the caller's memory is the caller's
			r.names[i] = engine.NamedAs(r.names[i].ID, *content)
		}
	}
	return r, nil
}

// submit puts a request into its lane, and sees to it that somebody sends it: that is the caller,
// if it returns true, which it does only for who offers to.
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

// startSenderLocked starts a sender, if there may be another one. The caller has a part in
// s.work.
func (s *Store) startSenderLocked() {
	if len(s.ready)+len(s.again) > 0 && s.senders < maxSenders {
		s.senders++
		s.work.Go(s.lead)
	}
}

// part is what a commit has of one session.
type part struct {
	*lane
	group []*request
	tries int // how often its row was locked
}

// lead sends what is ready until nothing is.
func (s *Store) lead() {
	for s.leadOnce(false) {
	}
}

// leadSelf is the sender of one commit in its caller's goroutine, which takes a lone writer two
// switches between goroutines less. With a context that can end it must not: nothing could call it
// back from a slow database.
func (s *Store) leadSelf() {
	if s.leadOnce(true) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.senders--
		s.startSenderLocked()
	}
}

// leadOnce sends one commit, in the goroutine of a caller (self) or in one of its own. It tells
// whether this is still a sender.
func (s *Store) leadOnce(self bool) bool {
	// Who was just answered may have more to send: together it is one commit.
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
	return !replaced // by another: there are enough
}

// take gives what goes into the next commit: the next group of each of the lanes that are
// ready, FIFO. When there is none the sender ends; a caller (self) also leaves parts whose rows
// were locked to another sender, because a commit may wait for such a row, and it is not the
// caller's.
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

// withoutFirst is the rest of a queue. What was taken is not kept in memory by it.
func withoutFirst[T any](queue []T) []T {
	clear(queue[:1])
	return queue[1:]
}

// takeLocked gives the next group of a lane. Behind others in a commit it has to fit; full says
// that it does not. No group means that nobody waits.
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

// sendParts stores what goes into one commit. What the commit can't have goes its own way,
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
		select {
		case s.mayWait <- struct{}{}:
			s.sendReserved(combined)
			s.finish(p)
			return
		default: // too many do: together nobody waits, also where it is one
		}
	}
	s.sendTogether(parts)
}

// apart carries on with a part by itself, behind the back of the sender.
func (s *Store) apart(p part, send func()) {
	s.work.Go(func() {
		send()
		s.finish(p)
	})
}

// tryAgain has a part whose row was locked go with the next commit.
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
