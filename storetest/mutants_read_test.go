package storetest

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"hansard"
	"hansard/engine"
)

// metaMutants break how sessions are made and described.
func metaMutants() []mutant {
	type ctx = context.Context
	// seen makes a mutant that describes sessions wrongly, in Stat and List.
	seen := func(name string, change func(i *hansard.Info), caught ...string) mutant {
		return mutant{name: name, caught: caught, plant: inner(func(b *broken, s hansard.Store) {
			b.stat = func(c ctx, id hansard.SessionID) (hansard.Info, error) {
				info, err := s.Stat(c, id)
				change(&info)
				return info, err
			}
			b.list = func(c ctx, q hansard.Query) iter.Seq2[hansard.Info, error] {
				infos, err := listAll(c, s, q)
				for i := range infos {
					change(&infos[i])
				}
				return infosOf(infos, err)
			}
		})}
	}
	creating := func(name string, create func(c ctx, s hansard.Store, id hansard.SessionID, m hansard.Meta) (hansard.Info, error), caught ...string) mutant {
		return mutant{name: name, caught: caught, plant: inner(func(b *broken, s hansard.Store) {
			b.create = func(c ctx, id hansard.SessionID, m hansard.Meta) (hansard.Info, error) { return create(c, s, id, m) }
		})}
	}
	patching := func(name string, change func(c ctx, s hansard.Store, id hansard.SessionID, b hansard.Batch) (hansard.Receipt, error), caught ...string) mutant {
		return mutant{name: name, caught: caught, plant: inner(func(b *broken, s hansard.Store) {
			b.append = func(c ctx, id hansard.SessionID, batch hansard.Batch) (hansard.Receipt, error) {
				if batch.Patch == nil {
					return s.Append(c, id, batch)
				}
				p := *batch.Patch
				batch.Patch = &p
				return change(c, s, id, batch)
			}
		})}
	}
	return []mutant{
		seen("labels without a value are lost", func(i *hansard.Info) {
			maps.DeleteFunc(i.Labels, func(_, v string) bool { return v == "" })
		}, "create/describes"),
		seen("no state is nothing", func(i *hansard.Info) {
			if string(i.State) == "null" {
				i.State = nil
			}
		}, "create/plain"),
		seen("looking counts as use", func(i *hansard.Info) { i.Updated = engine.Now() }, "read/changes nothing"),
		creating("an existing session is as good as a new one", func(c ctx, s hansard.Store, id hansard.SessionID, m hansard.Meta) (hansard.Info, error) {
			info, err := s.Create(c, id, m)
			if errors.Is(err, hansard.ErrExists) {
				return s.Stat(c, id)
			}
			return info, err
		}, "create/exists", "create/race", "processes/registrations"),
		creating("a long title is cut", func(c ctx, s hansard.Store, id hansard.SessionID, m hansard.Meta) (hansard.Info, error) {
			m.Title = m.Title[:min(len(m.Title), hansard.MaxTitleBytes)]
			return s.Create(c, id, m)
		}, "create/invalid meta"),
		{name: "descriptions share memory", caught: []string{"create/memory"}, plant: inner(func(b *broken, s hansard.Store) {
			var cache sync.Map
			b.stat = func(c ctx, id hansard.SessionID) (hansard.Info, error) {
				info, err := s.Stat(c, id)
				if old, ok := cache.Load(id); ok && old.(hansard.Info).LastSeq == info.LastSeq {
					return old.(hansard.Info), err
				}
				cache.Store(id, info)
				return info, err
			}
		})},
		{name: "Stat is one answer behind", caught: []string{"history/linearizable"}, plant: inner(func(b *broken, s hansard.Store) {
			var before sync.Map
			b.stat = func(c ctx, id hansard.SessionID) (hansard.Info, error) {
				info, err := s.Stat(c, id)
				if old, ok := before.Swap(id, info); ok && err == nil {
					return old.(hansard.Info), nil
				}
				return info, err
			}
		})},
		patching("a removed label stays, empty", func(c ctx, s hansard.Store, id hansard.SessionID, b hansard.Batch) (hansard.Receipt, error) {
			b.Patch.Labels = maps.Clone(b.Patch.Labels)
			for k, v := range b.Patch.Labels {
				if v == nil {
					b.Patch.Labels[k] = ptr("")
				}
			}
			return s.Append(c, id, b)
		}, "patch/title and labels", "list/filters"),
		patching("a patch alone is an ordinary event", func(c ctx, s hansard.Store, id hansard.SessionID, b hansard.Batch) (hansard.Receipt, error) {
			if len(b.Events) == 0 {
				b.Events = []hansard.Event{{Data: []byte("null")}}
			}
			return s.Append(c, id, b)
		}, "patch/alone"),
		patching("the patch of a refused batch is applied", func(c ctx, s hansard.Store, id hansard.SessionID, b hansard.Batch) (hansard.Receipt, error) {
			r, err := s.Append(c, id, b)
			if errors.Is(err, hansard.ErrConflict) {
				s.Append(c, id, hansard.Batch{Patch: b.Patch})
			}
			return r, err
		}, "patch/atomic", "expect/conflict"),
		patching("a patch over a limit is left out", func(c ctx, s hansard.Store, id hansard.SessionID, b hansard.Batch) (hansard.Receipt, error) {
			r, err := s.Append(c, id, b)
			if errors.Is(err, hansard.ErrTooLarge) && len(b.Events) > 0 {
				b.Patch = nil
				return s.Append(c, id, b)
			}
			return r, err
		}, "patch/over a limit", "append/order of checks"),
		{name: "a state patch replaces the state", caught: []string{"patch/state", "patch/a thousand"}, plant: inner(func(b *broken, s hansard.Store) {
			b.stat = func(c ctx, id hansard.SessionID) (hansard.Info, error) {
				info, err := s.Stat(c, id)
				events, _ := readRange(c, s, id, hansard.Range{})
				for _, e := range events {
					if e.Patch != nil && len(e.Patch.State) > 0 {
						info.State = e.Patch.State
					}
				}
				return info, err
			}
		})},
	}
}

