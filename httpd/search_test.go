package httpd_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"hansard"
	"hansard/memstore"
)

type searchAnswer struct {
	Hits []hansard.Hit
	More bool
}

func (v *served) search(t *testing.T, query string, headers ...string) (a searchAnswer) {
	t.Helper()
	if err := json.Unmarshal([]byte(v.must(200, "GET", "/v1/search?"+query, "", headers...).body), &a); err != nil {
		t.Fatal(err)
	}
	return a
}

// TestSearchScope: a token finds only what is in its scope, whatever it asks for, and may not ask
// for a session outside of it.
func TestSearchScope(t *testing.T) {
	for _, k := range kindsOfToken() {
		if k.rights == "append" {
			continue // see TestAccess
		}
		t.Run(k.name, func(t *testing.T) {
			v, tokens := scoped(t)
			as := []string{"Authorization", "Bearer " + k.make(t, tokens)}
			for _, query := range []string{"q=secret", "q=secret&prefix=team:", "q=secret&label=k%3Dv", "q=secret&label=k%3Dw", "q=secret&prefix=team:in", "q=secret&prefix=o"} {
				var want []string
				values, _ := url.ParseQuery(query)
				for id, label := range map[string]string{"team:in": "v", "team:out": "w", "other": "v"} {
					wanted := values.Get("label")
					if (k.in == nil || k.in[id]) && strings.HasPrefix(id, values.Get("prefix")) && (wanted == "" || wanted == "k="+label) {
						want = append(want, id)
					}
				}
				var got []string
				for _, h := range v.search(t, query, as...).Hits {
					got = append(got, string(h.Session))
				}
				slices.Sort(got)
				if slices.Sort(want); !slices.Equal(got, want) {
					t.Errorf("%s finds %q, want %q", query, got, want)
				}
			}
			for _, id := range []string{"team:in", "team:out", "other"} {
				status := 200
				if k.in != nil && !k.in[id] {
					status = 404
				}
				v.must(status, "GET", "/v1/search?q=secret&in="+id, "", as...)
			}
		})
	}
}

// TestSearchPages: a page says whether there are more, and lines have everything.
func TestSearchPages(t *testing.T) {
	v := serve(t, memstore.New())
	for i := range 30 {
		v.must(201, "POST", "/v1/sessions/s/events", fmt.Sprintf(`{"create":true,"events":[{"data":"the word %d"}]}`, i))
	}
	if a := v.search(t, "q=word"); len(a.Hits) != 20 || !a.More || a.Hits[0].Snippet != "the word 29" || a.Hits[0].Marks[0] != (hansard.Mark{Start: 4, End: 8}) {
		t.Errorf("a page is %+v", a)
	}
	if a := v.search(t, "q=word&limit=20&offset=20"); len(a.Hits) != 10 || a.More {
		t.Errorf("the second page has %d hits, more %v", len(a.Hits), a.More)
	}
	if a := v.search(t, "q=nothing"); a.Hits == nil || len(a.Hits) != 0 || a.More {
		t.Errorf("nothing is %+v", a)
	}
	for _, bad := range []string{"", "q=", "q=%22open", "q=x&limit=-1", "q=x&offset=x", "q=x&since=today", "q=x&label=x", "q=x&unknown=1", "q=" + strings.Repeat("x+", 600)} {
		if r := v.ask("GET", "/v1/search?"+bad, ""); r.status != http.StatusBadRequest && r.status != http.StatusUnprocessableEntity && r.status != http.StatusRequestEntityTooLarge {
			t.Errorf("%.40s: %d %s", bad, r.status, r.body)
		}
	}
}

// endless is a store whose search runs until it is cancelled.
type endless struct {
	*memstore.Store
	begun, ended chan struct{}
}

func (s endless) Search(ctx context.Context, q hansard.SearchQuery) iter.Seq2[hansard.Hit, error] {
	return func(yield func(hansard.Hit, error) bool) {
		s.begun <- struct{}{}
		<-ctx.Done()
		s.ended <- struct{}{}
		yield(hansard.Hit{}, ctx.Err())
	}
}

// TestSearchHoldsNothingUp: a few searches run at a time, a client that goes away ends its own,
// and one token can't fill the whole queue.
func TestSearchHoldsNothingUp(t *testing.T) {
	store := endless{memstore.New(), make(chan struct{}, 10), make(chan struct{}, 10)}
	v := serve(t, store)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	answers := make(chan reply, 10)
	for range 6 {
		go func() {
			if r, err := v.tryContext(ctx, "GET", "/v1/search?q=x", ""); err == nil {
				answers <- r
			}
		}()
	}
	<-store.begun
	<-store.begun
	for range 2 { // two run, two wait
		if r := <-answers; r.status != http.StatusServiceUnavailable {
			t.Errorf("one search too many is answered with %d", r.status)
		}
	}
	if len(store.begun) > 0 {
		t.Error("more than two run")
	}
	v.must(200, "GET", "/v1/sessions", "")
	cancel()
	<-store.ended
	<-store.ended
}
