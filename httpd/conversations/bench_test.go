package conversations

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"hansard"
	"hansard/filestore"
)

// BenchmarkNewestPage: the newest page of a short and of a long session, side by side. It should
// cost the same.
func BenchmarkNewestPage(b *testing.B) {
	store := openFiles(b)
	for _, n := range []int{100, 100_000} {
		s := newServer(b, store)
		id := s.create(`{}`)
		events := make([]hansard.Event, 100)
		for i := range events {
			events[i] = hansard.Event{Role: "user", Data: json.RawMessage(message("some words of a usual length"))}
		}
		for range n / len(events) {
			if _, err := store.Append(context.Background(), hansard.SessionID(id), hansard.Batch{Events: events}); err != nil {
				b.Fatal(err)
			}
		}
		for _, cache := range []string{"cold", "warm"} {
			b.Run(fmt.Sprintf("events=%d/%s", n, cache), func(b *testing.B) {
				for b.Loop() {
					if cache == "cold" {
						s.h = New(store, nil)
					}
					s.ok("GET", "/"+id+"/items", "")
				}
			})
		}
	}
}

// BenchmarkAddItem: adding an item through the API, with and without an id, compared with the
// plain append.
func BenchmarkAddItem(b *testing.B) {
	store := openFiles(b)
	s := newServer(b, store)
	id := s.create(`{}`)
	item := message("some words of a usual length")
	b.Run("append", func(b *testing.B) {
		for b.Loop() {
			e := hansard.Event{Role: "user", Data: json.RawMessage(item)}
			if _, err := store.Append(context.Background(), hansard.SessionID(id), hansard.Batch{Events: []hansard.Event{e}}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("item", func(b *testing.B) {
		for b.Loop() {
			s.ok("POST", "/"+id+"/items", `{"items":[`+item+`]}`)
		}
	})
	n := 0
	b.Run("item with an id", func(b *testing.B) {
		for b.Loop() {
			n++
			s.ok("POST", "/"+id+"/items", fmt.Sprintf(`{"items":[{"type":"reasoning","id":"rs_%d"}]}`, n))
		}
	})
}

func openFiles(b *testing.B) hansard.Store {
	store, err := filestore.Open(b.TempDir(), nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = store.Close() })
	return store
}
