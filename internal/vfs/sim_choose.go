package vfs

// Chooser makes choices so that all combinations can be tried, one run after
// the other:
//
//	var c Chooser
//	for more := true; more; more = c.Next() {
//		… c.Choose(3) … c.Choose(2) …
//	}
//
// A run must depend only on the choices. It is used by Cut.Choose and, as a
// schedule, by [Disk.Schedule].
type Chooser struct {
	// Limit bounds how many choices of a run may differ from the first
	// alternative, 0 for no bound. In schedules the first alternative is to
	// let the running process continue, so this bounds the switches: most
	// races need few.
	Limit int

	trail  []pick
	at     int
	replay []int
}

// pick is a choice that was made.
type pick struct{ of, took int }

// Choose returns one of n alternatives.
func (c *Chooser) Choose(n int) int {
	if c.at == len(c.trail) {
		p := pick{of: n}
		if c.at < len(c.replay) {
			p.took = c.replay[c.at]
		}
		c.trail = append(c.trail, p)
	}
	p := c.trail[c.at]
	if p.of != n || p.took >= n {
		panic("vfs: with the same choices as before a run asked for others: it is not deterministic")
	}
	c.at++
	return p.took
}

// Next moves to the next combination; false if all have been tried.
func (c *Chooser) Next() bool {
	c.trail = c.trail[:c.at]
	c.replay = nil
	others := 0 // before the current choice
	for _, p := range c.trail {
		if p.took > 0 {
			others++
		}
	}
	for k := len(c.trail) - 1; k >= 0; k-- {
		p := &c.trail[k]
		if p.took > 0 {
			others--
		}
		if p.took+1 < p.of && (c.Limit == 0 || others < c.Limit) {
			p.took++
			c.trail = c.trail[:k+1]
			c.at = 0
			return true
		}
	}
	return false
}

// Taken is the list of choices of this run so far, to be printed with a
// failure.
func (c *Chooser) Taken() []int {
	l := make([]int, 0, c.at)
	for _, p := range c.trail[:c.at] {
		l = append(l, p.took)
	}
	return l
}

// Replay makes the next run take the choices that Taken returned.
func (c *Chooser) Replay(choices []int) {
	*c = Chooser{Limit: c.Limit, replay: choices}
}
