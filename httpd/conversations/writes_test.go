package conversations

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"hansard"
	"hansard/memstore"
)

// TestIdempotencyKey: a retry with its key gets the first answer and is stored once; the key with
// another request is refused.
func TestIdempotencyKey(t *testing.T) {
	onEngines(t, func(t *testing.T, s *server) {
		twice := func(what, method, path, body, key string) string {
			t.Helper()
			first := s.ok(method, path, body, keyHeader, key)
			same(t, what+", retried", s.ok(method, path, body, keyHeader, key), first)
			// Another server, which saw nothing, answers the same.
			same(t, what+", retried elsewhere", newServer(t, s.store).ok(method, path, body, keyHeader, key), first)
			return first
		}
		create := `{"items":[` + message("hi") + `],"metadata":{"a":"1"}}`
		id := field[string](t, twice("create", "POST", "", create, "k1"), "id")
		s.fails(422, "idempotency_key_reused", keyHeader, "POST", "", `{"items":[`+message("other")+`],"metadata":{"a":"1"}}`, keyHeader, "k1")
		s.fails(422, "idempotency_key_reused", keyHeader, "POST", "", `{}`, keyHeader, "k1")
		empty := field[string](t, twice("create empty", "POST", "", `{}`, "k2"), "id")
		if empty == id {
			t.Error("two keys, one conversation")
		}

		items := "/" + id + "/items"
		twice("items", "POST", items, `{"items":[`+message("a")+`,`+message("b")+`]}`, "k3")
		s.fails(422, "idempotency_key_reused", keyHeader, "POST", items, `{"items":[`+message("c")+`]}`, keyHeader, "k3")
		s.fails(422, "idempotency_key_reused", keyHeader, "POST", items, `{"items":[`+message("c")+`]}`, keyHeader, `"k3"`)
		given := `{"items":[{"type":"reasoning","id":"rs_1"}]}`
		twice("items with ids of their own", "POST", items, given, "k4")
		s.fails(400, "duplicate_item_id", "items[0].id", "POST", items, given, keyHeader, "k5")
		s.fails(400, "duplicate_item_id", "items[0].id", "POST", items, given)
		s.fails(422, "idempotency_key_reused", keyHeader, "POST", items, `{"items":[{"type":"reasoning","id":"rs_1","x":1}]}`, keyHeader, "k4")
		if got := len(s.pages(id, "asc", 100)); got != 4 {
			t.Errorf("%d items, want 4", got)
		}

		// An update is the same request although it resulted in another patch.
		update := `{"metadata":{"b":"2"}}`
		twice("update", "POST", "/"+id, update, "k6")
		s.ok("POST", "/"+id, `{"metadata":{"b":"2","c":"3"}}`)
		same(t, "a late retry changes nothing", string(field[json.RawMessage](t, s.ok("POST", "/"+id, update, keyHeader, "k6"), "metadata")), `{"b":"2","c":"3"}`)
		s.fails(422, "idempotency_key_reused", keyHeader, "POST", "/"+id, `{"metadata":{"b":"9"}}`, keyHeader, "k6")
		s.fails(422, "idempotency_key_reused", keyHeader, "POST", "/"+id, `{"metadata":{"b":"9"}}`, keyHeader, "k3")

		twice("delete an item", "DELETE", items+"/rs_1", "", "k7")
		s.fails(404, "item_not_found", "item_id", "DELETE", items+"/rs_1", "", keyHeader, "k8")
		s.fails(404, "item_not_found", "item_id", "DELETE", items+"/rs_1", "")

		s.ok("DELETE", "/"+id, "")
		s.fails(409, "conversation_deleted", keyHeader, "POST", "", create, keyHeader, "k1")
	})
}

// atOnce runs f n times at the same moment.
func atOnce(n int, f func(i int)) {
	var begin, done sync.WaitGroup
	begin.Add(1)
	for i := range n {
		done.Go(func() {
			begin.Wait()
			f(i)
		})
	}
	begin.Done()
	done.Wait()
}

