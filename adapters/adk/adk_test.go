package adk_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"iter"
	"net"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/adk/v2/model"
	"google.golang.org/adk/v2/session"
	"google.golang.org/adk/v2/session/sessiontestsuite"
	"google.golang.org/genai"

	"hansard"
	"hansard/adapters/adk"
	"hansard/client"
	"hansard/filestore"
	"hansard/httpd"
	"hansard/internal/pgtest"
	"hansard/memstore"
	"hansard/pgstore"
)

const token = "a-token-for-the-tests"

func TestMain(m *testing.M) {
	if dir := os.Getenv("ADK_TEST_WRITER"); dir != "" {
		if err := writer(dir, os.Getenv("ADK_TEST_SESSION")); err != nil {
			fmt.Println("error", err)
		}
		return
	}
	os.Exit(pgtest.Main(m))
}

func openFiles(t *testing.T, dir string) hansard.Store {
	t.Helper()
	s, err := filestore.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// remote is a client of a server of a store.
func remote(t *testing.T, store hansard.Store) hansard.Store {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := httpd.New(store, httpd.Options{Access: httpd.Single(token)})
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		server.Shutdown(ctx)
		<-served
	})
	c, err := client.New("http://"+l.Addr().String(), &client.Options{Token: token})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func openTables(t *testing.T, url string) hansard.Store {
	t.Helper()
	s, err := pgstore.Open(t.Context(), url, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// stores are what everything here has to work on: each gives two handles of one store.
var stores = map[string]func(t *testing.T) (hansard.Store, hansard.Store){
	"memstore": func(*testing.T) (hansard.Store, hansard.Store) { s := memstore.New(); return s, s },
	"filestore": func(t *testing.T) (hansard.Store, hansard.Store) {
		dir := t.TempDir()
		return openFiles(t, dir), openFiles(t, dir)
	},
	"pgstore": func(t *testing.T) (hansard.Store, hansard.Store) {
		url := pgtest.Shared(t).Schema(t)
		return openTables(t, url), openTables(t, url)
	},
	"client": func(t *testing.T) (hansard.Store, hansard.Store) {
		dir := t.TempDir()
		return remote(t, openFiles(t, dir)), remote(t, openFiles(t, dir))
	},
}

func onEvery(t *testing.T, test func(t *testing.T, one, other hansard.Store)) {
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			one, other := open(t)
			test(t, one, other)
		})
	}
}

// TestPublicSuite: the suite of the ADK itself.
func TestPublicSuite(t *testing.T) {
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			sessiontestsuite.RunServiceTests(t, sessiontestsuite.SuiteOptions{SupportsUserProvidedSessionID: true}, func(t *testing.T) session.Service {
				store, _ := open(t)
				return adk.New(store)
			})
		})
	}
}

func create(t *testing.T, s session.Service, id string, state map[string]any) session.Session {
	t.Helper()
	made, err := s.Create(t.Context(), &session.CreateRequest{AppName: "app", UserID: "ada", SessionID: id, State: state})
	if err != nil {
		t.Fatal(err)
	}
	return made.Session
}

func get(t *testing.T, s session.Service, id string) session.Session {
	t.Helper()
	got, err := s.Get(t.Context(), &session.GetRequest{AppName: "app", UserID: "ada", SessionID: id})
	if err != nil {
		t.Fatal(err)
	}
	return got.Session
}

func event(id, text string, delta map[string]any) *session.Event {
	return &session.Event{
		ID: id, Author: "user", InvocationID: "inv", Timestamp: time.Now(),
		LLMResponse: model.LLMResponse{Content: genai.NewContentFromText(text, "user")},
		Actions:     session.EventActions{StateDelta: delta},
	}
}

func add(t *testing.T, s session.Service, to session.Session, e *session.Event) {
	t.Helper()
	if err := s.AppendEvent(t.Context(), to, e); err != nil {
		t.Fatal(err)
	}
}

func wantState(t *testing.T, s session.Session, want map[string]any) {
	t.Helper()
	if got := sessiontestsuite.Snapshot(s).State; !reflect.DeepEqual(got, want) {
		t.Errorf("state %v, want %v", got, want)
	}
}

func ids(s session.Session) (out []string) {
	for e := range s.Events().All() {
		out = append(out, e.ID)
	}
	return out
}

