package filestore

import (
	"errors"

	"hansard/filestore/internal/runs"
)

// nameFilter shows, for most names that a log does not have, that it does not have them: new
// names are looked up most. It is in memory only, and has the names of all lines from an offset
// on, whether they are in runs by now or still in the tail.
type nameFilter struct {
	bits runs.Filter
	room int   // how many names it is made for; with more it shows less
	n    int   // how many it has
	from int64 // where its lines begin
}

const (
	// fewNames is what a filter begins with.
	fewNames = 32
	// maxFiltered is how many names of runs it has, at most, when it is made: 8 MB. Runs at
	// the beginning of a log with more are looked into every time.
	maxFiltered = 2 << 20
	// looksForFilter is how many names are looked up in runs that it does not have before it
	// is made anew with them; if they are large more, in proportion to what reading them costs.
	looksForFilter = 256
)

func newNameFilter(from int64, room int) nameFilter {
	return nameFilter{bits: runs.NewFilter(int64(room)), room: room, from: from}
}

func (nf *nameFilter) add(hash uint64) {
	nf.bits.Add(hash)
	nf.n++
}

// filtered is the first of an index's runs that its filter can have, and how many names it has
// from there on.
func filtered(rs []*runs.Run) (first, names int) {
	first = len(rs)
	for first > 0 && int64(names)+rs[first-1].Pairs <= maxFiltered {
		first--
		names += int(rs[first].Pairs)
	}
	return first, names
}

// wantsFilter tells whether the filter should be made anew: because it has too many names, or
// because names were looked up in runs that it does not have often enough for reading them to
// pay. The caller holds mu.
func (k *keyIndex) wantsFilter() bool {
	if k.tail == nil || k.only != nil || k.upTo < k.patience {
		return false
	}
	first, names := filtered(k.runs)
	return k.filter.n > k.filter.room && k.filter.n > k.tail.len() ||
		first < len(k.runs) && k.runs[first].From < k.filter.from && k.looks >= max(looksForFilter, names/256)
}

// refilter makes the filter anew, if it should be. If a run can't be read, that is left to who
// looks a name up in it. The caller holds k.reading.
func (k *keyIndex) refilter(p *process, name string) {
	k.mu.Lock()
	wanted, rs, round, x := k.wantsFilter(), k.runs, k.round, p.runsOf(name, k.uid)
	k.mu.Unlock()
	if !wanted {
		return
	}
	end, _ := runs.End(rs)
	first, names := filtered(rs)
	from := end
	if first < len(rs) {
		from = rs[first].From
	}
	// Room for half as many more, so that a name is read about three times in all.
	made := newNameFilter(from, names+names/2+2*p.namesInMemory())
	var err error
	for _, r := range rs[first:] {
		err = errors.Join(err, x.Each(r, made.add))
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	now, _ := runs.End(k.runs)
	switch {
	case k.round != round || now != end: // the log was replaced, or others wrote a run
	case err != nil:
		k.looks = 0
		k.patience = max(k.patience, k.upTo+1)
	default:
		for _, pair := range k.tail.pairs {
			made.add(pair.Hash)
		}
		k.filter, k.looks = made, 0
	}
}

// put adds a name of a line at the end of what is indexed. The caller holds mu.
func (k *keyIndex) put(p runs.Pair) {
	k.tail.put(p)
	k.filter.add(p.Hash)
	// As long as it has no names of runs, more room takes no reading.
	if n := k.tail.len(); k.filter.n > k.filter.room && k.filter.n == n {
		k.filter = newNameFilter(k.filter.from, 2*n)
		for _, p := range k.tail.pairs {
			k.filter.add(p.Hash)
		}
	}
}

// looked counts names that are looked up in runs that the filter does not have. The caller
// holds mu.
func (k *keyIndex) looked(names int) {
	if len(k.runs) > 0 && k.runs[0].From < k.filter.from {
		k.looks += names
	}
}

// linesOf are, for each name, where lines with its hash begin in the tail, at from or behind, in
// order. The caller holds mu.
func (k *keyIndex) linesOf(names []sought, from int64) [][]int64 {
	lines := make([][]int64, len(names))
	if k.tail.len() == 0 {
		return lines
	}
	var some []int
	for i := range names {
		if k.filter.bits.Has(names[i].hash) {
			some = append(some, i)
		}
	}
	k.tail.sortFor(len(some))
	for _, i := range some {
		lines[i] = k.tail.find(names[i].hash, from)
	}
	return lines
}
