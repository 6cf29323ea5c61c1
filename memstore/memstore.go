// Package memstore is the smallest correct [hansard.Store]: the model.
//
// It is one mutex, maps and slices, with nothing clever, so that it can be checked by
// reading. The suite in package storetest compares other engines with it step
// by step. It keeps everything in memory and loses it with the program: use it in
// tests, and read it to see what the contract means.
package memstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"hansard"
	"hansard/engine"
)

// Store is a store in memory. Make one with [New].
type Store struct {
	done chan struct{} // closed by Close

	mu       sync.Mutex // guards all below, and every session
	closed   bool
	identity string
	sessions map[hansard.SessionID]*session
}

var _ hansard.Store = (*Store)(nil)

type session struct {
	born    hansard.Meta // what it was created with
	meta    hansard.Meta
	created time.Time
	deleted bool
	// events has event n at events[n-1]. Only redactions change events, by replacing the slice.
	events []hansard.Event
	// batches are those of more than one event, in order.
	batches []run
	parent  *hansard.Parent // nil if it is not a fork
	bytes   int64
	keys    map[string]stored
	ids     map[string]engine.Known // of the events that have one
	// attachments are what was attached, by digest.
	attachments map[string][]byte
	turnState
	// changed is closed, and replaced, whenever waiters should look again.
	changed chan struct{}
}

// stored is what a key remembers.
type stored struct {
	hash        string
	first, last hansard.Seq
}

// New makes an empty store.
func New() *Store {
	return &Store{identity: fmt.Sprintf("mem-%016x%016x", rand.Uint64(), rand.Uint64()), done: make(chan struct{}), sessions: make(map[hansard.SessionID]*session)}
}

func newSession(m hansard.Meta) *session {
	return &session{born: m, meta: m, created: engine.Now(), keys: make(map[string]stored), ids: make(map[string]engine.Known), attachments: make(map[string][]byte), changed: make(chan struct{})}
}

func (ses *session) last() hansard.Seq { return hansard.Seq(len(ses.events)) }

func (ses *session) wake() {
	close(ses.changed)
	ses.changed = make(chan struct{})
}

