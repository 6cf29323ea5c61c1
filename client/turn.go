package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"

	"hansard"
	"hansard/engine"
	"hansard/internal/wire"
)

// Acquire implements [hansard.Store]. The place in the queue belongs to the
// connection: if that is lost, the claim queues again at the end.
func (s *Store) Acquire(ctx context.Context, id hansard.SessionID, c hansard.Claim) (hansard.Turn, error) {
	leave, err := s.enter(ctx, hansard.CheckID(id), engine.CheckClaim(&c))
	if err != nil {
		return hansard.Turn{}, err
	}
	defer leave()
	asking, cancel := s.until(ctx)
	defer cancel()
	name, began := uuid.NewString(), time.Now()
	body := func() []byte {
		left := c
		if c.Wait > 0 && c.Wait != hansard.Forever { // a claim that is sent again has waited before
			left.Wait = max(0, c.Wait-time.Since(began))
		}
		return wire.Marshal(wire.NewClaim(left, name))
	}
	var t hansard.Turn
	uncertain, err := s.answer(asking, &request{method: http.MethodPost, path: sessionPath(id, "/turn"), fresh: body}, &t)
	switch {
	case err == nil:
		return t, nil
	case asking.Err() != nil:
		err = s.ended(ctx, err)
		if held := s.withdraw(id, name); held != nil && ctx.Err() != nil {
			err = fmt.Errorf("%w: %w", err, &hansard.HeldError{Session: id, Turn: *held})
		}
		return hansard.Turn{}, err
	}
	return hansard.Turn{}, open(uncertain, err)
}

// withdrawMax is how long giving up a claim may take. If the server does not answer
// in time, a grant is left to the claim's TTL.
const withdrawMax = 2 * time.Second

// withdraw gives up a claim, and a turn it may have been granted at the same moment,
// and returns who holds the turn.
func (s *Store) withdraw(id hansard.SessionID, name string) (held *hansard.Turn) {
	ctx, cancel := context.WithTimeout(context.Background(), withdrawMax)
	defer cancel()
	var found struct{ Turn *hansard.Turn }
	body := wire.Marshal(map[string]string{"claim": name})
	if _, err := s.answer(ctx, &request{method: http.MethodDelete, path: sessionPath(id, "/turn"), body: body}, &found); err != nil {
		return nil
	}
	return found.Turn
}

func grantBody(g hansard.Grant) []byte {
	return wire.Marshal(map[string]hansard.Grant{"grant": g})
}

// Renew implements [hansard.Store].
func (s *Store) Renew(ctx context.Context, id hansard.SessionID, g hansard.Grant) error {
	leave, err := s.enter(ctx, hansard.CheckID(id), engine.CheckGrant(g))
	if err != nil {
		return err
	}
	defer leave()
	asking, cancel := s.until(ctx)
	defer cancel()
	_, err = s.answer(asking, &request{method: http.MethodPut, path: sessionPath(id, "/turn"), body: grantBody(g)}, nil)
	return s.ended(ctx, err)
}

// Release implements [hansard.Store].
func (s *Store) Release(ctx context.Context, id hansard.SessionID, g hansard.Grant) error {
	leave, err := s.enter(ctx, hansard.CheckID(id), engine.CheckGrant(g))
	if err != nil {
		return err
	}
	defer leave()
	uncertain, err := s.answer(ctx, &request{method: http.MethodDelete, path: sessionPath(id, "/turn"), body: grantBody(g)}, nil)
	if uncertain && errors.Is(err, hansard.ErrFenced) {
		return nil // it is no longer held: released by the attempt whose response was lost, or taken
	}
	return open(uncertain, err)
}

// Turn implements [hansard.Store].
func (s *Store) Turn(ctx context.Context, id hansard.SessionID) (*hansard.Turn, error) {
	leave, err := s.enter(ctx, hansard.CheckID(id))
	if err != nil {
		return nil, err
	}
	defer leave()
	asking, cancel := s.until(ctx)
	defer cancel()
	var found struct{ Turn *hansard.Turn }
	_, err = s.answer(asking, &request{method: http.MethodGet, path: sessionPath(id, "/turn")}, &found)
	return found.Turn, s.ended(ctx, err)
}
