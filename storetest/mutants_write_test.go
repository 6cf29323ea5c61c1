package storetest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"hansard"
)

// lacking reports whether the session is not there.
func lacking(ctx context.Context, s hansard.Store, id hansard.SessionID) bool {
	_, err := s.Stat(ctx, id)
	return errors.Is(err, hansard.ErrNotFound)
}

func writeMutants() []mutant {
	type ctx = context.Context
	// changed makes a mutant that changes each batch before it is stored.
	changed := func(name string, change func(c ctx, s hansard.Store, id hansard.SessionID, b *hansard.Batch), caught ...string) mutant {
		return mutant{name: name, caught: caught, plant: inner(func(b *broken, s hansard.Store) {
			b.append = func(c ctx, id hansard.SessionID, batch hansard.Batch) (hansard.Receipt, error) {
				batch.Events = slices.Clone(batch.Events)
				change(c, s, id, &batch)
				return s.Append(c, id, batch)
			}
		})}
	}
	// after makes a mutant that acts on the answer to a batch.
	after := func(name string, act func(c ctx, s hansard.Store, id hansard.SessionID, b hansard.Batch, r hansard.Receipt, err error) (hansard.Receipt, error), caught ...string) mutant {
		return mutant{name: name, caught: caught, plant: inner(func(b *broken, s hansard.Store) {
			b.append = func(c ctx, id hansard.SessionID, batch hansard.Batch) (hansard.Receipt, error) {
				r, err := s.Append(c, id, batch)
				return act(c, s, id, batch, r, err)
			}
		})}
	}
	total := func(b *hansard.Batch) (n int) {
		for _, e := range b.Events {
			n += len(e.Data) + len(e.Kind) + len(e.Role) + len(e.Author)
		}
		return n
	}
	return []mutant{
		changed("the author is lost", func(_ ctx, _ hansard.Store, _ hansard.SessionID, b *hansard.Batch) {
			for i := range b.Events {
				b.Events[i].Author = ""
			}
		}, "append/one", "append/fields", "append/every field"),
		changed("who wrote is lost", func(_ ctx, _ hansard.Store, _ hansard.SessionID, b *hansard.Batch) { b.By = "" }, "by/appends", "by/turns"),
		changed("a client says who wrote", func(_ ctx, _ hansard.Store, _ hansard.SessionID, b *hansard.Batch) {
			for i := range b.Events {
				b.By, b.Events[i].By = cmp.Or(b.Events[i].By, b.By), ""
			}
		}, "append/store sets"),
		changed("line ends in names become spaces", func(_ ctx, _ hansard.Store, _ hansard.SessionID, b *hansard.Batch) {
			for i := range b.Events {
				b.Events[i].Kind = strings.ReplaceAll(b.Events[i].Kind, "\n", " ")
			}
		}, "append/fields"),
		changed("data is spelt anew", func(_ ctx, _ hansard.Store, _ hansard.SessionID, b *hansard.Batch) {
			for i := range b.Events {
				if out, err := json.Marshal(b.Events[i].Data); err == nil && len(b.Events[i].Data) > 0 {
					b.Events[i].Data = out
				}
			}
		}, "data/byte for byte", "data/one batch", "data/random"),
		changed("a byte order mark is forgiven", func(_ ctx, _ hansard.Store, _ hansard.SessionID, b *hansard.Batch) {
			for i := range b.Events {
				b.Events[i].Data = bytes.TrimPrefix(b.Events[i].Data, []byte("\ufeff"))
			}
		}, "data/invalid", "append/all or nothing"),
		changed("the caller's seq and time are dropped in silence", func(_ ctx, _ hansard.Store, _ hansard.SessionID, b *hansard.Batch) {
			for i := range b.Events {
				b.Events[i].Seq, b.Events[i].Time = 0, time.Time{}
			}
		}, "append/store sets"),
		changed("every append creates", func(_ ctx, _ hansard.Store, _ hansard.SessionID, b *hansard.Batch) { b.Create = true },
			"append/unknown session", "expect/new session"),
		changed("the turn is ignored", func(_ ctx, _ hansard.Store, _ hansard.SessionID, b *hansard.Batch) { b.Turn = "" },
			"append/fenced", "append/failed create", "append/order of checks"),
		changed("expect is ignored", func(_ ctx, _ hansard.Store, _ hansard.SessionID, b *hansard.Batch) { b.Expect = nil },
			"expect/conflict", "expect/race", "patch/atomic", "patch/race"),
		changed("expect is off by one", func(_ ctx, _ hansard.Store, _ hansard.SessionID, b *hansard.Batch) {
			if b.Expect != nil {
				b.Expect = hansard.At(*b.Expect + 1)
			}
		}, "expect/holds"),
		changed("expect is ignored by the append that creates", func(c ctx, s hansard.Store, id hansard.SessionID, b *hansard.Batch) {
			if b.Create && lacking(c, s, id) {
				b.Expect = nil
			}
		}, "expect/new session", "append/failed create"),
		changed("the session is made before the batch is checked", func(c ctx, s hansard.Store, id hansard.SessionID, b *hansard.Batch) {
			if b.Create && lacking(c, s, id) {
				s.Create(c, id, hansard.Meta{})
			}
		}, "append/failed create"),
		changed("a session is seen before its first batch", func(c ctx, s hansard.Store, id hansard.SessionID, b *hansard.Batch) {
			if b.Create && lacking(c, s, id) {
				s.Create(c, id, hansard.Meta{})
				time.Sleep(5 * time.Millisecond) // it takes a reader a while to come round
			}
		}, "concurrent/appearing"),
		changed("events that are to be stored apart are stored together", func(_ ctx, _ hansard.Store, _ hansard.SessionID, b *hansard.Batch) {
			b.Apart = false
		}, "fork/apart"),
		changed("events without ids are stored apart", func(_ ctx, _ hansard.Store, _ hansard.SessionID, b *hansard.Batch) {
			for i := range b.Events {
				if b.Apart && b.Events[i].ID == "" {
					b.Events[i].ID = "given"
				}
			}
		}, "fork/apart"),
		changed("a long key is cut", func(_ ctx, _ hansard.Store, _ hansard.SessionID, b *hansard.Batch) {
			b.Key = b.Key[:min(len(b.Key), hansard.MaxKeyBytes)]
		}, "data/limits"),
		after("a batch's first seq is off by one", func(_ ctx, _ hansard.Store, _ hansard.SessionID, b hansard.Batch, r hansard.Receipt, err error) (hansard.Receipt, error) {
			if len(b.Events) > 1 {
				r.First++
			}
			return r, err
		}, "append/batch", "key/replay", "concurrent/one session"),
		after("half a batch is stored on a conflict", func(c ctx, s hansard.Store, id hansard.SessionID, b hansard.Batch, r hansard.Receipt, err error) (hansard.Receipt, error) {
			if errors.Is(err, hansard.ErrConflict) && len(b.Events) > 1 {
				s.Append(c, id, hansard.Batch{Events: b.Events[:1]})
			}
			return r, err
		}, "expect/conflict"),
		after("the valid part of a refused batch is stored", func(c ctx, s hansard.Store, id hansard.SessionID, b hansard.Batch, r hansard.Receipt, err error) (hansard.Receipt, error) {
			if errors.Is(err, hansard.ErrInvalid) && len(b.Events) > 1 {
				s.Append(c, id, hansard.Batch{Events: b.Events[:1]})
			}
			return r, err
		}, "append/all or nothing"),
		after("the create flag begins the metadata afresh", func(c ctx, s hansard.Store, id hansard.SessionID, b hansard.Batch, r hansard.Receipt, err error) (hansard.Receipt, error) {
			if err == nil && b.Create && r.First > 1 {
				s.Append(c, id, hansard.Batch{Patch: &hansard.Patch{Labels: map[string]*string{"team": nil}}})
			}
			return r, err
		}, "append/create"),
		{name: "the largest batch is refused", caught: []string{"data/largest batch"}, plant: inner(func(b *broken, s hansard.Store) {
			b.append = func(c ctx, id hansard.SessionID, batch hansard.Batch) (hansard.Receipt, error) {
				if total(&batch) >= hansard.MaxBatchBytes {
					return hansard.Receipt{}, &hansard.InvalidError{Field: "batch", TooLarge: true}
				}
				return s.Append(c, id, batch)
			}
		})},
		{name: "the batch of most events is refused", caught: []string{"data/most events"}, plant: inner(func(b *broken, s hansard.Store) {
			b.append = func(c ctx, id hansard.SessionID, batch hansard.Batch) (hansard.Receipt, error) {
				if len(batch.Events) >= hansard.MaxBatchEvents {
					return hansard.Receipt{}, &hansard.InvalidError{Field: "batch", TooLarge: true}
				}
				return s.Append(c, id, batch)
			}
		})},
		{name: "the context is ignored", caught: []string{"append/cancelled", "create/cancelled"}, plant: inner(func(b *broken, s hansard.Store) {
			b.append = func(c ctx, id hansard.SessionID, batch hansard.Batch) (hansard.Receipt, error) {
				return s.Append(context.WithoutCancel(c), id, batch)
			}
		})},
		{name: "a batch is stored in two halves", caught: []string{"concurrent/one session", "concurrent/large and small", "concurrent/appearing", "processes/one session"},
			plant: inner(func(b *broken, s hansard.Store) {
				b.append = func(c ctx, id hansard.SessionID, batch hansard.Batch) (hansard.Receipt, error) {
					if len(batch.Events) < 2 || batch.Key != "" {
						return s.Append(c, id, batch)
					}
					rest := batch
					batch.Events, rest.Events = batch.Events[:1], batch.Events[1:]
					r, err := s.Append(c, id, batch)
					if err == nil {
						dawdle()
						var second hansard.Receipt
						second, err = s.Append(c, id, rest)
						r.Last = second.Last
					}
					return r, err
				}
			})},
		{name: "the seq is taken outside the commit", caught: []string{"concurrent/one session", "history/linearizable"},
			plant: inner(func(b *broken, s hansard.Store) {
				b.append = func(c ctx, id hansard.SessionID, batch hansard.Batch) (hansard.Receipt, error) {
					info, _ := s.Stat(c, id)
					dawdle()
					r, err := s.Append(c, id, batch)
					if err == nil && !r.Replayed {
						r.Last = info.LastSeq + 1 + r.Last - r.First
						r.First = info.LastSeq + 1
					}
					return r, err
				}
			})},
		{name: "expect is compared outside the commit", caught: []string{"expect/race", "patch/race", "processes/counter"},
			plant: inner(func(b *broken, s hansard.Store) {
				b.append = func(c ctx, id hansard.SessionID, batch hansard.Batch) (hansard.Receipt, error) {
					info, err := s.Stat(c, id)
					if err == nil && batch.Expect != nil && *batch.Expect == info.LastSeq {
						batch.Expect = nil
						dawdle()
					}
					return s.Append(c, id, batch)
				}
			})},
		{name: "now and then an append goes to another session", caught: []string{"concurrent/many sessions", "processes/many sessions"},
			plant: inner(func(b *broken, s hansard.Store) {
				var n atomic.Int64
				b.append = func(c ctx, id hansard.SessionID, batch hansard.Batch) (hansard.Receipt, error) {
					if n.Add(1)%97 != 0 {
						return s.Append(c, id, batch)
					}
					r, err := s.Append(c, "s0", batch)
					r.Session = id
					return r, err
				}
			})},
		{name: "now and then an acknowledged batch is not stored", caught: []string{"concurrent/one session", "processes/killed"},
			plant: inner(func(b *broken, s hansard.Store) {
				var n atomic.Int64
				b.append = func(c ctx, id hansard.SessionID, batch hansard.Batch) (hansard.Receipt, error) {
					info, err := s.Stat(c, id)
					if n.Add(1)%53 != 0 || err != nil {
						return s.Append(c, id, batch)
					}
					return hansard.Receipt{Session: id, First: info.LastSeq + 1, Last: info.LastSeq + hansard.Seq(len(batch.Events))}, nil
				}
			})},
		{name: "ids are folded", caught: []string{"create/valid id", "create/twins"}, plant: inner(func(b *broken, s hansard.Store) {
			fold := func(id hansard.SessionID) hansard.SessionID { return hansard.SessionID(strings.ToLower(string(id))) }
			b.create = func(c ctx, id hansard.SessionID, m hansard.Meta) (hansard.Info, error) {
				return s.Create(c, fold(id), m)
			}
			b.append = func(c ctx, id hansard.SessionID, batch hansard.Batch) (hansard.Receipt, error) {
				return s.Append(c, fold(id), batch)
			}
			b.stat = func(c ctx, id hansard.SessionID) (hansard.Info, error) { return s.Stat(c, fold(id)) }
		})},
		{name: "an id is taken for a path", caught: []string{"create/invalid id"}, plant: inner(func(b *broken, s hansard.Store) {
			b.stat = func(c ctx, id hansard.SessionID) (hansard.Info, error) {
				return s.Stat(c, hansard.SessionID(path.Base(string(id))))
			}
		})},
	}
}

