package httpd

import (
	"sync"
	"time"
)

// patience is how long the server waits for a client that follows. A client that reads
// nothing for a while (stall) is dropped: it gets no more events. But a message to it may
// be half written, and it should learn how far it got; so the rest of that message is
// offered for a moment longer (grace), in case it reads on, and then the connection is
// cut. Nothing is queued for it in the meantime.
type patience struct {
	stall, grace time.Duration
	dropped      func() // is called once, when the client is dropped
	cut          func() // is called when it did not read on: the write must end

	mu    sync.Mutex // guards all below, and is held while dropped and cut are called
	timer *time.Timer
	until time.Time // when the current write has to be taken by; zero if there is none
	slow  bool      // the client is dropped
	over  bool      // nobody waits any more
}

// begin notes that something is being written, or that the client has taken some of it.
func (p *patience) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.slow || p.over {
		return // the rest has only the remaining time
	}
	p.until = time.Now().Add(p.stall)
	if p.timer == nil {
		p.timer = time.AfterFunc(p.stall, p.stalled)
	} else {
		p.timer.Reset(p.stall)
	}
}

// done notes that the client has taken all of it.
func (p *patience) done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.until = time.Time{}
	if !p.slow && p.timer != nil {
		p.timer.Stop()
	}
}

func (p *patience) stalled() {
	p.mu.Lock()
	defer p.mu.Unlock()
	// The client may have taken it while the timer fired.
	if !p.until.IsZero() && !time.Now().Before(p.until) {
		p.dropLocked()
	}
}

// drop drops a client that was found to be gone by other means.
func (p *patience) drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dropLocked()
}

func (p *patience) dropLocked() {
	if p.slow || p.over {
		return
	}
	p.slow = true
	if p.timer != nil {
		p.timer.Stop()
	}
	p.timer = time.AfterFunc(p.grace, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if !p.over {
			p.cut()
		}
	})
	p.dropped()
}

// isSlow reports whether the client is dropped.
func (p *patience) isSlow() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.slow
}

// end notes that nothing more is written: neither dropped nor cut is called from now on.
func (p *patience) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
	if p.timer != nil {
		p.timer.Stop()
	}
}
