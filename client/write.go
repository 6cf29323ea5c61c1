package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/google/uuid"

	"hansard"
	"hansard/engine"
	"hansard/internal/wire"
)

// Create implements [hansard.Store].
func (s *Store) Create(ctx context.Context, id hansard.SessionID, m hansard.Meta) (hansard.Info, error) {
	leave, err := s.enter(ctx, hansard.CheckID(id), engine.CheckMeta(&m))
	if err != nil {
		return hansard.Info{}, err
	}
	defer leave()
	body := wire.Marshal(struct {
		ID hansard.SessionID `json:"id"`
		hansard.Meta
	}{id, m})
	var made wire.Session
	uncertain, err := s.answer(ctx, &request{method: http.MethodPost, path: "/v1/sessions", body: body}, &made)
	if err != nil {
		// It may exist because an earlier attempt of ours created it.
		return hansard.Info{}, open(uncertain, err, hansard.ErrExists)
	}
	return made.Describe(), nil
}

// open wraps ambiguous failures in ErrUnknown: those after which the request may have
// been, or may still be, executed. That is so whenever no response was seen, and for
// the given refusals of a second attempt, which say nothing about the first.
func open(uncertain bool, err error, refusals ...error) error {
	if !uncertain || errors.Is(err, hansard.ErrUnknown) {
		return err
	}
	var away *UnreachableError
	var p *wire.Problem
	unclear := errors.As(err, &away) || errors.As(err, &p) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
	for _, refusal := range refusals {
		unclear = unclear || errors.Is(err, refusal)
	}
	if !unclear {
		return err
	}
	return fmt.Errorf("%w: %w", hansard.ErrUnknown, err)
}

// Append implements [hansard.Store]. A batch without a key gets one here, so that it
// can be sent again and is stored once; events that are stored apart have ids for that.
func (s *Store) Append(ctx context.Context, id hansard.SessionID, b hansard.Batch) (hansard.Receipt, error) {
	leave, err := s.enter(ctx, hansard.CheckID(id), engine.CheckBatch(&b))
	if err != nil {
		return hansard.Receipt{}, err
	}
	defer leave()
	own := b.Key == "" && !b.Apart
	if own {
		b.Key = "auto-" + uuid.NewString()
	}
	var receipt hansard.Receipt
	q := &request{method: http.MethodPost, path: sessionPath(id, "/events"), body: wire.AppendBatch(nil, &b)}
	uncertain, err := s.answer(ctx, q, &receipt)
	if err != nil {
		refusals := []error{hansard.ErrHeld, hansard.ErrBusy, hansard.ErrNoSpace, hansard.ErrNotFound, hansard.ErrFailed}
		if b.Patch != nil && len(b.Patch.StateOps) > 0 {
			// They can't be applied to the current state. An earlier attempt that is still on
			// its way may find another state.
			refusals = append(refusals, hansard.ErrConflict, hansard.ErrInvalid)
		}
		return hansard.Receipt{}, open(uncertain, err, refusals...)
	}
	if own && receipt.First > 0 {
		receipt.Replayed = false // by our own key: the caller made only one append
	}
	return receipt, nil
}

// Redact implements [hansard.Store]. It is sent again if the response was lost: what is
// redacted already is a replay.
func (s *Store) Redact(ctx context.Context, id hansard.SessionID, r hansard.Redaction) (hansard.Receipt, error) {
	leave, err := s.enter(ctx, hansard.CheckID(id), engine.CheckRedaction(&r))
	if err != nil {
		return hansard.Receipt{}, err
	}
	defer leave()
	body := wire.Marshal(wire.Redaction{Seqs: r.Seqs, Reason: r.Reason, Turn: r.Turn})
	var receipt hansard.Receipt
	uncertain, err := s.answer(ctx, &request{method: http.MethodPost, path: sessionPath(id, "/redact"), body: body}, &receipt)
	if err != nil {
		return hansard.Receipt{}, open(uncertain, err, hansard.ErrHeld, hansard.ErrBusy, hansard.ErrNoSpace, hansard.ErrFailed)
	}
	return receipt, nil
}

// Delete implements [hansard.Store].
func (s *Store) Delete(ctx context.Context, id hansard.SessionID, turn hansard.Grant) error {
	leave, err := s.enter(ctx, hansard.CheckID(id))
	if err != nil {
		return err
	}
	defer leave()
	q := &request{method: http.MethodDelete, path: sessionPath(id, "")}
	if turn != "" {
		q.query = url.Values{"turn": {string(turn)}}
	}
	uncertain, err := s.answer(ctx, q, nil)
	if uncertain && errors.Is(err, hansard.ErrDeleted) {
		return nil // it is deleted: by the attempt whose response was lost, or by another client
	}
	return open(uncertain, err)
}
