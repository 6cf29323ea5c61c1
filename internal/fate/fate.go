// Package fate decides between a caller that gives up waiting and a commit that takes
// its request: exactly one of them wins. Both engines that commit in groups use it, so
// that "not stored" means the same in each.
package fate

import "sync/atomic"

// Fate is the state of a queued request. The zero value is queued.
type Fate struct{ state atomic.Int32 }

const (
	queued int32 = iota
	taken
	withdrawn
)

// Take takes the request into a commit. From then on it may be stored. It returns false
// if the caller withdrew it: nobody waits for it any more.
func (f *Fate) Take() bool { return f.state.CompareAndSwap(queued, taken) }

// Withdraw takes the request back. True means that it will not be stored, false that it
// is in a commit, and only the commit knows the outcome.
func (f *Fate) Withdraw() bool { return f.state.CompareAndSwap(queued, withdrawn) }

// Requeue makes a request that came back from a commit, or was withdrawn, queued again.
func (f *Fate) Requeue() { f.state.Store(queued) }

// Taken reports whether a commit has taken the request.
func (f *Fate) Taken() bool { return f.state.Load() == taken }