// checkLocked begins every method. It checks whether the store is closed, then the id, then
// the other arguments, and only then whether the context has ended.
func (s *Store) checkLocked(ctx context.Context, id hansard.SessionID, given ...error) error {
	if s.closed {
		return hansard.ErrClosed
	}
	if err := hansard.CheckID(id); err != nil {
		return err
	}
	for _, err := range given {
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (s *Store) findLocked(id hansard.SessionID) (*session, error) {
	ses := s.sessions[id]
	switch {
	case ses == nil:
		return nil, fmt.Errorf("%w: %s", hansard.ErrNotFound, id)
	case ses.deleted:
		return nil, fmt.Errorf("%w: %s", hansard.ErrDeleted, id)
	}
	return ses, nil
}

// Create implements [hansard.Store].
func (s *Store) Create(ctx context.Context, id hansard.SessionID, m hansard.Meta) (hansard.Info, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.checkLocked(ctx, id, engine.CheckMeta(&m)); err != nil {
		return hansard.Info{}, err
	}
	switch _, err := s.findLocked(id); {
	case err == nil:
		return hansard.Info{}, fmt.Errorf("%w: %s", hansard.ErrExists, id)
	case !errors.Is(err, hansard.ErrNotFound) && !m.Reuse:
		return hansard.Info{}, err
	}
	m.Reuse = false
	ses := newSession(engine.CloneMeta(m))
	if old := s.sessions[id]; old != nil && !ses.created.After(old.created) {
		ses.created = old.created.Add(time.Microsecond) // distinguishes the two sessions
	}
	s.sessions[id] = ses
	return ses.info(id), nil
}

// Append implements [hansard.Store]. The order of its checks is part of the
// contract: a batch that is wrong in two ways gets the same answer on every engine.
func (s *Store) Append(ctx context.Context, id hansard.SessionID, b hansard.Batch) (hansard.Receipt, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.checkLocked(ctx, id, engine.CheckBatch(&b)); err != nil {
		return hansard.Receipt{}, err
	}
	ses, err := s.findLocked(id)
	if errors.Is(err, hansard.ErrNotFound) && b.Create {
		// Not in the map yet: a batch that is refused creates nothing.
		ses, err = newSession(engine.CloneMeta(b.Meta)), nil
	}
	if err != nil {
		return hansard.Receipt{}, err
	}
	events := engine.Normalize(&b)
	hash := engine.ContentHash(events)
	names := engine.Names(events)
	// The key comes before the conditions: a retry of a stored batch is answered
	// even if the session has changed since.
	if old, known := ses.keys[b.Key]; known {
		if !engine.SameKeyContent(old.hash, hash) {
			return hansard.Receipt{}, &hansard.KeyReusedError{Session: id, Key: b.Key, First: old.first, Last: old.last}
		}
		return hansard.Receipt{Session: id, First: old.first, Last: old.last, Replayed: true,
			Seqs: engine.ReplayedSeqs(names, old.first, old.last, ses.known)}, nil
	}
	// So do the ids: what is already stored needs no permission to be written.
	sifted := engine.AllNew(len(events), b.Patch != nil)
	if names != nil {
		if sifted, err = engine.Sift(id, names, engine.PatchHash(b.Patch), ses.known); err != nil {
			return hansard.Receipt{}, err
		}
		if sifted.Len() == 0 {
			return sifted.Receipt(id, 0), nil
		}
	}
	events = sifted.Pick(events)
	gone, err := ses.fence(id, b.Turn, b.InboxOnly())
	if err != nil {
		return hansard.Receipt{}, err
	}
	if b.Expect != nil && *b.Expect != ses.last() {
		return hansard.Receipt{}, &hansard.ConflictError{Session: id, Expected: *b.Expect, Actual: ses.last()}
	}
	if err := engine.CheckNamed(id, engine.NamedBy(events), ses.attached); err != nil {
		return hansard.Receipt{}, err
	}
	for i := range events {
		events[i] = cloneEvent(events[i]) // the caller may change its own memory
	}
	meta, err := engine.ApplyPatch(id, ses.meta, events[len(events)-1].Patch)
	if err != nil {
		return hansard.Receipt{}, err
	}

	if gone != "" {
		ses.end(gone, b.By)
	}
	r := sifted.Receipt(id, ses.last()+1)
	r.Created = s.sessions[id] == nil
	if b.Apart {
		for i := range events {
			ses.add(events[i:i+1], b.Turn)
		}
	} else {
		ses.add(events, b.Turn)
	}
	ses.meta = meta
	if b.Key != "" {
		ses.keys[b.Key] = stored{hash, r.First, r.Last}
	}
	s.sessions[id] = ses
	ses.serve() // a turn that ended is free for the next claimant
	ses.wake()
	return r, nil
}

// add appends events.
func (ses *session) add(events []hansard.Event, turn hansard.Grant) {
	now := engine.Now()
	for i := range events {
		events[i].Seq, events[i].Time, events[i].Turn = ses.last()+hansard.Seq(i)+1, now, turn
		ses.remember(&events[i])
	}
	if n := hansard.Seq(len(events)); n > 1 {
		ses.batches = append(ses.batches, run{ses.last() + 1, ses.last() + n})
	}
	ses.events = append(ses.events, events...)
}

// remember notes what later calls need to know about a stored event.
func (ses *session) remember(e *hansard.Event) {
	ses.bytes += int64(len(e.Data))
	if e.ID != "" {
		ses.ids[e.ID] = engine.KnownEvent(e)
	}
}

// known is what the session has under an event's id.
func (ses *session) known(id string) (engine.Known, bool) {
	k, ok := ses.ids[id]
	return k, ok
}

// Read implements [hansard.Store]. The events are selected at one moment, when the
// iteration begins, and yielded without the lock.
func (s *Store) Read(ctx context.Context, id hansard.SessionID, r hansard.Range) iter.Seq2[hansard.Event, error] {
	return func(yield func(hansard.Event, error) bool) {
		events, err := s.choose(ctx, id, r)
		if err != nil {
			yield(hansard.Event{}, err)
			return
		}
		for _, e := range events {
			// A read that was cut short must not look complete.
			if err := ctx.Err(); err != nil {
				yield(hansard.Event{}, err)
				return
			}
			if !yield(cloneEvent(e), nil) {
				return
			}
		}
	}
}

func (s *Store) choose(ctx context.Context, id hansard.SessionID, r hansard.Range) ([]hansard.Event, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.checkLocked(ctx, id, engine.CheckRange(&r)); err != nil {
		return nil, err
	}
	ses, err := s.findLocked(id)
	if err != nil {
		return nil, err
	}
	if r.ID != "" {
		k, ok := ses.ids[r.ID]
		if !ok {
			return nil, engine.NoEvent(id, r.ID)
		}
		return ses.events[k.Seq-1 : k.Seq], nil
	}
	r = engine.Plain(r)
	last := ses.last()
	if r.Before > 0 {
		last = min(last, r.Before-1)
	}
	events := ses.events[min(r.After, last):last]
	if r.FromKind != "" {
		for i, e := range slices.Backward(events) {
			if e.Kind == r.FromKind {
				events = events[i:]
				break
			}
		}
	}
	var out []hansard.Event
	for _, e := range events {
		if r.Wants(e.Kind) {
			out = append(out, e)
		}
	}
	if r.Reverse {
		slices.Reverse(out)
	}
	if r.Last > 0 {
		out = out[max(0, len(out)-r.Last):]
	}
	if r.Limit > 0 {
		out = out[:min(r.Limit, len(out))]
	}
	return out, nil
}

// Wait implements [hansard.Store].
func (s *Store) Wait(ctx context.Context, id hansard.SessionID, after hansard.Seq) error {
	var waited *session
	for {
		changed, err := s.past(ctx, id, after, &waited)
		if err != nil || changed == nil {
			return err
		}
		select {
		case <-changed:
		case <-s.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// past reports whether there is an event past after: it returns nil if so, and
// otherwise what to wait for before looking again. Looking and taking the channel are
// one critical section, so no change can be missed between them.
// waited is the session that was looked at before, so that a new session with the same
// id is not taken for it.
func (s *Store) past(ctx context.Context, id hansard.SessionID, after hansard.Seq, waited **session) (<-chan struct{}, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.checkLocked(ctx, id); err != nil {
		return nil, err
	}
	ses, err := s.findLocked(id)
	if err == nil && *waited != nil && *waited != ses {
		err = fmt.Errorf("%w: %s", hansard.ErrDeleted, id)
	}
	if err != nil || ses.last() > after {
		return nil, err
	}
	*waited = ses
	return ses.changed, nil
}

// Stat implements [hansard.Store].
func (s *Store) Stat(ctx context.Context, id hansard.SessionID) (hansard.Info, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.checkLocked(ctx, id); err != nil {
		return hansard.Info{}, err
	}
	ses, err := s.findLocked(id)
	if err != nil {
		return hansard.Info{}, err
	}
	return ses.info(id), nil
}

// List implements [hansard.Store].
func (s *Store) List(ctx context.Context, q hansard.Query) iter.Seq2[hansard.Info, error] {
	return func(yield func(hansard.Info, error) bool) {
		infos, err := s.wanted(ctx, q)
		if err != nil {
			yield(hansard.Info{}, err)
			return
		}
		for _, info := range infos {
			if err := ctx.Err(); err != nil {
				yield(hansard.Info{}, err)
				return
			}
			if !yield(info, nil) {
				return
			}
		}
	}
}

func (s *Store) wanted(ctx context.Context, q hansard.Query) ([]hansard.Info, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, hansard.ErrClosed
	}
	// A bad cursor is an error in an empty store too.
	if err := engine.CheckQuery(&q); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var all []hansard.Info
	for id, ses := range s.sessions {
		if !ses.deleted {
			all = append(all, ses.info(id))
		}
	}
	return engine.Page(&q, engine.Now(), all)
}

// Count implements [hansard.Counter].
func (s *Store) Count(ctx context.Context, q hansard.Query) (int, error) {
	if err := engine.CheckQuery(&q); err != nil {
		return 0, err
	}
	q.Limit, q.Cursor = 0, ""
	infos, err := s.wanted(ctx, q)
	return len(infos), err
}

// Delete implements [hansard.Store].
func (s *Store) Delete(ctx context.Context, id hansard.SessionID, turn hansard.Grant) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.checkLocked(ctx, id); err != nil {
		return err
	}
	ses, err := s.findLocked(id)
	if err != nil {
		return err
	}
	if _, err := ses.fence(id, turn, false); err != nil {
		return err
	}
	ses.deleted, ses.attachments = true, nil
	ses.wake()
	return nil
}

// Close implements [hansard.Store]. Waiting calls return ErrClosed.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.closed = true
		close(s.done)
	}
	return nil
}

func (ses *session) info(id hansard.SessionID) hansard.Info {
	info := hansard.Info{
		ID:      id,
		Title:   ses.meta.Title,
		Labels:  make(map[string]string, len(ses.meta.Labels)),
		State:   bytes.Clone(ses.meta.State),
		Created: ses.created,
		Updated: ses.created,
		LastSeq: ses.last(),
		Bytes:   ses.bytes,
	}
	maps.Copy(info.Labels, ses.meta.Labels)
	if len(info.State) == 0 {
		info.State = []byte("null")
	}
	if ses.turn != nil {
		t := *ses.turn
		info.Turn = &t
	}
	if ses.parent != nil {
		p := *ses.parent
		info.Parent = &p
	}
	if n := len(ses.events); n > 0 {
		info.Updated = ses.events[n-1].Time
	}
	return info
}

// cloneEvent copies an event, so that a caller can't change what the store has.
func cloneEvent(e hansard.Event) hansard.Event {
	e.Data = bytes.Clone(e.Data)
	e.Attachments = slices.Clone(e.Attachments)
	e.Redacts = slices.Clone(e.Redacts)
	e.Patch = engine.ClonePatch(e.Patch)
	if e.Fork != nil {
		p := *e.Fork
		e.Fork = &p
	}
	return e
}
