package durable

import (
	"context"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"hansard"
	"hansard/memstore"
)

// TestDeletedNames: a deleted name can be reused for a stream that has nothing of the old one.
func TestDeletedNames(t *testing.T) {
	for _, c := range []struct {
		body    string
		headers []string
		want    string
	}{
		{"", nil, "[]"},
		{`[{"n":1},{"n":2}]`, nil, `[{"n":1},{"n":2}]`},
		{"", []string{headerClosed, headerTrue}, "[]"},
		{`[{"n":1}]`, []string{headerClosed, headerTrue}, `[{"n":1}]`},
	} {
		w := newWorld(t, memstore.New(), Options{})
		jsonType := []string{headerType, mediaJSON}
		w.must(201, "PUT", "s", "old", headerType, "text/plain")
		w.must(200, "POST", "s", "older", with(producerOf("p", 0, 0), headerType, "text/plain")...)
		w.must(204, "DELETE", "s", "")
		w.refused(404, "deleted", "GET", "s?offset=-1", "")
		w.must(201, "PUT", "s", c.body, with(c.headers, jsonType...)...)
		got := w.must(200, "GET", "s?offset=-1", "")
		if got.Body.String() != c.want || (got.Header().Get(headerClosed) != "") != (c.headers != nil) || got.Header().Get(headerType) != mediaJSON {
			t.Errorf("%+v: %s %v", c, got.Body, got.Header())
		}
		w.must(200, "PUT", "s", c.body, with(c.headers, jsonType...)...)
		w.refused(409, "stream-conflict", "PUT", "s", "", headerType, "text/plain")
		if c.headers == nil { // the old one's producers are unknown
			w.must(200, "POST", "s", `{"n":3}`, with(producerOf("p", 0, 0), jsonType...)...)
		}
		w.must(204, "DELETE", "s", "")
		w.must(201, "PUT", "s", "", jsonType...)
	}

	w := newWorld(t, memstore.New(), Options{})
	w.must(201, "PUT", "parent", "x", headerType, "text/plain")
	w.must(201, "PUT", "child", "", headerFork, Prefix+"parent")
	w.must(204, "DELETE", "parent", "")
	w.refused(409, "stream-conflict", "PUT", "parent", "", headerType, "text/plain") // its content is that of its fork
	w.must(204, "DELETE", "child", "")
	w.must(201, "PUT", "other", "x", headerType, "text/plain")
	w.refused(409, "stream-conflict", "PUT", "child", "", headerFork, Prefix+"other", headerType, "text/plain")
}

// half makes sessions but appends nothing to them, like a server that dies between the two.
type half struct {
	hansard.Store
	mu   sync.Mutex
	dead bool
}

func (h *half) Append(ctx context.Context, id hansard.SessionID, b hansard.Batch) (hansard.Receipt, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.dead {
		return hansard.Receipt{}, hansard.ErrFailed
	}
	return h.Store.Append(ctx, id, b)
}

// TestReuseHalfDone: a stream is not visible until it has all of its initial content, and asking
// for it again makes it.
func TestReuseHalfDone(t *testing.T) {
	store := &half{Store: memstore.New()}
	w := newWorld(t, store, Options{})
	w.must(201, "PUT", "s", "old", headerType, "text/plain")
	w.must(204, "DELETE", "s", "")
	store.dead = true
	if got := w.ask("PUT", "s", "new", headerType, "text/plain"); got.Code < 500 {
		t.Fatalf("half of it was done, and answered with %d", got.Code)
	}
	store.dead = false
	w.refused(404, "not-found", "GET", "s", "")
	w.refused(404, "not-found", "POST", "s", "more", headerType, "text/plain")
	w.must(201, "PUT", "s", "new", headerType, "text/plain")
	if got := w.must(200, "GET", "s", "").Body.String(); got != "new" {
		t.Errorf("the stream has %q", got)
	}
}

// TestReuseAtOnce: of those who reuse a name at the same time one makes the stream, and the
// others find it.
func TestReuseAtOnce(t *testing.T) {
	w := newWorld(t, memstore.New(), Options{})
	for range 20 {
		w.must(201, "PUT", "s", "old", headerType, "text/plain")
		w.must(204, "DELETE", "s", "")
		var wg sync.WaitGroup
		made := make(chan string, 4)
		for _, text := range []string{"a", "b", "c", "d"} {
			wg.Go(func() {
				switch got := w.ask("PUT", "s", text, headerType, "text/plain"); got.Code {
				case 201:
					made <- text
				case 200:
				default:
					t.Errorf("%d: %s", got.Code, got.Body)
				}
			})
		}
		wg.Wait()
		close(made)
		if got := w.must(200, "GET", "s", "").Body.String(); len(made) != 1 || got != <-made {
			t.Errorf("%d made it, and it has %q", len(made), got)
		}
		w.must(204, "DELETE", "s", "")
	}
}

