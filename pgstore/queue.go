package pgstore

import (
	"context"
	"fmt"

	"hansard"
	"hansard/engine"
	"hansard/internal/fate"
)

// lane is where the appends of this process to one session queue up. One goroutine
// at a time sends them; what arrives while a group is under way is the next group,
// so nobody waits for a timer.
type lane struct {
	waiting []*request // guarded by Store.mu
}

// request is one append on its way.
type request struct {
	rows    rows
	turn    hansard.Grant
	inbox   bool // an exclusive turn lets it in
	apart   bool // its events are batches of their own
	create  bool
	meta    hansard.Meta   // what it is created with
	names   []engine.Named // of its events; nil if none has an id
	expect  *hansard.Seq
	key     string
	hash    string
	patch   *hansard.Patch
	fate    fate.Fate
	done    chan struct{} // closed when the two below are set
	receipt hansard.Receipt
	err     error
}

// The limits of a group: enough to make a round trip worth it, little enough to
// keep its first from waiting for the data of its last.
const (
	groupRequests = 512
	groupBytes    = 4 << 20
)

// Append implements [hansard.Store].
func (s *Store) Append(ctx context.Context, id hansard.SessionID, b hansard.Batch) (hansard.Receipt, error) {
	if err := s.begin(ctx, id, engine.CheckBatch(&b), s.writable()); err != nil {
		return hansard.Receipt{}, err
	}
	defer s.work.Done()
	r, err := newRequest(&b)
	if err != nil {
		return hansard.Receipt{}, err
	}
	s.submit(id, r)
	select {
	case <-r.done:
		return r.receipt, r.err
	case <-ctx.Done():
	}
	if r.fate.Withdraw() {
		return hansard.Receipt{}, fmt.Errorf("not stored: %w", context.Cause(ctx))
	}
	select {
	case <-r.done: // both at once: the answer is better
		return r.receipt, r.err
	default:
		return hansard.Receipt{}, fmt.Errorf("%w: %w", hansard.ErrUnknown, context.Cause(ctx))
	}
}

func newRequest(b *hansard.Batch) (*request, error) {
	events := engine.Normalize(b)
	r := &request{turn: b.Turn, inbox: b.InboxOnly(), apart: b.Apart, create: b.Create, expect: b.Expect, key: b.Key, patch: engine.ClonePatch(b.Patch),
		meta: engine.CloneMeta(b.Meta), names: engine.Names(events), done: make(chan struct{})}
	if b.Key != "" {
		r.hash = engine.ContentHash(events)
	}
	if err := r.rows.add(events, batch{b.Turn, b.Key, r.hash, b.Apart}); err != nil {
		return nil, err
	}
	for i := range r.names {
		if content := r.rows.contents[i]; content != nil { // from now on the caller's memory is the caller's
			r.names[i] = engine.NamedAs(r.names[i].ID, *content)
		}
	}
	return r, nil
}

// submit puts a request into its lane, and sees to it that somebody sends it.
func (s *Store) submit(id hansard.SessionID, r *request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opt.alone {
		s.work.Go(func() {
			r.fate.Take()
			s.send(id, []*request{r})
			close(r.done)
		})
		return
	}
	l := s.lanes[id]
	if l == nil {
		l = new(lane)
		s.lanes[id] = l
		s.work.Add(1)
		go s.lead(id, l)
	}
	l.waiting = append(l.waiting, r)
}

// lead sends groups until nobody waits.
func (s *Store) lead(id hansard.SessionID, l *lane) {
	defer s.work.Done()
	for {
		group := s.take(id, l)
		if group == nil {
			return
		}
		s.send(id, group)
		for _, r := range group {
			close(r.done)
		}
	}
}

// take gives the next group. When there is none the lane is closed: the next to
// come opens another.
func (s *Store) take(id hansard.SessionID, l *lane) (group []*request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var bytes int64
	for len(l.waiting) > 0 && len(group) < groupRequests {
		r := l.waiting[0]
		if len(group) > 0 && bytes+r.rows.bytes > groupBytes {
			break
		}
		l.waiting = l.waiting[1:]
		if !r.fate.Take() {
			continue
		}
		bytes += r.rows.bytes
		group = append(group, r)
	}
	if group == nil {
		delete(s.lanes, id)
	}
	return group
}
