package storetest

import (
	"context"
	"errors"
	"io"
	"iter"
	"slices"
	"sync"

	"hansard"
)

func redactMutants() []mutant {
	type ctx = context.Context
	type id = hansard.SessionID
	type redaction = hansard.Redaction
	// redacts makes a mutant that redacts in its own way.
	redacts := func(name string, act func(c ctx, s hansard.Store, id id, r redaction) (hansard.Receipt, error), caught ...string) mutant {
		return mutant{name: name, caught: caught, plant: inner(func(b *broken, s hansard.Store) {
			b.redact = func(c ctx, id id, r redaction) (hansard.Receipt, error) { return act(c, s, id, r) }
		})}
	}
	// reads makes a mutant that changes what is read.
	reads := func(name string, change func(e *hansard.Event) (drop bool), caught ...string) mutant {
		return mutant{name: name, caught: caught, plant: inner(func(b *broken, s hansard.Store) {
			b.read = func(c ctx, id id, r hansard.Range) iter.Seq2[hansard.Event, error] {
				return func(yield func(hansard.Event, error) bool) {
					for e, err := range s.Read(c, id, r) {
						if err == nil && change(&e) {
							continue
						}
						if !yield(e, err) {
							return
						}
					}
				}
			}
		})}
	}
	return []mutant{
		{name: "a redaction takes nothing away", caught: []string{"redact/takes away", "redact/forks", "redact/forked meanwhile", "redact/beside writers"}, plant: inner(func(b *broken, s hansard.Store) {
			var kept sync.Map // what events were, by seq: also for those who have them by a fork
			b.redact = func(c ctx, id id, r redaction) (hansard.Receipt, error) {
				for e, err := range s.Read(c, id, hansard.Range{}) {
					if err == nil && !e.Redacted {
						kept.Store(e.Seq, e)
					}
				}
				return s.Redact(c, id, r)
			}
			b.read = func(c ctx, id id, r hansard.Range) iter.Seq2[hansard.Event, error] {
				return func(yield func(hansard.Event, error) bool) {
					for e, err := range s.Read(c, id, r) {
						if was, ok := kept.Load(e.Seq); ok && e.Redacted {
							e = was.(hansard.Event)
						}
						if !yield(e, err) {
							return
						}
					}
				}
			}
		})},
		reads("a redaction loses its record", func(e *hansard.Event) bool {
			if len(e.Redacts) > 0 {
				e.Kind, e.Redacts, e.Data = hansard.KindMeta, nil, []byte("null")
			}
			return false
		}, "redact/takes away", "redact/recorded", "redact/patch"),
		reads("redacted events are left out", func(e *hansard.Event) bool { return e.Redacted },
			"redact/takes away", "redact/recorded", "redact/followed"),
		reads("a redacted event is not told from one without data", func(e *hansard.Event) bool {
			e.Redacted = false
			return false
		}, "redact/takes away", "redact/beside writers"),
		reads("a redacted event loses its patch", func(e *hansard.Event) bool {
			if e.Redacted {
				e.Patch = nil
			}
			return false
		}, "redact/patch"),
		reads("a redacted event loses its id", func(e *hansard.Event) bool {
			if e.Redacted {
				e.ID = ""
			}
			return false
		}, "redact/takes away"),
		redacts("the reason is not kept", func(c ctx, s hansard.Store, id id, r redaction) (hansard.Receipt, error) {
			r.Reason = ""
			return s.Redact(c, id, r)
		}, "redact/recorded"),
		redacts("who redacts is not kept", func(c ctx, s hansard.Store, id id, r redaction) (hansard.Receipt, error) {
			r.By = ""
			return s.Redact(c, id, r)
		}, "redact/recorded"),
		redacts("one seq is redacted", func(c ctx, s hansard.Store, id id, r redaction) (hansard.Receipt, error) {
			r.Seqs = r.Seqs[:min(1, len(r.Seqs))]
			return s.Redact(c, id, r)
		}, "redact/takes away", "redact/names", "redact/refused"),
		redacts("the turn is not asked", func(c ctx, s hansard.Store, id id, r redaction) (hansard.Receipt, error) {
			if info, err := s.Stat(c, id); err == nil && info.Turn != nil {
				r.Turn = info.Turn.Grant
			} else {
				r.Turn = ""
			}
			return s.Redact(c, id, r)
		}, "redact/turn", "redact/refused"),
		redacts("redacting again is an error", func(c ctx, s hansard.Store, id id, r redaction) (hansard.Receipt, error) {
			got, err := s.Redact(c, id, r)
			if got.Replayed {
				return hansard.Receipt{}, hansard.ErrConflict
			}
			return got, err
		}, "redact/again"),
		redacts("redacting again is recorded again", func(c ctx, s hansard.Store, id id, r redaction) (hansard.Receipt, error) {
			got, err := s.Redact(c, id, r)
			if got.Replayed {
				return s.Append(c, id, texts("again"))
			}
			return got, err
		}, "redact/again"),
		redacts("what is not there is passed over", func(c ctx, s hansard.Store, id id, r redaction) (hansard.Receipt, error) {
			if info, err := s.Stat(c, id); err == nil {
				r.Seqs = slices.DeleteFunc(slices.Clone(r.Seqs), func(seq hansard.Seq) bool { return seq > info.LastSeq })
			}
			return s.Redact(c, id, r)
		}, "redact/refused"),
		{name: "attachments of redacted events stay", caught: []string{"redact/attachments"}, plant: inner(func(b *broken, s hansard.Store) {
			type kept struct {
				id     id
				digest string
			}
			var attached sync.Map
			b.attach = func(c ctx, id id, r io.Reader) (hansard.Attachment, error) {
				a, err := s.Attach(c, id, r)
				attached.Store(kept{id, a.Digest}, a)
				return a, err
			}
			b.attachments = func(c ctx, id id) iter.Seq2[hansard.Attachment, error] {
				return func(yield func(hansard.Attachment, error) bool) {
					attached.Range(func(_, a any) bool { return yield(a.(hansard.Attachment), nil) })
				}
			}
		})},
		{name: "the id of a redacted event is compared", caught: []string{"redact/names"}, plant: inner(func(b *broken, s hansard.Store) {
			b.append = func(c ctx, id id, batch hansard.Batch) (hansard.Receipt, error) {
				for _, e := range batch.Events {
					if known, err := readRange(c, s, id, hansard.Range{ID: e.ID}); e.ID != "" && err == nil && known[0].Redacted && batch.Key == "" && len(batch.Events) == 1 {
						return hansard.Receipt{}, &hansard.IDReusedError{Session: id, IDs: []string{e.ID}}
					}
				}
				return s.Append(c, id, batch)
			}
		})},
		{name: "the key of a redacted batch is free", caught: []string{"redact/names"}, plant: inner(func(b *broken, s hansard.Store) {
			b.append = func(c ctx, id id, batch hansard.Batch) (hansard.Receipt, error) {
				r, err := s.Append(c, id, batch)
				if err != nil || !r.Replayed || batch.Key == "" {
					return r, err
				}
				first, readErr := readRange(c, s, id, hansard.Range{After: r.First - 1, Before: r.Last + 1})
				if readErr == nil && slices.ContainsFunc(first, func(e hansard.Event) bool { return e.Redacted }) {
					batch.Key = ""
					return s.Append(c, id, batch)
				}
				return r, err
			}
		})},
		redacts("a redaction that fails has happened", func(c ctx, s hansard.Store, id id, r redaction) (hansard.Receipt, error) {
			got, err := s.Redact(c, id, r)
			if errors.Is(err, hansard.ErrHeld) || errors.Is(err, hansard.ErrNoEvent) {
				r.Seqs = []hansard.Seq{1}
				if info, err := s.Stat(c, id); err == nil && info.Turn != nil {
					r.Turn = info.Turn.Grant
				}
				_, _ = s.Redact(c, id, r)
			}
			return got, err
		}, "redact/turn", "redact/refused"),
	}
}

