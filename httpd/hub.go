package httpd

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"hansard"
	"hansard/internal/wire"
)

// However many follow a session, the store is asked once: one pump per session
// that is followed waits, reads and encodes, and keeps the newest events. Each
// follower takes from those at its own pace. One that falls behind them reads the
// store by itself until it has caught up; so a slow follower costs nobody anything,
// and nothing is ever queued for it.
//
// A thousand followers are a thousand times the work of an append. It must not be
// in the way of the next append: only a few followers are served at a time, so
// that a writer never stands in line behind all of them, and when there is more to
// do than can be done it is the followers who are late.

const (
	// keepMin and keepMax bound the newest events a pump keeps, keepEach is
	// how much more it keeps for each follower: the more there are, the more
	// it costs when they have to read the store.
	keepMin  = 1 << 20
	keepMax  = 64 << 20
	keepEach = 64 << 10
	// takeEvents and takeBytes bound what a follower takes at once.
	takeEvents = 256
	takeBytes  = 1 << 20
	// gatherEach is, per follower, how long a pump lets events gather before
	// it wakes everybody again, and gatherMax the most: waking a thousand
	// costs more than an append does.
	gatherEach = 100 * time.Microsecond
	gatherMax  = 100 * time.Millisecond
)

// frame is an event as it goes out.
type frame struct {
	seq  hansard.Seq
	line []byte // wire.AppendExactLine
}

// hub has the pumps.
type hub struct {
	ctx     context.Context // ends with the server
	store   hansard.Store
	metrics *metrics

	serving chan struct{} // has room for those who are served at a time
	waiting atomic.Int64  // those who wait for that
	worked  atomic.Int64  // ns, since the last rest

	mu    sync.Mutex // guards pumps, and the refs of each
	pumps map[hansard.SessionID]*pump
}

func newHub(ctx context.Context, store hansard.Store, m *metrics) *hub {
	return &hub{ctx: ctx, store: store, metrics: m, pumps: map[hansard.SessionID]*pump{},
		serving: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2))}
}

const (
	// serveMax is how long one follower is served before the next one is:
	// longer is not work but waiting, for a client that takes nothing.
	serveMax = 5 * time.Millisecond
	// When more than crowd wait to be served, there is a rest after every
	// workMax of work, restFor times as long: that is for the others.
	crowd   = 16
	workMax = time.Millisecond
	restFor = 5
)

// serve waits for the caller's turn to be served. It must call done.
func (h *hub) serve() (done func()) {
	h.waiting.Add(1)
	h.serving <- struct{}{}
	crowded := h.waiting.Add(-1) > crowd
	began := time.Now()
	leave := sync.OnceFunc(func() { <-h.serving })
	late := time.AfterFunc(serveMax, leave)
	return func() {
		late.Stop()
		if worked := h.worked.Add(int64(time.Since(began))); crowded && worked > int64(workMax) {
			h.worked.Store(0)
			time.AfterFunc(min(restFor*time.Duration(worked), restFor*serveMax), leave)
			return
		}
		leave()
	}
}

// pump reads one session for all its followers.
type pump struct {
	id     hansard.SessionID
	cancel context.CancelFunc
	refs   int // followers; guarded by hub.mu

	mu      sync.Mutex // guards all below
	frames  []frame    // the newest, in order, without a gap
	bytes   int
	most    int           // bytes to keep
	last    hansard.Seq   // how far the session was read
	err     error         // the end of it
	changed chan struct{} // closed, and replaced, when any of that changes
}

// join makes the caller a follower. It must leave.
func (h *hub) join(id hansard.SessionID) (p *pump, leave func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p = h.pumps[id]
	if p == nil {
		ctx, cancel := context.WithCancel(h.ctx)
		p = &pump{id: id, cancel: cancel, changed: make(chan struct{})}
		h.pumps[id] = p
		go h.run(ctx, p)
	}
	p.refs++
	h.metrics.followers.Inc()
	return p, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.metrics.followers.Dec()
		if p.refs--; p.refs == 0 {
			p.cancel()
			h.forget(p)
		}
	}
}

// forget makes the next follower start a fresh pump. The caller has h.mu.
func (h *hub) forget(p *pump) {
	if h.pumps[p.id] == p {
		delete(h.pumps, p.id)
	}
}