// TestDeleteOnce: of all who delete one item at once, through any number of servers, exactly one
// succeeds.
func TestDeleteOnce(t *testing.T) {
	onEngines(t, func(t *testing.T, s *server) {
		servers := []*server{s, newServer(t, s.store), newServer(t, s.store)}
		id := s.create(`{"items":[` + message("a") + `,{"type":"reasoning","id":"rs_1"}]}`)
		for _, itemID := range s.pages(id, "asc", 10) {
			status := make([]int, 12)
			atOnce(len(status), func(i int) {
				key := []string{"", "", "a", "b"}[i%4] // two pairs of retries among them
				headers := []string{}
				if key != "" {
					headers = append(headers, keyHeader, key)
				}
				status[i] = servers[i%3].do("DELETE", "/"+id+"/items/"+itemID, "", headers...).status
			})
			winners := map[string]bool{}
			for i, got := range status {
				switch got {
				case http.StatusOK:
					who := fmt.Sprint(i)
					if key := []string{"", "", "a", "b"}[i%4]; key != "" {
						who = "key " + key
					}
					winners[who] = true
				case http.StatusNotFound:
				default:
					t.Errorf("status %d", got)
				}
			}
			if len(winners) != 1 {
				t.Errorf("%s was deleted by %v", itemID, winners)
			}
		}
		if got := s.pages(id, "asc", 10); len(got) != 0 {
			t.Errorf("left: %v", got)
		}
	})
}

// TestManyWriters: one id is one item, even if others use it at the same moment; and everything
// acknowledged is listed once, in an order that is the same for all.
func TestManyWriters(t *testing.T) {
	onEngines(t, func(t *testing.T, s *server) {
		const writers, each = 8, 12
		servers := []*server{s, newServer(t, s.store)}
		id := s.create(`{}`)
		var mu sync.Mutex
		var acked []string
		wins := map[string]int{}
		atOnce(writers, func(w int) {
			via := servers[w%2]
			for i := range each {
				shared := fmt.Sprintf("rs_%d", i)
				for _, body := range []string{message("x"), `{"type":"reasoning","id":"` + shared + `"}`} {
					a := via.do("POST", "/"+id+"/items", `{"items":[`+body+`]}`)
					switch {
					case a.status == http.StatusOK:
						first := field[string](t, a.body, "first_id")
						mu.Lock()
						acked = append(acked, first)
						wins[first]++
						mu.Unlock()
					case a.status != http.StatusBadRequest || !strings.Contains(a.body, "duplicate_item_id"):
						t.Errorf("%d %s", a.status, a.body)
					}
				}
			}
		})
		for itemID, n := range wins {
			if n != 1 {
				t.Errorf("%s was acknowledged %d times", itemID, n)
			}
		}
		got := servers[0].pages(id, "asc", 7)
		back := servers[1].pages(id, "desc", 9)
		slices.Reverse(back)
		if !slices.Equal(got, back) {
			t.Error("two servers list different things")
		}
		slices.Sort(got)
		slices.Sort(acked)
		if !slices.Equal(got, acked) || len(got) != writers*each+each {
			t.Errorf("%d listed, %d acknowledged, want %d", len(got), len(acked), writers*each+each)
		}
	})
}

// TestUpdateIsWhole: metadata set by many at once are those of one of them, never a mixture.
func TestUpdateIsWhole(t *testing.T) {
	s := newServer(t, memstore.New())
	id := s.create(`{}`)
	atOnce(8, func(i int) {
		for range 5 {
			if a := s.do("POST", "/"+id, fmt.Sprintf(`{"metadata":{"who":"%d","k%d":"x"}}`, i, i)); a.status != http.StatusOK {
				t.Errorf("%d %s", a.status, a.body)
			}
		}
	})
	m := field[map[string]string](t, s.ok("GET", "/"+id, ""), "metadata")
	if len(m) != 2 || m["k"+m["who"]] != "x" {
		t.Errorf("got %v", m)
	}
}

