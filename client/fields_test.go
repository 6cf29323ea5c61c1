package client_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"testing"

	"hansard"
	"hansard/engine"
	"hansard/memstore"
	"hansard/storetest"
)

// asked is a store that records what it was asked for.
type asked struct {
	hansard.Store
	r hansard.Range
	q hansard.Query
	f hansard.SearchQuery
}

func (s *asked) Search(ctx context.Context, q hansard.SearchQuery) iter.Seq2[hansard.Hit, error] {
	s.f = q
	return s.Store.(hansard.Searcher).Search(ctx, q)
}

func (s *asked) Read(ctx context.Context, id hansard.SessionID, r hansard.Range) iter.Seq2[hansard.Event, error] {
	s.r = r
	return s.Store.Read(ctx, id, r)
}

func (s *asked) List(ctx context.Context, q hansard.Query) iter.Seq2[hansard.Info, error] {
	s.q = q
	return s.Store.List(ctx, q)
}

// TestEveryFieldIsAsked: each field of a range, of a query and of a search gets through the wire
// to the store.
func TestEveryFieldIsAsked(t *testing.T) {
	store := &asked{Store: memstore.New()}
	if _, err := store.Create(t.Context(), "s", hansard.Meta{}); err != nil {
		t.Fatal(err)
	}
	s, err := dial(serve(t, store))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	each(t, func(r hansard.Range) any {
		for _, err := range s.Read(t.Context(), "s", r) {
			if !errors.Is(err, hansard.ErrNoEvent) {
				t.Fatalf("%+v: %v", r, err)
			}
		}
		return engine.Plain(store.r)
	}, engine.Plain)
	each(t, func(q hansard.Query) any {
		for _, err := range s.List(t.Context(), q) {
			if err != nil {
				t.Fatalf("%+v: %v", q, err)
			}
		}
		store.q.Limit = max(0, store.q.Limit-1) // the server asks for one more
		return store.q
	}, func(q hansard.Query) hansard.Query { return q })
	word := func(q hansard.SearchQuery) hansard.SearchQuery {
		if q.Text == "" {
			q.Text = "word"
		}
		return q
	}
	each(t, func(q hansard.SearchQuery) any {
		for _, err := range s.(hansard.Searcher).Search(t.Context(), word(q)) {
			if err != nil && !errors.Is(err, hansard.ErrNotFound) {
				t.Fatalf("%+v: %v", q, err)
			}
		}
		if len(store.f.Labels) == 0 {
			store.f.Labels = nil
		}
		return store.f
	}, word)
}

// each has ask send a value with one field set, and compares it with what arrives.
func each[T any](t *testing.T, ask func(T) any, plain func(T) T) {
	t.Helper()
	var full T
	storetest.Full(&full, 1)
	for i := range reflect.TypeFor[T]().NumField() {
		field := reflect.TypeFor[T]().Field(i).Name
		var one T
		value := reflect.ValueOf(full).Field(i)
		if field == "Cursor" {
			page := []hansard.Info{{ID: "s", Updated: engine.Now()}}
			engine.Cursor{}.Mark(page, 1, engine.Now())
			value = reflect.ValueOf(page[0].Cursor)
		}
		reflect.ValueOf(&one).Elem().Field(i).Set(value)
		got, want := fmt.Sprintf("%+v", ask(one)), fmt.Sprintf("%+v", plain(one))
		if got != want {
			t.Errorf("%T.%s does not get through: asked for %s, arrived %s\nAdd it to rangeQuery or listQuery in client/read.go or searchQuery in client/search.go, and to readEvents, listSessions or searchEvents in httpd (and openapi.json).", one, field, want, got)
		}
	}
}