// run waits, reads and wakes, until it is cancelled or the session ends.
func (h *hub) run(ctx context.Context, p *pump) {
	err := h.pump(ctx, p)
	h.mu.Lock()
	h.forget(p)
	h.mu.Unlock()
	if h.ctx.Err() != nil {
		err = hansard.ErrClosed
	}
	p.update(func() { p.err = err })
}

func (h *hub) pump(ctx context.Context, p *pump) error {
	info, err := h.store.Stat(ctx, p.id)
	if err != nil {
		return err
	}
	last := info.LastSeq
	p.update(func() { p.last = last })
	for {
		if err := h.store.Wait(ctx, p.id, last); err != nil {
			return err
		}
		frames, err := h.read(ctx, p.id, last)
		if err != nil {
			return err
		}
		last = frames[len(frames)-1].seq
		h.mu.Lock()
		refs := p.refs
		h.mu.Unlock()
		p.update(func() {
			p.most = min(keepMax, keepMin+refs*keepEach)
			p.keep(frames)
		})
		gather(ctx, refs)
	}
}

// read encodes the events past a seq: at least one, since there is one, and not
// more than a follower takes at once.
func (h *hub) read(ctx context.Context, id hansard.SessionID, after hansard.Seq) ([]frame, error) {
	var out []frame
	size := 0
	for e, err := range h.store.Read(ctx, id, hansard.Range{After: after, Limit: takeEvents}) {
		if err != nil {
			if len(out) > 0 {
				break // the next reading meets it again
			}
			return nil, err
		}
		line := wire.AppendExactLine(nil, &e)
		out = append(out, frame{e.Seq, line})
		if size += len(line); size >= takeBytes {
			break
		}
	}
	if len(out) == 0 {
		return nil, errNothing
	}
	return out, nil
}

// errNothing is a store that says there is an event and has none to give.
var errNothing = wire.NewProblem("internal", "", "connect again")

// gather lets events come together when there are many to tell of them.
func gather(ctx context.Context, followers int) {
	pause := min(time.Duration(followers)*gatherEach, gatherMax)
	if pause < time.Millisecond {
		return
	}
	select {
	case <-time.After(pause):
	case <-ctx.Done():
	}
}

func (p *pump) update(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	close(p.changed)
	p.changed = make(chan struct{})
}

// frameBytes is what a frame takes besides its line.
const frameBytes = 64

// keep adds frames and drops the oldest. A follower may still hold a part of the
// old list: it is not changed in place.
func (p *pump) keep(frames []frame) {
	all := append(p.frames[:len(p.frames):len(p.frames)], frames...)
	for _, f := range frames {
		p.bytes += len(f.line) + frameBytes
	}
	drop := 0
	for len(all)-drop > 1 && p.bytes > p.most {
		p.bytes -= len(all[drop].line) + frameBytes
		drop++
	}
	p.frames, p.last = all[drop:], frames[len(frames)-1].seq
}

// take gives the events past a seq, if the pump has them; behind says that the
// store has to be asked; otherwise changed is what to wait for.
func (p *pump) take(after hansard.Seq) (frames []frame, behind bool, changed <-chan struct{}, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.last > after && len(p.frames) > 0 && p.frames[0].seq <= after+1:
		return some(p.frames[after+1-p.frames[0].seq:]), false, nil, nil
	case p.last > after:
		return nil, true, nil, nil
	case p.err != nil:
		return nil, false, nil, p.err
	}
	return nil, false, p.changed, nil
}

// some is as many frames as are taken at once.
func some(frames []frame) []frame {
	size := 0
	for i, f := range frames[:min(len(frames), takeEvents)] {
		if size += len(f.line); size > takeBytes && i > 0 {
			return frames[:i]
		}
	}
	return frames[:min(len(frames), takeEvents)]
}

// next waits for events past a seq and gives some of them.
func (h *hub) next(ctx context.Context, p *pump, after hansard.Seq) ([]frame, error) {
	for {
		frames, behind, changed, err := p.take(after)
		switch {
		case err != nil || frames != nil:
			return frames, err
		case behind:
			defer h.serve()()
			return h.read(ctx, p.id, after)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// wait returns nil when the session has an event past a seq.
func (h *hub) wait(ctx context.Context, id hansard.SessionID, after hansard.Seq) error {
	p, leave := h.join(id)
	defer leave()
	for {
		frames, behind, changed, err := p.take(after)
		if err != nil || frames != nil || behind {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
