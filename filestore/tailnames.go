package filestore

import (
	"slices"
	"sort"

	"hansard/filestore/internal/runs"
)

// tailNames are the names that a log has after its runs: in memory, until a run has them.
// Of a name it keeps what a run keeps, its hash and where its line begins, so that a name
// takes no memory of its own. What the line says is read when it is asked for: most never
// are. Nil has none.
//
// Nearly all names that are looked up are not there, which the filter shows (nameFilter). So
// names are simply appended, and sorted when many are looked for.
type tailNames struct {
	pairs  []runs.Pair
	sorted int // how many of them, from the first on, are in the order of their hashes
}

// tailScan is how many pairs are looked at one by one before the tail is sorted.
const tailScan = 32 << 10

func (t *tailNames) len() int {
	if t == nil {
		return 0
	}
	return len(t.pairs)
}

// weight is how many bytes they take in memory.
func (t *tailNames) weight() int64 {
	if t == nil {
		return 0
	}
	return int64(16 * cap(t.pairs))
}

// put adds a name.
func (t *tailNames) put(p runs.Pair) { t.pairs = append(t.pairs, p) }

// hasAny tells whether a line has a name with one of these hashes: it may be another name.
func (t *tailNames) hasAny(hashes []uint64) bool {
	for _, h := range hashes {
		if len(t.find(h, 0)) > 0 {
			return true
		}
	}
	return false
}

// sortFor sorts the names if that pays for looking so many of them up.
func (t *tailNames) sortFor(looks int) {
	if looks*(len(t.pairs)-t.sorted) > tailScan {
		t.pairs = runs.Sort(t.pairs)
		t.sorted = len(t.pairs)
	}
}

// find is where lines with a hash begin, at from or behind, in order.
func (t *tailNames) find(hash uint64, from int64) (lines []int64) {
	found := func(p runs.Pair) {
		if p.Hash == hash && p.At >= from {
			lines = append(lines, p.At)
		}
	}
	i := sort.Search(t.sorted, func(i int) bool { return t.pairs[i].Hash >= hash })
	for ; i < t.sorted && t.pairs[i].Hash == hash; i++ {
		found(t.pairs[i])
	}
	for i := t.sorted; i < len(t.pairs); i++ {
		found(t.pairs[i])
	}
	slices.Sort(lines)
	return lines
}

// keepFrom drops the names of lines before an offset. The memory is reused, unless it is
// large because a long log was read.
func (t *tailNames) keepFrom(upTo int64) {
	t.pairs = slices.DeleteFunc(t.pairs, func(p runs.Pair) bool { return p.At < upTo })
	t.sorted = 0
	if cap(t.pairs) > 2*namesInMemory {
		t.pairs = slices.Clone(t.pairs)
	}
}
