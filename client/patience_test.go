package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"hansard"
	"hansard/client"
	"hansard/memstore"
	"hansard/storetest"
)

// TestLostAfterLong: patience is for a server that does not answer. A request that it held for
// longer, such as a wait, is sent again when the server is lost, too.
func TestLostAfterLong(t *testing.T) {
	store := memstore.New()
	if _, err := store.Append(t.Context(), "s", hansard.Batch{Create: true, Events: storetest.Marked("w", 0, 2, 10)}); err != nil {
		t.Fatal(err)
	}
	const patience = 300 * time.Millisecond
	var lost atomic.Int64
	s := behind(t, store, patience, func(w http.ResponseWriter, r *http.Request, server http.Handler) {
		switch lost.Add(1) {
		case 1:
			time.Sleep(2 * patience) // as long as a wait may take
			panic(http.ErrAbortHandler)
		case 3:
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "{")
			_ = http.NewResponseController(w).Flush()
			time.Sleep(2 * patience)
			panic(http.ErrAbortHandler)
		}
		server.ServeHTTP(w, r)
	})
	for _, cut := range []string{"without an answer", "in the middle of one"} {
		if err := s.Wait(t.Context(), "s", 1); err != nil {
			t.Errorf("a wait that was cut off late, %s: %v", cut, err)
		}
	}
	if lost.Load() != 4 {
		t.Errorf("%d requests, want 4", lost.Load())
	}
}

// TestBrokenAnswers: answers that break off again and again are requested with pauses.
func TestBrokenAnswers(t *testing.T) {
	var requests atomic.Int64
	s := behind(t, memstore.New(), 500*time.Millisecond, func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		requests.Add(1)
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, "{")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	for name, call := range map[string]func() error{
		"stat": func() error { _, err := s.Stat(t.Context(), "s"); return err },
		"read": func() (last error) {
			for _, err := range s.Read(t.Context(), "s", hansard.Range{}) {
				last = err
			}
			return last
		},
	} {
		requests.Store(0)
		if err := call(); !errors.As(err, new(*client.UnreachableError)) {
			t.Errorf("%s: %v", name, err)
		}
		if n := requests.Load(); n < 2 || n > 30 {
			t.Errorf("%s: %d requests", name, n)
		}
	}
}

// TestReadWhileClosing: a server that shuts down in the middle of an answer says so in its last line;
// the next one has the rest.
func TestReadWhileClosing(t *testing.T) {
	store := memstore.New()
	if _, err := store.Append(t.Context(), "s", hansard.Batch{Create: true, Events: storetest.Marked("w", 0, 5, 10)}); err != nil {
		t.Fatal(err)
	}
	var requests atomic.Int64
	s := behind(t, store, 10*time.Second, func(w http.ResponseWriter, r *http.Request, server http.Handler) {
		if requests.Add(1) > 1 {
			server.ServeHTTP(w, r)
			return
		}
		q := r.URL.Query()
		q.Set("limit", "2")
		r.URL.RawQuery = q.Encode()
		server.ServeHTTP(w, r)
		_, _ = io.WriteString(w, `{"problem":{"type":"/problems/closing","title":"The server is shutting down","status":503}}`+"\n")
	})
	if events := storetest.ReadAll(t, s, "s"); len(events) != 5 {
		t.Errorf("%d events, want 5", len(events))
	}
}

// TestWaitGoesOn: a claim that is sent again waits for what is left of its time.
func TestWaitGoesOn(t *testing.T) {
	store := memstore.New()
	holder, err := store.Create(t.Context(), "s", hansard.Meta{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Acquire(t.Context(), holder.ID, hansard.Claim{}); err != nil {
		t.Fatal(err)
	}
	var waits []int64
	s := behind(t, store, 10*time.Second, func(w http.ResponseWriter, r *http.Request, server http.Handler) {
		body, err := io.ReadAll(r.Body)
		var given struct {
			Wait int64 `json:"wait_ms"`
		}
		if err == nil {
			err = json.Unmarshal(body, &given)
		}
		if err != nil {
			t.Error(err)
		}
		if waits = append(waits, given.Wait); len(waits) == 1 {
			time.Sleep(300 * time.Millisecond) // it waits
			panic(http.ErrAbortHandler)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		server.ServeHTTP(w, r)
	})
	if _, err := s.Acquire(t.Context(), "s", hansard.Claim{Wait: 500 * time.Millisecond}); !errors.Is(err, hansard.ErrHeld) {
		t.Error(err)
	}
	if len(waits) != 2 || waits[0] != 500 || waits[1] > 200 {
		t.Errorf("it waited %v ms", waits)
	}
}

// TestWaitAnsweredAtOnce: a server that does not wait, because it is about to shut down, is asked
// again with pauses.
func TestWaitAnsweredAtOnce(t *testing.T) {
	var requests atomic.Int64
	s := behind(t, memstore.New(), 10*time.Second, func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		requests.Add(1)
		_, _ = io.WriteString(w, `{"events":[],"last_seq":1}`)
	})
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if err := s.Wait(ctx, "s", 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if n := requests.Load(); n < 2 || n > 30 {
		t.Errorf("%d requests", n)
	}
}
