package engine

import (
	"fmt"
	"slices"
	"time"

	"hansard"
)

// CheckPart checks that a part can be added to a session whose last seq is last. grants is
// the state of its turn, which CheckPart advances; known looks up what it has under an
// event's id. Engines call it where they order writes.
func CheckPart(p *hansard.Part, last hansard.Seq, grants *Grants, known func(eventID string) (Known, bool)) error {
	ids := map[string]bool{}
	for i := range p.Events {
		e := &p.Events[i]
		if e.Seq != last+hansard.Seq(i)+1 {
			if i == 0 {
				return &hansard.ConflictError{Session: p.ID, Expected: e.Seq - 1, Actual: last}
			}
			return invalid("events", "seq %d follows seq %d", e.Seq, p.Events[i-1].Seq)
		}
		if !e.At.Equal(at(e.At)) {
			return invalid("events", "seq %d happened at %v; it has to be in whole microseconds", e.Seq, e.At)
		}
		if e.Time.IsZero() || !e.Time.Equal(e.Time.Truncate(time.Microsecond)) {
			return invalid("events", "seq %d has the time %v; it has to be in whole microseconds", e.Seq, e.Time)
		}
		if err := grants.Next(e); err != nil {
			return invalid("events", "%v", err)
		}
		if err := checkLineage(p.Parent, e); err != nil {
			return invalid("events", "%v", err)
		}
		if err := checkRedactions(e); err != nil {
			return err
		}
		if e.ID == "" {
			continue
		}
		if _, twice := known(e.ID); twice || ids[e.ID] {
			return invalid("events", "seq %d has the id %q, which another event has", e.Seq, e.ID)
		}
		ids[e.ID] = true
	}
	end := last
	for _, k := range p.Keys {
		if k.Key == "" || k.First <= end || k.Last < k.First || k.Last > last+hansard.Seq(len(p.Events)) {
			return invalid("keys", "key %q at %d to %d is not that of a batch behind %d", k.Key, k.First, k.Last, end)
		}
		end = k.Last
		// With a wrong hash, a retry with the key would be answered as a replay of other
		// content, or be refused though its content is the same.
		events := p.Events[k.First-last-1 : k.Last-last]
		lost := slices.ContainsFunc(events, func(e hansard.Event) bool { return e.IsLost() })
		redacted := slices.ContainsFunc(events, func(e hansard.Event) bool { return e.Redacted })
		if redacted && k.Hash != "" {
			return invalid("keys", "key %q has the hash of content that was taken away, at %d to %d", k.Key, k.First, k.Last)
		}
		if !lost && !redacted && ContentHash(events) != k.Hash {
			return invalid("keys", "the hash of key %q is not that of its events, %d to %d", k.Key, k.First, k.Last)
		}
	}
	return nil
}

// CheckPartInput checks what can be checked of a part without the session it goes to.
func CheckPartInput(p *hansard.Part) error {
	if err := CheckMeta(&p.Meta); err != nil {
		return err
	}
	if err := checkNoReuse(&p.Meta); err != nil {
		return err
	}
	if p.Created.IsZero() {
		return invalid("created", "it is not set")
	}
	if err := checkTime("created", p.Created); err != nil {
		return err
	}
	if p.Parent != nil {
		if err := hansard.CheckID(p.Parent.ID); err != nil {
			return renamed("parent", err)
		}
	}
	total := 0
	for i := range p.Events {
		e := p.Events[i]
		if e.Patch != nil {
			if err := checkPatch(e.Patch); err != nil {
				return err
			}
		}
		if e.Kind == "" {
			return invalid(fmt.Sprintf("events[%d].kind", i), "it is empty")
		}
		if err := checkText(fmt.Sprintf("events[%d].by", i), e.By, hansard.MaxNameBytes); err != nil {
			return err
		}
		if err := checkTime(fmt.Sprintf("events[%d].time", i), e.Time); err != nil {
			return err
		}
		// Clear what the store normally sets, and what only the store writes.
		e.Seq, e.Time, e.Turn, e.By, e.Patch, e.Fork, e.Redacted, e.Redacts = 0, time.Time{}, "", "", nil, nil, false, nil
		if e.Kind == hansard.KindTurn {
			e.Kind = hansard.KindMeta
		}
		if err := checkEvent(&e); err != nil {
			return err
		}
		total += len(e.Data)
	}
	for i, k := range p.Keys {
		for name, text := range map[string]string{"key": k.Key, "hash": k.Hash} {
			if err := checkText(fmt.Sprintf("keys[%d].%s", i, name), text, hansard.MaxKeyBytes); err != nil {
				return err
			}
		}
	}
	if len(p.Events) > 2*hansard.MaxBatchEvents || total > 2*hansard.MaxBatchBytes {
		return tooLarge("part", total, 2*hansard.MaxBatchBytes, "bytes")
	}
	return nil
}

// SameOrigin returns an error if the session that a part goes to began differently.
func SameOrigin(p *hansard.Part, created time.Time) error {
	if !created.Equal(p.Created) {
		return fmt.Errorf("%w: %s: it was created at %v here, and at %v there", hansard.ErrExists, p.ID, created.UTC(), p.Created.UTC())
	}
	return nil
}
