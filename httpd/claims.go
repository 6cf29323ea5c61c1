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

// A client that asks for a turn and gives up, or loses its connection, in the very
// moment it is granted would leave behind a grant that nobody knows of. So a claim
// may have a name of the client's: asked again under the name, the answer is the
// same turn; withdrawn under it, the turn is given back, granted or not.
//
// The names are kept in memory, by the server that was asked, for a while. What
// another server knows nothing of is left to the TTL.

const (
	claimsKept = 10 * time.Minute
	// maxClaims is how many names of one token are kept. Beyond that the oldest
	// that are settled are forgotten sooner.
	maxClaims = 4096
)

// claims are the claims of one token that have a name.
type claims struct {
	mu      sync.Mutex // guards all below, and all of each
	m       map[claimName]*claimed
	settled list.List // of *claimed: granted or withdrawn, oldest first
}

type claimName struct{ session, name string }

// claimed is one of them.
type claimed struct {
	key       claimName
	cancel    context.CancelFunc
	done      chan struct{} // closed when it is settled or refused
	grant     hansard.Grant // once it is granted
	withdrawn bool
	since     time.Time // when it was settled
}

// begin enters a claim under a name. With another that is under way, or that was
// granted, it gives that one.
func (c *claims) begin(name claimName, cancel context.CancelFunc) (mine, other *claimed, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expireLocked(time.Now())
	if other = c.m[name]; other != nil {
		return nil, other, nil
	}
	if len(c.m) >= maxClaims {
		if c.settled.Len() == 0 {
			return nil, nil, tooMany(fmt.Sprintf("this token has %d claims under way", maxClaims))
		}
		c.forgetLocked()
	}
	mine = &claimed{key: name, cancel: cancel, done: make(chan struct{})}
	if c.m == nil {
		c.m = map[claimName]*claimed{}
	}
	c.m[name] = mine
	return mine, nil, nil
}

// expireLocked forgets the claims that were kept for long enough. They are in order,
// so it looks at no more than those and one.
func (c *claims) expireLocked(now time.Time) {
	for c.settled.Len() > 0 && now.Sub(c.settled.Front().Value.(*claimed).since) > claimsKept {
		c.forgetLocked()
	}
}

// forgetLocked forgets the one that was settled first.
func (c *claims) forgetLocked() {
	delete(c.m, c.settled.Remove(c.settled.Front()).(*claimed).key)
}

// none tells whether there are none left now.
func (c *claims) none(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expireLocked(now)
	return len(c.m) == 0
}

// settle notes what became of a claim. It tells whether it was withdrawn.
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
		delete(c.m, mine.key) // it may be asked again
		return
	}
	mine.since = time.Now()
	c.settled.PushBack(mine)
}

// withdraw marks a claim as given up, also one that was not heard of yet.
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

// acquireNamed is acquire for a claim with a name.
func (s *Server) acquireNamed(ctx context.Context, name claimName, c hansard.Claim) (hansard.Turn, error) {
	id, claims := hansard.SessionID(name.session), &callerOf(ctx).account.claims
	if err := hansard.CheckID(id); err != nil {
		return hansard.Turn{}, err
	}
	for {
		own, cancel := context.WithCancel(ctx)
		mine, other, err := claims.begin(name, cancel)
		if err != nil {
			cancel()
			return hansard.Turn{}, err
		}
		if mine != nil {
			t, err := s.acquire(own, id, c)
			cancel()
			if !claims.settle(mine, t.Grant) {
				return t, err
			}
			if err == nil {
				s.giveBack(ctx, id, t.Grant)
			}
			return hansard.Turn{}, errClaimWithdrawn(id)
		}
		cancel()
		select {
		case <-other.done:
		case <-ctx.Done():
			return hansard.Turn{}, ctx.Err()
		}
		claims.mu.Lock()
		withdrawn, grant := other.withdrawn, other.grant
		claims.mu.Unlock()
		if withdrawn {
			return hansard.Turn{}, errClaimWithdrawn(id)
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
	claims := &callerOf(ctx).account.claims
	if err := errors.Join(hansard.CheckID(hansard.SessionID(name.session)), wire.CheckClaimName(name.name)); err != nil {
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
