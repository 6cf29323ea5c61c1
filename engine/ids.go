package engine

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"

	"hansard"
)

// Known is what a session has under an event's id.
type Known struct {
	Seq hansard.Seq
	// Content is the [EventHash] of the event, Patch the [PatchHash] of the patch that
	// was committed with it.
	Content, Patch string
	// Redacted: its content is gone, so there is nothing to compare with.
	Redacted bool
}

// KnownEvent is what a session has under the id of this event once it is stored.
func KnownEvent(e *hansard.Event) Known {
	if e.Redacted {
		return Known{Seq: e.Seq, Patch: PatchHash(e.Patch), Redacted: true}
	}
	return Known{Seq: e.Seq, Content: EventHash(e), Patch: PatchHash(e.Patch)}
}

// EventHash identifies the content of a normalised event: two events with the same
// id are the same if their hashes are. The patch does not count.
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

// Named is the part of an event in a batch that decides whether it is new.
type Named struct {
	ID      string
	event   *hansard.Event
	content string
}

// Content is the [EventHash] of the event, computed on first use: for a new event it is
// never needed. Until then the event must not change.
func (n *Named) Content() string {
	if n.content == "" {
		n.content = EventHash(n.event)
	}
	return n.content
}

// NamedAs makes a Named of an id and the [EventHash] of its event.
func NamedAs(id, content string) Named { return Named{ID: id, content: content} }

// Names are the names of a normalised batch's events; nil if none has one.
func Names(events []hansard.Event) []Named { return NamesInto(nil, events) }

// NamesInto is Names with memory to reuse, whose content is overwritten.
func NamesInto(memory []Named, events []hansard.Event) []Named {
	if !slices.ContainsFunc(events, func(e hansard.Event) bool { return e.ID != "" }) {
		return nil
	}
	names := slices.Grow(memory[:0], len(events))
	for i := range events {
		names = append(names, Named{ID: events[i].ID, event: &events[i]})
	}
	return names
}

// IDs follows the ids of a session's events along its log and reports a duplicate: the
// proof, from the log alone, that no event was stored twice. The zero value is the
// beginning of a session. It takes 16 bytes per id, plus the overhead of a map.
type IDs struct{ seen map[[16]byte]struct{} }

// Next takes the next event.
func (s *IDs) Next(e *hansard.Event) error {
	if e.ID == "" {
		return nil
	}
	if s.seen == nil {
		s.seen = map[[16]byte]struct{}{}
	}
	sum := sha256.Sum256([]byte(e.ID))
	name := [16]byte(sum[:16])
	if _, twice := s.seen[name]; twice {
		return fmt.Errorf("seq %d has the id %q, which an earlier event has", e.Seq, e.ID)
	}
	s.seen[name] = struct{}{}
	return nil
}

// Sifted says which parts of a batch are new to a session.
type Sifted struct {
	// Fresh are the indexes of the events to store, in order. A patch that is new
	// goes on the last of them; if there is none, on a [MetaEvent].
	Fresh []int
	Patch bool // the patch is new; false without one

	// seqs are those of the events that are known, 0 for the others. again has the
	// index of the first event with the same id in the batch, for those that repeat one.
	seqs  []hansard.Seq
	again map[int]int
}

// Sift decides which parts of a batch are new to a session; known looks up what it has
// under an id, and is nil if it is known to have none of them. patch is the [PatchHash] of the batch's patch. It returns an
// [hansard.IDReusedError] if an id is known with other content, in the session or in the
// batch itself. Engines call it where they order writes.
func Sift(session hansard.SessionID, names []Named, patch string, known func(eventID string) (Known, bool)) (Sifted, error) {
	s := Sifted{Patch: patch != "", seqs: make([]hansard.Seq, len(names))}
	first := firstWith(names)
	var reused []string
	for i := range names {
		n := &names[i]
		if n.ID == "" {
			s.isFresh(i)
			continue
		}
		before := first(i)
		twice := before < i
		have, ok := Known{}, false
		if known != nil {
			have, ok = known(n.ID)
		}
		switch {
		case ok && (have.Redacted || have.Content == n.Content()):
			s.seqs[i] = have.Seq
			if i == len(names)-1 && have.Patch == patch {
				s.Patch = false
			}
		case !ok && !twice:
			s.isFresh(i)
		case !ok && names[before].Content() == n.Content():
			if s.again == nil {
				s.again = map[int]int{}
			}
			s.again[i] = before
		case !slices.Contains(reused, n.ID):
			reused = append(reused, n.ID)
		}
	}
	if len(reused) > 0 {
		return Sifted{}, &hansard.IDReusedError{Session: session, IDs: reused}
	}
	return s, nil
}

