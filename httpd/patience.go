package httpd

import (
	"sync"
	"time"
)

// patience is how long the server waits for a client that follows. A client that takes
// nothing for a while (stall) is dropped: it gets no more events, for good. But what was
// being written to it is half written, and it should learn how far it got before the end;
// so the rest of that is kept for a moment longer (grace), in case it reads on, and then
// the connection is cut. Nothing is queued for it meanwhile.
type patience struct {
	stall, grace time.Duration
	dropped      func() // is called once, when the client is dropped
	cut          func() // is called when it did not read on: what is being written must end

	mu    sync.Mutex // guards all below, and is held while dropped and cut are called
	timer *time.Timer
	until time.Time // by when what is being written has to be taken; zero if nothing is
	slow  bool      // the client is dropped
	over  bool      // nobody waits any more
}

// begin says that something is being written, or that some of it was taken.
func (p *patience) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.slow || p.over {
		return // the rest has only the time that is left
	}
	p.until = time.Now().Add(p.stall)
	if p.timer == nil {
		p.timer = time.AfterFunc(p.stall, p.stalled)
	} else {
		p.timer.Reset(p.stall)
	}
}

// done says that all of it was taken.
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
	// It may have been taken while the timer went off.
	if !p.until.IsZero() && !time.Now().Before(p.until) {
		p.dropLocked()
	}
}

// drop drops a client that is known by other means to be gone.
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

// isSlow tells whether the client is dropped.
func (p *patience) isSlow() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.slow
}

// end says that nothing more is written: neither dropped nor cut is called from now on.
func (p *patience) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
	if p.timer != nil {
		p.timer.Stop()
	}
}
