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
	looks     int // so far
}

// watch is a session somebody waits for.
type watch struct {
	waiters int
	joined  int           // how many have joined, in all
	last    hansard.Seq   // known to be durable,
	lastTo  int           // to the first so many that joined: of a session that was there for those
	turn    turnState     // when it was last looked at
	created time.Time     // of the session that was looked at
	looks   int           // which look that was, of all looks
	known   int           // how many had joined when it began
	err     error         // the session is gone: those who wait are told,
	toldTo  int           // if they were among the first so many that joined
	changed chan struct{} // closed, and replaced, when one of these changed
}

// waiter is one who waits for a session.
type waiter struct {
	h     *hub
	id    hansard.SessionID
	w     *watch
	place int // among those who joined
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
	defer w.leave()
	for {
		now := w.state()
		switch {
		case now.err != nil:
			return now.err
		case w.knows(&now, after):
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

// join begins to watch a session. It is looked at once for whoever joins. The caller must
// leave.
func (h *hub) join(id hansard.SessionID) *waiter {
	h.watch.Do(func() {
		h.s.background(h.looking)
		h.s.background(h.listen)
	})
	h.mu.Lock()
	defer h.mu.Unlock()
	j := &waiter{h: h, id: id}
	j.joinLocked()
	return j
}

func (j *waiter) joinLocked() {
	j.w = j.h.watches[j.id]
	if j.w == nil {
		j.w = &watch{changed: make(chan struct{})}
		j.h.watches[j.id] = j.w
	}
	j.w.waiters++
	j.w.joined++
	j.place = j.w.joined
	j.h.markDirtyLocked(j.id)
}

func (j *waiter) leave() {
	j.h.mu.Lock()
	defer j.h.mu.Unlock()
	if j.w.waiters--; j.w.waiters == 0 && j.h.watches[j.id] == j.w {
		delete(j.h.watches, j.id)
	}
}

// state is what is known of the session by now. That a session is gone was seen by a look
// that began before the last waiters joined, or is about one that was there before: for
// those the session is looked at again.
func (j *waiter) state() watch {
	j.h.mu.Lock()
	defer j.h.mu.Unlock()
	if j.w.err != nil && j.place > j.w.toldTo {
		j.w.waiters-- // of a watch that has ended
		j.joinLocked()
	}
	return *j.w
}

// knows tells whether the session has an event past a seq. What was found before this waiter
// joined does not count: since then the id may have been used again.
func (j *waiter) knows(now *watch, after hansard.Seq) bool {
	return now.last > after && j.place <= now.lastTo
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
		w.last, w.lastTo = last, w.joined
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

// look is one look at a session: of which watch, how many had joined it when the look began,
// and what was found.
type look struct {
	w      *watch
	joined int
	head   *head
	turn   turnState
}

func (h *hub) lookAt(ctx context.Context, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	looks := h.beginLook(ids)
	ctx, cancel := context.WithTimeout(ctx, statementPatience)
	defer cancel()
	rows, err := h.s.pool.Query(ctx, lookAtHeads, ids)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		var last int64
		var turn turnState
		f := new(head)
		if err := rows.Scan(&id, &last, &f.deleted, &turn.current, &turn.newest, &f.created); err != nil {
			return err
		}
		f.last = hansard.Seq(last)
		if l := looks[hansard.SessionID(id)]; l != nil {
			l.head, l.turn = f, turn
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	h.endLook(looks)
	return nil
}

func (h *hub) beginLook(ids []string) map[hansard.SessionID]*look {
	h.mu.Lock()
	defer h.mu.Unlock()
	looks := make(map[hansard.SessionID]*look, len(ids))
	for _, id := range ids {
		if w := h.watches[hansard.SessionID(id)]; w != nil {
			looks[hansard.SessionID(id)] = &look{w: w, joined: w.joined}
		}
	}
	return looks
}

// endLook tells those who wait what was found.
func (h *hub) endLook(looks map[hansard.SessionID]*look) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.looks++
	for id, l := range looks {
		w := l.w
		if h.watches[id] != w {
			continue // who watches it now is looked for anew
		}
		toldTo := l.joined
		err := l.head.find(id)
		if err == nil && !w.created.IsZero() && !w.created.Equal(l.head.created) {
			err = fmt.Errorf("%w: %s", hansard.ErrDeleted, id) // it is another one of this id
			toldTo = w.known                                   // who joined later may mean this one
		}
		if err != nil {
			h.endLocked(id, w, err, toldTo)
			continue
		}
		w.created, w.known = l.head.created, l.joined
		w.last, w.lastTo, w.turn = max(w.last, l.head.last), max(w.lastTo, l.joined), l.turn
		w.looks = h.looks
		w.wake()
	}
}

// endLocked tells the first who joined that there is nothing to wait for. Whoever came
// later begins anew: the session may be made meanwhile.
func (h *hub) endLocked(id hansard.SessionID, w *watch, err error, toldTo int) {
	delete(h.watches, id)
	w.err, w.toldTo = err, toldTo
	w.wake()
}

// fail tells all who wait that the database is gone.
func (h *hub) fail(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, w := range h.watches {
		h.endLocked(id, w, err, w.joined)
	}
}
