package storetest

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"hansard"
)

func idMutants() []mutant {
	type ctx = context.Context
	type call func(c ctx, s hansard.Store, id hansard.SessionID, b hansard.Batch) (hansard.Receipt, error)
	// appends makes a mutant that answers appends of batches with ids in its own way.
	appends := func(name string, act call, caught ...string) mutant {
		return mutant{name: name, caught: caught, plant: inner(func(b *broken, s hansard.Store) {
			b.append = func(c ctx, id hansard.SessionID, batch hansard.Batch) (hansard.Receipt, error) {
				batch.Events = slices.Clone(batch.Events)
				return act(c, s, id, batch)
			}
		})}
	}
	hasIDs := func(b *hansard.Batch) bool {
		return slices.ContainsFunc(b.Events, func(e hansard.Event) bool { return e.ID != "" })
	}
	// knows reports whether the session has an event with this id.
	knows := func(c ctx, s hansard.Store, id hansard.SessionID, event string) bool {
		events, err := readRange(c, s, id, hansard.Range{ID: event})
		return event != "" && err == nil && len(events) == 1
	}
	var burnt sync.Map // keys of batches that stored nothing
	return []mutant{
		appends("ids are ignored", func(c ctx, s hansard.Store, id hansard.SessionID, b hansard.Batch) (hansard.Receipt, error) {
			for i := range b.Events {
				b.Events[i].ID = ""
			}
			return s.Append(c, id, b)
		}, "id/resent", "id/partly known", "id/twice in a batch", "id/mirrors", "processes/mirrors", "id/lives long", "append/every field"),
		appends("a known id is skipped whatever comes with it", func(c ctx, s hansard.Store, id hansard.SessionID, b hansard.Batch) (hansard.Receipt, error) {
			r, err := s.Append(c, id, b)
			var reused *hansard.IDReusedError
			if errors.As(err, &reused) {
				b.Events = slices.DeleteFunc(b.Events, func(e hansard.Event) bool { return slices.Contains(reused.IDs, e.ID) })
				if len(b.Events) > 0 {
					return s.Append(c, id, b)
				}
				return hansard.Receipt{Session: id, Replayed: true}, nil
			}
			return r, err
		}, "id/reused", "id/twice in a batch", "id/lives long"),
		appends("one reused id is named", func(c ctx, s hansard.Store, id hansard.SessionID, b hansard.Batch) (hansard.Receipt, error) {
			r, err := s.Append(c, id, b)
			var reused *hansard.IDReusedError
			if errors.As(err, &reused) {
				reused.IDs = reused.IDs[:1]
			}
			return r, err
		}, "id/reused"),
		appends("a batch with a known id is taken for a replay", func(c ctx, s hansard.Store, id hansard.SessionID, b hansard.Batch) (hansard.Receipt, error) {
			for _, e := range b.Events {
				if knows(c, s, id, e.ID) {
					return hansard.Receipt{Session: id, Replayed: true}, nil
				}
			}
			return s.Append(c, id, b)
		}, "id/partly known", "id/mirrors"),
		appends("a patch is dropped with a known id", func(c ctx, s hansard.Store, id hansard.SessionID, b hansard.Batch) (hansard.Receipt, error) {
			if n := len(b.Events); n > 0 && knows(c, s, id, b.Events[n-1].ID) {
				b.Patch = nil
			}
			return s.Append(c, id, b)
		}, "id/patch"),
		appends("a replay needs its conditions", func(c ctx, s hansard.Store, id hansard.SessionID, b hansard.Batch) (hansard.Receipt, error) {
			info, err := s.Stat(c, id)
			if err == nil && hasIDs(&b) && b.Expect != nil && *b.Expect != info.LastSeq {
				return hansard.Receipt{}, &hansard.ConflictError{Session: id, Expected: *b.Expect, Actual: info.LastSeq}
			}
			return s.Append(c, id, b)
		}, "id/conditions"),
		appends("a batch that stores nothing burns its key", func(c ctx, s hansard.Store, id hansard.SessionID, b hansard.Batch) (hansard.Receipt, error) {
			if _, ok := burnt.Load(b.Key); ok && b.Key != "" {
				return hansard.Receipt{}, &hansard.KeyReusedError{Session: id, Key: b.Key}
			}
			r, err := s.Append(c, id, b)
			if err == nil && r.First == 0 {
				burnt.Store(b.Key, true)
			}
			return r, err
		}, "id/with a key"),
		appends("the time it happened at loses its microseconds", func(c ctx, s hansard.Store, id hansard.SessionID, b hansard.Batch) (hansard.Receipt, error) {
			for i := range b.Events {
				b.Events[i].At = b.Events[i].At.Truncate(time.Second)
			}
			return s.Append(c, id, b)
		}, "id/at", "id/reused", "append/every field"),
		appends("ids are compared ignoring case", func(c ctx, s hansard.Store, id hansard.SessionID, b hansard.Batch) (hansard.Receipt, error) {
			for i := range b.Events {
				b.Events[i].ID = strings.ToLower(b.Events[i].ID)
			}
			return s.Append(c, id, b)
		}, "id/names"),
		appends("seqs of known events are not told", func(c ctx, s hansard.Store, id hansard.SessionID, b hansard.Batch) (hansard.Receipt, error) {
			r, err := s.Append(c, id, b)
			if r.Replayed {
				r.Seqs = nil
			}
			return r, err
		}, "id/resent", "id/with a key"),
		appends("the append that creates does not say so", func(c ctx, s hansard.Store, id hansard.SessionID, b hansard.Batch) (hansard.Receipt, error) {
			r, err := s.Append(c, id, b)
			r.Created = false
			return r, err
		}, "id/created"),
		appends("the metadata of an append is lost", func(c ctx, s hansard.Store, id hansard.SessionID, b hansard.Batch) (hansard.Receipt, error) {
			b.Meta = hansard.Meta{}
			return s.Append(c, id, b)
		}, "id/created"),
		appends("the metadata of an append always counts", func(c ctx, s hansard.Store, id hansard.SessionID, b hansard.Batch) (hansard.Receipt, error) {
			r, err := s.Append(c, id, b)
			if err == nil && !r.Created && b.Meta.Title != "" {
				s.Append(c, id, hansard.Batch{Patch: &hansard.Patch{Title: &b.Meta.Title}})
			}
			return r, err
		}, "id/created"),
		{name: "an event that is not there is a session that is not there", caught: []string{"id/read"}, plant: inner(func(b *broken, s hansard.Store) {
			b.read = func(c ctx, id hansard.SessionID, r hansard.Range) iter.Seq2[hansard.Event, error] {
				return func(yield func(hansard.Event, error) bool) {
					for e, err := range s.Read(c, id, r) {
						if errors.Is(err, hansard.ErrNoEvent) {
							err = hansard.ErrNotFound
						}
						if !yield(e, err) {
							return
						}
					}
				}
			}
		})},
	}
}