func reuseMutants() []mutant {
	type ctx = context.Context
	return []mutant{
		{name: "reuse needs not be said", caught: []string{"create/reuse"}, plant: inner(func(b *broken, s hansard.Store) {
			b.create = func(c ctx, id hansard.SessionID, m hansard.Meta) (hansard.Info, error) {
				m.Reuse = true
				return s.Create(c, id, m)
			}
		})},
		{name: "an id is never used again", caught: []string{"create/reuse", "create/reuse at once"}, plant: inner(func(b *broken, s hansard.Store) {
			b.create = func(c ctx, id hansard.SessionID, m hansard.Meta) (hansard.Info, error) {
				m.Reuse = false
				return s.Create(c, id, m)
			}
		})},
		{name: "reuse takes over what is there", caught: []string{"create/reuse refused", "create/reuse at once"}, plant: inner(func(b *broken, s hansard.Store) {
			b.create = func(c ctx, id hansard.SessionID, m hansard.Meta) (hansard.Info, error) {
				if m.Reuse {
					_ = s.Delete(c, id, "")
				}
				return s.Create(c, id, m)
			}
		})},
		{name: "an append reuses", caught: []string{"create/reuse refused"}, plant: inner(func(b *broken, s hansard.Store) {
			b.append = func(c ctx, id hansard.SessionID, batch hansard.Batch) (hansard.Receipt, error) {
				r, err := s.Append(c, id, batch)
				if errors.Is(err, hansard.ErrDeleted) && batch.Create {
					if _, err := s.Create(c, id, hansard.Meta{Reuse: true}); err != nil {
						return hansard.Receipt{}, err
					}
					return s.Append(c, id, batch)
				}
				return r, err
			}
		})},
		{name: "a new session of the id goes on where the old one was", caught: []string{"create/reuse"}, plant: inner(func(b *broken, s hansard.Store) {
			b.create = func(c ctx, id hansard.SessionID, m hansard.Meta) (hansard.Info, error) {
				info, err := s.Create(c, id, m)
				if err == nil && m.Reuse {
					_, err = s.Append(c, id, texts("of the one before"))
				}
				return info, err
			}
		})},
	}
}