// readMutants break what Read gives.
func readMutants() []mutant {
	type ctx = context.Context
	// given makes a mutant that changes what a reading gives.
	given := func(name string, change func(r hansard.Range, events []hansard.Event) []hansard.Event, caught ...string) mutant {
		return mutant{name: name, caught: caught, plant: inner(func(b *broken, s hansard.Store) {
			b.read = func(c ctx, id hansard.SessionID, r hansard.Range) iter.Seq2[hansard.Event, error] {
				return func(yield func(hansard.Event, error) bool) {
					events, err := readRange(c, s, id, r)
					eventsOf(change(r, events), err)(yield)
				}
			}
		})}
	}
	asked := func(name string, change func(r *hansard.Range), caught ...string) mutant {
		return mutant{name: name, caught: caught, plant: inner(func(b *broken, s hansard.Store) {
			b.read = func(c ctx, id hansard.SessionID, r hansard.Range) iter.Seq2[hansard.Event, error] {
				change(&r)
				return s.Read(c, id, r)
			}
		})}
	}
	var cache sync.Map // of events, for the mutant that shares them
	return []mutant{
		given("the patch of an event is lost", func(_ hansard.Range, events []hansard.Event) []hansard.Event {
			for i := range events {
				events[i].Patch = nil
			}
			return events
		}, "patch/alone", "patch/with events", "append/every field"),
		given("an event has the time of its reading", func(_ hansard.Range, events []hansard.Event) []hansard.Event {
			for i := range events {
				events[i].Time = time.Now().UTC()
			}
			return events
		}, "append/times"),
		given("readings share memory", func(_ hansard.Range, events []hansard.Event) []hansard.Event {
			for i, e := range events {
				// one log only, so the time tells events of two runs apart
				shared, _ := cache.LoadOrStore([2]any{e.Seq, e.Time.UnixNano()}, e)
				events[i] = shared.(hansard.Event)
			}
			return events
		}, "append/memory"),
		{name: "the data of a redacted event is lent", caught: []string{"read/lent"}, plant: inner(func(b *broken, s hansard.Store) {
			b.lend = func(c ctx, id hansard.SessionID, r hansard.Range, show func(*hansard.Event) bool) error {
				return hansard.Lend(c, s, id, r, func(e *hansard.Event) bool {
					if e.Redacted {
						e.Data = []byte(`"secret"`)
					}
					return show(e)
				})
			}
		})},
		{name: "lending does not stop", caught: []string{"read/lent"}, plant: inner(func(b *broken, s hansard.Store) {
			b.lend = func(c ctx, id hansard.SessionID, r hansard.Range, show func(*hansard.Event) bool) error {
				return hansard.Lend(c, s, id, r, func(e *hansard.Event) bool { show(e); return true })
			}
		})},
		given("events of a reading overlap in memory", func(_ hansard.Range, events []hansard.Event) []hansard.Event {
			var room []byte
			for _, e := range events {
				room = append(room, e.Data...)
			}
			for i, begin := 0, 0; i < len(events); i++ {
				end := begin + len(events[i].Data)
				events[i].Data, begin = room[begin:end], end // without its own end
			}
			return events
		}, "read/kept"),
		{name: "last N ignores the kinds", caught: []string{"read/range", "read/random ranges"},
			plant: inner(func(b *broken, s hansard.Store) {
				b.read = func(c ctx, id hansard.SessionID, r hansard.Range) iter.Seq2[hansard.Event, error] {
					kinds, limit := r.Kinds, r.Limit
					r.Kinds, r.Limit = nil, 0
					events, err := readRange(c, s, id, r)
					events = slices.DeleteFunc(events, func(e hansard.Event) bool { return len(kinds) > 0 && !slices.Contains(kinds, e.Kind) })
					if limit > 0 {
						events = events[:min(limit, len(events))]
					}
					return eventsOf(events, err)
				}
			})},
		asked("after includes the seq itself", func(r *hansard.Range) { r.After -= min(r.After, 1) }, "read/range", "follow/resume", "follow/each once"),
		asked("from the summary forgets after", func(r *hansard.Range) {
			if r.FromSummary {
				r.After = 0
			}
		}, "read/range", "read/random ranges", "model/random operations"),
		asked("a negative limit is none", func(r *hansard.Range) { r.Limit, r.Last = max(0, r.Limit), max(0, r.Last) }, "read/invalid range"),
		asked("two kinds to start from are one", func(r *hansard.Range) {
			if r.FromSummary {
				r.FromKind = ""
			}
		}, "read/invalid range"),
		asked("before is no bound", func(r *hansard.Range) { r.Before = 0 }, "read/before", "read/reverse pages"),
		asked("before includes the seq itself", func(r *hansard.Range) {
			if r.Before > 0 {
				r.Before++
			}
		}, "read/before", "read/reverse pages", "read/random ranges"),
		asked("reverse is not", func(r *hansard.Range) { r.Reverse = false }, "read/reverse", "read/random ranges", "model/random operations"),
		asked("from a kind is from the summary only", func(r *hansard.Range) {
			if r.FromKind != hansard.KindSummary {
				r.FromKind = ""
			}
		}, "read/from kind", "read/random ranges"),
		{name: "a reverse limit counts from the oldest", caught: []string{"read/reverse", "read/random ranges"}, plant: inner(func(b *broken, s hansard.Store) {
			b.read = func(c ctx, id hansard.SessionID, r hansard.Range) iter.Seq2[hansard.Event, error] {
				reverse := r.Reverse
				r.Reverse = false
				events, err := readRange(c, s, id, r)
				if reverse {
					slices.Reverse(events)
				}
				return eventsOf(events, err)
			}
		})},
		given("a page from the end begins one too late", func(r hansard.Range, events []hansard.Event) []hansard.Event {
			if r.Reverse && r.Before > 0 && len(events) > 0 {
				return events[1:]
			}
			return events
		}, "read/reverse pages", "read/reverse"),
		given("a long reading loses its middle", func(r hansard.Range, events []hansard.Event) []hansard.Event {
			if r.After > 0 && len(events) > 50 {
				return events[len(events)-50:]
			}
			return events
		}, "follow/slow"),
		{name: "a reading cut short looks whole", caught: []string{"read/cancelled", "create/cancelled"}, plant: inner(func(b *broken, s hansard.Store) {
			b.read = func(c ctx, id hansard.SessionID, r hansard.Range) iter.Seq2[hansard.Event, error] {
				return func(yield func(hansard.Event, error) bool) {
					for e, err := range s.Read(c, id, r) {
						if errors.Is(err, context.Canceled) || !yield(e, err) {
							return
						}
					}
				}
			}
		})},
		{name: "a reading can be used once", caught: []string{"read/again"}, plant: perHandle(func(b *broken, h, _ hansard.Store, _ int) {
			b.read = func(c ctx, id hansard.SessionID, r hansard.Range) iter.Seq2[hansard.Event, error] {
				var used atomic.Bool
				return func(yield func(hansard.Event, error) bool) {
					if !used.Swap(true) {
						h.Read(c, id, r)(yield)
					}
				}
			}
		})},
		{name: "readers keep writers out", caught: []string{"read/no lock", "follow/slow"}, patience: time.Second, plant: locking(true)},
		{name: "a reading that is left keeps its lock", caught: []string{"read/break", "follow/resume"}, patience: 500 * time.Millisecond, plant: locking(false)},
		{name: "readers see an event once for all of them", caught: []string{"follow/each once"}, patience: time.Second, plant: inner(func(b *broken, s hansard.Store) {
			var mu sync.Mutex // guards taken
			taken := make(map[hansard.Seq]bool)
			b.read = func(c ctx, id hansard.SessionID, r hansard.Range) iter.Seq2[hansard.Event, error] {
				events, err := readRange(c, s, id, r)
				mu.Lock()
				defer mu.Unlock()
				events = slices.DeleteFunc(events, func(e hansard.Event) bool { return taken[e.Seq] })
				for _, e := range events {
					taken[e.Seq] = true
				}
				return eventsOf(events, err)
			}
		})},
	}
}

