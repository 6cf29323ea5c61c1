package filestore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"hansard"
	"hansard/engine"
	"hansard/filestore/internal/journal"
	"hansard/filestore/internal/peers"
	"hansard/filestore/internal/sessionlog"
)

// The calls about turns. Who holds a turn is in the session's log and nowhere else;
// whether the holder is alive is in the instance file of the process that keeps its
// lease:
//
//	turn.go        the calls; looking without a lock; waiting
//	courtesy.go    the order in which claimants wait
//	calling.go     a release wakes the next claimant
//	turnplan.go    the decision, under write.lock, as lines of the log
//	peers/lease    the leases this process keeps; peers/holder: looking at others'
//
// Looking at a turn takes no lock and decides nothing. It only tells whether a claim is
// worth a commit; the claim is decided on the state of the log under write.lock, so two
// claimants that see the same dead holder can't both win (failures 1 to 3, F3).
//
// No file exists just because a turn is held, so none can be left behind, swept or
// reclaimed too early (failures 3 and 18). A turn whose process is dead, or does not list
// its grant, is free without any cleanup (T7).

// Acquire implements [hansard.Store]. When it returns nil the grant is durable and its
// lease is running. HeldError: it is held, after Wait at the latest; then nothing was
// written. ErrUnknown, or the end of ctx during the commit: a grant may be in the log,
// but as an abandoned one, which blocks nobody (abandon).
func (s *Store) Acquire(ctx context.Context, id hansard.SessionID, c hansard.Claim) (hansard.Turn, error) {
	if err := s.usable(ctx, id); err != nil {
		return hansard.Turn{}, err
	}
	if err := engine.CheckClaim(&c); err != nil {
		return hansard.Turn{}, err
	}
	w := &claimant{id: id, name: sessionlog.EncodeName(id), claim: &c, began: s.cfg.mono()}
	if c.Steal != "" {
		return s.turns.claim(ctx, w) // an operator's decision: it does not wait
	}
	s.turns.lineUp(w)
	got := false
	defer func() { s.turns.stepOut(w, got) }()
	for {
		t, held, err := s.turns.tryTurn(ctx, w)
		if err != nil || t.Grant != "" {
			got = err == nil
			return t, err
		}
		// Only if it is held: a turn that is left to an older waiter is free, not held.
		if held != nil && s.cfg.mono()-w.began >= c.Wait {
			return hansard.Turn{}, &hansard.HeldError{Session: id, Turn: *held}
		}
		if err := s.turns.await(ctx, w, held); err != nil {
			return hansard.Turn{}, err
		}
	}
}

// tryTurn looks at the turn and claims it if it is free, or its holder is gone, and this
// claimant is next. Otherwise held is the turn that is held, or nil if it is free and
// another claimant goes first. An error while checking the holder is an error, not a dead
// holder: EMFILE must not rob a living one (failures 14 and 17).
func (ts *turns) tryTurn(ctx context.Context, w *claimant) (granted hansard.Turn, held *hansard.Turn, err error) {
	if w.called {
		w.called = false
		ts.calls.heeded.Add(1)
		// Before the commit: the caller sees that this one is awake.
		ts.withdraw(w)
		return ts.claimNext(ctx, w)
	}
	w.woken, w.looked = nil, ts.cfg.mono()
	if w.point != nil {
		w.woken = ts.waiters.channel(w.point) // before the look, or a wake between is lost
	}
	t, seen, err := ts.reader.lookTurn(ctx, w.id, w.name)
	if err != nil && ts.committer.checkpoints.mended(ctx, err, w.name) {
		t, seen, err = ts.reader.lookTurn(ctx, w.id, w.name)
	}
	if err != nil {
		return granted, nil, err
	}
	if t.Held == nil || seen.State != peers.HolderLives {
		if ts.othersFirst(w) {
			return granted, nil, nil
		}
		return ts.claimNext(ctx, w)
	}
	w.courteous = 0
	described := *t.Held
	described.Renewed = seen.Renewed
	return granted, &described, nil
}

// claimNext claims the turn for a claimant that is next.
func (ts *turns) claimNext(ctx context.Context, w *claimant) (granted hansard.Turn, held *hansard.Turn, err error) {
	granted, err = ts.claim(ctx, w)
	var heldErr *hansard.HeldError
	if errors.As(err, &heldErr) {
		// Another process was faster: the commit decides. Wait as before.
		w.courteous, w.poll, w.next = 0, 0, false
		return hansard.Turn{}, &heldErr.Turn, nil
	}
	return granted, nil, err
}

