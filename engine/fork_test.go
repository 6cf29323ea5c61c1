package engine

import (
	"testing"
	"time"

	"hansard"
)

// TestGrantsOfForks: the first event of a fork ends the turn that was held, and names it;
// after it nobody writes under a grant of the parent.
func TestGrantsOfForks(t *testing.T) {
	record := hansard.TurnRecord{Change: hansard.TurnGranted, Exclusive: true}
	granted := record.Event()
	granted.Seq, granted.Turn = 1, "1-0123456789abcdef"
	begins := func(seq hansard.Seq, turn hansard.Grant) hansard.Event {
		return hansard.Event{Seq: seq, Kind: hansard.KindFork, Turn: turn, Fork: &hansard.Parent{ID: "s", At: seq - 1}, Data: []byte("null")}
	}
	stale := hansard.Event{Seq: 3, Kind: "message", Turn: granted.Turn}
	next := (&hansard.TurnRecord{Change: hansard.TurnGranted}).Event()
	next.Seq, next.Turn = 3, "2-0123456789abcdef"
	word := hansard.Event{Seq: 2, Kind: hansard.KindFork, Data: []byte("1")}
	for what, c := range map[string]struct {
		events []hansard.Event
		ok     bool
	}{
		"it ends the turn":              {[]hansard.Event{granted, begins(2, granted.Turn)}, true},
		"the next grant":                {[]hansard.Event{granted, begins(2, granted.Turn), next}, true},
		"a stale write":                 {[]hansard.Event{granted, begins(2, granted.Turn), stale}, false},
		"it does not end it":            {[]hansard.Event{granted, begins(2, "")}, false},
		"it ends another":               {[]hansard.Event{granted, begins(2, "1-fedcba9876543210")}, false},
		"nothing is held":               {[]hansard.Event{begins(1, "")}, true},
		"it ends what is not held":      {[]hansard.Event{begins(1, granted.Turn)}, false},
		"a user's word ends no turn":    {[]hansard.Event{granted, word}, false},
		"behind what was lost":          {[]hansard.Event{granted, {Seq: 2, Kind: hansard.KindLost, Data: []byte("null")}, begins(3, granted.Turn)}, true},
		"a fork of a fork, held before": {[]hansard.Event{granted, begins(2, granted.Turn), begins(3, "")}, true},
	} {
		var g Grants
		var err error
		for i := range c.events {
			if err = g.Next(&c.events[i]); err != nil {
				break
			}
		}
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", what, err)
		}
		if last := c.events[len(c.events)-1]; c.ok && last.Fork != nil && g.Current != nil {
			t.Errorf("%s: %+v is held", what, g.Current)
		}
	}
}

// TestLineage: a log says of which session it is a fork, and a part of one is refused that
// says otherwise.
func TestLineage(t *testing.T) {
	begins := func(seq hansard.Seq, of hansard.SessionID, at hansard.Seq) hansard.Event {
		return hansard.Event{Seq: seq, Time: time.Unix(1, 0).UTC(), Kind: hansard.KindFork, Fork: &hansard.Parent{ID: of, At: at}, Data: []byte("null")}
	}
	plain := func(seq hansard.Seq) hansard.Event {
		return hansard.Event{Seq: seq, Time: time.Unix(1, 0).UTC(), Kind: "message", Data: []byte("1")}
	}
	for what, c := range map[string]struct {
		parent *hansard.Parent
		events []hansard.Event
		ok     bool
	}{
		"a fork":                     {&hansard.Parent{ID: "s", At: 1}, []hansard.Event{plain(1), begins(2, "s", 1)}, true},
		"a fork of a fork":           {&hansard.Parent{ID: "f", At: 2}, []hansard.Event{begins(1, "s", 0), plain(2), begins(3, "f", 2), plain(4)}, true},
		"no fork":                    {nil, []hansard.Event{plain(1)}, true},
		"it is not said":             {nil, []hansard.Event{plain(1), begins(2, "s", 1)}, false},
		"it is said of another":      {&hansard.Parent{ID: "t", At: 1}, []hansard.Event{plain(1), begins(2, "s", 1)}, false},
		"it is said, and is none":    {&hansard.Parent{ID: "s", At: 1}, []hansard.Event{plain(1), plain(2)}, false},
		"it is at another seq":       {&hansard.Parent{ID: "s", At: 1}, []hansard.Event{plain(1), plain(2), begins(3, "s", 1)}, false},
		"it is a fork of no session": {&hansard.Parent{ID: "-", At: 1}, []hansard.Event{plain(1), begins(2, "-", 1)}, false},
	} {
		p := hansard.Part{Origin: hansard.Origin{ID: "x", Created: time.Unix(1, 0), Parent: c.parent}, Events: c.events}
		err := CheckPart(&p, 0, &Grants{}, func(string) (Known, bool) { return Known{}, false })
		if (err == nil) != c.ok {
			t.Errorf("part, %s: %v", what, err)
		}
		var l Lineage
		err = nil
		for i := range c.events {
			if err == nil {
				err = l.Next(&c.events[i])
			}
		}
		if err == nil {
			err = l.End(c.parent)
		}
		if (err == nil) != c.ok {
			t.Errorf("log, %s: %v", what, err)
		}
	}
}
