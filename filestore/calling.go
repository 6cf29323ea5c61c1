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
	mu   sync.Mutex // guards bell
	bell *peers.Bell

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
// waits for, and so is what it starts.
func (ts *turns) released(name string) {
	if ts.cfg.inline {
		return
	}
	ts.workers.Add(1)
	go func() {
		defer ts.workers.Done()
		ts.callNext(name)
	}()
}

// callNext calls the waiter that has waited longest for a session's turn, and, if it does
// not come, the next one.
func (ts *turns) callNext(name string) {
	if ts.inLine.first(name) == nil && !ts.leases.OthersHear() {
		return // most often
	}
	for {
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
		select {
		case <-ts.closing:
			return
		case <-time.After(patience):
		}
		switch ts.leases.Came(name, next[0]) {
		case peers.CameUp:
			return
		case peers.CameNot:
			ts.leases.PassOver(name, next[0])
		}
	}
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
	ts.committer.queue.beforeClose(func() { ts.released(name) })
}
