package httpd

import (
	"time"

	"hansard"
)

// NewHasty is New with little patience: for requests to arrive, and for clients
// to take what is written to them.
func NewHasty(store hansard.Store, opt Options, patience time.Duration) *Server {
	return newTimed(store, opt, timing{header: patience, body: patience, idle: patience, stall: patience, beat: patience})
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
