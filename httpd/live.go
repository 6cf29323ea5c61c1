package httpd

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"hansard"
	"hansard/internal/wire"
)

// Withdrawing a token ends everything it had under way. Code that writes streams, reads
// bodies and waits for turns need not check for it: every request has a context that
// ends with its token, and one watcher rechecks all tokens in use.

const (
	// watchEvery is how often the watcher checks. Together with tokensLook and lastWords
	// it bounds how long something may outlive its token: less than 2 s, however busy.
	watchEvery = 500 * time.Millisecond
	// lastWords is how long a client has to receive the news that its token was withdrawn.
	lastWords = 500 * time.Millisecond
	// maxTurnsKept is how many turns of one token are released when it is withdrawn.
	// The others are left to their TTL.
	maxTurnsKept = 10_000
)

// errTokenGone is the cause for which the requests of a withdrawn token end.
var errTokenGone = unauthorized("the token was withdrawn")

// live has the tokens that are in use.
type live struct {
	access Access
	server *Server

	mu       sync.Mutex // guards all below
	busy     int        // requests under way
	accounts map[string]*account
	users    map[hashed]*user
	watching bool
}

// user is one token in use.
type user struct {
	live  *live
	token string
	ctx   context.Context // ends when the token is withdrawn
	end   context.CancelCauseFunc
	refs  int                        // requests under way; guarded by live.mu
	turns map[hansard.Grant]turnKept // what it holds through this server; guarded by live.mu
}

// turnKept is a turn that a token holds.
type turnKept struct {
	session hansard.SessionID
	until   time.Time // when its TTL ends it; zero while a socket renews it
}

func newLive(s *Server) *live {
	return &live{access: s.logins, server: s, users: map[hashed]*user{}, accounts: map[string]*account{}}
}

// enter begins a request of a token, if the token is valid. The caller must leave.
func (l *live) enter(token string) (caller, error) {
	pass, ok := l.access.Who(token)
	if !ok {
		return caller{}, unauthorized("the token is not one of this server's")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	account := l.accountLocked(pass.Name)
	if err := account.takeLocked(aRequest); err != nil {
		return caller{}, err
	}
	hash := hashToken(token)
	u := l.users[hash]
	if u == nil {
		u = &user{live: l, token: token, turns: map[hansard.Grant]turnKept{}}
		u.ctx, u.end = context.WithCancelCause(context.Background())
		l.users[hash] = u
	}
	u.refs++
	l.busy++
	if !l.watching {
		l.watching = true
		l.server.followers.Go(l.watch)
	}
	return caller{Pass: pass, user: u, account: account}, nil
}

func (c caller) leave() {
	l := c.user.live
	l.mu.Lock()
	defer l.mu.Unlock()
	c.account.under[aRequest]--
	c.user.refs--
	l.busy--
}

// keep notes a turn that the token was granted, or has renewed: for a TTL, or with 0
// until the next keep or drop. It returns false if the token was withdrawn: then the
// turn has to be given back.
func (u *user) keep(id hansard.SessionID, g hansard.Grant, ttl time.Duration) bool {
	u.live.mu.Lock()
	defer u.live.mu.Unlock()
	if u.ctx.Err() != nil {
		return false
	}
	t := turnKept{session: id}
	if ttl > 0 {
		t.until = time.Now().Add(ttl)
	}
	if len(u.turns) < maxTurnsKept || u.turns[g].session != "" {
		u.turns[g] = t
	}
	return true
}

// drop forgets a turn that was given up.
func (u *user) drop(g hansard.Grant) {
	u.live.mu.Lock()
	defer u.live.mu.Unlock()
	delete(u.turns, g)
}

// watch rechecks the tokens in use until there are none.
func (l *live) watch() {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for l.look(time.Now()) {
		select {
		case <-tick.C:
		case <-l.server.closing.Done():
			return // everything under way ends anyway
		}
	}
}

// look ends what withdrawn tokens have under way and forgets unused ones. It
// reports whether anything is left to watch.
func (l *live) look(now time.Time) bool {
	gone := l.withdrawn()
	l.mu.Lock()
	defer l.mu.Unlock()
	for hash, u := range l.users {
		for g, t := range u.turns {
			if !t.until.IsZero() && now.After(t.until) {
				delete(u.turns, g)
			}
		}
		if gone[u] {
			delete(l.users, hash)
			u.end(errTokenGone)
			l.server.giveBackAll(u.turns)
			u.turns = nil
		} else if u.refs == 0 && len(u.turns) == 0 {
			delete(l.users, hash)
			u.end(nil)
		}
	}
	for name, a := range l.accounts {
		if a.idleLocked(now) {
			delete(l.accounts, name)
		}
	}
	l.watching = len(l.users)+len(l.accounts) > 0
	return l.watching
}

// withdrawn returns the users whose tokens are no longer valid. It asks without the lock, which
// every request takes: to check the signatures of many narrowed tokens takes long.
func (l *live) withdrawn() map[*user]bool {
	l.mu.Lock()
	users := slices.Collect(maps.Values(l.users))
	l.mu.Unlock()
	gone := map[*user]bool{}
	for _, u := range users {
		if _, ok := l.access.Who(u.token); !ok {
			gone[u] = true
		}
	}
	return gone
}

// giveBackAll releases the turns of a withdrawn token: nobody could renew or release
// them any more, and an exclusive one would keep others out for its TTL.
func (s *Server) giveBackAll(turns map[hansard.Grant]turnKept) {
	if len(turns) == 0 {
		return
	}
	s.followers.Go(func() {
		for g, t := range turns {
			s.giveBack(context.Background(), t.session, g)
		}
	})
}

// under ties a request to its token: its context ends with the token, and so does,
// after a moment to say so, whatever is being read from or written to the client.
func (c caller) under(ctx context.Context, w *recorder) (context.Context, func()) {
	out, cancel := context.WithCancelCause(ctx)
	c.outside = &w.outside
	stop := context.AfterFunc(c.user.ctx, func() {
		cancel(context.Cause(c.user.ctx))
		w.finish()
	})
	return context.WithValue(out, callerKey{}, c), func() {
		stop()
		cancel(nil)
		c.leave()
	}
}

// ended is the problem that ended a context; nil if it ended because the client is gone.
func ended(ctx context.Context) error {
	var p *wire.Problem
	if errors.As(context.Cause(ctx), &p) {
		return p
	}
	return nil
}

// because replaces an error that only says that the context ended with the problem
// that ended it.
func because(ctx context.Context, err error) error {
	if p := ended(ctx); p != nil && errors.Is(err, context.Canceled) && !errors.Is(err, hansard.ErrUnknown) {
		return p
	}
	return err
}
