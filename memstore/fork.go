package memstore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"hansard"
	"hansard/engine"
)

// Fork implements [hansard.Store].
func (s *Store) Fork(ctx context.Context, id hansard.SessionID, f hansard.Fork) (hansard.Info, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.checkLocked(ctx, id, engine.CheckFork(&f)); err != nil {
		return hansard.Info{}, err
	}
	parent, err := s.findLocked(id)
	if err != nil {
		return hansard.Info{}, err
	}
	if f.At == 0 {
		f.At = parent.last()
	}
	if f.At > parent.last() {
		return hansard.Info{}, engine.ForkPastEnd(f.At, parent.last())
	}
	if first, last := parent.batchOf(f.At); f.At < last {
		return hansard.Info{}, engine.ForkInBatch(f.At, first, last)
	}
	switch _, err := s.findLocked(f.As); {
	case err == nil:
		return hansard.Info{}, fmt.Errorf("%w: %s", hansard.ErrExists, f.As)
	case !errors.Is(err, hansard.ErrNotFound):
		return hansard.Info{}, err
	}
	ses, err := parent.fork(id, &f)
	if err != nil {
		return hansard.Info{}, err
	}
	s.sessions[f.As] = ses
	return ses.info(f.As), nil
}

// fork is a session with the history up to f.At, and the event that records the fork.
func (ses *session) fork(id hansard.SessionID, f *hansard.Fork) (*session, error) {
	fork := newSession(engine.CloneMeta(ses.born))
	var grants engine.Grants
	for _, e := range ses.events[:f.At] {
		e = cloneEvent(e)
		fork.events = append(fork.events, e)
		fork.remember(&e)
		if err := grants.Next(&e); err != nil {
			return nil, err
		}
		var err error
		if fork.meta, err = engine.ReplayPatch(fork.meta, e.Patch); err != nil {
			return nil, err
		}
		for _, a := range e.Attachments {
			fork.attachments[a.Digest] = ses.attachments[a.Digest]
		}
	}
	for key, k := range ses.keys {
		if k.last <= f.At {
			fork.keys[key] = k
		}
	}
	for _, b := range ses.batches {
		if b.last <= f.At {
			fork.batches = append(fork.batches, b)
		}
	}
	event := engine.ForkEvent(id, f)
	meta, err := engine.ApplyPatch(f.As, fork.meta, event.Patch)
	if err != nil {
		return nil, err
	}
	var ended hansard.Grant
	if grants.Current != nil {
		ended = grants.Current.Grant
	}
	fork.parent, fork.meta, fork.newest = event.Fork, meta, grants.Last
	fork.add([]hansard.Event{event}, ended)
	fork.created = fork.events[f.At].Time
	return fork, nil
}

// run is the seqs of a batch of more than one event.
type run struct{ first, last hansard.Seq }

// batchOf is the seqs of the batch that an event is in.
func (ses *session) batchOf(at hansard.Seq) (first, last hansard.Seq) {
	i, _ := slices.BinarySearchFunc(ses.batches, at, func(b run, at hansard.Seq) int {
		if b.last < at {
			return -1
		}
		return 1
	})
	if i < len(ses.batches) && ses.batches[i].first <= at {
		return ses.batches[i].first, ses.batches[i].last
	}
	return at, at
}
