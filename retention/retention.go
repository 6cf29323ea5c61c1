// Package retention deletes sessions that nobody needs any more, by rules that somebody
// gives. Nothing is ever deleted by itself: a program, or a person with the command
// hansard prune, asks for it.
package retention

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"hansard"
)

// LabelArchived is the label of sessions that were put away.
const LabelArchived = "archived"

// Rule says which sessions are to go: those that it selects, except for the newest.
type Rule struct {
	// OlderThan selects sessions that have not changed for this long; 0 is any.
	OlderThan time.Duration
	// Keep is how many of the newest sessions with the labels are kept, however old
	// they are.
	Keep int
	// Labels selects sessions that have all of these; Archived those that have the
	// label [LabelArchived].
	Labels   map[string]string
	Archived bool
}

// Check refuses a rule that would select everything.
func (r *Rule) Check() error {
	switch {
	case r.OlderThan < 0:
		return &hansard.InvalidError{Field: "older than", Reason: "it is negative"}
	case r.Keep < 0:
		return &hansard.InvalidError{Field: "keep", Reason: "it is negative"}
	case r.OlderThan == 0 && r.Keep == 0:
		return &hansard.InvalidError{Field: "rule", Reason: "it says neither how old nor how many"}
	}
	return nil
}

// Reasons for which a session that a rule selects is left.
const (
	Pinned     = "pinned"             // it has the label hansard.LabelPinned
	Held       = "held"               // somebody holds its turn
	Damaged    = "damaged"            // it can't be guarded against a race
	Unreadable = "unreadable"         // nothing is known about it
	Changed    = "changed meanwhile"  // since it was looked at
	Gone       = "deleted by another" // since it was looked at
)

// Selected is a session that a rule selects.
type Selected struct {
	hansard.Info
	// Left is why it is left all the same; empty if it is to go.
	Left string
}

// Select yields the sessions that a rule selects, newest first, and changes nothing. It
// reads the store's list once.
func Select(ctx context.Context, s hansard.Store, r Rule, now time.Time) iter.Seq2[Selected, error] {
	return func(yield func(Selected, error) bool) {
		if err := r.Check(); err != nil {
			yield(Selected{}, err)
			return
		}
		kept := 0
		for info, err := range s.List(ctx, hansard.Query{Labels: r.Labels}) {
			if err != nil {
				yield(Selected{}, err)
				return
			}
			if _, archived := info.Labels[LabelArchived]; r.Archived && !archived {
				continue
			}
			if kept < r.Keep {
				kept++
				continue
			}
			if info.Unreadable == "" && r.OlderThan > 0 && info.Updated.After(now.Add(-r.OlderThan)) {
				continue
			}
			left, err := reasonToLeave(ctx, s, &info)
			if !yield(Selected{info, left}, err) || err != nil {
				return
			}
		}
	}
}

// reasonToLeave is why a session is not deleted, as far as a look can tell.
func reasonToLeave(ctx context.Context, s hansard.Store, info *hansard.Info) (string, error) {
	if info.Unreadable != "" {
		return Unreadable, nil
	}
	if _, pinned := info.Labels[hansard.LabelPinned]; pinned {
		return Pinned, nil
	}
	if info.Damaged() {
		return Damaged, nil
	}
	if info.Turn == nil {
		return "", nil
	}
	// The log says that it is held; the holder may be dead.
	switch t, err := s.Turn(ctx, info.ID); {
	case errors.Is(err, hansard.ErrDeleted), errors.Is(err, hansard.ErrNotFound):
		return Gone, nil
	case err != nil:
		return "", err
	case t != nil:
		return Held, nil
	}
	return "", nil
}

// claimTTL is how long a turn that is taken to delete a session outlives a program that
// dies right then, where the store can't tell that it is dead.
const claimTTL = 10 * time.Second

// Delete deletes a session unless it has changed since it was described by info: then it
// gives the reason for which it is left.
//
// It takes the session's turn exclusively first, so that from its last look to the
// deletion nobody writes to the session, pins it or takes its turn. What remains: an
// event that is marked Inbox is accepted even then, and goes with the session if it
// arrives between that look and the deletion. A session that is left because it changed
// has two more events, those of the turn.
func Delete(ctx context.Context, s hansard.Store, info *hansard.Info) (left string, err error) {
	turn, err := s.Acquire(ctx, info.ID, hansard.Claim{Exclusive: true, Label: "prune", TTL: claimTTL})
	if err == nil {
		left, err = underTurn(ctx, s, info, &turn)
	}
	return reasonOf(left, err)
}

// reasonOf makes a refusal that only tells that somebody else was faster a reason.
func reasonOf(left string, err error) (string, error) {
	switch {
	case errors.Is(err, hansard.ErrUnknown):
		return "", err
	case errors.Is(err, hansard.ErrHeld), errors.Is(err, hansard.ErrFenced):
		return Held, nil
	case errors.Is(err, hansard.ErrDeleted), errors.Is(err, hansard.ErrNotFound):
		return Gone, nil
	case errors.Is(err, hansard.ErrDamaged):
		return Damaged, nil
	}
	return left, err
}

// underTurn deletes a session if nothing but the grant came since it was described.
func underTurn(ctx context.Context, s hansard.Store, info *hansard.Info, turn *hansard.Turn) (left string, err error) {
	deleted := false
	defer func() {
		if deleted {
			return
		}
		// Whatever was the matter must not keep others from the turn.
		giveUp, cancel := context.WithTimeout(context.WithoutCancel(ctx), claimTTL)
		defer cancel()
		if releaseErr := s.Release(giveUp, info.ID, turn.Grant); err == nil && releaseErr != nil && !errors.Is(releaseErr, hansard.ErrFenced) {
			err = fmt.Errorf("the turn was not given back: %w", releaseErr)
		}
	}()
	now, err := s.Stat(ctx, info.ID)
	if err != nil {
		return "", err
	}
	if _, pinned := now.Labels[hansard.LabelPinned]; pinned {
		return Pinned, nil
	}
	if !now.Created.Equal(info.Created) || turn.Seq != info.LastSeq+1 || now.LastSeq != turn.Seq {
		return Changed, nil
	}
	err = s.Delete(ctx, info.ID, turn.Grant)
	deleted = err == nil
	return "", err
}
