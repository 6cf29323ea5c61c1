package filestore

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"hansard"
	"hansard/filestore/internal/peers"
)

// Waiting for a turn. Within a process claimants are served FIFO (waitingLine). Between
// processes, each announces in its instance file which sessions it waits for and since
// when. A released turn is handed to the oldest waiter (calling.go), and a process that
// finds a turn free lets older waiters go first, for a moment. Only fairness and speed
// depend on this: who gets the turn is decided in the commit (turnplan.go), and a lost
// announcement or a stopped waiter costs milliseconds.

const (
	// turnPoll is how often the first in line checks whether the holder is still alive: a
	// death wakes nobody. The longer it waits the less often it checks, up to
	// turnPollMax.
	turnPoll    = 50 * time.Millisecond
	turnPollMax = 250 * time.Millisecond
	// turnPause is the least time between two looks, for busy sessions: every event of
	// the session wakes the oldest waiter.
	turnPause = 2 * time.Millisecond
	// courtesyMax is how long a claimant lets others go first: a stopped waiter costs no
	// more than this.
	courtesyMax = 100 * time.Millisecond
	// courtesyPoll is how long it waits for each of them before it looks again, if
	// nothing happens.
	courtesyPoll = 4 * time.Millisecond
)

// pace is how long a process waits if nothing wakes it. It is the same for all; tests
// make it endless, to see who is woken.
type pace struct{ poll, pollMax, patience time.Duration }

var usualPace = pace{turnPoll, turnPollMax, callPatience}

// turns waits for turns on behalf of Acquire. It decides nothing.
type turns struct {
	*process
	committer *committer
	reader    *reader
	inLine    waitingLine
	calls     calls
	pace      pace
}

// claimant is one waiting Acquire. Its fields belong to the goroutine of that call,
// except for first, which another claimant closes. Times are on this process's own clock.
type claimant struct {
	id    hansard.SessionID
	name  string
	claim *hansard.Claim
	began time.Duration
	// first is closed, under the line's mutex, when all claimants before it in this
	// process are gone.
	first chan struct{}
	// ticket is the ring position when the waiting began: a lower one has waited longer.
	// A position, because the clocks of processes can't be compared. announced: other
	// processes can see it.
	ticket    uint64
	announced bool
	// call holds a value when another process, or claimant, found that this one is next;
	// slot is where others ring for it. called: it received the call, and has not claimed
	// yet. next: it was called, and nobody has got the turn since.
	call   chan struct{}
	slot   int
	called bool
	next   bool
	// courteous is since when it lets others go first, 0: it does not; ahead is how many
	// of them there are.
	courteous time.Duration
	ahead     int
	looked    time.Duration
	poll      time.Duration
	// listened: how it will be woken is decided. point is set if every write to the
	// session wakes it.
	listened bool
	point    *waitPoint
	woken    <-chan struct{}
}

// waitingLine is the claimants of this process by session, oldest first.
type waitingLine struct {
	mu sync.Mutex
	m  map[string][]*claimant
}

// lineUp puts a claimant at the end of its session's line. The caller must call stepOut.
func (ts *turns) lineUp(w *claimant) {
	l := &ts.inLine
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.m == nil {
		l.m = map[string][]*claimant{}
	}
	w.first, w.call, w.slot = make(chan struct{}), make(chan struct{}, 1), peers.BellSlot(w.name)
	l.m[w.name] = append(l.m[w.name], w)
	if len(l.m[w.name]) == 1 {
		close(w.first)
	}
	w.ticket = ts.ticket()
}

