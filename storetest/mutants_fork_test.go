package storetest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"slices"
	"strings"
	"time"

	"hansard"
)

func forkMutants() []mutant {
	type ctx = context.Context
	forks := func(name string, act func(c ctx, s hansard.Store, id hansard.SessionID, f hansard.Fork) (hansard.Info, error), caught ...string) mutant {
		return mutant{name: name, caught: caught, plant: inner(func(b *broken, s hansard.Store) {
			b.fork = func(c ctx, id hansard.SessionID, f hansard.Fork) (hansard.Info, error) { return act(c, s, id, f) }
		})}
	}
	// imitate makes a fork of what a reader sees: without what only the store knows.
	imitate := func(c ctx, s hansard.Store, id hansard.SessionID, f hansard.Fork, change func([]hansard.Event) []hansard.Event) (hansard.Info, error) {
		im := s.(hansard.Importer)
		info, err := s.Stat(c, id)
		if err != nil {
			return info, err
		}
		if f.At == 0 {
			f.At = info.LastSeq
		}
		events, err := readRange(c, s, id, hansard.Range{Before: f.At + 1})
		if err != nil {
			return info, err
		}
		now := time.Now().UTC().Truncate(time.Microsecond)
		own := hansard.Event{Seq: f.At + 1, Time: now, Kind: hansard.KindFork, Fork: &hansard.Parent{ID: id, At: f.At}, Data: []byte("null")}
		p := hansard.Part{Origin: hansard.Origin{ID: f.As, Created: now, Parent: own.Fork}, Events: change(append(events, own))}
		if err := im.Import(c, p); err != nil {
			return info, err
		}
		return s.Stat(c, f.As)
	}
	isHalf := func(err error) bool {
		return errors.Is(err, hansard.ErrInvalid) && strings.Contains(err.Error(), "inside a batch")
	}
	return []mutant{
		forks("half a batch is forked", func(c ctx, s hansard.Store, id hansard.SessionID, f hansard.Fork) (hansard.Info, error) {
			info, err := s.Fork(c, id, f)
			if isHalf(err) {
				return imitate(c, s, id, f, func(e []hansard.Event) []hansard.Event { return e })
			}
			return info, err
		}, "fork/half a batch"),
		forks("a refusal does not say where a fork can be made", func(c ctx, s hansard.Store, id hansard.SessionID, f hansard.Fork) (hansard.Info, error) {
			info, err := s.Fork(c, id, f)
			if isHalf(err) {
				err = hansard.ErrInvalid
			}
			return info, err
		}, "fork/half a batch"),
		forks("a fork has other times", func(c ctx, s hansard.Store, id hansard.SessionID, f hansard.Fork) (hansard.Info, error) {
			return imitate(c, s, id, f, func(events []hansard.Event) []hansard.Event {
				for i := range events {
					events[i].Time = events[len(events)-1].Time
				}
				return events
			})
		}, "fork/history"),
		forks("a fork has not the keys", func(c ctx, s hansard.Store, id hansard.SessionID, f hansard.Fork) (hansard.Info, error) {
			return imitate(c, s, id, f, func(e []hansard.Event) []hansard.Event { return e })
		}, "fork/keys and ids"),
		forks("a fork has not the ids", func(c ctx, s hansard.Store, id hansard.SessionID, f hansard.Fork) (hansard.Info, error) {
			return imitate(c, s, id, f, func(events []hansard.Event) []hansard.Event {
				for i := range events {
					events[i].ID = ""
				}
				return events
			})
		}, "fork/keys and ids"),
		forks("a fork has the newest metadata", func(c ctx, s hansard.Store, id hansard.SessionID, f hansard.Fork) (hansard.Info, error) {
			if now, err := s.Stat(c, id); err == nil {
				if f.Meta.Title == "" {
					f.Meta.Title = now.Title
				}
			}
			return s.Fork(c, id, f)
		}, "fork/metadata"),
		forks("a fork's state is merged", func(c ctx, s hansard.Store, id hansard.SessionID, f hansard.Fork) (hansard.Info, error) {
			state := f.Meta.State
			f.Meta.State = nil
			info, err := s.Fork(c, id, f)
			if err == nil && state != nil {
				_, err = s.Append(c, info.ID, hansard.Batch{Patch: &hansard.Patch{State: state}})
			}
			return info, err
		}, "fork/metadata"),
		forks("a refused fork leaves a session", func(c ctx, s hansard.Store, id hansard.SessionID, f hansard.Fork) (hansard.Info, error) {
			info, err := s.Fork(c, id, f)
			if errors.Is(err, hansard.ErrInvalid) && f.At > 3 {
				s.Create(c, f.As, hansard.Meta{})
			}
			return info, err
		}, "fork/refused"),
		forks("a fork past the end is one at the end", func(c ctx, s hansard.Store, id hansard.SessionID, f hansard.Fork) (hansard.Info, error) {
			if info, err := s.Stat(c, id); err == nil && f.At > info.LastSeq {
				f.At = 0
			}
			return s.Fork(c, id, f)
		}, "fork/refused"),
		forks("a fork takes the place of a session", func(c ctx, s hansard.Store, id hansard.SessionID, f hansard.Fork) (hansard.Info, error) {
			info, err := s.Fork(c, id, f)
			if errors.Is(err, hansard.ErrExists) {
				f.As += ".other"
				return s.Fork(c, id, f)
			}
			return info, err
		}, "fork/refused", "fork/name race"),
		forks("a fork takes what nobody named", func(c ctx, s hansard.Store, id hansard.SessionID, f hansard.Fork) (hansard.Info, error) {
			info, err := s.Fork(c, id, f)
			if err != nil {
				return info, err
			}
			for a, err := range s.Attachments(c, id) {
				if err != nil {
					return info, err
				}
				if r, err := s.OpenAttachment(c, id, a.Digest); err == nil {
					content, _ := io.ReadAll(r)
					s.Attach(c, f.As, bytes.NewReader(content))
				}
			}
			return info, nil
		}, "fork/attachments"),
		{name: "deleting a session deletes its forks", caught: []string{"fork/shares nothing", "fork/children"}, plant: inner(func(b *broken, s hansard.Store) {
			b.delete = func(c ctx, id hansard.SessionID, turn hansard.Grant) error {
				for info, err := range s.List(c, hansard.Query{Parent: id}) {
					if err == nil && hansard.CheckID(id) == nil {
						s.Delete(c, info.ID, "")
					}
				}
				return s.Delete(c, id, turn)
			}
		})},
		{name: "an append to a session goes to its forks", caught: []string{"fork/shares nothing"}, plant: inner(func(b *broken, s hansard.Store) {
			b.append = func(c ctx, id hansard.SessionID, batch hansard.Batch) (hansard.Receipt, error) {
				r, err := s.Append(c, id, batch)
				if err != nil {
					return r, err
				}
				var forks []hansard.SessionID
				for info, err := range s.List(c, hansard.Query{Parent: id}) {
					if err == nil {
						forks = append(forks, info.ID)
					}
				}
				for _, fork := range forks {
					s.Append(c, fork, hansard.Batch{Events: slices.Clone(batch.Events)})
				}
				return r, err
			}
		})},
		{name: "a fork's turn is held by who held its parent's", caught: []string{"fork/turn"}, plant: inner(func(b *broken, s hansard.Store) {
			b.fork = func(c ctx, id hansard.SessionID, f hansard.Fork) (hansard.Info, error) {
				info, err := s.Fork(c, id, f)
				if err == nil {
					if was, _ := s.Turn(c, id); was != nil {
						s.Acquire(c, f.As, hansard.Claim{TTL: time.Hour})
						return s.Stat(c, f.As)
					}
				}
				return info, err
			}
		})},
		{name: "grandchildren are children", caught: []string{"fork/children"}, plant: inner(func(b *broken, s hansard.Store) {
			b.list = func(c ctx, q hansard.Query) iter.Seq2[hansard.Info, error] {
				return func(yield func(hansard.Info, error) bool) {
					for info, err := range s.List(c, q) {
						if !yield(info, err) {
							return
						}
						if q.Parent == "" || err != nil {
							continue
						}
						for below, err := range s.List(c, hansard.Query{Parent: info.ID}) {
							if !yield(below, err) {
								return
							}
						}
					}
				}
			}
		})},
		{name: "the parent is ignored by lists", caught: []string{"fork/children"}, plant: inner(func(b *broken, s hansard.Store) {
			b.list = func(c ctx, q hansard.Query) iter.Seq2[hansard.Info, error] {
				q.Parent = ""
				return s.List(c, q)
			}
		})},
		forks("a fork lacks what was acknowledged last", func(c ctx, s hansard.Store, id hansard.SessionID, f hansard.Fork) (hansard.Info, error) {
			if info, err := s.Stat(c, id); err == nil && f.At == 0 && info.LastSeq > 3 {
				f.At = info.LastSeq - 3
			}
			return s.Fork(c, id, f)
		}, "fork/being written"),
		forks("a fork ends anywhere", func(c ctx, s hansard.Store, id hansard.SessionID, f hansard.Fork) (hansard.Info, error) {
			if info, err := s.Stat(c, id); err == nil && f.At == 0 && info.LastSeq > 1 {
				f.At = info.LastSeq - 1
				return imitate(c, s, id, f, func(e []hansard.Event) []hansard.Event { return e })
			}
			return s.Fork(c, id, f)
		}, "fork/being written"),
	}
}