// TestRedactedStreams: redacted messages are no longer part of the stream; offsets stay valid.
func TestRedactedStreams(t *testing.T) {
	redact := func(t *testing.T, w *world, seqs ...hansard.Seq) {
		t.Helper()
		if _, err := w.store.Redact(t.Context(), "s", hansard.Redaction{Seqs: seqs, Reason: "a secret"}); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("json", func(t *testing.T) {
		w := newWorld(t, memstore.New(), Options{})
		w.must(201, "PUT", "s", `[{"n":1},{"n":2},{"n":3}]`, headerType, mediaJSON)
		before := w.must(200, "GET", "s?offset=-1", "").Header()
		redact(t, w, 2)
		got := w.must(200, "GET", "s?offset=-1", "", "If-None-Match", before.Get("ETag"))
		if got.Body.String() != `[{"n":1},{"n":3}]` {
			t.Errorf("the stream has %s", got.Body)
		}
		// From after the redacted messages there is nothing, and from before them what is left.
		if got := w.must(200, "GET", "s?offset="+before.Get(headerNext), "").Body.String(); got != "[]" {
			t.Errorf("from the old end on: %s", got)
		}
		if got := w.must(200, "GET", "s?offset="+formatOffset(1), "").Body.String(); got != `[{"n":3}]` {
			t.Errorf("from the first message on: %s", got)
		}
		if got := w.must(200, "GET", "s?offset=-1&events=true", "").Body.String(); strings.Count(got, `"redacted":true`) != 1 || !strings.Contains(got, "a secret") {
			t.Errorf("whole events: %s", got)
		}
	})
	t.Run("closed", func(t *testing.T) {
		w := newWorld(t, memstore.New(), Options{})
		w.must(201, "PUT", "s", "one", headerType, "text/plain")
		w.must(204, "POST", "s", "two", headerType, "text/plain", headerClosed, headerTrue)
		before := w.must(200, "GET", "s?offset=-1", "").Header()
		for _, seq := range []hansard.Seq{1, 2} {
			redact(t, w, seq)
			got := w.must(200, "GET", "s?offset=-1", "", "If-None-Match", before.Get("ETag"))
			if want := map[hansard.Seq]string{1: "two", 2: ""}[seq]; got.Body.String() != want || got.Header().Get(headerClosed) == "" || got.Header().Get(headerNext) != before.Get(headerNext) {
				t.Errorf("after the redaction of %d: %q %v", seq, got.Body, got.Header())
			}
			before = got.Header()
		}
	})
}

// asleep is a store whose waits check nothing until they are woken.
type asleep struct {
	hansard.Store
	waits, wake chan struct{}
}

func (a *asleep) Wait(ctx context.Context, id hansard.SessionID, after hansard.Seq) error {
	a.waits <- struct{}{}
	<-a.wake
	return a.Store.Wait(ctx, id, after)
}

// TestReplacedWhileRead: a reader waiting for more of a stream gets nothing of another stream
// that has taken its name.
func TestReplacedWhileRead(t *testing.T) {
	for _, live := range []string{liveLongPoll, liveSSE} {
		t.Run(live, func(t *testing.T) {
			store := &asleep{memstore.New(), make(chan struct{}, 10), make(chan struct{})}
			w := newWorld(t, store, Options{SSE: 10 * time.Second}) // if it is not told
			w.must(201, "PUT", "s", "old", headerType, "text/plain")
			out := make(chan *httptest.ResponseRecorder)
			go func() { out <- w.ask("GET", "s?offset=now&live="+live, "") }()
			<-store.waits
			w.must(204, "DELETE", "s", "")
			w.must(201, "PUT", "s", "another", headerType, "text/plain")
			w.must(204, "POST", "s", "of another", headerType, "text/plain")
			close(store.wake)
			got := <-out
			if strings.Contains(got.Body.String(), "another") {
				t.Errorf("it goes on with %d %s", got.Code, got.Body)
			}
			if live == liveLongPoll && (got.Code != 404 || got.Header().Get("Problem") != "deleted") {
				t.Errorf("%d %s", got.Code, got.Header())
			}
		})
	}
}