func keyMutants() []mutant {
	type ctx = context.Context
	used := func(act func(c ctx, s hansard.Store, id hansard.SessionID, b hansard.Batch, seen *sync.Map) (hansard.Receipt, error)) plant {
		return inner(func(b *broken, s hansard.Store) {
			var seen sync.Map
			b.append = func(c ctx, id hansard.SessionID, batch hansard.Batch) (hansard.Receipt, error) {
				if batch.Key == "" {
					return s.Append(c, id, batch)
				}
				return act(c, s, id, batch, &seen)
			}
		})
	}
	refuse := func(id hansard.SessionID, b hansard.Batch) (hansard.Receipt, error) {
		return hansard.Receipt{}, &hansard.KeyReusedError{Session: id, Key: b.Key}
	}
	return []mutant{
		{name: "a replay does not say so", caught: []string{"key/replay", "key/race"},
			plant: used(func(c ctx, s hansard.Store, id hansard.SessionID, b hansard.Batch, _ *sync.Map) (hansard.Receipt, error) {
				r, err := s.Append(c, id, b)
				r.Replayed = false
				return r, err
			})},
		{name: "a replay stores again", caught: []string{"key/replay", "data/one batch"},
			plant: used(func(c ctx, s hansard.Store, id hansard.SessionID, b hansard.Batch, _ *sync.Map) (hansard.Receipt, error) {
				r, err := s.Append(c, id, b)
				if r.Replayed {
					b.Key = ""
					s.Append(c, id, b)
				}
				return r, err
			})},
		{name: "a key is forgotten after other content", caught: []string{"key/reused", "key/lives long"},
			plant: used(func(c ctx, s hansard.Store, id hansard.SessionID, b hansard.Batch, _ *sync.Map) (hansard.Receipt, error) {
				r, err := s.Append(c, id, b)
				if errors.Is(err, hansard.ErrKeyReused) {
					b.Key = ""
					return s.Append(c, id, b)
				}
				return r, err
			})},
		{name: "a replay does not compare the patch", caught: []string{"key/reused"},
			plant: used(func(c ctx, s hansard.Store, id hansard.SessionID, b hansard.Batch, seen *sync.Map) (hansard.Receipt, error) {
				if old, ok := seen.Load(b.Key); ok {
					first := old.(hansard.Batch)
					b.Patch = first.Patch
				}
				seen.Store(b.Key, b)
				return s.Append(c, id, b)
			})},
		{name: "conditions count as content", caught: []string{"key/same content"},
			plant: used(func(c ctx, s hansard.Store, id hansard.SessionID, b hansard.Batch, seen *sync.Map) (hansard.Receipt, error) {
				if old, loaded := seen.LoadOrStore(string(id)+b.Key, b.Expect != nil); loaded && old != (b.Expect != nil) {
					return refuse(id, b)
				}
				return s.Append(c, id, b)
			})},
		{name: "the expectation comes before the key", caught: []string{"key/outlives conditions", "append/order of checks"},
			plant: used(func(c ctx, s hansard.Store, id hansard.SessionID, b hansard.Batch, _ *sync.Map) (hansard.Receipt, error) {
				info, err := s.Stat(c, id)
				if err == nil && b.Expect != nil && *b.Expect != info.LastSeq {
					return hansard.Receipt{}, &hansard.ConflictError{Session: id, Expected: *b.Expect, Actual: info.LastSeq}
				}
				return s.Append(c, id, b)
			})},
		{name: "keys are shared by all sessions", caught: []string{"key/per session", "create/twins"},
			plant: used(func(c ctx, s hansard.Store, id hansard.SessionID, b hansard.Batch, seen *sync.Map) (hansard.Receipt, error) {
				if first, loaded := seen.LoadOrStore(b.Key, id); loaded && first != id {
					return refuse(id, b)
				}
				return s.Append(c, id, b)
			})},
		{name: "an append that failed burns its key", caught: []string{"key/failed", "patch/over a limit"},
			plant: used(func(c ctx, s hansard.Store, id hansard.SessionID, b hansard.Batch, seen *sync.Map) (hansard.Receipt, error) {
				if _, burnt := seen.Load(b.Key); burnt {
					return refuse(id, b)
				}
				r, err := s.Append(c, id, b)
				if errors.Is(err, hansard.ErrConflict) || errors.Is(err, hansard.ErrTooLarge) {
					seen.Store(b.Key, true)
				}
				return r, err
			})},
		{name: "a replay applies its patch again", caught: []string{"key/patch once"},
			plant: used(func(c ctx, s hansard.Store, id hansard.SessionID, b hansard.Batch, _ *sync.Map) (hansard.Receipt, error) {
				r, err := s.Append(c, id, b)
				if r.Replayed && b.Patch != nil {
					s.Append(c, id, hansard.Batch{Patch: b.Patch})
				}
				return r, err
			})},
		{name: "only the newest keys are known", caught: []string{"key/lives long"},
			plant: used(func(c ctx, s hansard.Store, id hansard.SessionID, b hansard.Batch, seen *sync.Map) (hansard.Receipt, error) {
				info, _ := s.Stat(c, id)
				if at, ok := seen.LoadOrStore(b.Key, info.LastSeq); ok && info.LastSeq-at.(hansard.Seq) > 1000 {
					b.Key = "" // forgotten
				}
				return s.Append(c, id, b)
			})},
		{name: "a key is looked up outside the commit", caught: []string{"key/race", "processes/one key"},
			plant: used(func(c ctx, s hansard.Store, id hansard.SessionID, b hansard.Batch, seen *sync.Map) (hansard.Receipt, error) {
				if first, ok := seen.Load(b.Key); ok {
					r := first.(hansard.Receipt)
					r.Replayed = true
					return r, nil
				}
				dawdle()
				key := b.Key
				b.Key = ""
				r, err := s.Append(c, id, b)
				if err == nil {
					seen.Store(key, r)
				}
				return r, err
			})},
		{name: "a reused key does not tell where", caught: []string{"key/reused", "model/random operations"},
			plant: used(func(c ctx, s hansard.Store, id hansard.SessionID, b hansard.Batch, _ *sync.Map) (hansard.Receipt, error) {
				r, err := s.Append(c, id, b)
				if errors.Is(err, hansard.ErrKeyReused) {
					err = fmt.Errorf("append: %w", hansard.ErrKeyReused)
				}
				return r, err
			})},
	}
}
