package engine

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"

	"hansard"
)

// twoLogs is a store that has a fork and its parent as they are written here.
type twoLogs struct {
	hansard.Store
	logs    map[hansard.SessionID][]hansard.Event
	created time.Time // of the parent
}

func (s twoLogs) Read(_ context.Context, id hansard.SessionID, r hansard.Range) iter.Seq2[hansard.Event, error] {
	return func(yield func(hansard.Event, error) bool) {
		for _, e := range s.logs[id] {
			if e.Seq > r.After && (r.Before == 0 || e.Seq < r.Before) && !yield(e, nil) {
				return
			}
		}
	}
}

func (s twoLogs) Stat(context.Context, hansard.SessionID) (hansard.Info, error) {
	return hansard.Info{Created: s.created}, nil
}

// TestCompareParent: what is said of a fork that differs from the session it was made of, and
// what counts as damage. Event n of both is written at second n; the fork is made at second 10.
func TestCompareParent(t *testing.T) {
	at := func(second int) time.Time { return time.Unix(int64(second), 0).UTC() }
	event := func(seq hansard.Seq, second int, text string) hansard.Event {
		return hansard.Event{Seq: seq, Time: at(second), Kind: "note", Data: []byte(fmt.Sprintf("%q", text))}
	}
	history := []hansard.Event{event(1, 1, "one"), event(2, 2, "two"), event(3, 3, "three")}
	forked := hansard.Event{Seq: 4, Time: at(10), Kind: hansard.KindFork, Fork: &hansard.Parent{ID: "parent", At: 3}, Data: []byte("null")}
	redacted := history[1]
	redacted.Redacted, redacted.Data = true, nil
	for what, c := range map[string]struct {
		parent  []hansard.Event
		created int
		want    string // "" for nothing
		damage  bool
	}{
		"the same":                    {parent: history},
		"it went on":                  {parent: append(history[:3:3], event(4, 20, "four"))},
		"redacted in the parent":      {parent: []hansard.Event{history[0], redacted, history[2]}},
		"the id was used again":       {parent: []hansard.Event{event(1, 20, "another")}, created: 20},
		"shorter than it was":         {parent: history[:2], want: "has no event 3 any more"},
		"another session":             {parent: []hansard.Event{event(1, 2, "another"), history[1], history[2]}, want: "the one of this name here is another"},
		"set back, and went on":       {parent: []hansard.Event{history[0], history[1], event(3, 20, "another")}, want: "whose event 3 was written later"},
		"one of the two was tampered": {parent: []hansard.Event{history[0], event(2, 2, "TWO"), history[2]}, want: "event 2 is not that of parent", damage: true},
	} {
		s := twoLogs{logs: map[hansard.SessionID][]hansard.Event{"fork": append(history[:3:3], forked), "parent": c.parent}, created: at(c.created)}
		d, err := CompareParent(t.Context(), s, "fork", *forked.Fork)
		if err != nil || d.Damage != c.damage || (d.Message == "") != (c.want == "") || !strings.Contains(d.Message, c.want) {
			t.Errorf("%s: %+v, %v; want %q", what, d, err, c.want)
		}
	}
}
