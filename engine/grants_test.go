package engine

import (
	"testing"

	"hansard"
)

// TestGrantsBehindLoss: where events were lost the turn may have changed hands; a
// grant that is older than what was seen before is still one that was lost.
func TestGrantsBehindLoss(t *testing.T) {
	const one, two, five = hansard.Grant("1-0000000000000001"), hansard.Grant("2-0000000000000002"), hansard.Grant("5-0000000000000005")
	record := func(change string, g hansard.Grant, exclusive bool) hansard.Event {
		e := (&hansard.TurnRecord{Change: change, Exclusive: exclusive}).Event()
		e.Turn = g
		return e
	}
	under := func(g hansard.Grant) hansard.Event {
		return hansard.Event{Kind: "message", Turn: g, Data: []byte(`1`)}
	}
	lost := hansard.Event{Kind: hansard.KindLost, Data: []byte("null")}
	granted := record(hansard.TurnGranted, one, false)
	for what, c := range map[string]struct {
		events []hansard.Event
		ok     bool
		held   hansard.Grant
	}{
		"the same turn goes on":             {[]hansard.Event{granted, lost, lost, under(one)}, true, one},
		"another was granted":               {[]hansard.Event{granted, lost, under(five), under(five)}, true, five},
		"another is granted":                {[]hansard.Event{granted, lost, record(hansard.TurnGranted, five, false)}, true, five},
		"it was given up":                   {[]hansard.Event{granted, lost, under("")}, true, ""},
		"another was, and is given up":      {[]hansard.Event{granted, lost, record(hansard.TurnReleased, five, false)}, true, ""},
		"another was, and moved":            {[]hansard.Event{granted, lost, record(hansard.TurnMoved, five, false)}, true, five},
		"an exclusive one ended":            {[]hansard.Event{record(hansard.TurnGranted, one, true), lost, under("")}, true, ""},
		"an exclusive one did not":          {[]hansard.Event{record(hansard.TurnGranted, one, true), lost, under(one), under("")}, false, ""},
		"an older one":                      {[]hansard.Event{granted, lost, under(five), lost, under(two)}, false, ""},
		"two of them":                       {[]hansard.Event{granted, lost, under(five), under(one)}, false, ""},
		"the same number, and another":      {[]hansard.Event{granted, lost, under("1-0000000000000009")}, false, ""},
		"granted twice":                     {[]hansard.Event{granted, lost, record(hansard.TurnGranted, one, false)}, false, ""},
		"without a loss another is a wrong": {[]hansard.Event{granted, under(five)}, false, ""},
		"an event that only looks lost": {[]hansard.Event{granted,
			{Kind: hansard.KindLost, Data: []byte(`"my keys"`)}, under(five)}, false, ""},
	} {
		var g Grants
		var err error
		for i := range c.events {
			c.events[i].Seq = hansard.Seq(i + 1)
			if err = g.Next(&c.events[i]); err != nil {
				break
			}
		}
		held := hansard.Grant("")
		if g.Current != nil {
			held = g.Current.Grant
		}
		if (err == nil) != c.ok || c.ok && held != c.held {
			t.Errorf("%s: %v, %q is held", what, err, held)
		}
	}
}