// meanwhile lets another writer in right before the next append.
type meanwhile struct {
	hansard.Store
	other func()
}

func (m *meanwhile) Append(ctx context.Context, id hansard.SessionID, b hansard.Batch) (hansard.Receipt, error) {
	if other := m.other; other != nil {
		m.other = nil
		other()
	}
	return m.Store.Append(ctx, id, b)
}

// TestSomebodyElseIsFaster: what a write rests on may change between the read and the write.
func TestSomebodyElseIsFaster(t *testing.T) {
	other := newServer(t, memstore.New())
	store := &meanwhile{Store: other.store}
	s := newServer(t, store)
	id := s.create(`{"metadata":{"a":"1"}}`)

	// An update replaces what the other writer has set.
	store.other = func() { other.ok("POST", "/"+id, `{"metadata":{"b":"2"}}`) }
	same(t, "metadata", string(field[json.RawMessage](t, s.ok("POST", "/"+id, `{"metadata":{"c":"3"}}`), "metadata")), `{"c":"3"}`)

	// An id that the other writer used is taken.
	given := `{"items":[{"type":"reasoning","id":"rs_1"}]}`
	store.other = func() { other.ok("POST", "/"+id+"/items", given) }
	s.fails(400, "duplicate_item_id", "items[0].id", "POST", "/"+id+"/items", given)
	// Unrelated writes do not matter.
	store.other = func() { other.ok("POST", "/"+id+"/items", `{"items":[`+message("x")+`]}`) }
	s.ok("POST", "/"+id+"/items", `{"items":[{"type":"reasoning","id":"rs_2"}]}`)

	// What the other writer deleted is not deleted again, with or without keys.
	for i, keys := range [][]string{{"", ""}, {"", "k1"}, {"k2", ""}, {"k3", "k4"}} {
		itemID := field[string](t, s.ok("POST", "/"+id+"/items", `{"items":[`+message("x")+`]}`), "first_id")
		headers := func(key string) []string {
			if key == "" {
				return nil
			}
			return []string{keyHeader, key}
		}
		store.other = func() { other.ok("DELETE", "/"+id+"/items/"+itemID, "", headers(keys[0])...) }
		a := s.do("DELETE", "/"+id+"/items/"+itemID, "", headers(keys[1])...)
		if a.status != http.StatusNotFound {
			t.Errorf("%d: a second deletion: %d", i, a.status)
		}
	}

	// A key that leads to a session that was made by hand.
	taken := string(newConversationID("k5"))
	if _, err := other.store.Append(context.Background(), hansard.SessionID(taken), hansard.Batch{Create: true, Patch: &hansard.Patch{}}); err != nil {
		t.Fatal(err)
	}
	s.fails(409, "conversation_busy", "null", "POST", "", `{"items":[`+message("x")+`]}`, keyHeader, "k5")

	// A key does not let in an id that only the server makes, not even as the first item.
	empty := s.create(`{}`)
	own := makeItemID(hansard.SessionID(empty), "reasoning", 1)
	s.fails(400, "invalid_value", "items[0].id", "POST", "/"+empty+"/items", `{"items":[{"type":"reasoning","id":"`+own+`"}]}`, keyHeader, "k6")

	// A session where others are faster every time.
	store.other = nil
	always := &alwaysFaster{Store: other.store}
	s = newServer(t, always)
	a := s.fails(409, "conversation_busy", "null", "POST", "/"+id, `{"metadata":{"d":"4"}}`)
	if a.header.Get("X-Should-Retry") != "true" {
		t.Error("an SDK would not try again")
	}
	s.fails(409, "conversation_busy", "null", "POST", "/"+id+"/items", `{"items":[{"type":"reasoning","id":"rs_9"}]}`)
	s.ok("POST", "/"+id+"/items", `{"items":[`+message("x")+`]}`)
}

