package filestore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"hansard"
)

// A turn is kept in the session's log, and its holder alive by the process that
// has its lease: see turnplan.go for the first and lease.go for the second. Here
// is the way to it, and the waiting.

// Acquire implements [hansard.Store].
func (s *Store) Acquire(ctx context.Context, id hansard.SessionID, c hansard.Claim) (hansard.Turn, error) {
	if err := s.usable(ctx, id); err != nil {
		return hansard.Turn{}, err
	}
	if err := hansard.CheckClaim(&c); err != nil {
		return hansard.Turn{}, err
	}
	w := &claimant{id: id, name: encodeName(id), claim: &c, began: s.cfg.mono()}
	if c.Steal != "" {
		return s.claim(ctx, w)
	}
	s.lineUp(w)
	defer s.stepOut(w)
	for {
		t, held, err := s.tryTurn(ctx, w)
		if err != nil || t.Grant != "" {
			return t, err
		}
		if held != nil && s.cfg.mono()-w.began >= c.Wait {
			return hansard.Turn{}, &hansard.HeldError{Session: id, Turn: *held}
		}
		if err := s.await(ctx, w, held); err != nil {
			return hansard.Turn{}, err
		}
	}
}

// tryTurn looks at the turn and claims it if it is to be had and this claimant is
// next. Else held is who has it, or nil when it is free for somebody else.
func (s *Store) tryTurn(ctx context.Context, w *claimant) (granted hansard.Turn, held *hansard.Turn, err error) {
	w.woken, w.looked = nil, s.cfg.mono()
	if w.point != nil {
		w.woken = s.waiters.channel(w.point) // before the look, or a wake between is lost
	}
	t, seen, err := s.lookTurn(ctx, w.id, w.name)
	if err != nil {
		return granted, nil, err
	}
	if t.held == nil || seen.state != holderLives {
		if s.othersFirst(w) {
			return granted, nil, nil
		}
		granted, err = s.claim(ctx, w)
		var heldErr *hansard.HeldError
		if errors.As(err, &heldErr) {
			w.courteous, w.poll = 0, 0
			return hansard.Turn{}, &heldErr.Turn, nil
		}
		return granted, nil, err
	}
	w.courteous = 0
	described := *t.held
	described.Renewed = seen.renewed
	return granted, &described, nil
}

// claim takes the turn through the commit.
func (s *Store) claim(ctx context.Context, w *claimant) (hansard.Turn, error) {
	r := &request{op: opAcquire, id: w.id, name: w.name, claim: w.claim}
	record := hansard.NewTurnRecord(w.claim, hansard.NextGrant("", 0), hansard.TurnStolen) // as long as it can get
	r.size = turnSize(r) + len(record.Event().Data)
	if err := s.prepare(r); err != nil {
		return hansard.Turn{}, err
	}
	if _, err := s.submit(ctx, r); err != nil {
		s.abandon(r)
		return hansard.Turn{}, err
	}
	if s.planted(plantLeaseLate) {
		return r.granted, s.keepAlive(w.name, &r.granted, 0)
	}
	return r.granted, nil
}

// abandon sees to it that a grant whose claimant did not wait for it is in nobody's
// way: if it is in the log, or gets there, it is so as one given up.
func (s *Store) abandon(r *request) {
	select {
	case <-r.done:
		s.giveUp(r.name, r.granted.Grant)
		return
	default:
	}
	if r.state.Load() == taken {
		go func() {
			<-r.done // however slow the disk
			s.giveUp(r.name, r.granted.Grant)
		}()
	}
}

// turnSize is more than a line about the turn takes, but for what a claim brings.
func turnSize(r *request) int { return entryHeader + 2*len(r.name) + 3*stampWidth + endedWidth }

