package httpd

import (
	"cmp"
	"fmt"
	"time"

	"hansard"
)

// Hurry is how much patience a server has: for requests to arrive, for clients to read what is
// written to them, for followers that were dropped, and between pings.
type Hurry struct{ Arrive, Stall, Grace, Beat time.Duration }

// NewHasty is New with little patience.
func NewHasty(store hansard.Store, opt Options, h Hurry) *Server {
	return newServer(store, opt, h.timing(), defaultLimits)
}

// Tight is how little room a server has; 0 is the default.
type Tight struct {
	Memory, Followed                                        int64
	Conns, Strangers                                        int
	Requests, Sockets, Followings, Turns, Reports, Searches int
	Exports, Reading, Waiting                               int
}

// NewTight is NewHasty with little room.
func NewTight(store hansard.Store, opt Options, h Hurry, t Tight) *Server {
	lim := defaultLimits
	lim.memory, lim.followed = cmp.Or(t.Memory, lim.memory), cmp.Or(t.Followed, lim.followed)
	lim.reading, lim.waiting = cmp.Or(t.Reading, lim.reading), cmp.Or(t.Waiting, lim.waiting)
	lim.conns, lim.strangers = cmp.Or(t.Conns, lim.conns), cmp.Or(t.Strangers, lim.strangers)
	for what, most := range map[kind]int{aRequest: t.Requests, aSocket: t.Sockets, aFollowing: t.Followings, aTurn: t.Turns, aReport: t.Reports, aSearch: t.Searches, anExport: t.Exports} {
		lim.each[what] = cmp.Or(most, lim.each[what])
	}
	return newServer(store, opt, h.timing(), lim)
}

// MemoryOf is how much of the memory for bodies and pages a token uses.
func (s *Server) MemoryOf(token string) int64 {
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	return s.memory.used[token]
}

// Kept is how many bytes of events are kept for followers.
func (s *Server) Kept() int64 { return s.hub.kept.Load() }

// Connections counts all connections, and those without a token.
func (s *Server) Connections() (all, strangers int) {
	s.conns.mu.Lock()
	defer s.conns.mu.Unlock()
	return len(s.conns.all), s.conns.strangers.Len()
}

// IdleOf counts the idle connections of a token.
func (s *Server) IdleOf(token string) int {
	s.live.mu.Lock()
	defer s.live.mu.Unlock()
	a := s.live.accounts[token]
	if a == nil {
		return 0
	}
	s.conns.mu.Lock()
	defer s.conns.mu.Unlock()
	return a.idle.Len()
}

// MaxPageBytes and MaxClaims are limits that tests use.
const (
	MaxPageBytes = maxPageBytes
	MaxClaims    = maxClaims
)

func (h Hurry) timing() timing {
	return timing{header: h.Arrive, body: h.Arrive, idle: h.Arrive, stall: h.Stall, grace: h.Grace, beat: h.Beat}
}

// Routes returns the methods of every route.
func (s *Server) Routes() map[string][]string {
	out := map[string][]string{}
	for path, methods := range s.routes() {
		for method := range methods {
			out[path] = append(out[path], method)
		}
	}
	return out
}

// TakeApart parses a WebSocket message without acting on it.
func TakeApart(message []byte) {
	if q, err := parseRequest(message); err == nil {
		_, _ = q.id()
	}
}

// FillBodies takes all the memory for bodies.
func (s *Server) FillBodies() (free func()) {
	var all []*load
	for i := 0; ; i++ {
		l := s.memory.load(fmt.Sprint("filler ", i))
		all = append(all, l)
		if !l.tryGrow(min(s.memory.left, s.memory.each)) || s.memory.left == 0 {
			break
		}
	}
	return func() {
		for _, l := range all {
			l.free()
		}
	}
}

// Following counts the followers.
func (s *Server) Following() int {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	n := 0
	for _, p := range s.hub.pumps {
		n += p.refs
	}
	return n
}

// Claims counts the named claims, pending or settled.
func (s *Server) Claims() int {
	return s.countClaims(func(c *claims) int { return len(c.m) })
}

// Askers counts the requests that are entered under the name of a claim and not answered yet.
func (s *Server) Askers() int {
	return s.countClaims(func(c *claims) (n int) {
		for _, it := range c.m {
			n += it.askers
		}
		return n
	})
}

func (s *Server) countClaims(of func(*claims) int) (n int) {
	s.live.mu.Lock()
	defer s.live.mu.Unlock()
	for _, a := range s.live.accounts {
		a.claims.mu.Lock()
		n += of(&a.claims)
		a.claims.mu.Unlock()
	}
	return n
}

// Occupy makes all followers wait to be served.
func (s *Server) Occupy() (release func()) {
	slots := s.hub.service.slots
	for range cap(slots) {
		slots <- struct{}{}
	}
	return func() {
		for range cap(slots) {
			<-slots
		}
	}
}

// Waiting is how many followers wait to be served.
func (s *Server) Waiting() int { return int(s.hub.service.waiting.Load()) }

// OutlivesMax is how long a request may go on after its token was withdrawn.
const OutlivesMax = tokensLook + watchEvery + lastWords

// Busy is how many requests with tokens are in flight.
func (s *Server) Busy() int {
	s.live.mu.Lock()
	defer s.live.mu.Unlock()
	return s.live.busy
}

// Uploads is how many uploads are in flight.
func (s *Server) Uploads() (n int) {
	s.live.mu.Lock()
	defer s.live.mu.Unlock()
	for _, a := range s.live.accounts {
		n += a.under[anUpload]
	}
	return n
}

// MaxLogins is how many logins a token may have, and MaxCodes how many used codes.
const (
	MaxLogins = maxLogins
	MaxCodes  = maxCodes
)

// Logins counts the browsers that are logged in.
func (s *Server) Logins() int {
	s.logins.mu.Lock()
	defer s.logins.mu.Unlock()
	return len(s.logins.m)
}
