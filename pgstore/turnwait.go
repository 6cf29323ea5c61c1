package pgstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"hansard"
)

// claims are the Acquires of this process that wait for one session's turn, FIFO. Only
// the first asks the database, where it holds a ticket: so waiting processes are served
// in the order they came, and each serves its own claims in order.
type claims struct {
	queue []*claim // guarded by Store.mu
}

const (
	// staleTicket is the age at which a ticket that is not refreshed is passed over.
	staleTicket = 3 * time.Second
	showTicket  = time.Second
	lastMoment  = 5 * time.Second

	findAhead = `SELECT EXISTS (SELECT 1 FROM hansard_waiting w WHERE w.id = $1 AND w.ticket <> $2
		AND w.seen > clock_timestamp() - make_interval(secs => $3)
		AND (w.since, w.ticket) < (coalesce((SELECT since FROM hansard_waiting WHERE id = $1 AND ticket = $2), 'infinity'), $2))`
	putTicket = `INSERT INTO hansard_waiting (id, ticket, since, seen) VALUES ($1, $2, $3, $3)
		ON CONFLICT (id, ticket) DO UPDATE SET seen = excluded.seen`
	dropTicket = `DELETE FROM hansard_waiting WHERE id = $1 AND ticket = $2`
	dropStale  = `DELETE FROM hansard_waiting WHERE id = $1 AND (ticket = $2 OR seen < $3::timestamptz - interval '1 minute')`
)

// acquireWaiting asks for the turn when this claim is first in its process, and again when
// the turn may be free. Until then it only looks: a waiting claim never locks the session's
// row, so it does not slow down the holder.
func (s *Store) acquireWaiting(ctx context.Context, c *claim, enough <-chan time.Time) (hansard.Turn, error) {
	w := s.hub.join(c.id)
	defer w.leave()
	first := c.first
	var again <-chan time.Time
	looks := 0 // the last look when this last asked
	for {
		now := w.state()
		if now.err != nil {
			return hansard.Turn{}, now.err
		}
		ask := s.lookAtTurn
		// Most events are not about the turn, and do not matter here.
		if first != nil || now.looks == looks || now.turn == c.seen {
			select {
			case <-first:
				ask, first = s.tryClaim, nil
			case <-again:
			case <-now.changed:
				continue
			case <-s.closing:
				return hansard.Turn{}, hansard.ErrClosed
			case <-enough:
				return s.giveUp(ctx, c, nil)
			case <-ctx.Done():
				return s.giveUp(ctx, c, ctx.Err())
			}
		}
		looks = w.state().looks
		if err := ask(ctx, c); !errors.Is(err, errWaiting) {
			return c.turn, err
		}
		again = time.After(max(min(c.safe, s.askAgain), time.Millisecond))
	}
}

const (
	// lookTurn reads what a claim has to know about a session, without locking it.
	lookTurn = "SELECT " + headColumns + ", clock_timestamp(), (" + findAhead + ") FROM hansard_heads h WHERE h.id = $1"

	// keepTicket shows that a claim still waits. A crash that loses it only costs a place
	// in the queue, so the commit does not wait to be durable.
	keepTicket = `INSERT INTO hansard_waiting (id, ticket, since, seen) SELECT h.id, $2, clock_timestamp(), clock_timestamp() FROM hansard_heads h WHERE h.id = $1 AND NOT h.deleted
		ON CONFLICT (id, ticket) DO UPDATE SET seen = excluded.seen RETURNING set_config('synchronous_commit', 'off', true)`
)

// lookAtTurn checks, without locking anything, whether the turn may be free, and asks for
// it if so. What it sees may already be stale; the decision to grant or refuse is made with
// the row locked.
func (s *Store) lookAtTurn(ctx context.Context, c *claim) error {
	b := &pgx.Batch{}
	show := time.Since(c.shown) >= showTicket/2
	if show {
		b.Queue(keepTicket, string(c.id), c.ticket)
	}
	b.Queue(lookTurn, string(c.id), c.ticket, staleTicket.Seconds())
	l := &locked{id: c.id}
	err := s.look(ctx, func(ctx context.Context) error {
		return s.batch(ctx, b, func(res pgx.BatchResults) error {
			if show {
				if _, err := res.Exec(); err != nil {
					return err
				}
			}
			l.head = new(head)
			err := scanHead(res.QueryRow(), l.head, &l.now, &l.ahead)
			if errors.Is(err, pgx.ErrNoRows) {
				l.head, err = nil, nil
			}
			return err
		})
	})
	switch {
	case err != nil && ctx.Err() != nil:
		_, err := s.giveUp(ctx, c, ctx.Err())
		return err
	case err != nil:
		return err
	}
	if show {
		c.shown, c.listed = time.Now(), true
	}
	if l.head.find(c.id) == nil {
		if _, _, wait := c.mustWait(l); wait {
			return errWaiting
		}
	}
	return s.tryClaim(ctx, c)
}

// giveUp is the answer to a claim that has waited for long enough.
func (s *Store) giveUp(ctx context.Context, c *claim, cause error) (hansard.Turn, error) {
	if c.held == nil {
		look, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		c.held, _ = s.turnOf(look, c.id) // on failure the error just does not name the holder
	}
	switch {
	case cause == nil:
		return hansard.Turn{}, c.heldError()
	case c.held == nil:
		return hansard.Turn{}, cause
	}
	return hansard.Turn{}, fmt.Errorf("%w: %w", cause, c.heldError())
}

// enqueue puts a claim behind the others of this process.
func (s *Store) enqueue(c *claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.claims[c.id]
	if q == nil {
		q = new(claims)
		s.claims[c.id] = q
	}
	if q.queue = append(q.queue, c); len(q.queue) == 1 {
		close(c.first)
	}
}

// dequeue takes a claim out, and lets the next one ask.
func (s *Store) dequeue(c *claim) {
	if c.listed {
		s.background(func(ctx context.Context) {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), staleTicket)
			defer cancel()
			if _, err := s.execReserved(ctx, dropTicket, string(c.id), c.ticket); err == nil { // if it fails, the ticket goes stale
				s.hub.changed(c.id, 0) // the turn may be free, for whoever came after it
			}
		})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.claims[c.id]
	i := slices.Index(q.queue, c)
	q.queue = slices.Delete(q.queue, i, i+1)
	switch {
	case len(q.queue) == 0:
		delete(s.claims, c.id)
	case i == 0:
		close(q.queue[0].first)
	}
}
