package filestore

import (
	"math/rand/v2"
	"slices"
	"testing"

	"hansard/filestore/internal/runs"
)

// TestTailNames: a tail has exactly the lines that were put into it and not dropped since, even
// for names with equal hashes, however many there are.
func TestTailNames(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for _, most := range []int{10, 1000, 1000, 1000, 6000, 6000, 3 * tailScan} {
		k := &keyIndex{tail: &tailNames{}, filter: newNameFilter(0, fewNames)}
		want, at := map[uint64][]int64{}, int64(0)
		hashes := []uint64{1, 2, 3}
		for range most {
			hash := rng.Uint64()
			if rng.IntN(8) == 0 {
				hash = hashes[rng.IntN(len(hashes))] // another name with the same hash
			}
			k.put(runs.Pair{Hash: hash, At: at})
			hashes, want[hash] = append(hashes, hash), append(want[hash], at)
			if at += 1 + rng.Int64N(100); rng.IntN(1+most/4) == 0 {
				upTo := rng.Int64N(at)
				k.tail.keepFrom(upTo)
				for h, lines := range want {
					want[h] = slices.DeleteFunc(lines, func(at int64) bool { return at < upTo })
				}
			}
			if rng.IntN(1+most/50) > 0 {
				continue
			}
			from := rng.Int64N(at)
			var names []sought
			for range 1 + rng.IntN(40) {
				names = append(names, sought{hash: hashes[rng.IntN(len(hashes))]}, sought{hash: rng.Uint64()})
			}
			for i, lines := range k.linesOf(names, from) {
				all := want[names[i].hash]
				if got := slices.DeleteFunc(slices.Clone(all), func(at int64) bool { return at < from }); !slices.Equal(lines, got) {
					t.Fatalf("hash %x from %d: lines %v, want %v", names[i].hash, from, lines, got)
				}
				if k.tail.hasAny([]uint64{names[i].hash}) != (len(all) > 0) {
					t.Fatalf("hash %x: has is wrong", names[i].hash)
				}
			}
		}
		n := 0
		for _, lines := range want {
			n += len(lines)
		}
		if k.tail.len() != n {
			t.Errorf("%d names, want %d", k.tail.len(), n)
		}
	}
}
