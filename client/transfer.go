package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"

	"hansard"
	"hansard/engine"
	"hansard/internal/wire"
)

var (
	_ hansard.Importer      = (*Store)(nil)
	_ hansard.ImportChecker = (*Store)(nil)
)

// Origins implements [hansard.Exporter].
func (s *Store) Origins(ctx context.Context, after hansard.SessionID) iter.Seq2[hansard.Origin, error] {
	return each(ctx, s, nil, "/v1/origins", func(last *hansard.Origin) string {
		if last != nil {
			return string(last.ID)
		}
		return string(after)
	})
}

// Keys implements [hansard.Exporter].
func (s *Store) Keys(ctx context.Context, id hansard.SessionID, after hansard.Seq) iter.Seq2[hansard.KeyUse, error] {
	return each(ctx, s, hansard.CheckID(id), sessionPath(id, "/keys"), func(last *hansard.KeyUse) string {
		if last != nil {
			return number(uint64(last.First))
		}
		return number(uint64(after))
	})
}

// each yields the values of a response of lines. When the connection breaks it continues
// after the last one; after gives its name, and nil is the beginning.
func each[T any](ctx context.Context, s *Store, given error, path string, after func(last *T) string) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		leave, err := s.enter(ctx, given)
		if err != nil {
			yield(none, err)
			return
		}
		defer leave()
		reading, cancel := s.until(ctx)
		defer cancel()
		var last *T
		err = s.lines(reading, func() *request {
			return &request{method: http.MethodGet, path: path, query: url.Values{"after": {after(last)}}, lines: true}
		}, func(object []byte) (bool, error) {
			v := new(T)
			if err := json.Unmarshal(object, v); err != nil {
				return false, fmt.Errorf("%s answers %s with a line that can't be read: %w", s.name, path, err)
			}
			if err := reading.Err(); err != nil {
				return false, err // what was cut short must not look complete
			}
			last = v
			return yield(*v, nil), nil
		})
		if err != nil {
			yield(none, s.ended(ctx, err))
		}
	}
}

// Import implements [hansard.Importer]. It is sent again if the response was lost:
// events are stored once, because they have their seqs.
func (s *Store) Import(ctx context.Context, p hansard.Part) error {
	leave, err := s.enter(ctx, hansard.CheckID(p.ID), engine.CheckPartInput(&p))
	if err != nil {
		return err
	}
	defer leave()
	uncertain, err := s.answer(ctx, &request{method: http.MethodPost, path: sessionPath(p.ID, "/import"), body: wire.AppendPart(nil, &p)}, nil)
	if !uncertain || err == nil {
		return err
	}
	var conflict *hansard.ConflictError
	switch {
	case p.Deleted && errors.Is(err, hansard.ErrDeleted):
		return nil // it is deleted: by the attempt whose response was lost, or by another client
	case errors.As(err, &conflict) && len(p.Events) > 0 && conflict.Actual >= p.Events[len(p.Events)-1].Seq:
		// These seqs are taken now, perhaps by this very part.
		switch stored, readErr := s.stored(ctx, &p); {
		case stored:
			return nil
		case readErr == nil:
			return err
		default:
			return fmt.Errorf("%w: %w", hansard.ErrUnknown, readErr)
		}
	}
	return open(uncertain, err, hansard.ErrConflict, hansard.ErrBusy, hansard.ErrNoSpace, hansard.ErrFailed)
}

// CheckImport implements [hansard.ImportChecker]: it sends a part that no store accepts.
func (s *Store) CheckImport(ctx context.Context) error {
	leave, err := s.enter(ctx, nil)
	if err != nil {
		return err
	}
	defer leave()
	_, err = s.answer(ctx, &request{method: http.MethodPost, path: sessionPath("nothing", "/import"), body: []byte("{}")}, nil)
	if errors.Is(err, hansard.ErrInvalid) {
		return nil // the part was examined: any other refusal would have come before
	}
	return err
}

// stored reports whether the events and keys at a part's seqs are the part's.
func (s *Store) stored(ctx context.Context, p *hansard.Part) (bool, error) {
	before, n := p.Events[0].Seq-1, 0
	for e, err := range s.Read(ctx, p.ID, hansard.Range{After: before, Limit: len(p.Events)}) {
		if err != nil {
			return false, err
		}
		if !hansard.SameEvent(&e, &p.Events[n]) {
			return false, nil
		}
		n++
	}
	if n < len(p.Events) {
		return false, nil
	}
	n = 0
	for k, err := range s.Keys(ctx, p.ID, before) {
		if err != nil {
			return false, err
		}
		if n == len(p.Keys) || k != p.Keys[n] {
			break
		}
		n++
	}
	return n == len(p.Keys), nil
}
