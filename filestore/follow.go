package filestore

import (
	"context"
	"fmt"
	"iter"
	"time"

	"hansard"
	"hansard/filestore/internal/sessionlog"
)

// Following. hansard.Follow looks at a session three times for each event: to see whether
// it exists, to read it, and to see whether it is still the same session. Here a single
// look at the log does all of that: the header, which says whose lines they are, and the
// lines come from one open file.
//
//	join ─► take the channel ─► look ─► yield new events ─► sleep until the channel is closed, or a poll
//	              ▲─────────────────────────────────────────────────────┘
//
// Any write after the channel was taken closes it, so that no look is needed before the
// sleep. The log is not open while we sleep: a follower must not keep an erased one
// alive.

// Follow implements [hansard.Follower].
func (s *Store) Follow(ctx context.Context, id hansard.SessionID, after hansard.Seq) iter.Seq2[hansard.Event, error] {
	return func(yield func(hansard.Event, error) bool) {
		if err := s.follow(ctx, id, after, yield); err != nil && err != errStop {
			yield(hansard.Event{}, err)
		}
	}
}

// follow calls yield with the events past after until it returns false, which is errStop.
func (s *Store) follow(ctx context.Context, id hansard.SessionID, after hansard.Seq, yield func(hansard.Event, error) bool) error {
	if err := s.readable(ctx, id); err != nil {
		return err
	}
	f := follower{reader: s.reader, id: id, after: after}
	if err := f.look(ctx, yield); err != nil { // before it is watched: it may not exist
		return s.readError(id, err)
	}
	name := sessionlog.EncodeName(id)
	p := s.waiters.join(name)
	defer s.waiters.leave(name, p, true)
	poll := pollMin
	timer := time.NewTimer(poll)
	defer timer.Stop()
	for {
		woken := s.waiters.channel(p) // before the look, or a wake between is lost
		given := f.after
		if err := f.look(ctx, yield); err != nil {
			return s.readError(id, err)
		}
		if f.after > given {
			poll = pollMin
		}
		timer.Reset(poll)
		select {
		case <-ctx.Done(): // the next look returns the error
		case <-s.closing:
		case <-woken:
		case <-timer.C:
			poll = min(2*poll, pollMax)
		}
	}
}

// follower follows one session.
type follower struct {
	*reader
	id    hansard.SessionID
	after hansard.Seq
	// uid and created are those of the log that was looked at last; uid 0: none was.
	uid     uint64
	created time.Time
}

// look yields new events. An error ends the following: the look failed, there is damage
// after the events yielded, or the id belongs to another session now.
func (f *follower) look(ctx context.Context, yield func(hansard.Event, error) bool) error {
	l, err := f.openLogForRead(ctx, f.id)
	if err != nil {
		return err
	}
	defer l.f.Close()
	if err := f.same(l); err != nil {
		return err
	}
	var own keeper
	return f.readIn(ctx, l, f.id, hansard.Range{After: f.after}, func(e *sessionlog.Line) bool {
		f.after = e.Seq
		return yield(own.event(e), nil)
	})
}

// same returns an error if a log belongs to another session that got the id of the one
// that is followed. A restored log belongs to the same session.
func (f *follower) same(l *openedLog) error {
	h := l.header
	if h == nil {
		return nil // damaged, which reading reports
	}
	if f.uid != 0 && f.uid != h.LogUID && (!h.Created.Equal(f.created) || sessionlog.FollowsDeleted(l.f, f.id, f.uid)) {
		return fmt.Errorf("%w: %s, and its id is that of another session now", hansard.ErrDeleted, f.id)
	}
	f.uid, f.created = h.LogUID, h.Created
	return nil
}
