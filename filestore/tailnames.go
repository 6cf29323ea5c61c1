package filestore

import "hansard/filestore/internal/runs"

// tailNames are the names that a log has after its runs: in memory, until a run has them.
// There are many more ids than keys, so an id takes no more than where its line begins.
// Nil has none.
type tailNames struct {
	keys map[string]tailName
	ids  map[string]int64
	most int // names that it has had at once: a map that was emptied keeps its size
}

func newTailNames() *tailNames {
	return &tailNames{keys: map[string]tailName{}, ids: map[string]int64{}}
}

func (t *tailNames) len() int {
	if t == nil {
		return 0
	}
	return len(t.keys) + len(t.ids)
}

// weight is about how many bytes they take in memory.
func (t *tailNames) weight() int64 {
	if t == nil {
		return 0
	}
	return 256 * int64(t.most)
}

func (t *tailNames) get(n runs.Name) (tailName, bool) {
	if t == nil {
		return tailName{}, false
	}
	if n.Kind == 'k' {
		seen, ok := t.keys[n.Text]
		return seen, ok
	}
	at, ok := t.ids[n.Text]
	return tailName{at: at}, ok
}

func (t *tailNames) put(n runs.Name, seen tailName) {
	if n.Kind == 'k' {
		t.keys[n.Text] = seen
	} else {
		t.ids[n.Text] = seen.at
	}
	t.most = max(t.most, t.len())
}

// all gives every name, and what is known of it.
func (t *tailNames) all(yield func(runs.Name, tailName) bool) {
	for key, seen := range t.keys {
		if !yield(keyName(key), seen) {
			return
		}
	}
	for id, at := range t.ids {
		if !yield(idName(id), tailName{at: at}) {
			return
		}
	}
}

// keepFrom drops the names of lines before an offset. Small maps are used again; large
// ones are given back: a map keeps its size for ever.
func (t *tailNames) keepFrom(upTo int64) {
	rest := newTailNames()
	for n, seen := range t.all {
		if seen.at >= upTo {
			rest.put(n, seen)
		}
	}
	if rest.len() == 0 && t.most <= 2*namesInMemory {
		clear(t.keys)
		clear(t.ids)
		return
	}
	*t = *rest
}
