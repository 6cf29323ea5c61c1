package transcript

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"hansard"
)

// KindDeleted is the kind of the event by which the OpenAI routes hide an item.
const KindDeleted = "item_deleted"

func (r *reader) deletion(v value) (Part, bool) {
	o, ok := r.effort.object(v)
	if !ok {
		return Part{}, false
	}
	n, ok := number(o.take("seq"))
	o.drop("id", "key")
	return Part{Type: Deletion, Seq: hansard.Seq(n), ID: o.word("id")}, ok && n > 0 && o.left() == nil
}

// redactionNote says which events were redacted, why and by whom.
func redactionNote(e hansard.Event) []Part {
	var r hansard.RedactionRecord
	_ = json.Unmarshal(e.Data, &r) // if it fails there is no reason to show
	what := "event "
	if len(e.Redacts) > 1 {
		what = "events "
	}
	for i, seq := range e.Redacts {
		if i == maxNamed {
			what += fmt.Sprintf(" and %d more", len(e.Redacts)-i)
			break
		}
		if i > 0 {
			what += ", "
		}
		what += strconv.FormatUint(uint64(seq), 10)
	}
	p := Part{Type: Note, Name: e.By, Text: "redacted " + what}
	if e.By == "" {
		p.Text = "The content of " + what + " was redacted"
	}
	p.Detail = "the content of " + what + " was redacted"
	if e.By != "" {
		p.Detail += " by " + e.By
	}
	if r.Reason != "" {
		p.Text += ": “" + r.Reason + "”"
		p.Detail += ": " + r.Reason
	}
	return []Part{p}
}

// maxNamed is how many events a note names one by one.
const maxNamed = 20

// whose is who wrote an event that has nothing else to show.
func whose(e hansard.Event) string {
	who := strings.TrimSpace(e.Role + " " + e.Author)
	if e.Kind != hansard.KindMessage {
		who = strings.TrimSpace(e.Kind + " " + who)
	}
	if who == "" {
		return ""
	}
	return " (" + who + ")"
}

// turnNote says what happened to the turn, in short and in detail.
func turnNote(e hansard.Event, otherwise []Part) []Part {
	var r hansard.TurnRecord
	if json.Unmarshal(bytes.TrimSpace(e.Data), &r) != nil {
		return otherwise
	}
	p := Part{Type: Note, Name: holderName(r.Holder), Detail: turnDetail(e.Turn, &r)}
	alone := ""
	if r.Exclusive {
		alone = " exclusively"
	}
	switch r.Change {
	case hansard.TurnGranted:
		p.Text = "took the turn" + alone
	case hansard.TurnTaken:
		p.Text = "took the turn over" + alone + because(r.Why)
	case hansard.TurnStolen:
		p.Text = "took the turn away from a live holder" + alone
		if r.Reason != "" {
			p.Text += ": “" + r.Reason + "”"
		}
	case hansard.TurnReleased:
		if p.Text = "released the turn"; r.Holder == (hansard.Holder{}) {
			p.Name, p.Text = "", "The turn was released"
		}
	case hansard.TurnEnded:
		p.Name, p.Text = "", "The turn ended"+because(r.Why)
	case hansard.TurnMoved:
		p.Name, p.Text = "", "The turn continues in another process"
	default:
		return otherwise
	}
	return []Part{p}
}

// turnDetail is what happened, including the numbers of the turns and the processes of
// their holders.
func turnDetail(turn hansard.Grant, r *hansard.TurnRecord) string {
	text := "turn " + turnNumber(turn)
	switch r.Change {
	case hansard.TurnStolen:
		text += fmt.Sprintf(" stolen from turn %s by %s: %s", turnNumber(r.From), holderInFull(r.Holder), r.Reason)
	case hansard.TurnTaken:
		text += fmt.Sprintf(" taken over by %s: the holder of turn %s %s", holderInFull(r.Holder), turnNumber(r.From), whyLost(r.Why))
	case hansard.TurnGranted:
		text += " taken by " + holderInFull(r.Holder)
	case hansard.TurnReleased:
		text += " released"
	case hansard.TurnEnded:
		text += " ended: " + whyEnded(r.Why)
	case hansard.TurnMoved:
		text += " continues in another process"
	}
	if r.Exclusive && r.Grants() {
		text += ", exclusive"
	}
	return text
}

// turnNumber is a grant for people: its number, which is enough to tell the turns of
// a session apart.
func turnNumber(g hansard.Grant) string {
	if n := g.Number(); n > 0 {
		return strconv.FormatUint(n, 10)
	}
	return string(g)
}

// holderInFull is a holder as "planner (pid 12 on host)".
func holderInFull(h hansard.Holder) string {
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

func because(why string) string {
	switch why {
	case "":
		return ""
	case "dead":
		return ": its holder was gone"
	case "silent":
		return ": its holder gave no sign of life"
	case "overdue":
		return ": its holder had it for too long"
	}
	return ": " + why
}

// holderName is how people call the holder of a turn.
func holderName(h hansard.Holder) string {
	switch {
	case h.Label != "":
		return h.Label
	case h.PID != 0:
		return "pid " + strconv.Itoa(h.PID)
	}
	return "somebody"
}
