package httpd

import (
	"context"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Serving a thousand followers is a thousand times the work of an append. It must not delay
// the next append: only a few followers are served at a time, so that a writer never queues
// behind all of them, and when many wait there is a rest after every bit of work, longer
// while the sessions grow. If there is more to do than that pace allows (a flood: the
// sessions grow faster than their followers can be served) the followers lag, and the rest
// is longer still: hurrying would not make them keep up, and would slow the writers down.

const (
	// serveMax is how long one follower is served before its slot goes to the next:
	// anything longer is not work but waiting for a client that reads nothing.
	serveMax = 5 * time.Millisecond
	// When more than crowd followers wait, there is a rest after every workMax of
	// work. The rest is the work times one of these factors.
	crowd      = 16
	workMax    = time.Millisecond
	quietRest  = 1
	growthRest = 5
	floodRest  = 20
	// roundMax is how long it may take until every waiting follower was served: if
	// necessary the rest is shortened for that, down to quietRest. A follower that
	// gets nothing for too long assumes that the server is dead.
	roundMax = 5 * time.Second
	// lasts is how long growth, or a flood, is assumed to continue after it was seen.
	lasts = 3 * gatherMax
)

// service schedules the followers.
type service struct {
	slots   chan struct{} // one element per follower being served
	waiting atomic.Int64  // followers waiting for a slot
	worked  atomic.Int64  // ns, since the last rest
	grows   atomic.Int64  // until when, in ns of the clock
	floods  atomic.Int64  // until when

	mu    sync.Mutex // guards all below
	asked flow       // bytes that followers are to get
	sent  flow       // bytes that they got
	took  flow       // seconds of work for that
	count flow       // how often a follower was served
}

func newService() *service {
	return &service{slots: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2))}
}

// begin waits for a slot. The caller must call done, with the bytes it sent.
func (s *service) begin(ctx context.Context) (done func(bytes int), err error) {
	s.waiting.Add(1)
	select {
	case s.slots <- struct{}{}:
	case <-ctx.Done():
		s.waiting.Add(-1)
		return nil, context.Cause(ctx)
	}
	waiting := s.waiting.Add(-1)
	began := time.Now()
	leave := sync.OnceFunc(func() { <-s.slots })
	late := time.AfterFunc(serveMax, leave)
	return func(bytes int) {
		now := time.Now()
		if !late.Stop() {
			return // it was waiting, not work, and another follower already has the slot
		}
		took := now.Sub(began)
		s.mu.Lock()
		s.sent.add(now, float64(bytes))
		s.took.add(now, took.Seconds())
		s.count.add(now, 1)
		s.mu.Unlock()
		worked := time.Duration(s.worked.Add(int64(took)))
		if waiting <= crowd || worked <= workMax {
			leave()
			return
		}
		s.worked.Store(0)
		time.AfterFunc(time.Duration(s.rest(now, waiting)*float64(worked)), leave)
	}, nil
}

// rest is the length of the rest, as a multiple of the work, when so many wait.
func (s *service) rest(now time.Time, waiting int64) float64 {
	rest := float64(quietRest)
	switch now := now.UnixNano(); {
	case now < s.floods.Load():
		rest = floodRest
	case now < s.grows.Load():
		rest = growthRest
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	each := s.took.at(now) / s.count.at(now)
	round := float64(waiting) * each / float64(cap(s.slots))
	return max(quietRest, min(rest, roundMax.Seconds()/round-1))
}

// ask records that all followers together are to get bytes, and detects whether that is
// more than can be done.
func (s *service) ask(now time.Time, bytes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked.add(now, float64(bytes))
	speed := s.sent.at(now) / s.took.at(now) * float64(cap(s.slots)) // NaN when nothing was sent
	until := now.Add(lasts).UnixNano()
	s.grows.Store(until)
	if s.asked.at(now) > speed/(1+growthRest) {
		s.floods.Store(until)
	}
}

// flow is how much of something there was in about the last second: a decaying sum.
type flow struct {
	sum  float64
	when time.Time
}

func (f *flow) add(now time.Time, much float64) {
	f.sum = f.at(now) + much
	f.when = now
}

func (f *flow) at(now time.Time) float64 {
	return f.sum * math.Exp(-max(0, now.Sub(f.when).Seconds()))
}
