package durable

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"hansard"
	"hansard/memstore"
)

// counting is a store that counts the events that are read.
type counting struct {
	hansard.Store
	read atomic.Int64
}

func (c *counting) Read(ctx context.Context, id hansard.SessionID, r hansard.Range) iter.Seq2[hansard.Event, error] {
	return func(yield func(hansard.Event, error) bool) {
		for e, err := range c.Store.Read(ctx, id, r) {
			c.read.Add(1)
			if !yield(e, err) {
				return
			}
		}
	}
}

// TestForkTooLarge: a fork whose sub-offset adds more than one request may append is refused before
// that is read, and leaves nothing behind.
func TestForkTooLarge(t *testing.T) {
	store := &counting{Store: memstore.New()}
	w := newWorld(t, store, Options{})
	message := `"` + strings.Repeat("x", hansard.MaxBatchBytes/4) + `"`
	const messages = 12
	w.must(201, "PUT", "s", "", asJSON...)
	for range messages {
		w.must(204, "POST", "s", message, asJSON...)
	}
	from := []string{headerFork, Prefix + "s", headerForkOffset, offsetStart, headerForkSub, strconv.Itoa(messages)}
	w.refused(413, "too-large", "PUT", "f", "", from...)
	if read := store.read.Load(); read > 4 {
		t.Errorf("%d events were read", read)
	}
	if _, err := store.Stat(t.Context(), "f"); !errors.Is(err, hansard.ErrNotFound) {
		t.Errorf("it is there: %v", err)
	}
}

// crashing is a store that fails appends on demand.
type crashing struct {
	hansard.Store
	down atomic.Bool
}

func (c *crashing) Append(ctx context.Context, id hansard.SessionID, b hansard.Batch) (hansard.Receipt, error) {
	if c.down.Load() {
		return hansard.Receipt{}, hansard.ErrUnknown
	}
	return c.Store.Append(ctx, id, b)
}

// TestForks: a fork has the history up to an offset, its own producers, and its initial content;
// the source is unchanged.
func TestForks(t *testing.T) {
	w := newWorld(t, memstore.New(), Options{})
	w.must(201, "PUT", "s", "[1]", asJSON...)
	w.must(200, "POST", "s", "[2,3,4]", with(asJSON, producerOf("p", 3, 0)...)...)
	w.must(204, "POST", "s", `"end"`, with(asJSON, headerClosed, "true")...)
	from := []string{headerFork, Prefix + "s"}
	for id, c := range map[string]struct {
		headers    []string
		body, want string
	}{
		"all":     {from, "", `[1,2,3,4,"end"]`},
		"one":     {with(from, headerForkOffset, formatOffset(1)), "", `[1]`},
		"sub":     {with(from, headerForkOffset, formatOffset(1), headerForkSub, "2"), "", `[1,2,3]`},
		"none":    {with(from, headerForkOffset, offsetStart), "", `[]`},
		"nothing": {with(from, headerForkOffset, offsetStart, headerForkSub, "1"), `["mine"]`, `[1,"mine"]`},
		"more":    {with(from, headerForkOffset, formatOffset(4)), `["mine"]`, `[1,2,3,4,"mine"]`},
	} {
		for _, status := range []int{201, 200} {
			w.must(status, "PUT", id, c.body, c.headers...)
		}
		got := w.must(200, "GET", id, "")
		if got.Body.String() != c.want || got.Header().Get(headerClosed) != "" {
			t.Errorf("%s is %s %v", id, got.Body, got.Header())
		}
		if tail := w.must(200, "HEAD", id, "").Header().Get(headerNext); tail != got.Header().Get(headerNext) {
			t.Errorf("%s ends at %s, and reading it at %s", id, tail, got.Header().Get(headerNext))
		}
		w.must(200, "POST", id, "5", with(asJSON, producerOf("p", 0, 0)...)...)
		var messages []any
		if err := json.Unmarshal(w.must(200, "GET", id, "").Body.Bytes(), &messages); err != nil || messages[len(messages)-1] != 5.0 {
			t.Errorf("%s goes on with %v, %v", id, messages, err)
		}
	}
	if got := w.must(200, "GET", "s", "").Body.String(); got != `[1,2,3,4,"end"]` {
		t.Errorf("the source is %s", got)
	}
	w.must(201, "PUT", "over", `["mine"]`, with(from, headerClosed, "true")...)
	if got := w.must(200, "GET", "over", ""); got.Body.String() != `[1,2,3,4,"end","mine"]` || got.Header().Get(headerClosed) != "true" {
		t.Errorf("a closed fork is %s %v", got.Body, got.Header())
	}
	for _, bad := range [][]string{with(from, headerForkOffset, "x"), with(from, headerForkOffset, formatOffset(9)), with(from, headerForkSub, "-1"), with(from, headerForkSub, "1"),
		with(from, headerForkOffset, formatOffset(2)), {headerFork, "/elsewhere/s"}, {headerFork, Prefix + "a b"}, {headerForkOffset, formatOffset(1)}} {
		w.refused(400, "malformed", "PUT", "bad", "", bad...)
	}
	w.refused(404, "not-found", "PUT", "bad", "", headerFork, Prefix+"nowhere")
	w.refused(409, "stream-conflict", "PUT", "bad", "", with(from, headerType, "text/plain")...)
	w.refused(409, "stream-conflict", "PUT", "one", "", from...)
	w.refused(404, "not-found", "GET", "bad", "")
	w.must(204, "DELETE", "s", "")
	w.refused(410, "deleted", "GET", "s", "")
	w.refused(409, "stream-conflict", "PUT", "bad", "", from...)
	if got := w.must(200, "GET", "one", "").Body.String(); got != `[1,5]` {
		t.Errorf("without its source it is %s", got)
	}
}

