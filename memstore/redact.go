package memstore

import (
	"context"
	"slices"

	"hansard"
	"hansard/engine"
)

// Redact implements [hansard.Store].
func (s *Store) Redact(ctx context.Context, id hansard.SessionID, r hansard.Redaction) (hansard.Receipt, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.checkLocked(ctx, id, engine.CheckRedaction(&r)); err != nil {
		return hansard.Receipt{}, err
	}
	ses, err := s.findLocked(id)
	if err != nil {
		return hansard.Receipt{}, err
	}
	fresh, err := engine.Redact(id, &r, ses.last(), func(seq hansard.Seq) (hansard.Event, bool, error) {
		e := ses.events[seq-1]
		return e, e.Redacted, nil
	})
	if err != nil {
		return hansard.Receipt{}, err
	}
	// As with known ids: what is already done needs no permission.
	if len(fresh) == 0 {
		return hansard.Receipt{Session: id, Replayed: true}, nil
	}
	gone, err := ses.fence(id, r.Turn, false)
	if err != nil {
		return hansard.Receipt{}, err
	}
	if gone != "" {
		ses.end(gone, r.By)
	}
	ses.add([]hansard.Event{r.Event(fresh)}, r.Turn)
	ses.takeAway(fresh)
	ses.serve() // a turn that ended is free for the next claimant
	ses.wake()
	return hansard.Receipt{Session: id, First: ses.last(), Last: ses.last()}, nil
}

// takeAway removes the content of events, and everything that is kept to compare it with.
// Events are not changed in place: readers may have them.
func (ses *session) takeAway(seqs []hansard.Seq) {
	if len(seqs) == 0 {
		return
	}
	ses.events = slices.Clone(ses.events)
	named := map[string]bool{}
	for _, seq := range seqs {
		e := &ses.events[seq-1]
		if e.Redacted || e.StoresOwn() {
			continue
		}
		for _, a := range e.Attachments {
			named[a.Digest] = true
		}
		ses.bytes -= int64(len(e.Data))
		e.TakeAway()
		ses.remember(e)
		for key, k := range ses.keys {
			if k.first <= seq && seq <= k.last {
				ses.keys[key] = stored{first: k.first, last: k.last}
			}
		}
	}
	for i := range ses.events {
		for _, a := range ses.events[i].Attachments {
			delete(named, a.Digest)
		}
	}
	for digest := range named {
		delete(ses.attachments, digest)
	}
}
