package client

import (
	"context"
	"errors"
	"net/http"
	"time"

	"hansard"
	"hansard/internal/wire"
)

// Acquire implements [hansard.Store]. The place in the queue is the connection:
// when that is lost it is taken again at the end.
func (s *Store) Acquire(ctx context.Context, id hansard.SessionID, c hansard.Claim) (hansard.Turn, error) {
	leave, err := s.enter(ctx, hansard.CheckID(id), hansard.CheckClaim(&c))
	if err != nil {
		return hansard.Turn{}, err
	}
	defer leave()
	asking, cancel := s.until(ctx)
	defer cancel()
	body := wire.Marshal(struct {
		Wait      int64  `json:"wait_ms"`
		TTL       int64  `json:"ttl_ms"`
		MaxHold   int64  `json:"max_hold_ms"`
		Exclusive bool   `json:"exclusive"`
		Label     string `json:"label"`
		Steal     string `json:"steal"`
	}{waitFor(c.Wait), c.TTL.Milliseconds(), c.MaxHold.Milliseconds(), c.Exclusive, c.Label, c.Steal})
	var t hansard.Turn
	uncertain, err := s.answer(asking, &request{method: http.MethodPost, path: sessionPath(id, "/turn"), body: body}, &t)
	if err != nil {
		// A server whose client is gone gives back what it was granted.
		if ended := s.ended(ctx, err); ended != err || ctx.Err() != nil {
			return hansard.Turn{}, ended
		}
		return hansard.Turn{}, open(uncertain, err)
	}
	return t, nil
}

// waitFor is a wait in milliseconds: none, a bit, or -1 for as long as it takes.
func waitFor(wait time.Duration) int64 {
	if wait == hansard.Forever {
		return -1
	}
	return int64((wait + time.Millisecond - 1) / time.Millisecond)
}

func grantBody(g hansard.Grant) []byte {
	return wire.Marshal(map[string]hansard.Grant{"grant": g})
}

// Renew implements [hansard.Store].
func (s *Store) Renew(ctx context.Context, id hansard.SessionID, g hansard.Grant) error {
	leave, err := s.enter(ctx, hansard.CheckID(id), hansard.CheckGrant(g))
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
	leave, err := s.enter(ctx, hansard.CheckID(id), hansard.CheckGrant(g))
	if err != nil {
		return err
	}
	defer leave()
	uncertain, err := s.answer(ctx, &request{method: http.MethodDelete, path: sessionPath(id, "/turn"), body: grantBody(g)}, nil)
	if uncertain && errors.Is(err, hansard.ErrFenced) {
		return nil // by the try whose answer was lost, or by somebody who took it: it is given up
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
