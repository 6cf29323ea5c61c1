package storetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"hansard"
)

// side is a store that is compared with another, and the grants it issued: the two
// have different nonces, so a call refers to a grant by when it was issued.
type side struct {
	hansard.Store
	*grantsGiven
}

type grantsGiven struct {
	grants map[hansard.SessionID][]hansard.Grant
	// by is the handle through which a grant was acquired. It is renewed through
	// the same one: moving a turn to another may be an event.
	by map[hansard.Grant]hansard.Store
}

func newGrantsGiven() *grantsGiven {
	return &grantsGiven{make(map[hansard.SessionID][]hansard.Grant), make(map[hansard.Grant]hansard.Store)}
}

// given is the grant of a session issued before grants before the last, or one that
// was never issued if there is none.
func (s *side) given(id hansard.SessionID, before int) hansard.Grant {
	if list := s.grants[id]; before < len(list) {
		return list[len(list)-1-before]
	}
	return "1-0123456789abcdef"
}

// randomTurnCall draws one call about a turn.
func randomTurnCall(rng *rand.Rand, id hansard.SessionID) (string, modelCall) {
	before := rng.IntN(5) / 3 // mostly the newest
	switch rng.IntN(7) {
	case 0, 1, 2:
		c := hansard.Claim{TTL: time.Hour, Label: fmt.Sprint("label ", rng.IntN(3)), Exclusive: rng.IntN(4) == 0}
		if rng.IntN(4) == 0 {
			c.Steal = fmt.Sprint("reason ", rng.IntN(2))
		}
		if rng.IntN(4) == 0 {
			c.MaxHold = 2 * time.Hour
		}
		if rng.IntN(15) == 0 {
			c.TTL = -1
		}
		return fmt.Sprintf("Acquire(%q, %+v)", id, c), func(ctx context.Context, s *side) string {
			t, err := s.Acquire(ctx, id, c)
			if err == nil {
				s.grants[id] = append(s.grants[id], t.Grant)
				s.by[t.Grant] = s.Store
			}
			return answer(plainTurn(&t), err)
		}
	case 3, 4:
		return fmt.Sprintf("Release(%q, %d before the last)", id, before), func(ctx context.Context, s *side) string {
			return answer("", s.Release(ctx, id, s.given(id, before)))
		}
	case 5:
		return fmt.Sprintf("Renew(%q, %d before the last)", id, before), func(ctx context.Context, s *side) string {
			g := s.given(id, before)
			return answer("", cmp.Or(s.by[g], s.Store).Renew(ctx, id, g))
		}
	default:
		return fmt.Sprintf("Turn(%q)", id), func(ctx context.Context, s *side) string {
			t, err := s.Turn(ctx, id)
			return answer(plainTurn(t), err)
		}
	}
}

// releaseAllOn releases all turns that may be held, in the same order on both sides,
// and returns the answers.
func releaseAllOn(ctx context.Context, s *side) (answers []string) {
	var list []hansard.SessionID
	for id := range s.grants {
		list = append(list, id)
	}
	slices.Sort(list)
	clear(s.by)
	for _, id := range list {
		answers = append(answers, fmt.Sprint(id, " ", answer("", s.Release(ctx, id, s.given(id, 0)))))
	}
	return answers
}

// answerTurn is the text of what an error says about a turn, if it does.
func answerTurn(err error) (string, bool) {
	var held *hansard.HeldError
	var fenced *hansard.FencedError
	switch {
	case errors.As(err, &held):
		return fmt.Sprintf("held %s %s", held.Session, plainHolder(&held.Turn)), true
	case errors.As(err, &fenced):
		return fmt.Sprintf("fenced %s %d, now %s", fenced.Session, fenced.Grant.Number(), plainHolder(fenced.Current)), true
	}
	return "", false
}

// plainTurn is the text of a turn without what differs between stores.
func plainTurn(t *hansard.Turn) string {
	if t == nil {
		return "free"
	}
	return fmt.Sprintf("%d %s", t.Grant.Number(), plainHolder(t))
}

// plainHolder is plainTurn without the grant, which a server's refusals do not
// reveal.
func plainHolder(t *hansard.Turn) string {
	if t == nil {
		return "free"
	}
	return fmt.Sprintf("by %q at %d, ttl %v, max hold %v, exclusive %v, reason %q", t.Holder.Label, t.Seq, t.TTL, t.MaxHold, t.Exclusive, t.Reason)
}

// plainData is the text of an event's data; for the record of a turn, only what all
// engines agree on.
func plainData(e *hansard.Event) string {
	r, err := recordOf(*e)
	if err != nil {
		return string(e.Data)
	}
	return fmt.Sprintf("%s by %q, %d %d %v, from %d %q %q", r.Change, r.Holder.Label, r.TTL, r.MaxHold, r.Exclusive, r.From.Number(), r.Why, r.Reason)
}
