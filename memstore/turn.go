package memstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"hansard"
	"hansard/engine"
)

// turnState is a session's turn. Guarded by Store.mu.
type turnState struct {
	turn    *hansard.Turn // nil if nobody holds it
	newest  hansard.Grant // the newest grant, whether it is held or not
	began   time.Time     // began and renewed are on this process's monotonic clock
	renewed time.Time
	queue   []*waiter // FIFO
}

// waiter is one Acquire that waits.
type waiter struct {
	claim   hansard.Claim
	granted chan hansard.Turn // buffered: the call that frees the turn grants it
	session *session          // the one whose queue it is in
}

// Acquire implements [hansard.Store].
func (s *Store) Acquire(ctx context.Context, id hansard.SessionID, c hansard.Claim) (hansard.Turn, error) {
	w := &waiter{claim: c, granted: make(chan hansard.Turn, 1)}
	if err := s.claim(ctx, id, w); err != nil {
		return hansard.Turn{}, err
	}
	enough := make(<-chan time.Time)
	if w.claim.Wait < hansard.Forever {
		enough = time.After(w.claim.Wait)
	}
	for {
		changed, expiry, err := s.look(id, w)
		if err != nil {
			return s.leave(id, w, err)
		}
		select {
		case t := <-w.granted:
			return t, nil
		case <-changed:
		case <-expiry:
		case <-s.done:
		case <-enough:
			return s.leave(id, w, nil)
		case <-ctx.Done():
			return s.leave(id, w, ctx.Err())
		}
	}
}

// claim adds a waiter to the queue and serves the queue; a claim that steals is granted at
// once. For a claim that does not wait and got nothing the error says who holds the turn.
func (s *Store) claim(ctx context.Context, id hansard.SessionID, w *waiter) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.checkLocked(ctx, id, engine.CheckClaim(&w.claim)); err != nil {
		return err
	}
	ses, err := s.findLocked(id)
	if err != nil {
		return err
	}
	if w.claim.Steal != "" {
		w.session = ses
		ses.grant(w, hansard.TurnStolen)
		return nil
	}
	w.session = ses
	ses.queue = append(ses.queue, w)
	ses.serve()
	if w.claim.Wait == 0 && len(w.granted) == 0 {
		ses.drop(w)
		return &hansard.HeldError{Session: id, Turn: ses.described()}
	}
	return nil
}

// look serves the queue and returns what a waiter should wait for next.
func (s *Store) look(id hansard.SessionID, w *waiter) (changed <-chan struct{}, expiry <-chan time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, hansard.ErrClosed
	}
	ses, err := s.findLocked(id)
	if err == nil && ses != w.session { // a new session with this id
		err = fmt.Errorf("%w: %s", hansard.ErrDeleted, id)
	}
	if err != nil {
		return nil, nil, err
	}
	ses.serve()
	if ses.turn == nil {
		return ses.changed, nil, nil // the queue is empty: w has been granted the turn
	}
	at := ses.renewed.Add(ses.turn.TTL)
	if end := ses.began.Add(ses.turn.MaxHold); ses.turn.MaxHold > 0 && end.Before(at) {
		at = end
	}
	return ses.changed, time.After(time.Until(at)), nil
}

// leave removes a waiter from the queue. A waiter that was served at the last moment
// returns its grant: nobody else knows of it.
func (s *Store) leave(id hansard.SessionID, w *waiter, cause error) (hansard.Turn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ses := w.session
	ses.drop(w)
	select {
	case t := <-w.granted:
		return t, nil
	default:
	}
	held := &hansard.HeldError{Session: id}
	if ses.turn != nil {
		held.Turn = ses.described()
	}
	switch {
	case cause == nil:
		return hansard.Turn{}, held
	case ses.turn == nil || errors.Is(cause, hansard.ErrClosed) || ses.deleted:
		return hansard.Turn{}, cause
	}
	return hansard.Turn{}, fmt.Errorf("%w: %w", cause, held)
}

func (ses *session) drop(w *waiter) {
	ses.queue = slices.DeleteFunc(ses.queue, func(q *waiter) bool { return q == w })
}

