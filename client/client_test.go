package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"hansard"
	"hansard/client"
	"hansard/httpd"
	"hansard/memstore"
	"hansard/storetest"
)

// cutter is a wire that breaks: it passes bytes on and cuts connections in the middle of requests
// and answers.
type cutter struct {
	net.Listener
	target string

	mu    sync.Mutex // guards all below
	rng   *rand.Rand
	every int   // one connection in this many is cut
	only  int64 // 0: within the first bytes, either way; else within this many of the answers
	cuts  int
}

// newCutter makes one. It starts working at once, so its settings are given here.
func newCutter(t *testing.T, target string, every int, only int64) *cutter {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	c := &cutter{Listener: l, target: strings.TrimPrefix(target, "http://"), every: every, only: only, rng: rand.New(rand.NewPCG(seed, 0))}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go c.pass(conn)
		}
	}()
	t.Cleanup(func() { l.Close() })
	return c
}

func (c *cutter) url() string { return "http://" + c.Addr().String() }

// pass connects two ends until one is done, or the bytes that it may carry in either direction
// are used up.
func (c *cutter) pass(in net.Conn) {
	defer in.Close()
	out, err := net.Dial("tcp", c.target)
	if err != nil {
		return
	}
	defer out.Close()
	c.mu.Lock()
	there, back := int64(1<<40), int64(1<<40)
	if c.every > 0 && c.rng.IntN(c.every) == 0 {
		c.cuts++
		if c.only > 0 {
			back = c.rng.Int64N(c.only)
		} else if c.rng.IntN(2) == 0 {
			there = c.rng.Int64N(2000)
		} else {
			back = c.rng.Int64N(2000)
		}
	}
	c.mu.Unlock()
	done := make(chan struct{}, 2)
	go func() { io.CopyN(out, in, there); done <- struct{}{} }()
	go func() { io.CopyN(in, out, back); done <- struct{}{} }()
	<-done
}

