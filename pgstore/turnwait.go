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

// claims are the Acquires of this process that wait for one session's turn, the
// first first. Only the first asks the database, under a ticket there: so the
// processes that wait are served in the order they came, and each serves its own.
type claims struct {
	queue []*claim // guarded by Store.mu
}

const (
	// staleTicket is when one who waits and gives no sign of it is passed over.
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

// acquireWaiting asks when it is this claim's turn to ask, and again when the turn may
// be to be had. Until then it only looks: who waits takes nothing from the holder.
func (s *Store) acquireWaiting(ctx context.Context, c *claim, enough <-chan time.Time) (hansard.Turn, error) {
	w := s.hub.join(c.id)
	defer s.hub.leave(c.id, w)
	first := c.first
	var again <-chan time.Time
	looks := 0 // of the hub, when this last asked
	for {
		now := s.hub.state(w)
		if now.err != nil {
			return hansard.Turn{}, now.err
		}
		ask := s.lookAtTurn
		// Other events than those about the turn come often, and do not matter.
		if first != nil || now.looks == looks || now.current == c.holds() {
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
		looks = s.hub.state(w).looks
		if err := ask(ctx, c); !errors.Is(err, errWaiting) {
			return c.turn, err
		}
		again = time.After(max(min(c.safe, showTicket), time.Millisecond))
	}
}

// holds is the grant that held the turn when it was last asked for.
func (c *claim) holds() string {
	if c.held == nil {
		return ""
	}
	return string(c.held.Grant)
}

const (
	// lookTurn is what a claim has to know of a session, without its lock.
	lookTurn = "SELECT " + headColumns + ", clock_timestamp(), (" + findAhead + ") FROM hansard_heads h WHERE h.id = $1"

	// keepTicket shows that a claim still waits. Losing it in a crash loses a place in
	// a queue, so that nobody has to wait until it is durable.
	keepTicket = `INSERT INTO hansard_waiting (id, ticket, since, seen) SELECT h.id, $2, clock_timestamp(), clock_timestamp() FROM hansard_heads h WHERE h.id = $1 AND NOT h.deleted
		ON CONFLICT (id, ticket) DO UPDATE SET seen = excluded.seen RETURNING set_config('synchronous_commit', 'off', true)`
)

// lookAtTurn looks, without locking anything, whether the turn may be to be had, and
// asks for it if so. What it sees may be out of date the moment it sees it; what it is
// granted, or refused, is decided with the row locked.
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
		c.held, _ = s.turnOf(look, c.id) // without it the answer says less
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
			_, _ = s.pool.Exec(ctx, dropTicket, string(c.id), c.ticket) // or it goes stale
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
