package httpd

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"hansard"
	"hansard/internal/wire"
)

// However many clients follow a session, the store is read once: one pump per followed session
// and view waits, reads and encodes, and keeps the newest events. Each follower takes from
// those at its own pace. One that falls behind them reads the store by itself until it has
// caught up; so a slow follower costs the others nothing, and nothing is ever queued for it.

const (
	// keepMin and keepMax bound the newest events a pump keeps, in bytes; keepEach
	// is how much more it keeps for each follower: the more followers there are,
	// the more it costs when they have to read the store.
	keepMin  = 1 << 20
	keepMax  = 64 << 20
	keepEach = 64 << 10
	// takeEvents and takeBytes bound what a follower takes at once.
	takeEvents = 256
	takeBytes  = 1 << 20
	// A pump lets events gather between two wake-ups of its followers: for
	// gatherMin, plus gatherEach for each of them, and gatherMax at most. Reading
	// and waking for every single event would slow down a writer that appends as
	// fast as it can, with one follower as with a thousand. The first event after
	// a pause is passed on at once.
	gatherMin  = 5 * time.Millisecond
	gatherEach = 100 * time.Microsecond
	gatherMax  = 100 * time.Millisecond
)

// frame is an event as it is sent.
type frame struct {
	seq  hansard.Seq
	line []byte // view.line
	// redacts is the last event that this one records as redacted; 0 if none.
	redacts hansard.Seq
}

// size is how many bytes it takes to keep a frame, or to send it.
func (f *frame) size() int { return len(f.line) + 64 }

// hub has the pumps.
type hub struct {
	ctx     context.Context // ends with the server
	store   hansard.Store
	metrics *metrics
	service *service
	memory  *budget
	look    time.Duration // lookEvery
	keepAll int64         // bounds what all pumps keep, in bytes: a client may follow many sessions
	kept    atomic.Int64  // how much they keep

	mu    sync.Mutex // guards pumps, and the refs of each
	pumps map[followed]*pump
}

// followed is what is followed: a session, in a view. An id may be deleted and reused: the session is the one that was
// created at that time.
type followed struct {
	id      hansard.SessionID
	as      view
	created int64 // UnixNano
}

// generation distinguishes a session from earlier and later ones with the same id.
func generation(info *hansard.Info) int64 { return info.Created.UnixNano() }

func newHub(ctx context.Context, store hansard.Store, m *metrics, memory *budget, keepAll int64) *hub {
	return &hub{ctx: ctx, store: store, metrics: m, memory: memory, look: lookEvery, keepAll: keepAll, pumps: map[followed]*pump{}, service: newService()}
}

// pump reads one session for all its followers.
type pump struct {
	followed
	cancel context.CancelFunc
	refs   int // followers; guarded by hub.mu

	mu      sync.Mutex // guards all below
	frames  []frame    // the newest, in order, without a gap
	bytes   int
	last    hansard.Seq   // how far the session was read
	err     error         // why it ended
	changed chan struct{} // closed, and replaced, when any of that changes
}

