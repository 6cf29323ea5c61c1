package pgstore

import (
	"context"
	"crypto/rand"
	"encoding/binary"
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

// claim is one Acquire.
type claim struct {
	hansard.Claim
	id     hansard.SessionID
	first  chan struct{} // closed when it is the first of its process
	ticket string        // empty: it does not wait
	listed bool          // the ticket may be in the database

	// What the last attempt found.
	turn hansard.Turn  // granted
	held *hansard.Turn // by somebody else
	last hansard.Seq   // of the session
	safe time.Duration // for so long nobody can take it from the holder
}

const (
	// staleTicket is when one who waits and gives no sign of it is passed over.
	staleTicket = 3 * time.Second
	showTicket  = time.Second
	askEvery    = 5 * time.Millisecond
	lastMoment  = 5 * time.Second

	findAhead = `SELECT EXISTS (SELECT 1 FROM hansard_waiting w WHERE w.id = $1 AND w.ticket <> $2
		AND w.seen > clock_timestamp() - make_interval(secs => $3)
		AND (w.since, w.ticket) < (coalesce((SELECT since FROM hansard_waiting WHERE id = $1 AND ticket = $2), 'infinity'), $2))`
	putTicket = `INSERT INTO hansard_waiting (id, ticket, since, seen) VALUES ($1, $2, $3, $3)
		ON CONFLICT (id, ticket) DO UPDATE SET seen = excluded.seen`
	dropTicket = `DELETE FROM hansard_waiting WHERE id = $1 AND ticket = $2`
	dropStale  = `DELETE FROM hansard_waiting WHERE id = $1 AND (ticket = $2 OR seen < $3::timestamptz - interval '1 minute')`
)

// errWaiting is the answer of an attempt to a claim that has to wait.
var errWaiting = errors.New("the turn is not to be had yet")

// Acquire implements [hansard.Store].
func (s *Store) Acquire(ctx context.Context, id hansard.SessionID, c hansard.Claim) (hansard.Turn, error) {
	if err := s.begin(ctx, id, hansard.CheckClaim(&c), s.writable()); err != nil {
		return hansard.Turn{}, err
	}
	defer s.work.Done()
	cl := &claim{Claim: c, id: id, first: make(chan struct{})}
	if c.Steal != "" || c.Wait == 0 {
		return s.acquireNow(ctx, cl)
	}
	cl.ticket = newMark()
	s.enqueue(cl)
	defer s.dequeue(cl)
	enough := make(<-chan time.Time)
	if c.Wait < hansard.Forever {
		timer := time.NewTimer(c.Wait)
		defer timer.Stop()
		enough = timer.C
	}
	return s.acquireWaiting(ctx, cl, enough)
}

// acquireNow asks once.
func (s *Store) acquireNow(ctx context.Context, c *claim) (hansard.Turn, error) {
	err := s.tryClaim(ctx, c)
	if errors.Is(err, errWaiting) {
		return hansard.Turn{}, c.heldError()
	}
	return c.turn, err
}

func (c *claim) heldError() error {
	held := &hansard.HeldError{Session: c.id}
	if c.held != nil {
		held.Turn = *c.held
	}
	return held
}

// acquireWaiting asks again and again, when it is this claim's turn to ask and
// something may have changed.
func (s *Store) acquireWaiting(ctx context.Context, c *claim, enough <-chan time.Time) (hansard.Turn, error) {
	w := s.hub.join(c.id)
	defer s.hub.leave(c.id, w)
	first := c.first
	var again <-chan time.Time
	for {
		last, changed, err := s.hub.state(w)
		if err != nil {
			return hansard.Turn{}, err
		}
		if first == nil && last > c.last {
			// It may be the release. Other events come often: not for each.
			again, changed = time.After(askEvery), nil
		}
		select {
		case <-first:
			first = nil
		case <-again:
		case <-changed:
			continue
		case <-s.closing:
			return hansard.Turn{}, hansard.ErrClosed
		case <-enough:
			return s.giveUp(ctx, c, nil)
		case <-ctx.Done():
			return s.giveUp(ctx, c, ctx.Err())
		}
		if err := s.tryClaim(ctx, c); !errors.Is(err, errWaiting) {
			return c.turn, err
		}
		again = time.After(max(min(c.safe, showTicket), time.Millisecond))
	}
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

// tryClaim asks the database for the turn, once. A caller whose context ends
// meanwhile still waits for the answer a little: what he is granted in the last
// moment is his. A grant that comes when he is gone is given back.
func (s *Store) tryClaim(ctx context.Context, c *claim) error {
	found := *c // the attempt's own: the caller may be gone before it ends
	found.listed = false
	done, gone := make(chan error), make(chan struct{})
	s.work.Add(1)
	go func() {
		defer s.work.Done()
		err := s.decide(ctx, &job{id: c.id, ticket: c.ticket, decide: found.decide})
		select {
		case <-gone:
			if err == nil {
				_ = s.decide(ctx, s.releasing(c.id, found.turn.Grant)) // or it falls silent
				s.hub.changed(c.id, 0)
			}
		case done <- err:
		}
	}()
	var enough <-chan time.Time
	for ended := ctx.Done(); ; {
		select {
		case err := <-done:
			listed := c.listed || found.listed
			*c = found
			c.listed = listed && err != nil // a grant has removed the ticket
			if err == nil {
				s.hub.changed(c.id, c.turn.Seq)
			}
			return err
		case <-ended:
			ended, enough = nil, time.After(lastMoment)
		case <-enough:
			close(gone)
			c.listed = c.ticket != ""
			return ctx.Err()
		}
	}
}

// decide grants the turn of a locked session to a claim, or says why not.
func (c *claim) decide(l *locked) (*change, error) {
	h := l.head
	if err := h.find(l.id); err != nil {
		return nil, err
	}
	c.last, c.held, c.safe = h.last, nil, showTicket
	var from hansard.Grant
	why := ""
	if h.turn != nil {
		from = h.turn.Grant
		if why, c.safe = h.lost(l.now); c.Steal != "" {
			why = hansard.TurnStolen
		}
		t := *h.turn
		c.held = &t
	}
	free := h.turn == nil || why != ""
	if !free || c.ticket != "" && l.ahead {
		if c.ticket == "" {
			return nil, errWaiting
		}
		if free {
			c.safe = showTicket
		}
		c.listed = true
		return &change{more: func(b *pgx.Batch) { b.Queue(putTicket, string(l.id), c.ticket, l.now) }}, errWaiting
	}
	record := hansard.NewTurnRecord(&c.Claim, from, why)
	grant := hansard.NextGrant(h.newest, nonce())
	ch, err := addRecord(l, &record, grant)
	if err != nil {
		return nil, err
	}
	c.turn = record.Turn(grant, ch.head.last, l.now)
	c.turn.Renewed = l.now
	turn := c.turn
	ch.head.turn, ch.head.newest = &turn, grant
	ch.more = func(b *pgx.Batch) { b.Queue(dropStale, string(l.id), c.ticket, l.now) }
	return ch, nil
}

// addRecord adds an event about the turn to a locked session.
func addRecord(l *locked, record *hansard.TurnRecord, g hansard.Grant) (*change, error) {
	c := &change{head: *l.head}
	c.head.updated = l.now
	return c, c.addRecord(record, g)
}

// addRecord adds an event about the turn behind what the change adds already.
func (c *change) addRecord(record *hansard.TurnRecord, g hansard.Grant) error {
	before := c.rows.bytes
	if err := c.rows.add([]hansard.Event{record.Event()}, batch{turn: g}); err != nil {
		return err
	}
	c.turn = true
	c.head.last++
	c.head.bytes += c.rows.bytes - before
	return nil
}

// endTurn ends a turn whose holder is gone.
func (c *change) endTurn(why string) error {
	err := c.addRecord(&hansard.TurnRecord{Change: hansard.TurnEnded, Why: why}, c.head.turn.Grant)
	c.head.turn = nil
	return err
}

// fence decides whether a write gets past the turn of h, a locked session as it is
// by now. gone is why an exclusive turn that would keep it out has to end first.
func (l *locked) fence(h *head, under hansard.Grant, inboxOnly bool) (gone string, err error) {
	err = hansard.Fence(l.id, h.turn, under, inboxOnly)
	if errors.Is(err, hansard.ErrHeld) {
		if gone, _ = h.lost(l.now); gone != "" {
			return gone, nil
		}
	}
	return "", err
}

func nonce() uint64 {
	var b [8]byte
	rand.Read(b[:])
	return binary.LittleEndian.Uint64(b[:])
}

// Renew implements [hansard.Store].
func (s *Store) Renew(ctx context.Context, id hansard.SessionID, g hansard.Grant) error {
	if err := s.begin(ctx, id, hansard.CheckGrant(g), s.writable()); err != nil {
		return err
	}
	defer s.work.Done()
	return s.write(ctx, &job{id: id, decide: func(l *locked) (*change, error) {
		if err := holding(l, g); err != nil {
			return nil, err
		}
		if t := l.head.turn; overdue(t, l.now) {
			return nil, fmt.Errorf("%w: session %s, grant %s: it was held for its whole %v", hansard.ErrFenced, id, g, t.MaxHold)
		}
		return &change{renew: true}, nil
	}})
}

// holding tells whether a grant is the current one.
func holding(l *locked, g hansard.Grant) error {
	if err := l.head.find(l.id); err != nil {
		return err
	}
	return hansard.Fence(l.id, l.head.turn, g, false)
}

// Release implements [hansard.Store].
func (s *Store) Release(ctx context.Context, id hansard.SessionID, g hansard.Grant) error {
	if err := s.begin(ctx, id, hansard.CheckGrant(g), s.writable()); err != nil {
		return err
	}
	defer s.work.Done()
	err := s.write(ctx, s.releasing(id, g))
	if err == nil {
		s.hub.changed(id, 0)
	}
	return err
}

// releasing is the job that gives a grant up.
func (s *Store) releasing(id hansard.SessionID, g hansard.Grant) *job {
	return &job{id: id, decide: func(l *locked) (*change, error) {
		if err := holding(l, g); err != nil {
			return nil, err
		}
		c, err := addRecord(l, &hansard.TurnRecord{Change: hansard.TurnReleased}, g)
		if err != nil {
			return nil, err
		}
		c.head.turn = nil
		return c, nil
	}}
}

// Turn implements [hansard.Store].
func (s *Store) Turn(ctx context.Context, id hansard.SessionID) (*hansard.Turn, error) {
	if err := s.begin(ctx, id); err != nil {
		return nil, err
	}
	defer s.work.Done()
	return s.turnOf(ctx, id)
}

const findTurn = "SELECT " + headColumns + " FROM hansard_heads h WHERE h.id = $1"

func (s *Store) turnOf(ctx context.Context, id hansard.SessionID) (t *hansard.Turn, err error) {
	err = s.look(ctx, func(ctx context.Context) error {
		h := new(head)
		switch err := scanHead(s.pool.QueryRow(ctx, findTurn, string(id)), h); {
		case errors.Is(err, pgx.ErrNoRows):
			return (*head)(nil).find(id)
		case err != nil:
			return err
		}
		t = h.turn
		return h.find(id)
	})
	return t, err
}
