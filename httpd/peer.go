package httpd

import (
	"context"
	"net"
	"net/http"
	"time"
)

// net/http notices that a client is gone by reading from its connection, and stops doing
// so at the first byte it gets. The request of a client that sent more bytes after it
// and then left would wait for ever, and be granted a turn that nobody knows of.

// peerEvery is how often a waiting client is checked to be still there.
const peerEvery = 250 * time.Millisecond

// peerGone reports whether the client of a request has closed its connection, on systems
// where that can be found out.
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

// whileThere calls gone when the client of a request disconnects. It ends with the context.
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