// isFresh adds the index of an event to store. Usually all events are stored: then
// their indexes are a shared slice, and nothing is allocated.
func (s *Sifted) isFresh(i int) {
	if len(s.Fresh) == i && i < len(firstIndexes) {
		s.Fresh = firstIndexes[: i+1 : i+1] // an append to it copies it
		return
	}
	s.Fresh = append(s.Fresh, i)
}

// firstIndexes are 0, 1, 2, …: shared, and never written.
var firstIndexes = func() (all [64]int) {
	for i := range all {
		all[i] = i
	}
	return all
}()

// firstWith returns a function that finds the first name with the same id as the i-th, which
// has one. It has to be called with ascending i.
func firstWith(names []Named) func(i int) int {
	if len(names) <= 16 { // cheaper than a map
		return func(i int) int {
			before, id := 0, names[i].ID
			end := id[len(id)-1] // where ids of one writer differ
			for n := &names[0]; before < i; n = &names[before] {
				if len(n.ID) == len(id) && n.ID[len(id)-1] == end && n.ID == id {
					break
				}
				before++
			}
			return before
		}
	}
	first := make(map[string]int, len(names))
	return func(i int) int {
		before, ok := first[names[i].ID]
		if !ok {
			first[names[i].ID], before = i, i
		}
		return before
	}
}

// AllNew is what Sift returns for a batch whose events have no ids.
func AllNew(events int, patch bool) Sifted {
	s := Sifted{Patch: patch}
	for i := range events {
		s.isFresh(i)
	}
	return s
}

// Len is how many events are stored; 0 for a replay.
func (s *Sifted) Len() int {
	if len(s.Fresh) == 0 && s.Patch {
		return 1
	}
	return len(s.Fresh)
}

// MetaEvent is the event that carries a patch if there is no other to carry it.
func MetaEvent(by string) hansard.Event {
	return hansard.Event{Kind: hansard.KindMeta, Data: json.RawMessage("null"), By: by}
}

// Pick returns what is stored of a normalised batch: the events that are new, with the
// patch on the last one if it is new.
func (s *Sifted) Pick(events []hansard.Event) (out []hansard.Event) {
	for _, i := range s.Fresh {
		e := events[i]
		e.Patch = nil
		out = append(out, e)
	}
	if len(out) == 0 && s.Patch {
		out = append(out, MetaEvent(events[0].By))
	}
	if s.Patch {
		out[len(out)-1].Patch = events[len(events)-1].Patch
	}
	return out
}

// Receipt is the receipt of the append if the new events are stored from first on. It can be
// called once: the receipt takes over the memory of seqs.
func (s *Sifted) Receipt(session hansard.SessionID, first hansard.Seq) hansard.Receipt {
	r := hansard.Receipt{Session: session, Seqs: s.seqs}
	if r.Seqs != nil {
		for n, i := range s.Fresh {
			r.Seqs[i] = first + hansard.Seq(n)
		}
		for i, before := range s.again { // before is in Fresh
			r.Seqs[i] = r.Seqs[before]
		}
	}
	if n := s.Len(); n > 0 {
		r.First, r.Last = first, first+hansard.Seq(n)-1
	} else {
		r.Replayed = true
	}
	return r
}

// ReplayedSeqs are the Receipt.Seqs of a batch that was stored under its key at first to
// last: events without an id are among those, in order, and so are the events whose ids
// were new then.
func ReplayedSeqs(names []Named, first, last hansard.Seq, known func(eventID string) (Known, bool)) []hansard.Seq {
	if names == nil {
		return nil
	}
	out, next := make([]hansard.Seq, len(names)), first
	for i, n := range names {
		out[i] = next
		if have, ok := known(n.ID); ok && n.ID != "" {
			out[i] = have.Seq
		}
		if out[i] >= next && out[i] <= last {
			next = out[i] + 1
		}
	}
	return out
}
