package httpd

import (
	"context"
	"net"
	"net/http"
	"time"
)

// net/http notices that a client is gone by reading on from its connection, and stops
// that with the first byte it gets. A client that sent something behind its request and
// then went would wait for ever, and be granted a turn that nobody knows of.

// peerEvery is how often it is looked whether a client that waits is there.
const peerEvery = 250 * time.Millisecond

// peerGone tells whether the client of a request has closed its connection, where that
// can be told.
func peerGone(r *http.Request) bool {
	one, _ := r.Context().Value(connKey{}).(*conn)
	if one == nil {
		return false // another program's server
	}
	c := one.Conn
	if wrapped, ok := c.(interface{ NetConn() net.Conn }); ok { // TLS
		c = wrapped.NetConn()
	}
	return closedByPeer(c)
}

// whileThere calls gone when the client of a request goes. It ends with the context.
func whileThere(ctx context.Context, r *http.Request, gone func()) {
	tick := time.NewTicker(peerEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if peerGone(r) {
				gone()
				return
			}
		}
	}
}
