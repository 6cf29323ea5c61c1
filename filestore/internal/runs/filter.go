package runs

import "math/bits"

// filterBits is the number of bits for each pair: about one missing name in two thousand is
// not recognised as missing.
const filterBits = 20

// Filter shows, for most names that were not added to it, that they were not. It is a Bloom
// filter in blocks of 512 bits: one look is one line of the processor's cache.
type Filter [][8]uint64

// Weight is how many bytes it takes in memory.
func (f Filter) Weight() int64 { return int64(64 * len(f)) }

// NewFilter is a filter for so many pairs.
func NewFilter(pairs int64) Filter {
	return make(Filter, max(1, (pairs*filterBits+511)/512))
}

// block is where a hash has its bits, and seven of them, nine binary digits each.
func (f Filter) block(hash uint64) (block *[8]uint64, at uint64) {
	n, _ := bits.Mul64(hash, uint64(len(f)))
	return &f[n], hash * 0x9e3779b97f4a7c15
}

// Add adds a hash.
func (f Filter) Add(hash uint64) {
	b, at := f.block(hash)
	for range 7 {
		b[at>>61] |= 1 << (at >> 55 & 63)
		at <<= 9
	}
}

// Has reports whether a hash may have been added; false is certain.
func (f Filter) Has(hash uint64) bool {
	b, at := f.block(hash)
	for range 7 {
		if b[at>>61]&(1<<(at>>55&63)) == 0 {
			return false
		}
		at <<= 9
	}
	return true
}

// Keep keeps those of the hashes that may have been added, at the beginning of their memory.
// It takes less time than Has for each: of all hashes one bit is looked at first, without
// waiting for the one before, so that the processor fetches their lines side by side.
func (f Filter) Keep(hashes []uint64) []uint64 {
	kept := hashes[:0]
	for len(hashes) > 0 {
		some := hashes[:min(64, len(hashes))]
		var first uint64 // for each of them, whether that bit is set
		for i, h := range some {
			b, at := f.block(h)
			first |= (b[at>>61] >> (at >> 55 & 63) & 1) << i
		}
		for ; first != 0; first &= first - 1 {
			if h := some[bits.TrailingZeros64(first)]; f.Has(h) {
				kept = append(kept, h)
			}
		}
		hashes = hashes[len(some):]
	}
	return kept
}
