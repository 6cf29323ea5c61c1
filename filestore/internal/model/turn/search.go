package turn

import "fmt"

// Config is a small world, and how often each fault may happen in it.
type Config struct {
	Procs                        int
	Kills, Cuts, Errors, Backups uint8
}

// Result is what a search found.
type Result struct {
	States int
	Writes int    // most writes in one log
	Grants int    // most grants of one path
	Broken string // the promise that does not hold, if any
	Trace  []string
}

func (r Result) String() string {
	if r.Broken == "" {
		return fmt.Sprintf("%d states, no violation", r.States)
	}
	return fmt.Sprintf("%d states: %s", r.States, r.Broken)
}

// origin is how a state was first reached.
type origin struct {
	from int32 // index of the state before
	what string
}

// Search visits every state that can be reached, breadth first, and stops at the
// first that breaks a promise: its trace is a shortest one.
func Search(c Config, rules Rules) Result {
	var start State
	start.kills, start.cuts, start.errors, start.backups = c.Kills, c.Cuts, c.Errors, c.Backups
	for p := range c.Procs {
		start.procs[p].alive = true
	}
	x := &explorer{rules: rules}
	seen := map[State]struct{}{start: {}}
	states, origins := []State{start}, []origin{{from: -1}}
	var r Result
	for i := 0; i < len(states); i++ {
		for _, n := range x.successors(&states[i], c.Procs) {
			if n.broken != "" {
				r.States, r.Broken = len(states), n.broken
				r.Trace = append(trace(origins, i), n.what)
				return r
			}
			if _, known := seen[n.state]; known {
				continue
			}
			seen[n.state] = struct{}{}
			states, origins = append(states, n.state), append(origins, origin{int32(i), n.what})
			writes := 0
			for _, e := range n.state.log[:n.state.lines] {
				if e.kind == wrote {
					writes++
				}
			}
			r.Writes, r.Grants = max(r.Writes, writes), max(r.Grants, int(n.state.made))
		}
	}
	r.States = len(states)
	return r
}

func trace(origins []origin, i int) []string {
	if origins[i].from < 0 {
		return nil
	}
	return append(trace(origins, int(origins[i].from)), origins[i].what)
}
