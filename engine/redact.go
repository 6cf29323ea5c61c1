package engine

import (
	"fmt"
	"maps"
	"slices"

	"hansard"
)

// Redactions: which events may lose their content, and the proof that every removal
// is recorded.

// CheckRedaction checks that a store may accept a redaction, whatever the session
// contains, and puts its seqs in order, each once.
func CheckRedaction(r *hansard.Redaction) error {
	if len(r.Seqs) == 0 {
		return invalid("seqs", "there are none")
	}
	if len(r.Seqs) > hansard.MaxRedactions {
		return tooLarge("seqs", len(r.Seqs), hansard.MaxRedactions, "seqs")
	}
	if slices.Contains(r.Seqs, 0) {
		return invalid("seqs", "0 is before the first event")
	}
	r.Seqs = slices.Compact(slices.Sorted(slices.Values(r.Seqs)))
	if err := checkText("reason", r.Reason, hansard.MaxTitleBytes); err != nil {
		return err
	}
	if err := checkText("turn", string(r.Turn), hansard.MaxNameBytes); err != nil {
		return err
	}
	return checkText("by", r.By, hansard.MaxNameBytes)
}

// NoSeq is the error for a redaction of an event that the session does not have.
func NoSeq(session hansard.SessionID, seq, last hansard.Seq) error {
	return fmt.Errorf("%w in session %s: seq %d; the last one is %d", hansard.ErrNoEvent, session, seq, last)
}

// CheckRedactable refuses events that are the store's own: without their content the log
// would no longer prove what they record.
func CheckRedactable(e *hansard.Event) error {
	if e.StoresOwn() {
		return invalid("seqs", "seq %d is the store's own event of kind %s, which can't be redacted", e.Seq, e.Kind)
	}
	return nil
}

// Redact decides about a redaction on a session with this last seq, after [CheckRedaction]:
// which of the seqs are to be redacted now, none for a replay. event returns an event
// without its data; redacted says that it is redacted, or recorded as redacted.
func Redact(session hansard.SessionID, r *hansard.Redaction, last hansard.Seq, event func(hansard.Seq) (e hansard.Event, redacted bool, err error)) (fresh []hansard.Seq, err error) {
	for _, seq := range r.Seqs {
		if seq > last {
			return nil, NoSeq(session, seq, last)
		}
	}
	for _, seq := range r.Seqs {
		e, redacted, err := event(seq)
		if err == nil {
			err = CheckRedactable(&e)
		}
		if err != nil {
			return nil, err
		}
		if !redacted {
			fresh = append(fresh, seq)
		}
	}
	return fresh, nil
}

// SameKeyContent reports whether a batch may be the one that a key was used for, by their
// hashes. A batch with a redacted event has no hash: any content counts as a retry.
func SameKeyContent(stored, given string) bool { return stored == "" || stored == given }

// TakeAwayIn removes the content of the events that other events of the same part record as
// redacted: the source may not have removed it yet. It changes the part.
func TakeAwayIn(p *hansard.Part) {
	gone := map[hansard.Seq]bool{}
	for i := range p.Events {
		for _, seq := range p.Events[i].Redacts {
			gone[seq] = true
		}
	}
	if len(gone) == 0 {
		return
	}
	p.Events = slices.Clone(p.Events)
	for i := range p.Events {
		if e := &p.Events[i]; gone[e.Seq] && !e.StoresOwn() {
			e.TakeAway()
		}
	}
	p.Keys = slices.Clone(p.Keys)
	for i := range p.Keys {
		for seq := range gone {
			if p.Keys[i].First <= seq && seq <= p.Keys[i].Last {
				p.Keys[i].Hash = ""
			}
		}
	}
}

// RedactedBy returns the seqs before first that events record as redacted: an import
// removes the content of these events, which are stored already.
func RedactedBy(events []hansard.Event, first hansard.Seq) (seqs []hansard.Seq) {
	for i := range events {
		for _, seq := range events[i].Redacts {
			if seq < first {
				seqs = append(seqs, seq)
			}
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(seqs)))
}

// checkRedactions checks what an event of a part says about redactions.
func checkRedactions(e *hansard.Event) error {
	switch {
	case e.Redacted && (len(e.Attachments) > 0 || string(e.Data) != "null"):
		return invalid("events", "seq %d is redacted and has content", e.Seq)
	case e.Redacted && (e.Kind == hansard.KindTurn || len(e.Redacts) > 0):
		return invalid("events", "seq %d is redacted and the store's own", e.Seq)
	case len(e.Redacts) == 0:
		return nil
	case e.Kind != hansard.KindRedaction:
		return invalid("events", "seq %d redacts others and is of kind %s", e.Seq, e.Kind)
	case len(e.Redacts) > hansard.MaxRedactions:
		return tooLarge("redacts", len(e.Redacts), hansard.MaxRedactions, "seqs")
	}
	for i, seq := range e.Redacts {
		if seq == 0 || seq >= e.Seq || i > 0 && seq <= e.Redacts[i-1] {
			return invalid("events", "seq %d redacts seq %d: it has to name events before it, in order", e.Seq, seq)
		}
	}
	return nil
}

// Redactions follows the redactions along a session's events: the proof, from the log
// alone, that nothing was removed without a record, and that what is recorded is gone.
// The zero value is the beginning of a session.
type Redactions struct {
	open map[hansard.Seq]bool // redacted, and no record yet
	done map[hansard.Seq]bool // redacted and recorded, or lost
	left map[hansard.Seq]bool // recorded, and not redacted
	// lost is the last event that a repair replaced, or that a fork has from its parent:
	// records about events before it may be missing, or be only in the parent.
	lost hansard.Seq
}

// Next takes the next event.
func (r *Redactions) Next(e *hansard.Event) error {
	if r.open == nil {
		r.open, r.done, r.left = map[hansard.Seq]bool{}, map[hansard.Seq]bool{}, map[hansard.Seq]bool{}
	}
	if e.IsLost() {
		r.lost, r.done[e.Seq] = e.Seq, true
	}
	if e.Fork != nil {
		r.lost = max(r.lost, e.Fork.At)
	}
	if e.Redacted {
		r.open[e.Seq] = true
	}
	if e.Redacted && (len(e.Attachments) > 0 || string(e.Data) != "null") {
		return fmt.Errorf("seq %d is redacted and has content", e.Seq)
	}
	for _, seq := range e.Redacts {
		switch {
		case seq >= e.Seq:
			return fmt.Errorf("seq %d redacts seq %d, which is not before it", e.Seq, seq)
		case r.open[seq]:
			delete(r.open, seq)
			r.done[seq] = true
		case !r.done[seq]:
			r.left[seq] = true
		}
	}
	return nil
}

// Later takes the seqs of redactions recorded after the end of the log as it was read: the
// content may have been removed while the log was being read.
func (r *Redactions) Later(seqs []hansard.Seq) {
	for _, seq := range seqs {
		delete(r.open, seq)
	}
}

// End returns an error if content was removed and no event records it.
func (r *Redactions) End() error {
	for _, seq := range slices.Sorted(maps.Keys(r.open)) {
		if seq > r.lost {
			return fmt.Errorf("seq %d is redacted, and no event records it", seq)
		}
	}
	return nil
}

// Unfinished are the events whose content is still there, though they are recorded as
// redacted.
func (r *Redactions) Unfinished() []hansard.Seq { return slices.Sorted(maps.Keys(r.left)) }
