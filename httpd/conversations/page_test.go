package conversations

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"hansard"
	"hansard/memstore"
)

func seeded(t *testing.T) *rand.Rand {
	seed := uint64(time.Now().UnixNano())
	if s, err := strconv.ParseUint(os.Getenv("HANSARD_SEED"), 10, 64); err == nil {
		seed = s
	}
	t.Logf("HANSARD_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

// pages walks a list as the SDK's pager does and returns all ids.
func (s *server) pages(id, order string, limit int) []string {
	s.t.Helper()
	all := []string{}
	query := fmt.Sprintf("?order=%s&limit=%d", order, limit)
	for after := ""; ; {
		l := s.list(id, query+after)
		ids := l.ids(s.t)
		if len(ids) > limit || l.HasMore && len(ids) == 0 {
			s.t.Fatalf("a page of %d items, limit %d, more %v", len(ids), limit, l.HasMore)
		}
		all = append(all, ids...)
		if len(ids) > 0 && (*l.FirstID != ids[0] || *l.LastID != ids[len(ids)-1]) {
			s.t.Fatalf("first_id %s, last_id %s of %v", *l.FirstID, *l.LastID, ids)
		}
		if !l.HasMore {
			return all
		}
		if len(all) > 100_000 {
			s.t.Fatal("the pages do not end")
		}
		after = "&after=" + *l.LastID
	}
}

// TestPagesAgainstModel: random histories of items, items with their own ids, other events and
// deletions, through two servers with small caches, compared with a slice.
func TestPagesAgainstModel(t *testing.T) {
	rnd := seeded(t)
	onEngines(t, func(t *testing.T, s *server) {
		ctx := context.Background()
		for round := range 6 {
			id := s.create(`{}`)
			servers := []*server{newServer(t, s.store), newServer(t, s.store)}
			servers[1].h.(*handler).index.max = 40 // evicts all the time
			servers[0].h.(*handler).pageBytes = 100 + rnd.IntN(4000)
			var model []string
			given := 0
			check := func() {
				t.Helper()
				via := servers[rnd.IntN(2)]
				limit := 1 + rnd.IntN(30)
				if got := via.pages(id, "asc", limit); !slices.Equal(got, model) {
					t.Fatalf("asc, limit %d:\n got %v\nwant %v", limit, got, model)
				}
				back := slices.Clone(model)
				slices.Reverse(back)
				if got := via.pages(id, "desc", limit); !slices.Equal(got, back) {
					t.Fatalf("desc, limit %d:\n got %v\nwant %v", limit, got, back)
				}
			}
			for range 40 + 20*round {
				via := servers[rnd.IntN(2)]
				switch n := rnd.IntN(10); {
				case n < 4: // items
					var items []string
					for range 1 + rnd.IntN(5) {
						switch rnd.IntN(3) {
						case 0:
							given++
							items = append(items, fmt.Sprintf(`{"type":"reasoning","id":"rs_%d"}`, given))
						default:
							items = append(items, message("x"))
						}
					}
					body := via.ok("POST", "/"+id+"/items", `{"items":[`+strings.Join(items, ",")+`]}`)
					var l listing
					if err := json.Unmarshal([]byte(body), &l); err != nil {
						t.Fatal(err)
					}
					model = append(model, l.ids(t)...)
				case n < 7: // events that are not items, sometimes many
					var events []hansard.Event
					for range 1 + rnd.IntN(40) {
						events = append(events, hansard.Event{Kind: "log", Data: json.RawMessage(`{"id":"rs_1"}`)})
					}
					if _, err := s.store.Append(ctx, hansard.SessionID(id), hansard.Batch{Events: events}); err != nil {
						t.Fatal(err)
					}
				case n < 9 && len(model) > 0:
					i := rnd.IntN(len(model))
					via.ok("DELETE", "/"+id+"/items/"+model[i], "")
					via.fails(404, "item_not_found", "item_id", "GET", "/"+id+"/items/"+model[i], "")
					model = slices.Delete(model, i, i+1)
				case len(model) > 0:
					i := rnd.IntN(len(model))
					if got := field[string](t, via.ok("GET", "/"+id+"/items/"+model[i], ""), "id"); got != model[i] {
						t.Fatalf("got %s, want %s", got, model[i])
					}
				}
				if rnd.IntN(10) == 0 {
					check()
				}
			}
			check()
		}
	})
}

// countingStore counts the events that are read.
type countingStore struct {
	hansard.Store
	read atomic.Int64
}

func (c *countingStore) Read(ctx context.Context, id hansard.SessionID, r hansard.Range) iter.Seq2[hansard.Event, error] {
	return func(yield func(hansard.Event, error) bool) {
		for e, err := range c.Store.Read(ctx, id, r) {
			c.read.Add(1)
			if !yield(e, err) {
				return
			}
		}
	}
}

// TestListReadsTheEndOnly, failure 55: a session of any size is never read whole for one page
// from its end, for an item by its id, or for the page after an item.
func TestListReadsTheEndOnly(t *testing.T) {
	store := &countingStore{Store: memstore.New()}
	s := newServer(t, store)
	id := hansard.SessionID(s.create(`{}`))
	const n = 10_000
	events := make([]hansard.Event, 5000)
	for i := range events {
		events[i] = hansard.Event{Role: "user", Data: json.RawMessage(`"x"`)}
	}
	for range n / len(events) {
		if _, err := store.Append(context.Background(), id, hansard.Batch{Events: events}); err != nil {
			t.Fatal(err)
		}
	}
	reads := func(what string, most int64, f func()) {
		t.Helper()
		store.read.Store(0)
		f()
		if got := store.read.Load(); got > most {
			t.Errorf("%s read %d events, at most %d are enough", what, got, most)
		}
	}
	made := func(seq hansard.Seq) string { return makeItemID(id, "message", seq) }
	get := func(path string) func() {
		return func() { s.h = New(store, nil); s.ok("GET", "/"+string(id)+path, "") }
	}
	reads("the newest 20, cold", 100, get("/items"))
	reads("the newest 100, cold", 500, get("/items?limit=100"))
	reads("20 behind the 1,000th from the end, cold", 1200, get("/items?after="+made(n-1000)))
	reads("an item near the end, cold", 20, get("/items/"+made(n-10)))
	reads("a given id that is not there, once", n+10, func() {
		s.h = New(store, nil)
		s.fails(404, "item_not_found", "item_id", "GET", "/"+string(id)+"/items/rs_none", "")
	})
	reads("and again", 1, func() { s.fails(404, "item_not_found", "item_id", "GET", "/"+string(id)+"/items/rs_none", "") })
	reads("the oldest 20, warm", 50, func() { s.ok("GET", "/"+string(id)+"/items?order=asc", "") })
	reads("20 in the middle, warm", 50, func() { s.ok("GET", "/"+string(id)+"/items?order=asc&after="+made(n/2), "") })
	reads("an item with an id, warm", 50, func() { s.ok("POST", "/"+string(id)+"/items", `{"items":[{"type":"reasoning","id":"rs_1"}]}`) })
	reads("an item without", 0, func() { s.ok("POST", "/"+string(id)+"/items", `{"items":[`+message("x")+`]}`) })
	reads("walking all of it, cold", 3*n, func() {
		s.h = New(store, nil)
		if got := len(s.pages(string(id), "asc", 100)); got != n+2 {
			t.Errorf("%d items, want %d", got, n+2)
		}
	})
	// A cache that is far behind starts over instead of catching up.
	for range n / len(events) {
		if _, err := store.Append(context.Background(), id, hansard.Batch{Events: events}); err != nil {
			t.Fatal(err)
		}
	}
	s.h = New(store, nil)
	s.ok("GET", "/"+string(id)+"/items", "")
	for range n / len(events) {
		if _, err := store.Append(context.Background(), id, hansard.Batch{Events: events}); err != nil {
			t.Fatal(err)
		}
	}
	reads("the newest 20, far behind", 100, func() { s.ok("GET", "/"+string(id)+"/items", "") })
}

// TestLargeItems: a page of large items ends early and says that there is more.
func TestLargeItems(t *testing.T) {
	onEngines(t, func(t *testing.T, s *server) {
		s.h.(*handler).pageBytes = 8 << 10
		id := s.create(`{}`)
		var want []string
		for _, size := range []int{3 << 10, 10, 10 << 10, 10, 10, 5 << 10, 3 << 10, 9 << 10, 9 << 10, 10} {
			body := s.ok("POST", "/"+id+"/items", `{"items":[`+message(strings.Repeat("x", size))+`]}`)
			want = append(want, field[string](t, body, "first_id"))
		}
		for _, order := range []string{"asc", "desc"} {
			if got := s.pages(id, order, 100); !slices.Equal(got, want) {
				t.Errorf("%s: got %v\nwant %v", order, got, want)
			}
			if l := s.list(id, "?limit=100&order="+order); !l.HasMore || len(l.Data) >= len(want) {
				t.Errorf("%s: one page has %d of %d items, more %v", order, len(l.Data), len(want), l.HasMore)
			}
			slices.Reverse(want)
		}
	})
}

// TestAfterADeletedItem: an item deleted during paging still marks where to go on.
func TestAfterADeletedItem(t *testing.T) {
	s := newServer(t, memstore.New())
	id := s.create(`{"items":[` + message("1") + `,{"type":"reasoning","id":"rs_1"},` + message("3") + `]}`)
	all := s.pages(id, "asc", 10)
	for _, gone := range []string{"rs_1", all[0]} {
		s.ok("DELETE", "/"+id+"/items/"+gone, "")
	}
	for _, c := range []struct{ query, want string }{
		{"?order=asc&after=rs_1", all[2]},
		{"?order=asc&after=" + all[0], all[2]},
		{"?after=rs_1", ""},
	} {
		if got := strings.Join(s.list(id, c.query).ids(t), " "); got != c.want {
			t.Errorf("%s: got %s, want %s", c.query, got, c.want)
		}
	}
	// A deleted id is free again, even one the server made, and is found at its new place.
	for _, again := range []string{"rs_1", all[0]} {
		s.ok("POST", "/"+id+"/items", `{"items":[{"type":"reasoning","id":"`+again+`","n":2}]}`)
		same(t, "again", s.ok("GET", "/"+id+"/items/"+again, ""), `{"type":"reasoning","id":"`+again+`","n":2}`)
		s.fails(400, "duplicate_item_id", "items[0].id", "POST", "/"+id+"/items", `{"items":[{"type":"reasoning","id":"`+again+`"}]}`)
	}
	if got, want := s.pages(id, "asc", 1), []string{all[2], "rs_1", all[0]}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	s.ok("DELETE", "/"+id+"/items/rs_1", "")
	s.fails(404, "item_not_found", "item_id", "GET", "/"+id+"/items/rs_1", "")
}

// TestAmbiguousID: an import may bring an id twice. A list can't continue after it, and says so
// instead of returning the same page for ever.
func TestAmbiguousID(t *testing.T) {
	s := newServer(t, memstore.New())
	id := s.create(`{}`)
	twice := hansard.Event{Kind: "reasoning", Data: json.RawMessage(`{"type":"reasoning","id":"rs_1"}`)}
	if _, err := s.store.Append(context.Background(), hansard.SessionID(id), hansard.Batch{Events: []hansard.Event{twice, twice}}); err != nil {
		t.Fatal(err)
	}
	if got := s.list(id, "").ids(t); len(got) != 2 {
		t.Errorf("got %v", got)
	}
	s.fails(400, "ambiguous_item_id", "after", "GET", "/"+id+"/items?after=rs_1", "")
	s.ok("DELETE", "/"+id+"/items/rs_1", "")
	s.ok("GET", "/"+id+"/items?after=rs_1", "")
}

// TestReplacedLog: if the log is no longer the one that was read (restored, replaced), that is
// noticed.
func TestReplacedLog(t *testing.T) {
	swap := &swapStore{Store: memstore.New()}
	s := newServer(t, swap)
	const id = "same"
	fill := func(n int) {
		for range n {
			e := hansard.Event{Data: json.RawMessage(`"x"`)}
			if _, err := swap.Append(context.Background(), id, hansard.Batch{Create: true, Events: []hansard.Event{e}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, n := range []int{5, 5, 3, 9} {
		swap.Store = memstore.New()
		fill(n)
		if got := len(s.pages(id, "asc", 2)); got != n {
			t.Fatalf("%d items of %d in the new log", got, n)
		}
		s.ok("DELETE", "/"+id+"/items/"+makeItemID(id, "message", 2), "")
		if got := len(s.pages(id, "asc", 2)); got != n-1 {
			t.Fatalf("%d items of %d after a deletion", got, n-1)
		}
	}
}

type swapStore struct{ hansard.Store }

// TestCacheIsBounded: the cache evicts what was least recently used, and answers are right
// without it.
func TestCacheIsBounded(t *testing.T) {
	s := newServer(t, memstore.New())
	index := s.h.(*handler).index
	index.max = 100
	const sessions, each = 20, 15
	given := strings.Builder{}
	for i := range each {
		fmt.Fprintf(&given, `,{"type":"reasoning","id":"rs_%d"}`, i)
	}
	var ids []string
	for range sessions {
		ids = append(ids, s.create(`{"items":[`+given.String()[1:]+`]}`))
	}
	for range 3 {
		for _, id := range ids {
			s.ok("GET", "/"+id+"/items/rs_0", "")
			if index.entries > index.max || index.recent.Len() != len(index.sessions) {
				t.Fatalf("%d entries of %d, %d and %d sessions", index.entries, index.max, index.recent.Len(), len(index.sessions))
			}
		}
	}
	if index.entries == 0 {
		t.Error("nothing is kept")
	}
	for _, id := range ids {
		s.ok("DELETE", "/"+id, "")
	}
	if index.entries != 0 {
		t.Errorf("%d entries of sessions that are deleted", index.entries)
	}
}
