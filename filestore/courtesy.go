package filestore

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"hansard"
	"hansard/internal/vfs"
)

// Who waits for a turn is served in order within a process. Between processes
// there is courtesy: each announces for which sessions it waits and since when, and
// who finds a turn free lets older waiters go first, for a moment. Nothing but
// fairness depends on it: who gets the turn is decided in the commit.

const (
	// turnPoll is how often who is next looks whether the holder still lives: a
	// death wakes nobody. Who waits long looks less often.
	turnPoll    = 50 * time.Millisecond
	turnPollMax = 250 * time.Millisecond
	// turnPause is what is between two looks at least, in a session in which much
	// happens.
	turnPause = 2 * time.Millisecond
	// courtesyMax is how long a claimant lets others go first: a waiter that
	// is stopped costs no more than this.
	courtesyMax = 100 * time.Millisecond
	// courtesyPoll is how long it waits for each of them before it looks
	// again, if nothing happens.
	courtesyPoll = 4 * time.Millisecond
)

// claimant is one Acquire that waits.
type claimant struct {
	id    hansard.SessionID
	name  string
	claim *hansard.Claim
	began time.Duration
	// first is closed when everybody before it in this process is gone.
	first chan struct{}
	// ticket is how far the ring was written when the waiting began: who has a
	// lower one waits for longer. announced: others can see it.
	ticket    uint64
	announced bool
	// courteous is since when it lets others go first, 0: it does not, and
	// ahead how many they are.
	courteous time.Duration
	ahead     int
	looked    time.Duration
	poll      time.Duration
	point     *waitPoint
	woken     <-chan struct{}
}

// waitingLine is who waits for the turns of this process's sessions, in order.
type waitingLine struct {
	mu sync.Mutex
	m  map[string][]*claimant
}

// lineUp puts a claimant at the end of the line.
func (s *Store) lineUp(w *claimant) {
	l := &s.inLine
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.m == nil {
		l.m = map[string][]*claimant{}
	}
	w.first = make(chan struct{})
	l.m[w.name] = append(l.m[w.name], w)
	if len(l.m[w.name]) == 1 {
		close(w.first)
	}
	w.ticket = s.ticket()
}

// stepOut takes a claimant out of the line.
func (s *Store) stepOut(w *claimant) {
	if w.announced {
		s.withdraw(w.name)
	}
	if w.point != nil {
		s.waiters.leave(s, w.name, w.point)
	}
	l := &s.inLine
	l.mu.Lock()
	defer l.mu.Unlock()
	rest := slices.DeleteFunc(l.m[w.name], func(o *claimant) bool { return o == w })
	if len(rest) == 0 {
		delete(l.m, w.name)
		return
	}
	l.m[w.name] = rest
	if next := rest[0]; !next.isFirst() {
		close(next.first)
	}
}

func (w *claimant) isFirst() bool {
	select {
	case <-w.first:
		return true
	default:
		return false
	}
}

// ticket is a number that grows with everything that is written.
func (s *Store) ticket() uint64 {
	f, err := s.fs.Open(controlName, vfs.ReadOnly)
	if err != nil {
		return math.MaxUint64 // behind everybody
	}
	defer f.Close()
	w, _, ok := (&control{f: f}).read()
	if !ok {
		return math.MaxUint64
	}
	return w.written
}

// othersFirst tells whether a turn that is to be had is left to somebody else:
// who came before in this process, or for a moment who waits in another.
func (s *Store) othersFirst(w *claimant) bool {
	if !w.isFirst() {
		return true
	}
	now := s.cfg.mono()
	if w.courteous != 0 && now-w.courteous >= courtesyMax {
		return false
	}
	if w.courteous == 0 && w.ahead > 1 {
		// One of those who were ahead had the turn meanwhile, the others are
		// still: not all have to look again at once.
		w.ahead--
		w.courteous = max(now, 1)
		return true
	}
	w.ahead = s.olderWaiters(w)
	if w.ahead > 0 && w.courteous == 0 {
		w.courteous = max(now, 1)
	}
	return w.ahead > 0
}