func wantIDs(t *testing.T, s session.Session, want ...string) {
	t.Helper()
	if got := ids(s); !reflect.DeepEqual(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
}

// TestStates: values are replaced as a whole, null is one, and keys may be anything.
func TestStates(t *testing.T) {
	onEvery(t, func(t *testing.T, store, _ hansard.Store) {
		s := adk.New(store)
		sess := create(t, s, "s", map[string]any{"a": map[string]any{"x": 1.0, "y": 2.0}, "app:b/c": "old", "temp:t": "gone", "": "empty"})
		add(t, s, sess, event("e1", "a", map[string]any{"a": map[string]any{"z": 3.0}, "app:b/c": nil, "user:~1": []any{"\x00"}, "temp:t": "now"}))
		lasting := map[string]any{"": "empty", "a": map[string]any{"z": 3.0}, "app:b/c": nil, "user:~1": []any{"\x00"}}
		wantState(t, get(t, s, "s"), lasting)
		if v, err := sess.State().Get("temp:t"); err != nil || v != "now" {
			t.Errorf("temporary state of the invocation: %v, %v", v, err)
		}
		delta := get(t, s, "s").Events().At(0).Actions.StateDelta
		if want := map[string]any{"a": map[string]any{"z": 3.0}, "app:b/c": nil, "user:~1": []any{"\x00"}}; !reflect.DeepEqual(delta, want) {
			t.Errorf("the event was stored with %v, want %v", delta, want)
		}
		if err := s.AppendEvent(t.Context(), sess, event("bad", "a", map[string]any{"f": func() {}})); err == nil {
			t.Error("a function was stored")
		}
		wantIDs(t, sess, "e1")
		listed, err := s.List(t.Context(), &session.ListRequest{AppName: "app"})
		if err != nil || len(listed.Sessions) != 1 {
			t.Fatalf("List: %v, %v", listed, err)
		}
		wantState(t, listed.Sessions[0], lasting)
		if listed.Sessions[0].LastUpdateTime().IsZero() || time.Since(listed.Sessions[0].LastUpdateTime()) < 0 {
			t.Errorf("updated %v", listed.Sessions[0].LastUpdateTime())
		}
	})
}

// TestStale: who does not know the newest event may not write behind it. Turns and messages of others, which the
// framework does not see, keep nobody from it.
func TestStale(t *testing.T) {
	onEvery(t, func(t *testing.T, one, other hansard.Store) {
		a, b := adk.New(one), adk.New(other)
		create(t, a, "s", nil)
		ofA, ofB := get(t, a, "s"), get(t, b, "s")
		add(t, a, ofA, event("e1", "a", map[string]any{"k": "a", "app:k": "a"}))
		err := b.AppendEvent(t.Context(), ofB, event("e2", "b", map[string]any{"k": "b", "app:k": "b"}))
		if !errors.Is(err, hansard.ErrConflict) {
			t.Fatalf("a stale session was written: %v", err)
		}
		wantIDs(t, ofB)
		wantState(t, get(t, b, "s"), map[string]any{"k": "a", "app:k": "a"})

		ofB = get(t, b, "s")
		if _, err := one.Append(t.Context(), "adk:app:ada:s", hansard.Batch{Events: []hansard.Event{hansard.Message("user", "aside")}}); err != nil {
			t.Fatal(err)
		}
		ofA = get(t, a, "s")
		add(t, b, ofB, event("e2", "b", nil))
		wantIDs(t, get(t, a, "s"), "e1", "e2")
		if err := a.AppendEvent(t.Context(), ofA, event("e3", "a", nil)); !errors.Is(err, hansard.ErrConflict) {
			t.Fatalf("written behind an event that it did not know: %v", err)
		}
		ofA, ofB = get(t, a, "s"), get(t, b, "s")
		add(t, b, ofB, event("e3", "b", nil)) // it changes no state
		if err := a.AppendEvent(t.Context(), ofA, event("e4", "a", nil)); !errors.Is(err, hansard.ErrConflict) {
			t.Fatalf("written behind an event that it did not know: %v", err)
		}

		ofB = get(t, b, "s")
		if _, err := one.Append(t.Context(), "adk:app:ada:s", hansard.Batch{Patch: &hansard.Patch{State: []byte(`{"state":{"k":"c"}}`)}}); err != nil {
			t.Fatal(err)
		}
		if err := b.AppendEvent(t.Context(), ofB, event("e5", "b", nil)); !errors.Is(err, hansard.ErrConflict) {
			t.Fatalf("a session whose state had changed was written: %v", err)
		}
	})
}

// TestWriters: eight programs at one session, and at the state of one app and user. What was accepted is there.
func TestWriters(t *testing.T) {
	const writers, each = 8, 10
	onEvery(t, func(t *testing.T, one, other hansard.Store) {
		create(t, adk.New(one), "s", map[string]any{"n": 0})
		var wg sync.WaitGroup
		for w := range writers {
			s := adk.New([]hansard.Store{one, other}[w%2])
			wg.Go(func() {
				for n := 1; n <= each; {
					got, err := s.Get(t.Context(), &session.GetRequest{AppName: "app", UserID: "ada", SessionID: "s", NumRecentEvents: 1})
					if err != nil {
						t.Error(err)
						return
					}
					count, _ := got.Session.State().Get("n")
					mine := fmt.Sprintf("w%d", w)
					e := event(fmt.Sprintf("%s-%d", mine, n), mine, map[string]any{"n": count.(float64) + 1, mine: n, "app:" + mine: n, "user:" + mine: n})
					switch err := s.AppendEvent(t.Context(), got.Session, e); {
					case err == nil:
						n++
					case !errors.Is(err, hansard.ErrConflict):
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		got := get(t, adk.New(other), "s")
		want := map[string]any{"n": float64(writers * each)}
		for w := range writers {
			for _, scope := range []string{"", "app:", "user:"} {
				want[fmt.Sprintf("%sw%d", scope, w)] = float64(each)
			}
		}
		wantState(t, got, want)
		if got.Events().Len() != writers*each {
			t.Errorf("%d events, want %d", got.Events().Len(), writers*each)
		}
	})
}

// cut is a store on which some appends fail: before they are stored, or after.
type cut struct {
	hansard.Store
	fails func(id hansard.SessionID) (before, after bool)
	read  atomic.Int64
}

func (c *cut) Append(ctx context.Context, id hansard.SessionID, b hansard.Batch) (hansard.Receipt, error) {
	before, after := c.fails(id)
	if before {
		return hansard.Receipt{}, hansard.ErrUnknown
	}
	r, err := c.Store.Append(ctx, id, b)
	if after && err == nil {
		return hansard.Receipt{}, hansard.ErrUnknown
	}
	return r, err
}

func (c *cut) Read(ctx context.Context, id hansard.SessionID, r hansard.Range) iter.Seq2[hansard.Event, error] {
	return func(yield func(hansard.Event, error) bool) {
		for e, err := range c.Store.Read(ctx, id, r) {
			c.read.Add(1)
			if !yield(e, err) {
				return
			}
		}
	}
}

// TestOwed: a program that ends between an event and what that changes for others leaves it to the next one.
func TestOwed(t *testing.T) {
	for _, retried := range []bool{false, true} {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("retried=%v,after=%v", retried, after), func(t *testing.T) {
				store := memstore.New()
				broken := true
				flaky := &cut{Store: store, fails: func(id hansard.SessionID) (bool, bool) {
					shared := strings.HasPrefix(string(id), "adk-shared:")
					return broken && shared && !after, broken && shared && after
				}}
				s, next := adk.New(flaky), adk.New(store)
				create(t, next, "before", map[string]any{"app:k": "first"}) // the shared session is there
				sess := create(t, s, "s", nil)
				e := event("e1", "a", map[string]any{"k": "v", "app:k": "v", "user:k": "v"})
				if err := s.AppendEvent(t.Context(), sess, e); err == nil {
					t.Fatal("it was answered with success")
				}
				if retried {
					broken = false
					add(t, s, sess, e)
					add(t, s, sess, event("e2", "b", nil))
					wantIDs(t, sess, "e1", "e2")
				} else {
					add(t, next, get(t, next, "s"), event("e2", "b", nil))
				}
				// What others set since stays.
				add(t, next, get(t, next, "before"), event("e1", "c", map[string]any{"app:k": "newer"}))
				add(t, next, get(t, next, "s"), event("e3", "b", nil))
				wantState(t, get(t, next, "s"), map[string]any{"k": "v", "app:k": "newer", "user:k": "v"})
				wantState(t, get(t, next, "before"), map[string]any{"app:k": "newer", "user:k": "v"}) // no event of its own says so
				wantIDs(t, get(t, next, "s"), "e1", "e2", "e3")
			})
		}
	}
}

// TestOwedForLong: what a program that was killed owes does not undo what others set since, and were answered. What
// nobody set comes all the same.
func TestOwedForLong(t *testing.T) {
	onEvery(t, func(t *testing.T, store, _ hansard.Store) {
		broken := true
		killed := adk.New(&cut{Store: store, fails: func(id hansard.SessionID) (bool, bool) {
			return broken && strings.HasPrefix(string(id), "adk-shared:"), false
		}})
		s := adk.New(store)
		other := create(t, s, "other", map[string]any{"app:k": "old", "app:l": "old"})
		if err := killed.AppendEvent(t.Context(), create(t, killed, "s", nil), event("e1", "a", map[string]any{"app:k": "owed", "app:l": "owed", "user:k": "owed"})); err == nil {
			t.Fatal("it was answered with success")
		}
		if _, err := killed.Create(t.Context(), &session.CreateRequest{AppName: "app", UserID: "ada", SessionID: "made", State: map[string]any{"app:m": "owed", "app:n": "owed"}}); err == nil {
			t.Fatal("it was answered with success")
		}
		broken = false
		add(t, s, other, event("e1", "b", map[string]any{"app:k": "newer", "app:m": "newer"}))
		for range 2 { // it is done once
			add(t, s, get(t, s, "s"), event("", "c", nil))
			add(t, s, get(t, s, "made"), event("", "c", nil))
			wantState(t, get(t, s, "other"), map[string]any{"app:k": "newer", "app:l": "owed", "app:m": "newer", "app:n": "owed", "user:k": "owed"})
		}
	})
}

// TestOwedMeanwhile: another program sets a value, and is answered, in the moment in which what is owed is about to be
// applied: by the next one, or by its own writer, for whom the next one had paid.
func TestOwedMeanwhile(t *testing.T) {
	store := memstore.New()
	s := adk.New(store)
	create(t, s, "other", map[string]any{"app:k": "old"})
	var before func()
	slow := adk.New(&cut{Store: store, fails: func(id hansard.SessionID) (bool, bool) {
		do := before
		if do == nil || !strings.HasPrefix(string(id), "adk-shared:") {
			return false, false
		}
		before = nil
		do()
		return false, false
	}})
	newer := func(id string) {
		add(t, s, get(t, s, "other"), event(id, "b", map[string]any{"app:k": id}))
	}
	create(t, s, "s", nil)
	before = func() {
		newer("n1")
		add(t, s, get(t, s, "s"), event("pays", "c", nil))
	}
	add(t, slow, get(t, slow, "s"), event("e1", "a", map[string]any{"app:k": "owed", "app:l": "owed"}))
	wantState(t, get(t, s, "other"), map[string]any{"app:k": "n1", "app:l": "owed"})

	dead := adk.New(&cut{Store: store, fails: func(id hansard.SessionID) (bool, bool) { return strings.HasPrefix(string(id), "adk-shared:"), false }})
	if err := dead.AppendEvent(t.Context(), get(t, dead, "s"), event("e2", "a", map[string]any{"app:k": "owed", "app:l": "owed2"})); err == nil {
		t.Fatal("it was answered with success")
	}
	before = func() { newer("n2") }
	add(t, slow, get(t, slow, "s"), event("pays2", "c", nil))
	wantState(t, get(t, s, "other"), map[string]any{"app:k": "n2", "app:l": "owed2"})
}

// raced is a store in which another program is faster to create something.
type raced struct {
	hansard.Store
	before func(id hansard.SessionID)
}

func (r raced) Create(ctx context.Context, id hansard.SessionID, m hansard.Meta) (hansard.Info, error) {
	r.before(id)
	return r.Store.Create(ctx, id, m)
}

// TestFirstShared: two programs are the first to set something for an app and for a user.
func TestFirstShared(t *testing.T) {
	onEvery(t, func(t *testing.T, one, other hansard.Store) {
		s := adk.New(other)
		n := 0
		slow := adk.New(raced{one, func(id hansard.SessionID) {
			if n++; strings.HasPrefix(string(id), "adk-shared:") {
				create(t, s, fmt.Sprintf("fast-%d", n), map[string]any{"app:fast": 1.0, "user:fast": 1.0})
			}
		}})
		create(t, slow, "s", map[string]any{"app:slow": 2.0, "user:slow": 2.0})
		wantState(t, get(t, s, "s"), map[string]any{"app:fast": 1.0, "user:fast": 1.0, "app:slow": 2.0, "user:slow": 2.0})
	})
}

// TestOwedByMany: eight programs set one value of an app, each from a session of its own, and leave every other event half
// done. What was answered last stays, whoever pays what is owed after it.
func TestOwedByMany(t *testing.T) {
	const writers, each = 8, 10
	onEvery(t, func(t *testing.T, one, other hansard.Store) {
		var wg sync.WaitGroup
		for w := range writers {
			killed, stored := false, false
			s := adk.New(&cut{Store: []hansard.Store{one, other}[w%2], fails: func(id hansard.SessionID) (bool, bool) {
				shared := strings.HasPrefix(string(id), "adk-shared:")
				stored = stored || !shared
				return killed && stored && shared, false
			}})
			mine := fmt.Sprintf("w%d", w)
			create(t, s, mine, nil)
			wg.Go(func() {
				for n := 1; n <= each; n++ {
					got, err := s.Get(t.Context(), &session.GetRequest{AppName: "app", UserID: "ada", SessionID: mine})
					if err != nil {
						t.Error(err)
						return
					}
					e := event(fmt.Sprint(n), mine, map[string]any{"app:all": fmt.Sprint(mine, n), "app:" + mine: n})
					killed, stored = n%2 == 0, false
					err = s.AppendEvent(t.Context(), got.Session, e)
					if killed = false; (err != nil) != (n%2 == 0) {
						t.Errorf("%s, event %d: %v", mine, n, err)
						return
					}
				}
			})
		}
		wg.Wait()
		s := adk.New(one)
		add(t, s, create(t, s, "last", nil), event("e1", "a", map[string]any{"app:all": "answered"}))
		want := map[string]any{"app:all": "answered"}
		for w := range writers {
			add(t, s, get(t, s, fmt.Sprintf("w%d", w)), event("pays", "b", nil))
			want[fmt.Sprintf("app:w%d", w)] = float64(each)
		}
		wantState(t, get(t, s, "last"), want)
	})
}

// unshared makes a service whose appends to the state of apps and users fail as long as it is told to.
func unshared(store hansard.Store) (session.Service, *bool) {
	broken := true
	return adk.New(&cut{Store: store, fails: func(id hansard.SessionID) (bool, bool) {
		return broken && strings.HasPrefix(string(id), "adk-shared:"), false
	}}), &broken
}

// TestOwedByRetried: an event that is appended again, after others set what it sets, does not undo that. Until then the
// copy of the session is without it, and a different event can't go behind it.
func TestOwedByRetried(t *testing.T) {
	onEvery(t, func(t *testing.T, store, _ hansard.Store) {
		s := adk.New(store)
		killed, broken := unshared(store)
		sess := create(t, killed, "s", nil)
		e := event("e1", "a", map[string]any{"app:k": "owed", "app:l": "owed", "temp:t": "now"})
		if err := killed.AppendEvent(t.Context(), sess, e); !errors.Is(err, hansard.ErrUnknown) {
			t.Fatalf("not shared: %v", err)
		}
		wantIDs(t, sess)
		if err := killed.AppendEvent(t.Context(), sess, event("e2", "b", nil)); !errors.Is(err, hansard.ErrConflict) {
			t.Fatalf("written behind an event that the copy does not have: %v", err)
		}
		*broken = false
		add(t, s, create(t, s, "other", nil), event("e1", "b", map[string]any{"app:k": "newer"}))
		add(t, killed, sess, e)
		add(t, killed, sess, e)
		wantIDs(t, sess, "e1")
		wantState(t, get(t, s, "other"), map[string]any{"app:k": "newer", "app:l": "owed"})

		got := get(t, s, "s")
		add(t, s, got, e) // it was got with it
		add(t, s, got, event("e2", "b", nil))
		wantIDs(t, got, "e1", "e2")
		wantIDs(t, get(t, s, "s"), "e1", "e2")
	})
}

// TestOwedByRedacted: that the content of an event was taken away does not take away what it set, nor does it matter
// that the session was got by List.
func TestOwedByRedacted(t *testing.T) {
	onEvery(t, func(t *testing.T, store, _ hansard.Store) {
		s := adk.New(store)
		killed, _ := unshared(store)
		if err := killed.AppendEvent(t.Context(), create(t, killed, "s", nil), event("e1", "a", map[string]any{"app:k": 1.0, "user:k": 2.0})); err == nil {
			t.Fatal("it was answered with success")
		}
		if _, err := store.Redact(t.Context(), "adk:app:ada:s", hansard.Redaction{Seqs: []hansard.Seq{1}, Reason: "test"}); err != nil {
			t.Fatal(err)
		}
		wantState(t, get(t, s, "s"), map[string]any{}) // it is not there before it is shared
		listed, err := s.List(t.Context(), &session.ListRequest{AppName: "app", UserID: "ada"})
		if err != nil || len(listed.Sessions) != 1 {
			t.Fatalf("List: %v, %v", listed, err)
		}
		add(t, s, listed.Sessions[0], event("e2", "b", nil))
		wantState(t, create(t, s, "other", nil), map[string]any{"app:k": 1.0, "user:k": 2.0})
	})
}

// TestOwedForEver: what the state of an app has no room for is refused, also when it is tried again, and is in nobody's
// way.
func TestOwedForEver(t *testing.T) {
	s := adk.New(memstore.New())
	large := strings.Repeat("x", hansard.MaxStateBytes*2/3)
	create(t, s, "full", map[string]any{"app:a": large})
	sess, e := create(t, s, "s", nil), event("e1", "a", map[string]any{"app:b": large})
	for range 2 {
		if err := s.AppendEvent(t.Context(), sess, e); !errors.Is(err, hansard.ErrInvalid) {
			t.Fatalf("there was no room for it: %v", err)
		}
	}
	sess = get(t, s, "s")
	add(t, s, sess, event("e2", "b", map[string]any{"app:c": 1.0}))
	wantIDs(t, sess, "e1", "e2")
	wantState(t, get(t, s, "s"), map[string]any{"app:a": large, "app:c": 1.0})
}

// TestLostAnswer: an event whose answer was lost is stored once if it is appended again, and an id has one content.
func TestLostAnswer(t *testing.T) {
	lose := false
	flaky := &cut{Store: memstore.New(), fails: func(hansard.SessionID) (bool, bool) { return false, lose }}
	s := adk.New(flaky)
	sess := create(t, s, "s", nil)
	e := event("e1", "a", map[string]any{"k": 1.0})
	lose = true
	if err := s.AppendEvent(t.Context(), sess, e); !errors.Is(err, hansard.ErrUnknown) {
		t.Fatalf("lost: %v", err)
	}
	lose = false
	add(t, s, sess, e)
	add(t, s, sess, event("e2", "b", nil))
	wantIDs(t, sess, "e1", "e2")
	wantIDs(t, get(t, s, "s"), "e1", "e2")
	if err := s.AppendEvent(t.Context(), sess, event("e1", "something else", nil)); err == nil {
		t.Error("an id was used for another event")
	}
	sess = get(t, s, "s")
	add(t, s, sess, &session.Event{Author: "user"})
	if got := ids(get(t, s, "s")); len(got) != 3 || got[2] == "" {
		t.Errorf("an event without an id: %q", got)
	}
}

// TestBounded: a few events of a long session are read without the others, and none to append.
func TestBounded(t *testing.T) {
	store := &cut{Store: memstore.New(), fails: func(hansard.SessionID) (bool, bool) { return false, false }}
	s := adk.New(store)
	sess := create(t, s, "s", nil)
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for n := range 500 {
		e := event(fmt.Sprint(n), "a", map[string]any{"n": n})
		e.Timestamp = begin.Add(time.Duration(n) * time.Second)
		add(t, s, sess, e)
	}
	for _, c := range []struct {
		req  session.GetRequest
		want int
	}{
		{session.GetRequest{NumRecentEvents: 2}, 2},
		{session.GetRequest{After: begin.Add(497 * time.Second)}, 3},
		{session.GetRequest{After: begin.Add(497 * time.Second), NumRecentEvents: 1}, 1},
		{session.GetRequest{After: begin.Add(500 * time.Second)}, 0},
	} {
		store.read.Store(0)
		c.req.AppName, c.req.UserID, c.req.SessionID = "app", "ada", "s"
		got, err := s.Get(t.Context(), &c.req)
		if err != nil || got.Session.Events().Len() != c.want {
			t.Fatalf("%+v: %v, %v", c.req, got, err)
		}
		if store.read.Load() > int64(c.want)+1 {
			t.Errorf("%+v: %d events were read", c.req, store.read.Load())
		}
		wantState(t, got.Session, map[string]any{"n": 499.0})
		store.read.Store(0)
		if c.want > 0 {
			last := got.Session.Events().At(c.want - 1)
			if last.ID != "499" || !got.Session.LastUpdateTime().Equal(last.Timestamp) {
				t.Errorf("the last event is %s, the session of %v", last.ID, got.Session.LastUpdateTime())
			}
		}
	}
	store.read.Store(0)
	add(t, s, get(t, s, "s"), event("more", "b", nil))
	if n := store.read.Load(); n != 500 { // those of Get
		t.Errorf("%d events were read", n)
	}
}

// TestNames: names are whatever people use, each is a session of its own, and one that was deleted can be used again.
func TestNames(t *testing.T) {
	onEvery(t, func(t *testing.T, store, _ hansard.Store) {
		s := adk.New(store)
		odd := []string{"a", "A", "a:b", "a/b", "ä", "x\x00y", "~x", strings.Repeat("long", 100), " "}
		for _, user := range odd {
			for _, id := range odd {
				if _, err := s.Create(t.Context(), &session.CreateRequest{AppName: "app/1", UserID: user, SessionID: id, State: map[string]any{"is": user + id}}); err != nil {
					t.Fatalf("%q %q: %v", user, id, err)
				}
			}
		}
		for _, user := range odd {
			listed, err := s.List(t.Context(), &session.ListRequest{AppName: "app/1", UserID: user})
			if err != nil || len(listed.Sessions) != len(odd) {
				t.Fatalf("%q: %d sessions, %v", user, len(listed.Sessions), err)
			}
			for _, id := range odd {
				got, err := s.Get(t.Context(), &session.GetRequest{AppName: "app/1", UserID: user, SessionID: id})
				if err != nil || got.Session.ID() != id || got.Session.UserID() != user {
					t.Fatalf("%q %q: %v, %v", user, id, got, err)
				}
				wantState(t, got.Session, map[string]any{"is": user + id})
			}
		}
		for _, bad := range []session.CreateRequest{{UserID: "u"}, {AppName: "a"}} {
			if _, err := s.Create(t.Context(), &bad); err == nil {
				t.Errorf("%+v was created", bad)
			}
		}
		if _, err := s.List(t.Context(), &session.ListRequest{}); err == nil {
			t.Error("all apps were listed")
		}

		sess := create(t, s, "again", map[string]any{"user:k": "v"})
		add(t, s, sess, event("e1", "a", map[string]any{"app:k": 1.0}))
		if err := s.Delete(t.Context(), &session.DeleteRequest{AppName: "app", UserID: "ada", SessionID: "again"}); err != nil {
			t.Fatal(err)
		}
		if err := s.AppendEvent(t.Context(), sess, event("e2", "a", nil)); !errors.Is(err, hansard.ErrDeleted) {
			t.Errorf("append to a deleted session: %v", err)
		}
		sess = create(t, s, "again", nil)
		wantIDs(t, sess)
		add(t, s, sess, event("e1", "a", map[string]any{"app:k": 2.0})) // the same id, in another session
		wantState(t, get(t, s, "again"), map[string]any{"app:k": 2.0, "user:k": "v"})
		if err := store.Delete(t.Context(), "adk-shared:app", ""); err != nil {
			t.Fatal(err)
		}
		add(t, s, sess, event("e2", "a", map[string]any{"app:k": 3.0}))
		if v, _ := get(t, s, "again").State().Get("app:k"); v != 3.0 {
			t.Errorf("the app's state, made again: %v", v)
		}
		add(t, s, sess, event("e3", "a", nil))
		if err := store.Delete(t.Context(), "adk-shared:app", ""); err != nil {
			t.Fatal(err)
		}
		add(t, s, get(t, s, "again"), event("e4", "a", nil)) // what was paid is not paid again
		wantState(t, create(t, s, "other", nil), map[string]any{"user:k": "v"})
	})
}

// TestForeign: a session that is not the ADK's hides no other, and one whose state was taken away by others goes on.
func TestForeign(t *testing.T) {
	onEvery(t, func(t *testing.T, store, _ hansard.Store) {
		s := adk.New(store)
		add(t, s, create(t, s, "s", map[string]any{"k": "v", "app:k": "v"}), event("e1", "a", map[string]any{"l": "v"}))
		if _, err := store.Create(t.Context(), "adk:app:ada:other", hansard.Meta{State: []byte(`{"app":"app","user":"ada","session":"s"}`)}); err != nil {
			t.Fatal(err)
		}
		listed, err := s.List(t.Context(), &session.ListRequest{AppName: "app", UserID: "ada"})
		if err != nil || len(listed.Sessions) != 1 || listed.Sessions[0].ID() != "s" {
			t.Fatalf("List: %v, %v", listed, err)
		}
		if _, err := s.Get(t.Context(), &session.GetRequest{AppName: "app", UserID: "ada", SessionID: "other"}); !errors.Is(err, hansard.ErrInvalid) {
			t.Errorf("a session of others was got: %v", err)
		}
		none := []hansard.StateOp{{Op: hansard.OpReplace, Path: "/state", Value: []byte("null")}}
		if _, err := store.Append(t.Context(), "adk:app:ada:s", hansard.Batch{Patch: &hansard.Patch{StateOps: none}}); err != nil {
			t.Fatal(err)
		}
		wantState(t, get(t, s, "s"), map[string]any{"app:k": "v"})
		add(t, s, get(t, s, "s"), event("e2", "b", nil))
	})
}

// TestRedacted: of an event whose content was taken away there is what is left, and the session goes on.
func TestRedacted(t *testing.T) {
	onEvery(t, func(t *testing.T, store, _ hansard.Store) {
		s := adk.New(store)
		sess := create(t, s, "s", nil)
		add(t, s, sess, event("e1", "secret", map[string]any{"k": "v"}))
		add(t, s, sess, event("e2", "b", nil))
		if _, err := store.Redact(t.Context(), "adk:app:ada:s", hansard.Redaction{Seqs: []hansard.Seq{1}, Reason: "test"}); err != nil {
			t.Fatal(err)
		}
		if err := s.AppendEvent(t.Context(), sess, event("e3", "c", nil)); !errors.Is(err, hansard.ErrConflict) {
			t.Errorf("a session that still has what was redacted went on: %v", err)
		}
		sess = get(t, s, "s")
		wantIDs(t, sess, "e1", "e2")
		if e := sess.Events().At(0); e.Content != nil || e.Author != "user" || e.Timestamp.IsZero() {
			t.Errorf("redacted: %+v", e)
		}
		add(t, s, sess, event("e3", "c", nil))
	})
}

// TestUnderTurn: who lost the turn can't write.
func TestUnderTurn(t *testing.T) {
	onEvery(t, func(t *testing.T, store, _ hansard.Store) {
		s := adk.New(store)
		sess := create(t, s, "s", nil)
		turn, err := store.Acquire(t.Context(), "adk:app:ada:s", hansard.Claim{Exclusive: true, TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.AppendEvent(t.Context(), sess, event("e1", "a", nil)); !errors.Is(err, hansard.ErrHeld) {
			t.Errorf("beside an exclusive turn: %v", err)
		}
		mine := adk.UnderTurn(t.Context(), turn.Grant)
		if err := s.AppendEvent(mine, sess, event("e1", "a", nil)); err != nil {
			t.Errorf("under the turn: %v", err)
		}
		if err := store.Release(t.Context(), "adk:app:ada:s", turn.Grant); err != nil {
			t.Fatal(err)
		}
		if err := s.AppendEvent(mine, sess, event("e2", "a", nil)); !errors.Is(err, hansard.ErrFenced) {
			t.Errorf("under a turn that is over: %v", err)
		}
		if err := s.Delete(mine, &session.DeleteRequest{AppName: "app", UserID: "ada", SessionID: "s"}); !errors.Is(err, hansard.ErrFenced) {
			t.Errorf("delete under a turn that is over: %v", err)
		}
		add(t, s, sess, event("e3", "b", nil))
		wantIDs(t, get(t, s, "s"), "e1", "e3")
	})
}

// writer appends to a session until it is killed, and tells what was accepted.
func writer(dir, id string) error {
	store, err := filestore.Open(dir, nil)
	if err != nil {
		return err
	}
	s := adk.New(store)
	for {
		got, err := s.Get(context.Background(), &session.GetRequest{AppName: "app", UserID: "ada", SessionID: id})
		if err != nil {
			return err
		}
		n := got.Session.Events().Len() + 1
		delta := map[string]any{"n": n, "app:" + id: n, "user:" + id: n}
		if err := s.AppendEvent(context.Background(), got.Session, event(fmt.Sprint(n), "text", delta)); err != nil {
			return err
		}
		fmt.Println("accepted", n)
	}
}

// TestKilled: processes are killed while they append. What was accepted is there, whole, and once somebody
// appends again what is for others agrees with the events.
func TestKilled(t *testing.T) {
	dir := t.TempDir()
	store := openFiles(t, dir)
	s := adk.New(store)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	sessions := []string{"one", "two"}
	accepted := map[string]int{}
	for _, id := range sessions {
		create(t, s, id, nil)
	}
	for round := range 6 {
		var mu sync.Mutex
		var wg sync.WaitGroup
		for w, id := range sessions {
			cmd := exec.Command(self)
			cmd.Env = append(os.Environ(), "ADK_TEST_WRITER="+dir, "ADK_TEST_SESSION="+id)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			wg.Go(func() {
				defer cmd.Wait()
				defer cmd.Process.Kill()
				lines, left := bufio.NewScanner(out), 3+2*round+w
				for lines.Scan() {
					var n int
					if _, err := fmt.Sscanf(lines.Text(), "accepted %d", &n); err != nil {
						t.Errorf("writer: %s", lines.Text())
						return
					}
					mu.Lock()
					accepted[id] = n
					mu.Unlock()
					if left--; left == 0 { // in the middle of what comes next
						cmd.Process.Kill()
					}
				}
			})
		}
		wg.Wait()
		for _, id := range sessions {
			sess := get(t, s, id)
			if n := sess.Events().Len(); n < accepted[id] {
				t.Fatalf("%s: %d events, %d were accepted", id, n, accepted[id])
			}
			for _, key := range []string{"n", "app:" + id, "user:" + id} {
				if v, _ := sess.State().Get(key); v.(float64) < float64(accepted[id]) {
					t.Errorf("%s: %s is %v, %d was accepted", id, key, v, accepted[id])
				}
			}
			// What the killed one was about to store may still come; then this is stale.
			for {
				err := s.AppendEvent(t.Context(), sess, event(fmt.Sprintf("round-%d", round), "between", nil))
				if err == nil {
					break
				}
				if !errors.Is(err, hansard.ErrConflict) {
					t.Fatal(err)
				}
				sess = get(t, s, id)
			}
			sess = get(t, s, id)
			last, seen := 0.0, map[string]bool{}
			for e := range sess.Events().All() {
				if seen[e.ID] {
					t.Errorf("%s: event %s is there twice", id, e.ID)
				}
				seen[e.ID] = true
				if v, ok := e.Actions.StateDelta["app:"+id]; ok {
					last = v.(float64)
				}
			}
			for _, key := range []string{"n", "app:" + id, "user:" + id} {
				if v, _ := sess.State().Get(key); v != last {
					t.Errorf("%s: %s is %v, the events say %v", id, key, v, last)
				}
			}
			accepted[id] = int(last)
		}
	}
}

// TestDocs: the program in docs/integrations.md runs.
func TestDocs(t *testing.T) {
	text, err := os.ReadFile("../../docs/integrations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, program, ok := strings.Cut(string(text), "```go\n")
	program, _, end := strings.Cut(program, "```")
	if !ok || !end {
		t.Fatal("docs/integrations.md has no program in Go")
	}
	dir, err := os.MkdirTemp(".", "docs-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.WriteFile(dir+"/main.go", []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "run", "./"+dir, t.TempDir())
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil || string(out) != "1 Lima\n" {
		t.Fatalf("%q, %v\n%s", out, err, stderr.String())
	}
}
