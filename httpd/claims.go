package httpd

import (
	"context"
	"fmt"
	"sync"
	"time"

	"hansard"
)

// A client that asks for a turn and gives up, or loses its connection, in the very
// moment it is granted would leave behind a grant that nobody knows of. So a claim
// may have a name of the client's: asked again under the name, the answer is the
// same turn; withdrawn under it, the turn is given back, granted or not.
//
// The names are kept in memory, by the server that was asked, for a while. What
// another server knows nothing of is left to the TTL.

const claimsKept = 10 * time.Minute

// claims are the claims with a name.
type claims struct {
	mu sync.Mutex // guards m, and all of each
	m  map[claimName]*claimed
}

type claimName struct{ caller, session, name string }

// claimed is one of them.
type claimed struct {
	cancel    context.CancelFunc
	done      chan struct{} // closed when it is granted or refused
	grant     hansard.Grant // once it is granted
	withdrawn bool
	since     time.Time
}

// begin enters a claim under a name. With another that is under way, or that was
// granted, it gives that one.
func (c *claims) begin(name claimName, cancel context.CancelFunc) (mine, other *claimed) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.m == nil {
		c.m = map[claimName]*claimed{}
	}
	for key, old := range c.m {
		if time.Since(old.since) > claimsKept {
			delete(c.m, key)
		}
	}
	if other = c.m[name]; other != nil {
		return nil, other
	}
	mine = &claimed{cancel: cancel, done: make(chan struct{}), since: time.Now()}
	c.m[name] = mine
	return mine, nil
}

// settle notes what became of a claim. It tells whether it was withdrawn.
func (c *claims) settle(name claimName, mine *claimed, grant hansard.Grant) (withdrawn bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	mine.grant = grant
	close(mine.done)
	if grant == "" && !mine.withdrawn {
		delete(c.m, name) // it may be asked again
	}
	return mine.withdrawn
}

// withdraw marks a claim as given up, also one that was not heard of yet.
func (c *claims) withdraw(name claimName) *claimed {
	mine, other := c.begin(name, func() {})
	c.mu.Lock()
	defer c.mu.Unlock()
	if mine != nil {
		mine.withdrawn = true
		close(mine.done)
		return mine
	}
	other.withdrawn = true
	other.cancel()
	return other
}

// errWithdrawn is the answer to a claim that was given up.
func errWithdrawn(id hansard.SessionID) error {
	return fmt.Errorf("%w: session %s: this claim was withdrawn", hansard.ErrFenced, id)
}

// acquireNamed is acquire for a claim with a name.
func (s *Server) acquireNamed(ctx context.Context, name claimName, c hansard.Claim) (hansard.Turn, error) {
	id := hansard.SessionID(name.session)
	for {
		own, cancel := context.WithCancel(ctx)
		mine, other := s.claims.begin(name, cancel)
		if mine != nil {
			t, err := s.acquire(own, id, c)
			cancel()
			if !s.claims.settle(name, mine, t.Grant) {
				return t, err
			}
			if err == nil {
				s.giveBack(id, t.Grant)
			}
			return hansard.Turn{}, errWithdrawn(id)
		}
		cancel()
		select {
		case <-other.done:
		case <-ctx.Done():
			return hansard.Turn{}, ctx.Err()
		}
		s.claims.mu.Lock()
		withdrawn, grant := other.withdrawn, other.grant
		s.claims.mu.Unlock()
		if withdrawn {
			return hansard.Turn{}, errWithdrawn(id)
		}
		if grant == "" {
			continue // it was refused: this one tries
		}
		t, err := s.store.Turn(ctx, id)
		if err == nil && (t == nil || t.Grant != grant) {
			err = &hansard.FencedError{Session: id, Grant: grant, Current: t}
		}
		if err != nil {
			return hansard.Turn{}, err
		}
		return *t, nil
	}
}

// withdraw gives up a claim with a name, and what it was granted.
func (s *Server) withdraw(ctx context.Context, name claimName) error {
	c := s.claims.withdraw(name)
	select {
	case <-c.done:
	case <-ctx.Done():
		return ctx.Err()
	}
	s.claims.mu.Lock()
	grant := c.grant
	s.claims.mu.Unlock()
	if grant != "" {
		s.giveBack(hansard.SessionID(name.session), grant)
	}
	return nil
}
