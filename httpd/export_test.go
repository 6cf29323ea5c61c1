package httpd

import (
	"time"

	"hansard"
)

// Hurry is how little patience a server has: for requests to arrive, for clients to
// take what is written to them, for followers that were dropped, and between pings.
type Hurry struct{ Arrive, Stall, Grace, Beat time.Duration }

// NewHasty is New with little patience.
func NewHasty(store hansard.Store, opt Options, h Hurry) *Server {
	return newTimed(store, opt, timing{header: h.Arrive, body: h.Arrive, idle: h.Arrive, stall: h.Stall, grace: h.Grace, beat: h.Beat})
}

// Routes gives the methods of every route.
func (s *Server) Routes() map[string][]string {
	out := map[string][]string{}
	for path, methods := range s.routes() {
		for method := range methods {
			out[path] = append(out[path], method)
		}
	}
	return out
}

// TakeApart is what becomes of a WebSocket message before anything is done.
func TakeApart(message []byte) {
	if q, err := parseRequest(message); err == nil {
		_, _ = q.id()
	}
}

// FillBodies takes all memory there is for bodies.
func (s *Server) FillBodies() (free func()) {
	s.bodies.mu.Lock()
	defer s.bodies.mu.Unlock()
	size := s.bodies.left
	s.bodies.left = 0
	return s.bodies.giver(size)
}

// Following counts those who follow.
func (s *Server) Following() int {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	n := 0
	for _, p := range s.hub.pumps {
		n += p.refs
	}
	return n
}

// Claims counts the claims with a name, under way or settled.
func (s *Server) Claims() int {
	s.claims.mu.Lock()
	defer s.claims.mu.Unlock()
	return len(s.claims.m)
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
