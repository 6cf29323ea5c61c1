package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"hansard"
)

// turnName is a grant for people: its number, which is enough to tell the turns
// of a session apart.
func turnName(g hansard.Grant) string {
	if n := g.Number(); n > 0 {
		return strconv.FormatUint(n, 10)
	}
	return escapeLine(string(g))
}

// turnText tells what an event about the turn says, in one line; false when it
// says nothing that is known here.
func turnText(e hansard.Event) (string, bool) {
	var r hansard.TurnRecord
	if e.Kind != hansard.KindTurn || json.Unmarshal(e.Data, &r) != nil {
		return "", false
	}
	text := "turn " + turnName(e.Turn)
	switch {
	case r.Change == hansard.TurnStolen:
		text += fmt.Sprintf(" stolen from turn %s by %s: %s", turnName(r.From), whoHolds(r.Holder), r.Reason)
	case r.Change == hansard.TurnTaken:
		text += fmt.Sprintf(" taken over by %s: the holder of turn %s %s", whoHolds(r.Holder), turnName(r.From), whyLost(r.Why))
	case r.Change == hansard.TurnGranted:
		text += " taken by " + whoHolds(r.Holder)
	case r.Change == hansard.TurnReleased:
		text += " released"
	case r.Change == hansard.TurnEnded:
		text += " ended: " + whyEnded(r.Why)
	case r.Change == hansard.TurnMoved:
		text += " goes on in another process"
	default:
		return "", false
	}
	if r.Exclusive && r.Grants() {
		text += ", exclusive"
	}
	return escapeLine(text), true
}

// whoHolds is a holder as "planner (pid 12 on host)".
func whoHolds(h hansard.Holder) string {
	if h.Label == "" {
		return h.String()
	}
	rest, more := strings.CutPrefix(h.String(), h.Label+" ")
	if !more {
		return h.Label
	}
	return h.Label + " (" + rest + ")"
}

func whyEnded(why string) string {
	if why == "dead" || why == "silent" || why == "overdue" {
		return "its holder " + whyLost(why)
	}
	return why
}

func whyLost(why string) string {
	switch why {
	case "dead":
		return "is dead"
	case "silent":
		return "gave no sign of life"
	case "overdue":
		return "had it for too long"
	}
	return strings.TrimSpace("lost it " + why)
}
