package storetest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"hansard"
	"hansard/engine"
)

// listMutants break what List gives.
func listMutants() []mutant {
	type ctx = context.Context
	listing := func(name string, list func(c ctx, s hansard.Store, q hansard.Query) ([]hansard.Info, error), caught ...string) mutant {
		return mutant{name: name, caught: caught, plant: inner(func(b *broken, s hansard.Store) {
			b.list = func(c ctx, q hansard.Query) iter.Seq2[hansard.Info, error] {
				return func(yield func(hansard.Info, error) bool) { infosOf(list(c, s, q))(yield) }
			}
		})}
	}
	counting := func(name string, wrong func(n int, q hansard.Query, deleted int) int, caught ...string) mutant {
		return mutant{name: name, caught: caught, plant: inner(func(b *broken, s hansard.Store) {
			deleted := 0
			b.delete = func(c ctx, id hansard.SessionID, turn hansard.Grant) error {
				deleted++
				return s.Delete(c, id, turn)
			}
			b.count = func(c ctx, q hansard.Query) (int, error) {
				n, err := hansard.Count(c, s, q)
				return wrong(n, q, deleted), err
			}
		})}
	}
	return []mutant{
		listing("the list is by creation", func(c ctx, s hansard.Store, q hansard.Query) ([]hansard.Info, error) {
			infos, err := listAll(c, s, q)
			slices.SortFunc(infos, func(a, b hansard.Info) int { return b.Created.Compare(a.Created) })
			return infos, err
		}, "list/newest first"),
		listing("the list drops one", func(c ctx, s hansard.Store, q hansard.Query) ([]hansard.Info, error) {
			infos, err := listAll(c, s, q)
			return infos[min(len(infos), 1):], err
		}, "list/newest first", "list/registrations", "list/complete", "create/describes"),
		listing("any label is enough", func(c ctx, s hansard.Store, q hansard.Query) ([]hansard.Info, error) {
			if len(q.Labels) > 1 {
				q.Labels = map[string]string{"env": q.Labels["env"]}
			}
			return listAll(c, s, q)
		}, "list/filters"),
		listing("text is compared with case", func(c ctx, s hansard.Store, q hansard.Query) ([]hansard.Info, error) {
			infos, err := listAll(c, s, q)
			return slices.DeleteFunc(infos, func(i hansard.Info) bool {
				return !strings.Contains(string(i.ID), q.Text) && !strings.Contains(i.Title, q.Text)
			}), err
		}, "list/filters"),
		listing("a page begins one too late", func(c ctx, s hansard.Store, q hansard.Query) ([]hansard.Info, error) {
			infos, err := listAll(c, s, q)
			if q.Cursor != "" {
				infos = infos[min(len(infos), 1):]
			}
			return infos, err
		}, "list/pages", "model/random operations"),
		listing("a bad cursor is the beginning", func(c ctx, s hansard.Store, q hansard.Query) ([]hansard.Info, error) {
			infos, err := listAll(c, s, q)
			if errors.Is(err, hansard.ErrInvalid) && q.Limit >= 0 {
				q.Cursor = ""
				return listAll(c, s, q)
			}
			return infos, err
		}, "list/invalid"),
		listing("a cursor of another order is the beginning", func(c ctx, s hansard.Store, q hansard.Query) ([]hansard.Info, error) {
			if other := (hansard.Query{Order: 1 - q.Order, Cursor: q.Cursor}); q.Cursor != "" {
				if _, err := engine.ParseCursor(&other); err == nil {
					q.Cursor = ""
				}
			}
			return listAll(c, s, q)
		}, "list/invalid"),
		listing("every order is by update", func(c ctx, s hansard.Store, q hansard.Query) ([]hansard.Info, error) {
			infos, err := listAll(c, s, q)
			slices.SortFunc(infos, byNewer)
			return infos, err
		}, "list/created"),
		listing("by creation is by id", func(c ctx, s hansard.Store, q hansard.Query) ([]hansard.Info, error) {
			infos, err := listAll(c, s, q)
			if q.Order == hansard.OrderCreated {
				slices.SortFunc(infos, func(a, b hansard.Info) int { return strings.Compare(string(b.ID), string(a.ID)) })
			}
			return infos, err
		}, "list/created", "list/pages"),
		listing("a prefix is found anywhere", func(c ctx, s hansard.Store, q hansard.Query) ([]hansard.Info, error) {
			if q.Prefix != "" {
				q.Text, q.Prefix = q.Prefix, ""
			}
			return listAll(c, s, q)
		}, "list/prefix"),
		listing("a prefix ignores case", func(c ctx, s hansard.Store, q hansard.Query) ([]hansard.Info, error) {
			prefix := q.Prefix
			q.Prefix = ""
			infos, err := listAll(c, s, q)
			return slices.DeleteFunc(infos, func(i hansard.Info) bool {
				return !strings.HasPrefix(strings.ToLower(string(i.ID)), strings.ToLower(prefix))
			}), err
		}, "list/prefix"),
		listing("ids are ignored", func(c ctx, s hansard.Store, q hansard.Query) ([]hansard.Info, error) {
			q.IDs = nil
			return listAll(c, s, q)
		}, "list/ids", "list/invalid"),
		listing("of many ids some are forgotten", func(c ctx, s hansard.Store, q hansard.Query) ([]hansard.Info, error) {
			q.IDs = q.IDs[:min(len(q.IDs), 5)]
			return listAll(c, s, q)
		}, "list/ids", "list/invalid"),
		listing("what changed between pages does not come again", func(c ctx, s hansard.Store, q hansard.Query) ([]hansard.Info, error) {
			infos, err := listAll(c, s, q)
			if cursor, _ := engine.ParseCursor(&q); cursor.ID != "" {
				infos = slices.DeleteFunc(infos, func(i hansard.Info) bool { return !cursor.InRest(&i) })
			}
			return infos, err
		}, "list/pages while written"),
		listing("what comes again is by update", func(c ctx, s hansard.Store, q hansard.Query) ([]hansard.Info, error) {
			cursor, err := engine.ParseCursor(&q)
			if err != nil || cursor.ID == "" || q.Order != hansard.OrderUpdated {
				return listAll(c, s, q)
			}
			all, err := listAll(c, s, hansard.Query{Prefix: q.Prefix, Labels: q.Labels, Text: q.Text, IDs: q.IDs})
			page := slices.DeleteFunc(slices.Clone(all), func(i hansard.Info) bool { return !cursor.InRest(&i) })
			rest := len(page)
			for _, i := range all {
				at := i.Updated.Before(cursor.At) || i.Updated.Equal(cursor.At) && i.ID < cursor.ID
				if cursor.Again && at || !cursor.Again && !cursor.InRest(&i) {
					page = append(page, i)
				}
			}
			for n := range page {
				page[n].Created = page[n].Updated
			}
			if q.Limit > 0 {
				page = page[:min(len(page), q.Limit)]
			}
			cursor.Mark(page, rest, engine.Now())
			return page, err
		}, "list/pages while written"),
		listing("the times of creation do not count", func(c ctx, s hansard.Store, q hansard.Query) ([]hansard.Info, error) {
			q.CreatedSince, q.CreatedBefore = time.Time{}, time.Time{}
			return listAll(c, s, q)
		}, "list/ranges"),
		listing("before has its end in it", func(c ctx, s hansard.Store, q hansard.Query) ([]hansard.Info, error) {
			if !q.Before.IsZero() {
				q.Before = q.Before.Add(time.Microsecond)
			}
			return listAll(c, s, q)
		}, "list/ranges"),
		listing("held is ignored", func(c ctx, s hansard.Store, q hansard.Query) ([]hansard.Info, error) {
			q.Held = false
			return listAll(c, s, q)
		}, "list/held"),
		listing("held is for ever", func(c ctx, s hansard.Store, q hansard.Query) ([]hansard.Info, error) {
			if q.Held {
				q.Held = false
				infos, err := listAll(c, s, q)
				return slices.DeleteFunc(infos, func(i hansard.Info) bool { return i.LastSeq == 0 }), err
			}
			return listAll(c, s, q)
		}, "list/held"),
		listing("damaged is ignored", func(c ctx, s hansard.Store, q hansard.Query) ([]hansard.Info, error) {
			q.Damaged = false
			return listAll(c, s, q)
		}, "list/held"),
		listing("archived is true or it is nothing", func(c ctx, s hansard.Store, q hansard.Query) ([]hansard.Info, error) {
			archived := q.Archived
			q.Archived = hansard.ArchivedAny
			infos, err := listAll(c, s, q)
			return slices.DeleteFunc(infos, func(i hansard.Info) bool {
				return archived != hansard.ArchivedAny && (i.Labels[hansard.LabelArchived] == "true") != (archived == hansard.ArchivedOnly)
			}), err
		}, "list/archived"),
		listing("archived ones are never listed", func(c ctx, s hansard.Store, q hansard.Query) ([]hansard.Info, error) {
			if q.Archived == hansard.ArchivedAny {
				q.Archived = hansard.ArchivedNo
			}
			return listAll(c, s, q)
		}, "list/archived"),
		counting("deleted ones are counted", func(n int, q hansard.Query, deleted int) int { return n + deleted }, "list/count"),
		counting("the limit cuts the count", func(n int, q hansard.Query, _ int) int {
			if q.Limit > 0 {
				return min(n, q.Limit)
			}
			return n
		}, "list/count"),
		counting("filters do not count", func(n int, q hansard.Query, _ int) int {
			if q.Labels != nil {
				return n + 1
			}
			return n
		}, "list/count", "list/held", "list/archived"),
		{name: "the index is read, changed and written", caught: []string{"list/registrations", "list/complete", "processes/registrations"},
			plant: inner(func(b *broken, s hansard.Store) {
				var index atomic.Value
				index.Store([]hansard.SessionID{})
				register := func(id hansard.SessionID) {
					known := slices.Clone(index.Load().([]hansard.SessionID))
					dawdle()
					index.Store(append(known, id))
				}
				b.create = func(c ctx, id hansard.SessionID, m hansard.Meta) (hansard.Info, error) {
					info, err := s.Create(c, id, m)
					if err == nil {
						register(id)
					}
					return info, err
				}
				b.append = func(c ctx, id hansard.SessionID, batch hansard.Batch) (hansard.Receipt, error) {
					r, err := s.Append(c, id, batch)
					if err == nil && r.First == 1 {
						register(id)
					}
					return r, err
				}
				b.list = func(c ctx, q hansard.Query) iter.Seq2[hansard.Info, error] {
					infos, err := listAll(c, s, q)
					known := index.Load().([]hansard.SessionID)
					return infosOf(slices.DeleteFunc(infos, func(i hansard.Info) bool { return !slices.Contains(known, i.ID) }), err)
				}
			})},
		{name: "a list keeps writers out", caught: []string{"list/break"}, patience: time.Second, plant: inner(func(b *broken, s hansard.Store) {
			var listing atomic.Int32
			b.list = func(c ctx, q hansard.Query) iter.Seq2[hansard.Info, error] {
				return func(yield func(hansard.Info, error) bool) {
					listing.Add(1)
					defer listing.Add(-1)
					s.List(c, q)(yield)
				}
			}
			b.append = func(c ctx, id hansard.SessionID, batch hansard.Batch) (hansard.Receipt, error) {
				for listing.Load() > 0 {
					if err := c.Err(); err != nil {
						return hansard.Receipt{}, err
					}
					dawdle()
				}
				return s.Append(c, id, batch)
			}
		})},
	}
}

