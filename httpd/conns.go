package httpd

import (
	"container/list"
	"context"
	"net"
	"net/http"
	"sync"
)

// conns tracks the open connections, so that no client can take them all. Clients without a
// token share a limited number: past it, a new connection closes the oldest. Each token has
// a limit, too: past it, its idle connections are closed for new ones.
type conns struct {
	most, strangersMost int

	mu        sync.Mutex // guards all below, and of each account the conns and idle
	all       map[net.Conn]*conn
	strangers list.List // of *conn: without an account, oldest first
}

// conn is one connection.
type conn struct {
	net.Conn
	owner *account
	list  *list.List // the list it is in: strangers, or the owner's idle ones
	place *list.Element
}

type connKey struct{}

// begin adds a new connection. It is closed if there are too many.
func (c *conns) begin(ctx context.Context, nc net.Conn) context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.all) >= c.most || c.strangers.Len() >= c.strangersMost {
		oldest := c.strangers.Front()
		if oldest == nil {
			_ = nc.Close()
			return ctx
		}
		c.closeLocked(oldest.Value.(*conn))
	}
	one := &conn{Conn: nc}
	c.all[nc] = one
	one.put(&c.strangers)
	return context.WithValue(ctx, connKey{}, one)
}

// state follows the state of a connection. The code that hijacks one has to call end.
func (c *conns) state(nc net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	one := c.all[nc]
	switch {
	case one == nil:
	case state == http.StateClosed:
		c.removeLocked(one)
	case one.owner == nil:
	case state == http.StateIdle:
		one.put(&one.owner.idle)
	default:
		one.unlist()
	}
}

// own assigns a connection to the first account whose token was used on it.
func (c *conns) own(ctx context.Context, a *account) error {
	one, _ := ctx.Value(connKey{}).(*conn)
	if one == nil {
		return nil // another program's server
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if one.owner != nil || c.all[one.Conn] == nil {
		return nil
	}
	if a.conns >= c.most/2 {
		longest := a.idle.Front()
		if longest == nil {
			return tooMany("this token has half of all connections there may be")
		}
		c.closeLocked(longest.Value.(*conn))
	}
	one.owner = a
	a.conns++
	one.unlist()
	return nil
}

// end forgets a connection that was hijacked.
func (c *conns) end(ctx context.Context) {
	if one, _ := ctx.Value(connKey{}).(*conn); one != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.removeLocked(one)
	}
}

// of is how many connections an account has.
func (c *conns) of(a *account) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return a.conns
}

func (c *conns) closeLocked(one *conn) {
	c.removeLocked(one)
	// Not under the lock: closing TLS writes to the other end.
	go func() { _ = one.Close() }()
}

func (c *conns) removeLocked(one *conn) {
	if c.all[one.Conn] != one {
		return
	}
	delete(c.all, one.Conn)
	one.unlist()
	if one.owner != nil {
		one.owner.conns--
	}
}

func (one *conn) put(to *list.List) {
	one.unlist()
	one.list, one.place = to, to.PushBack(one)
}

func (one *conn) unlist() {
	if one.list != nil {
		one.list.Remove(one.place)
		one.list, one.place = nil, nil
	}
}
