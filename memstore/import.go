package memstore

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"hansard"
	"hansard/engine"
)

var _ hansard.Importer = (*Store)(nil)

// Origins implements [hansard.Exporter].
func (s *Store) Origins(ctx context.Context, after hansard.SessionID) iter.Seq2[hansard.Origin, error] {
	return func(yield func(hansard.Origin, error) bool) {
		origins, err := s.origins(ctx)
		if err != nil {
			yield(hansard.Origin{}, err)
			return
		}
		for _, o := range origins {
			if o.ID > after && !yield(o, nil) {
				return
			}
		}
	}
}

func (s *Store) origins(ctx context.Context) (out []hansard.Origin, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, hansard.ErrClosed
	}
	for id, ses := range s.sessions {
		o := hansard.Origin{ID: id, Created: ses.created, Deleted: ses.deleted}
		if !ses.deleted {
			o.Meta, o.Parent = engine.CloneMeta(ses.born), ses.info(id).Parent
		}
		out = append(out, o)
	}
	slices.SortFunc(out, func(a, b hansard.Origin) int { return cmp.Compare(a.ID, b.ID) })
	return out, ctx.Err()
}

// Keys implements [hansard.Exporter].
func (s *Store) Keys(ctx context.Context, id hansard.SessionID, after hansard.Seq) iter.Seq2[hansard.KeyUse, error] {
	return func(yield func(hansard.KeyUse, error) bool) {
		keys, err := s.keysOf(ctx, id)
		if err != nil {
			yield(hansard.KeyUse{}, err)
			return
		}
		for _, k := range keys {
			if k.First > after && !yield(k, nil) {
				return
			}
		}
	}
}

func (s *Store) keysOf(ctx context.Context, id hansard.SessionID) (out []hansard.KeyUse, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.checkLocked(ctx, id); err != nil {
		return nil, err
	}
	ses, err := s.findLocked(id)
	if err != nil {
		return nil, err
	}
	for key, k := range ses.keys {
		out = append(out, hansard.KeyUse{Key: key, Hash: k.hash, First: k.first, Last: k.last})
	}
	slices.SortFunc(out, func(a, b hansard.KeyUse) int { return cmp.Compare(a.First, b.First) })
	return out, nil
}

// Import implements [hansard.Importer].
func (s *Store) Import(ctx context.Context, p hansard.Part) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.checkLocked(ctx, p.ID, engine.CheckPartInput(&p)); err != nil {
		return err
	}
	ses := s.sessions[p.ID]
	switch {
	case ses == nil:
		ses = newSession(engine.CloneMeta(p.Meta))
		ses.created = p.Created
		if p.Parent != nil {
			parent := *p.Parent
			ses.parent = &parent
		}
	case ses.deleted:
		return fmt.Errorf("%w: %s", hansard.ErrDeleted, p.ID)
	default:
		if err := engine.SameOrigin(&p, ses.created); err != nil {
			return err
		}
	}
	if p.Deleted {
		ses.deleted, ses.attachments = true, nil
		s.sessions[p.ID] = ses
		ses.wake()
		return nil
	}
	grants := engine.Grants{Current: ses.turn, Last: ses.newest}
	if err := engine.CheckPart(&p, ses.last(), &grants, ses.known); err != nil {
		return err
	}
	if err := engine.CheckNamed(p.ID, engine.NamedBy(p.Events), ses.attached); err != nil {
		return err
	}
	meta := ses.meta
	for i := range p.Events {
		var err error
		if meta, err = engine.ReplayPatch(meta, p.Events[i].Patch); err != nil {
			return err
		}
	}
	for _, e := range p.Events {
		ses.events = append(ses.events, cloneEvent(e))
		ses.remember(&e)
	}
	for _, k := range p.Keys {
		ses.keys[k.Key] = stored{k.Hash, k.First, k.Last}
		if k.Last > k.First {
			ses.batches = append(ses.batches, run{k.First, k.Last})
		}
	}
	if grants.Current != ses.turn { // its holder has a whole TTL from now on
		ses.began = time.Now()
		ses.renewed = ses.began
	}
	ses.meta, ses.turn, ses.newest = meta, grants.Current, grants.Last
	s.sessions[p.ID] = ses
	ses.wake()
	return nil
}