type alwaysFaster struct{ hansard.Store }

func (a *alwaysFaster) Append(ctx context.Context, id hansard.SessionID, b hansard.Batch) (hansard.Receipt, error) {
	if _, err := a.Store.Append(ctx, id, hansard.Batch{Events: []hansard.Event{{Kind: "log", Data: json.RawMessage("1")}}}); err != nil {
		return hansard.Receipt{}, err
	}
	return a.Store.Append(ctx, id, b)
}

// TestTurns: an exclusive turn keeps others out, with the API's errors; its holder and the inbox
// are let in.
func TestTurns(t *testing.T) {
	s := newServer(t, memstore.New())
	ctx := context.Background()
	id := s.create(`{"items":[` + message("a") + `]}`)
	itemID := s.pages(id, "asc", 1)[0]
	turn, err := s.store.Acquire(ctx, hansard.SessionID(id), hansard.Claim{Exclusive: true, Label: "agent-1"})
	if err != nil {
		t.Fatal(err)
	}
	grant := string(turn.Grant)
	items := `{"items":[` + message("b") + `]}`
	writes := []struct{ method, path, body string }{
		{"POST", "/items", items},
		{"POST", "/items", `{"items":[{"type":"reasoning","id":"rs_1"}]}`},
		{"POST", "", `{"metadata":{"a":"1"}}`},
		{"DELETE", "/items/" + itemID, ""},
		{"DELETE", "", ""},
	}
	for _, w := range writes {
		a := s.fails(409, "turn_held", "null", w.method, "/"+id+w.path, w.body)
		if !strings.Contains(a.body, "agent-1") || a.header.Get("Retry-After") == "" {
			t.Errorf("the holder is not named, or no Retry-After: %s", a.body)
		}
		a = s.fails(409, "turn_lost", "null", w.method, "/"+id+w.path, w.body, turnHeader, "1-0000000000000000")
		if a.header.Get("X-Should-Retry") != "false" {
			t.Error("an SDK would try again under a lost turn")
		}
	}
	if n := len(s.list(id, "").Data); n != 1 {
		t.Fatalf("%d items", n)
	}
	s.ok("POST", "/"+id+"/items", items, inboxHeader, "true")
	var last hansard.Event
	for e, err := range s.store.Read(ctx, hansard.SessionID(id), hansard.Range{Last: 1}) {
		if last = e; err != nil {
			t.Fatal(err)
		}
	}
	if !last.Inbox {
		t.Error("the event is not marked for the inbox")
	}
	for _, w := range writes {
		s.ok(w.method, "/"+id+w.path, w.body, turnHeader, grant)
	}
}

// TestItemsOfATurn: the items of one turn come in one request, which the SDKs don't split: 15
// parallel tool calls with their results, up to 100 items, or none at all.
func TestItemsOfATurn(t *testing.T) {
	onEngines(t, func(t *testing.T, s *server) {
		id := field[string](t, s.ok("POST", "", `{"items":[]}`), "id")
		s.ok("POST", "/"+id+"/items", `{"items":[]}`)
		var items []string
		for i := range 15 {
			items = append(items, fmt.Sprintf(`{"type":"function_call","call_id":"call_%d","name":"weather","arguments":"{}"}`, i))
		}
		for i := range 15 {
			items = append(items, fmt.Sprintf(`{"type":"function_call_output","call_id":"call_%d","output":"sunny"}`, i))
		}
		s.ok("POST", "/"+id+"/items", `{"items":[`+strings.Join(items, ",")+`]}`)
		var list struct{ Data []json.RawMessage }
		if err := json.Unmarshal([]byte(s.ok("GET", "/"+id+"/items?limit=100", "")), &list); err != nil || len(list.Data) != 30 {
			t.Errorf("%d items, %v", len(list.Data), err)
		}
	})
}
