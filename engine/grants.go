package engine

import (
	"encoding/json"
	"fmt"

	"hansard"
)

// Grants follows a session's turn along its events and reports one that can't have
// been written under the grant it names: the proof, from the log alone, that no stale
// holder ever wrote. The zero value is the beginning of a session.
//
// Where a repair had to replace lost events ([KindLost]), the turn may have changed
// hands unseen. After that any grant is accepted that is not older than the last
// one, and the proof starts over with it.
type Grants struct {
	// Current is the turn that is held, nil if none is, or if lost events hide it.
	Current *hansard.Turn
	// Last is the newest grant, whether it is held or not.
	Last hansard.Grant

	lost   bool          // events were lost since the last one that shows who holds the turn
	before *hansard.Turn // the turn before the lost events
}

// Next takes the next event.
func (g *Grants) Next(e *hansard.Event) error {
	if e.IsLost() {
		if !g.lost {
			g.before = g.Current
		}
		g.Current, g.lost = nil, true
		return nil
	}
	unseen := g.lost && e.Turn != ""
	if unseen {
		if e.Turn != g.Last && e.Turn.Number() <= g.Last.Number() {
			return fmt.Errorf("seq %d is about grant %s, which is older than %s", e.Seq, e.Turn, g.Last)
		}
		g.lost = false
	}
	if e.Kind == hansard.KindTurn {
		return g.change(e, unseen)
	}
	if e.Fork != nil {
		return g.fork(e, unseen)
	}
	if unseen {
		g.Current, g.Last = &hansard.Turn{Grant: e.Turn}, e.Turn
		if g.before != nil && g.before.Grant == e.Turn {
			g.Current = g.before
		}
	}
	if e.Turn != "" && (g.Current == nil || g.Current.Grant != e.Turn) {
		return fmt.Errorf("seq %d was written under grant %s, which was not the current one (%s)", e.Seq, e.Turn, g.name())
	}
	if e.Turn == "" && g.Current != nil && g.Current.Exclusive && (!e.Inbox || e.Patch != nil) {
		return fmt.Errorf("seq %d was written without a grant while %s was exclusive", e.Seq, g.name())
	}
	return nil
}

// fork takes the first own event of a fork, which ends the turn that its parent's history
// left held: the parent's holder does not hold the fork's turn. It names the grant that it
// ends.
func (g *Grants) fork(e *hansard.Event, unseen bool) error {
	switch {
	case unseen:
		g.Last = e.Turn
	case e.Turn == "" && g.Current != nil:
		return fmt.Errorf("seq %d begins a fork while %s is held, and does not end it", e.Seq, g.name())
	case e.Turn != "" && (g.Current == nil || g.Current.Grant != e.Turn):
		return fmt.Errorf("seq %d begins a fork and ends grant %s, which was not held (%s)", e.Seq, e.Turn, g.name())
	}
	g.Current = nil
	return nil
}

// change takes a record of the turn. unseen means that the events leading to it were lost.
func (g *Grants) change(e *hansard.Event, unseen bool) error {
	var r hansard.TurnRecord
	if err := json.Unmarshal(e.Data, &r); err != nil {
		return fmt.Errorf("seq %d is no record of a turn: %v", e.Seq, err)
	}
	t := r.Turn(e.Turn, e.Seq, e.Time)
	switch {
	case r.Grants():
		if n := g.Last.Number() + 1; e.Turn.Number() != n && !(unseen && e.Turn.Number() > n) {
			return fmt.Errorf("seq %d grants %s behind %s", e.Seq, e.Turn, g.name())
		}
		if held := g.Current; held != nil && r.From != held.Grant {
			return fmt.Errorf("seq %d grants %s while %s was held", e.Seq, e.Turn, held.Grant)
		}
		g.Current, g.Last = &t, e.Turn
	case r.Ends() || r.Change == hansard.TurnMoved:
		if unseen {
			g.Current, g.Last = &t, e.Turn
		}
		if g.Current == nil || g.Current.Grant != e.Turn {
			return fmt.Errorf("seq %d: %s %s, which was not held (%s)", e.Seq, e.Turn, r.Change, g.name())
		}
		if r.Ends() {
			g.Current = nil
		}
	default:
		return fmt.Errorf("seq %d: unknown change %q of the turn", e.Seq, r.Change)
	}
	return nil
}

func (g *Grants) name() string {
	switch {
	case g.Last == "":
		return "there was none"
	case g.Current == nil:
		return string(g.Last) + " had ended"
	}
	return string(g.Last)
}
