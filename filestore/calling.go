package filestore

import (
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"hansard/filestore/internal/peers"
)

// Handing a turn on. Whoever releases one calls the waiter that is next, of whichever
// process, as soon as the release is in the ring: waking it up takes about as long as the
// sync. Who is called claims the turn without looking first, because the log does not have
// the release yet; the commit decides, on the ring.
//
// A call is a hint, like every wake-up. Nothing rests on it: one that is lost costs the
// time until the waiter looks again (turnPoll), one too many a claim that is refused. Who
// is stopped, or dead, does not hold up the others: who called it looks after a moment, and
// calls the next one.

// callPatience is how long somebody who was called may take to wake up. Who can't be
// called is woken by the log, after the sync, and gets courtesyMax.
const callPatience = 10 * time.Millisecond

// calls is the bell of this process, for others to call it.
type calls struct {
	mu      sync.Mutex // guards bell and awaited
	bell    *peers.Bell
	awaited map[string]*called // by session

	heeded atomic.Int64 // claims that were made because of a call
}

// canBeCalled has others able to call this process, and tells whether they are.
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
		// Somebody removed it, and with it the kernel's watch.
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

// rung passes a call on to those that it is for: whoever is first in this process's line
// for a session with a slot that was rung.
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

// released hands a turn on: its release is in the ring. The caller is a worker that Close
// waits for, and so is what it starts. apart: the caller has others to attend to.
func (ts *turns) released(name string, apart bool) {
	if ts.cfg.inline {
		return
	}
	if !apart && ts.leases.OthersHeard() {
		ts.callNext(name) // another goroutine would take longer to begin than this takes
		return
	}
	ts.workers.Add(1)
	go func() {
		defer ts.workers.Done()
		ts.callNext(name)
	}()
}

// callNext calls the waiter that has waited longest for a session's turn. If that one does
// not come, lookAfter calls the next one.
func (ts *turns) callNext(name string) {
	if ts.inLine.first(name) == nil && !ts.leases.OthersHear() {
		return // most often
	}
	next, passed := ts.leases.Waiters(name)
	for _, w := range passed {
		// It may be awake by now. If so it is the oldest.
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

// called is a waiter of another process that was called, and until when it may come.
type called struct {
	peers.Waiter
	until time.Time
	timer *time.Timer // calls lookAfter then
}

// await has somebody looked after who was called. There is one for each session: who was
// called before has come, or is called again when it is the oldest. Where turns are handed
// on quickly the timer so never ends, and wakes nobody.
func (c *calls) await(name string, w peers.Waiter, patience time.Duration, lookAfter func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch was := c.awaited[name]; {
	case was == nil:
		if c.awaited == nil {
			c.awaited = map[string]*called{}
		}
		c.awaited[name] = &called{w, time.Now().Add(patience), time.AfterFunc(patience, lookAfter)}
	case was.Waiter != w: // else its time runs already
		was.Waiter, was.until = w, time.Now().Add(patience)
		was.timer.Reset(patience)
	}
}

// lookAfter looks what became of somebody who was called, and calls the next one if it did
// not come.
func (ts *turns) lookAfter(name string) {
	if !ts.committer.queue.beforeClose(func() { ts.workers.Add(1) }) {
		return
	}
	defer ts.workers.Done()
	ts.calls.mu.Lock()
	was := ts.calls.awaited[name]
	early := was == nil || time.Now().Before(was.until) // the timer ended as it was reset: it ends again
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

// first is who is first in this process's line for a session; nil: nobody.
func (l *waitingLine) first(name string) *claimant {
	l.mu.Lock()
	defer l.mu.Unlock()
	if line := l.m[name]; len(line) > 0 {
		return line[0]
	}
	return nil
}

// passOn calls whoever is next after somebody who was called and does not come.
func (ts *turns) passOn(name string) {
	ts.committer.queue.beforeClose(func() { ts.released(name, true) })
}