// claim takes the turn through the commit, where plan.acquire decides. HeldError means
// that nothing was written. After any other error the grant is abandoned.
func (ts *turns) claim(ctx context.Context, w *claimant) (hansard.Turn, error) {
	r := &request{op: opAcquire, id: w.id, name: w.name, claim: w.claim}
	// Only for its size: the longest possible record.
	record := engine.NewTurnRecord(w.claim, engine.NextGrant("", 0), hansard.TurnStolen)
	r.size = turnSize(r) + len(record.Event().Data)
	if _, err := ts.committer.carryOut(ctx, r); err != nil {
		ts.abandon(r)
		return hansard.Turn{}, err
	}
	return r.granted, nil
}

// abandon gives up the lease of a claim whose claimant gets an error. The grant may be in
// the log, or get there later: the commit can't be recalled. Without its nonce in the
// table of this process its holder counts as dead, and the next claimant takes the turn
// at once instead of waiting for a holder that does not know it holds anything
// (TestAcquireGivenUpInTheCommit).
func (ts *turns) abandon(r *request) {
	if r.answered {
		ts.leases.GiveUp(r.name, r.granted.Grant)
		return
	}
	// In the commit: granted belongs to the leader until it answers. A request that was
	// withdrawn from the queue has no lease.
	if r.fate.Taken() {
		go func() {
			<-r.done // however slow the disk
			ts.leases.GiveUp(r.name, r.granted.Grant)
		}()
	}
}

// turnSize is an upper bound of what a line about the turn adds to the ring, without the
// parts specific to a claim or a move. See request.size for why it must not be too small.
func turnSize(r *request) int {
	return journal.EntryHeader + 2*len(r.name) + 3*sessionlog.StampWidth + endedWidth + byWidth(hansard.MaxNameBytes)
}

// Renew implements [hansard.Store]. If this process keeps the grant, renewing is one
// small write to its instance file: no commit, no sync, no line in the log. A crash loses
// the table together with the process that it belongs to.
//
// If another process keeps it (a client whose server died continues through another one)
// the grant moves to this process, which is a line in the log.
//
// ErrFenced, ErrDeleted and ErrNotFound are final: the turn is lost, and the lease is
// dropped. After any other error the holder may renew again.
func (s *Store) Renew(ctx context.Context, id hansard.SessionID, g hansard.Grant) error {
	if err := s.usable(ctx, id); err != nil {
		return err
	}
	if err := engine.CheckGrant(g); err != nil {
		return err
	}
	name := sessionlog.EncodeName(id)
	t, err := s.reader.readTurn(ctx, id)
	if err != nil && s.checkpoints.mended(ctx, err, name) {
		t, err = s.reader.readTurn(ctx, id)
	}
	if err == nil {
		err = engine.Fence(id, t.Held, g, false)
	}
	if errors.Is(err, hansard.ErrFenced) || errors.Is(err, hansard.ErrDeleted) || errors.Is(err, hansard.ErrNotFound) {
		s.leases.GiveUp(name, g)
	}
	if err != nil {
		return err
	}
	// Keeps also compares the inode of our instance file: if it was removed, others take
	// this process for dead, and counting up in a file that nobody can find is useless.
	// The commit below creates it anew.
	if ours, err := s.leases.Keeps(t.Instance); err != nil {
		return err
	} else if ours {
		if ok, err := s.leases.RenewOwn(name, id, g); ok {
			return err
		}
	}
	r := &request{op: opRenew, id: id, name: name, turn: g}
	r.size = turnSize(r) + len(t.Held.Holder.String())*6 + len(t.Held.Reason)*6
	if _, err := s.committer.submit(ctx, r); err != nil {
		// If the outcome is unknown the lease stays: the move may be in the log, and
		// without a lease here a living holder that is about to renew again would be
		// taken for dead (TestTurnRenewalInDoubt).
		if errors.Is(err, hansard.ErrFenced) {
			s.leases.GiveUp(name, g)
		}
		return err
	}
	return nil
}

