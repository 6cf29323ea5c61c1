package pgstore

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"hansard"
	"hansard/engine"
)

// claim is one Acquire.
type claim struct {
	hansard.Claim
	id     hansard.SessionID
	first  chan struct{} // closed when it is the first of its process
	ticket string        // empty: it does not wait
	listed bool          // the ticket may be in the database
	shown  time.Time     // when the ticket was last refreshed

	// What the last attempt found.
	turn hansard.Turn  // granted
	held *hansard.Turn // by somebody else
	seen turnState
	safe time.Duration // how long nobody can take it from the holder
}

// errWaiting is the result of an attempt whose claim has to wait.
var errWaiting = errors.New("the turn is not available yet")

// Acquire implements [hansard.Store].
func (s *Store) Acquire(ctx context.Context, id hansard.SessionID, c hansard.Claim) (hansard.Turn, error) {
	if err := s.begin(ctx, id, engine.CheckClaim(&c), s.writable()); err != nil {
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

// tryClaim asks the database for the turn, once. A caller whose context ends
// meanwhile still waits for the answer a little: a turn granted in the last moment
// is its own. A grant that arrives after the caller has left is released.
func (s *Store) tryClaim(ctx context.Context, c *claim) error {
	found := *c // a copy: the caller may be gone before the attempt ends
	found.listed = false
	done, gone := make(chan error), make(chan struct{})
	s.work.Add(1)
	go func() {
		defer s.work.Done()
		err := s.decide(ctx, &job{id: c.id, ticket: c.ticket, decide: found.decide})
		select {
		case <-gone:
			if err == nil {
				_ = s.decide(ctx, s.releasing(c.id, found.turn.Grant)) // if it fails, the turn expires after its TTL
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
				s.hub.granted(c.id, c.turn.Seq)
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

// mustWait tells whether a claim has to wait, given the session's row, and records who holds
// the turn, and for how long it is safe. If it need not wait, from is the grant that ends,
// and why it does.
func (c *claim) mustWait(l *locked) (from hansard.Grant, why string, wait bool) {
	h := l.head
	c.held, c.safe, c.seen = nil, hansard.Forever, turnState{newest: string(h.newest)}
	if h.turn != nil {
		c.seen.current = string(h.turn.Grant)
		from = h.turn.Grant
		if why, c.safe = h.lost(l.now); c.Steal != "" {
			why = hansard.TurnStolen
		}
		t := *h.turn
		c.held = &t
	}
	switch free := h.turn == nil || why != ""; {
	case !free:
		return from, why, true
	case c.ticket != "" && l.ahead:
		c.safe = hansard.Forever
		c.seen = turnState{newest: "another claim's"} // which may be withdrawn while the turn stays as it is
		return from, why, true
	}
	return from, why, false
}

// decide grants the turn of a locked session to a claim, or says why not.
func (c *claim) decide(l *locked) (*change, error) {
	h := l.head
	if err := h.find(l.id); err != nil {
		return nil, err
	}
	from, why, wait := c.mustWait(l)
	switch {
	case wait && c.ticket == "":
		return nil, errWaiting
	case wait:
		c.listed, c.shown = true, time.Now()
		return &change{more: func(b *pgx.Batch) { b.Queue(putTicket, string(l.id), c.ticket, l.now) }}, errWaiting
	}
	record := engine.NewTurnRecord(&c.Claim, from, why)
	grant := engine.NextGrant(h.newest, nonce())
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

// addRecord appends an event about the turn to the change's rows.
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
func (c *change) endTurn(why, by string) error {
	err := c.addRecord(&hansard.TurnRecord{Change: hansard.TurnEnded, Why: why, By: by}, c.head.turn.Grant)
	c.head.turn = nil
	return err
}

// fence decides whether the turn of h, the current state of a locked session, lets a write
// through. If an exclusive turn would refuse it but its holder is lost, gone is why that
// turn has to be ended first.
func (l *locked) fence(h *head, under hansard.Grant, inboxOnly bool) (gone string, err error) {
	err = engine.Fence(l.id, h.turn, under, inboxOnly)
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
	if err := s.begin(ctx, id, engine.CheckGrant(g), s.writable()); err != nil {
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
	}}, nothing)
}

// holding tells whether a grant is the current one.
func holding(l *locked, g hansard.Grant) error {
	if err := l.head.find(l.id); err != nil {
		return err
	}
	return engine.Fence(l.id, l.head.turn, g, false)
}

// Release implements [hansard.Store].
func (s *Store) Release(ctx context.Context, id hansard.SessionID, g hansard.Grant) error {
	if err := s.begin(ctx, id, engine.CheckGrant(g), s.writable()); err != nil {
		return err
	}
	defer s.work.Done()
	return s.write(ctx, s.releasing(id, g), func() { s.hub.changed(id, 0) })
}

// releasing is the job that releases a grant.
func (s *Store) releasing(id hansard.SessionID, g hansard.Grant) *job {
	return &job{id: id, decide: func(l *locked) (*change, error) {
		if err := holding(l, g); err != nil {
			return nil, err
		}
		c, err := addRecord(l, &hansard.TurnRecord{Change: hansard.TurnReleased, By: l.head.turn.By}, g)
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