// deleteMutants break the tombstone.
func deleteMutants() []mutant {
	type ctx = context.Context
	return []mutant{
		{name: "the create flag revives the deleted", caught: []string{"delete/stays deleted", "delete/racing appends", "processes/deleted", "append/order of checks"},
			plant: inner(func(b *broken, s hansard.Store) {
				var revived atomic.Uint64
				b.append = func(c ctx, id hansard.SessionID, batch hansard.Batch) (hansard.Receipt, error) {
					r, err := s.Append(c, id, batch)
					// Once a session is enough, or writers would not end.
					if errors.Is(err, hansard.ErrDeleted) && batch.Create && revived.Add(1)%8 != 0 {
						return hansard.Receipt{Session: id, First: 1, Last: hansard.Seq(len(batch.Events))}, nil
					}
					return r, err
				}
			})},
		{name: "deleted is not found", caught: []string{"delete/stays deleted", "delete/empty"}, plant: inner(func(b *broken, s hansard.Store) {
			b.stat = func(c ctx, id hansard.SessionID) (hansard.Info, error) {
				info, err := s.Stat(c, id)
				if errors.Is(err, hansard.ErrDeleted) {
					err = hansard.ErrNotFound
				}
				return info, err
			}
		})},
		{name: "deleting goes by the beginning of the id", caught: []string{"delete/not listed", "create/twins"}, plant: inner(func(b *broken, s hansard.Store) {
			b.delete = func(c ctx, id hansard.SessionID, turn hansard.Grant) error {
				err := s.Delete(c, id, turn)
				infos, _ := listAll(c, s, hansard.Query{})
				for _, i := range infos {
					if strings.HasPrefix(strings.ToLower(string(i.ID)), strings.ToLower(string(id))) {
						s.Delete(c, i.ID, "")
					}
				}
				return err
			}
		})},
		{name: "keys outlive the session", caught: []string{"delete/key"}, plant: inner(func(b *broken, s hansard.Store) {
			var seen sync.Map
			b.append = func(c ctx, id hansard.SessionID, batch hansard.Batch) (hansard.Receipt, error) {
				r, err := s.Append(c, id, batch)
				if err == nil {
					seen.Store(batch.Key, r)
				}
				if old, ok := seen.Load(batch.Key); ok && batch.Key != "" && errors.Is(err, hansard.ErrDeleted) {
					r = old.(hansard.Receipt)
					r.Replayed = true
					return r, nil
				}
				return r, err
			}
		})},
		{name: "deleting twice is fine", caught: []string{"delete/once", "delete/stays deleted"}, plant: inner(func(b *broken, s hansard.Store) {
			b.delete = func(c ctx, id hansard.SessionID, turn hansard.Grant) error {
				if err := s.Delete(c, id, turn); !errors.Is(err, hansard.ErrDeleted) {
					return err
				}
				return nil
			}
		})},
		{name: "deleting ignores the turn", caught: []string{"append/fenced"}, plant: inner(func(b *broken, s hansard.Store) {
			b.delete = func(c ctx, id hansard.SessionID, _ hansard.Grant) error { return s.Delete(c, id, "") }
		})},
		{name: "an append looks for the tombstone first and writes later", caught: []string{"delete/racing appends"}, plant: inner(func(b *broken, s hansard.Store) {
			b.append = func(c ctx, id hansard.SessionID, batch hansard.Batch) (hansard.Receipt, error) {
				_, before := s.Stat(c, id)
				dawdle()
				r, err := s.Append(c, id, batch)
				if before == nil && errors.Is(err, hansard.ErrDeleted) {
					return hansard.Receipt{Session: id, First: 1, Last: 2}, nil // written behind it
				}
				return r, err
			}
		})},
	}
}

