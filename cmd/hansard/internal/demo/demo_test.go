package demo

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"hansard"
	"hansard/engine"
	"hansard/memstore"
)

// TestRun: every story runs to its end, the turns are released, and what an outsider sees is
// consistent: no event was written under a lost turn.
func TestRun(t *testing.T) {
	s := memstore.New()
	defer s.Close()
	var mu sync.Mutex
	var began []hansard.SessionID
	n := 2 * len(stories)
	played, err := Run(t.Context(), s, Options{Sessions: n, AtOnce: 3, Seed: 7, Began: func(i hansard.Info) {
		mu.Lock()
		defer mu.Unlock()
		began = append(began, i.ID)
	}})
	if err != nil {
		t.Fatal(err)
	}
	if got := played.Sessions.Load(); got != int64(n) || len(began) != n {
		t.Fatalf("%d sessions were played, %d announced, want %d", got, len(began), n)
	}
	seen := map[string]bool{}
	inboxes := 0
	for info, err := range s.List(t.Context(), hansard.Query{Labels: map[string]string{"source": "demo"}}) {
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(began, info.ID) || info.Title == "" || info.Turn != nil {
			t.Errorf("%s: title %q, turn %v", info.ID, info.Title, info.Turn)
		}
		var grants engine.Grants
		for e, err := range s.Read(t.Context(), info.ID, hansard.Range{}) {
			if err != nil {
				t.Fatal(err)
			}
			if err := grants.Next(&e); err != nil {
				t.Errorf("%s: %v", info.ID, err)
			}
			seen[e.Kind] = true
			if e.Inbox {
				inboxes++
			}
			var r hansard.TurnRecord
			if e.Kind == hansard.KindTurn && json.Unmarshal(e.Data, &r) == nil {
				seen[r.Change] = true
			}
		}
	}
	for _, want := range []string{hansard.KindMessage, hansard.KindToolCall, hansard.KindToolResult, hansard.KindSummary, hansard.KindTurn, hansard.KindMeta, hansard.TurnStolen, hansard.TurnReleased} {
		if !seen[want] {
			t.Errorf("there was no %s to see", want)
		}
	}
	if inboxes == 0 {
		t.Error("nothing was left in an inbox")
	}
}

// TestEndless: without a number it goes on until the context ends, which is not an error, and no
// turn is left behind.
func TestEndless(t *testing.T) {
	s := memstore.New()
	defer s.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var mu sync.Mutex
	n := 0
	_, err := Run(ctx, s, Options{AtOnce: 2, Seed: 1, Began: func(hansard.Info) {
		mu.Lock()
		defer mu.Unlock()
		if n++; n > 3*len(stories) {
			cancel()
		}
	}})
	if err != nil || ctx.Err() == nil {
		t.Fatalf("it ended with %v after %d sessions", err, n)
	}
	for info, err := range s.List(t.Context(), hansard.Query{}) {
		if err != nil || info.Turn != nil {
			t.Errorf("%s: turn %v, %v", info.ID, info.Turn, err)
		}
	}
}

// noTurns is an engine without turns.
type noTurns struct{ hansard.Store }

func (noTurns) Acquire(context.Context, hansard.SessionID, hansard.Claim) (hansard.Turn, error) {
	return hansard.Turn{}, hansard.ErrUnsupported
}

// full refuses everything after a while.
type full struct {
	hansard.Store
	mu   sync.Mutex
	left int // guarded by mu
}

func (f *full) Append(ctx context.Context, id hansard.SessionID, b hansard.Batch) (hansard.Receipt, error) {
	f.mu.Lock()
	f.left--
	over := f.left < 0
	f.mu.Unlock()
	if over {
		return hansard.Receipt{}, hansard.ErrNoSpace
	}
	return f.Store.Append(ctx, id, b)
}

// TestOtherStores: an engine without turns is shown without them; failures are reported.
func TestOtherStores(t *testing.T) {
	s := memstore.New()
	defer s.Close()
	played, err := Run(t.Context(), noTurns{s}, Options{Sessions: len(stories), AtOnce: 2, Seed: 3})
	if err != nil || played.Sessions.Load() != int64(len(stories)) {
		t.Errorf("without turns: %d sessions, %v", played.Sessions.Load(), err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := Run(ctx, &full{Store: s, left: 20}, Options{AtOnce: 4, Seed: 4}); !errors.Is(err, hansard.ErrNoSpace) {
		t.Errorf("a full disk gave %v", err)
	}
}
