package hansard

import (
	"context"
	"fmt"
	"iter"
	"time"
)

// lookEvery is how often Follow checks that an idle session is still the same one.
const lookEvery = time.Minute

// Follower is implemented by stores that can follow a session with fewer calls than
// [Follow] needs with Read, Wait and Stat.
type Follower interface {
	// Follow yields the same events as the function Follow, and ends the same way.
	Follow(ctx context.Context, id SessionID, after Seq) iter.Seq2[Event, error]
}

// Follow yields the events of a session past after, and continues as new ones
// arrive, each once and in order, until the context ends. It uses Read and Wait, unless
// the store is a [Follower]. A slow reader can only lag; it never loses an event and
// never blocks a writer.
//
// It follows one session: when that is deleted it ends with [ErrDeleted], even if its
// id has been reused since (see Meta.Reuse), and yields nothing of the new session.
//
// The sequence ends after an error. Ending the context is the normal way to
// stop: it ends the sequence with the context's error.
func Follow(ctx context.Context, s Store, id SessionID, after Seq) iter.Seq2[Event, error] {
	if f, ok := s.(Follower); ok {
		return f.Follow(ctx, id, after)
	}
	return func(yield func(Event, error) bool) {
		info, err := s.Stat(ctx, id)
		if err != nil {
			yield(Event{}, err)
			return
		}
		for {
			looked := false
			for e, err := range s.Read(ctx, id, Range{After: after}) {
				// Checked after the first event was read: if the session is still the same one, the event is its own.
				if !looked && err == nil {
					err = stillThere(ctx, s, &info)
					looked = true
				}
				if err != nil {
					yield(Event{}, err)
					return
				}
				if !yield(e, nil) {
					return
				}
				after = e.Seq
			}
			if err := await(ctx, s, &info, after); err != nil {
				yield(Event{}, err)
				return
			}
		}
	}
}

// await waits for an event of a session. Wait reports a deletion, unless a new session already has the id.
func await(ctx context.Context, s Store, info *Info, after Seq) error {
	for {
		wait, cancel := context.WithTimeout(ctx, lookEvery)
		err := s.Wait(wait, info.ID, after)
		late := wait.Err() != nil && ctx.Err() == nil
		cancel()
		if err == nil || !late {
			return err
		}
		if err := stillThere(ctx, s, info); err != nil {
			return err
		}
	}
}

// stillThere returns an error if the session is gone, or if its id now belongs to another one.
func stillThere(ctx context.Context, s Store, was *Info) error {
	now, err := s.Stat(ctx, was.ID)
	if err == nil && !now.Created.IsZero() && !now.Created.Equal(was.Created) { // zero: its header is damaged, which Read reports
		err = fmt.Errorf("%w: %s, and its id is that of another session now", ErrDeleted, was.ID)
	}
	return err
}