// Renew implements [hansard.Store].
func (s *Store) Renew(ctx context.Context, id hansard.SessionID, g hansard.Grant) error {
	if err := s.usable(ctx, id); err != nil {
		return err
	}
	if err := hansard.CheckGrant(g); err != nil {
		return err
	}
	name := encodeName(id)
	t, err := s.readTurn(ctx, id)
	if err == nil {
		err = hansard.Fence(id, t.held, g, false)
	}
	if errors.Is(err, hansard.ErrFenced) || errors.Is(err, hansard.ErrDeleted) || errors.Is(err, hansard.ErrNotFound) {
		s.giveUp(name, g)
	}
	if err != nil {
		return err
	}
	if ours, err := s.keeps(t.instance); err != nil {
		return err
	} else if ours {
		if ok, err := s.renewOwn(name, id, g); ok {
			return err
		}
	}
	r := &request{op: opRenew, id: id, name: name, turn: g}
	r.size = turnSize(r) + len(t.held.Holder.String())*6 + len(t.held.Reason)*6
	if _, err := s.submit(ctx, r); err != nil {
		// Where the outcome is open the lease stays: without it a holder that
		// lives, and asks again, would be taken for dead meanwhile.
		if errors.Is(err, hansard.ErrFenced) {
			s.giveUp(name, g)
		}
		return err
	}
	return nil
}

// Release implements [hansard.Store].
func (s *Store) Release(ctx context.Context, id hansard.SessionID, g hansard.Grant) error {
	if err := s.usable(ctx, id); err != nil {
		return err
	}
	if err := hansard.CheckGrant(g); err != nil {
		return err
	}
	r := releaseOf(id, g)
	if err := s.prepare(r); err != nil {
		return err
	}
	_, err := s.submit(ctx, r)
	if err == nil || errors.Is(err, hansard.ErrUnknown) || errors.Is(err, hansard.ErrFenced) {
		s.giveUp(r.name, g)
	}
	return err
}

func releaseOf(id hansard.SessionID, g hansard.Grant) *request {
	r := &request{op: opRelease, id: id, name: encodeName(id), turn: g}
	r.size = turnSize(r)
	return r
}

// releaseAll gives up the turns this process holds itself, in one group, before it
// goes. Those it keeps for others they may go on with through another process; those
// that another process keeps by now are not its own any more.
// What can't be recorded ends all the same: with the process.
func (s *Store) releaseAll(patience time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var all []*request
	for _, g := range s.leases.own() {
		if id, ok := decodeName(g.name); ok {
			r := releaseOf(id, g.grant)
			r.ifKept = true
			all = append(all, r)
		}
	}
	if len(all) > 0 {
		s.submitAll(ctx, all)
	}
	s.leases.stopAll()
}

// Turn implements [hansard.Store].
func (s *Store) Turn(ctx context.Context, id hansard.SessionID) (*hansard.Turn, error) {
	t, seen, err := s.lookTurn(ctx, id, encodeName(id))
	if err != nil || t.held == nil || seen.state == holderDead {
		return nil, err
	}
	described := *t.held
	described.Renewed = seen.renewed
	return &described, nil
}

// lookTurn is a session's turn and what became of its holder, without any lock.
func (s *Store) lookTurn(ctx context.Context, id hansard.SessionID, name string) (*turnState, sighting, error) {
	t, err := s.readTurn(ctx, id)
	if err != nil || t.held == nil {
		return t, sighting{}, err
	}
	seen, err := s.look(name, t)
	return t, seen, err
}

// readTurn reads a session's turn from its log: the last line and the newest one
// about the turn.
func (s *Store) readTurn(ctx context.Context, id hansard.SessionID) (*turnState, error) {
	l, err := s.openLogForRead(ctx, id)
	if err != nil {
		return nil, err
	}
	defer l.f.Close()
	if l.damage != nil {
		return nil, l.damage
	}
	t, err := turnIn(l, l.tail)
	if err != nil {
		return nil, fmt.Errorf("session %s: %w", id, err)
	}
	return t, nil
}

// turnIn is the turn as a log tells at its end.
func turnIn(l *openedLog, tail *logTail) (*turnState, error) {
	at := tail.last.turnAt(tail.lastAt)
	if at == 0 {
		return &turnState{}, nil
	}
	about := tail.last
	if at != tail.lastAt {
		var err error
		if about, err = decodeLineAt(l.f, at); err != nil {
			return nil, err
		}
	}
	t, err := about.turnState()
	if err != nil {
		return nil, damagedAt("", at, "%v", err)
	}
	return t, nil
}