// stepOut removes a claimant from the line, whether it got the turn or gave up, and lets
// the next one look.
func (ts *turns) stepOut(w *claimant, got bool) {
	ts.withdraw(w)
	if w.point != nil {
		ts.waiters.leave(w.name, w.point, false)
	}
	defer func() {
		if (w.next || len(w.call) > 0) && !got {
			ts.passOn(w.name) // it was next, and will not claim
		}
	}()
	l := &ts.inLine
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

// isFirst tells whether no claimant of this process is before it.
func (w *claimant) isFirst() bool {
	select {
	case <-w.first:
		return true
	default:
		return false
	}
}

// ticket is a number that grows with every write, the same for all processes.
func (ts *turns) ticket() uint64 {
	if w, ok := ts.committer.lock.glance(); ok {
		return w.Written
	}
	w, ok := peers.LookAtControl(ts.fs)
	if !ok {
		return math.MaxUint64 // control can't be read: after everybody else
	}
	return w.Written
}

// othersFirst tells whether a free turn is left to others: to earlier claimants of this
// process, or for a moment to longer waiting ones of other processes.
func (ts *turns) othersFirst(w *claimant) bool {
	if !w.isFirst() {
		return true
	}
	now := ts.cfg.mono()
	older := ts.leases.OlderWaiters(w.name, w.ticket)
	w.ahead = len(older)
	switch {
	case w.ahead == 0:
		return false
	case w.courteous == 0:
		w.courteous = max(now, 1)
	case now-w.courteous >= courtesyMax:
		ts.leases.PassOver(w.name, older...) // do not wait for them again
		return false
	default:
		// The turn was free the last time too, so perhaps nobody has called them.
		_ = ts.leases.Ring(older[0], w.name, ts.cfg.random())
	}
	return true
}

// announce tells other processes that this one waits for a session's turn, once per
// process: only the first in line does. If the announcement can't be written, others do
// not let us go first.
func (ts *turns) announce(w *claimant) {
	if !w.announced && w.isFirst() {
		w.announced = ts.leases.Announce(w.name, w.ticket)
	}
}

// await waits until something may have changed for a claimant. An error ends its waiting.
// It may return early: the caller looks again.
func (ts *turns) await(ctx context.Context, w *claimant, held *hansard.Turn) error {
	ts.announce(w)
	pause := ts.pause(w, held)
	if ts.cfg.sleep != nil {
		ts.cfg.sleep(pause)
		return ts.waitOver(ctx, w, held)
	}
	if !w.isFirst() {
		ts.sleep(ctx, pause, w.first, nil)
		return ts.waitOver(ctx, w, held)
	}
	if !ts.cfg.inline && ts.listen(w) {
		return nil // look once more at what happened before
	}
	rest := w.deafFor(ts.cfg.mono())
	w.called = ts.sleep(ctx, rest, nil, w.call) == wasCalled // a wake-up in the meantime is not lost: woken was taken before the look
	if !w.called {
		how := ts.sleep(ctx, pause-rest, w.woken, w.call)
		w.called = how == wasCalled
		// The others may be gone by now, so that this is the oldest one.
		w.listened = w.listened && how != timePassed
	}
	w.next = w.next || w.called
	return ts.waitOver(ctx, w, held)
}

// deafFor is how long writes to the session do not wake a claimant. One that is woken by
// calls alone has no such period to wake up from.
func (w *claimant) deafFor(now time.Duration) time.Duration {
	if w.woken == nil {
		return 0
	}
	return max(0, turnPause-(now-w.looked))
}

// listen decides how a claimant is woken: by a call, and the oldest one also by every
// write to the session, because not every release comes with a call (the releaser died
// right after, or may not write to this process's files). The others have nothing to look
// for before they are called: if every grant and every release woke all of them, they
// would keep the next one from running. It tells whether the claimant has to look again,
// because earlier events wake nobody; if another waiter is older, that one looks.
func (ts *turns) listen(w *claimant) (look bool) {
	if w.point != nil || w.listened {
		return false
	}
	w.listened = true
	if ts.canBeCalled() && w.announced && len(ts.leases.OlderWaiters(w.name, w.ticket)) > 0 {
		return false
	}
	w.point = ts.waiters.join(w.name)
	return true
}

// withdraw withdraws a claimant's announcement: it is awake, or leaves.
func (ts *turns) withdraw(w *claimant) {
	if w.announced {
		ts.leases.Withdraw(w.name)
		w.announced = false
	}
}

// pause is how long a claimant waits before it looks again, if nothing wakes it. Only the
// first in line has something to look for; the others wait to become first.
func (ts *turns) pause(w *claimant, held *hansard.Turn) time.Duration {
	left := hansard.Forever
	if w.claim.Wait < hansard.Forever {
		left = max(0, w.claim.Wait-(ts.cfg.mono()-w.began))
	}
	switch {
	case held == nil:
		return min(ts.pace.poll, courtesyPoll*time.Duration(1+w.ahead))
	case !w.isFirst():
		return left
	}
	w.poll = min(max(ts.pace.poll, w.poll*5/4), ts.pace.pollMax)
	return min(w.poll, left)
}

// What ended a sleep.
const (
	timePassed = iota
	wasWoken   // or the context, or the store, ended
	wasCalled
)

// sleep waits for a duration, the end of the context or of the store, or one of two
// channels; a nil channel is never ready.
func (ts *turns) sleep(ctx context.Context, d time.Duration, woken, call <-chan struct{}) (how int) {
	if d <= 0 {
		return timePassed
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-ts.closing:
	case <-woken:
	case <-call:
		return wasCalled
	case <-timer.C:
		return timePassed
	}
	return wasWoken
}

// waitOver is why a claimant stops waiting; nil: it goes on. If the turn is held, the
// error names the holder as well as the end of the context.
func (ts *turns) waitOver(ctx context.Context, w *claimant, held *hansard.Turn) error {
	switch {
	case ts.closed.Load():
		return hansard.ErrClosed
	case ctx.Err() == nil:
		return nil
	case held == nil:
		return ctx.Err()
	}
	return fmt.Errorf("%w: %w", ctx.Err(), &hansard.HeldError{Session: w.id, Turn: *held})
}
