package filestore

import (
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"hansard/filestore/internal/peers"
)

// Handing a turn on. The process that releases a turn calls the next waiter, in whichever
// process, as soon as the release is in the ring: waking it up takes about as long as the
// sync. A called waiter claims the turn without looking at the log first, because the
// release is not in the log yet; the commit decides, on the ring.
//
// A call is a hint, like every wake-up. Correctness does not depend on it: a lost call
// costs the time until the waiter looks again (turnPoll), a superfluous one a claim that
// is refused. A stopped or dead waiter does not hold up the others: its caller checks
// after a moment, and calls the next one.

// callPatience is how long a called waiter may take to wake up. A waiter that can't be
// called is woken by the log, after the sync, and gets courtesyMax.
const callPatience = 10 * time.Millisecond

// calls holds the bell that others ring to call this process, and whom it has called.
type calls struct {
	mu      sync.Mutex // guards bell and awaited
	bell    *peers.Bell
	awaited map[string]*called // by session

	heeded atomic.Int64 // claims made because of a call
}

// canBeCalled sets up this process's bell, and tells whether others can ring it.
func (ts *turns) canBeCalled() bool {
	ts.calls.mu.Lock()
	defer ts.calls.mu.Unlock()
	if ts.dir == nil {
		return false
	}
	if b := ts.calls.bell; b != nil {
		if b.Found(ts.fs) {
			return true
		}
		// The file was removed, and with it the kernel's watch.
		b.Close(ts.fs)
		ts.calls.bell = nil
	}
	b, err := ts.leases.NewBell()
	if err != nil {
		return false
	}
	if !ts.waiters.watchBell(ts.bellPath(b)) {
		b.Close(ts.fs)
		return false
	}
	ts.calls.bell = b
	return true
}

// bellPath is the path of a bell for the operating system.
func (ts *turns) bellPath(b *peers.Bell) string {
	return filepath.Join(ts.path, filepath.FromSlash(b.Name))
}

// rung passes a ring on to the claimants it is for: those first in this process's line
// for a session whose slot was rung.
func (ts *turns) rung() {
	ts.calls.mu.Lock()
	var slots [peers.BellSlots]bool
	any := false
	if ts.calls.bell != nil {
		slots, any = ts.calls.bell.Heard()
	}
	ts.calls.mu.Unlock()
	if !any {
		return
	}
	ts.inLine.mu.Lock()
	defer ts.inLine.mu.Unlock()
	for _, line := range ts.inLine.m {
		if slots[line[0].slot] {
			line[0].callUp()
		}
	}
}

// silence removes the bell, for Close.
func (ts *turns) silence() {
	ts.calls.mu.Lock()
	defer ts.calls.mu.Unlock()
	if ts.calls.bell != nil {
		ts.calls.bell.Close(ts.fs)
		ts.calls.bell = nil
	}
}

// callUp tells a claimant that it is next. It never blocks.
func (w *claimant) callUp() {
	select {
	case w.call <- struct{}{}:
	default: // it was called already
	}
}

// released hands a turn on whose release is in the ring. The caller is a worker that
// Close waits for, and so is any goroutine started here. apart: return at once, because
// the caller has other requests to finish.
func (ts *turns) released(name string, apart bool) {
	if ts.cfg.inline {
		return
	}
	if !apart && ts.leases.OthersHeard() {
		ts.callNext(name) // starting a goroutine would take longer than this
		return
	}
	ts.workers.Add(1)
	go func() {
		defer ts.workers.Done()
		ts.callNext(name)
	}()
}

// callNext calls the waiter that has waited longest for a session's turn. If that one
// does not respond, lookAfter calls the next one.
func (ts *turns) callNext(name string) {
	if ts.inLine.first(name) == nil && !ts.leases.OthersHear() {
		return // the common case
	}
	next, passed := ts.leases.Waiters(name)
	for _, w := range passed {
		// It may be running again by now. If so it is the oldest.
		_ = ts.leases.Ring(w, name, ts.cfg.random())
	}
	own := ts.inLine.first(name)
	if own != nil && (len(next) == 0 || own.ticket <= next[0].Ticket) {
		own.callUp()
		return
	}
	if len(next) == 0 {
		return
	}
	patience := ts.pace.patience
	if ts.leases.Ring(next[0], name, ts.cfg.random()) != nil {
		patience = courtesyMax
	}
	ts.calls.await(name, next[0], patience, func() { ts.lookAfter(name) })
}

// called is a waiter of another process that was called, and its deadline to respond.
type called struct {
	peers.Waiter
	until time.Time
	timer *time.Timer // calls lookAfter at the deadline
}

// await schedules a check of a waiter that was called. There is one per session: the one
// called before has responded, or is called again when it is the oldest. So where turns
// are handed on quickly the timer never fires, and wakes nobody.
func (c *calls) await(name string, w peers.Waiter, patience time.Duration, lookAfter func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch was := c.awaited[name]; {
	case was == nil:
		if c.awaited == nil {
			c.awaited = map[string]*called{}
		}
		c.awaited[name] = &called{w, time.Now().Add(patience), time.AfterFunc(patience, lookAfter)}
	case was.Waiter != w: // otherwise its time is already running
		was.Waiter, was.until = w, time.Now().Add(patience)
		was.timer.Reset(patience)
	}
}

// lookAfter checks whether a called waiter has responded, and calls the next one if not.
func (ts *turns) lookAfter(name string) {
	if !ts.committer.queue.beforeClose(func() { ts.workers.Add(1) }) {
		return
	}
	defer ts.workers.Done()
	ts.calls.mu.Lock()
	was := ts.calls.awaited[name]
	early := was == nil || time.Now().Before(was.until) // the timer fired while it was being reset: it fires again
	if !early {
		delete(ts.calls.awaited, name)
	}
	ts.calls.mu.Unlock()
	if early {
		return
	}
	switch ts.leases.Came(name, was.Waiter) {
	case peers.CameUp:
		return
	case peers.CameNot:
		ts.leases.PassOver(name, was.Waiter)
	}
	ts.callNext(name)
}

// first is the first claimant in this process's line for a session; nil: none.
func (l *waitingLine) first(name string) *claimant {
	l.mu.Lock()
	defer l.mu.Unlock()
	if line := l.m[name]; len(line) > 0 {
		return line[0]
	}
	return nil
}

// passOn calls the next waiter when one that was called does not claim the turn.
func (ts *turns) passOn(name string) {
	ts.committer.queue.beforeClose(func() { ts.released(name, true) })
}