// TestForkInterrupted: a fork whose second commit did not happen does not exist, and the same
// request completes it, once.
func TestForkInterrupted(t *testing.T) {
	store := &crashing{Store: memstore.New()}
	w := newWorld(t, store, Options{})
	w.must(201, "PUT", "s", "abc", asText...)
	headers := []string{headerFork, Prefix + "s", headerForkOffset, formatOffset(0), headerForkSub, "2"}
	store.down.Store(true)
	w.refused(504, "outcome-unknown", "PUT", "f", "X", headers...)
	store.down.Store(false)
	for _, method := range []string{"GET", "HEAD", "DELETE"} {
		w.refused(404, "not-found", method, "f", "")
	}
	w.refused(404, "not-found", "POST", "f", "Y", asText...)
	w.refused(409, "stream-conflict", "PUT", "f", "", asText...)
	w.must(201, "PUT", "f", "X", headers...)
	w.must(200, "PUT", "f", "X", headers...)
	if got := w.must(200, "GET", "f", "").Body.String(); got != "abX" {
		t.Errorf("it is %q", got)
	}
}

// TestForkAtOnce: if many make the same fork at the same moment, it has the content they all sent
// once.
func TestForkAtOnce(t *testing.T) {
	for range 50 {
		store := &crashing{Store: memstore.New()}
		w := newWorld(t, store, Options{})
		w.must(201, "PUT", "s", "[1,2]", asJSON...)
		store.down.Store(true)
		headers := []string{headerFork, Prefix + "s", headerForkOffset, formatOffset(0), headerForkSub, "1"}
		w.refused(504, "outcome-unknown", "PUT", "f", "[7]", headers...)
		store.down.Store(false)
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				if got := w.ask("PUT", "f", "[7]", headers...); got.Code != 200 && got.Code != 201 {
					t.Errorf("%d %v", got.Code, got.Header())
				}
			})
		}
		all.Wait()
		if got := w.must(200, "GET", "f", "").Body.String(); got != "[1,7]" {
			t.Fatalf("it is %s", got)
		}
	}
}

// TestForkWaits: a reader that waits at the end of a fork without messages of its own is not
// woken by its source.
func TestForkWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, memstore.New(), Options{})
		w.must(201, "PUT", "s", "a", asText...)
		offset := w.must(201, "PUT", "f", "", headerFork, Prefix+"s").Header().Get(headerNext)
		got := make(chan string, 1)
		go func() { got <- w.ask("GET", "f?live=long-poll&offset="+offset, "").Body.String() }()
		synctest.Wait()
		w.must(204, "POST", "s", "b", asText...)
		synctest.Wait()
		w.must(204, "POST", "f", "c", asText...)
		if text := <-got; text != "c" {
			t.Errorf("it got %q", text)
		}
	})
}
