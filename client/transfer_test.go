package client_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"hansard"
	"hansard/client"
	"hansard/engine"
	"hansard/httpd"
	"hansard/internal/pgtest"
	"hansard/memstore"
	"hansard/storetest"
)

// TestCopy: sessions are copied from a server and to one just as between stores.
func TestCopy(t *testing.T) {
	t.Parallel()
	others := map[string]func(testing.TB) hansard.Store{
		"memory":     func(testing.TB) hansard.Store { return memstore.New() },
		"files":      func(t testing.TB) hansard.Store { return openFiles(t, t.TempDir()) },
		"PostgreSQL": func(t testing.TB) hansard.Store { return openPostgres(t, pgtest.Shared(t).Schema(t)) },
	}
	for _, c := range []struct {
		engine storetest.Engine
		other  string
	}{
		{memoryEngine(), "memory"}, {fileEngine(), "memory"}, {fileEngine(), "PostgreSQL"}, {postgresEngine(), "files"},
	} {
		t.Run(c.engine.Name+" and "+c.other, func(t *testing.T) { storetest.RunCopy(t, c.engine, others[c.other]) })
	}
}

// connect makes a client until the test ends.
func connect(t *testing.T, address string) *client.Store {
	t.Helper()
	s, err := client.New(address, &client.Options{Token: token})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// aPart is a part of two events and a key, of a session of this id.
func aPart(id hansard.SessionID, data string) hansard.Part {
	made := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	p := hansard.Part{Origin: hansard.Origin{ID: id, Created: made}, Keys: []hansard.KeyUse{{Key: "k", Hash: "h", First: 1, Last: 2}}}
	for seq := range hansard.Seq(2) {
		p.Events = append(p.Events, hansard.Event{Seq: seq + 1, Time: made.Add(time.Second), Kind: "k", Data: []byte(data)})
	}
	p.Keys[0].Hash = engine.ContentHash(p.Events)
	return p
}

// TestCheckImport: whether anything can be imported is known without importing.
func TestCheckImport(t *testing.T) {
	store := memstore.New()
	defer store.Close()
	for want, opt := range map[string]httpd.Options{
		"":                        {Access: httpd.Single(token)},
		"the token is not one of": {Access: httpd.Single("another")},
		"this server only reads":  {Access: httpd.Single(token), ReadOnly: true},
	} {
		server := httptest.NewServer(httpd.New(store, opt))
		err := connect(t, server.URL).CheckImport(t.Context())
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
		server.Close()
	}
	for o := range store.Origins(t.Context(), "") {
		t.Errorf("%s was made", o.ID)
	}
}

// TestImportAnswerLost: an import whose answer is lost is sent again, and succeeds if the stored
// part is the same.
func TestImportAnswerLost(t *testing.T) {
	store := memstore.New()
	server := httpd.New(store, httpd.Options{Access: httpd.Single(token)})
	var instead atomic.Pointer[hansard.Part] // stored in place of the one that is lost
	var lose atomic.Int32                    // this many answers, of imports
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || lose.Add(-1) < 0 {
			server.ServeHTTP(w, r)
			return
		}
		if p := instead.Load(); p != nil {
			if err := store.Import(t.Context(), *p); err != nil {
				t.Error(err)
			}
		} else {
			server.ServeHTTP(httptest.NewRecorder(), r)
		}
		panic(http.ErrAbortHandler)
	}))
	defer front.Close()
	dial := func(patience time.Duration) *client.Store {
		s, err := client.New(front.URL, &client.Options{Token: token, Patience: patience})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	s := dial(30 * time.Second)

	lose.Store(1)
	if err := s.Import(t.Context(), aPart("stored", " 1\n")); err != nil {
		t.Errorf("an import that was stored: %v", err)
	}
	if events := storetest.ReadAll(t, store, "stored"); len(events) != 2 || string(events[1].Data) != " 1\n" {
		t.Errorf("stored is %v", events)
	}
	lose.Store(1)
	empty := hansard.Part{Origin: aPart("empty", "1").Origin}
	if err := s.Import(t.Context(), empty); err != nil {
		t.Errorf("an import of no events: %v", err)
	}
	lose.Store(1)
	empty.Deleted = true
	if err := s.Import(t.Context(), empty); err != nil {
		t.Errorf("an import of a tombstone: %v", err)
	}

	keyless := aPart("keyless", "1")
	keyless.Keys = nil
	otherKey := aPart("other-key", "1")
	otherKey.Keys[0].Key = "i"
	for _, other := range []hansard.Part{aPart("other", "2"), keyless, otherKey} {
		lose.Store(1)
		instead.Store(&other)
		if err := s.Import(t.Context(), aPart(other.ID, "1")); !errors.Is(err, hansard.ErrConflict) {
			t.Errorf("something else was stored, %s: %v", other.ID, err)
		}
	}
	shorter := aPart("shorter", "1")
	shorter.Events, shorter.Keys = shorter.Events[:1], nil
	lose.Store(1)
	instead.Store(&shorter)
	if err := s.Import(t.Context(), aPart("shorter", "1")); !errors.Is(err, hansard.ErrUnknown) {
		t.Errorf("less was stored: %v", err)
	}
	instead.Store(nil)
	lose.Store(1 << 20)
	if err := dial(200*time.Millisecond).Import(t.Context(), aPart("never", "1")); !errors.Is(err, hansard.ErrUnknown) {
		t.Errorf("no answer at all: %v", err)
	}
}

