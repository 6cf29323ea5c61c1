package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"hansard"
)

// stateOpsMutants break operations on the state.
func stateOpsMutants() []mutant {
	type ctx = context.Context
	type appending = func(c ctx, s hansard.Store, id hansard.SessionID, b hansard.Batch) (hansard.Receipt, error)
	// A mutant may change the operations, which are its own.
	breaking := func(name string, change appending, caught ...string) mutant {
		return mutant{name: name, caught: caught, plant: inner(func(b *broken, s hansard.Store) {
			b.append = func(c ctx, id hansard.SessionID, batch hansard.Batch) (hansard.Receipt, error) {
				if batch.Patch == nil || len(batch.Patch.StateOps) == 0 {
					return s.Append(c, id, batch)
				}
				p := *batch.Patch
				p.StateOps = slices.Clone(p.StateOps)
				batch.Patch = &p
				return change(c, s, id, batch)
			}
		})}
	}
	editing := func(name string, edit func(list ops) ops, caught ...string) mutant {
		return breaking(name, func(c ctx, s hansard.Store, id hansard.SessionID, b hansard.Batch) (hansard.Receipt, error) {
			b.Patch.StateOps = edit(b.Patch.StateOps)
			return s.Append(c, id, b)
		}, caught...)
	}
	refused := func(name string, err func(error) bool, then appending, caught ...string) mutant {
		return breaking(name, func(c ctx, s hansard.Store, id hansard.SessionID, b hansard.Batch) (hansard.Receipt, error) {
			r, e := s.Append(c, id, b)
			if !err(e) {
				return r, e
			}
			return then(c, s, id, b)
		}, caught...)
	}
	isTest := func(err error) bool { return errors.As(err, new(*hansard.StateTestError)) }
	isInvalid := func(err error) bool {
		return errors.Is(err, hansard.ErrInvalid) && !errors.Is(err, hansard.ErrTooLarge)
	}
	withoutTests := func(list ops) ops {
		return slices.DeleteFunc(slices.Clone(list), func(o hansard.StateOp) bool { return o.Op == hansard.OpTest })
	}
	return []mutant{
		editing("tests are left out", withoutTests, "state ops/test", "state ops/race"),
		editing("operations are applied backwards", func(list ops) ops { slices.Reverse(list); return list }, "state ops/change"),
		editing("only the last operation counts", func(list ops) ops { return list[len(list)-1:] }, "state ops/change"),
		editing("appending to an array replaces its last element", func(list ops) ops {
			for i, o := range list {
				if path, ok := strings.CutSuffix(o.Path, "/-"); ok && o.Op == hansard.OpAdd && i > 0 {
					list[i] = add(path, `[]`)
				}
			}
			return list
		}, "state ops/change"),
		editing("numbers are floats", func(list ops) ops {
			for i := range list {
				var v any
				if json.Unmarshal(list[i].Value, &v) == nil {
					list[i].Value, _ = json.Marshal(v)
				}
			}
			return list
		}, "state ops/change", "state ops/test"),
		editing("replacing adds what is not there", func(list ops) ops {
			for i := range list {
				if list[i].Op == hansard.OpReplace && !strings.Contains(list[i].Path, "/a/") {
					list[i].Op = hansard.OpAdd
				}
			}
			return list
		}, "state ops/refused"),
		breaking("operations become a merge patch", func(c ctx, s hansard.Store, id hansard.SessionID, b hansard.Batch) (hansard.Receipt, error) {
			list := b.Patch.StateOps
			if name, ok := strings.CutPrefix(list[0].Path, "/"); ok && len(list) == 1 && !strings.Contains(name, "/") && list[0].Op == hansard.OpReplace {
				b.Patch.State, b.Patch.StateOps = fmt.Appendf(nil, `{%q:%s}`, name, list[0].Value), nil
			}
			return s.Append(c, id, b)
		}, "state ops/change"),
		breaking("the state is tested outside the commit", func(c ctx, s hansard.Store, id hansard.SessionID, b hansard.Batch) (hansard.Receipt, error) {
			info, err := s.Stat(c, id)
			var state map[string]json.RawMessage
			if o := b.Patch.StateOps[0]; err == nil && o.Op == hansard.OpTest && json.Unmarshal(info.State, &state) == nil && sameJSON(state[strings.TrimPrefix(o.Path, "/")], o.Value) {
				b.Patch.StateOps = withoutTests(b.Patch.StateOps)
				dawdle()
			}
			return s.Append(c, id, b)
		}, "state ops/race", "processes/counter"),
		refused("the events of a batch whose test fails are stored", isTest, func(c ctx, s hansard.Store, id hansard.SessionID, b hansard.Batch) (hansard.Receipt, error) {
			_, err := s.Append(c, id, b)
			if len(b.Events) > 0 {
				s.Append(c, id, hansard.Batch{Events: b.Events})
			}
			return hansard.Receipt{}, err
		}, "state ops/test"),
		refused("a failed test does not tell which", isTest, func(_ ctx, _ hansard.Store, id hansard.SessionID, _ hansard.Batch) (hansard.Receipt, error) {
			return hansard.Receipt{}, &hansard.ConflictError{Session: id}
		}, "state ops/test"),
		refused("what comes before an operation that fails is applied", isInvalid, func(c ctx, s hansard.Store, id hansard.SessionID, b hansard.Batch) (hansard.Receipt, error) {
			_, err := s.Append(c, id, b)
			if b.Patch.StateOps = b.Patch.StateOps[:len(b.Patch.StateOps)-1]; len(b.Patch.StateOps) > 0 {
				s.Append(c, id, changing(b.Patch.StateOps[0]))
			}
			return hansard.Receipt{}, err
		}, "state ops/refused"),
		refused("operations without a place are left out", isInvalid, func(c ctx, s hansard.Store, id hansard.SessionID, b hansard.Batch) (hansard.Receipt, error) {
			b.Patch = nil
			return s.Append(c, id, b)
		}, "state ops/refused"),
		refused("it is not told which operation is wrong", isInvalid, func(_ ctx, _ hansard.Store, _ hansard.SessionID, _ hansard.Batch) (hansard.Receipt, error) {
			return hansard.Receipt{}, &hansard.InvalidError{Field: "state_ops", Reason: "it can't be applied"}
		}, "state ops/refused"),
		refused("operations over a limit are cut", func(err error) bool { return errors.Is(err, hansard.ErrTooLarge) }, func(c ctx, s hansard.Store, id hansard.SessionID, b hansard.Batch) (hansard.Receipt, error) {
			b.Patch.StateOps = b.Patch.StateOps[:min(len(b.Patch.StateOps), hansard.MaxStateOps)]
			return s.Append(c, id, b)
		}, "state ops/limits"),
		breaking("a retry is tested again", func(c ctx, s hansard.Store, id hansard.SessionID, b hansard.Batch) (hansard.Receipt, error) {
			r, err := s.Append(c, id, b)
			if r.Replayed {
				if _, err := s.Append(c, id, changing(b.Patch.StateOps...)); err != nil {
					return hansard.Receipt{}, err
				}
			}
			return r, err
		}, "state ops/replay"),
		{name: "the spelling of the state is its own", caught: []string{"state ops/spelling"}, plant: inner(func(b *broken, s hansard.Store) {
			b.stat = func(c ctx, id hansard.SessionID) (hansard.Info, error) {
				info, err := s.Stat(c, id)
				info.State, _ = json.MarshalIndent(info.State, "", " ")
				return info, err
			}
		})},
		{name: "operations that are long past are forgotten", caught: []string{"state ops/a thousand"}, plant: inner(func(b *broken, s hansard.Store) {
			b.stat = func(c ctx, id hansard.SessionID) (hansard.Info, error) {
				info, err := s.Stat(c, id)
				if info.LastSeq > 256 {
					info.State = []byte(strings.Replace(string(info.State), `"fixed":1.50,`, "", 1))
				}
				return info, err
			}
		})},
	}
}
