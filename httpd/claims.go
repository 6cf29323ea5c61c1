package httpd

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"hansard"
	"hansard/internal/wire"
)

// A client that asks for a turn and gives up, or loses its connection, at the very
// moment it is granted would leave behind a grant that nobody knows of. So the client
// may give its claim a name. Asking again under the name returns the same turn.
// Withdrawing the name gives the turn back, whether it was granted already or is granted
// later. A grant whose answer could not be sent is given back too, but that does not
// withdraw the claim: the client may ask again over another connection.
//
// The server that was asked keeps the names in memory for a while. Other servers do not
// know them: there the grant is left to its TTL.

const (
	claimsKept = 10 * time.Minute
	// maxClaims is how many names of one token are kept. Beyond that the oldest
	// settled ones are forgotten early.
	maxClaims = 4096
)

// claims are the claims of one token that have a name.
type claims struct {
	mu      sync.Mutex // guards all below, and the fields of each claimed
	m       map[claimName]*claimed
	settled list.List // of *claimed: granted or withdrawn, oldest first
}

type claimName struct{ session, name string }

// claimed is one claim with a name.
type claimed struct {
	key       claimName
	cancel    context.CancelFunc
	done      chan struct{} // closed when it is settled or refused
	grant     hansard.Grant // set when it is granted
	withdrawn bool
	askers    int           // requests that have not been answered yet
	told      bool          // an answer with the grant was sent
	since     time.Time     // when it was settled
	place     *list.Element // in settled, if it is there
}

// begin enters a claim under a name. If there is already one under the name, pending or
// settled, it returns that one.
func (c *claims) begin(name claimName, cancel context.CancelFunc) (mine, other *claimed, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expireLocked(time.Now())
	if other = c.m[name]; other != nil {
		other.askers++
		return nil, other, nil
	}
	if len(c.m) >= maxClaims {
		if c.settled.Len() == 0 {
			return nil, nil, tooMany(fmt.Sprintf("this token has %d claims under way", maxClaims))
		}
		c.forgetLocked()
	}
	mine = &claimed{key: name, cancel: cancel, done: make(chan struct{}), askers: 1}
	if c.m == nil {
		c.m = map[claimName]*claimed{}
	}
	c.m[name] = mine
	return mine, nil, nil
}

// expireLocked forgets the claims that were kept long enough. They are in order of age, so
// it stops at the first that was not.
func (c *claims) expireLocked(now time.Time) {
	for c.settled.Len() > 0 && now.Sub(c.settled.Front().Value.(*claimed).since) > claimsKept {
		c.forgetLocked()
	}
}

// forgetLocked forgets the claim that was settled first.
func (c *claims) forgetLocked() {
	delete(c.m, c.settled.Remove(c.settled.Front()).(*claimed).key)
}

// none reports whether no claims are left.
func (c *claims) none(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expireLocked(now)
	return len(c.m) == 0
}

// settle records the outcome of a claim. It reports whether the claim was withdrawn.
func (c *claims) settle(mine *claimed, grant hansard.Grant) (withdrawn bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	mine.grant = grant
	c.settleLocked(mine)
	return mine.withdrawn
}

func (c *claims) settleLocked(mine *claimed) {
	close(mine.done)
	if mine.grant == "" && !mine.withdrawn {
		delete(c.m, mine.key) // the name may be claimed again
		return
	}
	mine.since = time.Now()
	mine.place = c.settled.PushBack(mine)
}

// answered notes that a request for a claim was answered with its grant.
func (c *claims) answered(it *claimed) {
	c.mu.Lock()
	defer c.mu.Unlock()
	it.askers--
	it.told = true
}

// unanswered notes that a request for a claim ended without its client getting the grant.
// If there is a grant, and no other request was answered with it or is about to be, the
// caller has to release it and then call returned. Until then, requests under the name
// wait; after that they claim again.
func (c *claims) unanswered(it *claimed) (returned func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	it.askers--
	if it.grant == "" || it.withdrawn || it.told || it.askers > 0 || c.m[it.key] != it {
		return nil
	}
	c.settled.Remove(it.place)
	returning := &claimed{key: it.key, cancel: func() {}, done: make(chan struct{})}
	c.m[it.key] = returning
	return func() { c.settle(returning, "") }
}

