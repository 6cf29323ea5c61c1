package pgstore

import (
	"context"
	"fmt"
	"sync"
	"time"

	"hansard"
)

// hub tells those who wait that a session has changed. What this process commits
// it knows; what others commit it hears of by NOTIFY; and because a notification
// can be lost with a connection, it also looks now and then, once for all who wait.
type hub struct {
	s       *Store
	look    chan struct{} // something is dirty
	tell    chan struct{} // something is news
	hurry   chan struct{} // and somebody may be waiting for it to go on, not only to see it
	mention chan struct{} // something is news that nobody waits for
	watch   sync.Once     // looking and listening begin with the first who waits
	say     sync.Once     // telling begins with the first change

	mu        sync.Mutex // guards below
	watches   map[hansard.SessionID]*watch
	dirty     map[hansard.SessionID]bool // watched, to be looked at
	news      map[hansard.SessionID]bool // changed, to be told to others
	listening bool
}

// watch is a session somebody waits for.
type watch struct {
	waiters int
	last    hansard.Seq   // known to be durable
	turn    turnState     // when it was last looked at
	created time.Time     // of the session that was looked at
	looks   int           // how often it was
	err     error         // the session is gone: those who wait are told
	changed chan struct{} // closed, and replaced, when one of these changed
}

// turnState is what a session's turn changes by: each grant is a new one, and each release
// ends the current one. The current one alone would not do: a turn that was free, granted and
// released is free again, and whoever comes next has to notice.
type turnState struct{ current, newest string }

func newHub(s *Store) *hub {
	return &hub{s: s, look: make(chan struct{}, 1), tell: make(chan struct{}, 1), hurry: make(chan struct{}, 1), mention: make(chan struct{}, 1),
		watches: make(map[hansard.SessionID]*watch), dirty: make(map[hansard.SessionID]bool), news: make(map[hansard.SessionID]bool)}
}

const (
	pollEvery = time.Second            // while notifications come
	pollDeaf  = 100 * time.Millisecond // while they do not
)

// Wait implements [hansard.Store].
func (s *Store) Wait(ctx context.Context, id hansard.SessionID, after hansard.Seq) error {
	if err := s.begin(ctx, id); err != nil {
		return err
	}
	defer s.work.Done()
	w := s.hub.join(id)
	defer s.hub.leave(id, w)
	for {
		now := s.hub.state(w)
		switch {
		case now.err != nil:
			return now.err
		case now.last > after:
			return nil
		}
		select {
		case <-now.changed:
		case <-ctx.Done():
			return ctx.Err()
		case <-s.closing:
			return hansard.ErrClosed
		}
	}
}

// join begins to watch a session. It is looked at once for whoever joins.
func (h *hub) join(id hansard.SessionID) *watch {
	h.watch.Do(func() {
		h.s.background(h.looking)
		h.s.background(h.listen)
	})
	h.mu.Lock()
	defer h.mu.Unlock()
	w := h.watches[id]
	if w == nil {
		w = &watch{changed: make(chan struct{})}
		h.watches[id] = w
	}
	w.waiters++
	h.markDirtyLocked(id)
	return w
}

func (h *hub) leave(id hansard.SessionID, w *watch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if w.waiters--; w.waiters == 0 && h.watches[id] == w {
		delete(h.watches, id)
	}
}

// state is what a watch knows by now.
func (h *hub) state(w *watch) watch {
	h.mu.Lock()
	defer h.mu.Unlock()
	return *w
}

// markDirtyLocked has a session looked at.
func (h *hub) markDirtyLocked(id hansard.SessionID) {
	h.dirty[id] = true
	poke(h.look)
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// changed is called when this process has committed something: up to the seq last,
// or with 0 something that has to be looked at: a turn is free, a session is gone.
func (h *hub) changed(id hansard.SessionID, last hansard.Seq) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.changedLocked(id, last)
	if last == 0 {
		poke(h.hurry) // before tell: so telling knows that this is part of what it tells
	}
	poke(h.tell)
}

// granted is changed for a turn that was granted. Those who wait for it in other processes
// have no use for that; it is the release they wait for, and that may be next.
func (h *hub) granted(id hansard.SessionID, last hansard.Seq) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.changedLocked(id, last)
	poke(h.mention)
}

func (h *hub) changedLocked(id hansard.SessionID, last hansard.Seq) {
	h.say.Do(func() { h.s.background(h.telling) })
	if w := h.watches[id]; w != nil && last > w.last {
		w.last = last
		w.wake()
	} else if w != nil && last == 0 {
		h.markDirtyLocked(id)
	}
	h.news[id] = true
}

func (w *watch) wake() {
	close(w.changed)
	w.changed = make(chan struct{})
}

// looking reads the heads of sessions that may have changed.
func (h *hub) looking(ctx context.Context) {
	poll := time.NewTimer(pollDeaf)
	defer poll.Stop()
	var failing time.Time
	for {
		all := false
		select {
		case <-ctx.Done():
			return
		case <-h.look:
		case <-poll.C:
			all = true
		}
		err := h.lookAt(ctx, h.take(all))
		switch {
		case err == nil:
			failing = time.Time{}
		case failing.IsZero():
			failing = time.Now()
		case time.Since(failing) > h.s.opt.RetryFor:
			h.fail(&UnavailableError{err})
			failing = time.Time{}
		}
		next := pollEvery
		if h.mu.Lock(); !h.listening || err != nil {
			next = pollDeaf
		}
		h.mu.Unlock()
		poll.Reset(next)
	}
}

// take gives the sessions to look at.
func (h *hub) take(all bool) (ids []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id := range h.watches {
		if all || h.dirty[id] {
			ids = append(ids, string(id))
		}
	}
	clear(h.dirty)
	return ids
}

const lookAtHeads = "SELECT id, last, deleted, current, newest, created FROM hansard_heads WHERE id = ANY($1)"

func (h *hub) lookAt(ctx context.Context, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, statementPatience)
	defer cancel()
	rows, err := h.s.pool.Query(ctx, lookAtHeads, ids)
	if err != nil {
		return err
	}
	found := make(map[string]*head, len(ids))
	turns := make(map[string]turnState, len(ids))
	for rows.Next() {
		var id string
		var last int64
		var turn turnState
		f := new(head)
		if err := rows.Scan(&id, &last, &f.deleted, &turn.current, &turn.newest, &f.created); err != nil {
			rows.Close()
			return err
		}
		f.last = hansard.Seq(last)
		found[id], turns[id] = f, turn
	}
	if err := rows.Err(); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range ids {
		id := hansard.SessionID(id)
		w := h.watches[id]
		if w == nil {
			continue
		}
		f := found[string(id)]
		err := f.find(id)
		if err == nil && !w.created.IsZero() && !w.created.Equal(f.created) {
			err = fmt.Errorf("%w: %s", hansard.ErrDeleted, id) // it is another one of this id
		}
		if err != nil {
			h.endLocked(id, w, err)
		} else {
			w.created = f.created
			w.last, w.turn = max(w.last, f.last), turns[string(id)]
			w.looks++
			w.wake()
		}
	}
	return nil
}

// endLocked tells those who wait that there is nothing to wait for. Whoever comes
// later begins anew: the session may be made meanwhile.
func (h *hub) endLocked(id hansard.SessionID, w *watch, err error) {
	delete(h.watches, id)
	w.err = err
	w.wake()
}

// fail tells all who wait that the database is gone.
func (h *hub) fail(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, w := range h.watches {
		h.endLocked(id, w, err)
	}
}
