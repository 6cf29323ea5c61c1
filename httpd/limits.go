package httpd

import (
	"container/list"
	"fmt"
	"time"

	"hansard/internal/wire"
)

// limits bounds what may exist at once. Only tests change the default.
type limits struct {
	memory   int64 // of bodies and pages, in bytes; one token has half of it
	followed int64 // of the newest events of all sessions that are followed, in bytes
	// conns is how many connections there may be; strangers how many of them may
	// have used no token yet; one token may have conns/2.
	conns, strangers int
	each             [kinds]int // for one token
	// reading is how many requests of one token may read events that are not charged to the
	// memory yet, and waiting how many may wait for room with one.
	reading, waiting int
}

// kind is a kind of thing that a token may have under way.
type kind int

const (
	aRequest kind = iota
	aSocket
	aFollowing // of a session, on sockets
	aTurn      // waited for or held, on sockets
	aReport
	aSearch // in a session; running, or waiting to
	anUpload
	anExport // of a session
	kinds
)

var kindNames = [kinds]string{"requests", "WebSockets", "sessions followed", "turns", "reports", "searches", "uploads", "exports"}

var defaultLimits = limits{
	memory:    maxMemoryBytes,
	followed:  256 << 20,
	conns:     min(16_384, maxFiles()/2), // the store and the token file have to be opened, too
	strangers: min(4096, maxFiles()/8),
	each:      [kinds]int{aRequest: 8192, aSocket: 1024, aFollowing: 20_000, aTurn: 4096, aReport: 4, aSearch: 4, anUpload: 16, anExport: 64},
	reading:   64,
	waiting:   32,
}

// account is what one token has under way, whichever of its secrets (itself, a login, a
// narrowed token) was used.
type account struct {
	live   *live
	name   string
	under  [kinds]int // guarded by live.mu
	conns  int        // guarded by conns.mu
	bucket bucket     // guarded by live.mu
	rate   float64    // of the bucket; guarded by live.mu
	claims claims
	// searching has an element for each of its searches that runs; reading and waiting have
	// one for each of its requests that reads events, or waits for room for them (room.go).
	searching, reading, waiting chan struct{}
	idle                        list.List // of *conn: its idle ones, the longest first; guarded by conns.mu
}

// accountLocked finds or makes the account of a token. It is kept for as long as it is in
// use. The caller has l.mu.
func (l *live) accountLocked(name string) *account {
	a := l.accounts[name]
	if a == nil {
		a = &account{live: l, name: name, searching: make(chan struct{}, findEach)}
		a.reading, a.waiting = make(chan struct{}, l.server.limits.reading), make(chan struct{}, l.server.limits.waiting)
		l.accounts[name] = a
	}
	return a
}

// idleLocked reports whether an account need not be remembered.
func (a *account) idleLocked(now time.Time) bool {
	return a.under == [kinds]int{} && a.bucket.full(now, a.rate) && a.live.server.conns.of(a) == 0 && a.claims.none(now)
}

// take counts one more of a kind. The caller must give it back, once.
func (a *account) take(what kind) error {
	a.live.mu.Lock()
	defer a.live.mu.Unlock()
	return a.takeLocked(what)
}

func (a *account) takeLocked(what kind) error {
	most := a.live.server.limits.each[what]
	if a.under[what] >= most {
		return tooMany(fmt.Sprintf("this token has %d %s, which is the most there may be at a time", most, kindNames[what]))
	}
	a.under[what]++
	return nil
}

// pace takes one request from a token's rate.
func (a *account) pace(rate float64) error {
	if rate == 0 {
		return nil
	}
	a.live.mu.Lock()
	defer a.live.mu.Unlock()
	a.rate = rate
	wait := a.bucket.take(time.Now(), rate)
	if wait == 0 {
		return nil
	}
	p := wire.NewProblem("too-many-requests", "this token may not ask so often", "wait as long as Retry-After says, and ask again")
	p.RetryAfter = int(wait) + 1
	return p
}

func (a *account) give(what kind) {
	a.live.mu.Lock()
	defer a.live.mu.Unlock()
	a.under[what]--
}

// tooMany refuses a client that has too much under way.
func tooMany(detail string) error {
	p := wire.NewProblem("overloaded", detail, "let some of it end, and try again")
	p.RetryAfter = 1
	return p
}
