package filestore

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"strconv"
	"testing"
	"time"

	"hansard"
	"hansard/engine"
	"hansard/memstore"
)

// TestNamesInOneGroup: appends decided in one group know each other's ids, keys and patches, as
// if they had come one after the other. The model says what that means.
func TestNamesInOneGroup(t *testing.T) {
	seed := rand.Uint64()
	if n, err := strconv.ParseUint(os.Getenv("HANSARD_SEED"), 10, 64); err == nil {
		seed = n
	}
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	s, err := Open(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	model := memstore.New()
	replayed, reused := 0, 0
	for round := range 300 {
		var requests []*request
		var want []string
		var before []hansard.Batch
		for range 1 + rng.IntN(5) {
			id, b := hansard.SessionID(fmt.Sprint("s", round/10, "-", rng.IntN(2))), namedBatch(rng)
			if len(before) > 0 && rng.IntN(3) == 0 {
				// The end of a batch that was sent before, as a retry or another mirror sends it.
				b = before[rng.IntN(len(before))]
				b.Key, b.Events = "", b.Events[rng.IntN(len(b.Events)):]
			}
			before = append(before, b)
			receipt, err := model.Append(t.Context(), id, b)
			want = append(want, outcome(receipt, err))
			if errors.Is(err, hansard.ErrIDReused) {
				reused++
			}
			if receipt.Replayed {
				replayed++
			}
			if err := engine.CheckBatch(&b); err != nil {
				t.Fatal(err)
			}
			requests = append(requests, newAppend(id, &b))
		}
		s.committer.submitAll(t.Context(), requests)
		for i, r := range requests {
			if got := outcome(r.receipt, r.err); got != want[i] {
				t.Fatalf("round %d, request %d of %d on %s: %s\nwant %s", round, i, len(requests), r.id, got, want[i])
			}
			r.recycle()
		}
		for n := range 2 {
			id := hansard.SessionID(fmt.Sprint("s", round/10, "-", n))
			// By itself, prepared with what the index learned from the groups.
			b := namedBatch(rng)
			want := outcome(model.Append(t.Context(), id, b))
			if got := outcome(s.Append(t.Context(), id, b)); got != want {
				t.Fatalf("round %d, by itself on %s: %s\nwant %s", round, id, got, want)
			}
			if got, want := stored(t, s, id), stored(t, model, id); !reflect.DeepEqual(got, want) {
				t.Fatalf("round %d: %s has\n%v\nwant\n%v", round, id, got, want)
			}
		}
	}
	if replayed < 50 || reused < 50 {
		t.Errorf("%d replays and %d used ids are too few to tell", replayed, reused)
	}
}

// namedBatch is a batch with ids, many of which were used before, with the same content or with
// other content; some have a key, some a patch.
func namedBatch(rng *rand.Rand) (b hansard.Batch) {
	b.Create = true
	for range 1 + rng.IntN(4) {
		n := rng.IntN(12)
		e := text("content %d", n)
		if rng.IntN(12) == 0 {
			e = text("other content")
		}
		if n > 0 {
			e.ID = fmt.Sprint("id", n)
		}
		b.Events = append(b.Events, e)
	}
	if rng.IntN(5) == 0 {
		b.Key = fmt.Sprint("key", rng.IntN(3))
	}
	if rng.IntN(4) == 0 {
		title := fmt.Sprint("title", rng.IntN(3))
		b.Patch = &hansard.Patch{Title: &title}
	}
	return b
}

// outcome is the result of an append as text.
func outcome(r hansard.Receipt, err error) string {
	var ids *hansard.IDReusedError
	var key *hansard.KeyReusedError
	switch {
	case errors.As(err, &ids):
		return fmt.Sprint("ids reused: ", ids.IDs)
	case errors.As(err, &key):
		return fmt.Sprintf("key reused: %q at %d-%d", key.Key, key.First, key.Last)
	case err != nil:
		return err.Error()
	}
	return fmt.Sprintf("%d-%d %v replayed %v created %v", r.First, r.Last, r.Seqs, r.Replayed, r.Created)
}

// stored returns the events of a session as text, without their times.
func stored(t *testing.T, s hansard.Store, id hansard.SessionID) (events []string) {
	t.Helper()
	for e, err := range s.Read(t.Context(), id, hansard.Range{}) {
		if errors.Is(err, hansard.ErrNotFound) {
			return nil
		}
		if err != nil {
			t.Fatal(err)
		}
		e.Time = time.Time{}
		b, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, string(b))
	}
	return events
}
