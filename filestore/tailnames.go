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
// Nearly all names that are looked up are not there, which a filter shows. So names are
// simply appended, and sorted when many are looked for.
type tailNames struct {
	pairs  []runs.Pair
	sorted int // how many of them, from the first on, are in the order of their hashes
	filter runs.Filter
	room   int // how many names the filter is made for
}

const (
	// fewNames is what a tail begins with.
	fewNames = 32
	// tailScan is how many pairs are looked at one by one before the tail is sorted.
	tailScan = 32 << 10
)

func newTailNames() *tailNames {
	return &tailNames{filter: runs.NewFilter(fewNames), room: fewNames}
}

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
	return int64(16*cap(t.pairs)) + t.filter.Weight()
}

// put adds a name.
func (t *tailNames) put(p runs.Pair) {
	if len(t.pairs) == t.room {
		t.begin(2*t.room, t.pairs)
	}
	t.pairs = append(t.pairs, p)
	t.filter.Add(p.Hash)
}

// begin starts the tail again with these names, in their order, and with room for some
// more.
func (t *tailNames) begin(room int, pairs []runs.Pair) {
	if room != t.room {
		t.filter, t.room = runs.NewFilter(int64(room)), room
	} else {
		clear(t.filter)
	}
	t.pairs, t.sorted = pairs, min(t.sorted, len(pairs))
	for _, p := range pairs {
		t.filter.Add(p.Hash)
	}
}

// hasAny tells whether a line has a name with one of these hashes: it may be another name.
// The hashes' memory is overwritten.
func (t *tailNames) hasAny(hashes []uint64) bool {
	for _, h := range t.filter.Keep(hashes) {
		if len(t.find(h, 0)) > 0 {
			return true
		}
	}
	return false
}

// linesOf are, for each name, where lines with its hash begin, at from or behind, in order.
func (t *tailNames) linesOf(names []sought, from int64) [][]int64 {
	lines := make([][]int64, len(names))
	if t == nil {
		return lines
	}
	var maybe []int
	for i := range names {
		if t.filter.Has(names[i].hash) {
			maybe = append(maybe, i)
		}
	}
	if len(maybe)*(len(t.pairs)-t.sorted) > tailScan {
		t.pairs = runs.Sort(t.pairs)
		t.sorted = len(t.pairs)
	}
	for _, i := range maybe {
		lines[i] = t.find(names[i].hash, from)
	}
	return lines
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
	rest := slices.DeleteFunc(t.pairs, func(p runs.Pair) bool { return p.At < upTo })
	t.sorted = 0
	if t.room > 2*namesInMemory {
		*t = *newTailNames()
		for _, p := range rest {
			t.put(p)
		}
		return
	}
	t.begin(t.room, rest)
}
