package model

import "fmt"

// soloSteps is far more than an append with a reload, a rotation and a
// checkpoint needs.
const soloSteps = 120

// solo checks that a request gets through although every other process is
// stopped for ever, wherever it is outside write.lock. From then on nothing
// fails and there is enough space.
func (x *explorer) solo(s *State) string {
	if s.lock != 0 || int(s.lastID)+2 >= maxIDs {
		return ""
	}
	for pi := range x.cfg.Procs {
		if s.proc[pi].pc != atIdle {
			continue
		}
		if why := x.soloRun(s, pi); why != "" {
			return why
		}
	}
	return ""
}

func (x *explorer) soloRun(s *State, pi int) string {
	y := explorer{cfg: x.cfg, rules: x.rules}
	n := *s
	n.kills, n.ringErrs, n.logErrs, n.full = 0, 0, 0, 0
	n.checkpoints = 3
	n.script = uint8(len(x.cfg.Script) - 1) // one more plain append
	for range soloSteps {
		y.out = y.out[:0]
		y.process(&n, pi)
		if y.bounded > 0 {
			return ""
		}
		if len(y.out) == 0 {
			return fmt.Sprintf("P%d is stuck at %q while the others are stopped", pi, pcNames[n.proc[pi].pc])
		}
		u := &y.out[0]
		if u.broken != "" {
			return u.broken
		}
		if u.state.proc[pi].pc == atIdle {
			if u.state.acked == s.acked {
				return fmt.Sprintf("P%d comes to nothing while the others are stopped", pi)
			}
			return ""
		}
		n = u.state
	}
	return fmt.Sprintf("P%d goes round in circles while the others are stopped", pi)
}
