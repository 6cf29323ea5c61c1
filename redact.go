package hansard

import (
	"encoding/json"
	"slices"
)

// KindRedaction is the kind of the events that record that content was removed. Users may
// have used this kind too; only the store's own events have Redacts.
const KindRedaction = "redaction"

// Redaction says which events lose their content.
//
// First an event of kind [KindRedaction] is stored, with Redacts and, as data, a
// [RedactionRecord]. Then the content is removed: the data and the attachments of these
// events, the files of attachments that no other event names, and whatever the store keeps
// to compare the content with: the hash of their batch's key, and of their ids. Their seq,
// order, time, kind, role, author, id and patch stay. A patch is not content: it is removed
// with its session.
//
// From then on the id of a redacted event is known with any content, and a batch with the
// key of one that has a redacted event is a replay, whatever its content.
//
// Nil means that the content is no longer in the session. Seqs that are redacted already
// are left out; if none remains it is a replay, which finishes what was interrupted.
// [ErrNoEvent] means that there is no event with one of the seqs, and [ErrInvalid] also
// that one of them is the store's own: see [Event.StoresOwn]. [ErrUnknown] means that the
// redaction may be recorded, and the content may still be there: ask again, or leave it to
// the store, which completes what is recorded.
type Redaction struct {
	// Seqs are the events, in any order; at most [MaxRedactions].
	Seqs []Seq
	// Reason is why, for people. It is stored.
	Reason string
	// Turn is the grant under which it is done, as in a Batch: an exclusive turn keeps
	// others from it.
	Turn Grant
	// By is who asks as the server knows it, like Batch.By.
	By string
}

// RedactionRecord is the data of an event of kind [KindRedaction] that a store wrote.
type RedactionRecord struct {
	Seqs   []Seq  `json:"seqs"`
	Reason string `json:"reason"`
}

// Event is the event that records a redaction of these seqs, which are in order. Engines
// set its seq, time and turn.
func (r *Redaction) Event(seqs []Seq) Event {
	data, _ := json.Marshal(RedactionRecord{Seqs: seqs, Reason: r.Reason}) // numbers and text: can't fail
	return Event{Kind: KindRedaction, By: r.By, Redacts: slices.Clone(seqs), Data: data}
}

// TakeAway redacts an event in memory: it removes its content and marks it.
func (e *Event) TakeAway() {
	e.Redacted, e.Attachments, e.Data = true, nil, json.RawMessage("null")
}

// StoresOwn reports whether a store wrote the event for itself: a record of the turn, of a
// redaction or of a fork, or what a repair put in the place of a lost event.
func (e *Event) StoresOwn() bool {
	return e.Kind == KindTurn || len(e.Redacts) > 0 || e.Fork != nil || e.IsLost()
}