// TestCutConnections: over a wire that breaks in the middle of requests and answers, every append
// is stored once, and every read is complete.
func TestCutConnections(t *testing.T) {
	store := memstore.New()
	wire := newCutter(t, serve(t, store), 3, 0)
	const writers, each = 8, 40
	var wg sync.WaitGroup
	var mu sync.Mutex
	var acks []storetest.Ack
	for w := range writers {
		wg.Go(func() {
			// Each has its own client, and none keeps a connection for long.
			s, err := dial(wire.url())
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			name := fmt.Sprint("w", w)
			for i := range each {
				r, err := retryFirst(func() (hansard.Receipt, error) {
					return s.Append(t.Context(), "s", hansard.Batch{Create: true, Events: storetest.Marked(name, i, 1+i%3, 50*w)})
				})
				if err != nil {
					t.Errorf("append: %v", err)
					return
				}
				if r.Replayed {
					t.Errorf("a batch without a key was answered as a replay: %+v", r)
				}
				mu.Lock()
				acks = append(acks, storetest.Ack{Writer: name, Batch: i, Receipt: r})
				mu.Unlock()
				if i%10 == 0 {
					s.Close()
					if s, err = dial(wire.url()); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	log := storetest.ReadAll(t, store, "s")
	if err := storetest.CheckLog(log, acks); err != nil {
		t.Error(err)
	}
	s, err := dial(wire.url())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for range 20 {
		var got []hansard.Event
		for e, err := range s.Read(t.Context(), "s", hansard.Range{}) {
			if err != nil {
				if len(got) == 0 && errors.As(err, new(*client.UnreachableError)) {
					break // never reached: that is reported at once
				}
				t.Fatalf("after %d of %d events: %v", len(got), len(log), err)
			}
			got = append(got, e)
		}
		if len(got) != 0 && len(got) != len(log) {
			t.Errorf("%d events, want %d", len(got), len(log))
		}
	}
	wire.mu.Lock()
	defer wire.mu.Unlock()
	if wire.cuts < 5 {
		t.Errorf("only %d connections were cut: that shows nothing", wire.cuts)
	}
	t.Logf("%d connections cut, %d events", wire.cuts, len(log))
}

// TestCutReading: a read whose connections all break on the way, most of them in the middle of an
// event, yields every event once and in order.
func TestCutReading(t *testing.T) {
	store := memstore.New()
	wire := newCutter(t, serve(t, store), 1, 60_000)
	const total = 500
	for i := range total {
		events := storetest.Marked("w", i, 1, 1000)
		if i == 50 || i == 99 {
			events[0].Kind = "note"
		}
		if _, err := store.Append(t.Context(), "s", hansard.Batch{Create: true, Events: events}); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range []hansard.Range{{}, {Last: 400}, {After: 50, Limit: 300}, {Before: 450, FromKind: "note"},
		{Reverse: true}, {Reverse: true, Before: 450, Limit: 300}, {Reverse: true, After: 20, Last: 400}, {Reverse: true, FromKind: "note"}} {
		s, err := dial(wire.url())
		if err != nil {
			t.Fatal(err)
		}
		var want, got []hansard.Seq
		for e := range store.Read(t.Context(), "s", r) {
			want = append(want, e.Seq)
		}
		for e, err := range s.Read(t.Context(), "s", r) {
			if err != nil {
				t.Fatalf("%+v: after %d events: %v", r, len(got), err)
			}
			got = append(got, e.Seq)
		}
		if len(want) < 300 || !slices.Equal(got, want) {
			t.Errorf("%+v: %d, want %d", r, got, want)
		}
		s.Close()
	}
	wire.mu.Lock()
	defer wire.mu.Unlock()
	if wire.cuts < 20 {
		t.Errorf("only %d connections were cut: that shows nothing", wire.cuts)
	}
}

// retryFirst retries calls that did not even reach the server.
func retryFirst(f func() (hansard.Receipt, error)) (r hansard.Receipt, err error) {
	for range 50 {
		r, err = f()
		if !errors.As(err, new(*client.UnreachableError)) || errors.Is(err, hansard.ErrUnknown) {
			return r, err
		}
	}
	return r, err
}

// TestUnreachable: a server that can't be reached is reported at once, with a helpful message,
// and something that was never sent is never reported as unknown.
func TestUnreachable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := "http://" + l.Addr().String()
	l.Close()
	s, err := dial(address)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	_, err = s.Append(t.Context(), "s", hansard.Batch{Events: []hansard.Event{{Data: []byte("1")}}})
	var away *client.UnreachableError
	if !errors.As(err, &away) || errors.Is(err, hansard.ErrUnknown) || !strings.Contains(err.Error(), address) || !strings.Contains(err.Error(), "refused") {
		t.Errorf("append: %v", err)
	}
	if hansard.Hint(err) == "" {
		t.Error("there is no hint")
	}
}

// TestUnknown: an append whose answer never comes is unknown, and a retry with its key settles
// it.
func TestUnknown(t *testing.T) {
	store := memstore.New()
	server := httpd.New(store, httpd.Options{Access: httpd.Single(token)})
	var mu sync.Mutex
	lose, lost := true, func() {}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if !lose || r.Method != http.MethodPost {
			server.ServeHTTP(w, r)
			return
		}
		// It is stored, and the answer is lost.
		server.ServeHTTP(httptest.NewRecorder(), r)
		lost()
		panic(http.ErrAbortHandler)
	}))
	defer front.Close()
	s, err := client.New(front.URL, &client.Options{Token: token, Patience: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := store.Create(t.Context(), "s", hansard.Meta{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Stat(t.Context(), "s"); err != nil { // the server is reached
		t.Fatal(err)
	}
	b := hansard.Batch{Events: []hansard.Event{{Data: []byte("1")}}, Key: "k"}
	if _, err := s.Append(t.Context(), "s", b); !errors.Is(err, hansard.ErrUnknown) {
		t.Errorf("append: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	mu.Lock()
	lost = cancel
	mu.Unlock()
	if _, err := s.Append(ctx, "s", hansard.Batch{Events: []hansard.Event{{Data: []byte("2")}}, Key: "l"}); !errors.Is(err, hansard.ErrUnknown) || !errors.Is(err, context.Canceled) {
		t.Errorf("append until its context ends: %v", err)
	}
	if _, err := s.Create(t.Context(), "made", hansard.Meta{}); !errors.Is(err, hansard.ErrUnknown) {
		t.Errorf("create: %v", err) // that it exists may be its own doing
	}
	mu.Lock()
	lose = false
	mu.Unlock()
	if r, err := s.Append(t.Context(), "s", b); err != nil || !r.Replayed || r.First != 1 {
		t.Errorf("the retry: %+v, %v", r, err)
	}
	if events := storetest.ReadAll(t, store, "s"); len(events) != 2 {
		t.Errorf("%d events, want 2", len(events))
	}
}

// TestOperationsUnknown: a refusal of operations on the state says nothing about an earlier
// attempt, which may arrive when the state is different.
func TestOperationsUnknown(t *testing.T) {
	store := memstore.New()
	server := httpd.New(store, httpd.Options{Access: httpd.Single(token)})
	var posts atomic.Int64
	var lose atomic.Bool
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && posts.Add(1) == 1 && lose.Load() {
			_, _ = io.Copy(io.Discard, r.Body)
			panic(http.ErrAbortHandler) // still in flight, for all the client knows
		}
		server.ServeHTTP(w, r)
	}))
	defer front.Close()
	s, err := client.New(front.URL, &client.Options{Token: token, Patience: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := store.Create(t.Context(), "s", hansard.Meta{State: []byte(`{"n":1}`)}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		op   hansard.StateOp
		want error
	}{
		{hansard.StateOp{Op: hansard.OpTest, Path: "/n", Value: []byte("2")}, hansard.ErrConflict},
		{hansard.StateOp{Op: hansard.OpRemove, Path: "/nobody"}, hansard.ErrInvalid},
	} {
		for _, lost := range []bool{false, true} {
			posts.Store(0)
			lose.Store(lost)
			_, err := s.Append(t.Context(), "s", hansard.Batch{Patch: &hansard.Patch{StateOps: []hansard.StateOp{c.op}}})
			if !errors.Is(err, c.want) || errors.Is(err, hansard.ErrUnknown) != lost {
				t.Errorf("%s, an attempt before it lost %v: %v", c.op.Op, lost, err)
			}
		}
	}
}

// TestNew: invalid addresses, and the one that the server prints.
func TestNew(t *testing.T) {
	for _, bad := range []string{"", "localhost:80", "ftp://x", "http://", "http://user:secret@x", "http://x?y", "unix:", "http://%zz"} {
		s, err := client.New(bad, nil)
		if !errors.Is(err, hansard.ErrInvalid) {
			t.Errorf("%q: %v, %v", bad, s, err)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: the password is repeated: %v", bad, err)
		}
	}
	address := serve(t, memstore.New())
	s, err := client.New(address+"/#token="+token, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Create(t.Context(), "s", hansard.Meta{}); err != nil {
		t.Errorf("with the token in the address: %v", err)
	}
	wrong, err := client.New(address, &client.Options{Token: "wrong"})
	if err != nil {
		t.Fatal(err)
	}
	defer wrong.Close()
	if _, err := wrong.Stat(t.Context(), "s"); err == nil || !strings.Contains(err.Error(), "not one of this server's") || hansard.Hint(err) == "" {
		t.Errorf("a wrong token: %v", err)
	}
}

// TestNotHansard: something else that answers HTTP is told apart from a store.
func TestNotHansard(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/sessions/redirect" {
			http.Redirect(w, r, "https://evil.example/", http.StatusFound)
			return
		}
		http.NotFound(w, r)
	}))
	defer other.Close()
	s, err := dial(other.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, id := range []hansard.SessionID{"s", "redirect"} {
		if _, err := s.Stat(t.Context(), id); err == nil || errors.Is(err, hansard.ErrNotFound) || !strings.Contains(err.Error(), "not like a Hansard server") {
			t.Errorf("%s: %v", id, err)
		}
	}
}

// TestSocketFile: the same through a Unix socket.
func TestSocketFile(t *testing.T) {
	dir, err := os.MkdirTemp("", "hansard") // t.TempDir is too long a name for a socket
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := httpd.New(memstore.New(), httpd.Options{Access: httpd.Single(token)})
	go server.Serve(l)
	defer server.Shutdown(context.Background())
	s, err := dial("unix:" + path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Create(t.Context(), "s", hansard.Meta{}); err != nil {
		t.Error(err)
	}
}

// TestLease: a turn held through the wire is kept, by renewals that reach the store.
func TestLease(t *testing.T) {
	store := memstore.New()
	s, err := dial(serve(t, store))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Create(t.Context(), "s", hansard.Meta{}); err != nil {
		t.Fatal(err)
	}
	lease, err := hansard.Take(t.Context(), s, "s", hansard.Claim{TTL: 2 * time.Second, Label: "me"}) // a busy machine can keep that
	if err != nil {
		t.Fatal(err)
	}
	for deadline, first := time.Now().Add(30*time.Second), (time.Time{}); ; time.Sleep(time.Millisecond) {
		turn, err := store.Turn(t.Context(), "s")
		if err != nil || turn == nil || turn.Grant != lease.Grant() {
			t.Fatalf("the turn is %+v, %v", turn, err)
		}
		if first.IsZero() {
			first = turn.Renewed
		}
		if turn.Renewed.After(first) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("it was never renewed")
		}
	}
	if _, err := store.Acquire(t.Context(), "s", hansard.Claim{}); !errors.Is(err, hansard.ErrHeld) {
		t.Errorf("acquire of another: %v", err)
	}
	if _, err := s.Append(t.Context(), "s", hansard.Batch{Turn: lease.Grant(), Events: []hansard.Event{{Data: []byte("1")}}}); err != nil {
		t.Error(err)
	}
	if err := lease.Release(); err != nil {
		t.Error(err)
	}
}
