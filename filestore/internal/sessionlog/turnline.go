package sessionlog

import (
	"encoding/json"
	"time"

	"hansard"
)

// TurnState is a session's turn according to the newest line about it (T5). The holder is
// recorded in the log and nowhere else, so grants and the writes they fence are in one
// order; package peers knows whether the holder is alive.
type TurnState struct {
	Last     hansard.Grant // the newest grant, held or not; the next number is one more
	Held     *hansard.Turn // nil if nobody holds it
	Instance string        // of the process that keeps it alive
}

// NewestTurn is the offset of the newest line about the turn, seen from a line that
// begins at the offset at: itself, or the one it points to. 0: there was none, since the
// header is at 0.
func (l *Line) NewestTurn(at int64) int64 {
	if l.aboutTurn() {
		return at
	}
	return l.TurnAt
}

// aboutTurn tells whether the line changes who holds the turn: a turn record, or the first
// of a fork's own lines, if it ends the turn held in the parent.
func (l *Line) aboutTurn() bool {
	return l.Seq > 0 && (l.Kind == hansard.KindTurn || l.Fork != nil && l.Turn != "")
}

// TurnState is the turn after a line about it. An error means that the line is damaged, or
// that an offset led to the wrong line: not that the turn is free (failure 17).
func (l *Line) TurnState() (*TurnState, error) {
	e := l.Event()
	var r hansard.TurnRecord
	if l.Fork != nil && l.Turn != "" {
		return &TurnState{Last: l.Turn}, nil
	}
	if l.Kind != hansard.KindTurn {
		return nil, lineError("the line is not about the turn, though a later one says so")
	}
	if err := json.Unmarshal(e.Data, &r); err != nil {
		return nil, lineError("the line is no record of a turn: " + err.Error())
	}
	return StateAfter(&r, e.Turn, e.Seq, e.Time), nil
}

// StateAfter is the turn after a record r about grant g, at this seq and time. A record
// that ends the turn leaves Last, so that the next grant's number is higher.
func StateAfter(r *hansard.TurnRecord, g hansard.Grant, seq hansard.Seq, at time.Time) *TurnState {
	t := &TurnState{Last: g}
	if !r.Ends() {
		turn := r.Turn(g, seq, at)
		t.Held, t.Instance = &turn, r.Instance
	}
	return t
}
