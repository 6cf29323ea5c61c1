package hansard

import (
	"context"
	"fmt"
	"iter"
	"time"
)

// Exporter is implemented by stores that can tell everything there is to know
// about their sessions, so that [Copy] can make the same ones elsewhere.
type Exporter interface {
	Store

	// Origins gives how each session began, deleted ones too, by ascending id,
	// beginning behind the one given.
	Origins(ctx context.Context, after SessionID) iter.Seq2[Origin, error]

	// Keys gives the idempotency keys of a session whose batches begin past a
	// seq, in the order of the log.
	Keys(ctx context.Context, id SessionID, after Seq) iter.Seq2[KeyUse, error]
}

// Importer is implemented by stores that can take over sessions as they are.
type Importer interface {
	Exporter

	// Import adds a part of another store's session behind the last event that
	// is here, with the seqs, times, grants and keys it has there, and makes the
	// session when it is not here. Nil means it is durable. A part that does not
	// begin one past the last seq is a [ConflictError]; a session of this id that
	// began otherwise is [ErrExists], and one that was deleted here [ErrDeleted].
	//
	// A part of a session that is deleted leaves the tombstone alone, of a
	// session that is here as well as of one that is not.
	Import(ctx context.Context, p Part) error
}

// ImportChecker is implemented by importers that may refuse everything, such as one
// on a server where the caller lacks a right.
type ImportChecker interface {
	// CheckImport is the error that every import would be, if there is one.
	CheckImport(ctx context.Context) error
}

// Origin is how a session began.
type Origin struct {
	ID      SessionID `json:"id"`
	Created time.Time `json:"created"`
	// Meta is what it was created with; patches have changed it since. A deleted
	// session has none.
	Meta    Meta `json:"meta"`
	Deleted bool `json:"deleted"`
}

// KeyUse is what a store remembers of an idempotency key.
type KeyUse struct {
	Key   string `json:"key"`
	Hash  string `json:"hash"`
	First Seq    `json:"first"`
	Last  Seq    `json:"last"`
}

// Part is a stretch of a session on its way from one store to another.
type Part struct {
	Origin
	Events []Event
	// Keys are those of the batches among Events, which has them whole.
	Keys []KeyUse
}

// CheckPart tells whether a part can be added to a session whose last seq is last,
// and whose turn is in the state of grants, which are moved on. Engines call it
// where they order writes.
func CheckPart(p *Part, last Seq, grants *Grants) error {
	for i := range p.Events {
		e := &p.Events[i]
		if e.Seq != last+Seq(i)+1 {
			if i == 0 {
				return &ConflictError{Session: p.ID, Expected: e.Seq - 1, Actual: last}
			}
			return invalid("events", "seq %d follows seq %d", e.Seq, p.Events[i-1].Seq)
		}
		if e.Time.IsZero() || !e.Time.Equal(e.Time.Truncate(time.Microsecond)) {
			return invalid("events", "seq %d has the time %v; it has to be in whole microseconds", e.Seq, e.Time)
		}
		if err := grants.Next(e); err != nil {
			return invalid("events", "%v", err)
		}
	}
	end := last
	for _, k := range p.Keys {
		if k.Key == "" || k.First <= end || k.Last < k.First || k.Last > last+Seq(len(p.Events)) {
			return invalid("keys", "key %q at %d to %d is not that of a batch behind %d", k.Key, k.First, k.Last, end)
		}
		end = k.Last
	}
	return nil
}

// CheckPartInput is what of a part can be judged without the session it goes to.
func CheckPartInput(p *Part) error {
	if err := CheckMeta(&p.Meta); err != nil {
		return err
	}
	if p.Created.IsZero() {
		return invalid("created", "it is not set")
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
		// What the store sets otherwise, and what it alone writes.
		e.Seq, e.Time, e.Turn, e.Patch = 0, time.Time{}, "", nil
		if e.Kind == KindTurn {
			e.Kind = KindMeta
		}
		if err := checkEvent(&e); err != nil {
			return err
		}
		total += len(e.Data)
	}
	for i, k := range p.Keys {
		for name, text := range map[string]string{"key": k.Key, "hash": k.Hash} {
			if err := checkText(fmt.Sprintf("keys[%d].%s", i, name), text, MaxKeyBytes); err != nil {
				return err
			}
		}
	}
	if len(p.Events) > 2*MaxBatchEvents || total > 2*MaxBatchBytes {
		return tooLarge("part", total, 2*MaxBatchBytes, "bytes")
	}
	return nil
}

// SameOrigin is the error of importing into a session that began otherwise, if it
// did.
func SameOrigin(p *Part, created time.Time) error {
	if !created.Equal(p.Created) {
		return fmt.Errorf("%w: %s: it was created at %v here, and at %v there", ErrExists, p.ID, created.UTC(), p.Created.UTC())
	}
	return nil
}
