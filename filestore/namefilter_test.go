package filestore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"hansard"
	"hansard/filestore/internal/cache"
	"hansard/filestore/internal/runs"
)

// filterLacks is a name that an index has and that its filter says is not there; "": there is
// none.
func filterLacks(s *Store, name string) (string, error) {
	k, ok := s.keyring.keys.m.Peek(name)
	if !ok || k.tail == nil {
		return "", nil
	}
	for i, p := range k.tail.pairs {
		if !k.filter.bits.Has(p.Hash) {
			return fmt.Sprintf("number %d of the tail", i), nil
		}
	}
	lacks := ""
	for _, r := range k.runs {
		if r.From < k.filter.from {
			continue
		}
		err := s.runsOf(name, k.uid).Each(r, func(h uint64) {
			if !k.filter.bits.Has(h) {
				lacks = fmt.Sprintf("a name of the run at %d", r.From)
			}
		})
		if errors.Is(err, runs.ErrChanged) {
			return "", nil // the other process merged it
		}
		if err != nil {
			return "", err
		}
	}
	return lacks, nil
}

// TestNameFilter: the filter of an index has every name of the tail and of the runs that it is
// said to have, while two processes write and merge runs, lose their indexes and replace the
// session; no id is stored twice, and none is taken for one that is stored.
func TestNameFilter(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	d := largeDisk(1)
	var stores []*Store
	for i := range 2 {
		cfg := simConfig(uint64(i+1), growthRing)
		cfg.names = 20
		s, err := open(d.Process(fmt.Sprint("p", i)), Options{}, cfg)
		if err != nil {
			t.Fatal(err)
		}
		stores = append(stores, s)
	}
	ctx := context.Background()
	stored, ids, next := map[string]hansard.Seq{}, []string{}, hansard.Seq(1)
	anew, whole := 0, map[*keyIndex]bool{}
	for step := range 3000 {
		s := stores[rng.IntN(2)]
		switch rng.IntN(500) {
		case 0:
			s.keyring.keys.m = cache.LRU[*keyIndex]{} // as in a process that has just begun
		case 1:
			if err := s.Delete(ctx, "s", ""); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Create(ctx, "s", hansard.Meta{Reuse: true}); err != nil {
				t.Fatal(err)
			}
			stored, ids, next = map[string]hansard.Seq{}, nil, 1
		}
		b, want, used := hansard.Batch{Create: true}, []hansard.Seq{}, map[string]bool{}
		for i := range 1 + rng.IntN(8) {
			id := fmt.Sprint("event ", step, "/", i)
			if len(ids) > 0 && rng.IntN(4) == 0 {
				id = ids[rng.IntN(len(ids))]
			}
			if used[id] {
				continue
			}
			used[id] = true
			if _, ok := stored[id]; !ok {
				stored[id], ids, next = next, append(ids, id), next+1
			}
			want = append(want, stored[id])
			b.Events = append(b.Events, hansard.Event{ID: id, Data: []byte("1")})
		}
		r, err := s.Append(ctx, "s", b)
		if err != nil {
			t.Fatalf("step %d: %v", step, err)
		}
		if got := r.Seqs; !slices.Equal(got, want) {
			t.Fatalf("step %d: %d events are at %v, want %v", step, len(want), got, want)
		}
		for i, s := range stores {
			if lacks, err := filterLacks(s, "s"); lacks != "" || err != nil {
				t.Fatalf("step %d: the filter of process %d lacks %s, %v", step, i, lacks, err)
			}
			k, _ := s.keyring.keys.m.Peek("s")
			if k != nil && len(k.runs) > 0 {
				has := k.filter.from == 0
				if has && !whole[k] {
					anew++
				}
				whole[k] = has
			}
		}
	}
	if anew < 3 {
		t.Errorf("a filter got the names of all runs only %d times", anew)
	}
}

// TestFilterIsMade: a process that looks names up in runs that it did not write makes a filter
// for them, and from then on new names take no look into a run.
func TestFilterIsMade(t *testing.T) {
	s, c := opened(t, indexed(t, 1, buildLog("keyed", 5, 1500, keyedEvent)), 2)
	store := func(i int) int64 {
		c.reset()
		b := hansard.Batch{Key: fmt.Sprint("new ", i), Events: []hansard.Event{pad(i, 10)}}
		if _, err := s.Append(context.Background(), "keyed", b); err != nil {
			t.Fatal(err)
		}
		read := int64(0)
		for file, n := range c.files {
			if strings.HasPrefix(file, cache.KeysDir) {
				read += n
			}
		}
		return read
	}
	if store(0) == 0 {
		t.Error("the first look read no run")
	}
	for i := range looksForFilter + 10 {
		store(1 + i)
	}
	read, n := int64(0), 500
	for i := range n {
		read += store(1000 + i)
	}
	if k, _ := s.keyring.keys.m.Peek("keyed"); k.filter.from > 0 {
		t.Errorf("the filter begins at %d", k.filter.from)
	}
	if read > 5*4096 { // one in two thousand is not recognised
		t.Errorf("%d new names read %d bytes of runs", n, read)
	}
}

// TestFilterOfOthersRuns: runs that another process wrote for more of the log than this one has
// read have names that the filter lacks, and it is not said to have them.
func TestFilterOfOthersRuns(t *testing.T) {
	k := &keyIndex{tail: &tailNames{}, filter: newNameFilter(0, fewNames), upTo: 1000}
	for i := range 10 {
		k.put(runs.Pair{Hash: uint64(i), At: int64(100 * i)})
	}
	k.use([]*runs.Run{{From: 0, UpTo: 900, Pairs: 9}})
	if k.filter.from != 0 || k.tail.len() != 1 {
		t.Errorf("after a run of what was read: the filter begins at %d, with %d names in the tail", k.filter.from, k.tail.len())
	}
	k.use([]*runs.Run{{From: 0, UpTo: 2000, Pairs: 30}})
	if k.filter.from != 2000 || k.upTo != 2000 || k.tail.len() != 0 {
		t.Errorf("after a run of more: the filter begins at %d, the index ends at %d, with %d names in the tail", k.filter.from, k.upTo, k.tail.len())
	}
}
