package hansard

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Lease is a turn that renews itself while the program lives. Make one with
// [Take].
type Lease struct {
	store   Store
	session SessionID
	turn    Turn
	ctx     context.Context
	cancel  context.CancelCauseFunc
	stopped chan struct{}
	once    sync.Once
}

// Take acquires a session's turn and keeps it alive until it is released or lost,
// or ctx ends; then the lease's context ends too. It combines Acquire, Renew and
// Release, for every engine.
//
//	turn, err := hansard.Take(ctx, store, id, hansard.Claim{Wait: time.Minute, Label: "planner"})
//	if err != nil { … }
//	defer turn.Release()
//	for … {
//		answer, err := model.Call(turn.Context(), …)
//		_, err = store.Append(ctx, id, hansard.Batch{Events: …, Turn: turn.Grant()})
//	}
func Take(ctx context.Context, s Store, id SessionID, c Claim) (*Lease, error) {
	t, err := s.Acquire(ctx, id, c)
	if err != nil {
		return nil, err
	}
	return Keep(ctx, s, id, t), nil
}

// Keep is Take for a turn that is held already: it keeps renewing it.
func Keep(ctx context.Context, s Store, id SessionID, t Turn) *Lease {
	l := &Lease{store: s, session: id, turn: t, stopped: make(chan struct{})}
	l.ctx, l.cancel = context.WithCancelCause(ctx)
	go l.keep(time.Now())
	return l
}

// Grant is what a batch carries to be written under this turn.
func (l *Lease) Grant() Grant { return l.turn.Grant }

// Turn describes the turn as it was granted.
func (l *Lease) Turn() Turn { return l.turn }

// Context ends when the turn is lost or released; context.Cause says why. Run the
// work that the turn is held for under it.
func (l *Lease) Context() context.Context { return l.ctx }

// errReleased ends the context of a lease that was given up.
var errReleased = errors.New("the turn was released")

// Release gives the turn up. Releasing twice, or after the turn was lost, is
// [ErrFenced] and touches nobody else's turn.
func (l *Lease) Release() error {
	l.once.Do(func() { l.cancel(errReleased) })
	<-l.stopped
	// The lease's context has ended; the turn must be released all the same, or others
	// would have to wait for its TTL.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(l.ctx), DefaultTTL)
	defer cancel()
	return l.store.Release(ctx, l.session, l.turn.Grant)
}

// notice is the minimum time between two checks of the turn that are prompted by a
// change of the session.
const notice = 100 * time.Millisecond

// keep renews until the lease ends. The session's own events wake it, so that a
// stolen turn is noticed at once and not at the next renewal.
func (l *Lease) keep(renewed time.Time) {
	defer close(l.stopped)
	every, began, seen := l.turn.TTL/3, renewed, l.turn.Seq
	for l.ctx.Err() == nil {
		next := time.Until(renewed.Add(every))
		if l.turn.MaxHold > 0 {
			next = min(next, time.Until(began.Add(l.turn.MaxHold)))
		}
		changed := l.pause(next, seen)
		if l.ctx.Err() != nil {
			return
		}
		if l.turn.MaxHold > 0 && time.Since(began) >= l.turn.MaxHold {
			l.cancel(fmt.Errorf("%w: it was held for its whole %v", ErrFenced, l.turn.MaxHold))
			return
		}
		// A store that does not answer must not let the holder believe that
		// it still has the turn.
		alive, stop := context.WithDeadline(l.ctx, renewed.Add(l.turn.TTL))
		var err error
		if changed {
			seen, err = l.look(alive, seen)
		}
		asked := time.Now()
		if due := asked.Sub(renewed) >= every; due && err == nil {
			if err = l.store.Renew(alive, l.session, l.turn.Grant); err == nil {
				renewed = asked
			}
		}
		stop()
		switch {
		case err == nil:
		case l.ctx.Err() != nil:
			return
		case lost(err):
			l.cancel(err)
			return
		case time.Since(renewed) >= l.turn.TTL:
			// By now others may consider us gone.
			l.cancel(fmt.Errorf("%w: it could not be renewed for %v: %w", ErrFenced, l.turn.TTL, err))
			return
		default:
			_ = l.pause(min(every/4, time.Second), 0) // and try again
		}
	}
}

// lost reports whether an error means the end of a turn, not a passing problem.
func lost(err error) bool {
	return errors.Is(err, ErrFenced) || errors.Is(err, ErrDeleted) || errors.Is(err, ErrNotFound) || errors.Is(err, ErrClosed)
}

// look returns the session's last seq, and an error if the turn was lost.
func (l *Lease) look(ctx context.Context, seen Seq) (Seq, error) {
	info, err := l.store.Stat(ctx, l.session)
	if err != nil {
		return seen, err
	}
	if info.Turn == nil || info.Turn.Grant != l.turn.Grant {
		return seen, &FencedError{Session: l.session, Grant: l.turn.Grant, Current: info.Turn}
	}
	return info.LastSeq, nil
}

// pause waits for a time or, if seen is not 0, until the session changes or is gone.
// It never returns sooner than notice unless the time or the lease is over.
func (l *Lease) pause(d time.Duration, seen Seq) (changed bool) {
	ctx, cancel := context.WithTimeout(l.ctx, d)
	defer cancel()
	if seen > 0 && d > notice {
		rest := time.NewTimer(notice)
		defer rest.Stop()
		select {
		case <-rest.C:
		case <-ctx.Done():
			return false
		}
		// An error other than the end of the pause is news too: the session was
		// deleted, or the store closed.
		_ = l.store.Wait(ctx, l.session, seen)
		return ctx.Err() == nil
	}
	<-ctx.Done()
	return false
}
