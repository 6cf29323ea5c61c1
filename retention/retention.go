// Package retention deletes sessions that are no longer needed, by explicit rules.
// Nothing is deleted automatically: a program, or a person with the command hansard
// prune, has to ask for it.
package retention

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"hansard"
)

// Rule says which sessions to delete: those that it selects, except for the newest.
type Rule struct {
	// OlderThan selects sessions that have not changed for this long; 0 selects any.
	OlderThan time.Duration
	// Keep is how many of the newest sessions with the labels are kept, however old
	// they are.
	Keep int
	// Labels selects sessions that have all of these; Archived those that have the
	// label [hansard.LabelArchived].
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

// Reasons to keep a session that a rule selects.
const (
	Pinned     = "pinned"             // it has the label hansard.LabelPinned
	Held       = "held"               // somebody holds its turn
	Damaged    = "damaged"            // it can't be guarded against a race
	Unreadable = "unreadable"         // nothing is known about it
	Changed    = "changed meanwhile"  // since it was listed
	Gone       = "deleted by another" // since it was listed
)

// Selected is a session that a rule selects.
type Selected struct {
	hansard.Info
	// Left is why it is kept anyway; empty if it is to be deleted.
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
			if r.Archived && !info.Archived() {
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

// reasonToLeave is why a session is not deleted, as far as that is known without holding
// its turn.
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
	// The log says that it is held, but the holder may be dead.
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

// claimTTL is how long the turn taken to delete a session outlives a program that dies
// in the middle, if the store can't tell that it is dead.
const claimTTL = 10 * time.Second

// Delete deletes a session unless it has changed since it was described by info: then
// left is why it is kept.
//
// It takes the session's turn exclusively first, so that between its last check and the
// deletion nobody writes to the session, pins it or takes its turn. One gap remains: an
// event marked Inbox is accepted even then, and is deleted with the session if it
// arrives between that check and the deletion. A session that is kept because it changed
// has two more events, those of the turn.
func Delete(ctx context.Context, s hansard.Store, info *hansard.Info) (left string, err error) {
	turn, err := s.Acquire(ctx, info.ID, hansard.Claim{Exclusive: true, Label: "prune", TTL: claimTTL})
	if err == nil {
		left, err = underTurn(ctx, s, info, &turn)
	}
	return reasonOf(left, err)
}

// reasonOf turns a refusal that only means another was faster into a reason.
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

// underTurn deletes a session if only the grant was added since it was described.
func underTurn(ctx context.Context, s hansard.Store, info *hansard.Info, turn *hansard.Turn) (left string, err error) {
	deleted := false
	defer func() {
		if deleted {
			return
		}
		// Whatever went wrong, the turn must not stay held.
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
