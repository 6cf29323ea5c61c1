package engine

import (
	"slices"

	"hansard"
)

// Known is what a session has under an event's id.
type Known struct {
	Seq hansard.Seq
	// Content is the [EventHash] of the event, Patch the [PatchHash] of the patch that
	// was committed with it.
	Content, Patch string
}

// KnownEvent is what a session that has this event knows under its id.
func KnownEvent(e *hansard.Event) Known {
	return Known{Seq: e.Seq, Content: EventHash(e), Patch: PatchHash(e.Patch)}
}

// EventHash identifies what its writer says in an event that was normalised: two events
// with the same id are the same if their hashes are. The patch does not count.
func EventHash(e *hansard.Event) string {
	h := newHash()
	h.event(e)
	return h.sum()
}

// PatchHash identifies a patch; it is empty if there is none.
func PatchHash(p *hansard.Patch) string {
	if p == nil {
		return ""
	}
	h := newHash()
	h.patch(p)
	return h.sum()
}

// HasIDs reports whether one of a batch's events has an id.
func HasIDs(events []hansard.Event) bool {
	return slices.ContainsFunc(events, func(e hansard.Event) bool { return e.ID != "" })
}

// Sifted is what of a batch is new to a session.
type Sifted struct {
	// Fresh are the indexes of the events to store, in order. The patch, if it is
	// new, goes on the last of them.
	Fresh []int
	// PatchAlone says that only the patch is new, and is stored as an event of kind
	// "meta": see [MetaEvent].
	PatchAlone bool
	// Patch says that the patch is new. It is false without one.
	Patch bool
	// seqs of the events that are known, 0 for the others; nil if there are no ids.
	// again are the indexes of the first event with the same id in the batch, -1 if
	// there is none.
	seqs  []hansard.Seq
	again []int
}

// Sift decides what of a normalised batch is new to a session, which says what it has
// under an id. It is an [hansard.IDReusedError] if an id is known with other content,
// in the session or in the batch itself. Engines call it where they order writes.
func Sift(id hansard.SessionID, events []hansard.Event, known func(eventID string) (Known, bool)) (Sifted, error) {
	s := Sifted{again: make([]int, len(events))}
	if HasIDs(events) {
		s.seqs = make([]hansard.Seq, len(events))
	}
	first := make(map[string]int, len(events)) // index of the first event with an id
	var reused []string
	last := len(events) - 1
	s.Patch = events[last].Patch != nil
	for i := range events {
		e := &events[i]
		s.again[i] = -1
		if e.ID == "" {
			s.Fresh = append(s.Fresh, i)
			continue
		}
		before, twice := first[e.ID]
		if !twice {
			first[e.ID] = i
		}
		have, ok := known(e.ID)
		switch {
		case ok && have.Content == EventHash(e):
			s.seqs[i] = have.Seq
			if i == last && s.Patch && have.Patch == PatchHash(e.Patch) {
				s.Patch = false
			}
		case !ok && !twice:
			s.Fresh = append(s.Fresh, i)
		case !ok && EventHash(&events[before]) == EventHash(e):
			s.again[i] = before
		case !slices.Contains(reused, e.ID):
			reused = append(reused, e.ID)
		}
	}
	if len(reused) > 0 {
		return Sifted{}, &hansard.IDReusedError{Session: id, IDs: reused}
	}
	s.PatchAlone = s.Patch && len(s.Fresh) == 0
	return s, nil
}

// Nothing reports whether nothing of the batch is new.
func (s *Sifted) Nothing() bool { return len(s.Fresh) == 0 && !s.Patch }

// Pick returns the events to store: of a normalised batch, those that are new, with the
// patch on the last one if it is new.
func (s *Sifted) Pick(events []hansard.Event) []hansard.Event {
	patch := events[len(events)-1].Patch
	var out []hansard.Event
	for _, i := range s.Fresh {
		e := events[i]
		e.Patch = nil
		out = append(out, e)
	}
	if s.PatchAlone {
		e := metaEvent()
		e.By = events[0].By
		out = append(out, e)
	}
	if s.Patch {
		out[len(out)-1].Patch = patch
	}
	return out
}

// Receipt is what the append answers, if its first new event is stored at first.
func (s *Sifted) Receipt(id hansard.SessionID, first hansard.Seq) hansard.Receipt {
	r := hansard.Receipt{Session: id, Seqs: slices.Clone(s.seqs)}
	for n, i := range s.Fresh {
		if r.Seqs != nil {
			r.Seqs[i] = first + hansard.Seq(n)
		}
	}
	for i, before := range s.again {
		if before >= 0 {
			r.Seqs[i] = r.Seqs[before]
		}
	}
	switch {
	case s.Nothing():
		r.Replayed = true
	case s.PatchAlone:
		r.First, r.Last = first, first
	default:
		r.First, r.Last = first, first+hansard.Seq(len(s.Fresh))-1
	}
	return r
}

// ReplayedSeqs are the Receipt.Seqs of a batch that was stored under its key at first to
// last: events without an id are among those, in order, and so are the events whose ids
// were new then.
func ReplayedSeqs(events []hansard.Event, first, last hansard.Seq, known func(eventID string) (Known, bool)) []hansard.Seq {
	if !HasIDs(events) {
		return nil
	}
	out, next := make([]hansard.Seq, len(events)), first
	for i := range events {
		if have, ok := known(events[i].ID); ok && events[i].ID != "" {
			out[i] = have.Seq
		} else {
			out[i] = next
		}
		if out[i] >= next && out[i] <= last {
			next = out[i] + 1
		}
	}
	return out
}
