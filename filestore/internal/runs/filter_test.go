package runs

import (
	"math/rand/v2"
	"testing"
)

// TestFilter: a filter never says of a hash it has that it lacks it, and seldom fails to
// say so of another.
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
