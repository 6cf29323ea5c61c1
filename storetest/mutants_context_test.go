package storetest

import (
	"context"
	"errors"
	"iter"

	"hansard"
)

// examined is a store that can be examined, badly.
type examined struct {
	hansard.Store
	verify func(ctx context.Context, id hansard.SessionID) iter.Seq2[hansard.Finding, error]
}

func (s *examined) Verify(ctx context.Context, id hansard.SessionID) iter.Seq2[hansard.Finding, error] {
	return s.verify(ctx, id)
}

func (s *examined) Repair(context.Context, hansard.SessionID) (hansard.Repaired, error) {
	return hansard.Repaired{}, hansard.ErrUnsupported
}

// contextMutants take the end of a context for something else.
func contextMutants() []mutant {
	type ctx = context.Context
	damaged := func(err error) *hansard.DamagedError { return &hansard.DamagedError{Reason: err.Error()} }
	listing := func(name string, list func(c ctx, infos []hansard.Info) []hansard.Info) mutant {
		return mutant{name: name, caught: []string{"context/list"}, plant: inner(func(b *broken, s hansard.Store) {
			b.list = func(c ctx, q hansard.Query) iter.Seq2[hansard.Info, error] {
				return func(yield func(hansard.Info, error) bool) {
					infos, err := listAll(context.WithoutCancel(c), s, q)
					infosOf(list(c, infos), err)(yield)
				}
			}
		})}
	}
	verifying := func(name string, ended func(yield func(hansard.Finding, error) bool, err error)) mutant {
		return mutant{name: name, caught: []string{"context/verify"}, plant: examinedBy(func(c ctx, s hansard.Store, yield func(hansard.Finding, error) bool) {
			infos, _ := listAll(context.WithoutCancel(c), s, hansard.Query{})
			for _, info := range infos {
				if err := c.Err(); err != nil {
					ended(yield, err)
					return
				}
				if !yield(hansard.Finding{Level: hansard.LevelOK, Session: info.ID}, nil) {
					return
				}
			}
		})}
	}
	return []mutant{
		listing("a list calls what it had no time for damaged", func(c ctx, infos []hansard.Info) []hansard.Info {
			for i := range infos {
				if err := c.Err(); err != nil {
					infos[i].Damage = damaged(err)
				}
			}
			return infos
		}),
		listing("a list leaves out what it had no time for", func(c ctx, infos []hansard.Info) []hansard.Info {
			for i := range infos {
				if c.Err() != nil {
					return infos[:i]
				}
			}
			return infos
		}),
		{name: "a reading ends where its context does, as if it were whole", caught: []string{"context/read"}, plant: inner(func(b *broken, s hansard.Store) {
			b.read = func(c ctx, id hansard.SessionID, r hansard.Range) iter.Seq2[hansard.Event, error] {
				return func(yield func(hansard.Event, error) bool) {
					for e, err := range s.Read(context.WithoutCancel(c), id, r) {
						if c.Err() != nil || !yield(e, err) {
							return
						}
					}
				}
			}
		})},
		{name: "a session whose reading was cut short is damaged", caught: []string{"context/read"}, plant: inner(func(b *broken, s hansard.Store) {
			b.stat = func(c ctx, id hansard.SessionID) (hansard.Info, error) {
				info, err := s.Stat(context.WithoutCancel(c), id)
				if ended := c.Err(); ended != nil {
					info.Damage = damaged(ended)
				}
				return info, err
			}
		})},
		{name: "who was cut short finds the turn free", caught: []string{"context/read"}, plant: inner(func(b *broken, s hansard.Store) {
			b.turn = func(c ctx, id hansard.SessionID) (*hansard.Turn, error) {
				if c.Err() != nil {
					return nil, nil
				}
				return s.Turn(c, id)
			}
		})},
		verifying("an examination calls what it had no time for damaged", func(yield func(hansard.Finding, error) bool, err error) {
			yield(hansard.Finding{Level: hansard.LevelDamage, Message: err.Error()}, nil)
		}),
		verifying("an examination that was cut short is complete", func(func(hansard.Finding, error) bool, error) {}),
		{name: "what was stored is refused when the context ends", caught: []string{"context/append"}, plant: inner(func(b *broken, s hansard.Store) {
			b.append = func(c ctx, id hansard.SessionID, batch hansard.Batch) (hansard.Receipt, error) {
				r, err := s.Append(context.WithoutCancel(c), id, batch)
				if ended := c.Err(); ended != nil && !errors.Is(err, hansard.ErrClosed) {
					return hansard.Receipt{}, ended
				}
				return r, err
			}
		})},
	}
}

// examinedBy makes every handle one that can be examined in this way.
func examinedBy(verify func(c context.Context, s hansard.Store, yield func(hansard.Finding, error) bool)) plant {
	return plant{handle: func(h, _ hansard.Store) hansard.Store {
		return &examined{h, func(c context.Context, _ hansard.SessionID) iter.Seq2[hansard.Finding, error] {
			return func(yield func(hansard.Finding, error) bool) { verify(c, h, yield) }
		}}
	}}
}
