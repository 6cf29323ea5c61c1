package hansard

import (
	"context"
	"iter"
)

// Follow yields the events of a session past after, and continues as new ones
// arrive, each once and in order, until the context ends. It is Read and Wait,
// once for all engines: a slow reader can only lag; it never loses an event and
// never blocks a writer.
//
// The sequence ends after an error. Ending the context is the normal way to
// stop: it ends the sequence with the context's error.
func Follow(ctx context.Context, s Store, id SessionID, after Seq) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		for {
			for e, err := range s.Read(ctx, id, Range{After: after}) {
				if !yield(e, err) || err != nil {
					return
				}
				after = e.Seq
			}
			if err := s.Wait(ctx, id, after); err != nil {
				yield(Event{}, err)
				return
			}
		}
	}
}