// TestImportLargest: a part of the maximum size, every byte of which is escaped on the way,
// arrives.
func TestImportLargest(t *testing.T) {
	store := memstore.New()
	s := connect(t, serve(t, store))
	data := `"` + strings.Repeat(`\"`, hansard.MaxBatchBytes/2-2) + `" ` + "\n"
	if err := s.Import(t.Context(), aPart("s", data)); err != nil {
		t.Fatal(err)
	}
	if events := storetest.ReadAll(t, store, "s"); len(events) != 2 || string(events[0].Data) != data || string(events[1].Data) != data {
		t.Error("another came out")
	}
}

// TestCutTransfer: origins and keys whose connections all break on the way arrive once and in
// order.
func TestCutTransfer(t *testing.T) {
	store := memstore.New()
	wire := newCutter(t, serve(t, store), 1, 20_000)
	const total = 1000
	var ids []hansard.SessionID
	for i := range total {
		id := hansard.SessionID(fmt.Sprintf("s%04d", i))
		if _, err := store.Create(t.Context(), id, hansard.Meta{Title: strings.Repeat("t", 50)}); err != nil {
			t.Fatal(err)
		}
		if _, err := store.Append(t.Context(), "s0000", hansard.Batch{Key: string(id), Events: storetest.Marked("w", i, 2, 10)}); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	s := connect(t, wire.url())
	n := 0
	for o, err := range s.Origins(t.Context(), "") {
		if err != nil || n == total || o.ID != ids[n] {
			t.Fatalf("origin %d: %+v, %v", n, o, err)
		}
		n++
	}
	keys := 0
	for k, err := range s.Keys(t.Context(), "s0000", 0) {
		if err != nil || keys == total || k.Key != string(ids[keys]) || k.First != hansard.Seq(2*keys+1) || k.Last != k.First+1 {
			t.Fatalf("key %d: %+v, %v", keys, k, err)
		}
		keys++
	}
	if n != total || keys != total {
		t.Errorf("%d origins and %d keys, want %d", n, keys, total)
	}
	wire.mu.Lock()
	defer wire.mu.Unlock()
	if wire.cuts < 8 {
		t.Errorf("only %d connections were cut: that shows nothing", wire.cuts)
	}
}

// failing is a store whose lists end in an error.
type failing struct{ *memstore.Store }

func (f failing) Origins(ctx context.Context, after hansard.SessionID) iter.Seq2[hansard.Origin, error] {
	return thenFail(f.Store.Origins(ctx, after))
}

func (f failing) Keys(ctx context.Context, id hansard.SessionID, after hansard.Seq) iter.Seq2[hansard.KeyUse, error] {
	return thenFail(f.Store.Keys(ctx, id, after))
}

func thenFail[T any](all iter.Seq2[T, error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for v, err := range all {
			if !yield(v, err) {
				return
			}
		}
		var none T
		yield(none, hansard.ErrBusy)
	}
}

// TestTransferErrors: an error on the way is seen at the other end, after what came before it,
// and so is a store that can't be copied.
func TestTransferErrors(t *testing.T) {
	store := memstore.New()
	if err := store.Import(t.Context(), aPart("s", "1")); err != nil {
		t.Fatal(err)
	}
	s := connect(t, serve(t, failing{store}))
	if n, err := count(s.Origins(t.Context(), "")); n != 1 || !errors.Is(err, hansard.ErrBusy) {
		t.Errorf("origins: %d, %v", n, err)
	}
	if n, err := count(s.Keys(t.Context(), "s", 0)); n != 1 || !errors.Is(err, hansard.ErrBusy) {
		t.Errorf("keys: %d, %v", n, err)
	}
	s = connect(t, serve(t, struct{ hansard.Store }{memstore.New()}))
	_, origins := count(s.Origins(t.Context(), ""))
	_, keys := count(s.Keys(t.Context(), "s", 0))
	for _, err := range []error{origins, keys, s.Import(t.Context(), aPart("s", "1"))} {
		if !errors.Is(err, hansard.ErrUnsupported) {
			t.Errorf("of a store that can't be copied: %v", err)
		}
	}
}

func count[T any](all iter.Seq2[T, error]) (n int, err error) {
	for _, err := range all {
		if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}
