package client

import (
	"context"
	"errors"
	"net/http"

	"hansard"
	"hansard/engine"
	"hansard/internal/wire"
)

// Fork implements [hansard.Store]. A fork without an id gets one here, so that the request
// can be sent again and the fork is made once. With a token for sessions with a prefix the
// caller has to give an id with that prefix.
func (s *Store) Fork(ctx context.Context, id hansard.SessionID, f hansard.Fork) (hansard.Info, error) {
	own := f.As == ""
	leave, err := s.enter(ctx, hansard.CheckID(id), engine.CheckFork(&f))
	if err != nil {
		return hansard.Info{}, err
	}
	defer leave()
	body := wire.Marshal(struct {
		At hansard.Seq       `json:"at,omitempty"`
		As hansard.SessionID `json:"as"`
		hansard.Meta
	}{f.At, f.As, f.Meta})
	var made wire.Session
	uncertain, err := s.answer(ctx, &request{method: http.MethodPost, path: sessionPath(id, "/fork"), body: body}, &made)
	if uncertain && own && errors.Is(err, hansard.ErrExists) {
		// We chose the id: the attempt whose response was lost made it.
		_, err = s.answer(ctx, &request{method: http.MethodGet, path: sessionPath(f.As, "")}, &made)
	}
	if err != nil {
		// It may exist because an earlier attempt of ours made it.
		return hansard.Info{}, open(uncertain, err, hansard.ErrExists)
	}
	return made.Describe(), nil
}