// locking is a store in which a reading locks the session against appends,
// either as long as it lasts, or for ever when it is left early.
func locking(whole bool) plant {
	return inner(func(b *broken, s hansard.Store) {
		free := make(chan struct{}, 1)
		free <- struct{}{}
		lock := func(c context.Context) error {
			select {
			case <-free:
				return nil
			case <-c.Done():
				return c.Err()
			}
		}
		unlock := func() { free <- struct{}{} }
		b.read = func(c context.Context, id hansard.SessionID, r hansard.Range) iter.Seq2[hansard.Event, error] {
			return func(yield func(hansard.Event, error) bool) {
				if err := lock(c); err != nil {
					yield(hansard.Event{}, err)
					return
				}
				if !whole {
					unlock()
				}
				for e, err := range s.Read(c, id, r) {
					if !yield(e, err) {
						if whole {
							unlock()
						} else {
							lock(c)
						}
						return
					}
				}
				if whole {
					unlock()
				}
			}
		}
		b.append = func(c context.Context, id hansard.SessionID, batch hansard.Batch) (hansard.Receipt, error) {
			if err := lock(c); err != nil {
				return hansard.Receipt{}, err
			}
			defer unlock()
			return s.Append(c, id, batch)
		}
	})
}

// waitMutants break Wait, and Follow with it.
func waitMutants() []mutant {
	type ctx = context.Context
	const soon = 500 * time.Millisecond
	waiting := func(name string, patience time.Duration, wait func(c ctx, s hansard.Store, id hansard.SessionID, after hansard.Seq) error, caught ...string) mutant {
		return mutant{name: name, caught: caught, patience: patience, plant: inner(func(b *broken, s hansard.Store) {
			b.wait = func(c ctx, id hansard.SessionID, after hansard.Seq) error { return wait(c, s, id, after) }
		})}
	}
	forever := func(c ctx) error {
		<-c.Done()
		return c.Err()
	}
	var turns, wakes atomic.Int64
	return []mutant{
		waiting("Wait is for what comes next", soon, func(c ctx, s hansard.Store, id hansard.SessionID, after hansard.Seq) error {
			info, err := s.Stat(c, id)
			if err != nil {
				return err
			}
			return s.Wait(c, id, max(after, info.LastSeq))
		}, "wait/already there"),
		waiting("an append wakes one of those who wait", soon, func(c ctx, s hansard.Store, id hansard.SessionID, after hansard.Seq) error {
			if turns.Add(1)%2 == 0 {
				return forever(c)
			}
			return s.Wait(c, id, after)
		}, "wait/arrives", "follow/each once"),
		waiting("one wake-up in twenty is lost", soon, func(c ctx, s hansard.Store, id hansard.SessionID, after hansard.Seq) error {
			if wakes.Add(1)%20 == 0 {
				after++
			}
			return s.Wait(c, id, after)
		}, "wait/ping pong"),
		waiting("any append wakes", 0, func(c ctx, s hansard.Store, id hansard.SessionID, after hansard.Seq) error {
			info, err := s.Stat(c, id)
			if err != nil {
				return err
			}
			return s.Wait(c, id, min(after, info.LastSeq))
		}, "wait/past the end"),
		waiting("the end of the context is no error", 0, func(c ctx, s hansard.Store, id hansard.SessionID, after hansard.Seq) error {
			if err := s.Wait(c, id, after); c.Err() == nil {
				return err
			}
			return nil
		}, "wait/context"),
		waiting("the context is not waited for", soon, func(c ctx, s hansard.Store, id hansard.SessionID, after hansard.Seq) error {
			c, cancel := context.WithTimeout(context.WithoutCancel(c), 4*soon)
			defer cancel()
			return s.Wait(c, id, after)
		}, "wait/context", "follow/ends"),
		waiting("those who wait are not told of the deletion", soon, func(c ctx, s hansard.Store, id hansard.SessionID, after hansard.Seq) error {
			err := s.Wait(c, id, after)
			if errors.Is(err, hansard.ErrDeleted) {
				return forever(c)
			}
			return err
		}, "wait/deleted", "follow/ends"),
	}
}
