package model

import (
	"fmt"
	"hash/maphash"
	"math/bits"
	"strings"
)

// Result is what a search found.
type Result struct {
	States   int
	Depth    int
	Acked    int    // most entries acknowledged on one path
	Relied   int    // most entries that other answers rested on
	Bounded  int    // steps not taken because the model has no room for their result
	Complete bool   // every reachable state was visited
	Broken   string // the violation, if any
	Trace    string // how to get there
}

// String is one line for a log.
func (r Result) String() string {
	verdict := "no violation"
	if r.Broken != "" {
		verdict = r.Broken
	} else if !r.Complete {
		verdict = "incomplete"
	}
	return fmt.Sprintf("%d states, depth %d, %d acknowledged: %s", r.States, r.Depth, r.Acked, verdict)
}

// seed is new in every run, so two states that share a hash in one run do not
// in the next.
var seed = maphash.MakeSeed()

// search is one breadth-first search. Visited states are kept as 64-bit hashes
// with the hash of the state they were first reached from.
type search struct {
	x       *explorer
	visited table
	checked table // disks whose power cuts were tried
	result  Result
}

// Search explores a configuration under a set of rules until it finds a
// violation, has seen everything, or has seen limit states (0: no limit).
// Breadth first: the counterexample is a shortest one.
func Search(cfg *Config, rules Rules, limit int) Result {
	c := &search{x: &explorer{cfg: cfg, rules: rules}}
	start := cfg.start()
	key := c.x.key(&start)
	c.visited.add(key, 0)
	frontier := []State{start}
	for len(frontier) > 0 {
		var next []State
		for i := range frontier {
			s := &frontier[i]
			from := c.x.key(s)
			for j := range c.x.successors(s) {
				u := &c.x.out[j]
				if u.broken != "" {
					return c.broken(from, u, u.broken)
				}
				u.state.disk.show()
				key := c.x.key(&u.state)
				if !c.visited.add(key, from) {
					continue
				}
				if why := c.check(&u.state); why != "" {
					return c.broken(from, u, why)
				}
				next = append(next, u.state)
			}
		}
		c.result.Depth++
		c.result.States = c.visited.n
		c.result.Bounded = c.x.bounded
		if limit > 0 && c.visited.n > limit {
			return c.result
		}
		frontier = next
	}
	c.result.Complete = true
	return c.result
}

// check judges one new state.
func (c *search) check(s *State) string {
	c.result.Acked = max(c.result.Acked, bits.OnesCount8(s.acked))
	c.result.Relied = max(c.result.Relied, bits.OnesCount8(s.relied))
	if c.checked.add(maphash.Comparable(seed, s.disk)|1, 0) {
		if why := c.x.promises(&s.disk); why != "" {
			return why
		}
	}
	if why := c.x.positions(s); why != "" {
		return why
	}
	if c.x.cfg.Solo {
		return c.x.solo(s)
	}
	return ""
}

// key is the hash of a state, the same for states that differ only in which
// process is which.
func (x *explorer) key(s *State) uint64 {
	n := *s
	if !x.cfg.Threads {
		n.sortProcs(x.cfg.Procs)
	}
	return maphash.Comparable(seed, n) | 1
}

func (n *State) sortProcs(procs int) {
	var h [maxProcs]uint64
	for i := range procs {
		h[i] = maphash.Comparable(seed, n.proc[i])
	}
	for i := 1; i < procs; i++ {
		for j := i; j > 0 && h[j] < h[j-1]; j-- {
			h[j], h[j-1] = h[j-1], h[j]
			n.proc[j], n.proc[j-1] = n.proc[j-1], n.proc[j]
			for _, l := range []*uint8{&n.lock, &n.syncLock} {
				switch *l {
				case uint8(j + 1):
					*l = uint8(j)
				case uint8(j):
					*l = uint8(j + 1)
				}
			}
		}
	}
}

// broken ends the search with the path to the violation.
func (c *search) broken(from uint64, last *successor, why string) Result {
	c.result.States = c.visited.n
	c.result.Broken = why
	end := *last
	c.result.Trace = c.trace(from) + c.line(nil, &end) + "  " + why + "\n"
	return c.result
}

// trace replays the path to a visited state from the start.
func (c *search) trace(to uint64) string {
	var path []uint64
	for h := to; h != 0; h = c.visited.parent(h) {
		path = append(path, h)
	}
	s := c.x.cfg.start()
	var b strings.Builder
	for i := len(path) - 2; i >= 0; i-- {
		for j := range c.x.successors(&s) {
			u := c.x.out[j]
			u.state.disk.show()
			if c.x.key(&u.state) == path[i] {
				b.WriteString(c.line(&s, &u))
				s = u.state
				break
			}
		}
	}
	return b.String()
}

// table is an open-addressing hash table from a state's hash to its parent's.
type table struct {
	slots []struct{ key, parent uint64 }
	n     int
}

func (t *table) find(key uint64) int {
	i := int(key>>20) & (len(t.slots) - 1)
	for t.slots[i].key != 0 && t.slots[i].key != key {
		i = (i + 1) & (len(t.slots) - 1)
	}
	return i
}

// add reports whether the key is new.
func (t *table) add(key, parent uint64) bool {
	if 4*(t.n+1) > 3*len(t.slots) {
		t.grow()
	}
	i := t.find(key)
	if t.slots[i].key == key {
		return false
	}
	t.slots[i].key, t.slots[i].parent = key, parent
	t.n++
	return true
}

func (t *table) parent(key uint64) uint64 { return t.slots[t.find(key)].parent }

func (t *table) grow() {
	old := t.slots
	t.slots = make([]struct{ key, parent uint64 }, max(1<<12, 2*len(old)))
	for _, s := range old {
		if s.key != 0 {
			t.slots[t.find(s.key)] = s
		}
	}
}