// join makes the caller a follower. It must leave.
func (h *hub) join(what followed) (p *pump, leave func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p = h.pumps[what]
	if p == nil {
		ctx, cancel := context.WithCancel(h.ctx)
		p = &pump{followed: what, cancel: cancel, changed: make(chan struct{})}
		h.pumps[what] = p
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
	if h.pumps[p.followed] == p {
		delete(h.pumps, p.followed)
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
	p.update(func() {
		p.err = err
		h.kept.Add(-int64(p.bytes))
		p.frames, p.bytes = nil, 0
	})
}

func (h *hub) pump(ctx context.Context, p *pump) error {
	info, err := h.store.Stat(ctx, p.id)
	if err == nil {
		err = p.is(&info)
	}
	if err != nil {
		return err
	}
	last := info.LastSeq
	p.update(func() { p.last = last })
	for {
		if err := h.await(ctx, p, last); err != nil {
			return err
		}
		refs, most := h.share(p)
		frames, err := h.read(ctx, p.followed, last, 0, most)
		if err != nil {
			return err
		}
		last = frames[len(frames)-1].seq
		p.update(func() {
			before := p.bytes
			h.service.ask(time.Now(), p.keep(frames, most)*refs)
			if h.kept.Add(int64(p.bytes-before)) > h.keepAll {
				h.kept.Add(-int64(p.bytes)) // over the limit: followers read these events from the store
				p.frames, p.bytes = nil, 0
			}
		})
		gather(ctx, refs)
	}
}

// lookEvery is how often an idle session is checked to be still the one that is followed. Wait reports a deletion,
// unless another session already has the id.
const lookEvery = 15 * time.Second

// await waits for an event.
func (h *hub) await(ctx context.Context, p *pump, last hansard.Seq) error {
	for {
		wait, cancel := context.WithTimeout(ctx, h.look)
		err := h.store.Wait(wait, p.id, last)
		late := wait.Err() != nil && ctx.Err() == nil
		cancel()
		if err == nil || !late {
			return err
		}
		if err := h.same(ctx, p.followed); err != nil {
			return err
		}
	}
}

// same returns an error if the session is no longer the one that is followed. If it is, what was read before the call
// belongs to it.
func (h *hub) same(ctx context.Context, what followed) error {
	info, err := h.store.Stat(ctx, what.id)
	if err != nil {
		return err
	}
	return what.is(&info)
}

func (f followed) is(info *hansard.Info) error {
	if info.Created.IsZero() || f.created == generation(info) { // zero: its header is damaged, which reading reports
		return nil
	}
	return replaced(f.id)
}

// replaced is the error for a session whose id now belongs to another session.
func replaced(id hansard.SessionID) error {
	return fmt.Errorf("%w: %s, and its id is that of another session now", hansard.ErrDeleted, id)
}

// share is the number of followers, and how many bytes are kept for them.
func (h *hub) share(p *pump) (refs, most int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return p.refs, min(keepMax, keepMin+p.refs*keepEach, int(h.keepAll)/max(1, len(h.pumps))) // the pump itself may be forgotten already
}

// read encodes the events past a seq: at least one, since there is one, and at most the
// given number of events (0: no limit) or bytes.
func (h *hub) read(ctx context.Context, what followed, after hansard.Seq, events, bytes int) ([]frame, error) {
	var out []frame
	size := 0
	err := hansard.Lend(ctx, h.store, what.id, hansard.Range{After: after, Limit: events}, func(e *hansard.Event) bool {
		f := frame{seq: e.Seq, line: what.as.line(nil, e)}
		for _, seq := range e.Redacts {
			f.redacts = max(f.redacts, seq)
		}
		out = append(out, f)
		size += f.size()
		return size < bytes
	})
	if err != nil && len(out) == 0 { // else the next read returns it again
		return nil, err
	}
	if err := h.same(ctx, what); err != nil {
		return nil, err
	}
	if len(out) == 0 {
		return nil, errNothing
	}
	return out, nil
}

// errNothing: the store reported an event, and yields none.
var errNothing = wire.NewProblem("internal", "", "connect again")

// gather waits for more events to arrive.
func gather(ctx context.Context, followers int) {
	pause := min(gatherMin+time.Duration(followers)*gatherEach, gatherMax)
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

// keep adds frames and drops the oldest beyond a number of bytes; it returns how many
// were added. A follower may still hold a part of the list: its elements never change.
func (p *pump) keep(frames []frame, most int) (added int) {
	all := append(p.frames, frames...)
	for _, f := range frames {
		added += f.size()
	}
	p.bytes += added
	drop := 0
	// Redacted events are not kept for later followers: those read the store.
	for _, f := range frames {
		for drop < len(all) && all[drop].seq <= f.redacts {
			p.bytes -= all[drop].size()
			drop++
		}
	}
	for len(all)-drop > 1 && p.bytes > most {
		p.bytes -= all[drop].size()
		drop++
	}
	p.frames, p.last = all[drop:], frames[len(frames)-1].seq
	return added
}

// take returns the events past a seq, if the pump has them. behind means that they have to
// be read from the store; otherwise changed is what to wait for.
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

// some returns the first frames, as many as a follower takes at once.
func some(frames []frame) []frame {
	size := 0
	for i, f := range frames[:min(len(frames), takeEvents)] {
		if size += f.size(); size > takeBytes && i > 0 {
			return frames[:i]
		}
	}
	return frames[:min(len(frames), takeEvents)]
}

// next waits for events past a seq and returns some of them. They have to be freed.
func (h *hub) next(ctx context.Context, p *pump, after hansard.Seq) (frames []frame, free func(), err error) {
	for {
		frames, behind, changed, err := p.take(after)
		switch {
		case err != nil || frames != nil:
			return frames, func() {}, err
		case behind:
			return h.catchUp(ctx, p.followed, after)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
}

// catchUp reads for one follower alone. What it reads is charged to its token until the
// client has received it: otherwise clients that read nothing could make the server hold
// that much for each of them.
func (h *hub) catchUp(ctx context.Context, what followed, after hansard.Seq) (frames []frame, free func(), err error) {
	for want := int64(takeBytes); ; {
		charged, err := h.room(ctx, want)
		if err != nil {
			return nil, nil, err
		}
		room := &room{load: charged, account: callerOf(ctx).account, closing: h.ctx}
		frames, err := h.readServed(ctx, room, what, after)
		size := int64(0)
		for i := range frames {
			size += int64(frames[i].size())
		}
		if err == nil && (size <= want || room.tryGrow(size-want)) {
			return frames, room.free, nil
		}
		room.free()
		if err != nil {
			return nil, nil, err
		}
		want = size // the size of one large event, once there is room for it
	}
}

func (h *hub) readServed(ctx context.Context, room *room, what followed, after hansard.Seq) ([]frame, error) {
	done, err := h.service.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done(0)
	// Only now: while it waits to be served it must not keep others of its token from reading.
	if err := room.read(ctx); err != nil {
		return nil, err
	}
	defer room.rest()
	return h.read(ctx, what, after, takeEvents, takeBytes)
}

// room waits for memory. A follower can wait: it lags, but loses nothing.
func (h *hub) room(ctx context.Context, size int64) (*load, error) {
	for {
		room := h.memory.load(callerOf(ctx).Name)
		err := room.grow(ctx, size)
		if err == nil {
			return room, nil
		}
		room.free()
		select {
		case <-time.After(gatherMax):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// wait returns nil when the session has an event past a seq.
func (h *hub) wait(ctx context.Context, id hansard.SessionID, after hansard.Seq) error {
	info, err := h.store.Stat(ctx, id) // others may still wait for an earlier session of this id, which had other seqs
	if err != nil {
		return err
	}
	p, leave := h.join(followed{id, stored, generation(&info)})
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
