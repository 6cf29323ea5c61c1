package storetest

import (
	"context"
	"iter"

	"hansard"
	"hansard/engine"
)

// comparing is a store that compares forks with their parents when it is examined, badly.
type comparing struct {
	hansard.Store
	store   hansard.Importer // that it is a handle of
	compare func(ctx context.Context, s hansard.Store, id hansard.SessionID, p hansard.Parent) (engine.Divergence, error)
}

func (s *comparing) Origins(ctx context.Context, after hansard.SessionID) iter.Seq2[hansard.Origin, error] {
	return s.store.Origins(ctx, after)
}

func (s *comparing) Keys(ctx context.Context, id hansard.SessionID, after hansard.Seq) iter.Seq2[hansard.KeyUse, error] {
	return s.store.Keys(ctx, id, after)
}

func (s *comparing) Import(ctx context.Context, p hansard.Part) error { return s.store.Import(ctx, p) }

func (s *comparing) Verify(ctx context.Context, id hansard.SessionID) iter.Seq2[hansard.Finding, error] {
	return func(yield func(hansard.Finding, error) bool) {
		infos, err := listAll(ctx, s, hansard.Query{})
		if err != nil {
			yield(hansard.Finding{}, err)
			return
		}
		for _, info := range infos {
			if id != "" && info.ID != id {
				continue
			}
			f := hansard.Finding{Level: hansard.LevelOK, Session: info.ID}
			if info.Parent != nil {
				d, err := s.compare(ctx, s, info.ID, *info.Parent)
				if f.Message = d.Message; d.Damage {
					f.Level = hansard.LevelDamage
				} else if d.Message != "" {
					f.Level = hansard.LevelNote
				}
				if err != nil {
					yield(f, err)
					return
				}
			}
			if !yield(f, nil) {
				return
			}
		}
	}
}

func (s *comparing) Repair(context.Context, hansard.SessionID) (hansard.Repaired, error) {
	return hansard.Repaired{}, hansard.ErrUnsupported
}

// lineageMutants compare forks with their parents badly.
func lineageMutants() []mutant {
	type ctx = context.Context
	comparingBy := func(name string, compare func(ctx, hansard.Store, hansard.SessionID, hansard.Parent) (engine.Divergence, error)) mutant {
		return mutant{name: name, caught: []string{"fork/verified"}, plant: plant{handle: func(h, inner hansard.Store) hansard.Store {
			return &comparing{h, inner.(hansard.Importer), compare}
		}}}
	}
	return []mutant{
		comparingBy("a fork is not compared with its parent", func(ctx, hansard.Store, hansard.SessionID, hansard.Parent) (engine.Divergence, error) {
			return engine.Divergence{}, nil
		}),
		comparingBy("whatever is different is damage", func(c ctx, s hansard.Store, id hansard.SessionID, p hansard.Parent) (engine.Divergence, error) {
			d, err := engine.CompareParent(c, s, id, p)
			d.Damage = d.Message != ""
			return d, err
		}),
		comparingBy("what was redacted is compared", func(c ctx, s hansard.Store, id hansard.SessionID, p hansard.Parent) (engine.Divergence, error) {
			d, err := engine.CompareParent(c, s, id, p)
			here, _ := readRange(c, s, id, hansard.Range{Before: p.At + 1})
			there, _ := readRange(c, s, p.ID, hansard.Range{Before: p.At + 1})
			for i := range min(len(here), len(there)) {
				if d.Message == "" && here[i].Redacted != there[i].Redacted {
					d = engine.Divergence{Message: "another", Damage: true}
				}
			}
			return d, err
		}),
	}
}
