package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"hansard"
)

// turnReport is the output of turn --show.
type turnReport struct {
	Session hansard.SessionID `json:"session"`
	Turn    *hansard.Turn     `json:"turn"` // null if it is free
	// Until is when the turn ends at the latest, null if it has no limit.
	Until *time.Time `json:"until"`
	// Last is the last event that is not about the turn itself.
	Last *lastWrite `json:"last"`
}

type lastWrite struct {
	Seq    hansard.Seq   `json:"seq"`
	Time   time.Time     `json:"time"`
	Kind   string        `json:"kind"`
	Role   string        `json:"role"`
	Author string        `json:"author"`
	Turn   hansard.Grant `json:"turn"`
	Inbox  bool          `json:"inbox"`
}

func (a *app) showTurn(ctx context.Context, s hansard.Store, id hansard.SessionID) error {
	held, err := s.Turn(ctx, id)
	if err != nil {
		return err
	}
	r := turnReport{Session: id, Turn: held}
	if held != nil && held.MaxHold > 0 {
		until := held.Since.Add(held.MaxHold)
		r.Until = &until
	}
	if r.Last, err = lastWritten(ctx, s, id); err != nil {
		return err
	}
	if a.json {
		return a.out.jsonLine(r)
	}
	return a.printTurn(r)
}

// lookBack is how many events from the end are searched first for the last one
// that is not about the turn; then all are searched.
const lookBack = 64

func lastWritten(ctx context.Context, s hansard.Store, id hansard.SessionID) (last *lastWrite, err error) {
	for _, r := range []hansard.Range{{Last: lookBack}, {}} {
		for e, err := range s.Read(ctx, id, r) {
			if errors.Is(err, hansard.ErrDamaged) {
				break // everything before it was read
			}
			if err != nil {
				return nil, err
			}
			if e.Kind != hansard.KindTurn {
				last = &lastWrite{e.Seq, e.Time, e.Kind, e.Role, e.Author, e.Turn, e.Inbox}
			}
		}
		if last != nil {
			break
		}
	}
	return last, nil
}

func (a *app) printTurn(r turnReport) error {
	rows := []infoRow{{"session", string(r.Session)}}
	if t := r.Turn; t == nil {
		rows = append(rows, infoRow{"turn", "free"})
	} else {
		rows = append(rows,
			infoRow{"turn", escapeLine(string(t.Grant))},
			infoRow{"holder", escapeLine(t.Holder.String())},
			infoRow{"since", a.when(t.Since)},
			infoRow{"alive", a.sign(t)},
			infoRow{"until", a.until(t, r.Until)},
			infoRow{"others", others(t)},
			infoRow{"reason", escapeLine(t.Reason)})
	}
	if l := r.Last; l != nil {
		rows = append(rows, infoRow{"written", fmt.Sprintf("seq %d, %s, %s", l.Seq, l.who(r.Turn), humanAgo(a.now(), l.Time))})
	}
	return a.printRows(rows)
}

// sign is the last sign of life.
func (a *app) sign(t *hansard.Turn) string {
	if t.Renewed.IsZero() {
		return "" // the store does not know
	}
	return a.when(t.Renewed)
}

// until is what ends the turn, if its holder does not.
func (a *app) until(t *hansard.Turn, end *time.Time) string {
	text := fmt.Sprintf("%v without a sign of life", t.TTL)
	if end == nil {
		return text
	}
	left := end.Sub(a.now()).Round(time.Second)
	if left <= 0 {
		return fmt.Sprintf("%s: it is overdue, the next claimant gets it", a.stamp(*end))
	}
	return fmt.Sprintf("%s (in %v), or %s", a.stamp(*end), left, text)
}

func others(t *hansard.Turn) string {
	if t.Exclusive {
		return "may append to the inbox only (exclusive)"
	}
	return "may append"
}

// who is the author of an event and whether it was written under the turn.
func (l *lastWrite) who(held *hansard.Turn) string {
	who := title(l.Kind, l.Role, l.Author)
	var marks []string
	switch {
	case l.Turn == "":
		marks = append(marks, "without the turn")
	case held != nil && l.Turn == held.Grant:
		marks = append(marks, "under this turn")
	default:
		marks = append(marks, "under turn "+turnName(l.Turn))
	}
	if l.Inbox {
		marks = append(marks, "inbox")
	}
	return who + ", " + strings.Join(marks, ", ")
}
