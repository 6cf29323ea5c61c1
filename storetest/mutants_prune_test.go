package storetest

import (
	"context"
	"io"
	"strings"

	"hansard"
)

func pruneMutants() []mutant {
	type ctx = context.Context
	prunes := func(name string, act func(c ctx, s hansard.Store, scrub bool) (hansard.Pruned, error), caught ...string) mutant {
		return mutant{name: name, caught: caught, plant: inner(func(b *broken, s hansard.Store) {
			b.prune = func(c ctx, scrub bool) (hansard.Pruned, error) { return act(c, s, scrub) }
		})}
	}
	plain := func(c ctx, s hansard.Store, scrub bool) (hansard.Pruned, error) {
		return s.(hansard.Pruner).Prune(c, scrub)
	}
	return []mutant{
		prunes("pruning follows the beginning of a name into another session", func(c ctx, s hansard.Store, scrub bool) (hansard.Pruned, error) {
			done, err := plain(c, s, scrub)
			infos, _ := listAll(c, s, hansard.Query{})
			for _, i := range infos {
				for _, e := range done.Erased {
					if strings.HasPrefix(string(i.ID), string(e.Session)) {
						s.Delete(c, i.ID, "")
					}
				}
			}
			return done, err
		}, "prune/only what is deleted"),
		prunes("pruning ends turns", func(c ctx, s hansard.Store, scrub bool) (hansard.Pruned, error) {
			infos, _ := listAll(c, s, hansard.Query{})
			for _, i := range infos {
				if i.Turn != nil {
					s.Release(c, i.ID, i.Turn.Grant)
				}
			}
			return plain(c, s, scrub)
		}, "prune/only what is deleted"),
		prunes("pruning erases again and again", func(c ctx, s hansard.Store, scrub bool) (hansard.Pruned, error) {
			done, err := plain(c, s, scrub)
			done.Erased = append(done.Erased, hansard.ErasedSession{Session: "s"})
			return done, err
		}, "prune/stays deleted"),
		prunes("pruning ignores its context", func(c ctx, s hansard.Store, scrub bool) (hansard.Pruned, error) {
			return plain(context.WithoutCancel(c), s, scrub)
		}, "prune/refused"),
		{name: "pruning removes attachments that are not named yet", caught: []string{"prune/only what is deleted"}, plant: inner(func(b *broken, s hansard.Store) {
			pruned := false
			b.prune = func(c ctx, scrub bool) (hansard.Pruned, error) {
				pruned = true
				return plain(c, s, scrub)
			}
			b.open = func(c ctx, id hansard.SessionID, digest string) (hansard.AttachmentReader, error) {
				r, err := s.OpenAttachment(c, id, digest)
				if err != nil || !pruned {
					return r, err
				}
				content, _ := io.ReadAll(r)
				if strings.Contains(string(content), "not named") {
					return nil, hansard.ErrNoAttachment
				}
				return s.OpenAttachment(c, id, digest)
			}
		})},
		{name: "pruning loses what is written meanwhile", caught: []string{"prune/while others write"}, plant: inner(func(b *broken, s hansard.Store) {
			b.append = func(c ctx, id hansard.SessionID, batch hansard.Batch) (hansard.Receipt, error) {
				if id == "live" && strings.HasSuffix(batch.Key, " 7") {
					return hansard.Receipt{Session: id, First: 1, Last: 1}, nil
				}
				return s.Append(c, id, batch)
			}
		})},
	}
}