// serve grants the turn to the first in the queue, if it is free.
func (ses *session) serve() {
	if len(ses.queue) == 0 {
		return
	}
	why := ""
	if ses.turn != nil {
		if why = ses.lost(); why == "" {
			return
		}
	}
	w := ses.queue[0]
	ses.queue = ses.queue[1:]
	ses.grant(w, why)
}

// lost returns why the turn may be taken from its holder; empty if it may not.
func (ses *session) lost() string {
	switch {
	case time.Since(ses.renewed) >= ses.turn.TTL:
		return "silent"
	case ses.turn.MaxHold > 0 && time.Since(ses.began) >= ses.turn.MaxHold:
		return "overdue"
	}
	return ""
}

// fence decides whether the turn admits a write. If an exclusive turn would refuse it, but
// its holder is gone, the turn has to end first; gone is the reason.
func (ses *session) fence(id hansard.SessionID, under hansard.Grant, inboxOnly bool) (gone string, err error) {
	err = engine.Fence(id, ses.turn, under, inboxOnly)
	if errors.Is(err, hansard.ErrHeld) {
		if gone = ses.lost(); gone != "" {
			return gone, nil
		}
	}
	return "", err
}

// end records that the holder of the turn is gone.
func (ses *session) end(why, by string) {
	record := hansard.TurnRecord{Change: hansard.TurnEnded, Why: why, By: by}
	ses.add([]hansard.Event{record.Event()}, ses.turn.Grant)
	ses.turn = nil
}

// grant gives the turn to a waiter, whoever holds it.
func (ses *session) grant(w *waiter, why string) {
	var from hansard.Grant
	if ses.turn != nil {
		from = ses.turn.Grant
	}
	record := engine.NewTurnRecord(&w.claim, from, why)
	g := engine.NextGrant(ses.newest, rand.Uint64())
	ses.add([]hansard.Event{record.Event()}, g)
	event := &ses.events[len(ses.events)-1]
	t := record.Turn(g, event.Seq, event.Time)
	ses.turn, ses.newest = &t, g
	ses.began = time.Now()
	ses.renewed = ses.began
	ses.wake()
	w.granted <- ses.described()
}

// described is the current turn, with its last sign of life.
func (ses *session) described() hansard.Turn {
	t := *ses.turn
	t.Renewed = ses.renewed.UTC().Truncate(time.Microsecond)
	return t
}

// holding returns the session, if the grant is its current one.
func (s *Store) holding(ctx context.Context, id hansard.SessionID, g hansard.Grant) (*session, error) {
	if err := s.checkLocked(ctx, id, engine.CheckGrant(g)); err != nil {
		return nil, err
	}
	ses, err := s.findLocked(id)
	if err != nil {
		return nil, err
	}
	return ses, engine.Fence(id, ses.turn, g, false)
}

// Renew implements [hansard.Store].
func (s *Store) Renew(ctx context.Context, id hansard.SessionID, g hansard.Grant) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	ses, err := s.holding(ctx, id, g)
	if err != nil {
		return err
	}
	if t := ses.turn; t.MaxHold > 0 && time.Since(ses.began) >= t.MaxHold {
		return fmt.Errorf("%w: session %s, grant %s: it was held for its whole %v", hansard.ErrFenced, id, g, t.MaxHold)
	}
	ses.renewed = time.Now()
	return nil
}

// Release implements [hansard.Store].
func (s *Store) Release(ctx context.Context, id hansard.SessionID, g hansard.Grant) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	ses, err := s.holding(ctx, id, g)
	if err != nil {
		return err
	}
	record := hansard.TurnRecord{Change: hansard.TurnReleased, By: ses.turn.By}
	ses.add([]hansard.Event{record.Event()}, g)
	ses.turn = nil
	ses.serve()
	ses.wake()
	return nil
}

// Turn implements [hansard.Store].
func (s *Store) Turn(ctx context.Context, id hansard.SessionID) (*hansard.Turn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.checkLocked(ctx, id); err != nil {
		return nil, err
	}
	ses, err := s.findLocked(id)
	if err != nil || ses.turn == nil {
		return nil, err
	}
	t := ses.described()
	return &t, nil
}
