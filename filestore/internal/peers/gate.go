package peers

import (
	"sync"
	"time"

	"hansard/internal/vfs"
)

// Gate is sync.lock with a time limit. flock can't be interrupted, so a separate goroutine
// waits in it, and the caller waits for that goroutine as long as it likes.
//
// Why there must be a limit: under load one process holds sync.lock most of the time. If it
// is stopped there (SIGSTOP, a debugger, a frozen container), everybody else has to proceed
// without it (SyncLockBypassed, invariant 19).
//
// At most one goroutine per Gate is in flock, however many callers have given up since: it
// stays there, and serves the next caller or, if nobody wants the lock when it is acquired,
// releases it.
type Gate struct {
	f vfs.File
	// inline: the simulation, which has no goroutines. It does not wait for a lock that is
	// not free.
	inline bool

	// mu guards all below. block and Lock decide under it who has the lock, so it is
	// never given to a caller that has just left.
	mu      sync.Mutex
	blocked bool       // a goroutine waits in flock
	wanted  chan error // where it sends its result; nil: nobody waits any more
}

// NewGate is the gate on an open sync.lock, which it closes with Close.
func NewGate(f vfs.File, inline bool) *Gate { return &Gate{f: f, inline: inline} }

// Lock tells whether it got the lock within the time. False is not an error: the caller
// syncs without the lock, and then does not publish. One caller at a time; the syncer's
// mutex sees to that.
func (g *Gate) Lock(patience time.Duration) bool {
	g.mu.Lock()
	if !g.blocked {
		// The usual case needs no goroutine. An error counts as not acquired.
		if got, err := g.f.TryLock(vfs.LockExclusive); err != nil || got || g.inline {
			g.mu.Unlock()
			return got && err == nil
		}
		g.blocked = true
		go g.block()
	}
	// Buffered, so that block never waits for a caller that has left.
	told := make(chan error, 1)
	g.wanted = told
	g.mu.Unlock()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case err := <-told:
		return err == nil
	case <-timer.C:
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.wanted = nil // from here on block releases the lock at once
	// The lock may have been acquired between the timer and the mutex: then it is ours, and
	// nobody else would release it.
	select {
	case err := <-told:
		return err == nil
	default:
		return false
	}
}

// block waits for the lock on behalf of whichever caller wants it once it is acquired. It
// runs outside g.mu, possibly for as long as a stopped process stays stopped.
func (g *Gate) block() {
	err := g.f.Lock(vfs.LockExclusive)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.blocked = false
	switch {
	case g.wanted != nil:
		g.wanted <- err
		g.wanted = nil
	case err == nil:
		_ = g.f.Unlock()
	}
}

// Unlock releases the lock. Only after a Lock that returned true.
func (g *Gate) Unlock() {
	g.mu.Lock()
	defer g.mu.Unlock()
	_ = g.f.Unlock()
}

// Close closes the lock file, which also ends a lock that is held. A goroutine that is
// still in flock ends when it gets the lock; the kernel releases that with the
// descriptor.
func (g *Gate) Close() error { return g.f.Close() }