// withdraw marks a claim as given up, even one that has not arrived yet.
func (c *claims) withdraw(name claimName) (*claimed, error) {
	mine, other, err := c.begin(name, func() {})
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if mine != nil {
		mine.withdrawn = true
		c.settleLocked(mine)
		return mine, nil
	}
	other.withdrawn = true
	other.cancel()
	return other, nil
}

// errClaimWithdrawn is the answer to a claim that was given up.
func errClaimWithdrawn(id hansard.SessionID) error {
	return fmt.Errorf("%w: session %s: this claim was withdrawn", hansard.ErrFenced, id)
}

// acquireNamed is acquire for a claim with a name. The caller says whether its client
// got the answer: by answered, or by unanswered.
func (s *Server) acquireNamed(ctx context.Context, name claimName, c hansard.Claim) (*claimed, hansard.Turn, error) {
	id, claims := hansard.SessionID(name.session), &callerOf(ctx).account.claims
	if err := hansard.CheckID(id); err != nil {
		return nil, hansard.Turn{}, err
	}
	// A narrowed token shares the names with the token it was made from.
	if _, err := s.door.pass(ctx, id, ""); err != nil {
		return nil, hansard.Turn{}, err
	}
	for {
		own, cancel := context.WithCancel(ctx)
		mine, other, err := claims.begin(name, cancel)
		if err != nil {
			cancel()
			return nil, hansard.Turn{}, err
		}
		if mine != nil {
			t, err := s.acquire(own, id, c)
			cancel()
			if !claims.settle(mine, t.Grant) {
				return mine, t, err
			}
			if err == nil {
				s.giveBack(ctx, id, t.Grant)
			}
			return nil, hansard.Turn{}, errClaimWithdrawn(id)
		}
		cancel()
		t, again, err := s.sameTurn(ctx, other)
		if again {
			continue // the other claim was refused or given back: this request claims
		}
		if err != nil {
			s.unanswered(ctx, other)
		}
		return other, t, err
	}
}

// sameTurn waits for another claim under the same name, and returns its turn. If it got
// none, and was not withdrawn, the name may be claimed again.
func (s *Server) sameTurn(ctx context.Context, other *claimed) (t hansard.Turn, again bool, err error) {
	id, claims := hansard.SessionID(other.key.session), &callerOf(ctx).account.claims
	select {
	case <-other.done:
	case <-ctx.Done():
		return t, false, ctx.Err()
	}
	claims.mu.Lock()
	withdrawn, grant := other.withdrawn, other.grant
	claims.mu.Unlock()
	switch {
	case withdrawn:
		return t, false, errClaimWithdrawn(id)
	case grant == "":
		return t, true, nil
	}
	now, err := s.store.Turn(ctx, id)
	if err == nil && (now == nil || now.Grant != grant) {
		err = &hansard.FencedError{Session: id, Grant: grant, Current: now}
	}
	if err != nil {
		return t, false, err
	}
	return *now, false, nil
}

// unanswered gives back a grant that nobody knows of.
func (s *Server) unanswered(ctx context.Context, it *claimed) {
	if returned := callerOf(ctx).account.claims.unanswered(it); returned != nil {
		s.giveBack(ctx, hansard.SessionID(it.key.session), it.grant)
		returned()
	}
}

// withdraw gives up a named claim, and the turn if it was granted.
func (s *Server) withdraw(ctx context.Context, name claimName) error {
	claims := &callerOf(ctx).account.claims
	if err := errors.Join(hansard.CheckID(hansard.SessionID(name.session)), wire.CheckClaimName(name.name)); err != nil {
		return err
	}
	if _, err := s.door.pass(ctx, hansard.SessionID(name.session), ""); err != nil {
		return err
	}
	c, err := claims.withdraw(name)
	if err != nil {
		return err
	}
	select {
	case <-c.done:
	case <-ctx.Done():
		return ctx.Err()
	}
	claims.mu.Lock()
	grant := c.grant
	claims.mu.Unlock()
	if grant != "" {
		s.giveBack(ctx, hansard.SessionID(name.session), grant)
	}
	return nil
}