// olderWaiters counts the living processes that wait for the session since before
// the claimant. Who can't be read is not waited for.
func (s *Store) olderWaiters(w *claimant) (n int) {
	entries, _ := s.fs.ReadDir(instancesDir)
	s.leases.mu.Lock()
	own := s.leases.inst
	s.leases.mu.Unlock()
	for _, e := range entries {
		if !e.Regular || own != nil && e.Name == own.base() {
			continue
		}
		f, err := s.fs.Open(instancesDir+"/"+e.Name, vfs.ReadOnly)
		if err != nil {
			continue // it left
		}
		if waits(f, markOf(w.name), w.ticket) && !dead(f) {
			n++
		}
		_ = f.Close() // and so gives back the lock
	}
	return n
}

// waits tells whether an instance waits for a session with a lower ticket.
func waits(f vfs.File, mark, ticket uint64) bool {
	records, _, _ := readTable(f)
	return slices.ContainsFunc(records, func(r tableRecord) bool {
		return r.kind == kindWaiter && r.key == mark && r.value < ticket
	})
}

// announce tells other processes that this one waits for a session's turn. If it
// can't, they are not courteous.
func (s *Store) announce(w *claimant) {
	if w.announced || !w.isFirst() {
		return
	}
	l := &s.leases
	l.mu.Lock()
	defer l.mu.Unlock()
	slot, err := l.put(&tableRecord{kind: kindWaiter, key: markOf(w.name), value: w.ticket})
	if err != nil {
		return
	}
	if l.waiting == nil {
		l.waiting = map[string]int{}
	}
	l.waiting[w.name] = slot
	w.announced = true
}

func (s *Store) withdraw(name string) {
	l := &s.leases
	l.mu.Lock()
	defer l.mu.Unlock()
	if slot, ok := l.waiting[name]; ok {
		delete(l.waiting, name)
		l.free(slot)
	}
}

// await lets time pass until something may have changed for a claimant. An error
// is the end of its waiting.
func (s *Store) await(ctx context.Context, w *claimant, held *hansard.Turn) error {
	s.announce(w)
	pause := s.pause(w, held)
	if s.cfg.sleep != nil {
		s.cfg.sleep(pause)
		return s.waitOver(ctx, w, held)
	}
	if w.isFirst() {
		if w.point == nil && !s.cfg.inline {
			// From now on somebody wakes us; what came before is looked at again.
			w.point = s.waiters.join(s, w.name)
			return nil
		}
		rest := turnPause - (s.cfg.mono() - w.looked)
		s.sleep(ctx, rest, nil, nil) // what wakes us meanwhile is not lost
		s.sleep(ctx, pause-rest, w.woken, nil)
	} else {
		s.sleep(ctx, pause, nil, w.first)
	}
	return s.waitOver(ctx, w, held)
}

// pause is how long a claimant waits before it looks again, if nothing wakes it.
// Only the first in line has something to look for.
func (s *Store) pause(w *claimant, held *hansard.Turn) time.Duration {
	left := hansard.Forever
	if w.claim.Wait < hansard.Forever {
		left = max(0, w.claim.Wait-(s.cfg.mono()-w.began))
	}
	switch {
	case held == nil:
		return min(turnPoll, courtesyPoll*time.Duration(1+w.ahead))
	case !w.isFirst():
		return left
	}
	w.poll = min(max(turnPoll, w.poll*5/4), turnPollMax)
	return min(w.poll, left)
}

// sleep waits for a time, the end of the context or of the store, or one of two
// channels.
func (s *Store) sleep(ctx context.Context, d time.Duration, a, b <-chan struct{}) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-s.closing:
	case <-a:
	case <-b:
	case <-timer.C:
	}
}

// waitOver is why a claimant stops waiting, if it does.
func (s *Store) waitOver(ctx context.Context, w *claimant, held *hansard.Turn) error {
	switch {
	case s.closed.Load():
		return hansard.ErrClosed
	case ctx.Err() == nil:
		return nil
	case held == nil:
		return ctx.Err()
	}
	return fmt.Errorf("%w: %w", ctx.Err(), &hansard.HeldError{Session: w.id, Turn: *held})
}