// handleMutants break closing, opening again, and several handles.
func handleMutants() []mutant {
	type ctx = context.Context
	return []mutant{
		{name: "every handle has an identity of its own", caught: []string{"identity/one store"}, plant: perHandle(func(b *broken, _, _ hansard.Store, n int) {
			b.identity = func(ctx) (string, error) { return fmt.Sprint("handle ", n), nil }
		})},
		{name: "all stores are one", caught: []string{"identity/one store"}, plant: inner(func(b *broken, _ hansard.Store) {
			b.identity = func(ctx) (string, error) { return "the store", nil }
		})},
		{name: "closing twice is an error", caught: []string{"close/twice"}, plant: perHandle(func(b *broken, h, _ hansard.Store, _ int) {
			var closed atomic.Bool
			b.close = func() error {
				if closed.Swap(true) {
					return hansard.ErrClosed
				}
				return h.Close()
			}
		})},
		{name: "a closed store still reads", caught: []string{"close/refuses"}, plant: perHandle(func(b *broken, _, s hansard.Store, _ int) {
			b.read = s.Read
		})},
		{name: "closing leaves those who wait", caught: []string{"close/releases"}, patience: 500 * time.Millisecond,
			plant: perHandle(func(b *broken, _, s hansard.Store, _ int) { b.wait = s.Wait })},
		{name: "an append during Close is acknowledged and dropped", caught: []string{"close/during appends"}, plant: perHandle(func(b *broken, h, s hansard.Store, _ int) {
			var once atomic.Bool
			b.append = func(c ctx, id hansard.SessionID, batch hansard.Batch) (hansard.Receipt, error) {
				r, err := h.Append(c, id, batch)
				if errors.Is(err, hansard.ErrClosed) && !once.Swap(true) {
					info, _ := s.Stat(c, id)
					return hansard.Receipt{Session: id, First: info.LastSeq + 1, Last: info.LastSeq + hansard.Seq(len(batch.Events))}, nil
				}
				return r, err
			}
		})},
		{name: "closing one handle closes all", caught: []string{"close/one handle"}, plant: perHandle(func(b *broken, h, s hansard.Store, _ int) {
			b.close = func() error { return errors.Join(h.Close(), s.Close()) }
		})},
		{name: "keys are known to the handle that saw them", caught: []string{"key/lives long", "key/per session", "close/keeps all", "close/one handle"},
			plant: perHandle(func(b *broken, h, _ hansard.Store, _ int) {
				var seen sync.Map
				b.append = func(c ctx, id hansard.SessionID, batch hansard.Batch) (hansard.Receipt, error) {
					if batch.Key != "" {
						r, err := h.Append(c, id, batch)
						if _, mine := seen.LoadOrStore(string(id)+"/"+batch.Key, true); mine || err != nil || !r.Replayed {
							return r, err
						}
						batch.Key = ""
					}
					return h.Append(c, id, batch)
				}
			})},
		{name: "the last event is lost by opening again", caught: []string{"close/keeps all", "append/one", "data/random"},
			plant: perHandle(func(b *broken, h, _ hansard.Store, n int) {
				b.read = func(c ctx, id hansard.SessionID, r hansard.Range) iter.Seq2[hansard.Event, error] {
					events, err := readRange(c, h, id, r)
					if n > 1 && len(events) > 0 {
						events = events[:len(events)-1]
					}
					return eventsOf(events, err)
				}
			})},
		{name: "patches are lost by opening again", caught: []string{"patch/a thousand", "key/patch once"},
			plant: perHandle(func(b *broken, h, _ hansard.Store, n int) {
				b.stat = func(c ctx, id hansard.SessionID) (hansard.Info, error) {
					info, err := h.Stat(c, id)
					if n > 1 {
						info.State = []byte("null")
					}
					return info, err
				}
			})},
		{name: "sessions without events are lost by opening again", caught: []string{"list/reopened", "close/keeps all"},
			plant: perHandle(func(b *broken, h, _ hansard.Store, n int) {
				b.list = func(c ctx, q hansard.Query) iter.Seq2[hansard.Info, error] {
					infos, err := listAll(c, h, q)
					if n > 1 {
						infos = slices.DeleteFunc(infos, func(i hansard.Info) bool { return i.LastSeq == 0 })
					}
					return infosOf(infos, err)
				}
			})},
		{name: "a handle lists what it saw at first", caught: []string{"list/complete", "list/registrations"},
			plant: perHandle(func(b *broken, h, _ hansard.Store, _ int) {
				var once sync.Once
				var cache []hansard.Info
				b.list = func(c ctx, q hansard.Query) iter.Seq2[hansard.Info, error] {
					once.Do(func() { cache, _ = listAll(c, h, hansard.Query{}) })
					return infosOf(cache, nil)
				}
			})},
		{name: "a handle is woken by its own appends only", caught: []string{"wait/arrives", "wait/ping pong", "wait/deleted"}, patience: 500 * time.Millisecond,
			plant: perHandle(func(b *broken, h, _ hansard.Store, _ int) {
				changed := make(chan struct{}, 100)
				b.append = func(c ctx, id hansard.SessionID, batch hansard.Batch) (hansard.Receipt, error) {
					defer func() { changed <- struct{}{} }()
					return h.Append(c, id, batch)
				}
				b.wait = func(c ctx, id hansard.SessionID, after hansard.Seq) error {
					for {
						info, err := h.Stat(c, id)
						if err != nil || info.LastSeq > after {
							return err
						}
						select {
						case <-changed:
						case <-c.Done():
							return c.Err()
						}
					}
				}
			})},
	}
}