// Release implements [hansard.Store]. It releases exactly the given grant, by a line in
// the log that is written only if that grant is the current one: releasing late, or
// twice, can't end the next holder's turn (failures F2 and 9).
func (s *Store) Release(ctx context.Context, id hansard.SessionID, g hansard.Grant) error {
	if err := s.usable(ctx, id); err != nil {
		return err
	}
	if err := engine.CheckGrant(g); err != nil {
		return err
	}
	r := releaseOf(id, g)
	_, err := s.committer.carryOut(ctx, r)
	// The lease is given up after the line: without it the holder looks dead, and a
	// claimant could take the turn while writes of this holder are still under way
	// (failure 19). If it is unknown whether the line is there, giving up the lease frees
	// the turn.
	if err == nil || errors.Is(err, hansard.ErrUnknown) || errors.Is(err, hansard.ErrFenced) {
		s.leases.GiveUp(r.name, g)
	}
	return err
}

// releaseOf is the request to release a grant.
func releaseOf(id hansard.SessionID, g hansard.Grant) *request {
	r := &request{op: opRelease, id: id, name: sessionlog.EncodeName(id), turn: g}
	r.size = turnSize(r)
	return r
}

// releaseAll releases the turns that end with this process, in one group, for Close.
// Remote turns stay: their holders are clients, which may continue through another
// process (T7). So do turns that have moved to another process by now (ifKept,
// TestTurnMovedIsNotReleased). It waits no longer than patience; a turn that could not be
// released ends with the process anyway, when the kernel drops the lock on its instance
// file.
func (ts *turns) releaseAll(patience time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var all []*request
	for _, g := range ts.leases.Own() {
		if id, ok := sessionlog.DecodeName(g.Name); ok {
			r := releaseOf(id, g.Grant)
			r.ifKept = true
			all = append(all, r)
		}
	}
	if len(all) > 0 {
		ts.committer.submitAll(ctx, all)
	}
	ts.leases.StopAll()
}

// Turn implements [hansard.Store]: the turn that is held, nil if there is none or its
// holder is dead. A silent or overdue holder still holds it until another one takes it.
// It takes no lock and changes nothing (failure 50).
func (s *Store) Turn(ctx context.Context, id hansard.SessionID) (*hansard.Turn, error) {
	t, seen, err := s.reader.lookTurn(ctx, id, sessionlog.EncodeName(id))
	if err != nil || t.Held == nil || seen.State == peers.HolderDead {
		return nil, err
	}
	described := *t.Held
	described.Renewed = seen.Renewed
	return &described, nil
}

// lookTurn is a session's turn and the state of its holder, without any lock. Both may be
// stale when it returns.
func (rd *reader) lookTurn(ctx context.Context, id hansard.SessionID, name string) (*sessionlog.TurnState, peers.Sighting, error) {
	t, err := rd.readTurn(ctx, id)
	if err != nil || t.Held == nil {
		return t, peers.Sighting{}, err
	}
	seen, err := rd.leases.Look(name, t.Held, t.Instance)
	return t, seen, err
}

// readTurn reads a session's turn from its log: the last line says where the newest line
// about the turn is, so two lines are read, however long the log (T5). For a damaged log
// it is an error: the lost lines may have given the turn to another holder. A
// setAsideError can be mended, and the caller may try again.
func (rd *reader) readTurn(ctx context.Context, id hansard.SessionID) (*sessionlog.TurnState, error) {
	l, err := rd.openLogForRead(ctx, id)
	if err != nil {
		return nil, err
	}
	defer l.f.Close()
	if l.damage != nil && l.aside {
		return nil, &setAsideError{l.damage}
	}
	if l.damage != nil {
		return nil, l.damage
	}
	t, err := turnIn(l, l.tail)
	if err != nil {
		return nil, fmt.Errorf("session %s: %w", id, err)
	}
	return t, nil
}

// turnIn is the state of the turn after the line at tail.
func turnIn(l *openedLog, tail *sessionlog.Tail) (*sessionlog.TurnState, error) {
	at := tail.Last.NewestTurn(tail.LastAt)
	if at == 0 {
		return &sessionlog.TurnState{}, nil
	}
	about := tail.Last
	if at != tail.LastAt {
		var err error
		if about, err = sessionlog.DecodeAt(l.f, at); err != nil {
			return nil, err
		}
	}
	t, err := about.TurnState()
	if err != nil {
		return nil, sessionlog.DamagedAt("", at, "%v", err)
	}
	return t, nil
}
