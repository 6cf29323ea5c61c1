package runs

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestFilter: a filter never says that it lacks a hash it has, and seldom fails to say that
// it lacks another.
func TestFilter(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for _, n := range []int64{1, 2, 31, 255, 256, 5000, 100_000} {
		f := NewFilter(n)
		hashes := make([]uint64, n)
		for i := range hashes {
			hashes[i] = rng.Uint64()
			f.Add(hashes[i])
		}
		for _, h := range hashes {
			if !f.Has(h) {
				t.Fatalf("%d hashes: one of them is not there", n)
			}
		}
		wrong := 0
		for range 100_000 {
			if f.Has(rng.Uint64()) {
				wrong++
			}
		}
		if wrong > 500 {
			t.Errorf("%d hashes: %d of 100,000 others may be there", n, wrong)
		}
	}
}

// TestKeep: of many hashes at once a filter keeps just those that it has, one by one, in
// their order.
func TestKeep(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	f := NewFilter(500)
	var there []uint64
	for range 500 {
		there = append(there, rng.Uint64())
		f.Add(there[len(there)-1])
	}
	for n := range 200 {
		var hashes, want []uint64
		for range n {
			h := rng.Uint64()
			if rng.IntN(3) == 0 {
				h = there[rng.IntN(len(there))]
			}
			if hashes = append(hashes, h); f.Has(h) {
				want = append(want, h)
			}
		}
		if got := f.Keep(slices.Clone(hashes)); !slices.Equal(got, want) {
			t.Errorf("of %d hashes %d are kept, want %d", n, len(got), len(want))
		}
	}
}
